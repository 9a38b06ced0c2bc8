"""Everything that decodes bytes or reads a file from elsewhere, by name, with inputs that it takes.

A reader may return, or raise an error of protocols.errors; anything else is a finding.
"""

import datetime
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import runtime.parquet_tables  # noqa: F401
from coordinator.labelling.study_creation import read_pool
from coordinator.release.evidence import Charge, KeptFrame, ReleaseEvidence, evidence_in, files_of
from coordinator.release.folder import read_object
from coordinator.release.statement import read_statement
from party.data import load_records, source_kind
from party.data.records import DataSettings
from party.keeping import read_archive
from party.party import Party
from party.settings import read_invitation, read_settings
from protocols.crypto.channel import pair
from protocols.crypto.identity import (
    certificate_from_pem,
    certificate_request,
    issue,
    key_to_pem,
    new_authority,
    new_key,
    private_key_from_pem,
    request_from_pem,
    to_pem,
)
from protocols.features.feature_map import FeatureMap
from protocols.features.images import Deskew, Hog
from protocols.features.linear import LinearMap
from protocols.ledger.audit_log import EMPTY, Entry, Head
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.dealing import DEAL, Offer, announced, read_announced
from protocols.levels.hidden_queries.inference.architecture import (
    Architecture,
    ConvolutionShape,
    DenseShape,
    Precision,
    ReLUShape,
)
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.levels.two_server.conversation import Submission, head_array, head_of
from protocols.levels.two_server.conversation import seal as seal_share
from protocols.levels.two_server.conversation import unseal as open_share
from protocols.levels.two_server.shared_sums import check_sum_share
from protocols.levels.two_server.shares import check_guardian_share
from protocols.release.labels import labels_csv, read_labels
from protocols.release.manifest import read_manifest
from protocols.release.signatures import read_signatures
from protocols.release.sums import LabelsOfPool, read_soft_labels, read_sums, soft_labels_csv, sums_csv
from protocols.study.file import read_study, write_study
from protocols.study.queries import QueryBatch
from protocols.study.terms import Feature, Terms
from protocols.sums.blocks import Blocks
from protocols.votes import ABSTAIN
from protocols.wire import wire_pb2
from protocols.wire.enrolment import Enrol, Enrolled, decode_enrol, decode_enrolled, encode_enrol
from protocols.wire.frames import (
    Answer,
    Ask,
    Goodbye,
    Hello,
    RefusedSeat,
    SeatHeads,
    Welcome,
    _decode,
    read_frame,
    sign_frame,
)
from protocols.wire.guardian import Opening, read_opening, read_welcome
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Settled,
    StepReply,
    StepRequest,
    VoteReply,
    VoteRequest,
    decode,
    decode_arrays,
    encode,
    encode_arrays,
)
from protocols.wire.relay import passed_back, read_passed_back
from tests.harness.deployed_records import record_study_of
from tests.harness.file_contents import home_archive
from tests.harness.ledger_files import HEADER, empty_ledger, read_ledger
from tests.harness.levels import SEALING_KEY, SEAT_KEYS, GuardianHere, lattice_study, secure_sum, two_server
from tests.harness.private_models import PrivateParties, hidden_study
from tests.harness.record_votes import QUERIES
from tests.harness.seeded import seeded_source
from tests.harness.studies import deployed_study

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
AUTHORITY_KEY, KEY = new_key(), new_key()
AUTHORITY = new_authority(AUTHORITY_KEY, name="fuzz", now=NOW, days=99)
CERTIFICATE = issue(
    authority=AUTHORITY, authority_key=AUTHORITY_KEY, public_key=KEY.public_key(), name="h", role="party", now=NOW,
    days=30,
)  # fmt: skip
FOLDER = Path(tempfile.mkdtemp())
DIGEST, NONCE = b"d" * 32, b"n" * 16
TABLE = Terms(
    task="fuzz", class_names=("no", "yes"), label="label", input_shape=(4,), pool_size=1, pool_sha256="0" * 64,
    deadline_s=1.0, coordinator="centre", ends="2999-12-31",
    features=(
        Feature(column="age", kind="numeric", centre=50.0, scale=10.0, log=True, may_miss=True),
        Feature(column="sex", kind="categorical", categories=("f", "m")),
    ),
)  # fmt: skip
ARRAYS = Terms(
    task="fuzz", class_names=("no", "yes"), label="label", input_shape=(2,), pool_size=1, pool_sha256="0" * 64,
    deadline_s=1.0, coordinator="centre", ends="2999-12-31",
)  # fmt: skip
STUDY = deployed_study(2)
SUMS = lattice_study(secure_sum(), classes=2)
SUMMED = Party(
    "p0", study=SUMS, ledger=(SUMMED_LEDGER := Ledger(":memory:")), coins_from=None,
    voter=lambda batch: np.zeros((1, len(batch.ids)), dtype=np.int64),
    ballot=SummedBallot(SUMS, "p0", ledger=SUMMED_LEDGER, key=SEAT_KEYS[0], source=seeded_source(1)),
)  # fmt: skip
SHARES = lattice_study(two_server(), classes=2)
GUARDIAN = GuardianHere(SHARES, Ledger(":memory:"), seeded_source(2)).guardian
HIDDEN = hidden_study()
PRIVATE = PrivateParties(HIDDEN).handlers["p0"]
RECORDS, _ = record_study_of()
_SEALED = {"study": SHARES.digest, "request": DIGEST, "seat": "p0"}
OPENING = Opening(DIGEST, "batch", NONCE)


def written(data: bytes, name: str) -> Path:
    path = FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def records(data: bytes, loader: str, terms: Terms) -> None:
    path = written(data, f"records.{loader}")
    load_records(DataSettings(name="fuzz", loader=loader, source=source_kind(loader)(path)), terms)


def step(data: bytes) -> None:
    """One step of a masked sum with any arrays: the first byte says which."""
    names = ("sum_keys", "sum_shares", "sum_check", "sum_dispute", "sum_agree", "sum_open")
    name = names[data[0] % len(names)] if data else names[0]
    SUMMED.handle(StepRequest(SUMS.digest, bytes(32), name, decode_arrays(data[1:])))


def private_step(data: bytes) -> None:
    """One step of a computation on hidden queries: the first byte says which."""
    name = ("architecture", "dealt", "inference")[data[0] % 3 if data else 0]
    PRIVATE(StepRequest(HIDDEN.digest, bytes(32), name, decode_arrays(data[1:])))


def conversation(data: bytes) -> None:
    """A guardian that is sent one message."""
    here, there = pair(wait_s=0.001)
    here.send(data)
    GUARDIAN.serve(there)


EVIDENCE = files_of(
    ReleaseEvidence(
        {"h": 9}, (Charge(0, "ab", (0, 1), {"h": 5}, {"h": 3}),),
        (Entry(1, 10**18, "reserved", {"batch": 0}),), (KeptFrame(0, "h", "settled", b"frame"),),
    )
)  # fmt: skip


def evidence(data: bytes, name: str) -> None:
    """The evidence of a release, one file of it altered."""
    for each, text in EVIDENCE.items():
        written(data if each == name else text.encode(), each)
    evidence_in(FOLDER)


# What a connection or a message brings, and the files of studies and releases, which travel as files.
WIRE: dict[str, Callable[[bytes], object]] = {
    "message": decode,
    "arrays": decode_arrays,
    "step": step,
    "private step": private_step,
    "conversation": conversation,
    "submission": lambda data: Submission.read(decode_arrays(data)),
    "sealed share": lambda data: open_share(data, key=SEALING_KEY, **_SEALED),
    "sealed content": lambda data: check_guardian_share(decode_arrays(data), voters=1),
    "share of a sum": lambda data: check_sum_share(decode_arrays(data), shape=(8, 2)),
    "offer": lambda data: Offer.read(decode_arrays(data), HIDDEN),
    "guardian's head": lambda data: head_of(np.frombuffer(data, dtype=np.uint8)),
    "opening": read_opening,
    "welcome": lambda data: read_welcome(data, OPENING, authority=AUTHORITY, now=NOW),
    "relayed answer": read_passed_back,
    "architecture": lambda data: read_announced(data.decode("utf-8", errors="replace")),
    "signed frame": lambda data: read_frame(data, authority=AUTHORITY, now=NOW, role="party"),
    "frame": _decode,
    "enrol": decode_enrol,
    "enrolled": decode_enrolled,
    "certificate": certificate_from_pem,
    "certificate request": request_from_pem,
    "key": private_key_from_pem,
    "study": lambda data: read_study(written(data, "study.toml")),
    **{name: (lambda data, name=name: evidence(data, name)) for name in EVIDENCE},
    "privacy.json": lambda data: read_object(written(data, "privacy.json")),
    "statement": lambda data: read_statement(written(data, "privacy.json")),
    "manifest.json": lambda data: (written(data, "manifest.json"), read_manifest(FOLDER)),
    "queries.npz": Blocks.from_bytes,
    "sums.csv": lambda data: (written(data, "sums.csv"), read_sums(FOLDER, RECORDS)),
    "guardian.sig": lambda data: (written(data, "guardian.sig"), read_signatures(FOLDER)),
    "soft_labels.csv": lambda data: (written(data, "soft_labels.csv"), read_soft_labels(FOLDER, RECORDS)),
    "features.npz": FeatureMap.from_bytes,
    "labels.csv": lambda data: (written(data, "labels.csv"), read_labels(FOLDER, classes=2)),
}
# Files that a hospital or an operator brings itself.
FILES: dict[str, Callable[[bytes], object]] = {
    "node.toml": lambda data: read_settings(written(data, "node.toml")),
    "invitation": lambda data: read_invitation(written(data, "invitation.toml")),
    "records.csv": lambda data: records(data, "csv", TABLE),
    "records.npz": lambda data: records(data, "npz", ARRAYS),
    "records.parquet": lambda data: records(data, "parquet", TABLE),
    "pool.npy": lambda data: read_pool(written(data, "pool.npy")),
    "pool.npz": lambda data: read_pool(written(data, "pool.npz")),
    "pool.csv": lambda data: read_pool(written(data, "pool.csv"), features=TABLE.features),
    "ledger": read_ledger,
    "archive of a home": lambda data: read_archive(written(data, "home"), passphrase=lambda: b"passphrase"),
}
FEATURES = FeatureMap((8, 8), (Deskew(), Hog(2, 2), LinearMap.of(np.eye(8, 3), np.zeros(8))))
READERS = WIRE | FILES


def _messages() -> list[bytes]:
    batch = QueryBatch(1, np.arange(2), np.zeros((2, 3), np.float32))
    arrays = (np.zeros(2, np.uint8), np.ones((1, 2), np.int64))
    made = (
        VoteRequest(DIGEST, b"run", batch, arrays),
        VoteReply(DIGEST, np.zeros((1, 2), np.int64)),
        ConcealedVotes(DIGEST, arrays),
        StepRequest(SUMS.digest, DIGEST, "sum_keys", (np.array([2], np.int64),)),
        StepReply(DIGEST, "sum_keys", arrays),
        Outcome(DIGEST, DIGEST, np.array([True, False])),
        Settled(DIGEST, 7),
        Refusal("code", "reason"),
        VoteRequest(SUMS.digest, b"run", batch),
        Outcome(SUMS.digest, DIGEST, np.array([True, False])),
    )
    return [encode(each) for each in made]


FRAMES = (
    Hello((1,), "software", NONCE, (SeatHeads(DIGEST, "h", EMPTY, EMPTY, (DIGEST,)),), (DIGEST,)),
    Welcome(1, NONCE, 1, (RefusedSeat(DIGEST, "h", "code", "reason"),)),
    Ask(NONCE, 1, NONCE, DIGEST, "h", EMPTY, EMPTY, b"envelope"),
    Answer(NONCE, 1, DIGEST, "h", EMPTY, EMPTY, b"envelope"),
    Goodbye("code", "reason"),
)
_SEALED_FRAMES = [sign_frame(each, key=KEY, certificate=CERTIFICATE) for each in FRAMES]
_MODEL = Architecture(
    16, (ConvolutionShape(1, 4, 4, 1, (1, 1), 1, "valid"), ReLUShape(16, 4), DenseShape(16, 2)),
    Precision(8, 10, 31, 1.0),
)  # fmt: skip
_POSITIONS = np.arange(2, dtype=np.int64)
_SUBMISSION = encode_arrays(
    Submission(SHARES.digest, DIGEST, 0, _POSITIONS, _POSITIONS, _POSITIONS, (b"a", b"b"), EMPTY, EMPTY).arrays()
)
_DEAL = encode_arrays((DEAL, *(np.frombuffer(each, np.uint8) for each in (HIDDEN.digest, DIGEST)), np.array([1, 1])))


def _saved(save: Callable[..., None], *arrays: np.ndarray, **named: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *arrays, **named)
    return buffer.getvalue()


_GUARANTEE = {"epsilon": 1.0, "delta": 1e-5, "order": 2.0, "spend": 1.0, "noise_distance": 0.0}
_STATEMENT = {
    "seats": [{"party": "h", "guarantee": _GUARANTEE}], "study": {"name": "s", "digest": "ab"}, "created": "",
    "several_hospitals": {"any": [{"guarantee": _GUARANTEE}]}, "protected": {"unit": "record"},
    "stated_by_the_coordinator": {"differences": {"h": 1}},
}  # fmt: skip
_MANIFEST = {"format": "conclave release 1", "study": "ab", "created": NOW.isoformat(), "files": {"a": "b"}}
_CSV = b"age,sex,label\n40,f,no\n,m,yes\n"
_LABELS = labels_csv(np.array([1, 0]), np.array([ABSTAIN, ABSTAIN])).encode()
_SOFT = soft_labels_csv(
    LabelsOfPool(np.tile(np.arange(RECORDS.votes.votes), (RECORDS.terms.pool_size, 1)), np.full((40, 2), 0.5))
)

_SEEDS = (np.zeros((1, 16), np.uint8),)

# What each reader takes: fuzzing starts behind its first check.
SEEDS: dict[str, list[bytes]] = {
    "message": _messages(),
    "arrays": [_SUBMISSION, _DEAL],
    "step": [bytes([number]) + encode_arrays((np.array([2], np.int64),)) for number in range(4)],
    "private step": [bytes([number]) + encode_arrays((np.array([2], np.int64),)) for number in range(3)],
    "conversation": [b"\x00" + _SUBMISSION, b"\x00" + _DEAL],
    "submission": [_SUBMISSION],
    "sealed share": [
        seal_share(
            _SEEDS, key=SEALING_KEY.public_key().public_bytes_raw(), study=SHARES.digest, request=DIGEST, seat="p0"
        )
    ],
    "sealed content": [encode_arrays(_SEEDS)],
    "share of a sum": [encode_arrays((np.arange(16, dtype="<u4").reshape(8, 2),))],
    "offer": [encode_arrays(Offer(announced(_MODEL).encode(), DIGEST, b"s" * 70).arrays())],
    "guardian's head": [head_array(Head(1, DIGEST)).tobytes()],
    "opening": [OPENING.encode()],
    "welcome": [bytes([2]) + b"ss"],
    "relayed answer": [passed_back(b"answer"), passed_back(b"", code="absent", reason="reason")],
    "architecture": [announced(_MODEL).encode()],
    "signed frame": _SEALED_FRAMES,
    "frame": [wire_pb2.Signed.FromString(each).body for each in _SEALED_FRAMES],
    "enrol": [encode_enrol(Enrol("h", b"token", b"request"))],
    "enrolled": [encode_enrol(Enrolled(b"certificate", "code", "reason"))],
    "certificate": [to_pem(CERTIFICATE)],
    "certificate request": [to_pem(certificate_request(KEY, name="h"))],
    "key": [key_to_pem(KEY)],
    "study": [write_study(each).encode() for each in (STUDY, SUMS, HIDDEN, RECORDS)],
    **{name: [text.encode()] for name, text in EVIDENCE.items()},
    "privacy.json": [json.dumps(_STATEMENT).encode()],
    "statement": [json.dumps(_STATEMENT).encode()],
    "manifest.json": [json.dumps(_MANIFEST).encode()],
    "labels.csv": [_LABELS],
    "records.csv": [_CSV],
    "records.npz": [_saved(np.savez, inputs=np.zeros((2, 2), np.float32), labels=np.array([0, 1]))],
    "pool.npy": [_saved(np.save, np.zeros((2, 2), np.float32))],
    "pool.npz": [_saved(np.savez, inputs=np.zeros((2, 2), np.float32))],
    "sums.csv": [sums_csv(np.arange(16).reshape(8, 2)).encode()],
    "guardian.sig": [b"0 " + b"0f" * 64 + b"\n"],
    "soft_labels.csv": [_SOFT.encode()],
    "queries.npz": [QUERIES.to_bytes()],
    "features.npz": [FEATURES.to_bytes()],
    "pool.csv": [_CSV],
    "ledger": [empty_ledger()[:HEADER]],
    "archive of a home": [home_archive(FOLDER)],
}
