"""The gRPC options that connections share, and the stream that carries a conversation with a guardian."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from protocols.crypto.identity import GUARDIAN_HOST, key_to_pem, to_pem
from protocols.errors import ChannelClosed
from protocols.wire.guardian import CARRIED_BYTES, CONVERSE_METHOD, Carried, GuardianLine

# A server asks for so many open files, if the system allows them, and gives a part of them to the connections of a
# port: what is left are its ledgers, logs and threads.
_FILES, _OF_A_PORT = 65_536, 4

# Both ends notice within half a minute that a line went dead: nothing that was sent is acknowledged (TCP_USER_TIMEOUT).
KEEPALIVE: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # On a slow line the answer to a ping waits behind what is being sent, at 64 kbit/s for more than 10 s: with that
    # limit the same request was sent again and again. So long a program that hangs is taken for a living one: gRPC
    # 1.85 never starts its other timer, that of keepalive_timeout, which any data would stop.
    ("grpc.http2.ping_timeout_ms", 120_000),
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


def options_of(host: str) -> tuple[tuple[str, int | str], ...]:
    """Options of a client of one connection, which nothing is sent over twice. host: the name in the certificate."""
    return (("grpc.ssl_target_name_override", host), ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


_OPTIONS = [*GUARDIAN_STREAM, *options_of(GUARDIAN_HOST), ("grpc.http2.max_pings_without_data", 0)]


@contextmanager
def carry_to_guardian(line: GuardianLine, outgoing: Iterator[bytes]) -> Iterator[Carried]:
    """A stream to a guardian, for protocols.wire.guardian."""
    credentials = grpc.ssl_channel_credentials(to_pem(line.authority), key_to_pem(line.key), to_pem(line.certificate))
    with grpc.secure_channel(line.address, credentials, options=_OPTIONS) as channel:
        open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(CONVERSE_METHOD)
        call = open_stream(outgoing)
        yield Carried(_pieces(call, line.address), call.cancel)


def _pieces(call: Iterator[bytes], address: str) -> Iterator[bytes]:
    """The messages of a gRPC stream. Raises ChannelClosed when it breaks."""
    try:
        yield from call
    except grpc.RpcError as error:
        raise ChannelClosed(
            f"the guardian at {address} does not answer: {error.code().name}, {str(error.details())[:200]}"
        ) from None
