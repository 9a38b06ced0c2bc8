"""Carries a conversation with a guardian over one gRPC stream with mutual TLS, for coordinator or querying party."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from protocols.crypto.identity import GUARDIAN_HOST, key_to_pem, to_pem
from protocols.errors import ChannelClosed
from protocols.wire.guardian import CONVERSE_METHOD, Carried, GuardianLine
from runtime.address import GUARDIAN_STREAM, dial

_OPTIONS = [*GUARDIAN_STREAM, *dial(GUARDIAN_HOST), ("grpc.http2.max_pings_without_data", 0)]


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
