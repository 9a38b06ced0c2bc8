"""A proof that two points have the same logarithm to two bases (Chaum & Pedersen 1992, made non-interactive).

With it a member shows what it agreed on with another one, K = e E' for its own E = e B, without giving away e. It is
zero-knowledge and sound in the random oracle model (Fiat & Shamir 1986; the same proof as in RFC 9497, section 2.2).
"""

from __future__ import annotations

import hashlib

from protocols.crypto.edwards import (
    ORDER,
    SCALAR_BYTES,
    encoded,
    is_point,
    multiple,
    multiple_of_base,
    total,
)
from protocols.errors import MalformedMessage

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
