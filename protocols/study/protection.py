"""What the sentences of protocols/claims.py depend on, as a study fixes it."""

from __future__ import annotations

from protocols.claims import Protection
from protocols.study.levels import GuardedLevel, SecureSum
from protocols.study.study import ADJACENCY, Study


def protection_of(study: Study) -> Protection:
    """Who may see what in a study, and whose data its figures are about."""
    level = study.confidentiality
    return Protection(
        level=level.name,
        unit=study.unit,
        view=study.view,
        adjacency=ADJACENCY,
        asks=level.who_asks("the coordinator"),
        guardian=level.guardian if isinstance(level, GuardedLevel) else "",
        colluders=level.colluders if isinstance(level, SecureSum) else 0,
        secret=study.secret_coins,
        pooled=study.pooled_teachers is not None,
        records=study.records is not None,
        settles=study.budgets.settles,
    )
