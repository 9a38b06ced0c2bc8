"""The greeting between coordinator and guardian before a conversation: who asks about which study, and who answers.

By then TLS has shown certificates of the consortium's authority. The guardian's signature over this conversation shows
which guardian it is: a study's terms name one.
"""

from __future__ import annotations

import datetime
import os
import threading
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.channel import Channel
from protocols.crypto.identity import PEM_BYTES, Identity, certificate_from_der, identify, sign
from protocols.errors import InvalidInput, MalformedMessage, Refused
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import guarded
from protocols.study.study import party_of

CONVERSE_METHOD = "/conclave.v1.Guardian/Converse"
VERSION = 1
NONCE_BYTES, DIGEST_BYTES = 16, 32
OPENING_BYTES = 2 + NONCE_BYTES + DIGEST_BYTES
_SIGNATURE_BYTES = 72
WELCOME_BYTES = 1 + _SIGNATURE_BYTES + PEM_BYTES
_PURPOSES = ("check", "batch")


@runtime_checkable
class ServesBatches(Protocol):
    """The guardian's end of a conversation; implemented by protocols.levels.guardian.Guardian."""

    def serve(self, channel: Channel) -> None:
        """One conversation about one batch. Raises ConclaveError, after telling the other side what it is allowed to
        know."""


@dataclass(frozen=True, eq=False)
class GuardedStudy:
    """A study that a guardian approved, and who speaks in it. busy: held while a conversation is open."""

    study: DeployedStudy
    guardian: ServesBatches
    busy: threading.Lock


@dataclass(frozen=True)
class Opening:
    """The coordinator's first message. study: a digest; purpose: "check", whether it is approved, or "batch"."""

    study: bytes
    purpose: str
    nonce: bytes = field(default_factory=lambda: os.urandom(NONCE_BYTES))

    def encode(self) -> bytes:
        """The bytes to send."""
        return bytes([VERSION, _PURPOSES.index(self.purpose)]) + self.nonce + self.study


def read_opening(data: bytes) -> Opening:
    """Raises Refused("wire_version"), MalformedMessage."""
    if data and data[0] != VERSION:
        raise Refused(Code.WIRE_VERSION, f"version {data[0]} of the guardian's wire; allowed: {VERSION}")
    if len(data) != OPENING_BYTES or data[1] >= len(_PURPOSES):
        raise MalformedMessage(f"{len(data)} bytes are no opening; allowed: {OPENING_BYTES}")
    return Opening(data[2 + NONCE_BYTES :], _PURPOSES[data[1]], data[2 : 2 + NONCE_BYTES])


def welcome(opening: Opening, *, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bytes:
    """The guardian's answer: its signature of the opening, and its certificate."""
    signature = sign(key, _statement(opening))
    return bytes([len(signature)]) + signature + certificate.public_bytes(serialization.Encoding.DER)


def read_welcome(data: bytes, opening: Opening, *, authority: x509.Certificate, now: datetime.datetime) -> Identity:
    """Who answered. now: UTC. Raises MalformedMessage, and Refused as `identify` and Identity.verify do."""
    if not data or len(data) < 1 + data[0]:
        raise MalformedMessage(f"{len(data)} bytes are no welcome; allowed: a signature and a certificate")
    signature, der = data[1 : 1 + data[0]], data[1 + data[0] :]
    try:
        certificate = certificate_from_der(der)
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None
    guardian = identify(certificate, authority=authority, now=now, role="guardian")
    guardian.verify(signature, _statement(opening))
    return guardian


def check_terms_apart(study: DeployedStudy) -> None:
    """Raises Refused("same_organisation") where the terms name the coordinator or a party as the guardian."""
    guardian = guarded(study.confidentiality).guardian
    names = {party_of(seat.party) for seat in study.roster} | {study.terms.coordinator}
    if guardian in names:
        raise Refused(
            Code.SAME_ORGANISATION,
            f"the guardian {guardian!r} is also the coordinator or a party of study {study.name!r}; allowed: another "
            "organisation, as both shares of a vote together are the vote",
        )


def _statement(opening: Opening) -> bytes:
    return b"conclave guardian welcome 1\n" + opening.encode()
