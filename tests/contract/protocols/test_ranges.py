"""Every integer that travels has a range in one table, and no decoder lets one through that is outside it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor

from coordinator.release.evidence import Charge, Kept, ReleaseEvidence, chained, evidence_in, files_of
from coordinator.release.folder import Released, facts_of
from protocols.crypto.channel import pair
from protocols.crypto.wire_arrays import elements
from protocols.errors import ConclaveError, DataCorrupt, InvalidInput, MalformedMessage
from protocols.ledger.audit_log import EMPTY, Entry, Head
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.dealing import DEAL, serve_deals
from protocols.levels.hidden_queries.inference.announced import announced, read_announced
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    Precision,
    ReLUShape,
)
from protocols.levels.hidden_queries.inference.material import Piece, received
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.two_server.conversation import Submission, head_array, head_of, send
from protocols.ranges import RANGES
from protocols.release.labels import LABELS_FILE, labels_csv, read_labels
from protocols.study.file import read_study, write_study
from protocols.study.queries import QueryBatch
from protocols.votes import ABSTAIN
from protocols.wire import wire_pb2
from protocols.wire.frames import Answer, Ask, Hello, RefusedSeat, SeatHeads, Welcome, _decode, _encode
from protocols.wire.messages import HiddenVotes, Refusal, Settled, StepRequest, VoteReply, VoteRequest, decode, encode
from tests.harness.levels import SEAT_KEYS, SIGNING_KEY, lattice_study, secure_sum
from tests.harness.private_models import PrivateParties, hidden_study
from tests.harness.seeded import seeded_source
from tests.harness.studies import deployed_study

ROOT = Path(__file__).resolve().parents[3]
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


class Elsewhere(Exception):
    """A value in its range does not fit the rest of its message."""


@contextmanager
def elsewhere(said: re.Pattern[str]) -> Iterator[None]:
    """Lets an error through that is not about the range."""
    try:
        yield
    except ConclaveError as error:
        raise (error if said.search(str(error)) else Elsewhere) from error


def test_every_integer_of_the_wires_messages_is_in_the_table():
    assert of_protobuf() <= set(RANGES)
    assert len(of_protobuf()) >= 9


# ---- protobuf: each integer field, wherever it stands in a valid message

BATCH = QueryBatch(1, np.arange(2), np.zeros((2, 3), np.float32))
MESSAGES = [
    VoteRequest(DIGEST, b"run", BATCH, (np.zeros(2, np.uint8),)),
    VoteReply(DIGEST, np.zeros((1, 2), np.int64)),
    HiddenVotes(DIGEST, (np.zeros(2, np.uint8),)),
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


def places(message, path=()) -> Iterator[tuple[tuple, str, str]]:
    """The way to each integer in a message, and what it is."""
    for field, value in message.ListFields():
        elements_of = enumerate(value) if field.is_repeated else [(None, value)]
        for position, each in elements_of:
            step = (*path, (field.name, position))
            if field.message_type is not None:
                yield from places(each, step)
            elif field.cpp_type in INTEGERS:
                yield step, message.DESCRIPTOR.name, field.name


def changed(kind, data: bytes, path: tuple, value: int) -> bytes | None:
    """The message with one integer changed; None for a value that protobuf itself cannot carry there."""
    message = kind.FromString(data)
    inner = message
    for name, position in path[:-1]:
        inner = getattr(inner, name) if position is None else getattr(inner, name)[position]
    name, position = path[-1]
    try:
        if position is None:
            setattr(inner, name, value)
        else:
            getattr(inner, name)[position] = value
    except ValueError:
        return None
    return message.SerializeToString()


PLACES = [
    (kind, data, reader, path, where, field)
    for kind, data, reader in SAMPLES
    for path, where, field in places(kind.FromString(data))
]


def test_the_samples_hold_every_integer_of_the_wires_messages():
    assert {(where, field) for *_, where, field in PLACES} == of_protobuf()


@pytest.mark.parametrize(
    "place", PLACES, ids=lambda place: f"{place[0].DESCRIPTOR.name}:{'.'.join(name for name, _ in place[3])}"
)
def test_a_message_with_an_integer_outside_its_range_is_malformed_and_inside_it_is_read(place):
    kind, data, reader, path, where, field = place
    refused = 0
    for value in values_around(where, field):
        made = changed(kind, data, path, value)
        if made is None:
            continue
        if is_inside(where, field, value):
            with suppress(Elsewhere), elsewhere(re.compile(f"{field} is {value}")):
                reader(made)
        else:
            refused += 1
            with pytest.raises(MalformedMessage, match=f"{where}: {field} is {value}; allowed"):
                reader(made)
    assert refused or where == "Hello"


# ---- everything else: a decoder for each row, fed with one value


def array_of(*values: int) -> np.ndarray:
    """The values as they may travel: as int64 where it holds them, or else as uint64."""
    return np.array(values, dtype="<i8" if max(values) < 2**63 else "<u8")


def vote_request(value: int) -> object:
    message = wire_pb2.Envelope.FromString(encode(MESSAGES[0]))
    body = message.vote_request
    for field, array in ((body.ids, array_of(value)), (body.inputs, np.zeros((1, 3), "<f4"))):
        field.dtype, field.data = array.dtype.str, array.tobytes()
        field.shape[:] = array.shape
    return decode(message.SerializeToString())


def vote_reply(value: int) -> object:
    message = wire_pb2.Envelope.FromString(encode(MESSAGES[1]))
    array = array_of(value, 0).reshape(1, 2)
    message.vote_reply.votes.dtype, message.vote_reply.votes.data = array.dtype.str, array.tobytes()
    return decode(message.SerializeToString())


def submission(position: int, make: Callable[[int], np.ndarray]) -> Callable[[int], object]:
    """Reads a submission with one array in the place of its own."""
    ids = np.array([0], dtype=np.int64)
    good = Submission(DIGEST, DIGEST, 0, False, ids, ids, ids, (b"sealed",), EMPTY, EMPTY).arrays()
    return lambda value: Submission.read((*good[:position], make(value), *good[position + 1 :]))


def guardians_head(value: int) -> object:
    return head_of(np.frombuffer(value.to_bytes(8, "big") + DIGEST, dtype=np.uint8))


HIDDEN = hidden_study()
PARTIES = PrivateParties(HIDDEN)
MASKED = lattice_study(secure_sum())


def deal(*sizes: int) -> object:
    _, there = pair(wait_s=0.0)
    digests = (np.frombuffer(each, dtype=np.uint8) for each in (HIDDEN.digest, DIGEST))
    return serve_deals(there, (DEAL, *digests, array_of(*sizes)), HIDDEN, key=SIGNING_KEY, source=seeded_source(1))


def offer(value: int) -> object:
    here, there = pair(wait_s=0.0)
    send(here, (array_of(value),))
    digests = (np.frombuffer(each, dtype=np.uint8) for each in (HIDDEN.digest, DIGEST))
    return serve_deals(there, (DEAL, *digests, array_of(1, 1)), HIDDEN, key=SIGNING_KEY, source=seeded_source(1))


def field_elements(value: int) -> object:
    if value >= 2**32:
        raise MalformedMessage("four bytes hold no such element")
    return elements(np.array([value], dtype="<u4").tobytes(), (1,))


def inference_elements(value: int) -> object:
    dtype = "<u4" if value < 2**32 else "<u8"
    return received("step", (np.array([value], dtype=dtype),), (Piece("field", "<u4", (1,)),))


MODEL = Architecture(
    16,
    (ConvolutionShape(1, 4, 4, 1, (1, 1), 1, "valid"), ReLUShape(16, 4), DenseShape(16, 2)),
    Precision(8, 10, 31, 1.0),
)


def architecture(*path: str | int) -> Callable[[int], object]:
    def read(value: int) -> object:
        content = inner = json.loads(announced(MODEL))
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        return read_announced(json.dumps(content))

    return read


INTERACTIVE = deployed_study(
    2,
    mechanism="interactive_gnmax",
    interactive_threshold=0.0,
    reinforce_confidence=0.9,
    round_one=20,
)
BY_TABLE = {"[confidentiality]": MASKED, "[mechanism]": INTERACTIVE}


def study(key: str, *, table: str = "", bracket: bool = False) -> Callable[[int, Path], object]:
    def read(value: int, folder: Path) -> object:
        text = write_study(BY_TABLE.get(table) or deployed_study(2))
        text = re.sub(rf"(?m)^{key} = .*\n", "", text)
        line = f"{key} = {[value] if bracket else value}\n"
        text = text.replace(table + "\n", table + "\n" + line, 1) if table else line + text
        (folder / "study.toml").write_text(text)
        return read_study(folder / "study.toml")

    return read


ENTRIES = (Entry(1, 10**18, "reserved", {"batch": 0}),)
EVIDENCE = ReleaseEvidence(
    "00", {"h": 9}, (Charge(0, "ab", (0, 1), {"h": 5}, {"h": 3}),), ENTRIES, (Kept(0, "h", "settled", b"frame"),)
)


def evidence(file: str, *path: str | int) -> Callable[[object, Path], object]:
    def read(value: object, folder: Path) -> object:
        (folder / "evidence").mkdir(exist_ok=True)
        for name, text in files_of(EVIDENCE).items():
            if name == file:
                content = inner = json.loads(text)
                for step in path[:-1]:
                    inner = inner[step]
                inner[path[-1]] = value
                text = json.dumps(content)
            (folder / name).write_text(text)
        return evidence_in(folder)

    return read


def labels(column: int) -> Callable[[int, Path], object]:
    def read(value: int, folder: Path) -> object:
        head, row = labels_csv(np.array([1]), np.array([ABSTAIN])).splitlines()
        cells = row.split(",")
        cells[column] = str(value)
        (folder / LABELS_FILE).write_text(f"{head}\n{','.join(cells)}\n")
        return read_labels(folder, classes=2)

    return read


STATED = {
    "created": "", "software": "", "stop": "unknown", "left_out": {}, "differences_nano": {}, "named_hospitals": [],
    "unproven": [],
}  # fmt: skip


def differences(value: object) -> object:
    stated = {**STATED, "differences_nano": {"h": value}}
    nothing = Released(deployed_study(2), np.array([0]), np.array([ABSTAIN]))
    return facts_of(nothing, EVIDENCE, [], (), {"stated_by_the_coordinator": stated})


def sum_keys(value: int) -> object:
    with Ledger(":memory:") as ledger:
        ballot = SummedBallot(MASKED, "p0", ledger=ledger, key=SEAT_KEYS[0], source=seeded_source(1))
        return ballot.step(StepRequest(MASKED.digest, DIGEST, "sum_keys", (array_of(value),)))


def asked_architecture(value: int) -> object:
    reply = PARTIES.handlers["p0"](StepRequest(HIDDEN.digest, DIGEST, "architecture", (array_of(value),)))
    if isinstance(reply, Refusal):
        raise MalformedMessage(reply.reason)
    return reply


DECODERS: dict[tuple[str, str], Callable] = {
    ("VoteRequest", "ids"): vote_request,
    ("VoteReply", "votes"): vote_reply,
    ("StepRequest sum_keys", "queries"): sum_keys,
    ("StepRequest architecture", "queries"): asked_architecture,
    ("submission", "number"): submission(2, lambda value: array_of(value, 0)),
    ("submission", "second_round"): submission(2, lambda value: array_of(0, value)),
    ("submission", "ids"): submission(3, array_of),
    ("submission", "members"): submission(4, lambda value: array_of(0, value) if value else array_of(0)),
    ("submission", "seats"): submission(5, array_of),
    ("submission", "lengths"): submission(6, array_of),
    ("guardian's head", "count"): guardians_head,
    ("deal", "queries"): lambda value: deal(value, 0),
    ("deal", "seats"): lambda value: deal(1, value),
    ("offer", "seat"): offer,
    ("two servers", "field element"): field_elements,
    ("inference", "field element"): inference_elements,
    ("architecture", "features"): architecture("features"),
    ("architecture", "layers"): architecture("layers", 0, "filters"),
    ("architecture", "layers.shift"): architecture("layers", 1, "shift"),
    ("architecture", "precision.input_bits"): architecture("precision", "input_bits"),
    ("architecture", "precision.weight_bits"): architecture("precision", "weight_bits"),
    ("architecture", "precision.accumulator_bits"): architecture("precision", "accumulator_bits"),
    ("study", "classes"): study("classes"),
    ("study", "teachers"): study("teachers"),
    ("study", "query_limit"): study("query_limit"),
    ("study", "batch_limit"): study("batch_limit"),
    ("study", "quorum"): study("quorum"),
    ("study", "pooled_teachers"): study("pooled_teachers"),
    ("study", "round_one"): study("round_one", table="[mechanism]"),
    ("study", "terms.pool_size"): study("pool_size", table="[terms]"),
    ("study", "terms.input_shape"): study("input_shape", table="[terms]", bracket=True),
    ("study", "confidentiality.units"): study("units", table="[confidentiality]"),
    ("study", "confidentiality.colluders"): study("colluders", table="[confidentiality]"),
    ("evidence/ledger.json", "caps"): evidence("evidence/ledger.json", "caps", "h"),
    ("evidence/ledger.json", "batches.number"): evidence("evidence/ledger.json", "batches", 0, "number"),
    ("evidence/ledger.json", "batches.queries"): evidence("evidence/ledger.json", "batches", 0, "queries", 1),
    ("evidence/ledger.json", "batches.reserved"): evidence("evidence/ledger.json", "batches", 0, "reserved", "h"),
    ("evidence/ledger.json", "batches.settled"): evidence("evidence/ledger.json", "batches", 0, "settled", "h"),
    ("evidence/audit.jsonl", "count"): evidence("evidence/audit.jsonl", "count"),
    ("evidence/audit.jsonl", "time_ns"): evidence("evidence/audit.jsonl", "time_ns"),
    ("evidence/audit.jsonl", "fields"): evidence("evidence/audit.jsonl", "fields", "batch"),
    ("evidence/frames.jsonl", "number"): evidence("evidence/frames.jsonl", "number"),
    ("labels.csv", "query"): labels(0),
    ("labels.csv", "label"): labels(1),
    ("labels.csv", "reinforced"): labels(3),
    ("privacy.json", "differences_nano"): differences,
}
# Where both ends of a range are too large to be worked with: only what lies outside is tried.
OUTSIDE_ALONE = {key for key in RANGES if key[0] == "study"}


def test_the_table_has_a_decoder_for_each_row_and_no_row_besides():
    assert set(DECODERS) | of_protobuf() == set(RANGES)


@pytest.mark.parametrize(("where", "field"), sorted(DECODERS))
def test_a_decoder_refuses_what_is_outside_the_range_and_nothing_inside_for_its_size(where, field, tmp_path):
    read = DECODERS[where, field]
    more = (tmp_path,) if where.startswith(("study", "evidence", "labels")) else ()
    unsigned = where in ("guardian's head", "two servers", "inference")
    said = re.compile(rf"{re.escape(field)} is .*; allowed: {RANGES[where, field].lowest} to")
    for value in values_around(where, field):
        if (unsigned and value < 0) or (value >= 2**64) or value < -(2**63):
            continue
        if not is_inside(where, field, value):
            with pytest.raises((MalformedMessage, InvalidInput, DataCorrupt)) as refused:
                read(value, *more)
            if RANGES[where, field].secret:
                assert str(value) not in str(refused.value)
            # What its type cannot hold is refused for the type.
            assert value >= (2**32 if "element" in field else 2**63) or said.search(str(refused.value))
        elif (where, field) not in OUTSIDE_ALONE:
            with suppress(Elsewhere), elsewhere(said):
                read(value, *more)


@pytest.mark.parametrize("value", [1.0, 1e300, float("inf"), float("nan"), True, "1", None, [1], 10**400])
@pytest.mark.parametrize(
    ("where", "field"), sorted(key for key in DECODERS if key[0].endswith((".json", ".jsonl")) and key[1] != "fields")
)
def test_a_document_with_something_else_than_a_whole_number_is_corrupt(where, field, value, tmp_path):
    read = DECODERS[where, field]
    with pytest.raises((DataCorrupt, InvalidInput)):
        read(value, *([tmp_path] if where.startswith("evidence") else []))


@pytest.mark.parametrize("key", ["classes", "quorum", "sigma", "name"])
def test_a_study_with_a_number_too_long_to_be_written_down_is_refused(key, tmp_path):
    with pytest.raises(InvalidInput, match="allowed"):
        study(key)(f"0x{'f' * 5000}", tmp_path)
    with pytest.raises(InvalidInput, match="allowed: 64, with its sign"):
        study("input_shape", table="[terms]", bracket=False)(f"[0x{'f' * 5000}]", tmp_path)


def test_the_evidence_that_is_altered_above_is_read_when_it_is_not(tmp_path):
    read = evidence("evidence/ledger.json", "run")
    # Written anew with other spaces.
    with pytest.raises(DataCorrupt, match="differs from the form in which a release is written"):
        read("00", tmp_path)
    for name, text in files_of(EVIDENCE).items():
        (tmp_path / name).write_text(text)
    assert evidence_in(tmp_path).charges == EVIDENCE.charges
    assert len(chained(ENTRIES)[1]) == 1


# ---- positions


@pytest.mark.parametrize(
    "ids",
    [
        [5, -(2**63) + 4],  # the difference wraps to 2**63 - 1
        [5, -(2**63) + 4, -(2**63) + 5],
        [0, 2**62, -(2**63) + 1],
        [2**63 - 1, -(2**63)],
        [-1, 0],
        [1, 1],
        [2, 1],
        [],
    ],
)
def test_ids_that_wrap_repeat_descend_or_are_negative_are_no_batch(ids):
    array = np.array(ids, dtype=np.int64)
    with pytest.raises(InvalidInput, match="allowed"):
        QueryBatch(0, array, np.zeros((len(ids), 1), np.float32))
    one = np.array([0], dtype=np.int64)
    for position in (3, 4, 5):
        good = Submission(DIGEST, DIGEST, 0, False, one, one, one, (b"sealed",), EMPTY, EMPTY).arrays()
        with pytest.raises(MalformedMessage, match="allowed"):
            Submission.read((*good[:position], array, *good[position + 1 :]))


# ---- nothing is decoded around the table


def sources() -> Iterator[tuple[str, str]]:
    for folder in ("protocols", "runtime", "party", "coordinator", "guardian"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name != "wire_pb2.py":
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_messages_are_parsed_in_one_place_which_checks_their_integers():
    parsing = ("FromString", "ParseFromString", "MergeFromString")
    found = {name for name, text in sources() if any(word in text for word in parsing)}
    assert found == {"protocols/ranges.py"}


def test_nobody_but_the_table_tells_an_array_of_integers_that_came_from_another():
    """A decoder that compares a dtype with int64 would take integers without a range."""
    found = []
    for name, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and "dtype" in (said := ast.unparse(node)) and "np.int64" in said:
                found.append(name)
    # Its own votes with noise; files that a hospital wrote itself.
    own = {f"party/teachers/{kind}.py" for kind in ("torch_teacher", "logistic_regression")}
    allowed = {"protocols/ranges.py", "protocols/levels/secure_sum/steps.py", *own}
    assert set(found) <= allowed


def test_a_guardians_head_comes_back_as_it_was():
    assert head_of(head_array(HEAD)) == HEAD
