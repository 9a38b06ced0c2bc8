"""A privacy statement in short: who is protected, from whom, how strongly, who is not, what is unchecked; and more."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any  # texts, and texts by name

from protocols.claims.coverage import several
from protocols.claims.kept import kept, keys, withdrawal
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, attack, odds, percent_at_most, strength
from protocols.claims.who_sees import leaves, not_protected_from
from protocols.plural import at_most

_UNITS = {
    "record": "one record of one hospital",
    "patient": "one patient at one hospital",
    "party": "one hospital's data",
}

_NOT_CHECKED = (
    "Verifying the folder cannot show that the noise was drawn as stated, that no earlier release was left out, "
    "or that a hospital's records are true and its patients counted as the study means. Nobody outside the project has "
    "reviewed the software."
)
# From this share of right guesses on, a guarantee is of no use.
_USELESS = 0.999


def in_short(study: Protection, *, hospitals: Sequence[Figure], known_to: Sequence[Figure]) -> dict[str, Any]:
    """The verdict in one sentence, five points by name, and more of them, for an officer.

    hospitals: of each seat; known_to: of a patient known to any 1, 2, ... hospitals.
    """
    worst = max(hospitals, key=lambda each: each.epsilon)
    return {
        "verdict": _verdict(study, worst),
        "points": _points(study, hospitals, known_to, worst),
        "more": _more(study, worst),
    }


def _verdict(study: Protection, worst: Figure) -> str:
    whose = _UNITS[study.unit]
    if worst.epsilon == inf:
        return f"No useful guarantee for {whose}: there is no epsilon at delta {at_most(worst.delta)}."
    if worst.guessed >= _USELESS:
        return f"No useful guarantee for {whose}: {attack(worst)}."
    return f"{worst.rating.capitalize()} protection of {whose}: {attack(worst)}."


def _points(
    study: Protection, hospitals: Sequence[Figure], known_to: Sequence[Figure], worst: Figure
) -> dict[str, str]:
    epsilons = dict.fromkeys(at_most(find(each.epsilon for each in hospitals)) for find in (min, max))
    how = "There is no guarantee."
    if worst.epsilon != inf:
        how = (
            f"An epsilon of {at_most(worst.epsilon)} is {worst.rating}: of 100 guesses which of two values these data "
            f"have, at most {percent_at_most(worst.guessed)} are right, where a coin is right in 50. This holds for "
            "ever, whatever anybody knows or finds out later; a release cannot be called back, and a further "
            "one on the same data adds to it."
        )
    return {
        "Who is protected": f"{study.unit_in_words[0].upper()}{study.unit_in_words[1:]}. Each hospital has a figure of "
        f"its own, epsilon {' to '.join(epsilons)}; the sentence above is about the largest.",
        "From whom": f"Anyone who sees {study.view_in_words}: the public, the other hospitals, whoever uses the student"
        f"{study.at.within}.",
        "How strong": how,
        "Who is not protected": f"Nobody is protected from {not_protected_from(study)} Nothing protects the people "
        f"whom the public pool is about. {_several(study, known_to)}",
        "What is not checked": _NOT_CHECKED,
    }


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


def _several(study: Protection, figures: Sequence[Figure]) -> str:
    """A patient known to two hospitals, or to as many as are charged for and one more, and to all of them."""
    first = study.hospitals + 1
    beyond = {count: figures[count - 1] for count in (first, len(figures)) if first <= count <= len(figures)}
    said = " ".join(
        f"Known to any {count}: epsilon {at_most(each.epsilon)}. {strength(each)}" for count, each in beyond.items()
    )
    if study.hospitals == 1 and said:
        return f"Patients of several hospitals are protected less. {said}"
    return f"{several(study)} {said}".strip()
