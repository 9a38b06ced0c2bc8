"""One short call to a coordinator: to enrol, before there is a certificate, and to say hello, for `doctor`."""

from __future__ import annotations

import datetime
import os

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.enrolment import ENROL_BYTES, ENROL_METHOD, Enrol, Enrolled, decode_enrolled, encode_enrol
from protocols.errors import ConclaveError, MalformedMessage
from protocols.frames import NONCE_BYTES, SESSION_METHOD, WIRE_VERSIONS, Goodbye, Hello, Welcome, seal, unseal
from protocols.identity import COORDINATOR_HOST, key_to_pem, to_pem

_SOFTWARE = "conclave-party doctor"
_OPTIONS = [
    ("grpc.ssl_target_name_override", COORDINATOR_HOST),
    ("grpc.max_receive_message_length", 2**20),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


class Unreachable(ConclaveError):
    """The other side does not answer; nothing was sent that matters."""


def enrol(message: Enrol, *, address: str, authority: x509.Certificate, timeout_s: float) -> Enrolled:
    """Asks for the certificate over TLS, in which the server alone shows one. Raises Unreachable, MalformedMessage."""
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
    """What the coordinator answers to a node without seats. A node that is connected would be superseded by it.

    now: UTC datetime. Raises Unreachable, MalformedMessage, Refused.
    """
    nonce = os.urandom(NONCE_BYTES)
    credentials = grpc.ssl_channel_credentials(to_pem(authority), key_to_pem(key), to_pem(certificate))
    hello = seal(Hello(WIRE_VERSIONS, _SOFTWARE, nonce, ()), key=key, certificate=certificate)
    with grpc.secure_channel(address, credentials, options=_OPTIONS) as channel:
        open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(SESSION_METHOD)
        call = open_stream(iter([hello]), timeout=timeout_s)
        try:
            for data in call:
                frame, _ = unseal(data, authority=authority, now=now, role="coordinator")
                if isinstance(frame, Goodbye):
                    return frame
                if isinstance(frame, Welcome) and frame.session == nonce:
                    return frame
                raise MalformedMessage(f"{type(frame).__name__} came where a welcome was due")
        except grpc.RpcError as error:
            raise _unreachable(address, error) from None
        finally:
            call.cancel()
    raise Unreachable(f"{address} closed the connection without a word; allowed: a coordinator")


def _unreachable(address: str, error: grpc.RpcError) -> Unreachable:
    return Unreachable(f"{address} does not answer: {error.code().name}, {str(error.details())[:200]}")
