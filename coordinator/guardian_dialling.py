"""The way to a guardian: one gRPC stream a conversation, with mutual TLS, to the guardian that a study names."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from coordinator.guardian_greeting import CONVERSE_METHOD, WELCOME_BYTES, Opening, check_terms_apart, read_welcome
from coordinator.guardian_port import SILENCE_S, STREAM_OPTIONS
from coordinator.guardian_stream import Goodbye, Stream
from protocols.channel import Channel
from protocols.errors import ChannelClosed, InvalidInput, Refused
from protocols.identity import (
    GUARDIAN_HOST,
    Identity,
    Role,
    certificate_from_der,
    fingerprint,
    identify,
    key_to_pem,
    to_pem,
)
from protocols.study import Study

_WELCOME_WAIT_S = 20.0
_LAST_WORDS_S = 5.0
_PROBE_S = 5.0
# Refusals that pass by themselves: asking again is right, and costs nothing.
_PASSING = frozenset({"busy", "going_away", "storage_failed"})
_OPTIONS = [
    *STREAM_OPTIONS,
    ("grpc.ssl_target_name_override", GUARDIAN_HOST),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True, kw_only=True)
class GuardianLine:
    """What a coordinator needs in order to dial.

    address: the guardian's HOST:PORT, "" where none is set; key, certificate: the coordinator's; authority: the
    consortium's; denied(identity): why a certificate is denied, or None; silence_s: how long the guardian may say
    nothing.
    """

    address: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate
    denied: Callable[[Identity], str | None]
    silence_s: float = SILENCE_S


def check_guardian(study: Study, line: GuardianLine) -> Identity:
    """Who the study's guardian is, once it has said that it approved this very study. Nothing is asked of it yet.

    Raises InvalidInput without an address; ChannelClosed where nobody answers, or says that this passes; Refused: what
    the guardian refuses for, and "wrong_guardian", "same_organisation", "wrong_role", "wrong_authority",
    "certificate_expired", "revoked" for who answers.
    """
    with _conversation(study, line, purpose="check") as (_, guardian):
        return guardian


@contextmanager
def dial(study: Study, line: GuardianLine) -> Iterator[Channel]:
    """A channel to the study's guardian for one batch. Raises as check_guardian does, and ChannelClosed for "busy"."""
    with _conversation(study, line, purpose="batch") as (stream, _):
        yield stream


@contextmanager
def _conversation(study: Study, line: GuardianLine, *, purpose: str) -> Iterator[tuple[Stream, Identity]]:
    _check_study(study, line)
    credentials = grpc.ssl_channel_credentials(to_pem(line.authority), key_to_pem(line.key), to_pem(line.certificate))
    stream = Stream(silence_s=line.silence_s)
    with grpc.secure_channel(line.address, credentials, options=_OPTIONS) as channel:
        open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(CONVERSE_METHOD)
        call = open_stream(stream.outgoing())
        reader = threading.Thread(target=stream.feed, args=(_carried(call, line.address),), daemon=True)
        reader.start()
        try:
            yield stream, _greet(stream, study, line, purpose)
            stream.close()
            reader.join(_LAST_WORDS_S)
        except Goodbye as goodbye:
            if goodbye.code in _PASSING:
                raise
            raise Refused(goodbye.code, f"the guardian refuses: {goodbye.reason}") from None
        finally:
            stream.abort("this side closed the channel")
            call.cancel()
            reader.join()


def _greet(stream: Stream, study: Study, line: GuardianLine, purpose: str) -> Identity:
    """Says what this is about, and looks who answers."""
    opening = Opening(study.digest, purpose)
    try:
        stream.send(opening.encode())
        answer = stream.recv(WELCOME_BYTES, within_s=_WELCOME_WAIT_S)
    except Goodbye:
        raise
    except ChannelClosed:
        _look_who_answers(line)
        raise
    now = datetime.datetime.now(datetime.UTC)
    guardian = read_welcome(answer, opening, authority=line.authority, now=now)
    _check_apart(guardian, line)
    if guardian.name != study.confidentiality.guardian:
        raise Refused(
            "wrong_guardian",
            f"the guardian at {line.address} is {guardian.name!r}; allowed: {study.confidentiality.guardian!r}, as the "
            "study says",
        )
    reason = line.denied(guardian)
    if reason is not None:
        raise Refused("revoked", f"the guardian {guardian.name!r} is denied: {reason}")
    return guardian


def _check_study(study: Study, line: GuardianLine) -> None:
    """Raises InvalidInput without an address, Refused where the terms themselves name one organisation twice."""
    guardian = study.confidentiality.guardian
    if guardian is None:
        raise InvalidInput(f"level is {study.confidentiality.level!r}; allowed: 'two_server', which has a guardian")
    if not line.address:
        raise InvalidInput(
            f"study {study.name!r} needs the guardian {guardian!r}, and coordinator.toml names no address of one; "
            'allowed: guardian = "HOST:PORT"'
        )
    check_terms_apart(study)


def _check_apart(guardian: Identity, line: GuardianLine) -> None:
    if guardian.fingerprint == fingerprint(line.key.public_key()):
        raise Refused(
            "same_organisation",
            f"the guardian {guardian.name!r} has the coordinator's own key; allowed: another organisation, with a key "
            "of its own",
        )


def _look_who_answers(line: GuardianLine) -> None:
    """Raises Refused where somebody answers who is no guardian: TLS itself ended that connection and says little."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # Nothing is said to whoever answers: it is looked at who that is.
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
    now = datetime.datetime.now(datetime.UTC)
    if _is(certificate, "coordinator", line, now) or _is(certificate, "party", line, now):
        raise Refused(
            "wrong_role",
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


def _carried(call: Iterator[bytes], address: str) -> Iterator[bytes]:
    """What gRPC brings; where it breaks, ChannelClosed."""
    try:
        yield from call
    except grpc.RpcError as error:
        raise ChannelClosed(
            f"the guardian at {address} does not answer: {error.code().name}, {str(error.details())[:200]}"
        ) from None
