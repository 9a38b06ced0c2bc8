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
from protocols.wire.messages import Readers, digest, got, limited, put

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
        body=body, signature=sign(key, _DOMAIN + body), certificate=certificate.public_bytes(serialization.Encoding.DER)
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
    signed = parse(wire_pb2.Signed, limited("frame", FRAME_BYTES)(data), what="a signed frame")
    try:
        return signed, certificate_from_der(signed.certificate)
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None


def _encode(frame: Frame) -> bytes:
    outer = wire_pb2.Frame()
    put(getattr(outer, type(frame).__name__.lower()), frame)
    return bytes(outer.SerializeToString(deterministic=True))


def _decode(data: bytes) -> Frame:
    outer = parse(wire_pb2.Frame, data, what="a frame")
    kind = outer.WhichOneof("body")
    if kind is None:
        raise MalformedMessage(f"frame has no body; allowed: {', '.join(_KINDS)}")
    hello = outer.hello
    if max(len(hello.seats), len(hello.withdrawn)) > _SEATS or len(hello.versions) > 64:
        raise MalformedMessage(
            f"hello has {len(hello.seats)} seats and {len(hello.withdrawn)} withdrawn studies; allowed: at most "
            f"{_SEATS} each"
        )
    frame: Frame = got(_KINDS[kind], getattr(outer, kind), _READERS)
    return frame


def _untold(digests: Sequence[bytes]) -> tuple[bytes, ...]:
    if len(digests) > _UNTOLD:
        raise MalformedMessage(f"seat has {len(digests)} batches without an outcome; allowed: at most {_UNTOLD}")
    return _hashes(digests)


def _hashes(digests: Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(map(digest, digests))


def printable(value: str) -> str:
    """Text for terminals: short and printable, so that it can only be read there."""
    if len(value) > _SHORT_TEXT:
        raise MalformedMessage(f"text has {len(value)} characters; allowed: at most {_SHORT_TEXT}")
    return "".join(character if character.isprintable() else "?" for character in value)


def _head(head: wire_pb2.Head) -> Head:
    return Head(head.count, digest(head.hash))


_KINDS = {each.__name__.lower(): each for each in (Hello, Welcome, Ask, Answer, Renew, Renewed, Goodbye)}
# A name means the same in every frame. What is not named here is a whole number, or bytes that others read.
_READERS: Readers = {
    "versions": tuple,
    **dict.fromkeys(("software", "seat", "code", "reason"), printable),
    **dict.fromkeys(("session", "nonce"), limited("nonce", NONCE_BYTES, least=NONCE_BYTES)),
    **dict.fromkeys(("own", "seen", "coordinator"), _head),
    **dict.fromkeys(("request", "certificate"), limited("certificate", PEM_BYTES)),
    "study": digest,
    "withdrawn": _hashes,
    "untold": _untold,
    "proof": limited("signature of a head", _PROOF_BYTES),
    "seats": lambda several: tuple(got(SeatHeads, each, _READERS) for each in several),
    "refused": lambda several: tuple(got(RefusedSeat, each, _READERS) for each in several[:_SEATS]),
}
