"""A privacy statement in short: who is protected, from whom, how strongly, for how long, who is not, what is left."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from protocols.claims.coverage import several
from protocols.claims.kept import kept, keys, withdrawal
from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, attack, odds, strength
from protocols.claims.who_sees import leaves, not_protected_from
from protocols.plural import at_most

_UNITS = {
    "record": "one record of one hospital",
    "patient": "one patient at one hospital",
    "party": "one hospital's data",
}

_NOT_CHECKED = (
    "This page states; it proves nothing by itself: verify the folder (below). Verifying cannot show that the noise "
    "was drawn as stated, that no earlier release was left out, which certificates were revoked, or that a hospital's "
    "records are true and its patients counted as the study means. For these you trust those who say so. Nobody "
    "outside the project has reviewed the software."
)


def in_short(study: Protection, *, hospitals: Sequence[Figure], known_to: Sequence[Figure]) -> dict[str, object]:
    """The verdict in one sentence, and points by name.

    hospitals: of each seat; known_to: of a patient known to any 1, 2, ... hospitals.
    """
    worst = max(hospitals, key=lambda each: each.epsilon)
    return {"verdict": _verdict(study, worst), "points": _points(study, hospitals, known_to, worst)}


def _verdict(study: Protection, worst: Figure) -> str:
    whose = _UNITS[study.unit]
    if worst.epsilon == inf:
        return f"No guarantee for {whose} at delta {at_most(worst.delta)}."
    return f"{worst.rating.capitalize()} protection of {whose}: {attack(worst)}."


def _points(
    study: Protection, hospitals: Sequence[Figure], known_to: Sequence[Figure], worst: Figure
) -> dict[str, str]:
    epsilons = dict.fromkeys(at_most(find(each.epsilon for each in hospitals)) for find in (min, max))
    points = {
        "Who is protected": f"{study.unit_in_words[0].upper()}{study.unit_in_words[1:]}. Each hospital has a figure of "
        f"its own, epsilon {' to '.join(epsilons)}; the sentence above is about the largest.",
        "From whom": f"Anyone who sees {study.view_in_words}: the public, the other hospitals, whoever uses the student"
        f"{study.at.within}.",
        "How strong": "There is no guarantee."
        if worst.epsilon == inf
        else f"An epsilon of {at_most(worst.epsilon)} is {worst.rating}. {odds(worst)} This is the worst case; what "
        "usually happens may be much less.",
        "For how long": "For ever, whatever anybody knows or finds out later, and whatever is made of this release. "
        "But a release cannot be called back, and each further release on the same data adds to what is known.",
        "Patients of several hospitals": _several(study, known_to),
        "Who is not protected": f"Nobody is protected from {not_protected_from(study)} And nothing protects the people "
        "whom the public pool of questions is about.",
        "What leaves a hospital": leaves(study),
        "What is kept": " ".join(f"{each['who'].capitalize()}: {each['keeps']}" for each in kept(study)[:-1]),
        "Who holds which keys": " ".join(keys(study)),
        "Who objects or withdraws": " ".join(withdrawal(study)),
        "What is not checked": _NOT_CHECKED,
        "For you to decide": "On which legal basis this was done, whether this strength is enough for these data, "
        "whether patients of several hospitals are protected enough, and when each side deletes what it keeps. "
        "The officer's file beside this folder lists it, to be filled in.",
    }
    return points


def _several(study: Protection, figures: Sequence[Figure]) -> str:
    """A patient known to two hospitals, or to as many as are charged for and one more, and to all of them."""
    first = study.hospitals + 1
    beyond = {count: figures[count - 1] for count in (first, len(figures)) if first <= count <= len(figures)}
    said = " ".join(
        f"Known to any {count}: epsilon {at_most(each.epsilon)}. {strength(each)}" for count, each in beyond.items()
    )
    if study.hospitals == 1 and said:
        return f"They are protected less, as their data move the votes of each. {said}"
    return f"{several(study)} {said}".strip()
