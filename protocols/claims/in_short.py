"""A privacy statement in short: who is protected, from whom, how strongly, for how long, who is not, what is left."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.claims.coverage import SEVERAL
from protocols.claims.kept import kept, keys
from protocols.claims.protection import Protection
from protocols.claims.strength import guess, rating, rounded_up, strength
from protocols.claims.who_sees import leaves, not_protected_from
from protocols.claims.withdrawal import withdrawal

Figure = tuple[float | None, float]
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


def in_short(study: Protection, *, hospitals: Sequence[Figure], several: Sequence[Figure]) -> dict[str, object]:
    """The verdict in one sentence, and points by name.

    hospitals: (epsilon, delta) of each seat, an epsilon of None for no guarantee; several: the same of a patient known
    to any 1, 2, ... hospitals.
    """
    worst, delta = max(hospitals, key=lambda each: _size(each[0]))
    return {"verdict": _verdict(study, worst, delta), "points": _points(study, hospitals, several)}


def _verdict(study: Protection, epsilon: float | None, delta: float) -> str:
    whose = _UNITS[study.unit]
    if epsilon is None:
        return f"No guarantee for {whose} at delta {delta:g}."
    return f"{rating(epsilon).capitalize()} protection of {whose}: {guess(epsilon, delta)}."


def _points(study: Protection, hospitals: Sequence[Figure], several: Sequence[Figure]) -> dict[str, str]:
    epsilons = sorted(_size(epsilon) for epsilon, _ in hospitals)
    between = _shown(epsilons[0]) if epsilons[0] == epsilons[-1] else f"{_shown(epsilons[0])} to {_shown(epsilons[-1])}"
    most = max(delta for _, delta in hospitals)
    points = {
        "Who is protected": f"{study.unit_in_words[0].upper()}{study.unit_in_words[1:]}. Each hospital has a figure of "
        f"its own, epsilon {between}; the sentence above is of the largest.",
        "From whom": f"Anyone who sees {study.view_in_words}: the public, the other hospitals, whoever uses the student"
        f"{'' if study.level == 'clear' else ', and the coordinator within what is said below'}.",
        "How strong": f"An epsilon of {_shown(epsilons[-1])} is {rating(epsilons[-1])}. Odds between two values of "
        f"these data change by a factor of at most e to the power of epsilon, but for delta: a probability of at most "
        f"{most:g}, one in {1 / most:,.0f}, by which the bound may be missed. It is the worst case; what happens "
        "typically may be much less.",
        "For how long": "For ever, whatever anybody knows or finds out later, and whatever is made of this release. "
        "But a release cannot be called back, and each further release on the same data adds to what is known.",
        "Patients of several hospitals": _several(several),
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


def _several(several: Sequence[Figure]) -> str:
    """A patient known to two hospitals, and to all of them."""
    if len(several) < 2:
        return SEVERAL
    said = [
        f"Known to any {count}: {'' if epsilon is None else f'epsilon {_shown(epsilon)}, '}"
        f"{_lower(strength(epsilon, delta))}"
        for count, (epsilon, delta) in {2: several[1], len(several): several[-1]}.items()
    ]
    return f"They are protected less, as their data move the votes of each. {' '.join(said)}"


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _size(epsilon: float | None) -> float:
    return float("inf") if epsilon is None else epsilon


def _shown(epsilon: float) -> str:
    return "none" if epsilon == float("inf") else f"{rounded_up(epsilon):g}"
