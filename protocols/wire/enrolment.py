"""Enrolment: how an invited hospital gets its certificate.

The node proves only that it has the invitation's token; the operator decides what is issued, by comparing the key's
fingerprint with what the hospital read out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocols.crypto.identity import PEM_BYTES
from protocols.ranges import parse
from protocols.wire import wire_pb2
from protocols.wire.frames import printable
from protocols.wire.messages import limited, put

# Anybody who reaches the port may send one, so the limit is small.
ENROL_BYTES = PEM_BYTES + 2**10
_ENROLMENT = limited("enrolment message", ENROL_BYTES)
# The method that a node calls; see coordinator/connection/hub.py.
ENROL_METHOD = "/conclave.v1.Enrolment/Enrol"


@dataclass(frozen=True)
class Enrol:
    """A future node to coordinator: its name, the invitation's token, a certificate request (PEM)."""

    party: str
    token: bytes = field(repr=False)
    request: bytes = field(repr=False)


@dataclass(frozen=True)
class Enrolled:
    """Coordinator to a future node: the certificate (PEM); empty, with a code, while or because there is none."""

    certificate: bytes
    code: str
    reason: str


def encode_enrol(message: Enrol | Enrolled) -> bytes:
    """The bytes of an enrolment message."""
    body = wire_pb2.Enrol() if isinstance(message, Enrol) else wire_pb2.Enrolled()
    put(body, message)
    return bytes(body.SerializeToString(deterministic=True))


def decode_enrol(data: bytes) -> Enrol:
    """A request to enrol. Raises MalformedMessage."""
    body = parse(wire_pb2.Enrol, _ENROLMENT(data), what="a request to enrol")
    return Enrol(printable(body.party), body.token, body.request)


def decode_enrolled(data: bytes) -> Enrolled:
    """The answer to a request to enrol. Raises MalformedMessage."""
    body = parse(wire_pb2.Enrolled, _ENROLMENT(data), what="an answer to a request to enrol")
    return Enrolled(body.certificate, printable(body.code), printable(body.reason))
