"""Addresses as people write them: HOST:PORT."""

from __future__ import annotations

import re

from protocols.errors import InvalidInput

_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def check_address(what: str, address: str, *, listens: bool = False) -> str:
    """Returns `address` if it is HOST:PORT. listens: also allow port 0, which takes a free one. Raises InvalidInput."""
    match = _ADDRESS.fullmatch(address)
    if not match or not (0 if listens else 1) <= int(match.group(1)) <= 65_535:
        raise InvalidInput(f"{what} is {address[:80]!r}; allowed: HOST:PORT, such as 127.0.0.1:7443")
    return address
