"""The node: dials out to the coordinator over one mutually authenticated stream and answers for its seats.

No port is opened. Party.handle decides what a party answers; this file moves frames, checks who signed them and in
which session, and keeps the two audit logs in step: charge, reply, evidence and heads are written in one transaction
before anything leaves.
"""

from __future__ import annotations

import datetime
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from party.connection.dialling import Renewal
from party.connection.seat import COORDINATOR, Outgoing, ServedSeat, charge_of, reply, seat_heads
from protocols.crypto.identity import COORDINATOR_HOST, Identity, key_to_pem, to_pem
from protocols.errors import MalformedMessage, Refused, StorageFailed
from protocols.ledger.audit_log import EMPTY
from protocols.refusals.code import Code
from protocols.wire.frames import (
    FRAME_BYTES,
    NONCE_BYTES,
    SESSION_METHOD,
    WIRE_VERSIONS,
    Answer,
    Ask,
    Frame,
    Goodbye,
    Hello,
    Renewed,
    Welcome,
    check_version,
    read_frame,
    sign_frame,
)
from protocols.wire.messages import Refusal, encode
from runtime.distribution import installed_version
from runtime.guardian_carrier import KEEPALIVE
from runtime.logs import Event
from runtime.steady_clock import Allowance, SteadyClock

# Codes that only a person can fix: dialling again would change nothing.
_FATAL = frozenset(
    {Code.REVOKED, Code.WIRE_VERSION, Code.WRONG_ROLE, Code.WRONG_AUTHORITY, Code.LEDGER_ROLLED_BACK}
    | {Code.PEER_ROLLED_BACK, Code.TOO_MANY_REFUSALS}
)
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 60.0
# After a session shorter than this in which nothing was asked, the node waits before it dials again.
_A_WHILE_S = 10.0
_WELCOME_WAIT_S = 30.0
_LOOK_S = 0.1
_RENEWAL_LOOK_S = 3600.0
# So long after its ledger could not be written a node dials again: it is then told what it could not settle.
_UNWRITTEN_S = 60.0
_CLOCK_TOLERANCE_MS = 60_000
# A coordinator that sends only requests that must be refused would fill the audit log: limits in a burst and per day.
_REFUSALS = 1000
_DAY_S = 86_400.0
_SOFTWARE = f"conclave {installed_version()}"
_OPTIONS = [
    ("grpc.ssl_target_name_override", COORDINATOR_HOST),
    ("grpc.max_receive_message_length", FRAME_BYTES),
    ("grpc.max_send_message_length", FRAME_BYTES),
    *KEEPALIVE,
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
]


@dataclass(eq=False)
class _Session:
    """One connection: its nonce, when it was welcomed (None before), the last round, when a ledger could not be
    written."""

    nonce: bytes = field(default_factory=lambda: os.urandom(NONCE_BYTES))
    welcomed_at: float | None = None
    round: int = 0
    unwritten_at: float | None = None

    def served(self) -> bool:
        """Whether the session was useful: something was asked, or it lasted a while."""
        if self.welcomed_at is None:
            return False
        return self.round > 0 or time.monotonic() - self.welcomed_at > _A_WHILE_S


class Node:
    """A party's connection to one coordinator.

    key, certificate: the party's; authority: the consortium's; address: "host:port"; seats: the approved seats, asked
    at every connection, and so withdrawn: the digests of the studies that were withdrawn; save_certificate: called with
    a renewed certificate (PEM); on_event(event, fields): for logs, holds only names, codes and counts; renew_days_left:
    the certificate is renewed when fewer days are left.
    """

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        address: str,
        seats: Callable[[], Sequence[ServedSeat]],
        save_certificate: Callable[[bytes], None],
        on_event: Event,
        renew_days_left: int,
        withdrawn: Callable[[], Sequence[bytes]] = tuple,
    ) -> None:
        self._key = key
        self._authority = authority
        self._address = address
        self._list_seats = seats
        self._list_withdrawn = withdrawn
        self._on_event = on_event
        self._renewal = Renewal(
            key=key,
            certificate=certificate,
            authority=authority,
            save=save_certificate,
            on_event=on_event,
            days_left=renew_days_left,
        )
        self._jitter = random.Random(os.urandom(8))
        # These limits cover all sessions: closing the stream does not reset them.
        self._refusals = Allowance(most=_REFUSALS, each_s=_DAY_S / _REFUSALS)
        self._clock = SteadyClock(wall=lambda: _now().timestamp(), monotonic=time.monotonic)
        # The coordinator's last goodbye before a welcome, and how often in a row.
        self._turned_away = ("", 0)

    def run(self, stop: threading.Event) -> None:
        """Answers until `stop` is set, dialling again with growing waits whenever the connection ends.

        Raises Refused for what only a person can fix (its code says what), StorageFailed if the ledger cannot be read.
        """
        wait_s = _FIRST_WAIT_S
        while not stop.is_set():
            served = self._certificate_holds() and self._connect(stop)
            wait_s = _FIRST_WAIT_S if served else min(2 * wait_s, _LONGEST_WAIT_S)
            stop.wait(wait_s * self._jitter.uniform(0.5, 1))

    def _certificate_holds(self) -> bool:
        """Whether the certificate is valid; False while it only looks invalid because the clock jumped. Raises
        Refused.
        """
        try:
            self._renewal.check()
        except Refused as error:
            jumped_s = self._clock.jumped_s()
            if error.code != Code.CERTIFICATE_EXPIRED or not jumped_s:
                raise
            self._on_event("clock_jumped", {"seconds": round(jumped_s), "reason": str(error)[:200]})
            return False
        self._clock.jumped_s()
        return True

    def _said_goodbye(self, goodbye: Goodbye, session: _Session) -> None:
        """Logs a goodbye; if the node is turned away repeatedly, only the 1st, 2nd, 4th, 8th ... time."""
        times = 1
        if session.welcomed_at is None and self._turned_away[0] == goodbye.code:
            times = self._turned_away[1] + 1
        self._turned_away = (goodbye.code, times) if session.welcomed_at is None else ("", 0)
        if not times & (times - 1):
            self._on_event("goodbye", {"code": goodbye.code, "reason": goodbye.reason, "times": times})

    def _connect(self, stop: threading.Event) -> bool:
        """Runs one connection until it ends; returns whether it was useful."""
        credentials = grpc.ssl_channel_credentials(
            to_pem(self._authority), key_to_pem(self._key), to_pem(self._renewal.certificate)
        )
        outgoing = Outgoing()
        session = _Session()
        ended = threading.Event()
        with grpc.secure_channel(self._address, credentials, options=_OPTIONS) as channel:
            open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(SESSION_METHOD)
            call = open_stream(outgoing)

            def send(frame: Frame) -> None:
                signed = sign_frame(frame, key=self._key, certificate=self._renewal.certificate)
                outgoing.put(signed, waits=lambda: call.is_active() and not stop.is_set())

            watch = threading.Thread(target=self._watch, args=(call, session, send, stop, ended), daemon=True)
            watch.start()
            try:
                self._converse(call, send, session)
            except grpc.RpcError as error:
                if not stop.is_set():
                    # A line that breaks is dialled again; one that never stood may need somebody.
                    todo = "; run: conclave-party doctor" if session.welcomed_at is None else ""
                    said = f"{str(error.details())[:200]}{todo}"
                    self._on_event("disconnected", {"code": error.code().name, "reason": said})
            finally:
                ended.set()
                outgoing.close()
                call.cancel()
                watch.join()
        return session.served()

    def _watch(
        self,
        call: grpc.Call,
        session: _Session,
        send: Callable[[Frame], None],
        stop: threading.Event,
        ended: threading.Event,
    ) -> None:
        """Ends a call when the node should stop or no welcome comes; renews the certificate while the stream stays
        open, and dials again some time after a ledger could not be written."""
        welcome_by, look_at = time.monotonic() + _WELCOME_WAIT_S, time.monotonic() + _RENEWAL_LOOK_S
        while not ended.wait(_LOOK_S):
            if stop.is_set() or (session.welcomed_at is None and time.monotonic() > welcome_by):
                call.cancel()
                return
            if session.unwritten_at is not None and time.monotonic() > session.unwritten_at + _UNWRITTEN_S:
                self._on_event("dials_again", {"reason": "a ledger could not be written; its batches are asked again"})
                call.cancel()
                return
            if session.welcomed_at is not None and time.monotonic() > look_at:
                look_at = time.monotonic() + _RENEWAL_LOOK_S
                try:
                    self._renewal.ask(send)
                except Refused as error:  # this ends the stream too, with the reason
                    self._on_event("renewal_failed", {"code": error.code, "reason": str(error)[:200]})

    def _converse(self, frames: Iterator[bytes], send: Callable[[Frame], None], session: _Session) -> None:
        seats = {(seat.study.digest, seat.party.name): seat for seat in self._list_seats()}

        heads_of_seats = tuple(seat_heads(seat) for seat in seats.values())
        send(Hello(WIRE_VERSIONS, _SOFTWARE, session.nonce, heads_of_seats, tuple(self._list_withdrawn())))
        for data in frames:
            try:
                frame, sender = read_frame(data, authority=self._authority, now=_now(), role="coordinator")
                if isinstance(frame, Goodbye):
                    self._said_goodbye(frame, session)
                    if frame.code in _FATAL:
                        raise Refused(frame.code, frame.reason)
                    return
                if isinstance(frame, Welcome):
                    self._welcome(frame, session, seats)
                    session.welcomed_at = time.monotonic()
                    self._renewal.ask(send)
                elif isinstance(frame, Renewed):
                    self._renewal.take(frame)
                elif isinstance(frame, Ask) and session.welcomed_at is not None:
                    send(self._answer(frame, data, sender, session, seats))
                else:
                    raise MalformedMessage(f"{type(frame).__name__} is not allowed here")
            except MalformedMessage as error:
                self._on_event("malformed", {"reason": str(error)[:200]})
                return
            except Refused as error:
                if error.code in _FATAL:
                    self._on_event("stopped", {"code": error.code, "reason": str(error)[:500]})
                    with suppress(Refused):  # the coordinator does not read, so it cannot be told
                        send(Goodbye(error.code, str(error)))
                    raise
                self._on_event("refused", {"code": error.code, "reason": str(error)[:200]})
                return

    def _welcome(self, welcome: Welcome, session: _Session, seats: Mapping[tuple[bytes, str], ServedSeat]) -> None:
        if welcome.session != session.nonce:
            raise Refused(Code.REPLAYED, "the welcome belongs to another session")
        check_version(welcome.version, offered=WIRE_VERSIONS)
        skew_ms = welcome.time_ms - time.time_ns() // 1_000_000
        self._on_event("connected", {"address": self._address, "version": welcome.version, "skew_ms": skew_ms})
        if abs(skew_ms) > _CLOCK_TOLERANCE_MS:
            said = f"this clock is {-skew_ms / 1000:+.0f} s from the coordinator's: synchronise it (NTP)"
            self._on_event("clock_skew", {"skew_ms": skew_ms, "reason": said})
        for refused in welcome.refused:
            known = seats.get((refused.study, refused.seat))
            name = {} if known is None else {"study": known.study.name}
            about = {"seat": refused.seat, "code": refused.code, "reason": refused.reason}
            self._on_event("asked_without" if refused.code == Code.ASKED_WITHOUT else "seat_refused", {**name, **about})
            if refused.code == Code.PEER_ROLLED_BACK:  # the coordinator's peer is this node
                raise Refused(Code.LEDGER_ROLLED_BACK, refused.reason)
            if refused.code in _FATAL:
                raise Refused(refused.code, refused.reason)

    def _answer(
        self, ask: Ask, signed: bytes, sender: Identity, session: _Session, seats: dict[tuple[bytes, str], ServedSeat]
    ) -> Answer:
        """The answer to one request; everything that must survive a crash is on disk when it returns."""
        if ask.session != session.nonce or ask.round <= session.round:
            raise Refused(Code.REPLAYED, f"round {ask.round} came after {session.round}, or belongs to another session")
        session.round = ask.round
        seat = seats.get((ask.study, ask.seat))
        if seat is None:
            refusal = Refusal(
                Code.UNKNOWN_STUDY, f"seat {ask.seat!r} of study {ask.study.hex()[:16]} is not approved here"
            )
            self._count_refusal(refusal)
            return Answer(ask.nonce, ask.round, ask.study, ask.seat, EMPTY, EMPTY, encode(refusal))
        log = seat.ledger.log
        try:
            said = seat.answer(partial(reply, ask, signed, sender, seat, today=_now().date()))
        except StorageFailed as error:
            # The reason names files of the hospital, so it is not sent.
            self._on_event("storage_failed", {"reason": str(error)[:300]})
            session.unwritten_at = session.unwritten_at or time.monotonic()
            said = Refusal(
                Code.STORAGE_FAILED, "storage_failed: the hospital's ledger cannot be written; nothing was answered"
            )
        if isinstance(said, Refusal):
            self._count_refusal(said)
        with suppress(StorageFailed):  # what was charged is charged, whether or not it can be read for the log
            charge = charge_of(seat, said)
            if charge is not None:
                self._on_event(*charge)
        return Answer(ask.nonce, ask.round, ask.study, ask.seat, *log.heads(COORDINATOR), encode(said))

    def _count_refusal(self, refusal: Refusal) -> None:
        self._on_event("refused", {"code": refusal.code, "reason": refusal.reason[:200]})
        if refusal.code in (Code.TEACHERS_LATE, Code.STORAGE_FAILED):  # which is not the coordinator's fault
            return
        if not self._refusals.take(time.monotonic()):
            raise Refused(
                Code.TOO_MANY_REFUSALS,
                f"the coordinator sent more than {_REFUSALS} requests per day that had to be refused",
            )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
