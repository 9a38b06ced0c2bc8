"""Versions of the wire: a node offers those that it speaks, the coordinator chooses one of them."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.errors import Refused
from protocols.refusals.code import Code

# The wire versions that this software speaks, newest first; one version back stays supported.
WIRE_VERSIONS = (1,)


def agree_version(offered: Sequence[int]) -> int:
    """The newest version that both sides speak. Raises Refused("wire_version")."""
    common = set(offered) & set(WIRE_VERSIONS)
    if not common:
        raise Refused(
            Code.WIRE_VERSION,
            f"the other side speaks wire versions {sorted(offered)[:8]}; allowed: {sorted(WIRE_VERSIONS)}: "
            "update the older software",
        )
    return max(common)


def check_version(chosen: int, *, offered: Sequence[int]) -> None:
    """Raises Refused("wire_version") unless the version that a Welcome names is one of those that the Hello offered."""
    if chosen not in offered:
        raise Refused(
            Code.WIRE_VERSION,
            f"the coordinator chose wire version {chosen}; allowed: {sorted(offered)}, as offered: "
            "update the older software",
        )
