"""A conversation with a guardian: the stream, who greets whom, and the line on either side.

A channel between two servers, made of two streams of pieces; the transport of the pieces stays outside.

A message may be larger than the transport allows, so it is sent in pieces of at most PIECE_BYTES, each preceded by its
kind. A sender waits for a slow reader, and a side that is silent for too long counts as gone.

The greeting between coordinator and guardian before a conversation: who asks about which study, and who answers.

By then TLS has shown certificates of the consortium's authority. The guardian's signature over this conversation shows
which guardian it is: a study's terms name one.

The line to the guardian that a study names: who dials whom, and who answers; the transport stays outside.

The coordinator dials or, in a study with hidden queries, the querying party. One stream is one conversation.
"""

from __future__ import annotations

import datetime
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.channel import Channel
from protocols.crypto.identity import PEM_BYTES, Identity, Role, certificate_from_der, fingerprint, identify, sign
from protocols.errors import ChannelClosed, InvalidInput, MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import guarded
from protocols.study.study import party_of

PIECE_BYTES = 2**18
# With the byte for a piece's kind.
CARRIED_BYTES = PIECE_BYTES + 1
# Of messages waiting to be sent or read; one more message may always be sent.
_WAITING_BYTES = 64 * 2**20
_PART, _LAST, _GOODBYE = 0, 1, 2
_GOODBYE_CHARACTERS = 500


class EndedByPeer(ChannelClosed):
    """The other side ended the conversation with a reason. code: stable and machine-readable."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"the other side ended the conversation: {code}: {reason}")
        self.code = code
        self.reason = reason


class GuardianStream:
    """One end of a channel. Its user calls send, recv and close; its transport iterates `outgoing` and calls `feed`.

    silence_s: how long the other side may neither send nor read. Methods may be called from several threads.
    """

    def __init__(self, *, silence_s: float | int) -> None:
        self._silence_s = silence_s
        self._changed = threading.Condition()
        self._unsent: deque[tuple[int, memoryview]] = deque()
        self._unread: deque[tuple[int, bytes]] = deque()
        self._unsent_bytes = 0
        self._unread_bytes = 0
        self._closed = False  # nothing more is sent than what waits
        self._carried = False  # all of it was taken by the carrier
        self._gone: ChannelClosed | None = None  # nothing more is read than what waits

    def send(self, data: bytes) -> None:
        """Sends one message. Raises ChannelClosed when the other side is gone or reads nothing."""
        self._put(_LAST, memoryview(data))

    def recv(self, limit: int, *, within_s: float | int | None = None) -> bytes:
        """The next message. within_s: how long it may take until a piece of it is there [silence_s].

        Raises MalformedMessage above `limit` bytes, after which nothing more is read; ChannelClosed, or EndedByPeer if
        the other side gave a reason.
        """
        parts: list[bytes] = []
        size, kind = 0, _PART
        while kind == _PART:
            kind, payload = self._take(self._silence_s if within_s is None else within_s)
            size += len(payload)
            if size > limit:
                with self._changed:
                    self._stop_reading(ChannelClosed("a message was too large; nothing after it is read"), drop=True)
                raise MalformedMessage(f"message has more than {limit} bytes; allowed: at most {limit}")
            parts.append(payload)
        return b"".join(parts)

    def say_goodbye(self, code: str, reason: str) -> None:
        """Ends the conversation with a reason; the other side may be gone already."""
        text = f"{code}\n{reason[:_GOODBYE_CHARACTERS]}".encode()
        try:
            self._put(_GOODBYE, memoryview(text))
        except ChannelClosed:
            pass
        self.close()

    def cut(self, code: str, reason: str) -> None:
        """Ends the conversation at once with a reason: what waits is neither sent nor read any more."""
        with self._changed:
            self._unsent.clear()
            self._unsent_bytes = 0
            self._stop_reading(ChannelClosed(f"{code}: {reason}"), drop=True)
        self.say_goodbye(code, reason)

    def close(self) -> None:
        """Sends what waits, and no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abort(self, reason: str) -> None:
        """Drops what waits to be sent: the transport broke, or the conversation is useless."""
        with self._changed:
            self._closed = True
            self._unsent.clear()
            self._stop_reading(ChannelClosed(reason), drop=True)

    def carried(self, *, timeout_s: float | int) -> bool:
        """After close, waits until the transport has taken everything; returns whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._carried, timeout_s)

    def outgoing(self) -> Iterator[bytes]:
        """The pieces to send, until the stream is closed and empty, or aborted."""
        try:
            while (piece := self._next_piece()) is not None:
                yield piece
        finally:
            with self._changed:
                self._carried = True
                self._changed.notify_all()

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Takes pieces from the transport until they end; they raise ChannelClosed when it breaks."""
        gone = ChannelClosed("the other side closed the channel")
        try:
            for piece in pieces:
                if not self._take_in(piece):
                    return
        except ChannelClosed as error:
            gone = error
        with self._changed:
            self._stop_reading(gone)

    def _put(self, kind: int, data: memoryview) -> None:
        with self._changed:
            while not self._closed and (before := self._unsent_bytes) > _WAITING_BYTES:
                if not self._changed.wait_for(lambda: self._closed or self._unsent_bytes < before, self._silence_s):
                    raise ChannelClosed(f"the other side read nothing in {self._silence_s:g} s")
            if self._closed:
                raise self._gone or ChannelClosed("this side closed the channel")
            self._unsent.append((kind, data))
            self._unsent_bytes += len(data)
            self._changed.notify_all()

    def _next_piece(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._unsent or self._closed)
            if not self._unsent:
                return None
            kind, data = self._unsent.popleft()
            if len(data) > PIECE_BYTES:
                self._unsent.appendleft((kind, data[PIECE_BYTES:]))
                kind, data = _PART, data[:PIECE_BYTES]
            self._unsent_bytes -= len(data)
            self._changed.notify_all()
        return bytes([kind]) + data

    def _take_in(self, piece: bytes) -> bool:
        """Stores one piece for recv; returns whether more are wanted."""
        with self._changed:
            if not _allowed(piece):
                self._stop_reading(ChannelClosed(f"a piece of {len(piece)} bytes is none of this wire"))
                return False
            if piece[0] == _GOODBYE:
                code, _, reason = piece[1:].decode(errors="replace").partition("\n")
                self._stop_reading(EndedByPeer(_printable(code)[:40], _printable(reason)[:_GOODBYE_CHARACTERS]))
                return False
            self._changed.wait_for(lambda: self._unread_bytes <= _WAITING_BYTES or self._gone is not None)
            if self._gone is not None:
                return False
            self._unread.append((piece[0], piece[1:]))
            self._unread_bytes += _cost(piece[1:])
            self._changed.notify_all()
            return True

    def _take(self, within_s: float) -> tuple[int, bytes]:
        with self._changed:
            if not self._changed.wait_for(lambda: self._unread or self._gone is not None, within_s):
                raise ChannelClosed(f"the other side sent nothing in {within_s:g} s")
            if self._gone is not None and not self._unread:
                raise self._gone
            kind, payload = self._unread.popleft()
            self._unread_bytes -= _cost(payload)
            self._changed.notify_all()
            return kind, payload

    def _stop_reading(self, why: ChannelClosed, *, drop: bool = False) -> None:
        """Earlier pieces can still be read, unless dropped; the first reason stands."""
        self._gone = self._gone or why
        if drop:
            self._unread.clear()
            self._unread_bytes = 0
        self._changed.notify_all()


def _allowed(piece: bytes) -> bool:
    """Whether it is a valid piece; one that is followed by others must be full, so that a message has no needless
    pieces."""
    if not 0 < len(piece) <= CARRIED_BYTES:
        return False
    return piece[0] in (_LAST, _GOODBYE) or (piece[0] == _PART and len(piece) == CARRIED_BYTES)


def _cost(payload: bytes) -> int:
    """The size at which an unread piece counts: an empty one takes memory too."""
    return len(payload) + 1024


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


CONVERSE_METHOD = "/conclave.v1.Guardian/Converse"
VERSION = 1
_NONCE_BYTES, DIGEST_BYTES = 16, 32
OPENING_BYTES = 2 + _NONCE_BYTES + DIGEST_BYTES
_SIGNATURE_BYTES = 72
WELCOME_BYTES = 1 + _SIGNATURE_BYTES + PEM_BYTES
_PURPOSES = ("check", "batch")


@runtime_checkable
class ServesBatches(Protocol):
    """The guardian's end of a conversation; implemented by protocols.labelling.guardian.Guardian."""

    def serve(self, channel: Channel) -> None:
        """One conversation about one batch. Raises ConclaveError, after telling the other side what it is allowed to
        know."""


@dataclass(frozen=True, eq=False)
class GuardedStudy:
    """A study that a guardian approved, and who speaks in it. busy: held while a conversation is open."""

    study: DeployedStudy
    guardian: ServesBatches
    busy: threading.Lock


@dataclass(frozen=True)
class Opening:
    """The coordinator's first message. study: a digest; purpose: "check", whether it is approved, or "batch"."""

    study: bytes
    purpose: str
    nonce: bytes = field(default_factory=lambda: os.urandom(_NONCE_BYTES))

    def encode(self) -> bytes:
        """The bytes to send."""
        return bytes([VERSION, _PURPOSES.index(self.purpose)]) + self.nonce + self.study


def read_opening(data: bytes) -> Opening:
    """Raises Refused("wire_version"), MalformedMessage."""
    if data and data[0] != VERSION:
        raise Refused(Code.WIRE_VERSION, f"version {data[0]} of the guardian's wire; allowed: {VERSION}")
    if len(data) != OPENING_BYTES or data[1] >= len(_PURPOSES):
        raise MalformedMessage(f"{len(data)} bytes are no opening; allowed: {OPENING_BYTES}")
    return Opening(data[2 + _NONCE_BYTES :], _PURPOSES[data[1]], data[2 : 2 + _NONCE_BYTES])


def welcome(opening: Opening, *, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bytes:
    """The guardian's answer: its signature of the opening, and its certificate."""
    signature = sign(key, _statement(opening))
    return bytes([len(signature)]) + signature + certificate.public_bytes(serialization.Encoding.DER)


def read_welcome(data: bytes, opening: Opening, *, authority: x509.Certificate, now: datetime.datetime) -> Identity:
    """Who answered. now: UTC. Raises MalformedMessage, and Refused as `identify` and Identity.verify do."""
    if not data or len(data) < 1 + data[0]:
        raise MalformedMessage(f"{len(data)} bytes are no welcome; allowed: a signature and a certificate")
    signature, der = data[1 : 1 + data[0]], data[1 + data[0] :]
    try:
        certificate = certificate_from_der(der)
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None
    guardian = identify(certificate, authority=authority, now=now, role="guardian")
    guardian.verify(signature, _statement(opening))
    return guardian


def check_terms_apart(study: DeployedStudy) -> None:
    """Raises Refused("same_organisation") where the terms name the coordinator or a party as the guardian."""
    guardian = guarded(study.confidentiality).guardian
    names = {party_of(seat.party) for seat in study.roster} | {study.terms.coordinator}
    if guardian in names:
        raise Refused(
            Code.SAME_ORGANISATION,
            f"the guardian {guardian!r} is also the coordinator or a party of study {study.name!r}; allowed: another "
            "organisation, as both shares of a vote together are the vote",
        )


def _statement(opening: Opening) -> bytes:
    return b"conclave guardian welcome 1\n" + opening.encode()


_WELCOME_WAIT_S = 20.0
_LAST_WORDS_S = 5.0
_PROBE_S = 5.0
# Refusals that pass by themselves: asking again is right, and costs nothing.
_PASSING = frozenset({Code.BUSY, Code.GOING_AWAY, Code.STORAGE_FAILED})
SILENCE_S = 120.0
# How often an open conversation, session or call looks whether its other side was denied meanwhile.
DENY_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class GuardianLine:
    """What a dialler needs.

    address: the guardian's HOST:PORT, "" if none is set; key, certificate: the dialler's; authority: the consortium's;
    denied(identity): why a certificate is denied, or None; silence_s: how long the guardian may be silent; now(): the
    time in UTC, at which certificates must be valid.
    """

    address: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate
    authority: x509.Certificate
    denied: Callable[[Identity], str | None]
    now: Callable[[], datetime.datetime]
    silence_s: float | int = SILENCE_S


@dataclass(frozen=True, eq=False)
class Carried:
    """The pieces that come back over a stream, ChannelClosed when it breaks; cancel() ends it."""

    pieces: Iterator[bytes]
    cancel: Callable[[], object]


# carry(line, outgoing): opens a stream to the address, with mutual TLS, and sends these pieces.
Carry = Callable[[GuardianLine, Iterator[bytes]], AbstractContextManager[Carried]]


@contextmanager
def conversation(
    study: DeployedStudy, line: GuardianLine, carry: Carry, *, purpose: str
) -> Iterator[tuple[GuardianStream, Identity]]:
    """A channel to the study's guardian, and its identity. purpose: see Opening.

    Raises InvalidInput without an address; ChannelClosed if nobody answers, or the refusal will pass by itself;
    Refused: with the guardian's own reason, or, about whoever answers, "wrong_guardian", "same_organisation",
    "wrong_role", "wrong_authority", "certificate_expired", "revoked".
    """
    _check_study(study, line)
    stream, ended, cut = GuardianStream(silence_s=line.silence_s), threading.Event(), list[Refused]()
    with carry(line, stream.outgoing()) as carried:
        reader = threading.Thread(target=stream.feed, args=(carried.pieces,), daemon=True)
        reader.start()
        try:
            guardian = _greet(stream, study, line, purpose)
            threading.Thread(target=_watch, args=(stream, line, guardian, ended, cut), daemon=True).start()
            try:
                yield stream, guardian
            except ChannelClosed:
                if cut:
                    raise cut[0] from None
                raise
            stream.close()
            reader.join(_LAST_WORDS_S)
        except EndedByPeer as goodbye:
            if goodbye.code in _PASSING:
                raise
            raise Refused(goodbye.code, f"the guardian refuses: {goodbye.reason}") from None
        finally:
            ended.set()
            stream.abort("this side closed the channel")
            carried.cancel()
            reader.join()


def _greet(stream: GuardianStream, study: DeployedStudy, line: GuardianLine, purpose: str) -> Identity:
    """Sends the opening, and checks who answers."""
    opening = Opening(study.digest, purpose)
    try:
        stream.send(opening.encode())
        answer = stream.recv(WELCOME_BYTES, within_s=_WELCOME_WAIT_S)
    except EndedByPeer:
        raise
    except ChannelClosed:
        _look_who_answers(line)
        raise
    guardian = read_welcome(answer, opening, authority=line.authority, now=line.now())
    _check_apart(guardian, line)
    named = guarded(study.confidentiality).guardian
    if guardian.name != named:
        raise Refused(
            Code.WRONG_GUARDIAN,
            f"the guardian at {line.address} is {guardian.name!r}; allowed: {named!r}, as the study says",
        )
    _check_allowed(line, guardian)
    return guardian


def _check_allowed(line: GuardianLine, guardian: Identity) -> None:
    reason = line.denied(guardian)
    if reason is not None:
        raise Refused(Code.REVOKED, f"the guardian {guardian.name!r} is denied: {reason}")


def _watch(
    stream: GuardianStream, line: GuardianLine, guardian: Identity, ended: threading.Event, cut: list[Refused]
) -> None:
    """Cuts an open conversation soon after the guardian is denied, and keeps the reason in `cut`."""
    while not ended.wait(DENY_POLL_S):
        try:
            _check_allowed(line, guardian)
        except Refused as refused:
            cut.append(refused)
            stream.cut(refused.code, str(refused))
            return


def _check_study(study: DeployedStudy, line: GuardianLine) -> None:
    """Raises InvalidInput without an address, Refused if the terms name one organisation twice."""
    guardian = guarded(study.confidentiality).guardian
    if not line.address:
        raise InvalidInput(
            f"study {study.name!r} needs the guardian {guardian!r}, and no address of one is known; allowed: "
            'guardian = "HOST:PORT" in coordinator.toml, or --guardian HOST:PORT'
        )
    check_terms_apart(study)


def _check_apart(guardian: Identity, line: GuardianLine) -> None:
    if guardian.fingerprint == fingerprint(line.key.public_key()):
        raise Refused(
            Code.SAME_ORGANISATION,
            f"the guardian {guardian.name!r} has the key of who dials; allowed: another organisation, with a key "
            "of its own",
        )


def _look_who_answers(line: GuardianLine) -> None:
    """Raises Refused if whoever answers is no guardian: TLS ended that connection and says little."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # Nothing is sent; this only looks at who answers.
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    host, _, port = line.address.rpartition(":")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S) as connection,
            context.wrap_socket(connection) as secured,
        ):
            certificate = certificate_from_der(secured.getpeercert(binary_form=True) or b"")
    except (OSError, InvalidInput):
        return
    now = line.now()
    if _is(certificate, "coordinator", line, now) or _is(certificate, "party", line, now):
        raise Refused(
            Code.WRONG_ROLE,
            f"whoever answers at {line.address} shows the certificate of a coordinator or a party; allowed: a "
            "guardian, which is another organisation with a certificate and a key of its own",
        )
    _check_apart(identify(certificate, authority=line.authority, now=now, role="guardian"), line)


def _is(certificate: x509.Certificate, role: Role, line: GuardianLine, now: datetime.datetime) -> bool:
    try:
        identify(certificate, authority=line.authority, now=now, role=role)
    except Refused:
        return False
    return True
