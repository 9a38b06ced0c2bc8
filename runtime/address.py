"""Addresses as people write them, HOST:PORT; a free port; and the gRPC options that connections share."""

from __future__ import annotations

import errno
import ipaddress
import re
import resource
import secrets
import socket
from typing import Final

from protocols.errors import InvalidInput
from protocols.wire.guardian import CARRIED_BYTES

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


# A server asks for so many open files, if the system allows them, and gives a part of them to the connections of a
# port: what is left are its ledgers, logs and threads.
_FILES, _OF_A_PORT = 65_536, 4

# Both ends notice within half a minute that a line went dead.
KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # gRPC's own limit for an unanswered ping is a minute, and takes precedence over the option above.
    ("grpc.http2.ping_timeout_ms", 10_000),
)
# Of a server whose clients have KEEPALIVE: it answers their pings as often as they come.
ANSWER_PINGS: Final = (
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
# Of both ends of a conversation with a guardian.
GUARDIAN_STREAM: Final = (
    ("grpc.max_receive_message_length", CARRIED_BYTES),
    ("grpc.max_send_message_length", CARRIED_BYTES),
    # How much may be in flight unread: what a fast line with a round trip of 40 ms needs.
    ("grpc.http2.lookahead_bytes", 8 * 2**20),
    *KEEPALIVE,
)


def listen() -> tuple[tuple[str, int], ...]:
    """Options of every server; raises the limit of open files of this process as far as it may.

    No other process may share its port, and nobody holds a connection by not finishing to greet. Connections above a
    quarter of the open files are closed at once: however many strangers dial, ledgers can be opened and written.
    """
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if files < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        files = wanted
    return (
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", min(files, _FILES) // _OF_A_PORT),
    )


def dial(host: str) -> tuple[tuple[str, int | str], ...]:
    """Options of a client of one connection, which nothing is sent over twice. host: the name in the certificate."""
    return (("grpc.ssl_target_name_override", host), ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
