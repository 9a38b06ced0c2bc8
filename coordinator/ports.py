"""The two ports of a coordinator: how one is opened, and the one at which hospitals without a certificate enrol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import grpc

from protocols.enrolment import ENROL_BYTES, ENROL_METHOD, Enrol, Enrolled, decode_enrol, encode_enrol
from protocols.errors import InvalidInput, MalformedMessage, Refused

if TYPE_CHECKING:  # not subscriptable at run time
    _Context = grpc.aio.ServicerContext[bytes, bytes]

# Anybody may try to enrol; beyond so many at once they are turned away by gRPC.
_ENROLMENTS = 32
_ENROL_OPTIONS = [("grpc.max_receive_message_length", ENROL_BYTES), ("grpc.so_reuseport", 0)]
_HANDSHAKE_MS = 10_000


async def open_port(
    address: str,
    credentials: grpc.ServerCredentials,
    handler: grpc.GenericRpcHandler,
    *,
    options: Sequence[tuple[str, int]],
    at_once: int,
) -> tuple[grpc.aio.Server, int]:
    """A server that listens, and its port. at_once: streams and calls that are served together.

    Raises InvalidInput for an address that is taken or is none.
    """
    options = [*options, ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS)]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=at_once)
    server.add_generic_rpc_handlers((handler,))
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise InvalidInput(f"cannot listen at {address!r}; allowed: HOST:PORT that is free") from None
    await server.start()
    return server, port


async def listen_for_enrolments(
    address: str, credentials: grpc.ServerCredentials, enrol: Callable[[Enrol], Enrolled], executor: Executor
) -> tuple[grpc.aio.Server, int]:
    """The port of enrolment: small messages, answered by `enrol` on a thread of the executor."""

    async def serve(data: bytes, context: _Context) -> bytes:
        try:
            message = decode_enrol(data)
            answer = await asyncio.get_running_loop().run_in_executor(executor, enrol, message)
        except MalformedMessage as error:
            answer = Enrolled(b"", "malformed", str(error))
        except Refused as error:
            answer = Enrolled(b"", error.code, str(error))
        return encode_enrol(answer)

    _, service, method = ENROL_METHOD.split("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(serve)})
    return await open_port(address, credentials, handler, options=_ENROL_OPTIONS, at_once=_ENROLMENTS)
