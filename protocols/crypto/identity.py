"""Identities: keys, certificates of a consortium's authority, and signatures.

A participant is what its certificate says: a name and a role, signed by the consortium's authority. Keys are ECDSA over
P-256 (which every TLS stack accepts), signatures ECDSA with SHA-256 (FIPS 186-5). A private key is created where it is
used, and never leaves.

Fingerprints of keys as people compare them: hexadecimal digits, or eight words to say over a telephone.

A phrase is the first 88 bits of the fingerprint, 11 in each word of the English list of BIP-39, most significant bit
first. A person who types it compares 88 bits: somebody who wants to pass another key off must find one whose SHA-256
begins with these, about 2^88 keys tried. That is a second preimage; that one owner can make two keys with one phrase,
after about 2^44, gains nothing, as both are the owner's.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from protocols.errors import InvalidInput, Refused
from protocols.refusals.code import Code

# Of certificates and votes over P-256; of a guardian also what parties seal to, and what signs its outcomes.
PrivateKey = ec.EllipticCurvePrivateKey | X25519PrivateKey | Ed25519PrivateKey
Role = Literal["authority", "coordinator", "guardian", "party"]
# The name that every node expects of the coordinator's certificate, whatever host name or address it is reached by.
COORDINATOR_HOST = "coordinator.conclave.invalid"
# Likewise what a coordinator expects of a guardian's certificate.
GUARDIAN_HOST = "guardian.conclave.invalid"
PEM_BYTES = 16 * 2**10

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
# Clocks differ and jump: a certificate is valid from a day before it was made.
BACKDATED = datetime.timedelta(days=1)
# A coordinator is dialled by parties, and dials guardians.
_USAGES = {
    "coordinator": (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    "guardian": (ExtendedKeyUsageOID.SERVER_AUTH,),
    "party": (ExtendedKeyUsageOID.CLIENT_AUTH,),
}
_HOSTS = {"coordinator": COORDINATOR_HOST, "guardian": GUARDIAN_HOST}

# What the library raises for bytes that are not a key, certificate or request.
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, CryptographyDeprecationWarning)


@dataclass(frozen=True)
class Identity:
    """A certificate that was checked: its name, its role and the certificate."""

    name: str
    role: Role
    certificate: x509.Certificate

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, as people compare it."""
        return fingerprint(self._public_key)

    @functools.cached_property
    def _public_key(self) -> ec.EllipticCurvePublicKey:
        key = self.certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)  # identify() refuses any other
        return key

    @property
    def serial(self) -> int:
        """The certificate's serial number, which a deny list names."""
        return self.certificate.serial_number

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raises Refused("bad_signature") unless `signature` is this identity's of `message`."""
        try:
            self._public_key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise Refused(Code.BAD_SIGNATURE, f"the signature is not that of {self.name!r}") from None


# ECDSA over P-256 in DER has up to 72 bytes; a longer one is not looked at.
LARGEST_SIGNATURE = 80


def check_name(name: str) -> str:
    """Returns `name` if a certificate may hold it. Raises InvalidInput otherwise."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"the name {name[:80]!r} is not allowed; allowed: 1 to 64 of A-Z a-z 0-9 . _ -, no . _ - at an end"
        )
    return name


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh P-256 key of the operating system's generator."""
    return ec.generate_private_key(ec.SECP256R1())


def sign(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    """The key's ECDSA signature (DER) of SHA-256 of the message."""
    return key.sign(message, ec.ECDSA(hashes.SHA256()))


def key_to_pem(key: PrivateKey, *, passphrase: bytes | None = None) -> bytes:
    """The key in PKCS #8: unencrypted, so that only the file's permissions protect it, or under a passphrase (PBES2, as
    `openssl pkcs8` reads it)."""
    lock = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def private_key_from_pem(pem: bytes, *, passphrase: bytes | None = None) -> PrivateKey:
    """The key in a PEM file. Raises InvalidInput for anything but a key of one of these kinds, unencrypted if
    passphrase is None, and ValueError where a passphrase does not open it."""
    if passphrase is not None:
        key = serialization.load_pem_private_key(pem, password=passphrase)
    else:
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except _UNREADABLE:
            raise InvalidInput(f"{len(pem)} bytes are not a private key in PEM; allowed: an unencrypted key") from None
    if isinstance(key, X25519PrivateKey | Ed25519PrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise InvalidInput("the private key is of another kind; allowed: P-256, X25519, Ed25519")


def to_pem(certificate: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    """The certificate or request in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def certificate_from_der(der: bytes) -> x509.Certificate:
    """The certificate in DER. Raises InvalidInput unless `der` is one certificate of at most PEM_BYTES."""
    try:
        if len(der) > PEM_BYTES:
            raise ValueError
        return x509.load_der_x509_certificate(der)
    except _UNREADABLE:
        raise InvalidInput(f"{len(der)} bytes are not a certificate; allowed: one in DER, up to {PEM_BYTES}") from None


def certificate_from_pem(pem: bytes) -> x509.Certificate:
    """The certificate in PEM. Raises InvalidInput unless `pem` is one certificate of at most PEM_BYTES."""
    try:
        if len(pem) > PEM_BYTES:
            raise ValueError
        return x509.load_pem_x509_certificate(pem)
    except _UNREADABLE:
        raise InvalidInput(f"{len(pem)} bytes are not a certificate; allowed: one in PEM, up to {PEM_BYTES}") from None


def request_from_pem(pem: bytes) -> x509.CertificateSigningRequest:
    """A certificate request whose own signature and key kind are right. Raises InvalidInput otherwise."""
    try:
        if len(pem) > PEM_BYTES:
            raise ValueError
        request = x509.load_pem_x509_csr(pem)
        valid = request.is_signature_valid
        key = request.public_key()
    except _UNREADABLE:
        raise InvalidInput(
            f"{len(pem)} bytes are not a certificate request; allowed: one in PEM, up to {PEM_BYTES}"
        ) from None
    if not (valid and isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)):
        raise InvalidInput("the certificate request is not signed by its own P-256 key; allowed: one that is")
    return request


def fingerprint(public_key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key (DER SubjectPublicKeyInfo) in pairs of hexadecimal digits, as people compare it."""
    der = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    return digest.finalize().hex(":").upper()


def keys_fingerprint(*keys: bytes) -> str:
    """One fingerprint of several public keys, 32 bytes each, in this order: the form of `fingerprint`."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(b"conclave keys 1\n" + b"".join(keys))
    return digest.finalize().hex(":").upper()


def encoded_point(public_key: ec.EllipticCurvePublicKey) -> str:
    """A public key as a study's roster names it: the compressed point (SEC 1) in hexadecimal digits."""
    return public_key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint).hex()


def request_fingerprint(request: x509.CertificateSigningRequest) -> str:
    """The fingerprint of the key that asks for a certificate."""
    key = request.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # checked by request_from_pem
    return fingerprint(key)


def certificate_request(key: ec.EllipticCurvePrivateKey, *, name: str) -> x509.CertificateSigningRequest:
    """A request for a certificate with this name, signed by its key."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, check_name(name))])
    return x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())


def new_authority(key: ec.EllipticCurvePrivateKey, *, name: str, now: datetime.datetime, days: int) -> x509.Certificate:
    """The self-signed certificate of a consortium's authority. now: UTC; days: validity."""
    return (
        _builder(name=name, role="authority", public_key=key.public_key(), now=now, days=days)
        .issuer_name(_subject(name, "authority"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def issue(
    *,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    public_key: ec.EllipticCurvePublicKey,
    name: str,
    role: Role,
    now: datetime.datetime,
    days: int,
) -> x509.Certificate:
    """A certificate of the authority for a coordinator, a guardian or a party. now: UTC; days: validity, >= 1."""
    if role not in _USAGES:
        raise InvalidInput(f"role is {role!r}; allowed: {', '.join(_USAGES)}")
    builder = (
        _builder(name=check_name(name), role=role, public_key=public_key, now=now, days=days)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USAGES[role]), critical=False)
    )
    if role in _HOSTS:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(_HOSTS[role])]), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def may_dial(certificate: x509.Certificate) -> bool:
    """Whether TLS accepts this certificate of the authority from a client."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


def identify(
    certificate: x509.Certificate, *, authority: x509.Certificate, now: datetime.datetime, role: Role
) -> Identity:
    """The identity that a certificate of the authority gives. now: UTC.

    Raises Refused: "wrong_authority", "certificate_expired" (or not yet valid), "wrong_role".
    """
    identity = _issued(certificate, authority, role)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise Refused(
            Code.CERTIFICATE_EXPIRED,
            f"the certificate is valid from {certificate.not_valid_before_utc} to {certificate.not_valid_after_utc}; "
            f"it is {now}: check the clock, or renew",
        )
    if identity is None:
        raise Refused(Code.WRONG_ROLE, f"the certificate is not that of a {role}")
    return identity


# Each frame brings its sender's certificate: the authority's signature of it is checked once, and not at every frame.
@functools.lru_cache(maxsize=1024)
def _issued(certificate: x509.Certificate, authority: x509.Certificate, role: Role) -> Identity | None:
    """Who has this certificate; None if not in this role. Raises Refused("wrong_authority")."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_UNREADABLE, InvalidSignature):
        raise Refused(Code.WRONG_AUTHORITY, "the certificate is not from this consortium's authority") from None
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    roles = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    key = certificate.public_key()
    if (
        len(names) != 1
        or [str(each.value) for each in roles] != [role]
        or not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1))
    ):
        return None
    return Identity(str(names[0].value), role, certificate)


def _builder(
    *, name: str, role: Role, public_key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    if not 1 <= days <= 36_500:
        raise InvalidInput(f"validity is {days} days; allowed: 1 to 36500")
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name, role))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _subject(name: str, role: Role) -> x509.Name:
    """Name and role are separate, so that a party with the coordinator's name is still a party."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


PHRASE_WORDS: Final = 8
_WORD_BITS: Final = 11
_HEX_DIGITS: Final = 64
_SEPARATORS: Final = re.compile(r"[\s:.,;_-]+")


def phrase(fingerprint: str) -> str:
    """The words of a fingerprint, between hyphens, so that a shell takes them as one. fingerprint: 64 digits in pairs.

    >>> phrase("00:" * 31 + "00")
    'abandon-abandon-abandon-abandon-abandon-abandon-abandon-abandon'
    """
    bits, words = PHRASE_WORDS * _WORD_BITS, _words()
    number = int(fingerprint.replace(":", ""), 16) >> (4 * _HEX_DIGITS - bits)
    return "-".join(words[number >> at & (2**_WORD_BITS - 1)] for at in range(bits - _WORD_BITS, -1, -_WORD_BITS))


def in_both_forms(fingerprint: str) -> str:
    """The digits and the words of a fingerprint, in one line of a message."""
    return f"{fingerprint} ({phrase(fingerprint)})"


def normal_fingerprint(text: str) -> str:
    """What was typed, in one form: 64 capital digits in pairs, or eight words between hyphens.

    Case and separators are free. Raises InvalidInput, which names the word that is in no list.
    """
    digits = _SEPARATORS.sub("", text).upper()
    if re.fullmatch(f"[0-9A-F]{{{_HEX_DIGITS}}}", digits):
        return ":".join(digits[at : at + 2] for at in range(0, _HEX_DIGITS, 2))
    said = [word for word in _SEPARATORS.split(text.lower()) if word]
    if sum(re.fullmatch(r"[^\W\d_]{3,}", word) is not None for word in said) < 2:  # the shortest words have three
        raise InvalidInput(
            f"fingerprint is {text[:120]!r}; allowed: {_HEX_DIGITS} hexadecimal digits, in pairs or not, or "
            f"{PHRASE_WORDS} words"
        )
    _check_words(said)
    return "-".join(said)


def same_fingerprint(typed: str, fingerprint: str) -> bool:
    """Whether this fingerprint, in digits, was typed in either form. Raises InvalidInput as normal_fingerprint does."""
    return normal_fingerprint(typed) in (fingerprint, phrase(fingerprint))


def _check_words(said: Sequence[str]) -> None:
    words = _words()
    for place, word in enumerate(said, start=1):
        if word not in words:
            near = difflib.get_close_matches(word[:20], words, n=1)
            raise InvalidInput(
                f"word {place} of the fingerprint is {word[:20]!r}; allowed: a word of the list"
                + (f", such as {near[0]!r}" if near else "")
            )
    if len(said) != PHRASE_WORDS:
        raise InvalidInput(f"the fingerprint has {len(said)} words; allowed: {PHRASE_WORDS}")


@functools.cache
def _words() -> tuple[str, ...]:
    """The 2,048 words, in the order of the list: words.txt, whose first lines are its licence."""
    lines = resources.files("protocols.crypto").joinpath("words.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))
