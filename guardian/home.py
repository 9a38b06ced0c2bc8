"""A guardian's folder: its keys and certificate, its settings, and its approved studies.

A guardian is a different organisation from the coordinator. Its private keys stay here: it sends a certificate request
and public keys, and gets a certificate back.
"""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.crypto.fingerprints import normal_fingerprint, phrase
from protocols.crypto.identity import (
    Identity,
    certificate_from_pem,
    certificate_request,
    check_name,
    fingerprint,
    identify,
    key_to_pem,
    keys_fingerprint,
    new_key,
    to_pem,
)
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, Refused
from protocols.reading import read_text
from protocols.refusals.code import Code
from runtime.address import check_address
from runtime.files import read, write_atomically
from runtime.key_files import read_key, read_key_of
from runtime.settings import read_settings, write_settings

_DENIED_BYTES = 2**20

_COMMENTS = {
    "name": "Name in this guardian's certificate; studies name it in [confidentiality].",
    "coordinator": "Name in the certificate of the one coordinator that may converse with this guardian.",
    "listen": "Where that coordinator dials in (mutual TLS), HOST:PORT.",
    "metrics_port": "Port on 127.0.0.1 of /healthz and /metrics; 0 for none.",
}


@dataclass(frozen=True, kw_only=True)
class GuardianSettings:
    """What guardian.toml says. Raises InvalidInput, with the value and the allowed range."""

    name: str
    coordinator: str
    listen: str
    metrics_port: int

    def __post_init__(self) -> None:
        check_name(self.name)
        check_name(self.coordinator)
        check_address("listen", self.listen, listens=True)
        if not 0 <= self.metrics_port <= 65_535:
            raise InvalidInput(f"metrics_port is {self.metrics_port}; allowed: 0 to 65535")
        if self.name == self.coordinator:
            raise Refused(
                Code.SAME_ORGANISATION, f"guardian and coordinator are both {self.name!r}; allowed: two organisations"
            )


class GuardianHome:
    """The folder of one guardian."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self.settings_file = self.folder / "guardian.toml"
        self.key_file = self.folder / "key.pem"
        self.request_file = self.folder / "request.pem"
        self.certificate_file = self.folder / "certificate.pem"
        self.authority_file = self.folder / "authority.pem"
        self.sealing_file = self.folder / "sealing.pem"
        self.signing_file = self.folder / "signing.pem"
        self.denied_file = self.folder / "denied"
        self.lock_file = self.folder / "serve.lock"
        self.studies = self.folder / "studies"

    def settings(self) -> GuardianSettings:
        """Reads guardian.toml. Raises DataUnavailable before init, InvalidInput for a wrong key or value."""
        try:
            return read_settings(self.settings_file, GuardianSettings)
        except DataUnavailable:
            raise DataUnavailable(
                f"{self.folder} holds no guardian; run conclave-guardian init, or give --home"
            ) from None

    def key(self) -> ec.EllipticCurvePrivateKey:
        """The key of the certificate."""
        return read_key(self.key_file)

    def sealing_key(self) -> X25519PrivateKey:
        """The key to which parties seal their shares."""
        return read_key_of(X25519PrivateKey, self.sealing_file)  # type: ignore[type-abstract]  # what a key is an instance of

    def signing_key(self) -> Ed25519PrivateKey:
        """The key that signs which queries were answered."""
        return read_key_of(Ed25519PrivateKey, self.signing_file)  # type: ignore[type-abstract]  # what a key is an instance of

    def public_keys(self) -> dict[str, str]:
        """sealing_key and signing_key of a study's [confidentiality]."""
        return {
            "sealing_key": self.sealing_key().public_key().public_bytes_raw().hex(),
            "signing_key": self.signing_key().public_key().public_bytes_raw().hex(),
        }

    def keys_fingerprint(self) -> str:
        """Of both public keys, to read out by telephone to each hospital."""
        keys = (self.sealing_key().public_key(), self.signing_key().public_key())
        return keys_fingerprint(*(key.public_bytes_raw() for key in keys))

    def authority(self) -> x509.Certificate:
        """The consortium's certificate. Raises DataUnavailable before `accept`."""
        self._check_accepted()
        return certificate_from_pem(read(self.authority_file))

    def certificate(self) -> x509.Certificate:
        """The guardian's certificate, unchecked. Raises DataUnavailable before `accept`."""
        self._check_accepted()
        return certificate_from_pem(read(self.certificate_file))

    def identity(self, *, now: datetime.datetime) -> Identity:
        """This guardian's identity by its certificate. now: UTC.

        Raises DataUnavailable before `accept`; Refused: "wrong_authority", "certificate_expired", "wrong_role",
        and "bad_certificate" for one with another name or key.
        """
        return check_certificate(self, self.certificate(), self.authority(), now=now)

    def deny(self, key_fingerprint: str) -> str:
        """Denies every certificate of this key from now on; returns the fingerprint as stored."""
        denied = normal_fingerprint(key_fingerprint)
        write_atomically(self.denied_file, "".join(f"{each}\n" for each in sorted({*self.denied(), denied})))
        return denied

    def denied(self) -> frozenset[str]:
        """The fingerprints of the denied keys, in digits or in words. Raises DataCorrupt; nobody is served then."""
        try:
            lines = read_text(self.denied_file, most=_DENIED_BYTES).split()
            return frozenset(normal_fingerprint(line) for line in lines)
        except DataUnavailable:
            return frozenset()
        except ValueError as error:
            raise DataCorrupt(f"{self.denied_file} is not a list of fingerprints: {error}") from None

    def denies(self, key_fingerprint: str) -> bool:
        """Whether the key of this fingerprint, in digits, is denied. Raises DataCorrupt; nobody is served then."""
        return not self.denied().isdisjoint((key_fingerprint, phrase(key_fingerprint)))

    def _check_accepted(self) -> None:
        if not self.certificate_file.exists() or not self.authority_file.exists():
            raise DataUnavailable(
                f"{self.folder} holds no certificate; send request.pem to the coordinator's operator, then run "
                "conclave-guardian accept"
            )


def create_guardian(home: GuardianHome, settings: GuardianSettings) -> str:
    """Creates keys and a certificate request in a new home; returns the fingerprint to read out by telephone.

    Raises InvalidInput if the home holds a guardian. guardian.toml is written last: a home without it is left from an
    interrupted init, which may be run again.
    """
    if home.settings_file.exists():
        raise InvalidInput(f"{home.folder} already holds a guardian; allowed: another --home")
    key = new_key()
    write_atomically(home.key_file, key_to_pem(key))
    write_atomically(home.sealing_file, key_to_pem(X25519PrivateKey.generate()))
    write_atomically(home.signing_file, key_to_pem(Ed25519PrivateKey.generate()))
    write_atomically(home.request_file, to_pem(certificate_request(key, name=settings.name)))
    title = "Settings of a Conclave guardian. Read when `conclave-guardian serve` starts."
    write_atomically(home.settings_file, write_settings(asdict(settings), title=title, about=_COMMENTS))
    return fingerprint(key.public_key())


def accept_certificate(
    home: GuardianHome, certificate_pem: bytes, authority_pem: bytes, *, now: datetime.datetime
) -> Identity:
    """Checks and stores what the coordinator's operator sent back. now: UTC.

    Raises InvalidInput for anything but a certificate, Refused as GuardianHome.identity does, and "other_authority" for
    a consortium other than the one accepted before.
    """
    authority = certificate_from_pem(authority_pem)
    identity = check_certificate(home, certificate_from_pem(certificate_pem), authority, now=now)
    if home.authority_file.exists() and certificate_from_pem(read(home.authority_file)) != authority:
        raise Refused(
            Code.OTHER_AUTHORITY,
            f"{home.authority_file} is another consortium's; allowed: the one that was accepted, or another --home",
        )
    write_atomically(home.authority_file, to_pem(authority))
    write_atomically(home.certificate_file, to_pem(identity.certificate))
    return identity


def check_certificate(
    home: GuardianHome, certificate: x509.Certificate, authority: x509.Certificate, *, now: datetime.datetime
) -> Identity:
    """The identity in the certificate; raises as GuardianHome.identity does."""
    identity = identify(certificate, authority=authority, now=now, role="guardian")
    name = home.settings().name
    if identity.name != name or identity.fingerprint != fingerprint(home.key().public_key()):
        raise Refused(
            Code.BAD_CERTIFICATE,
            f"the certificate is for {identity.name!r} and the key {identity.fingerprint}; allowed: {name!r} and the "
            "key of this home",
        )
    return identity
