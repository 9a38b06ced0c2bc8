"""Each row of the table of ranges has a decoder here, which refuses what is outside and takes what is inside."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from coordinator.release.evidence import Charge, KeptFrame, ReleaseEvidence, chained, evidence_in, files_of
from coordinator.release.folder import ReleasedStudy, facts_of
from coordinator.release.residuals import read_residuals
from protocols.crypto.channel import elements, pair
from protocols.errors import DataCorrupt, InvalidInput, MalformedMessage
from protocols.ledger.audit_log import EMPTY, Entry
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.dealing import DEAL, announced, read_announced, serve_deals
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    Precision,
    ReLUShape,
)
from protocols.levels.hidden_queries.inference.comparison import Piece, received
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.two_server.conversation import Submission, head_of, send_arrays
from protocols.ranges import RANGES
from protocols.release.labels import LABELS_FILE, labels_csv, read_labels
from protocols.release.signatures import SIGNATURES_FILE, read_signatures
from protocols.release.sums import read_again
from protocols.study.file import read_study, write_study
from protocols.study.levels import Clear
from protocols.sums.judging import Evaluation
from protocols.votes import ABSTAIN
from protocols.wire import wire_pb2
from protocols.wire.messages import Refusal, StepRequest, decode, encode
from tests.harness.deployed_records import record_study_of
from tests.harness.levels import SEAT_KEYS, SIGNING_KEY, lattice_study, secure_sum
from tests.harness.outside_ranges import (
    DIGEST,
    MESSAGES,
    Elsewhere,
    array_of,
    elsewhere,
    is_inside,
    of_protobuf,
    values_around,
)
from tests.harness.outside_record_files import features, queries, soft_labels, sums
from tests.harness.private_models import PrivateParties, hidden_study
from tests.harness.record_votes import study_of
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.studies import deployed_study


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
    good = Submission(DIGEST, DIGEST, 0, ids, ids, ids, (b"sealed",), EMPTY, EMPTY).arrays()
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
    send_arrays(here, (array_of(value),))
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
    2, mechanism="interactive_gnmax", interactive_threshold=0.0, reinforce_confidence=0.9, round_one=20
)
JUDGED = study_of(evaluation=Evaluation.of(share=0.2, key=bytes(32), bins=6, classes=2, threshold=0.5))
BY_TABLE = {
    "[confidentiality]": MASKED, "[mechanism]": INTERACTIVE, "[records]": study_of(), "[evaluation]": JUDGED,
}  # fmt: skip


def study(key: str, *, table: str = "", bracket: bool = False) -> Callable[[int, Path], object]:
    def read(value: int, folder: Path) -> object:
        text = write_study(BY_TABLE.get(table) or deployed_study(2))
        text = re.sub(rf"(?m)^{key} = .*\n", "", text)
        line = f"{key} = {[value] if bracket else value}\n"
        text = text.replace(table + "\n", table + "\n" + line, 1) if table else line + text
        (folder / "study.toml").write_text(text)
        return read_study(folder / "study.toml")

    return read


def judged(value: int, folder: Path) -> object:
    of, _ = record_study_of(share=0.2)
    each = [[value] * of.classes] * (of.votes.rows_again * len(of.roster))
    (folder / "evaluation.json").write_text(json.dumps({"sums": each}))
    return read_again(folder, of)


def asked_again(what: str, value: int, folder: Path) -> object:
    of, _ = record_study_of("graded", residuals=True, level=Clear(units=2**16))
    rows, values = ([[each] * of.classes] * of.votes.rows_again for each in (0, value))
    said = {"run": "", "counted": list(of.seats), "scores": rows, "sums": rows} | {what: values}
    (folder / "residuals.json").write_text(json.dumps(said))
    return read_residuals(folder, of)


ENTRIES = (Entry(1, 10**18, "reserved", {"batch": 0}),)
EVIDENCE = ReleaseEvidence(
    {"h": 9}, (Charge(0, "ab", (0, 1), {"h": 5}, {"h": 3}),), ENTRIES, (KeptFrame(0, "h", "settled", b"frame"),)
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


def signatures(value: int, folder: Path) -> object:
    (folder / SIGNATURES_FILE).write_text(f"{value} {'0f' * 64}\n")
    return read_signatures(folder)


def labels(column: int) -> Callable[[int, Path], object]:
    def read(value: int, folder: Path) -> object:
        head, row = labels_csv(np.array([1]), np.array([ABSTAIN])).splitlines()
        cells = row.split(",")
        cells[column] = str(value)
        (folder / LABELS_FILE).write_text(f"{head}\n{','.join(cells)}\n")
        return read_labels(folder, classes=2)

    return read


STATED = {
    "created": "", "software": "", "stop": "unknown", "left_out": {}, "differences": {}, "named_hospitals": [],
    "unproven": [],
}  # fmt: skip


def differences(value: object) -> object:
    stated = {**STATED, "differences": {"h": value}}
    nothing = ReleasedStudy(deployed_study(2), np.array([0]), np.array([ABSTAIN]))
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
    ("submission", "number"): submission(2, array_of),
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
    ("study", "records.queries"): study("queries", table="[records]"),
    ("study", "records.votes"): study("votes", table="[records]"),
    ("study", "records.population"): study("population", table="[records]"),
    ("study", "records.hospitals_per_patient"): study("hospitals_per_patient", table="[records]"),
    ("study", "evaluation.bins"): study("bins", table="[evaluation]"),
    ("study", "evaluation.rows"): study("rows", table="[evaluation]"),
    ("study", "query_limit"): study("query_limit"),
    ("study", "batch_limit"): study("batch_limit"),
    ("study", "quorum"): study("quorum"),
    ("study", "pooled_teachers"): study("pooled_teachers"),
    ("study", "round_one"): study("round_one", table="[mechanism]"),
    ("study", "terms.pool_size"): study("pool_size", table="[terms]"),
    ("study", "terms.misses"): study("misses", table="[terms]"),
    ("study", "terms.input_shape"): study("input_shape", table="[terms]", bracket=True),
    ("study", "confidentiality.units"): study("units", table="[confidentiality]"),
    ("study", "confidentiality.colluders"): study("colluders", table="[confidentiality]"),
    ("sums.csv", "sum"): sums,
    ("evaluation.json", "sums"): judged,
    ("residuals.json", "sums"): partial(asked_again, "sums"),
    ("residuals.json", "scores"): partial(asked_again, "scores"),
    ("soft_labels.csv", "query"): soft_labels,
    **{("queries", name): queries(name) for name in ("share", "width")},
    ("features", "shape"): features,
    ("evidence/ledger.json", "caps"): evidence("evidence/ledger.json", "caps", "h"),
    ("evidence/ledger.json", "batches.number"): evidence("evidence/ledger.json", "batches", 0, "number"),
    ("evidence/ledger.json", "batches.queries"): evidence("evidence/ledger.json", "batches", 0, "queries", 1),
    ("evidence/ledger.json", "batches.reserved"): evidence("evidence/ledger.json", "batches", 0, "reserved", "h"),
    ("evidence/ledger.json", "batches.settled"): evidence("evidence/ledger.json", "batches", 0, "settled", "h"),
    ("evidence/audit.jsonl", "count"): evidence("evidence/audit.jsonl", "count"),
    ("evidence/audit.jsonl", "time_ns"): evidence("evidence/audit.jsonl", "time_ns"),
    ("evidence/audit.jsonl", "fields"): evidence("evidence/audit.jsonl", "fields", "batch"),
    ("evidence/frames.jsonl", "number"): evidence("evidence/frames.jsonl", "number"),
    ("guardian.sig", "batch"): signatures,
    ("labels.csv", "query"): labels(0),
    ("labels.csv", "label"): labels(1),
    ("labels.csv", "reinforced"): labels(3),
    ("privacy.json", "differences"): differences,
}
# Where both ends of a range are too large to be worked with: only what lies outside is tried.
OUTSIDE_ALONE = {key for key in RANGES if key[0] == "study"}


def test_the_table_has_a_decoder_for_each_row_and_no_row_besides():
    assert set(DECODERS) | of_protobuf() == set(RANGES)


@pytest.mark.parametrize(("where", "field"), sorted(DECODERS))
def test_a_decoder_refuses_what_is_outside_the_range_and_nothing_inside_for_its_size(where, field, tmp_path):
    read = DECODERS[where, field]
    in_folder = ("study", "evidence", "evaluation", "residuals", "labels", "guardian.sig", "sums", "soft")
    more = (tmp_path,) if where.startswith(in_folder) else ()
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
        read(value, *([tmp_path] if where.startswith(("evidence", "evaluation", "residuals")) else []))


@pytest.mark.parametrize("key", ["classes", "quorum", "sigma", "name"])
def test_a_study_with_a_number_too_long_to_be_written_down_is_refused(key, tmp_path):
    with refuses(InvalidInput, "allowed"):
        study(key)(f"0x{'f' * 5000}", tmp_path)
    with refuses(InvalidInput, 64):
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
