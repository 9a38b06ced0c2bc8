"""Base transfers: COLUMNS random pairs of keys, of each of which the receiver has one and the sender both.

Masny & Rindal 2019, "Endemic oblivious transfer" (CCS), the protocol from a key agreement, over the subgroup of prime
order of edwards25519: secure against a malicious sender and a malicious receiver, if the hash to the group is a
random oracle and Diffie-Hellman is hard. The receiver knows the discrete logarithm of r_b + H_b(r_(1-b)) alone. A
malicious side can at most choose keys of its own, which the correlated transfers allow it (ibid., section 5).

Points outside of that subgroup are refused on both sides; where they are multiplied, libsodium does. The hash to the
group is Elligator 2, which reaches about half of the points. That is enough here: a receiver's points are uniform
whatever is added to them, and the proof, which must program the hash so that r + H(r') is a given problem times a
random number, draws that number again until the difference has a preimage, twice on average.
"""

from __future__ import annotations

import nacl.bindings as group
import nacl.exceptions
import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from protocols.crypto.edwards import is_point
from protocols.crypto.prg_chacha import derived_key
from protocols.crypto.randomness import RandomSource
from protocols.errors import MalformedMessage

COLUMNS = 128
POINT_BYTES = 32
# The receiver sends two points for each transfer.
ANSWER_BYTES = 2 * COLUMNS * POINT_BYTES
_NEUTRAL = b"\x01" + bytes(31)


class BaseSender:
    """The side that gets both keys of every pair. `message`: a point for the receiver."""

    def __init__(self, source: RandomSource) -> None:
        self._scalar = scalar(source)
        self.message = group.crypto_scalarmult_ed25519_base_noclamp(self._scalar)

    def keys(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        """Both keys of every transfer, from the receiver's ANSWER_BYTES. Raises MalformedMessage."""
        points = [answer[at : at + POINT_BYTES] for at in range(0, len(answer), POINT_BYTES)]
        pairs = []
        for number in range(COLUMNS):
            both = points[2 * number : 2 * number + 2]
            first, second = (
                _key(number, choice, self.message, both, multiple(self._scalar, self._agreed(number, choice, both)))
                for choice in range(2)
            )
            pairs.append((first, second))
        return pairs

    def _agreed(self, number: int, choice: int, points: list[bytes]) -> bytes:
        hashed = _hashed_to_group(number, choice, self.message, points[1 - choice])
        if points[choice] == _NEUTRAL:
            raise MalformedMessage("a base transfer holds the neutral element of the group")
        try:
            return group.crypto_core_ed25519_add(points[choice], hashed)
        except nacl.exceptions.RuntimeError:
            raise MalformedMessage("a base transfer does not hold points of the curve") from None


class BaseReceiver:
    """The side that takes one key of each pair. `message`: ANSWER_BYTES for the sender; `keys`: one per transfer.

    Raises MalformedMessage if the sender's offer is not a point.
    """

    def __init__(self, offer: bytes, bits: Bool[ndarray, "128"], source: RandomSource) -> None:
        check_point(offer, "the offer of base transfers")
        sent: list[bytes] = []
        self.keys: list[bytes] = []
        for number, choice in enumerate(bits.astype(np.int64).tolist()):
            secret = scalar(source)
            other = group.crypto_scalarmult_ed25519_base_noclamp(scalar(source))
            own = group.crypto_core_ed25519_sub(
                group.crypto_scalarmult_ed25519_base_noclamp(secret), _hashed_to_group(number, choice, offer, other)
            )
            both = [(own, other)[choice], (other, own)[choice]]
            sent += both
            self.keys.append(_key(number, choice, offer, both, multiple(secret, offer)))
        self.message = b"".join(sent)


def scalar(source: RandomSource) -> bytes:
    """A uniform scalar of edwards25519."""
    return group.crypto_core_ed25519_scalar_reduce(source(group.crypto_core_ed25519_NONREDUCEDSCALARBYTES))


def check_point(point: bytes, what: str) -> None:
    """Raises MalformedMessage unless `point` is the one encoding of a point of prime order."""
    if len(point) != POINT_BYTES or not is_point(point):
        raise MalformedMessage(f"{what} does not hold a point of the group of prime order")


def multiple(factor: bytes, point: bytes) -> bytes:
    """factor * point. Raises MalformedMessage for a point that is not of prime order, and the neutral element."""
    try:
        return group.crypto_scalarmult_ed25519_noclamp(factor, point)
    except nacl.exceptions.RuntimeError:
        raise MalformedMessage("an agreement does not hold a point of the group of prime order") from None


def _hashed_to_group(number: int, choice: int, offer: bytes, point: bytes) -> bytes:
    about = (number.to_bytes(2, "little"), choice.to_bytes(1, "little"), offer, point)
    return group.crypto_core_ed25519_from_uniform(derived_key("base transfer point", *about))


def _key(number: int, choice: int, offer: bytes, points: list[bytes], shared: bytes) -> bytes:
    about = (number.to_bytes(2, "little"), choice.to_bytes(1, "little"))
    return derived_key("base transfer", *about, offer, *points, shared)
