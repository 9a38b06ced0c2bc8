"""How members of a sum know each other's statements: tags of pairs first, signatures where a tag does not hold.

Checking a signature costs a hundred times as much as checking a MAC, and a party would check one a neighbour and a
quorum of them in every batch. So a statement travels with its signature and with one tag for each receiver, the
authenticators of Castro & Liskov 1999 ("Practical Byzantine Fault Tolerance", section 5.3). The signature decides: a
receiver looks at it where the tag does not hold, so that a wrong tag costs time and never the sum, and nobody is
blamed for one.

Two members share a key for ever: ECDH of the keys that the study's roster names (NIST SP 800-56A, static unified
model), through a key derivation (masks.py), bound to the study, both names and the direction. It is a MAC key alone; no
mask and no sealed share depends on it, and those keep their fresh keys. That one key pair serves ECDSA and ECDH is safe
behind a key derivation: Degabriele, Lehmann, Paterson, Smart & Strefler 2012, "On the joint security of encryption and
signature in EMV".

What a tag does not give is a proof to a third party, which nobody here needs, and this: whoever has the private key of
u can make anybody's tags *to* u (key-compromise impersonation), where it could make u's own signatures before. Such a u
counts as one of the colluders, as it always did; that it is deceived about others' keys costs its own votes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import sign
from protocols.crypto.masks import KEY_BYTES, pairwise, same

# A tag is guessed with probability 2**-128, and a wrong guess is not told from a tag that was lost.
TAG_BYTES = 16

# verify(the member's name, a message, a signature of it)
Verify = Callable[[str, bytes, bytes], bool]


@runtime_checkable
class Authenticator(Protocol):
    """One member's side: what it says to others, and what it believes of them."""

    def sign(self, statement: bytes) -> bytes:
        """This member's signature, which everybody can check."""

    def verify(self, member: str, statement: bytes, signature: bytes) -> bool:
        """Whether a signature is the member's."""

    def tag(self, receiver: str, statement: bytes) -> bytes:
        """TAG_BYTES that convince one other member that the statement is this one's."""

    def holds(self, sender: str, statement: bytes, tag: bytes) -> bool:
        """Whether a tag is the one that the sender, who is somebody else, makes for this member."""


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
    """Of a secret that two members share: the key of tags to the other one, and that of tags from it."""
    framed = [len(name).to_bytes(4, "big") + name for name in sorted([own.encode(), other.encode()])]
    both = pairwise(shared, b"tags", study + b"".join(framed), keys=2)
    upward, downward = both[:KEY_BYTES], both[KEY_BYTES:]
    return (upward, downward) if own.encode() < other.encode() else (downward, upward)


def tagged(key: bytes, statement: bytes) -> bytes:
    """The tag of a statement, which says itself of which batch it is and what it is about.

    Keyed BLAKE2s (RFC 7693, section 2.9): a fourth of the time of HMAC, of which a batch needs two a member.
    """
    return hashlib.blake2s(statement, key=key, digest_size=TAG_BYTES, person=b"sum tag").digest()


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
