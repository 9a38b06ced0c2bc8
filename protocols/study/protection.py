"""What the sentences of protocols/claims.py depend on, as a study fixes it."""

from __future__ import annotations

from protocols.claims import Protection
from protocols.study.study import ADJACENCY, Study


def protection_of(study: Study) -> Protection:
    """Who may see what of a study, and whose data its figures are about."""
    level = study.confidentiality
    hidden = level.querier is not None
    return Protection(
        level="hidden_queries" if hidden else level.level,
        unit=study.unit,
        view=study.view,
        adjacency=ADJACENCY,
        asks=level.querier or "the coordinator",
        guardian=level.guardian or "",
        colluders=level.colluders or 0,
        secret=study.participation_name == "secret",
        pooled=study.pooled_teachers is not None,
    )
