"""Which hospital stands apart, for the operator of a coordinator that sees every hospital's sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocols.ledger.ledger import Ledger
from protocols.levels.clear import unlike_others
from runtime.printing import text_table

if TYPE_CHECKING:
    from coordinator.store.store import Store


def unlike_hospitals(store: Store, study: str) -> str:
    """How far each hospital's sum stood apart, as lines for the operator's terminal alone; "" where none was seen."""
    from coordinator.store.store import ledger_path

    with Ledger(ledger_path(store.home, study)) as ledger:
        found = unlike_others(store.study(study), ledger)
    if not found:
        return ""
    return (
        "How far each hospital's records are from all others' (1 if they were drawn alike; for you alone, as it is not "
        f"protected):\n{text_table(['hospital', 'distance'], [[seat, f'{far:.1f}'] for seat, far in found.items()])}\n"
        "A large distance is no proof of a fault: four real hospitals had 2.4 to 5.1, made-up records 4.8 to 13.\n"
    )
