"""The messages between a coordinator and a party, as values, and their bytes on the wire.

Only scalars and raw buffers with declared dtype and shape are sent: no code and no pickle. Sizes are checked before
anything is allocated, and integers against the table in ranges.py. Only this file, ranges.py, frames.py and
enrolment.py use protobuf.

A transport: one message out to each party, one message (or nothing) back from each.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from math import prod
from typing import (
    Any,  # of the containers of protobuf
    Protocol,
    runtime_checkable,
)

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.errors import InvalidInput, MalformedMessage
from protocols.ranges import MESSAGE_BYTES as MESSAGE_BYTES
from protocols.ranges import body_of, integers, parse
from protocols.study.queries import QueryBatch
from protocols.wire import wire_pb2

# What a step's request or reply holds.
Arrays = tuple[ndarray, ...]
_DTYPES = {"<f4": 4, "<i8": 8, "|b1": 1, "|u1": 1, "<u2": 2, "<u4": 4, "<u8": 8}
# Arrays in one message, and letters in the name of a step.
_ARRAYS = 65_536
_STEP = re.compile("[a-z_]{1,40}")
_RANK = 8
# What a guardian's statement may tell one party: a byte for each seat of a roster, and a little.
_GUARDIAN_BYTES = 2**20
# dtype and rank of the arrays that a message has by name.
_DECLARED = {"ids": ("<i8", 1), "inputs": ("<f4", None), "votes": ("<i8", 2), "answered": ("|b1", 1)}


@dataclass(frozen=True, eq=False)
class VoteRequest:
    """Coordinator to party: vote on these queries under this study. `digest` names the request.

    study: the study's digest; run: bytes of the coordinator's ledger, random and at most 64: a coordinator that lost
    its ledger asks under another run, and cannot get votes twice for one charge. relayed: what a level that conceals
    passes on to this party; not part of the digest, since a repeated request gets the stored reply.
    """

    study: bytes
    run: bytes
    batch: QueryBatch
    relayed: Arrays = field(default=(), repr=False)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over study, run and batch."""
        parts = b"".join(len(part).to_bytes(1, "big") + part for part in (self.study, self.run, self.batch.digest))
        return hashlib.sha256(b"conclave request 1\n" + parts).digest()


@dataclass(frozen=True, eq=False)
class VoteReply:
    """Party to coordinator: one vote per teacher and query, class ids or ABSTAIN (level `clear`)."""

    batch_digest: bytes
    votes: Int64[ndarray, "teachers queries"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class ConcealedVotes:
    """Party to coordinator: the votes in the form of the study's level, which reveals nothing to the coordinator."""

    batch_digest: bytes
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True, eq=False)
class StepRequest:
    """Coordinator to party: one step of the study's level around a batch. It costs no budget by itself."""

    study: bytes
    batch_digest: bytes
    step: str
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True, eq=False)
class StepReply:
    """Party to coordinator: the result of the step."""

    batch_digest: bytes
    step: str
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Coordinator to party: which queries of the batch were answered; settles the party's reservation.

    guardian: what the guardian's signed statement tells this party, at the levels with a guardian; empty otherwise.
    """

    study: bytes
    batch_digest: bytes
    answered: Bool[ndarray, " queries"]
    guardian: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Settled:
    """Party to coordinator: the reservation is settled; `spent` is the party's ledger in nano-units."""

    batch_digest: bytes
    spent: int


@dataclass(frozen=True)
class Refusal:
    """Party to coordinator: the request is refused and cost nothing. `code` is stable; `reason` is for people.

    signature: the party's, at a level whose requests are passed on by others; empty otherwise.
    """

    code: str
    reason: str
    signature: bytes = field(default=b"", repr=False)


Request = VoteRequest | StepRequest | Outcome
Reply = VoteReply | ConcealedVotes | StepReply | Settled | Refusal
Message = Request | Reply


def encode(message: Message) -> bytes:
    """The bytes of a message; decode(encode(m)) has the same contents."""
    envelope = wire_pb2.Envelope()
    put(getattr(envelope, _NAMES[type(message)]), message)
    return bytes(envelope.SerializeToString(deterministic=True))


def put(message: Any, value: Any) -> None:
    """Fields of a message have the names and types of the value's; values in it are messages of their own, but for a
    batch, whose fields are those of its message."""
    for each in fields(value):
        given = getattr(value, each.name)
        if isinstance(given, QueryBatch):
            put(message, given)
        elif is_dataclass(given):
            put(getattr(message, each.name), given)
        elif isinstance(given, ndarray):
            _fill(getattr(message, each.name), given.astype(_DECLARED[each.name][0]))
        elif not isinstance(given, tuple):
            setattr(message, each.name, given)
        elif given and is_dataclass(given[0]):
            for one in given:
                put(getattr(message, each.name).add(), one)
        elif given and isinstance(given[0], ndarray):
            _fill_all(getattr(message, each.name), given)
        else:
            getattr(message, each.name).extend(given)


Readers = Mapping[str, Callable[[Any], Any]]


def got(kind: Any, message: Any, readers: Readers) -> Any:
    """A value of that kind. readers: of fields by name; what is not named is taken as it is. Raises MalformedMessage,
    and what readers raise."""
    found = {}
    for each in fields(kind):
        if each.name == "batch":
            found["batch"] = got(QueryBatch, message, readers)
        else:
            value = getattr(message, each.name)
            found[each.name] = readers[each.name](value) if each.name in readers else value
    return kind(**found)


def limited(what: str, most: int, *, least: int = 0) -> Callable[[bytes], bytes]:
    """A reader of so many bytes. It raises MalformedMessage."""

    def read(value: bytes) -> bytes:
        if not least <= len(value) <= most:
            allowed = str(most) if least == most else f"at most {most}"
            raise MalformedMessage(f"{what} has {len(value)} bytes; allowed: {allowed}")
        return value

    return read


digest = limited("digest", 32, least=32)


def decode(data: bytes) -> Message:
    """The message in `data`. Raises MalformedMessage; nothing larger than `data` itself is allocated."""
    envelope = parse(wire_pb2.Envelope, _MESSAGE(data), what="a Conclave message")
    kind = envelope.WhichOneof("body")
    if kind is None:
        raise MalformedMessage(f"message has no body; allowed: one of {', '.join(_KINDS)}")
    try:
        message: Message = got(_KINDS[kind], getattr(envelope, kind), _READERS)
    except InvalidInput as error:
        raise MalformedMessage(f"{kind}: {error}") from None
    return message


def kind_of_message(data: bytes) -> str | None:
    """The kind of the message in `data`, such as "settled", even if decode refuses its content; None if it has none."""
    return body_of(wire_pb2.Envelope, data)


def encode_arrays(arrays: Iterable[ndarray]) -> bytes:
    """The bytes of some arrays, for storing or sending outside a message; see decode_arrays."""
    message = wire_pb2.Arrays()
    _fill_all(message.arrays, arrays)
    return bytes(message.SerializeToString(deterministic=True))


def decode_arrays(data: bytes) -> Arrays:
    """The arrays in `data`, of the allowed dtypes. Raises MalformedMessage, as decode does."""
    return _arrays(parse(wire_pb2.Arrays, _MESSAGE(data), what="arrays").arrays)


def _fill_all(field: Any, arrays: Iterable[ndarray]) -> None:
    for array in arrays:
        _fill(field.add(), array)


def _arrays(field: Any) -> Arrays:
    """Arrays of any allowed dtype; the caller checks which."""
    if len(field) > _ARRAYS:
        raise MalformedMessage(f"message has {len(field)} arrays; allowed: at most {_ARRAYS}")
    found = [(each, each.dtype) for each in field]
    for _, dtype in found:
        if dtype not in _DTYPES:
            raise MalformedMessage(f"array is {dtype[:8]!r}; allowed: {', '.join(_DTYPES)}")
    return tuple([_array(each, dtype) for each, dtype in found])


def _step(name: str) -> str:
    if not _STEP.fullmatch(name):
        raise MalformedMessage(f"step is {name[:40]!r}; allowed: 1 to 40 of a-z and _")
    return name


def _fill(field: wire_pb2.Array, array: ndarray) -> None:
    field.dtype, field.data = array.dtype.str, np.ascontiguousarray(array).tobytes()
    field.shape.extend(array.shape)


def _array(field: wire_pb2.Array, dtype: str, rank: int | None = None) -> ndarray:
    """The array in `field`; its dtype, rank and byte count must be what is declared and expected."""
    shape = tuple(field.shape)
    if field.dtype != dtype or (rank is not None and len(shape) != rank) or not 1 <= len(shape) <= _RANK:
        raise MalformedMessage(
            f"array is {field.dtype[:8]!r} of rank {len(shape)}; allowed: {dtype!r}, rank {rank or '1-8'}"
        )
    data, size = field.data, prod(shape)  # each look at field.data copies it
    if (size or prod(filter(None, shape))) > MESSAGE_BYTES:
        raise MalformedMessage(f"array has the shape {shape}; allowed: at most {MESSAGE_BYTES} elements")
    if size * _DTYPES[dtype] != len(data):
        raise MalformedMessage(f"array of shape {shape} has {len(data)} bytes; allowed: {_DTYPES[dtype]} an element")
    array: ndarray = np.frombuffer(data, dtype=dtype)
    if dtype == "|b1" and array.view(np.uint8).max(initial=0) > 1:
        raise MalformedMessage("array of booleans holds other bytes; allowed: 0 and 1")
    return array if len(shape) == 1 else array.reshape(shape)


_KINDS: dict[str, Any] = {
    "vote_request": VoteRequest,
    "vote_reply": VoteReply,
    "concealed_votes": ConcealedVotes,
    "step_request": StepRequest,
    "step_reply": StepReply,
    "outcome": Outcome,
    "settled": Settled,
    "refusal": Refusal,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_MESSAGE = limited("message", MESSAGE_BYTES)
_READERS: Readers = {
    **{name: partial(_array, dtype=dtype, rank=rank) for name, (dtype, rank) in _DECLARED.items()},
    "votes": lambda field: integers("VoteReply", "votes", _array(field, *_DECLARED["votes"]), rank=2),
    "study": digest,
    "batch_digest": digest,
    "run": limited("run", 64),
    "guardian": limited("guardian", _GUARDIAN_BYTES),
    "step": _step,
    "relayed": _arrays,
    "arrays": _arrays,
}


@runtime_checkable
class Transport(Protocol):
    """exchange({party: request}) -> {party: reply | None}; None for a party that did not answer in time.

    A transport never retries with another message and never drops a party from the result.
    """

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]: ...
