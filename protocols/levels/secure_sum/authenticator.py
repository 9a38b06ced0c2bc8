"""How members of a sum authenticate statements to each other: pairwise tags first, signatures where a tag fails.

Checking a signature costs a hundred times as much as checking a MAC, and in every batch a party would check one per
neighbour and a quorum of them. So a statement travels with its signature and with one tag for each receiver, the
authenticators of Castro & Liskov 1999 ("Practical Byzantine Fault Tolerance", section 5.3). The signature decides: a
receiver checks it if the tag fails, so a wrong tag costs time but never the sum, and nobody is blamed for it. Survivors
alone are tagged without a signature (steps.py, `agree`).

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
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import sign
from protocols.crypto.masks import KEY_BYTES, pairwise, same

# A tag is guessed with probability 2**-128; a wrong guess looks like a lost tag.
TAG_BYTES = 16

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
