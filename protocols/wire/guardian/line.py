"""The line to the guardian that a study names: who dials whom, and who answers; the transport stays outside.

The coordinator dials or, in a study with hidden queries, the querying party. One stream is one conversation.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import Identity, Role, certificate_from_der, fingerprint, identify
from protocols.errors import ChannelClosed, InvalidInput, Refused
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import guarded
from protocols.wire.guardian.greeting import WELCOME_BYTES, Opening, check_terms_apart, read_welcome
from protocols.wire.guardian.stream import EndedByPeer, GuardianStream

_WELCOME_WAIT_S = 20.0
_LAST_WORDS_S = 5.0
_PROBE_S = 5.0
# Refusals that pass by themselves: asking again is right, and costs nothing.
_PASSING = frozenset({Code.BUSY, Code.GOING_AWAY, Code.STORAGE_FAILED})
SILENCE_S = 120.0
# How often an open conversation looks whether its other side was denied meanwhile.
DENY_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class GuardianLine:
    """What a dialler needs.

    address: the guardian's HOST:PORT, "" if none is set; key, certificate: the dialler's; authority: the consortium's;
    denied(identity): why a certificate is denied, or None; silence_s: how long the guardian may be silent; now(): the
    time in UTC, at which certificates must be valid.
    """

    address: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    certificate: x509.Certificate
    authority: x509.Certificate
    denied: Callable[[Identity], str | None]
    now: Callable[[], datetime.datetime]
    silence_s: float | int = SILENCE_S


@dataclass(frozen=True, eq=False)
class Carried:
    """The pieces that come back over a stream, ChannelClosed when it breaks; cancel() ends it."""

    pieces: Iterator[bytes]
    cancel: Callable[[], object]


# carry(line, outgoing): opens a stream to the address, with mutual TLS, and sends these pieces.
Carry = Callable[[GuardianLine, Iterator[bytes]], AbstractContextManager[Carried]]


@contextmanager
def conversation(
    study: DeployedStudy, line: GuardianLine, carry: Carry, *, purpose: str
) -> Iterator[tuple[GuardianStream, Identity]]:
    """A channel to the study's guardian, and its identity. purpose: see Opening.

    Raises InvalidInput without an address; ChannelClosed if nobody answers, or the refusal will pass by itself;
    Refused: with the guardian's own reason, or, about whoever answers, "wrong_guardian", "same_organisation",
    "wrong_role", "wrong_authority", "certificate_expired", "revoked".
    """
    _check_study(study, line)
    stream, ended, cut = GuardianStream(silence_s=line.silence_s), threading.Event(), list[Refused]()
    with carry(line, stream.outgoing()) as carried:
        reader = threading.Thread(target=stream.feed, args=(carried.pieces,), daemon=True)
        reader.start()
        try:
            guardian = _greet(stream, study, line, purpose)
            threading.Thread(target=_watch, args=(stream, line, guardian, ended, cut), daemon=True).start()
            try:
                yield stream, guardian
            except ChannelClosed:
                if cut:
                    raise cut[0] from None
                raise
            stream.close()
            reader.join(_LAST_WORDS_S)
        except EndedByPeer as goodbye:
            if goodbye.code in _PASSING:
                raise
            raise Refused(goodbye.code, f"the guardian refuses: {goodbye.reason}") from None
        finally:
            ended.set()
            stream.abort("this side closed the channel")
            carried.cancel()
            reader.join()


def _greet(stream: GuardianStream, study: DeployedStudy, line: GuardianLine, purpose: str) -> Identity:
    """Sends the opening, and checks who answers."""
    opening = Opening(study.digest, purpose)
    try:
        stream.send(opening.encode())
        answer = stream.recv(WELCOME_BYTES, within_s=_WELCOME_WAIT_S)
    except EndedByPeer:
        raise
    except ChannelClosed:
        _look_who_answers(line)
        raise
    guardian = read_welcome(answer, opening, authority=line.authority, now=line.now())
    _check_apart(guardian, line)
    named = guarded(study.confidentiality).guardian
    if guardian.name != named:
        raise Refused(
            Code.WRONG_GUARDIAN,
            f"the guardian at {line.address} is {guardian.name!r}; allowed: {named!r}, as the study says",
        )
    _check_allowed(line, guardian)
    return guardian


def _check_allowed(line: GuardianLine, guardian: Identity) -> None:
    reason = line.denied(guardian)
    if reason is not None:
        raise Refused(Code.REVOKED, f"the guardian {guardian.name!r} is denied: {reason}")


def _watch(
    stream: GuardianStream, line: GuardianLine, guardian: Identity, ended: threading.Event, cut: list[Refused]
) -> None:
    """Cuts an open conversation soon after the guardian is denied, and keeps the reason in `cut`."""
    while not ended.wait(DENY_POLL_S):
        try:
            _check_allowed(line, guardian)
        except Refused as refused:
            cut.append(refused)
            stream.cut(refused.code, str(refused))
            return


def _check_study(study: DeployedStudy, line: GuardianLine) -> None:
    """Raises InvalidInput without an address, Refused if the terms name one organisation twice."""
    guardian = guarded(study.confidentiality).guardian
    if not line.address:
        raise InvalidInput(
            f"study {study.name!r} needs the guardian {guardian!r}, and no address of one is known; allowed: "
            'guardian = "HOST:PORT" in coordinator.toml, or --guardian HOST:PORT'
        )
    check_terms_apart(study)


def _check_apart(guardian: Identity, line: GuardianLine) -> None:
    if guardian.fingerprint == fingerprint(line.key.public_key()):
        raise Refused(
            Code.SAME_ORGANISATION,
            f"the guardian {guardian.name!r} has the key of who dials; allowed: another organisation, with a key "
            "of its own",
        )


def _look_who_answers(line: GuardianLine) -> None:
    """Raises Refused if whoever answers is no guardian: TLS ended that connection and says little."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # Nothing is sent; this only looks at who answers.
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    host, _, port = line.address.rpartition(":")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S) as connection,
            context.wrap_socket(connection) as secured,
        ):
            certificate = certificate_from_der(secured.getpeercert(binary_form=True) or b"")
    except (OSError, InvalidInput):
        return
    now = line.now()
    if _is(certificate, "coordinator", line, now) or _is(certificate, "party", line, now):
        raise Refused(
            Code.WRONG_ROLE,
            f"whoever answers at {line.address} shows the certificate of a coordinator or a party; allowed: a "
            "guardian, which is another organisation with a certificate and a key of its own",
        )
    _check_apart(identify(certificate, authority=line.authority, now=now, role="guardian"), line)


def _is(certificate: x509.Certificate, role: Role, line: GuardianLine, now: datetime.datetime) -> bool:
    try:
        identify(certificate, authority=line.authority, now=now, role=role)
    except Refused:
        return False
    return True
