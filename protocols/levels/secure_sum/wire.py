"""The messages of a secure sum, and how its members authenticate them.

The messages: the arrays of each step, and checks of those that arrive.

How members of a sum authenticate statements to each other: pairwise tags first, signatures where a tag fails.

Checking a signature costs a hundred times as much as checking a MAC, and in every batch a party would check one per
neighbour and a quorum of them. So a statement travels with its signature and with one tag for each receiver, the
authenticators of Castro & Liskov 1999 ("Practical Byzantine Fault Tolerance", section 5.3). The signature decides: a
receiver checks it if the tag fails, so a wrong tag costs time but never the sum, and nobody is blamed for it. Survivors
alone are tagged without a signature (ballot.py, `agree`).

Two members share a permanent key: ECDH of the keys that the study's roster names (NIST SP 800-56A, static unified
model), through a key derivation (masks.py), bound to the study, both names and the direction. It is only a MAC key;
masks and sealed shares have fresh keys of their own. That one key pair serves ECDSA and ECDH is safe behind a key
derivation: Degabriele, Lehmann, Paterson, Smart & Strefler 2012, "On the joint security of encryption and signature in
EMV".

A tag is no proof to a third party, which nobody here needs. And whoever has the private key of u can forge anybody's
tags *to* u (key-compromise impersonation), besides u's own signatures. Such a u counts as a colluder in any case; being
deceived about others' keys costs only its own votes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Bool, UInt8
from numpy import ndarray

from protocols.crypto.edwards import SCALAR_BYTES
from protocols.crypto.identity import sign
from protocols.crypto.masks import KEY_BYTES, pairwise, same
from protocols.errors import InvalidInput, MalformedMessage
from protocols.wire.messages import Arrays

# A length and a signature: ECDSA over P-256 in DER has at most 72 bytes, Ed25519 has 64.
PADDED_SIGNATURE_BYTES = 73
# The public key that shares are sealed to, the public key of masks, a commitment to the self-mask seed.
KEYS = (3, KEY_BYTES)
SEALING_ROW, MASK_ROW, COMMITMENT_ROW = range(3)
# The kinds of secrets, in the order in which their shares stand everywhere.
SEED, MASK_KEY = range(2)
SECRET_KINDS = 2
# The receiver's key; a share of each secret and of what blinds the key of masks, and a Poly1305 tag.
SEALED_BYTES = KEY_BYTES + (SECRET_KINDS + 1) * SCALAR_BYTES + 16
# What a party found of a neighbour's dealing.
_NOTHING, VALID, NOT_VALID = range(3)

Expected = tuple[str, str, tuple[int, ...]]


def checked(arrays: Arrays, *expected: Expected) -> Arrays:
    """The arrays, if they are as expected: (name, dtype, shape) each. Raises MalformedMessage."""
    if not isinstance(arrays, tuple) or len(arrays) != len(expected):
        raise MalformedMessage(
            f"{len(arrays)} arrays; allowed: {len(expected)} ({', '.join(name for name, _, _ in expected)})"
        )
    for array, (name, dtype, shape) in zip(arrays, expected, strict=True):
        if array.dtype != dtype or array.shape != shape:
            raise MalformedMessage(
                f"{name}: {array.dtype} of shape {array.shape}; allowed: {np.dtype(dtype)} of shape {shape}"
            )
    return tuple(np.ascontiguousarray(array) for array in arrays)


def receipt_bytes(neighbours: int) -> int:
    """The size of what a party seals to itself: a key for each neighbour, and a Poly1305 tag."""
    return KEY_BYTES * neighbours + 16


def kept_bytes(neighbours: int) -> int:
    """The size of what a party keeps of its neighbours' shares: a name, the shares, and a Poly1305 tag."""
    return KEY_BYTES + SECRET_KINDS * SCALAR_BYTES * neighbours + 16


def flags(array: ndarray, name: str) -> Bool[ndarray, " flags"]:
    """Bytes 0 and 1 as booleans. Raises MalformedMessage for others."""
    if array.max(initial=0) > 1:
        raise MalformedMessage(f"{name}: a byte is {int(array.max())}; allowed: 0 and 1")
    return array.astype(bool)


def sized(signature: bytes) -> UInt8[ndarray, " bytes"]:
    """A signature in constant size. Raises InvalidInput for an empty or long one."""
    if not 1 <= len(signature) < PADDED_SIGNATURE_BYTES:
        raise InvalidInput(f"a signature has {len(signature)} bytes; allowed: 1 to {PADDED_SIGNATURE_BYTES - 1}")
    row = np.zeros(PADDED_SIGNATURE_BYTES, dtype=np.uint8)
    row[0] = len(signature)
    row[1 : 1 + len(signature)] = np.frombuffer(signature, dtype=np.uint8)
    return row


def unpadded(row: UInt8[ndarray, " bytes"]) -> bytes:
    """The signature in a row; b"", which nobody's signature is, for a row that holds none."""
    content = row.tobytes()
    length = content[0]
    if not 1 <= length < PADDED_SIGNATURE_BYTES or content[1 + length :].strip(b"\0"):
        return b""
    return content[1 : 1 + length]


def octets(value: bytes) -> UInt8[ndarray, " bytes"]:
    """Bytes as an array."""
    return np.frombuffer(value, dtype=np.uint8)


def rows_of(table: UInt8[ndarray, "rows width"]) -> list[bytes]:
    """Each row of a table as bytes: far cheaper than asking NumPy row by row."""
    content, width = table.tobytes(), table.shape[1]
    return [content[start : start + width] for start in range(0, len(content), width)]


def table_of(rows: Sequence[bytes]) -> UInt8[ndarray, "rows width"]:
    """Rows of equal length, at least one, as a table."""
    return octets(b"".join(rows)).reshape(len(rows), -1)


def keys_statement(digest: bytes, index: int, keys: UInt8[ndarray, "3 32"]) -> bytes:
    """What a party signs about its keys."""
    return b"conclave secure sum keys 1\n" + digest + index.to_bytes(4, "big") + keys.tobytes()


def masked_statement(digest: bytes, index: int, masked_for: bytes) -> bytes:
    """What a party signs with its masked values: with whom it masked them (`Context.mask_context`)."""
    return b"conclave secure sum masked 1\n" + digest + index.to_bytes(4, "big") + masked_for


def survivors_statement(
    digest: bytes, sharers: Bool[ndarray, " parties"], survivors: Bool[ndarray, " parties"]
) -> bytes:
    """What a party tags about who is left."""
    sets = np.packbits(sharers).tobytes() + np.packbits(survivors).tobytes()
    return b"conclave secure sum survivors 1\n" + digest + sets


def commitment(digest: bytes, index: int, seed: bytes) -> bytes:
    """Commits a party to its self-mask seed; the seed is uniform, so its hash hides it."""
    return hashlib.sha256(b"conclave secure sum seed 2\n" + digest + index.to_bytes(4, "big") + seed).digest()


# A tag is guessed with probability 2**-128; a wrong guess looks like a lost tag.
MASK_TAG_BYTES = 16

# verify(the member's name, a message, a signature of it)
Verify = Callable[[str, bytes, bytes], bool]


@runtime_checkable
class Authenticator(Protocol):
    """One member's side: it authenticates its own statements, and checks others'."""

    def sign(self, statement: bytes) -> bytes:
        """This member's signature, which everybody can check."""

    def verify(self, member: str, statement: bytes, signature: bytes) -> bool:
        """Whether a signature is the member's."""

    def tag(self, receiver: str, statement: bytes) -> bytes:
        """TAG_BYTES that prove to one other member that the statement comes from this member."""

    def holds(self, sender: str, statement: bytes, tag: bytes) -> bool:
        """Whether a tag is the one that the sender, another member, makes for this member."""


class PairwiseAuthenticator:
    """The authenticator of the member `name`. key: its private key; publics: those of all members, by name.

    The key of a pair is computed when it is first needed and then kept, as long as this object.
    """

    def __init__(
        self,
        study: bytes,
        name: str,
        *,
        key: ec.EllipticCurvePrivateKey,
        publics: Mapping[str, ec.EllipticCurvePublicKey],
    ) -> None:
        self._study, self._name, self._key, self._publics = study, name, key, publics
        self._pairs: dict[str, tuple[bytes, bytes]] = {}
        self.verify = verifier(publics)

    def sign(self, statement: bytes) -> bytes:
        """The ECDSA signature."""
        return sign(self._key, statement)

    def tag(self, receiver: str, statement: bytes) -> bytes:
        """See Authenticator; `receiver` is another member."""
        return tagged(self._pair(receiver)[0], statement)

    def holds(self, sender: str, statement: bytes, tag: bytes) -> bool:
        """See Authenticator; nobody sends tags to itself."""
        return sender != self._name and same(tagged(self._pair(sender)[1], statement), tag)

    def _pair(self, other: str) -> tuple[bytes, bytes]:
        """The keys of tags to the other member, and of tags from it."""
        keys = self._pairs.get(other)
        if keys is None:
            shared = self._key.exchange(ec.ECDH(), self._publics[other])
            keys = self._pairs[other] = direction_keys(shared, self._study, own=self._name, other=other)
        return keys


def direction_keys(shared: bytes, study: bytes, *, own: str, other: str) -> tuple[bytes, bytes]:
    """From a secret that two members share: the key of tags to the other one, and of tags from it."""
    framed = [len(name).to_bytes(4, "big") + name for name in sorted([own.encode(), other.encode()])]
    both = pairwise(shared, b"tags", study + b"".join(framed), keys=2)
    upward, downward = both[:KEY_BYTES], both[KEY_BYTES:]
    return (upward, downward) if own.encode() < other.encode() else (downward, upward)


def tagged(key: bytes, statement: bytes) -> bytes:
    """The tag of a statement; the statement itself names its batch and subject.

    Keyed BLAKE2s (RFC 7693, section 2.9): a quarter of HMAC's time; a batch needs two per member.
    """
    return hashlib.blake2s(statement, key=key, digest_size=MASK_TAG_BYTES, person=b"sum tag").digest()


def verifier(publics: Mapping[str, ec.EllipticCurvePublicKey]) -> Verify:
    """verify(member, statement, signature) under these keys: ECDSA over P-256 with SHA-256."""

    def verify(member: str, statement: bytes, signature: bytes) -> bool:
        try:
            publics[member].verify(signature, statement, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    return verify


@lru_cache(maxsize=8)
def public_keys(named: tuple[tuple[str, str], ...]) -> Mapping[str, ec.EllipticCurvePublicKey]:
    """By name, the keys that a roster has in hexadecimal, whose points are decompressed once a process."""
    return {
        name: ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes.fromhex(key)) for name, key in named
    }
