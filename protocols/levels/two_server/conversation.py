"""Level `two_server`: the messages between coordinator and guardian about one batch, and what both must know.

A batch is one conversation over a Channel: the coordinator submits the sealed shares of everyone who answered, the
guardian accepts, and then both follow the cores of two_server/. What either side drew or received is noted before it is
used, so that repeating the conversation after any stop gives the same labels: nothing is released twice, and noise is
never drawn again. The guardian's signature of the outcome ends it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.crypto.channel import Channel
from protocols.crypto.prg import SEED_BYTES
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.ledger.audit_log import Head
from protocols.levels.two_server.sketch import Ballots
from protocols.noise import LatticeNoise
from protocols.ranges import MESSAGE_BYTES, check, integer, integers, positions
from protocols.refusals.code import Code
from protocols.study.levels import guarded
from protocols.study.study import Study
from protocols.wire.messages import decode_arrays, encode_arrays

NOISE_SEED_BYTES = 32
GUARDIAN_NOISE = "guardian noise"
_SHARE = b"conclave guardian share 1\n"
_HPKE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def seal(
    share: tuple[ndarray, ...], *, key: bytes, study: bytes, request: bytes, seat: str, purpose: bytes = _SHARE
) -> bytes:
    """A guardian's share, sealed to the holder of the sealing key and bound to study, request and seat (RFC 9180).

    purpose: separates kinds of sealed content, so that one never opens as another.
    """
    about = purpose + study + request + seat.encode()
    return _HPKE.encrypt(encode_arrays(share), X25519PublicKey.from_public_bytes(key), info=about)


def sealed_bytes(study: Study) -> int:
    """How long a sealed share is: the encapsulated key, the seeds of the seat's votes, and the tag."""
    seeds = np.zeros((study.votes.voters, SEED_BYTES), dtype=np.uint8)
    return 32 + len(encode_arrays((seeds,))) + 16


def unseal(
    sealed: bytes, *, key: X25519PrivateKey, study: bytes, request: bytes, seat: str, purpose: bytes = _SHARE
) -> tuple[ndarray, ...]:
    """The share. Raises MalformedMessage for anything that was not sealed to this key about this request and seat."""
    try:
        return decode_arrays(_HPKE.decrypt(sealed, key, info=purpose + study + request + seat.encode()))
    except (InvalidTag, ValueError):
        raise MalformedMessage("the share is not sealed to this key for this seat and request") from None


def server_noise(study: Study, noise: LatticeNoise, *, queries: int) -> Int64[ndarray, "queries classes"]:
    """One server's whole noise for a batch in lattice units, drawn in a mechanism's order."""
    return noise.draw(queries * study.classes, study.gaussian.sigma * noise.units).reshape(queries, study.classes)


def ballots_of(study: Study, request: bytes, takes_part: Bool[ndarray, "seats queries"]) -> Ballots:
    """What both servers know about the votes of these seats."""
    return Ballots(
        np.repeat(takes_part, study.votes.voters, axis=0),
        study.classes,
        guarded(study.confidentiality).abstains,
        request,
    )


def whole_seats(study: Study, voters: Bool[ndarray, " voters"]) -> Bool[ndarray, " seats"]:
    """Which seats' votes are counted: those whose teachers' votes are all well formed."""
    valid: Bool[ndarray, " seats"] = voters.reshape(-1, study.votes.voters).min(axis=1)
    return valid


def own_weights(study: Study, seats: Int64[ndarray, " seats"]) -> Int64[ndarray, " voters"]:
    """The weight in lattice units of each vote of these seats, seat by seat, teacher by teacher."""
    units = guarded(study.confidentiality).units
    return np.repeat(np.rint(study.weights[seats] * units).astype(np.int64), study.votes.voters)


def send_arrays(channel: Channel, arrays: tuple[ndarray, ...], *, code: str = "") -> None:
    """Sends arrays or, with a code, a refusal."""
    channel.send(len(code).to_bytes(1, "big") + code.encode() + encode_arrays(arrays))


def receive_arrays(channel: Channel) -> tuple[ndarray, ...]:
    """The other server's arrays. Raises Refused with its code, MalformedMessage, ChannelClosed."""
    data = channel.recv(MESSAGE_BYTES)
    if not data or len(data) < 1 + data[0]:
        raise MalformedMessage(f"message of {len(data)} bytes between the servers; allowed: a code and arrays")
    code = data[1 : 1 + data[0]].decode("ascii", errors="replace")
    if code:
        said = code if re.fullmatch("[a-z_]{1,40}", code) else Code.REFUSED
        raise Refused(Code.GUARDIAN_REFUSES, f"the other server refuses: {said}; its operator's log says more")
    return decode_arrays(data[1 + data[0] :])


def head_array(head: Head) -> ndarray:
    """A log's head as bytes."""
    return np.frombuffer(head.count.to_bytes(8, "big") + head.hash, dtype=np.uint8)


def head_of(array: ndarray) -> Head:
    """The head in an array. Raises MalformedMessage."""
    data = check_bytes(array, 40)
    try:
        return Head(check("guardian's head", "count", int.from_bytes(data[:8], "big")), data[8:])
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None


def check_bytes(array: ndarray, length: int) -> bytes:
    """The bytes in an array. Raises MalformedMessage unless there are so many."""
    if array.dtype != np.uint8 or array.shape != (length,):
        raise MalformedMessage(f"array is {array.dtype} {array.shape}; allowed: {length} bytes")
    return array.tobytes()


@dataclass(frozen=True, eq=False)
class Submission:
    """What a coordinator submits: a batch, the seats it asked, and the sealed shares of those that answered."""

    study: bytes
    request: bytes
    number: int
    ids: Int64[ndarray, " queries"]
    members: Int64[ndarray, " members"]
    seats: Int64[ndarray, " seats"]
    sealed: tuple[bytes, ...] = field(repr=False)
    own: Head
    seen: Head

    def arrays(self) -> tuple[ndarray, ...]:
        """As arrays for sending."""
        return (
            np.frombuffer(self.study, dtype=np.uint8),
            np.frombuffer(self.request, dtype=np.uint8),
            np.array([self.number], dtype=np.int64),
            self.ids,
            self.members,
            self.seats,
            np.array([len(each) for each in self.sealed], dtype=np.int64),
            np.frombuffer(b"".join(self.sealed), dtype=np.uint8),
            head_array(self.own),
            head_array(self.seen),
        )

    @classmethod
    def read(cls, arrays: tuple[ndarray, ...]) -> Submission:
        """Raises MalformedMessage unless the arrays are a submission."""
        if len(arrays) != 10:
            raise MalformedMessage(f"a submission has {len(arrays)} arrays; allowed: 10")
        study, request, scalars, ids, members, seats, lengths, sealed, own, seen = arrays
        number = integer("submission", "number", scalars)
        for what, array in {"ids": ids, "members": members, "seats": seats}.items():
            positions("submission", what, array)
        if not np.isin(seats, members).all():
            raise MalformedMessage("a seat answered that was not asked; allowed: only members")
        if integers("submission", "lengths", lengths).shape != seats.shape:
            raise MalformedMessage(f"{len(lengths)} lengths of sealed shares; allowed: one per seat")
        if sealed.dtype != np.uint8 or sealed.ndim != 1 or int(lengths.sum()) != len(sealed):
            raise MalformedMessage(f"sealed shares have {sealed.size} bytes; allowed: {int(lengths.sum())}")
        ends = np.cumsum(lengths)
        parts = tuple(sealed[end - length : end].tobytes() for end, length in zip(ends, lengths, strict=True))
        return cls(
            check_bytes(study, 32),
            check_bytes(request, 32),
            number,
            ids,
            members,
            seats,
            parts,
            head_of(own),
            head_of(seen),
        )

    @property
    def digest(self) -> bytes:
        """SHA-256 of all but the heads: a batch is evaluated for one submission only."""
        parts = [each.tobytes() for each in self.arrays()[:-2]]
        framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hashlib.sha256(b"conclave submission 1\n" + framed).digest()
