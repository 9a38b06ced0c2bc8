"""Addresses as people write them: HOST:PORT; and a port that is free."""

from __future__ import annotations

import errno
import ipaddress
import re
import secrets
import socket

from protocols.errors import InvalidInput

# Below the ports that Linux, macOS and Windows give to whoever asks for any.
_CHOSEN = range(20_000, 32_768)
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


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now, for a program that starts later.

    A connection or a program that takes any free port meanwhile does not get this one.
    """
    while True:
        port = secrets.choice(_CHOSEN)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
