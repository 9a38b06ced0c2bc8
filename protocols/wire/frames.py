"""Frames between a node and its coordinator, and the versions of the wire.

Versions of the wire: a node offers those that it speaks, the coordinator chooses one of them.

The frames of a session between a node and its coordinator: signed, bound to a session, a round and a log.

A party dials out and says Hello; the coordinator answers Welcome; then every Ask has one Answer. They carry a message
of messages.py. Each frame is signed as a whole with its sender's certified key, so it serves as evidence later. Frames
also carry the heads of the two audit logs: see audit_log.py for what they prevent.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import PEM_BYTES, Identity, Role, certificate_from_der, identify, sign
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.audit_log import Head
from protocols.ranges import MESSAGE_BYTES, parse
from protocols.refusals.code import Code
from protocols.wire import wire_pb2

# The wire versions that this software speaks, newest first; one version back stays supported.
WIRE_VERSIONS = (1,)


def agree_version(offered: Sequence[int]) -> int:
    """The newest version that both sides speak. Raises Refused("wire_version")."""
    common = set(offered) & set(WIRE_VERSIONS)
    if not common:
        raise Refused(
            Code.WIRE_VERSION,
            f"the other side speaks wire versions {sorted(offered)[:8]}; allowed: {sorted(WIRE_VERSIONS)}: "
            "update the older software",
        )
    return max(common)


def check_version(chosen: int, *, offered: Sequence[int]) -> None:
    """Raises Refused("wire_version") unless the version that a Welcome names is one of those that the Hello offered."""
    if chosen not in offered:
        raise Refused(
            Code.WIRE_VERSION,
            f"the coordinator chose wire version {chosen}; allowed: {sorted(offered)}, as offered: "
            "update the older software",
        )


FRAME_BYTES = MESSAGE_BYTES + 2**16
NONCE_BYTES = 16
# The method that a node calls; see coordinator/connection/hub.py.
SESSION_METHOD = "/conclave.v1.Session/Open"
_SHORT_TEXT = 4096
_SEATS = 1024
_UNTOLD = 65_536
_PROOF_BYTES = 128
_DOMAIN = b"conclave frame 1\n"
_HEAD_DOMAIN = b"conclave head 1\n"


@dataclass(frozen=True)
class SeatHeads:
    """A seat's state in a study: heads of its own log and, as it knows it, of the coordinator's.

    untold: digests of requests that were charged and whose outcome it has not seen; proof: the coordinator's signature
    of the head that it gave, see head_statement; empty if it gave none.
    """

    study: bytes
    seat: str
    own: Head
    coordinator: Head
    untold: tuple[bytes, ...]
    proof: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Hello:
    """Node to coordinator, first: wire versions it speaks, its software, a fresh session nonce, its seats, and the
    digests of the studies that it ended for good."""

    versions: tuple[int, ...]
    software: str
    session: bytes
    seats: tuple[SeatHeads, ...]
    withdrawn: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class RefusedSeat:
    """A seat that the coordinator will not ask in this session, and why."""

    study: bytes
    seat: str
    code: str
    reason: str


@dataclass(frozen=True)
class Welcome:
    """Coordinator to node: the version that both speak, the node's nonce, the time in milliseconds since 1970."""

    version: int
    session: bytes
    time_ms: int
    refused: tuple[RefusedSeat, ...]


@dataclass(frozen=True)
class Ask:
    """Coordinator to node: a request to one seat. round: rises by each Ask of a session; nonce: fresh.

    own: head of the coordinator's log; seen: the newest head of the seat's log that the coordinator knows; proof: the
    sender's signature of `own`, which `sign_frame` makes and `read_frame` checks. It stays valid without the rest.
    """

    session: bytes
    round: int
    nonce: bytes
    study: bytes
    seat: str
    own: Head
    seen: Head
    envelope: bytes = field(repr=False)
    proof: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True)
class Answer:
    """Node to coordinator: the reply to the Ask of this nonce and round, with the heads after it."""

    nonce: bytes
    round: int
    study: bytes
    seat: str
    own: Head
    seen: Head
    envelope: bytes = field(repr=False)


@dataclass(frozen=True)
class Renew:
    """Node to coordinator: a certificate request (PEM) with the key and name it has."""

    request: bytes


@dataclass(frozen=True)
class Renewed:
    """Coordinator to node: a new certificate (PEM)."""

    certificate: bytes


@dataclass(frozen=True)
class Goodbye:
    """Last, in either direction: why the session ends. `code` is stable."""

    code: str
    reason: str


Frame = Hello | Welcome | Ask | Answer | Renew | Renewed | Goodbye


def head_statement(study: bytes, head: Head) -> bytes:
    """What the owner of a study's log signs about its head: a proof of it that is short, whatever a frame holds."""
    return _HEAD_DOMAIN + study + head.count.to_bytes(8, "big") + head.hash


def sign_frame(frame: Frame, *, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bytes:
    """The frame's bytes with the sender's signature and certificate."""
    if isinstance(frame, Ask):
        frame = replace(frame, proof=sign(key, head_statement(frame.study, frame.own)))
    body = _encode(frame)
    signed = wire_pb2.Signed(
        body=body,
        signature=sign(key, _DOMAIN + body),
        certificate=certificate.public_bytes(serialization.Encoding.DER),
    )
    return bytes(signed.SerializeToString(deterministic=True))


def read_frame(
    data: bytes, *, authority: x509.Certificate, now: datetime.datetime, role: Role
) -> tuple[Frame, Identity]:
    """The frame and who signed it. now: UTC, the time at which the certificate must be valid; role: of the sender.

    Raises MalformedMessage, or Refused as identify() does and "bad_signature".
    """
    signed, certificate = _read_signed(data)
    sender = identify(certificate, authority=authority, now=now, role=role)
    sender.verify(signed.signature, _DOMAIN + signed.body)
    frame = _decode(signed.body)
    if isinstance(frame, Ask):
        sender.verify(frame.proof, head_statement(frame.study, frame.own))
    return frame, sender


def begins(data: bytes) -> datetime.datetime:
    """From when the certificate is valid that a frame came under (UTC), as it says itself: nothing is checked.

    Raises MalformedMessage.
    """
    return _read_signed(data)[1].not_valid_before_utc


def _read_signed(data: bytes) -> tuple[wire_pb2.Signed, x509.Certificate]:
    if len(data) > FRAME_BYTES:
        raise MalformedMessage(f"frame has {len(data)} bytes; allowed: at most {FRAME_BYTES}")
    signed = parse(wire_pb2.Signed, data, what="a signed frame")
    try:
        return signed, certificate_from_der(signed.certificate)
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None


def _encode(frame: Frame) -> bytes:
    outer = wire_pb2.Frame()
    match frame:
        case Hello():
            outer.hello.versions.extend(frame.versions)
            outer.hello.software, outer.hello.session = frame.software, frame.session
            outer.hello.withdrawn.extend(frame.withdrawn)
            for each in frame.seats:
                heads = outer.hello.seats.add(study=each.study, seat=each.seat, untold=each.untold, proof=each.proof)
                _fill(heads.own, each.own)
                _fill(heads.coordinator, each.coordinator)
        case Welcome():
            outer.welcome.version, outer.welcome.session = frame.version, frame.session
            outer.welcome.time_ms = frame.time_ms
            for refused in frame.refused:
                outer.welcome.refused.add(
                    study=refused.study, seat=refused.seat, code=refused.code, reason=refused.reason
                )
        case Ask():
            outer.ask.session, outer.ask.round, outer.ask.nonce = frame.session, frame.round, frame.nonce
            outer.ask.study, outer.ask.seat, outer.ask.envelope = frame.study, frame.seat, frame.envelope
            outer.ask.proof = frame.proof
            _fill(outer.ask.own, frame.own)
            _fill(outer.ask.seen, frame.seen)
        case Answer():
            outer.answer.nonce, outer.answer.round, outer.answer.study = frame.nonce, frame.round, frame.study
            outer.answer.seat, outer.answer.envelope = frame.seat, frame.envelope
            _fill(outer.answer.own, frame.own)
            _fill(outer.answer.seen, frame.seen)
        case Renew():
            outer.renew.request = frame.request
        case Renewed():
            outer.renewed.certificate = frame.certificate
        case Goodbye():
            outer.goodbye.code, outer.goodbye.reason = frame.code, frame.reason
    return bytes(outer.SerializeToString(deterministic=True))


def _decode(data: bytes) -> Frame:
    outer = parse(wire_pb2.Frame, data, what="a frame")
    kind = outer.WhichOneof("body")
    if kind == "hello":
        hello = outer.hello
        if max(len(hello.seats), len(hello.withdrawn)) > _SEATS or len(hello.versions) > 64:
            raise MalformedMessage(
                f"hello has {len(hello.seats)} seats and {len(hello.withdrawn)} withdrawn studies; allowed: at most "
                f"{_SEATS} each"
            )
        heads_of_seats = tuple(_seat_heads(each) for each in hello.seats)
        withdrawn = tuple(_hash(digest) for digest in hello.withdrawn)
        return Hello(tuple(hello.versions), printable(hello.software), _nonce(hello.session), heads_of_seats, withdrawn)
    if kind == "welcome":
        refused = tuple(
            RefusedSeat(_hash(each.study), printable(each.seat), printable(each.code), printable(each.reason))
            for each in outer.welcome.refused[:_SEATS]
        )
        return Welcome(outer.welcome.version, _nonce(outer.welcome.session), outer.welcome.time_ms, refused)
    if kind == "ask":
        ask = outer.ask
        return Ask(
            _nonce(ask.session),
            ask.round,
            _nonce(ask.nonce),
            _hash(ask.study),
            printable(ask.seat),
            _head(ask.own),
            _head(ask.seen),
            ask.envelope,
            _proof(ask.proof),
        )
    if kind == "answer":
        answer = outer.answer
        return Answer(
            _nonce(answer.nonce),
            answer.round,
            _hash(answer.study),
            printable(answer.seat),
            _head(answer.own),
            _head(answer.seen),
            answer.envelope,
        )
    if kind == "renew":
        return Renew(_pem(outer.renew.request))
    if kind == "renewed":
        return Renewed(_pem(outer.renewed.certificate))
    if kind == "goodbye":
        return Goodbye(printable(outer.goodbye.code), printable(outer.goodbye.reason))
    raise MalformedMessage("frame has no body; allowed: hello, welcome, ask, answer, renew, renewed, goodbye")


def _seat_heads(heads: wire_pb2.SeatHeads) -> SeatHeads:
    if len(heads.untold) > _UNTOLD:
        raise MalformedMessage(f"seat has {len(heads.untold)} batches without an outcome; allowed: at most {_UNTOLD}")
    return SeatHeads(
        _hash(heads.study),
        printable(heads.seat),
        _head(heads.own),
        _head(heads.coordinator),
        tuple(_hash(digest) for digest in heads.untold),
        _proof(heads.proof),
    )


def _fill(field: wire_pb2.Head, head: Head) -> None:
    field.count, field.hash = head.count, head.hash


def _head(head: wire_pb2.Head) -> Head:
    return Head(head.count, _hash(head.hash))


def _hash(value: bytes) -> bytes:
    if len(value) != 32:
        raise MalformedMessage(f"digest has {len(value)} bytes; allowed: 32")
    return value


def _proof(value: bytes) -> bytes:
    if len(value) > _PROOF_BYTES:
        raise MalformedMessage(f"signature of a head has {len(value)} bytes; allowed: at most {_PROOF_BYTES}")
    return value


def _nonce(value: bytes) -> bytes:
    if len(value) != NONCE_BYTES:
        raise MalformedMessage(f"nonce has {len(value)} bytes; allowed: {NONCE_BYTES}")
    return value


def _pem(value: bytes) -> bytes:
    if len(value) > PEM_BYTES:
        raise MalformedMessage(f"certificate has {len(value)} bytes; allowed: at most {PEM_BYTES}")
    return value


def printable(value: str) -> str:
    """Text for terminals: short and printable, so that it can only be read there."""
    if len(value) > _SHORT_TEXT:
        raise MalformedMessage(f"text has {len(value)} characters; allowed: at most {_SHORT_TEXT}")
    return "".join(character if character.isprintable() else "?" for character in value)
