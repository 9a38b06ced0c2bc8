"""A privacy statement in short: who is protected, from whom, how strongly, who is not, what is unchecked; and more."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any  # texts, and texts by name

from protocols.claims.kept import kept, keys, withdrawal
from protocols.claims.languages import (
    ENGLISH,
    LANGUAGES,
    attacked,
    guesses,
    known_to_several,
    number,
    protected,
    say,
    seen,
    unprotected,
)
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, odds, percent_at_most
from protocols.claims.who_sees import leaves
from protocols.plural import at_most

# From this share of right guesses on, a guarantee is of no use.
_USELESS = 0.999


def in_short(study: Protection, *, hospitals: Sequence[Figure], known_to: Sequence[Figure]) -> dict[str, Any]:
    """The verdict in one sentence, five points by name, and more of them, for an officer; `languages` has verdict and
    points in each other language.

    hospitals: of each seat; known_to: of a patient known to any 1, 2, ... hospitals.
    """
    worst = max(hospitals, key=lambda each: each.epsilon)
    short = {each: _short(each, study, hospitals, known_to, worst) for each in (ENGLISH, *LANGUAGES)}
    return {**short.pop(ENGLISH), "more": _more(study, worst), "languages": short}


def _short(
    language: str, study: Protection, hospitals: Sequence[Figure], known_to: Sequence[Figure], worst: Figure
) -> dict[str, Any]:
    def s(key: str, **values: object) -> str:
        return say(language, key, **values)

    whose, right = s(study.unit), guesses(language, worst)
    verdict = s("useless", whose=whose, guesses=right)
    if worst.epsilon == inf:
        verdict = s("no epsilon", whose=whose, delta=number(language, at_most(worst.delta)))
    elif worst.guessed < _USELESS:
        verdict = s("protection", rating=s(worst.rating), whose=whose, guesses=right)
    least, most = (number(language, at_most(find(each.epsilon for each in hospitals))) for find in (min, max))
    own = least if least == most else s("range", least=least, most=most)
    how = s("nothing")
    if worst.epsilon != inf:
        how = s("is strong", epsilon=most, rating=s(worst.rating), attack=attacked(language, worst))
    within = s("within") if study.at.within else ""
    points = {
        "who": s("is protected", unit=protected(language, study), epsilons=own),
        "whom": s("from whom", view=seen(language, study), within=within),
        "how": how,
        "not": " ".join(filter(None, [
            unprotected(language, study), s("pool"), s("several records") if study.unit == "record" else "",
            _several(language, study, known_to),
        ])),
        "open": s("unchecked"),
    }  # fmt: skip
    return {"verdict": verdict, "points": {s(name): said for name, said in points.items()}}


def _more(study: Protection, worst: Figure) -> dict[str, str]:
    likely = {} if worst.epsilon == inf else {"By how much odds move": odds(worst)}
    return {
        **likely,
        "What leaves a hospital": leaves(study),
        "What is kept": " ".join(f"{each['who'].capitalize()}: {each['keeps']}" for each in kept(study)[:-1]),
        "Who holds which keys": " ".join(keys(study)),
        "Who objects or withdraws": " ".join(withdrawal(study)),
        "For you to decide": "On which legal basis this was done, whether this strength is enough for these data, "
        "whether patients of several hospitals are protected enough, and when each side deletes what it keeps. "
        "The officer's file beside this folder lists it, to be filled in.",
    }


def _several(language: str, study: Protection, figures: Sequence[Figure]) -> str:
    """A patient known to two hospitals, or to as many as are charged for and one more, and to all of them."""
    first, said = study.hospitals + 1, [known_to_several(language, study)]
    for count in sorted({first, len(figures)}):
        if first <= count <= len(figures):
            each = figures[count - 1]
            if each.epsilon == inf:
                said.append(say(language, "known without", count=count))
                continue
            epsilon, rating = number(language, at_most(each.epsilon)), say(language, each.rating)
            share = number(language, percent_at_most(each.guessed))
            said.append(say(language, "known to", count=count, epsilon=epsilon, rating=rating, share=share))
    return " ".join(said) if len(said) > 1 or study.hospitals > 1 else ""
