"""Values at and beyond the ends of a range, and a message of each kind to carry them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from protocols.errors import ConclaveError
from protocols.ledger.audit_log import Head
from protocols.ranges import RANGES
from protocols.study.queries import QueryBatch
from protocols.wire import wire_pb2
from protocols.wire.frames import Answer, Ask, Hello, RefusedSeat, SeatHeads, Welcome, _decode, _encode
from protocols.wire.messages import ConcealedVotes, Settled, VoteReply, VoteRequest, decode, encode

DIGEST = bytes(range(32))
HEAD = Head(3, DIGEST)
NONCE = bytes(16)
INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_ENUM,
}


def of_protobuf() -> set[tuple[str, str]]:
    """Every integer of wire.proto, as message and field."""
    return {
        (name, field.name)
        for name, message in wire_pb2.DESCRIPTOR.message_types_by_name.items()
        for field in message.fields
        if field.cpp_type in INTEGERS
    }


def values_around(where: str, field: str) -> list[int]:
    """The ends of a range and what lies beyond them, with the ends of machine integers."""
    allowed = RANGES[where, field]
    edges = {allowed.lowest, allowed.lowest - 1, allowed.highest, allowed.highest + 1}
    return sorted(edges | {2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63), -(2**63) + 1})


def is_inside(where: str, field: str, value: int) -> bool:
    return RANGES[where, field].lowest <= value <= RANGES[where, field].highest


def array_of(*values: int) -> np.ndarray:
    """The values as they may travel: as int64 where it holds them, or else as uint64."""
    return np.array(values, dtype="<i8" if max(values) < 2**63 else "<u8")


class Elsewhere(Exception):
    """A value in its range does not fit the rest of its message."""


@contextmanager
def elsewhere(said: re.Pattern[str]) -> Iterator[None]:
    """Lets an error through that is not about the range."""
    try:
        yield
    except ConclaveError as error:
        raise (error if said.search(str(error)) else Elsewhere) from error


BATCH = QueryBatch(1, np.arange(2), np.zeros((2, 3), np.float32))
MESSAGES = [
    VoteRequest(DIGEST, b"run", BATCH, (np.zeros(2, np.uint8),)),
    VoteReply(DIGEST, np.zeros((1, 2), np.int64)),
    ConcealedVotes(DIGEST, (np.zeros(2, np.uint8),)),
    Settled(DIGEST, 7),
]
FRAMES = [
    Hello((1,), "software", NONCE, (SeatHeads(DIGEST, "h", HEAD, HEAD, (DIGEST,)),)),
    Welcome(1, NONCE, 1, (RefusedSeat(DIGEST, "h", "code", "reason"),)),
    Ask(NONCE, 1, NONCE, DIGEST, "h", HEAD, HEAD, b"envelope"),
    Answer(NONCE, 1, DIGEST, "h", HEAD, HEAD, b"envelope"),
]
SAMPLES = [(wire_pb2.Envelope, encode(each), decode) for each in MESSAGES]
SAMPLES += [(wire_pb2.Frame, _encode(each), _decode) for each in FRAMES]
