"""Who sees what at each level, and from whom nothing protects."""

from __future__ import annotations

from protocols.claims.protection import Protection
from protocols.errors import InvalidInput

_JUDGED = ", and once, in the same way, the sum of what its judges say of the student"
_RESIDUALS = ", and once more, in the same way, the sum of differences between labels and scores of the first sum"


def not_protected_from(study: Protection) -> str:
    """Who can see votes, or more than the figures allow, at the study's level."""
    return study.filled(study.at.not_protected_from)


def leaves(study: Protection) -> str:
    """What leaves a hospital, and what does not, in two sentences."""
    return (
        f"No record leaves a hospital: what leaves it is {study.said.sent} on {study.at.asked}, {study.at.how}"
        f"{_JUDGED if study.judges else ''}{_RESIDUALS if study.residuals else ''}. With it go signed receipts of what "
        "its ledger charged."
    )


def who_sees_votes(study: Protection) -> str:
    """Who sees a vote and who adds the noise, in one sentence."""
    return study.filled(study.at.who_sees_votes)


def noise_added(study: Protection, *, votes: float) -> str:
    """Who adds how much noise. votes: the standard deviation of what each sum has in the end, if every seat voted."""
    return study.filled(study.at.noise, votes=votes)


def who_saw_what(study: Protection, *, coordinator: str) -> list[dict[str, str]]:
    """Who saw what in a study of public queries, and what protects the hospitals' data from them.

    coordinator: its name. Raises InvalidInput for a study of hidden queries, which has no release.
    """
    if not study.at.servers:
        raise InvalidInput(f"level is {study.level!r}; allowed: one of public queries, as no other has a release")
    public = f"each hospital's epsilon in this statement; {study.figures}"
    return [
        dict(zip(("who", "saw", "protection"), row, strict=True))
        for row in (
            *([study.filled(each, coordinator=coordinator) for each in row] for row in study.at.servers),
            ("each hospital", study.said.saw_hospital, "as the public, for the data of the other hospitals"),
            ("the public, and whoever holds this release", study.said.saw_public, public),
            ("the network between them", "encrypted traffic: sizes and times", "mutual TLS"),
        )
    ]


def guardian_sees(study: Protection) -> str:
    """What a guardian that approves a study will see. Raises InvalidInput for a level without a guardian."""
    _check_guarded(study)
    return study.filled(study.at.guardian_sees)


def not_covered_by_guardian(study: Protection) -> list[str]:
    """What a guardian is told before it approves a study. Raises InvalidInput for a level without a guardian."""
    _check_guarded(study)
    return [
        f"If you and {study.asks} combine what you hold, votes are in the clear; nobody else prevents that.",
        f"{study.filled(study.at.departs)}{study.said.refused}",
    ]


def _check_guarded(study: Protection) -> None:
    if not study.at.guarded:
        raise InvalidInput(f"level is {study.level!r}; allowed: two_server, hidden_queries, which have a guardian")
