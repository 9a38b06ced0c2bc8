"""The two ports of a coordinator, and what they serve besides sessions: relaying for a querying party, and enrolment of
hospitals that have no certificate yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

import grpc

from coordinator.connection.relaying import Relay
from coordinator.connection.session import DENY_POLL_S
from coordinator.connection.unfinished import Unfinished
from protocols.crypto.identity import Identity
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.wire.enrolment import ENROL_BYTES, ENROL_METHOD, Enrol, Enrolled, decode_enrol, encode_enrol
from protocols.wire.frames import FRAME_BYTES
from protocols.wire.relay import RELAY_METHOD, Joined, passed_back, pieces
from runtime.address import ANSWER_PINGS, KEEPALIVE, listen

if TYPE_CHECKING:  # these types cannot be subscripted at run time
    _Context = grpc.aio.ServicerContext[bytes, bytes]

# Anybody may try to enrol, so limit how many calls may wait for their message at once, and for how long.
_UNFINISHED, _UNFINISHED_S = 32, 10.0
# Calls served at once; gRPC rejects more. Idle connections are closed.
_ENROLMENTS = 1024
_ENROL_OPTIONS = [
    ("grpc.max_receive_message_length", ENROL_BYTES),
    ("grpc.max_concurrent_streams", 8),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_connection_idle_ms", 30_000),
    ("grpc.max_connection_age_ms", 300_000),
    ("grpc.max_connection_age_grace_ms", 10_000),
]
_RELAYED_WAIT_S = 120.0
# The size of what a node may send: the votes of one batch and little else.
INBOUND_BYTES = 8 * 2**20
NODE_OPTIONS = [
    ("grpc.max_receive_message_length", INBOUND_BYTES),
    ("grpc.max_send_message_length", FRAME_BYTES),
    *KEEPALIVE,
    *ANSWER_PINGS,
]


async def open_port(
    address: str,
    credentials: grpc.ServerCredentials,
    *handlers: grpc.GenericRpcHandler,
    options: Sequence[tuple[str, int]],
    at_once: int,
) -> tuple[grpc.aio.Server, int]:
    """A listening server and its port. at_once: how many streams and calls are served at once.

    Raises InvalidInput for an address that is taken or invalid.
    """
    server = grpc.aio.server(options=[*options, *listen()], maximum_concurrent_rpcs=at_once)
    server.add_generic_rpc_handlers(handlers)
    try:
        port = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise InvalidInput(f"cannot listen on {address!r}; allowed: a HOST:PORT that is free") from None
    await server.start()
    return server, port


def relay_handler(
    identify: Callable[[_Context], Awaitable[Identity]], check: Callable[[Identity], Awaitable[None]], relay: Relay
) -> grpc.GenericRpcHandler:
    """A handler that relays frames, one per call, in pieces.

    identify: returns the caller, or raises Refused before anything is read; check: raises Refused once it is denied,
    which ends its open calls."""

    async def answered(incoming: AsyncIterator[bytes], peer: Identity) -> bytes:
        async with relay.places, asyncio.timeout(_RELAYED_WAIT_S) as reading:
            joined = Joined()
            async for piece in incoming:
                joined.add(piece)
            reading.reschedule(None)  # a party's time limit is its study's
            return await relay.answer(joined.data, peer)

    async def serve(incoming: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
        try:
            peer = await identify(context)
            relay.check_querier(peer)
            reply = await _unless_denied(answered(incoming, peer), partial(check, peer))
        except Refused as error:
            reply = passed_back(b"", code=error.code, reason=str(error).removeprefix(f"{error.code}: "))
        except MalformedMessage as error:
            reply = passed_back(b"", code=Code.MALFORMED, reason=str(error))
        for piece in pieces(reply):
            yield piece

    _, service, method = RELAY_METHOD.split("/")
    return grpc.method_handlers_generic_handler(service, {method: grpc.stream_stream_rpc_method_handler(serve)})


async def _unless_denied(answer: Coroutine[object, object, bytes], check: Callable[[], Awaitable[None]]) -> bytes:
    """What `answer` returns. Raises Refused as soon as `check` does, which is looked at in a poll."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(DENY_POLL_S)
            await check()

    answering, watching = asyncio.ensure_future(answer), asyncio.ensure_future(watch())
    try:
        await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            watching.result()
        return await answering
    finally:
        watching.cancel()
        answering.cancel()


async def listen_for_enrolments(
    address: str, credentials: grpc.ServerCredentials, enrol: Callable[[Enrol], Enrolled], executor: Executor
) -> tuple[grpc.aio.Server, int]:
    """Opens the enrolment port: small messages, answered by `enrol` on a thread of the executor."""
    unfinished = Unfinished(most=_UNFINISHED, longest_s=_UNFINISHED_S)

    async def serve(_: object, context: _Context) -> bytes:
        # One message each way. It is read only here, so that a caller who sends none holds no resources for long.
        try:
            async with unfinished.call(context.peer()):
                data = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the request did not come in time; ask again")
        try:
            message = decode_enrol(data if isinstance(data, bytes) else b"")
            answer = await asyncio.get_running_loop().run_in_executor(executor, enrol, message)
        except MalformedMessage as error:
            answer = Enrolled(b"", Code.MALFORMED, str(error))
        except Refused as error:
            answer = Enrolled(b"", error.code, str(error))
        return encode_enrol(answer)

    _, service, method = ENROL_METHOD.split("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.stream_unary_rpc_method_handler(serve)})
    return await open_port(address, credentials, handler, options=_ENROL_OPTIONS, at_once=_ENROLMENTS)
