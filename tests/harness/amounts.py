"""Amounts of a ledger in a test: plain numbers with a unit."""

from collections.abc import Mapping

from protocols.ledger.amount import Amount


def nano(counts: Mapping[str, int]) -> dict[str, Amount]:
    """Each of them in nano-RDP."""
    return {name: Amount(count, "nano-RDP") for name, count in counts.items()}
