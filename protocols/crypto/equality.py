"""A test of whether two sides hold the same secret, from which neither learns anything else about the other's.

SPAKE2 (Abdalla & Pointcheval 2005; RFC 9382) over edwards25519 with key confirmation, the secret in the place of the
password. Password-authenticated key exchange is an equality test against malicious sides: whoever does not hold the
other's secret tests one guess in each run, and gets no other information (Abdalla, Barbosa, Bradley, Jarecki, Katz &
Xu 2020, "Universally composable relaxed password authenticated key exchange", CRYPTO: SPAKE2 under gap CDH and a
random oracle). Opening hashes of the secrets instead, even after commitments, would let a side that chose the other's
labels search the other's inputs behind its hash.

    first -> second   X = x G + w M
    second -> first   Y = y G + w N; the second side's tag
    first -> second   the first side's tag

One secret is compared in one run only: a second run is a second guess. So the scalars follow from a seed, and a run
that was interrupted is repeated with the same messages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from hmac import compare_digest

import nacl.bindings as group

from protocols.crypto.base_transfers import check_point, multiple
from protocols.crypto.prg_chacha import derived_key

TAG_BYTES = 32
# RFC 9382, section 6: points of which nobody knows the discrete logarithm.
_M = bytes.fromhex("d048032c6ea0b6d697ddc2e86bda85a33adac920f1bf18e1b0c6d166a5cecdaf")
_N = bytes.fromhex("d3bfb518f44f3430f29d0c92af503865a1ed3281dc69b35dd868ba85f886c4ab")


@dataclass(frozen=True)
class Tags:
    """What this side sends to confirm that the secrets are equal, and what the other must send."""

    own: bytes = field(repr=False)
    expected: bytes = field(repr=False)

    def confirmed_by(self, tag: bytes) -> bool:
        """Whether the other side holds the same secret."""
        return compare_digest(self.expected, tag)


class EqualityTest:
    """One side of one test. `message`: the point for the other side, of 32 bytes."""

    def __init__(self, secret: bytes, *, first: bool, seed: bytes, context: bytes) -> None:
        """secret: any bytes; first: whether this is the side that speaks first; seed: 32 secret random bytes, used for
        one secret only; context: public bytes of this run, the same on both sides.
        """
        self._first, self._context = first, context
        self._scalar = _scalar("equality scalar", seed, secret, context)
        self._secret = _scalar("equality secret", secret, context)
        self.message = group.crypto_core_ed25519_add(
            group.crypto_scalarmult_ed25519_base_noclamp(self._scalar), multiple(self._secret, _M if first else _N)
        )

    def tags(self, theirs: bytes) -> Tags:
        """The tags that follow from the other side's point. Raises MalformedMessage."""
        check_point(theirs, "the test of equality")
        unmasked = group.crypto_core_ed25519_sub(theirs, multiple(self._secret, _N if self._first else _M))
        points = (self.message, theirs) if self._first else (theirs, self.message)
        # Only a side that knows the secret can make the difference neutral: then this run is its guess.
        key = derived_key("equality", self._context, *points, self._secret, multiple(self._scalar, unmasked))
        tags = derived_key("first side agrees", key), derived_key("second side agrees", key)
        return Tags(*tags) if self._first else Tags(*reversed(tags))


def _scalar(label: str, *parts: bytes) -> bytes:
    wide = hashlib.sha512(derived_key(label, *parts)).digest()
    return group.crypto_core_ed25519_scalar_reduce(wide)
