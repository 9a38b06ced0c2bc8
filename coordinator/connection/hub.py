"""The hub: the coordinator's end of every node's stream, a transport made of them, and the two ports.

Nodes dial in over gRPC with mutual TLS. The certificate says who a node is; whether it is still admitted is checked at
every frame. A request goes to the open sessions and to those that open before its deadline; only the identical request
is ever sent again. The hub keeps no state of its own: what must be remembered is in the ledgers. The ports also serve
relaying for a querying party, and enrolment of hospitals that have no certificate yet.
"""

from __future__ import annotations

import asyncio
import datetime
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from coordinator.connection.admission import Unfinished, code_of_error
from coordinator.connection.open_study import OnTold, OpenStudy, OutcomeFor, check_all, check_askable, record
from coordinator.connection.relaying import Relay
from coordinator.connection.sessions import Connected, Session, SessionEnded, Sessions, Silence, first_frame
from protocols.crypto.identity import Identity, certificate_from_pem, identify, key_to_pem, to_pem
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.study import party_of
from protocols.wire.enrolment import ENROL_BYTES, ENROL_METHOD, Enrol, Enrolled, decode_enrol, encode_enrol
from protocols.wire.frames import (
    FRAME_BYTES,
    SESSION_METHOD,
    Answer,
    Frame,
    Goodbye,
    Hello,
    RefusedSeat,
    Renew,
    Renewed,
    SeatHeads,
    Welcome,
    agree_version,
    read_frame,
    sign_frame,
)
from protocols.wire.guardian import DENY_POLL_S
from protocols.wire.messages import Reply, Request, Transport
from protocols.wire.relay import RELAY_METHOD, Joined, passed_back, pieces
from runtime.guardian_carrier import ANSWER_PINGS, KEEPALIVE, listen
from runtime.logs import Event

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


# Seconds for a goodbye to a party that may no longer read.
_FAREWELL_S = 2.0
_RENEWAL_PAUSE_S = 60.0
_T = TypeVar("_T")


class Hub:
    """Serves the nodes of a consortium. One thread runs all streams.

    key, certificate: the coordinator's; denied(identity): why a party is denied, or None; renew(identity, request): a
    new certificate (PEM) for a request (PEM), or Refused; enrol: answers a request to enrol; on_event(event, fields):
    for logs, holds only names, codes and counts; on_withdrawn(party, digests): which studies a party says it ended.
    """

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        denied: Callable[[Identity], str | None],
        renew: Callable[[Identity, bytes], bytes],
        enrol: Callable[[Enrol], Enrolled],
        on_event: Event,
        on_withdrawn: Callable[[str, Sequence[bytes]], None] = lambda party, studies: None,
    ) -> None:
        self._key = key
        self._certificate = certificate
        self._authority = authority
        self._denied = denied
        self._renew = renew
        self._enrol = enrol
        self._on_event = on_event
        self._on_withdrawn = on_withdrawn
        self._studies: dict[bytes, OpenStudy] = {}
        self._sessions = Sessions(seal=self._seal, on_event=on_event)
        self._admission = self._sessions.admission
        self._relay = Relay(
            self._sessions, self._studies, authority=authority, aside=self._in_callback, on_event=on_event
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hub", daemon=True)
        self._servers: list[grpc.aio.Server] = []
        # Callbacks read a database, so they run outside the thread that moves frames.
        self._callbacks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hub-callback")
        # Who waits to be looked up among the denied, and the turn of the one that looks for all of them.
        self._unlooked: list[tuple[Identity, asyncio.Future[str | None]]] = []
        self._looking = asyncio.Lock()
        # Anybody may try to enrol, and that must not keep nodes waiting.
        self._enrolments = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hub-enrolment")

    def start(self, *, listen: str, enrol_listen: str | None) -> tuple[int, int | None]:
        """Opens the ports ("127.0.0.1:0" takes a free one); returns them. Raises as open_port does."""
        self._thread.start()
        return self._call(self._start(listen, enrol_listen))

    def stop(self) -> None:
        """Says goodbye to every node and closes the ports."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._callbacks.shutdown()
        self._enrolments.shutdown()

    def open_study(
        self,
        study: DeployedStudy,
        ledger: Ledger,
        *,
        outcome_for: OutcomeFor | None = None,
        on_told: OnTold | None = None,
    ) -> Transport:
        """A transport to the nodes of a study; its deadline is the study's. on_told: called after a party was told an
        outcome that it had missed.

        Raises InvalidInput for a study whose largest reply a node may not send.
        """
        check_askable(study, reply_bytes=INBOUND_BYTES)
        opened = OpenStudy(study, ledger, outcome_for, on_told)
        self._studies[study.digest] = opened

        def exchange(requests: Mapping[str, Request]) -> dict[str, Reply | None]:
            answers = self._call(self._sessions.ask_all(opened, requests))
            return record(opened.study, opened.ledger, requests, answers, on_event=self._on_event)

        return exchange

    def go_on_without(self, study: DeployedStudy, seats: Collection[str]) -> None:
        """From now on these seats of an open study, which its operator does without, are told so when they connect; the
        nodes that are connected, and not asked anything, dial again, and so are told now."""
        self._call(self._go_on_without(self._studies[study.digest], frozenset(seats)))

    async def _go_on_without(self, opened: OpenStudy, seats: frozenset[str]) -> None:
        parties = {party_of(seat) for seat in seats - opened.without}
        opened.without = seats
        for name, session in list(self._sessions.open.items()):
            # What a node is asked in another study would be lost, and what it charged for it stay charged.
            if name in parties and not session.waiting:
                said = "the operator continues without a seat; reconnect to be told which"
                await self._farewell(session, Goodbye(Code.GOING_AWAY, said))

    def connected(self) -> dict[str, Connected]:
        """The parties that are connected now."""
        return {name: session.connected for name, session in list(self._sessions.open.items())}

    def silent(self) -> dict[str, Silence]:
        """The parties that did not answer when they were last waited for."""
        return {name: each for name, each in dict(self._sessions.silences.of).items() if not each.answered}

    def wait_for(self, parties: frozenset[str], *, timeout_s: float) -> frozenset[str]:
        """Waits at most that long for these parties to connect; returns those that are missing."""
        return self._call(self._sessions.wait_for(parties, timeout_s))

    def _call(self, work: Coroutine[object, object, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self, listen: str, enrol_listen: str | None) -> tuple[int, int | None]:
        pair = [(key_to_pem(self._key), to_pem(self._certificate))]
        mutual = grpc.ssl_server_credentials(pair, to_pem(self._authority), require_client_auth=True)
        _, service, method = SESSION_METHOD.split("/")
        sessions = grpc.method_handlers_generic_handler(
            service, {method: grpc.stream_stream_rpc_method_handler(self._serve)}
        )
        relay = relay_handler(self._peer, self._check_allowed, self._relay)
        server, port = await open_port(listen, mutual, sessions, relay, options=NODE_OPTIONS, at_once=4096)
        self._servers.append(server)
        if enrol_listen is None:
            return port, None
        server, enrol_port = await listen_for_enrolments(
            enrol_listen, grpc.ssl_server_credentials(pair), lambda message: self._enrol(message), self._enrolments
        )
        self._servers.append(server)
        return port, enrol_port

    async def _stop(self) -> None:
        for session in list(self._sessions.open.values()):
            await self._farewell(
                session, Goodbye(Code.GOING_AWAY, "the coordinator is stopping; the node will dial again")
            )
        for server in self._servers:
            await server.stop(grace=1.0)

    async def _in_callback(self, callback: Callable[..., _T], *args: object) -> _T:
        return await self._loop.run_in_executor(self._callbacks, lambda: callback(*args))

    async def _serve(self, _: object, context: _Context) -> None:
        """One node's stream, from Hello to its end."""
        name: str | None = None
        try:
            peer = await self._peer(context)
            name = peer.name
            with self._admission.stream(name):
                session, heads_of_seats, refused = await self._admit(peer, context)
                older = await self._sessions.add(session)
                await self._hold(session, older, heads_of_seats, refused, context)
        except (Refused, MalformedMessage) as error:
            living = self._sessions.open.get(name or "")
            self._admission.turned_away(name, context.peer(), error, rivals=living.rivals if living else 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await context.write(self._seal(Goodbye(code_of_error(error), str(error)[:2000])))

    async def _hold(
        self,
        session: Session,
        older: Session | None,
        heads_of_seats: list[SeatHeads],
        refused: tuple[RefusedSeat, ...],
        context: _Context,
    ) -> None:
        """Runs a session until it ends, and tells it the outcomes it missed. older: the session that it replaces."""
        name = session.party.name
        tasks = []
        try:
            if older is not None:
                await self._farewell(
                    older, Goodbye(Code.SUPERSEDED, "another node of this party, which serves seats, has connected")
                )
            welcome = Welcome(session.version, session.nonce, time.time_ns() // 1_000_000, refused)
            await session.send(self._seal(welcome))
            self._on_event("connected", {"party": name, "address": session.address})
            told = self._sessions.tell(session, self._studies, heads_of_seats, self._in_callback)
            tasks = [asyncio.create_task(self._watch_denials(session)), asyncio.create_task(told)]
            await self._read(session, context)
        except (Refused, MalformedMessage) as error:
            self._admission.fault(name)
            self._on_event("refused", {"party": name, "code": code_of_error(error), "reason": str(error)[:200]})
            await self._farewell(session, Goodbye(code_of_error(error), str(error)[:2000]))
        except SessionEnded:
            pass
        finally:
            self._sessions.count_brief(session)
            for task in tasks:
                task.cancel()
            if self._sessions.remove(session):
                self._on_event("disconnected", {"party": name})

    async def _peer(self, context: _Context) -> Identity:
        """Who dials, identified by its certificate. Raises Refused if denied."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", [b""])))
        peer = identify(certificate_from_pem(pem), authority=self._authority, now=_now(), role="party")
        await self._check_allowed(peer)
        return peer

    async def _admit(
        self, peer: Identity, context: _Context
    ) -> tuple[Session, list[SeatHeads], tuple[RefusedSeat, ...]]:
        """Reads the Hello; returns the session that it opens, the seats to tell what they missed, and those refused.

        Raises Refused or MalformedMessage.
        """
        hello, _ = self._unseal(await first_frame(context.read()), peer)
        if not isinstance(hello, Hello):
            raise MalformedMessage(f"the first frame is {type(hello).__name__}; allowed: Hello")
        version = agree_version(hello.versions)

        async def send(frame: bytes) -> None:
            try:
                await context.write(frame)
            except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
                raise SessionEnded from error

        if hello.withdrawn:
            await self._in_callback(self._on_withdrawn, peer.name, hello.withdrawn)
        session = Session(peer, hello.session, send, context.peer(), hello.software[:80], version)
        heads_of_seats = {(heads.study, heads.seat): heads for heads in hello.seats}
        own = Identity("coordinator", "coordinator", self._certificate)
        served, refused = await self._in_callback(
            lambda: check_all(self._studies, peer.name, heads_of_seats.values(), own=own)
        )
        self._admission.seats_refused(peer.name, refused)
        session.serves = bool(served)
        session.seats = frozenset((heads.study, heads.seat) for heads in served)
        session.refused = {(each.study, each.seat) for each in refused} - session.seats
        return session, served, refused

    async def _read(self, session: Session, context: _Context) -> None:
        while True:
            data = await session.until_closing(context.read())
            if not isinstance(data, bytes):  # either side ended the stream
                return
            await self._check_allowed(session.party)
            frame, _ = self._unseal(data, session.party)
            session.last_seen = time.time()
            if isinstance(frame, Answer):
                session.answered(frame, data)
            elif isinstance(frame, Renew):
                await self._renewal(session, frame)
            elif isinstance(frame, Goodbye):
                self._on_event(
                    "goodbye", {"party": session.party.name, "code": frame.code, "reason": frame.reason[:500]}
                )
                return
            else:
                raise MalformedMessage(f"{type(frame).__name__} is not allowed here")

    async def _renewal(self, session: Session, frame: Renew) -> None:
        """Answers a request to renew; a refusal does not end the session, because the certificate is still valid."""
        if time.monotonic() < session.renewed_s + _RENEWAL_PAUSE_S:
            session.count_unasked()
            return
        session.renewed_s = time.monotonic()
        try:
            certificate = await self._in_callback(self._renew, session.party, frame.request)
        except Refused as error:
            self._on_event("renewal_refused", {"party": session.party.name, "code": error.code})
            return
        await self._write(session, Renewed(certificate))

    async def _watch_denials(self, session: Session) -> None:
        """Ends a session soon after its party is denied, even if nothing is sent."""
        while True:
            await asyncio.sleep(DENY_POLL_S)
            try:
                await self._check_allowed(session.party)
            except Refused as error:
                self._on_event("refused", {"party": session.party.name, "code": error.code, "reason": str(error)})
                await self._farewell(session, Goodbye(error.code, str(error)))
                return

    async def _check_allowed(self, party: Identity) -> None:
        """Raises Refused if the party is denied now. All that wait for this are looked up in one call."""
        waits: asyncio.Future[str | None] = self._loop.create_future()
        self._unlooked.append((party, waits))
        async with self._looking:
            if not waits.done():
                asked, self._unlooked = self._unlooked, []
                try:
                    reasons = await self._in_callback(lambda: [self._denied(each) for each, _ in asked])
                except BaseException:
                    self._unlooked += asked
                    raise
                for (_, other), found in zip(asked, reasons, strict=True):
                    other.set_result(found)
        reason = waits.result()
        if reason is not None:
            raise Refused(Code.REVOKED, f"the party {party.name!r} is denied: {reason}; ask the consortium's operator")

    async def _farewell(self, session: Session, goodbye: Goodbye) -> None:
        """Says goodbye and ends a session; the other side may already be gone."""
        self._sessions.remove(session)
        with suppress(SessionEnded, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._write(session, goodbye)

    async def _write(self, session: Session, frame: Frame) -> None:
        async with session.writing:
            await session.send(self._seal(frame))

    def _seal(self, frame: Frame) -> bytes:
        return sign_frame(frame, key=self._key, certificate=self._certificate)

    def _unseal(self, data: object, peer: Identity) -> tuple[Frame, Identity]:
        """A frame from the party at the other end, signed under any certificate of its key, and its signer."""
        if not isinstance(data, bytes):
            raise MalformedMessage("the stream ended before Hello")
        frame, sender = read_frame(data, authority=self._authority, now=_now(), role="party")
        if (sender.name, sender.fingerprint) != (peer.name, peer.fingerprint):
            raise Refused(Code.WRONG_SIGNER, f"a frame of {sender.name!r} came over the connection of {peer.name!r}")
        return frame, sender


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
