"""The range of every integer in messages and files: one table that every decoder checks; docs/reference/wire.md shows
it.

Protobuf fields are checked as soon as their message is parsed (`parse`), arrays and documents where they are read. An
integer that is not in the table cannot be decoded: the look-up fails. Bounds are chosen so that nothing computed from
values in range exceeds int64, in which NumPy and SQLite count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from jaxtyping import Int64, Integer
from numpy import ndarray

from protocols.errors import InvalidInput, MalformedMessage

MESSAGE_BYTES = 2**28
# Queries of a study. Times votes.LATTICE, which is how participation counts them, they stay below 2**61.
QUERIES = 2**40
SEATS = 2**20
# Nano-units. A cap above it would not be exact in float64 (it is an epsilon of four million).
LARGEST_CAP = 2**52
# Exact in float64, and so in every reader of JSON.
_WHOLE = 2**53 - 1
_INT64 = 2**63 - 1
_YEAR_9999_MS = 253_402_300_799_999

_P = TypeVar("_P", bound=Message)


@dataclass(frozen=True)
class Range:
    """The range of one field, or of each element of an array; both ends are allowed.

    why: what it counts, or what bounds it; secret: a vote or part of one, never shown in an error message.
    """

    lowest: int
    highest: int
    why: str
    secret: bool = False


_BATCH = Range(0, QUERIES - 1, "each batch asks one query at least")
_QUERY = Range(0, QUERIES - 1, "a position in the pool; ascending within a batch")
_ROUND = Range(1, _WHOLE, "counts the questions of a session")
_VERSION = Range(1, 2**16 - 1, "counts versions of the wire")
_COUNT = Range(0, _WHOLE, "entries of a log")
_AMOUNT = Range(0, LARGEST_CAP, "amounts within the largest cap that a budget may have")
_SIZE = Range(1, 2**20, "values of one layer; see protocols/levels/hidden_queries/inference/architecture.py")
_SOME = Range(1, _WHOLE, "exact in every reader")
_ASKED = Range(1, QUERIES, "queries of one batch; then held against batch_limit")
_SEAT = Range(0, SEATS - 1, "a position on the roster; then held against it")
_FIELD = Range(0, 2**31 - 2, "an element of the field modulo 2^31 - 1", secret=True)

# (what travels, its field) -> range. The first part of the name is the message of wire.proto where it is one.
RANGES: Mapping[tuple[str, str], Range] = {
    ("Array", "shape"): Range(0, MESSAGE_BYTES, "elements of the largest message"),
    ("VoteRequest", "number"): _BATCH,
    ("Settled", "spent"): _AMOUNT,
    ("Head", "count"): _COUNT,
    ("Hello", "versions"): _VERSION,
    ("Welcome", "version"): _VERSION,
    ("Welcome", "time_ms"): Range(0, _YEAR_9999_MS, "milliseconds from 1970 to the year 9999"),
    ("Ask", "round"): _ROUND,
    ("Answer", "round"): _ROUND,
    # Arrays of int64 in messages.
    ("VoteRequest", "ids"): _QUERY,
    ("VoteReply", "votes"): Range(
        -_WHOLE, _WHOLE, "a class, -1 for none, or lattice units of a sum; then held against the study", secret=True
    ),
    ("StepRequest sum_keys", "queries"): _ASKED,
    ("StepRequest architecture", "queries"): _ASKED,
    # Arrays between the guardian and the coordinator or querying party.
    ("submission", "number"): _BATCH,
    ("submission", "ids"): _QUERY,
    ("submission", "members"): _SEAT,
    ("submission", "seats"): _SEAT,
    ("submission", "lengths"): Range(0, MESSAGE_BYTES, "bytes of a sealed share"),
    ("guardian's head", "count"): _COUNT,
    ("deal", "queries"): _ASKED,
    ("deal", "seats"): Range(0, SEATS, "offers that follow"),
    ("offer", "seat"): _SEAT,
    # Words of shares. Those of a ring may have any value: they are uniform.
    ("two servers", "field element"): _FIELD,
    ("inference", "field element"): _FIELD,
    # A model's architecture, JSON.
    ("architecture", "features"): _SIZE,
    ("architecture", "layers"): _SIZE,
    ("architecture", "layers.shift"): Range(0, 2**20 - 1, "then held against accumulator_bits"),
    ("architecture", "precision.input_bits"): Range(0, 16, "fraction bits"),
    ("architecture", "precision.weight_bits"): Range(1, 16, "fraction bits"),
    ("architecture", "precision.accumulator_bits"): Range(8, 32, "bits of a ring's word"),
    # A study's file.
    ("study", "classes"): Range(1, _WHOLE, "exact in every reader; more than one, but of a count without a label"),
    ("study", "teachers"): _SOME,
    ("study", "records.queries"): Range(2, 2**24, "then held against what a level can carry"),
    ("study", "records.votes"): Range(1, 2**24, "at most records.queries"),
    ("study", "records.population"): Range(2, 2**33, "at least two, as a sum of one unit is that unit"),
    ("study", "records.hospitals_per_patient"): Range(1, 2**10, "at most the hospitals of the study"),
    ("study", "evaluation.bins"): Range(2, 100, "edges are six digits apart"),
    ("study", "evaluation.rows"): Range(4, 2**24, "two decisions and two bins at least"),
    ("study", "query_limit"): Range(1, QUERIES, "positions in the pool are below it"),
    ("study", "batch_limit"): _SOME,
    ("study", "quorum"): _SOME,
    ("study", "pooled_teachers"): _SOME,
    ("study", "round_one"): Range(1, QUERIES, "at most query_limit"),
    ("study", "terms.pool_size"): Range(1, QUERIES, "at most query_limit"),
    ("study", "terms.misses"): Range(1, QUERIES, "batches; above their number, nobody is asked"),
    ("study", "terms.input_shape"): Range(1, 2**24, "values of one query"),
    ("study", "confidentiality.units"): Range(2, 2**20, "a power of two"),
    ("study", "confidentiality.colluders"): Range(0, SEATS, "below the quorum"),
    # The file of a study's queries.
    ("features", "shape"): Range(1, 2**24, "values of one record along one side; features of one record"),
    ("queries", "share"): Range(1, 2**20, "parts of the squared length that a block of features has"),
    ("queries", "width"): Range(1, _WHOLE, "squared steps, exact in float64"),
    # The files of a release.
    ("evidence/ledger.json", "caps"): _AMOUNT,
    ("evidence/ledger.json", "batches.number"): _BATCH,
    ("evidence/ledger.json", "batches.queries"): _QUERY,
    ("evidence/ledger.json", "batches.reserved"): _AMOUNT,
    ("evidence/ledger.json", "batches.settled"): _AMOUNT,
    ("evidence/audit.jsonl", "count"): Range(1, _WHOLE, "entries of a log"),
    ("evidence/audit.jsonl", "time_ns"): Range(0, _INT64, "nanoseconds from 1970 to the year 2262"),
    ("evaluation.json", "sums"): Range(-(2**53) + 1, 2**53 - 1, "exact in every reader"),
    ("residuals.json", "sums"): Range(-(2**53) + 1, 2**53 - 1, "exact in every reader"),
    ("residuals.json", "scores"): Range(-(2**24), 2**24, "steps of the first sum's scores"),
    ("evidence/audit.jsonl", "fields"): Range(-_INT64, _INT64, "sums of amounts, numbers of batches"),
    ("evidence/frames.jsonl", "number"): _BATCH,
    ("sums.csv", "sum"): Range(-_WHOLE, _WHOLE, "lattice units of all votes of a cell, with noise"),
    ("soft_labels.csv", "query"): _QUERY,
    ("guardian.sig", "batch"): _BATCH,
    ("labels.csv", "query"): _QUERY,
    ("labels.csv", "label"): Range(0, _WHOLE - 1, "a class; then held against the study's classes"),
    ("labels.csv", "reinforced"): Range(0, _WHOLE - 1, "the same"),
    ("privacy.json", "differences"): Range(-_INT64, _INT64, "sums of amounts, and differences of them"),
}

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_ENUM,
}


def parse(kind: type[_P], data: bytes, *, what: str) -> _P:
    """The message of this kind in `data`, with every integer in its range. what: for the error, MalformedMessage."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        raise MalformedMessage(f"{len(data)} bytes are not {what}") from None
    try:
        _check_fields(message.DESCRIPTOR, (message,))  # type: ignore[arg-type]  # upb's has the same attributes
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None
    return message


def body_of(kind: type[_P], data: bytes) -> str | None:
    """Which body the message in `data` has, even if `parse` refuses its content; None if it has none."""
    try:
        return kind.FromString(data).WhichOneof("body")
    except DecodeError:
        return None


def check(where: str, field: str, value: int) -> int:
    """Returns `value`. Raises InvalidInput unless it is in the range of the field."""
    allowed = RANGES[where, field]
    if not allowed.lowest <= value <= allowed.highest:
        said = "out of range" if allowed.secret else _shown(value)
        raise InvalidInput(f"{where}: {field} is {said}; allowed: {allowed.lowest} to {allowed.highest}")
    return value


def whole(where: str, field: str, value: object) -> int:
    """The JSON value, if it is a whole number in the range of the field. Raises InvalidInput."""
    if type(value) is not int:
        raise InvalidInput(f"{where}: {field} is a {type(value).__name__}; allowed: a whole number")
    return check(where, field, value)


def _check_all(where: str, field: str, array: Integer[ndarray, "..."]) -> None:
    """Raises InvalidInput unless every element is in the range of the field."""
    if array.size:
        check(where, field, int(array.min()))
        check(where, field, int(array.max()))


def in_range(where: str, field: str, array: Integer[ndarray, "..."]) -> Integer[ndarray, "..."]:
    """A received array of whole numbers, if all are in the range of the field. Raises MalformedMessage."""
    try:
        _check_all(where, field, array)
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None
    return array


def integers(where: str, field: str, array: ndarray, *, rank: int = 1) -> Int64[ndarray, "..."]:
    """A received array, if it holds int64 in the range of the field. Raises MalformedMessage."""
    if array.dtype != np.int64 or array.ndim != rank:
        raise MalformedMessage(f"{where}: {field} is {array.dtype} of rank {array.ndim}; allowed: int64 of rank {rank}")
    return in_range(where, field, array)


def integer(where: str, field: str, array: ndarray) -> int:
    """The one number in a received array. Raises MalformedMessage."""
    if integers(where, field, array).shape != (1,):
        raise MalformedMessage(f"{where}: {field} has {array.size} elements; allowed: 1")
    return int(array[0])


def check_ascending(where: str, field: str, array: Int64[ndarray, " positions"]) -> None:
    """Raises InvalidInput unless positions are in their range, there is one, and each is above the one before.

    They are compared and not subtracted: a difference may wrap, and would then pass for positive.
    """
    _check_all(where, field, array)
    if not len(array) or (array[1:] <= array[:-1]).any():
        raise InvalidInput(f"{where}: {field} repeat, descend or are missing; allowed: ascending positions")


def positions(where: str, field: str, array: ndarray) -> Int64[ndarray, " positions"]:
    """A received array, if it holds ascending positions. Raises MalformedMessage."""
    integers(where, field, array)
    try:
        check_ascending(where, field, array)
    except InvalidInput as error:
        raise MalformedMessage(str(error)) from None
    return array


def _check_fields(kind: Descriptor, messages: Iterable[Message]) -> None:
    """Raises InvalidInput, naming the first field of these messages, all of one kind, or of a nested one that is out of
    range.
    """
    scalars, lists, nested, nested_lists = _fields(kind)
    name = kind.name
    for message in messages:
        for field in scalars:
            check(name, field, getattr(message, field))
        for field, allowed in lists:
            for value in getattr(message, field):
                if not allowed.lowest <= value <= allowed.highest:
                    check(name, field, value)
        for field, inner in nested:
            if message.HasField(field):
                _check_fields(inner, (getattr(message, field),))
        for field, inner in nested_lists:
            _check_fields(inner, getattr(message, field))


_Nested = list[tuple[str, Descriptor]]


@cache
def _fields(kind: Descriptor) -> tuple[list[str], list[tuple[str, Range]], _Nested, _Nested]:
    """The integers of a message, its lists of integers with their range, its messages, and its lists of messages."""
    scalars: list[str] = []
    lists: list[tuple[str, Range]] = []
    nested: tuple[_Nested, _Nested] = ([], [])
    for field in kind.fields:
        if field.cpp_type in _INTEGERS:
            if field.is_repeated:
                lists.append((field.name, RANGES[kind.name, field.name]))
            else:
                scalars.append(field.name)
        elif field.message_type is not None:
            nested[field.is_repeated].append((field.name, field.message_type))
    return scalars, lists, *nested


def _shown(value: int) -> str:
    """A number for a message: Python refuses to write very long ones."""
    return str(value) if abs(value) < 2**70 else f"a number of {value.bit_length()} bits"
