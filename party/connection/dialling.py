"""Short calls, to enrol, to say hello, or to reach parties through the hub for `ask`; and renewing a certificate."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import (
    COORDINATOR_HOST,
    certificate_from_pem,
    certificate_request,
    identify,
    key_to_pem,
    to_pem,
)
from protocols.errors import InvalidInput, MalformedMessage, Refused, Unreachable
from protocols.refusals.code import Code
from protocols.wire.enrolment import ENROL_BYTES, ENROL_METHOD, Enrol, Enrolled, decode_enrolled, encode_enrol
from protocols.wire.frames import (
    NONCE_BYTES,
    SESSION_METHOD,
    WIRE_VERSIONS,
    Frame,
    Goodbye,
    Hello,
    Renew,
    Renewed,
    Welcome,
    check_version,
    read_frame,
    sign_frame,
)
from protocols.wire.relay import RELAY_METHOD, RELAY_PIECE_BYTES, Joined, pieces, read_passed_back
from runtime.guardian_carrier import KEEPALIVE, options_of

_SOFTWARE = "conclave-party doctor"
_OPTIONS = [*options_of(COORDINATOR_HOST), ("grpc.max_receive_message_length", 2**20)]
_RELAY_OPTIONS = [*options_of(COORDINATOR_HOST), *KEEPALIVE, ("grpc.max_receive_message_length", 2 * RELAY_PIECE_BYTES)]


def enrol(message: Enrol, *, address: str, authority: x509.Certificate, timeout_s: float) -> Enrolled:
    """Asks for the certificate over TLS in which only the server shows one; returns the reply.

    Raises Unreachable, MalformedMessage.
    """
    credentials = grpc.ssl_channel_credentials(to_pem(authority))
    options = [*_OPTIONS, ("grpc.max_receive_message_length", ENROL_BYTES)]
    with grpc.secure_channel(address, credentials, options=options) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(ENROL_METHOD)
        try:
            return decode_enrolled(call(encode_enrol(message), timeout=timeout_s))
        except grpc.RpcError as error:
            raise _unreachable(address, error) from None


def say_hello(
    *,
    address: str,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    authority: x509.Certificate,
    now: datetime.datetime,
    timeout_s: float,
) -> Welcome | Goodbye:
    """The coordinator's answer to a node without seats; a Goodbye with "another_node" if one is connected.

    now: UTC datetime. Raises Unreachable, MalformedMessage, Refused.
    """
    nonce = os.urandom(NONCE_BYTES)
    credentials = grpc.ssl_channel_credentials(to_pem(authority), key_to_pem(key), to_pem(certificate))
    hello = sign_frame(Hello(WIRE_VERSIONS, _SOFTWARE, nonce, ()), key=key, certificate=certificate)
    with grpc.secure_channel(address, credentials, options=_OPTIONS) as channel:
        open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(SESSION_METHOD)
        call = open_stream(iter([hello]), timeout=timeout_s)
        try:
            for data in call:
                frame, _ = read_frame(data, authority=authority, now=now, role="coordinator")
                if isinstance(frame, Goodbye):
                    return frame
                if isinstance(frame, Welcome) and frame.session == nonce:
                    check_version(frame.version, offered=WIRE_VERSIONS)
                    return frame
                raise MalformedMessage(f"the coordinator sent {type(frame).__name__}; allowed: Welcome")
        except grpc.RpcError as error:
            raise _unreachable(address, error) from None
        finally:
            call.cancel()
    raise Unreachable(f"{address} closed the connection without an answer; check that it is the coordinator's address")


class RelayLine:
    """A line to an operator's hub that relays signed frames. Use as a context manager, from any thread."""

    def __init__(
        self,
        *,
        address: str,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
    ) -> None:
        self._address = address
        credentials = grpc.ssl_channel_credentials(to_pem(authority), key_to_pem(key), to_pem(certificate))
        self._channel = grpc.secure_channel(address, credentials, options=_RELAY_OPTIONS)
        self._open: grpc.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(RELAY_METHOD)

    def __enter__(self) -> RelayLine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the calls in flight."""
        self._channel.close()

    def passed(self, frame: bytes, *, timeout_s: float) -> bytes | None:
        """The signed answer to a frame; None if the party did not answer in time.

        Raises Unreachable, MalformedMessage, and Refused if the operator refuses to relay.
        """
        joined = Joined()
        try:
            for piece in self._open(iter(pieces(frame)), timeout=timeout_s):
                joined.add(piece)
        except grpc.RpcError as error:
            raise _unreachable(self._address, error) from None
        answer, code, reason = read_passed_back(joined.data)
        if code and code != Code.ABSENT:
            raise Refused(code, f"the operator refuses to relay the request: {reason}")
        return None if code else answer


def _unreachable(address: str, error: grpc.RpcError) -> Unreachable:
    return Unreachable(f"{address} does not answer: {error.code().name}, {str(error.details())[:200]}")


class Renewal:
    """A node's certificate, and its replacement by a newer one for the same name and key.

    save: called with a renewed certificate (PEM); days_left: a new one is asked for when fewer days are left.
    """

    def __init__(
        self,
        *,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        authority: x509.Certificate,
        save: Callable[[bytes], None],
        on_event: Callable[[str, dict[str, str | int]], None],
        days_left: int,
    ) -> None:
        self.certificate = certificate
        self._key = key
        self._authority = authority
        self._save = save
        self._on_event = on_event
        self._left = datetime.timedelta(days=days_left)

    def check(self) -> None:
        """Raises Refused unless the certificate is signed by the authority, is a party's, and is valid now."""
        identify(self.certificate, authority=self._authority, now=_now(), role="party")

    def ask(self, send: Callable[[Frame], None]) -> None:
        """Asks for a new certificate if the present one expires soon."""
        if self.certificate.not_valid_after_utc - _now() < self._left:
            name = identify(self.certificate, authority=self._authority, now=_now(), role="party").name
            send(Renew(to_pem(certificate_request(self._key, name=name))))

    def take(self, renewed: Renewed) -> None:
        """Takes a renewed certificate if it is for the node's own name and key. Raises Refused otherwise.

        A certificate that is not valid now never replaces a valid one: a clock may have been wrong at issue.
        """
        try:
            certificate = certificate_from_pem(renewed.certificate)
        except InvalidInput as error:
            raise MalformedMessage(f"the renewed certificate cannot be read: {error}") from None
        try:
            new = identify(certificate, authority=self._authority, now=_now(), role="party")
        except Refused as error:
            if error.code != Code.CERTIFICATE_EXPIRED:
                raise
            self._on_event("renewal_not_valid", {"reason": str(error)[:200]})
            return
        old = identify(self.certificate, authority=self._authority, now=_now(), role="party")
        if (new.name, new.fingerprint) != (old.name, old.fingerprint):
            raise Refused(Code.BAD_CERTIFICATE, f"the renewed certificate is for {new.name!r} or another key")
        self._save(renewed.certificate)
        self.certificate = certificate
        self._on_event("renewed", {"until": str(certificate.not_valid_after_utc)})


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
