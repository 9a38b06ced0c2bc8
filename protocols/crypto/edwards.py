"""The subgroup of prime order of edwards25519 (RFC 8032, section 5.1), and X25519's keys in it (RFC 7748, section 4).

Scalars are whole numbers modulo ORDER, points their 32 bytes. An X25519 public key has no sign; `lifted` takes the
point whose x is even, and `evened` the scalar that gives it.

A proof that two points have the same logarithm to two bases (Chaum & Pedersen 1992, made non-interactive).

With it a member shows what it agreed on with another one, K = e E' for its own E = e B, without giving away e. It is
zero-knowledge and sound in the random oracle model (Fiat & Shamir 1986; the same proof as in RFC 9497, section 2.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import nacl.bindings as group
from nacl.exceptions import BadSignatureError
from nacl.exceptions import RuntimeError as NotAPoint

from protocols.errors import MalformedMessage

POINT_BYTES = SCALAR_BYTES = 32
# The order of the base point, and the prime of the field.
ORDER = 2**252 + 27742317777372353535851937790883648493
PRIME = 2**255 - 19

_SIGN = 1 << 255
# u of the points whose order divides 8, on the curve and on its twist: the keys with which X25519 agrees on nothing.
_EIGHTH = 325606250916557431795983626356110631294008115727848805560023387167927233504
_OTHER_EIGHTH = 39382357235489614581723060781553021112529911719440698176882885853963445705823
LOW_ORDER = frozenset({0, 1, PRIME - 1, _EIGHTH, _OTHER_EIGHTH})


def encoded(scalar: int) -> bytes:
    """A scalar, or a coordinate, in 32 bytes."""
    return scalar.to_bytes(SCALAR_BYTES, "little")


def is_public_key(key: bytes) -> bool:
    """Whether a key is X25519's in its one encoding, and not of low order: all that honest members make are."""
    u = int.from_bytes(key, "little")
    return u < PRIME and u not in LOW_ORDER


def multiple_of_base(scalar: int) -> bytes:
    """The scalar times the base point. Raises MalformedMessage for 0."""
    try:
        return group.crypto_scalarmult_ed25519_base_noclamp(encoded(scalar % ORDER))
    except NotAPoint:
        raise _not_a_point() from None


def multiple(scalar: int, point: bytes) -> bytes:
    """The scalar times a point. Raises MalformedMessage for 0, or a point outside the subgroup."""
    try:
        return group.crypto_scalarmult_ed25519_noclamp(encoded(scalar % ORDER), point)
    except NotAPoint:
        raise _not_a_point() from None


def total(left: bytes, right: bytes) -> bytes:
    """The sum of two points of the subgroup."""
    return group.crypto_core_ed25519_add(left, right)


def cleared(point: bytes) -> bytes:
    """Eight times a point of the curve, which is in the subgroup. Raises MalformedMessage for what is no point."""
    try:
        for _ in range(3):
            point = total(point, point)
    except NotAPoint:
        raise _not_a_point() from None
    return point


def knows_logarithm(public: bytes, commitment: bytes, answer: bytes, message: bytes) -> bool:
    """Whether (commitment, answer) is an Ed25519 signature of a message (RFC 8032, section 5.1.7), by whoever knows the
    scalar of the point `public`: Schnorr's proof with the challenge SHA-512(commitment, public, message).

    A point with a component of small order beside that in the subgroup may pass too.
    """
    try:
        group.crypto_sign_open(commitment + answer + message, public)
    except BadSignatureError:
        return False
    return True


def is_point(point: bytes) -> bool:
    """Whether 32 bytes are a point of the subgroup other than its neutral element.

    Not left to libsodium alone: until the end of 2025 it took the sum of such a point and the one of order 2 for one
    (CVE-2025-69277), with which a proof of something false could be made.
    """
    if not group.crypto_core_ed25519_is_valid_point(point):
        return False
    try:
        return multiple(ORDER - 1, point) == point[:-1] + bytes([point[-1] ^ 0x80])
    except MalformedMessage:
        return False


def lifted(public_key: bytes) -> bytes:
    """The point with even x of an X25519 public key; not one of the subgroup, for a key that nobody made honestly."""
    return all_lifted([public_key])[0]


def all_lifted(public_keys: Sequence[bytes]) -> list[bytes]:
    """Each key lifted, with one inversion for all of them (Montgomery's trick)."""
    coordinates = [int.from_bytes(key, "little") for key in public_keys]
    before = [1]
    for u in coordinates:
        before.append(before[-1] * ((u + 1) % PRIME or 1) % PRIME)
    inverse, points = pow(before[-1], -1, PRIME), []
    for u, product in zip(reversed(coordinates), reversed(before[:-1]), strict=True):
        points.append(encoded((u - 1) * inverse * product % PRIME))
        inverse = inverse * ((u + 1) % PRIME or 1) % PRIME
    return points[::-1]


def projected(point: bytes) -> bytes:
    """The X25519 public key, or shared secret, of a point."""
    y = int.from_bytes(point, "little") & ~_SIGN
    return encoded((1 + y) * pow((1 - y) % PRIME or 1, -1, PRIME) % PRIME)


def evened(private_key: bytes) -> tuple[int, bytes]:
    """Of an X25519 private key: the scalar whose point has even x, up to its sign the private key, and that point."""
    clamped = int.from_bytes(private_key, "little") & (2**254 - 8) | 2**254
    scalar = clamped % ORDER
    point = multiple_of_base(scalar)
    if point[-1] & 0x80:
        return ORDER - scalar, point[:-1] + bytes([point[-1] & 0x7F])
    return scalar, point


def private_key(scalar: int) -> bytes | None:
    """The X25519 private key that `evened` turns into a scalar; None for a scalar that no private key gives."""
    for candidate in (scalar, ORDER - scalar):
        # Multiples of 8 from 2**254 to 2**255, congruent to the candidate: at most one.
        first = candidate + ORDER * ((2**254 - candidate) // ORDER)
        for number in range(first, 2**255, ORDER):
            if number >= 2**254 and number % 8 == 0:
                return encoded(number)
    return None


def _not_a_point() -> MalformedMessage:
    return MalformedMessage("a point is outside the group of prime order; allowed: its points other than 0")


PROOF_BYTES = 2 * SCALAR_BYTES
_LABEL = b"conclave same logarithm 1\n"


def prove(scalar: int, base: bytes, *, about: bytes, nonce: bytes) -> tuple[bytes, bytes]:
    """The scalar times `base`, and a proof that it is the same multiple of it as of the group's base.

    about: of constant length, what the proof is bound to; nonce: 64 bytes, random, secret and of this proof alone.
    Raises MalformedMessage for a base outside the subgroup.
    """
    random = int.from_bytes(nonce, "little") % ORDER
    point = multiple(scalar, base)
    challenge = _challenge(
        about, (multiple_of_base(scalar), base, point, multiple_of_base(random), multiple(random, base))
    )
    return point, encoded(challenge) + encoded((random - challenge * scalar) % ORDER)


def proves(public: bytes, base: bytes, point: bytes, proof: bytes, *, about: bytes) -> bool:
    """Whether `point` is to `base` what `public` is to the group's base."""
    challenge, answer = (int.from_bytes(proof[at : at + SCALAR_BYTES], "little") for at in (0, SCALAR_BYTES))
    if not (0 < challenge < ORDER and 0 < answer < ORDER and is_point(point)):
        return False
    try:
        commitments = (
            total(multiple_of_base(answer), multiple(challenge, public)),
            total(multiple(answer, base), multiple(challenge, point)),
        )
    except MalformedMessage:
        return False
    return _challenge(about, (public, base, point, *commitments)) == challenge


def _challenge(about: bytes, points: tuple[bytes, ...]) -> int:
    return int.from_bytes(hashlib.sha512(_LABEL + about + b"".join(points)).digest(), "little") % ORDER
