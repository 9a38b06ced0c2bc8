"""Addresses as people write them: HOST:PORT."""

from __future__ import annotations

import ipaddress
import re

from protocols.errors import InvalidInput

_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def check_address(what: str, address: str, *, listens: bool = False) -> str:
    """Returns `address` if it is HOST:PORT. listens: also allow port 0, which takes a free one. Raises InvalidInput."""
    match = _ADDRESS.fullmatch(address)
    if not match or not (0 if listens else 1) <= int(match.group(1)) <= 65_535:
        raise InvalidInput(f"{what} is {address[:80]!r}; allowed: HOST:PORT, such as 127.0.0.1:7443")
    return address


def listening(address: str) -> str:
    """Where to listen for those who dial `address` (HOST:PORT): there if it is loopback, else at every interface."""
    host, _, port = address.rpartition(":")
    bare = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        loopback = ipaddress.ip_address(bare).is_loopback
    except ValueError:  # a name, which may stand for any interface
        loopback = False
    return f"{bare if ':' not in bare else host}:{port}" if loopback else f"0.0.0.0:{port}"
