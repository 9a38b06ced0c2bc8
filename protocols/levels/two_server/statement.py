"""What a guardian signs at the end of a batch: which queries were answered, whose votes were counted, what each sent.

One signature covers all of it. A `Statement` is what the coordinator gets and keeps; a `Told` is the part that one
hospital gets with the outcome: the fate of every seat, the digest of what came in its own name, and the proof that the
guardian signed both. So a hospital sees that its vote was counted as it was sent, or which server left it out.

Where records vote, the noisy sums that both servers open are signed apart, since they are released.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jaxtyping import Bool, Int64, UInt8
from numpy import ndarray

from protocols.crypto.hash_tree import HASH_BYTES, depth, inclusion_proofs, root_from, root_of
from protocols.errors import MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.wire.messages import Outcome, decode_arrays, encode_arrays

SIGNATURE_BYTES = 64


class Fate(IntEnum):
    """What became of a seat's votes in a batch, as the guardian saw it."""

    NOT_ASKED = 0
    COUNTED = 1
    # The coordinator submitted nothing of it: the seat was absent or late, or was left out.
    NOT_SUBMITTED = 2
    # What was submitted was not signed by the seat's party, or not sealed to the guardian.
    BAD_SEAL = 3
    # Not one vote per query, or a sum that no declared units could send.
    BAD_VOTES = 4
    # Those of three batches were refused, where queries are hidden: no more of the seat's are taken.
    VOTES_BARRED = 5

    @property
    def word(self) -> str:
        """As in logs: the name in small letters."""
        return self.name.lower()


@dataclass(frozen=True, eq=False)
class Statement:
    """The whole statement of a batch. fates: of every seat of the roster, see Fate; votes: the digest of what was
    submitted for each (signed_votes.py), zeros where nothing was."""

    fates: UInt8[ndarray, " seats"]
    votes: UInt8[ndarray, "seats 32"] = field(repr=False)
    signature: bytes = field(repr=False)

    @classmethod
    def signed(
        cls,
        key: Ed25519PrivateKey,
        *,
        study: bytes,
        request: bytes,
        answered: Bool[ndarray, " queries"],
        fates: UInt8[ndarray, " seats"],
        votes: UInt8[ndarray, "seats 32"],
    ) -> Statement:
        """The statement of a request with the guardian's signature."""
        signature = key.sign(_signed(study, request, answered, fates, root_of(_rows(votes))))
        return cls(fates, votes, signature)

    def encode(self) -> bytes:
        """The bytes to send or keep."""
        return encode_arrays((self.fates, self.votes, np.frombuffer(self.signature, dtype=np.uint8)))

    @classmethod
    def read(cls, data: bytes, *, seats: int) -> Statement:
        """The statement of a study with so many seats; not yet verified. Raises MalformedMessage."""
        arrays = decode_arrays(data)
        shapes = [(seats,), (seats, HASH_BYTES), (SIGNATURE_BYTES,)]
        if [each.shape for each in arrays] != shapes or any(each.dtype != np.uint8 for each in arrays):
            raise MalformedMessage(f"the guardian's statement has other arrays; allowed: bytes of shapes {shapes}")
        return cls(arrays[0], arrays[1], arrays[2].tobytes())

    def check(self, *, key: bytes, study: bytes, request: bytes, answered: Bool[ndarray, " queries"]) -> None:
        """Raises Refused("unsigned_outcome") unless the guardian with this public key signed it of this outcome."""
        try:
            signed = _signed(study, request, answered, self.fates, root_of(_rows(self.votes)))
            Ed25519PublicKey.from_public_bytes(key).verify(self.signature, signed)
        except InvalidSignature:
            raise Refused(Code.UNSIGNED_OUTCOME, "the guardian's statement is not signed by it") from None

    @property
    def counted(self) -> list[int]:
        """The positions of the seats whose votes were counted."""
        return list(map(int, np.flatnonzero(self.fates == Fate.COUNTED)))

    @property
    def submitted(self) -> list[int]:
        """The positions of the seats of which votes were submitted, counted or not."""
        return list(map(int, np.flatnonzero((self.fates != Fate.NOT_ASKED) & (self.fates != Fate.NOT_SUBMITTED))))

    @cached_property
    def _proofs(self) -> list[bytes]:
        return inclusion_proofs(_rows(self.votes))

    def told(self, position: int) -> bytes:
        """What the seat at this position of the roster is told, for Outcome.guardian."""
        parts = (self.votes[position].tobytes(), self._proofs[position], self.signature)
        return encode_arrays((self.fates, *(np.frombuffer(part, dtype=np.uint8) for part in parts)))


@dataclass(frozen=True, eq=False)
class Told:
    """What one seat was told, verified. fates: of every seat; fate: its own; vote: the digest of what was submitted in
    its name."""

    fates: UInt8[ndarray, " seats"]
    fate: Fate
    vote: bytes = field(repr=False)


def check_told(outcome: Outcome, *, key: bytes, position: int, seats: int) -> Told:
    """What the seat at this position of the roster was told of a batch with its outcome.

    key: the guardian's public one; seats: how many the roster has. Raises Refused("unsigned_outcome") unless the
    guardian signed the outcome with exactly this.
    """
    try:
        fates, vote, proof, signature = decode_arrays(outcome.guardian)
        shapes = [each.shape for each in (fates, vote, proof, signature)]
        if shapes != [(seats,), (HASH_BYTES,), (HASH_BYTES * depth(seats),), (SIGNATURE_BYTES,)]:
            raise ValueError
        if any(each.dtype != np.uint8 for each in (fates, vote, proof, signature)):
            raise ValueError
        root = root_from(vote.tobytes(), position, proof.tobytes())
        statement = _signed(outcome.study, outcome.batch_digest, outcome.answered, fates, root)
        Ed25519PublicKey.from_public_bytes(key).verify(signature.tobytes(), statement)
        return Told(fates, Fate(int(fates[position])), vote.tobytes())
    except (MalformedMessage, ValueError, InvalidSignature):
        raise Refused(
            Code.UNSIGNED_OUTCOME, "the outcome does not bear the guardian's signature; the reservation stands"
        ) from None


def opened_statement(study: bytes, request: bytes, cells: Int64[ndarray, "queries classes"]) -> bytes:
    """What a guardian signs where records vote: the noisy sums that it opened, in lattice units."""
    opened = hashlib.sha256(np.array(cells.shape, dtype="<i8").tobytes() + cells.astype("<i8").tobytes()).digest()
    return b"conclave opened sums 1\n" + study + request + opened


def check_opened(
    signature: bytes, cells: Int64[ndarray, "queries classes"], *, study: bytes, request: bytes, key: bytes
) -> None:
    """Raises Refused("other_sums") unless the guardian with this public key signed these noisy sums of the request."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, opened_statement(study, request, cells))
    except InvalidSignature:
        raise Refused(Code.OTHER_SUMS, "the guardian's signature is not of these sums") from None


def _signed(
    study: bytes, request: bytes, answered: Bool[ndarray, " queries"], fates: UInt8[ndarray, " seats"], votes: bytes
) -> bytes:
    """What the guardian signs. votes: the root of the tree of digests, seat by seat."""
    queries, seats = (len(each).to_bytes(8, "big") for each in (answered, fates))
    about = queries + answered.astype("|b1").tobytes() + seats + fates.tobytes()
    return b"conclave statement 1\n" + study + request + about + votes


def _rows(votes: UInt8[ndarray, "seats 32"]) -> list[bytes]:
    return [row.tobytes() for row in votes]
