"""Keys, key streams, and who masks with whom in a secure sum.

Keys and key streams: HKDF with SHA-256 (RFC 5869), X25519 (RFC 7748), ChaCha20 (RFC 8439).

A secret that two parties agree on is not uniform. Its keys are the one-step derivation of NIST SP 800-56C Rev. 2,
section 4.1, option 1, with SHA-512: one call where HKDF takes three, and a party needs two per neighbour and batch.

Everything that a party needs in one batch is derived from one secret of 32 random bytes, so it keeps nothing else.

Who masks with whom: a public circulant graph on a shuffled ring (Bell et al. 2020, section 3, "SecAgg+").

Each party shares masks with k neighbours instead of with everyone. Bell et al. choose k so that bad graphs are rare. We
choose k so that there are none: the circulant graph on the distances 1 to k/2 is k-connected (Harary 1962), hence with
k > dropouts + colluders, whoever drops out and whoever colludes,

- the honest survivors stay connected, so that nothing but their whole sum is free of masks;
- every party keeps k - dropouts > colluders neighbours, which is the threshold of its shares: the survivors can always
  open them, colluders alone never.

That is if all parties mask for the same sharers: whoever is told of fewer has fewer masks, so nobody opens the self
mask of a party that did not say that it masked for the same ones (levels/secure_sum/ballot.py).

All failure probabilities are therefore zero, even if the coordinator chooses who drops out or tries many batches to get
a graph that it likes: there is no bad one. The shuffle, by ChaCha20 from SHA-256 of the batch's public context, only
keeps the neighbours of a party from being the same in every batch.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput, MalformedMessage

KEY_BYTES = 32
_LABEL = b"conclave secure sum 1 "
# The counter of SP 800-56C.
_FIRST_BLOCK = (1).to_bytes(4, "big")


def derived(secret: bytes, purpose: bytes, about: bytes) -> bytes:
    """32 bytes for one purpose, derived from a uniformly random secret."""
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, _LABEL + purpose + b"\n" + about).derive(secret)


def agreed(key: X25519PrivateKey, public_key: bytes) -> bytes:
    """The X25519 secret. Raises MalformedMessage for a public key of low order, which gives none."""
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(public_key))
    except ValueError:
        raise MalformedMessage("a public key has low order; allowed: keys that X25519 agrees with") from None


def pairwise(secret: bytes, purpose: bytes, about: bytes, *, keys: int) -> bytes:
    """`keys` (1 or 2) times 32 bytes for one purpose, derived from the 32 bytes that X25519 or ECDH gives."""
    assert len(secret) == KEY_BYTES  # otherwise secret and purpose could run together
    assert keys in (1, 2)  # SHA-512 gives no more at once
    fixed_info = _LABEL + purpose + b"\n" + about + keys.to_bytes(4, "big")
    return hashlib.sha512(_FIRST_BLOCK + secret + fixed_info).digest()[: keys * KEY_BYTES]


def same(left: bytes, right: bytes) -> bool:
    """Whether two byte strings are equal, in a time that does not depend on their content."""
    return hmac.compare_digest(left, right)


def key_stream(key: bytes, count: int, *, bits: int) -> ndarray:
    """`count` words of 8, 32 or 64 bits of a key's one ChaCha20 stream. A key is used for one purpose only."""
    words = np.empty(count, dtype=f"<u{bits // 8}")
    _fill(key, np.zeros_like(words), words)
    return words


class MaskSum:
    """A ring vector to which masks are added and from which they are subtracted, modulo 2**bits."""

    def __init__(self, cells: int, *, bits: int) -> None:
        self.total = np.zeros(cells, dtype=f"<u{bits // 8}")
        self._zeros, self._mask = np.zeros_like(self.total), np.empty_like(self.total)

    def add(self, key: bytes, *, sign: int) -> None:
        """Adds (sign > 0) or subtracts the key's mask, of which nothing stays in memory but the sum."""
        _fill(key, self._zeros, self._mask)
        (np.add if sign > 0 else np.subtract)(self.total, self._mask, out=self.total)
        self._mask.fill(0)


def _fill(key: bytes, zeros: ndarray, words: ndarray) -> None:
    if words.size:
        encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        encryptor.update_into(memoryview(zeros).cast("B"), memoryview(words).cast("B"))  # type: ignore[arg-type]  # arrays have buffers


# As many shares as a secret has at most (shamir.py).
MOST_NEIGHBOURS = 255


def graph_parameters(*, parties: int, dropouts: int, colluders: int) -> tuple[int, int]:
    """Neighbours of a party, and how many shares open a secret; with these no failure is possible (see the module).

    dropouts: at most this many parties leave, at any step; colluders: at most this many share all they know with the
    coordinator. The graph is full where parties are few. Raises InvalidInput unless 2 dropouts + colluders <
    parties, which two survivor sets with a quorum each would otherwise satisfy (Bonawitz et al. 2017, section 6.2), at
    least two honest parties survive, and a secret has at most 255 shares.
    """
    if dropouts < 0 or colluders < 0:
        raise InvalidInput(f"dropouts = {dropouts}, colluders = {colluders}; allowed: 0 or more")
    fewest = max(2 * dropouts + colluders + 1, dropouts + colluders + 2)
    if parties < fewest:
        raise InvalidInput(
            f"{parties} parties with {dropouts} drop-outs and {colluders} colluders; allowed: at least {fewest} "
            "parties, which is 2 dropouts + colluders + 1, or dropouts + colluders + 2 if that is more"
        )
    neighbours = dropouts + colluders + 1
    neighbours += neighbours % 2
    if neighbours >= parties - 1:
        neighbours = parties - 1
    if neighbours > MOST_NEIGHBOURS:
        raise InvalidInput(
            f"{dropouts} drop-outs and {colluders} colluders of {parties} parties need {neighbours} neighbours; "
            f"allowed: at most {MOST_NEIGHBOURS}"
        )
    return neighbours, neighbours - dropouts


def survivors_quorum(*, parties: int, colluders: int) -> int:
    """How many that agree on one survivor set rule out a quorum for any other, as honest parties agree on only one."""
    return (parties + colluders) // 2 + 1


@dataclass(frozen=True)
class Graph:
    """The neighbours of every party. `seed`: 32 public bytes; `degree`: even, or parties - 1."""

    parties: int
    degree: int
    seed: bytes = field(repr=False)

    def neighbours(self, index: int) -> Int64[ndarray, " neighbours"]:
        """The parties that share masks with party `index`, in an order in which `reverse` finds the way back."""
        return self._ring[(self._places[index] + self._offsets) % self.parties]

    @cached_property
    def table(self) -> Int64[ndarray, "parties neighbours"]:
        """The neighbours of all parties."""
        return self._ring[(self._places[:, None] + self._offsets) % self.parties]

    @cached_property
    def reverse(self) -> Int64[ndarray, " neighbours"]:
        """Party i is neighbour `reverse[r]` of its neighbour r."""
        rows = {offset: row for row, offset in enumerate((self._offsets % self.parties).tolist())}
        return np.array([rows[-offset % self.parties] for offset in self._offsets.tolist()], dtype=np.int64)

    @cached_property
    def _offsets(self) -> Int64[ndarray, " neighbours"]:
        if self.degree == self.parties - 1:
            return np.arange(1, self.parties, dtype=np.int64)
        half = np.arange(1, self.degree // 2 + 1, dtype=np.int64)
        return np.concatenate([half, -half])

    @cached_property
    def _ring(self) -> Int64[ndarray, " parties"]:
        return np.argsort(key_stream(self.seed, self.parties, bits=64), kind="stable")

    @cached_property
    def _places(self) -> Int64[ndarray, " parties"]:
        return np.argsort(self._ring, kind="stable")
