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
from dataclasses import dataclass, field, fields
from functools import cached_property
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
# guardian: what its statement may tell one party, a byte for each seat of a roster, and a little.
_MOST_BYTES = {"run": 64, "guardian": 2**20}
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
    _put_all(getattr(envelope, _NAMES[type(message)]), message)
    return bytes(envelope.SerializeToString(deterministic=True))


def _put_all(body: Any, value: Any) -> None:
    """The fields of a batch are those of its message."""
    for each in fields(value):
        given = getattr(value, each.name)
        if isinstance(given, QueryBatch):
            _put_all(body, given)
        elif isinstance(given, ndarray):
            _fill(getattr(body, each.name), given.astype(_DECLARED[each.name][0]))
        elif isinstance(given, tuple):
            _fill_all(getattr(body, each.name), given)
        else:
            setattr(body, each.name, given)


def decode(data: bytes) -> Message:
    """The message in `data`. Raises MalformedMessage; nothing larger than `data` itself is allocated."""
    if len(data) > MESSAGE_BYTES:
        raise MalformedMessage(f"message has {len(data)} bytes; allowed: at most {MESSAGE_BYTES}")
    envelope = parse(wire_pb2.Envelope, data, what="a Conclave message")
    kind = envelope.WhichOneof("body")
    if kind is None:
        raise MalformedMessage(f"message has no body; allowed: one of {', '.join(_KINDS)}")
    try:
        message: Message = _got(_KINDS[kind], getattr(envelope, kind))
    except InvalidInput as error:
        raise MalformedMessage(f"{kind}: {error}") from None
    return message


def _got(kind: Any, body: Any) -> Any:
    """A value of that kind. Raises MalformedMessage, InvalidInput."""
    return kind(**{
        each.name: _got(QueryBatch, body) if each.name == "batch" else _read(each.name, getattr(body, each.name))
        for each in fields(kind)
    })  # fmt: skip


def _read(name: str, value: Any) -> Any:
    if name in _DECLARED:
        array = _array(value, *_DECLARED[name])
        return integers("VoteReply", name, array, rank=2) if name == "votes" else array
    if name in _MOST_BYTES and len(value) > _MOST_BYTES[name]:
        raise MalformedMessage(f"{name} has {len(value)} bytes; allowed: at most {_MOST_BYTES[name]}")
    return _READERS[name](value) if name in _READERS else value


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
    if len(data) > MESSAGE_BYTES:
        raise MalformedMessage(f"message has {len(data)} bytes; allowed: at most {MESSAGE_BYTES}")
    return _arrays(parse(wire_pb2.Arrays, data, what="arrays").arrays)


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


def _digest(value: bytes) -> bytes:
    if len(value) != 32:
        raise MalformedMessage(f"digest has {len(value)} bytes; allowed: 32")
    return value


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
_READERS: dict[str, Callable[[Any], Any]] = {
    "study": _digest,
    "batch_digest": _digest,
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
