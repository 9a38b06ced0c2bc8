"""Who signs for whom in steps that parties relay through the coordinator: certificates, or known keys in tests."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from protocols.errors import InvalidInput, Refused
from protocols.identity import certificate_from_der, identify, sign

_DOMAIN = b"conclave step 1\n"


class Identities(ABC):
    """One party's signature, and how it checks others'. Messages are bound to their purpose by whoever signs."""

    @abstractmethod
    def sign(self, message: bytes) -> bytes:
        """This party's signature, with what others need to check it."""

    @abstractmethod
    def check(self, party: str, message: bytes, signature: bytes) -> None:
        """Raises Refused("bad_signature") unless it is this party's signature of the message."""


class Certified(Identities):
    """Signatures under certificates of the consortium's authority. now: gives the time in UTC."""

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: Callable[[], x509.Certificate],
        authority: x509.Certificate,
        now: Callable[[], datetime.datetime],
    ) -> None:
        self._key = key
        self._certificate = certificate
        self._authority = authority
        self._now = now

    def sign(self, message: bytes) -> bytes:
        der = self._certificate().public_bytes(serialization.Encoding.DER)
        return len(der).to_bytes(2, "big") + der + sign(self._key, _DOMAIN + message)

    def check(self, party: str, message: bytes, signature: bytes) -> None:
        length = int.from_bytes(signature[:2], "big")
        try:
            certificate = certificate_from_der(signature[2 : 2 + length])
        except InvalidInput:
            raise Refused("bad_signature", f"the signature of {party!r} brings no certificate") from None
        identity = identify(certificate, authority=self._authority, now=self._now(), role="party")
        if identity.name != party:
            raise Refused("bad_signature", f"{identity.name!r} signed for {party!r}")
        identity.verify(signature[2 + length :], _DOMAIN + message)


class Known(Identities):
    """Signatures under keys that everybody knows: for simulations, where one process holds all parties."""

    def __init__(self, key: Ed25519PrivateKey, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self._key = key
        self._keys = keys

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(_DOMAIN + message)

    def check(self, party: str, message: bytes, signature: bytes) -> None:
        try:
            self._keys[party].verify(signature, _DOMAIN + message)
        except (InvalidSignature, KeyError):
            raise Refused("bad_signature", f"the signature is not that of {party!r}") from None
