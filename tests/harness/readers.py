"""Every reader of a file from elsewhere, with a file that it takes: what tests/contract/test_readers.py holds them to.

A new reader is listed here; tests/unit/test_reader_calls.py finds the calls that go round them.
"""

import datetime
import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import safetensors.torch
import torch
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

from coordinator.home import CoordinatorHome, CoordinatorSettings, settings_toml
from coordinator.labelling.study_creation import read_pool as read_operators_pool
from coordinator.labelling.study_creation import stored_pool
from coordinator.labelling.training import kept_student
from coordinator.release.evidence import evidence_in
from coordinator.release.export_torch import read_network
from coordinator.release.folder import read_object as read_release_json
from coordinator.release.statement import read_statement
from coordinator.students.torch_student import MLP
from guardian.home import GuardianHome, GuardianSettings, create_guardian
from party.data import load_records, source_kind
from party.data.files import CsvFile
from party.data.mapping import read_mapping
from party.data.queries import read_pool_queries, read_queries
from party.data.records import DataSettings
from party.home import PartyHome
from party.keeping import read_archive
from party.settings import read_invitation, read_settings
from party.teachers import teacher_kind
from party.teachers.onnx_file import onnx
from party.voting.contribution import SeatVotes, keep_votes, read_contribution
from party.voting.trained import load_model, read_teachers_manifest, save_model
from protocols.array_files import array_names, check_archive, read_array, read_arrays
from protocols.bounds import label_only
from protocols.crypto.identity import (
    certificate_from_pem,
    certificate_request,
    key_to_pem,
    new_authority,
    new_key,
    private_key_from_pem,
    request_from_pem,
    to_pem,
)
from protocols.labelling import stored_votes
from protocols.levels.hidden_queries.inference.model import Dense, Model
from protocols.reading import read_bytes, read_json, read_text, read_toml
from protocols.release.labels import read_labels
from protocols.release.manifest import read_manifest as read_release_manifest
from protocols.release.signatures import read_signatures
from protocols.release.sums import LabelsOfPool, read_soft_labels, read_sums, soft_labels_csv, sums_csv
from protocols.study.file import read_study, write_study
from protocols.study.queries import pool_digest
from protocols.study.queries_file import read_blocks
from protocols.study.terms import Feature
from protocols.sums.blocks import BLOCKS_BYTES, Blocks
from runtime.checked_files import read_lines
from simulations.datasets.columns import Standardised
from simulations.datasets.own import Schema, load_table, read_schema
from simulations.datasets.sources import read_npz
from simulations.report.compare import _read as read_summary
from simulations.setup.budgets import parse_budgets
from simulations.setup.experiment import read_config
from tests.harness.deployed_records import record_study_of
from tests.harness.file_contents import (
    INVITATION,
    MANIFEST,
    MAPPING,
    NODE,
    SCHEMA,
    SIGNED,
    home_archive,
    npy,
    npz,
    parquet,
    png,
)
from tests.harness.record_votes import QUERIES
from tests.harness.studies import deployed_study

INPUTS = np.arange(12, dtype=np.float32).reshape(6, 2)
COLUMNS = tuple(Feature(column=name, kind="numeric", centre=0.0, scale=1.0) for name in ("a", "b"))


@dataclass(frozen=True)
class Reader:
    """name: the file's; content: one that is read without an error; read: of the path."""

    name: str
    content: bytes
    read: Callable[[Path], object]


def readers(folder: Path) -> dict[str, Reader]:
    """The table. folder: where files that a reader needs beside its own are kept."""
    study = _study()
    terms = study.terms
    settings = DataSettings(name="d", loader="csv", source=CsvFile(folder))

    def records(path: Path, loader: str, shape: tuple[int, ...] = (2,)) -> object:
        given = replace(terms, input_shape=shape, features=COLUMNS if loader in ("csv", "jsonl", "parquet") else ())
        source = source_kind(loader)(path)
        return load_records(DataSettings(name="d", loader=loader, source=source), given)

    def images(path: Path) -> object:
        return records(path.parent.parent, "images", (4, 4))

    counted = record_study_of()
    sums = np.zeros((counted[0].votes.queries, 2), np.int64)
    pooled = counted[0].terms.pool_size
    soft = LabelsOfPool(np.zeros((pooled, 4), np.int64), np.full((pooled, 2), 0.5))
    table = b"a,b,label\n1,2,no\n3,4.5,yes\n5,6,no\n"
    lines = b'{"a":1,"b":2,"label":"no"}\n{"a":3,"b":4.5,"label":"yes"}\n{"a":5,"b":6,"label":"no"}\n'
    kinds = {name: _teacher(folder, name) for name in ("logistic_regression", "random_forest", "small_cnn")}
    key = new_key()
    authority = to_pem(new_authority(key, name="test", now=_NOW, days=30))
    listed = {
        "npy": Reader("a.npy", npy(INPUTS), read_array),
        "npy mapped": Reader("a.npy", npy(INPUTS), lambda path: read_array(path, mapped=True)),
        "npz": Reader("a.npz", npz(inputs=INPUTS), read_arrays),
        "npz names": Reader("a.npz", npz(inputs=INPUTS), array_names),
        "archive": Reader("a.npz", npz(inputs=INPUTS), check_archive),
        "bytes": Reader("a", b"x", lambda path: read_bytes(path, most=2**20)),
        "text": Reader("a", b"x", lambda path: read_text(path, most=2**20)),
        "toml": Reader("a.toml", b'a = 1\n[b]\nc = ["d", 1.5]\n', read_toml),
        "json": Reader("a.json", b'{"a": [1, 2.5, "b", null]}', read_json),
        "node.toml": Reader("node.toml", NODE, read_settings),
        "mapping.toml": Reader("mapping.toml", MAPPING, read_mapping),
        "invitation": Reader("invitation.toml", INVITATION, read_invitation),
        "study": Reader("study.toml", write_study(study).encode(), read_study),
        "coordinator.toml": Reader(
            "coordinator.toml", settings_toml(_SETTINGS).encode(), lambda path: CoordinatorHome(path.parent).settings()
        ),
        "guardian.toml": Reader("guardian.toml", _guardian(folder), lambda path: GuardianHome(path.parent).settings()),
        "denied": Reader("denied", b"ab" * 32 + b"\n", lambda path: GuardianHome(path.parent).denied()),
        "key": Reader("key.pem", key_to_pem(key), lambda path: CoordinatorHome(path.parent).key()),
        "certificate": Reader("c.pem", authority, lambda path: certificate_from_pem(read_bytes(path, most=2**20))),
        "private key": Reader(
            "k.pem", key_to_pem(key), lambda path: private_key_from_pem(read_bytes(path, most=2**20))
        ),
        "request": Reader(
            "r.pem",
            to_pem(certificate_request(key, name="hospital")),
            lambda path: request_from_pem(read_bytes(path, most=2**20)),
        ),
        "archive of a home": Reader(
            "home.conclave", home_archive(folder), lambda path: read_archive(path, passphrase=lambda: b"passphrase")
        ),
        "records csv.gz": Reader("records.csv.gz", gzip.compress(table, mtime=0), lambda path: records(path, "csv")),
        "records csv": Reader("records.csv", table, lambda path: records(path, "csv")),
        "records npz": Reader(
            "records.npz", npz(inputs=INPUTS, labels=np.array([0, 1] * 3)), lambda path: records(path, "npz")
        ),
        "records parquet": Reader("records.parquet", parquet(), lambda path: records(path, "parquet")),
        "records jsonl": Reader("records.jsonl", lines, lambda path: records(path, "jsonl")),
        "records images": Reader("images/no/a.png", png(), images),
        "queries npy": Reader("q.npy", npy(INPUTS), lambda path: read_queries(path, settings, terms)),
        "queries npz": Reader("q.npz", npz(inputs=INPUTS), lambda path: read_queries(path, settings, terms)),
        "queries csv": Reader(
            "q.csv", b"a,b\n1,2\n", lambda path: read_queries(path, settings, replace(terms, features=COLUMNS))
        ),
        "pool of a node": Reader("pool.npy", npy(INPUTS), lambda path: read_pool_queries(path, terms)),
        "queries of records": Reader(
            "queries.npz",
            QUERIES.to_bytes(),
            lambda path: Blocks.from_bytes(read_bytes(path, most=BLOCKS_BYTES), where=str(path)),
        ),
        "queries of a study": Reader("queries.npz", counted[1].to_bytes(), lambda path: read_blocks(path, counted[0])),
        "votes of records": Reader(
            "votes.npz", _votes(folder, counted[0]), lambda path: read_contribution(path, counted[0])
        ),
        "guardian's signatures": Reader(
            "guardian.sig", b"3 " + b"0f" * 64 + b"\n", lambda path: read_signatures(path.parent)
        ),
        "sums": Reader("sums.csv", sums_csv(sums).encode(), lambda path: read_sums(path.parent, counted[0])),
        "soft labels": Reader(
            "soft_labels.csv", soft_labels_csv(soft).encode(), lambda path: read_soft_labels(path.parent, counted[0])
        ),
        "pool npy": Reader("pool.npy", npy(INPUTS), read_operators_pool),
        "pool npz": Reader("pool.npz", npz(pool=INPUTS), read_operators_pool),
        "pool csv": Reader("pool.csv", b"a,b\n1,2\n", read_operators_pool),
        "pool stored": Reader("pool.npy", npy(INPUTS), lambda path: stored_pool(path, study)),
        "private model": Reader("private.npz", _model(folder), load_model),
        "manifest of teachers": Reader("manifest.json", MANIFEST, lambda path: read_teachers_manifest(path.parent)),
        "onnx": Reader("teacher.onnx", _onnx(), lambda path: onnx(device="cpu").load(path)),
        "bounds": Reader(
            "table.npz", label_only.TABLE_PATH.read_bytes(), lambda path: label_only.load_bounds.__wrapped__(path)
        ),
        "statement": Reader("privacy.json", b"", read_statement),
        "release json": Reader("privacy.json", b"{}", read_release_json),
        "release labels": Reader(
            "labels.csv",
            b"query,label,status,reinforced\n0,1,answered,\n",
            lambda path: read_labels(path.parent, classes=2),
        ),
        "release manifest": Reader("manifest.json", SIGNED, lambda path: read_release_manifest(path.parent)),
        "evidence": Reader("evidence/ledger.json", b"", lambda path: evidence_in(path.parent.parent)),
        "student": Reader(
            "student.json", b"", lambda path: kept_student(path.parent, SimpleNamespace(study=study), None)
        ),
        "network of a student": Reader(
            "student.safetensors", _network(), lambda path: read_network(path, INPUTS.shape[1:])
        ),
        "own schema": Reader("own.toml", SCHEMA, read_schema),
        "own csv": Reader(
            "own.csv", table, lambda path: load_table(path, _OWN_SCHEMA, seed=0, sizes=(None, None, None))
        ),
        "budgets": Reader(
            "b.csv",
            b"party,epsilon,delta\np0,1,1e-5\n",
            lambda path: parse_budgets(str(path), parties=1, delta=1e-5, seed=0),
        ),
        "config": Reader("config.toml", b'dataset = "glyphs"\n', read_config),
        "summary": Reader("summary.json", b"", lambda path: read_summary(path.parent)),
        "votes npy": Reader(
            "votes.npy",
            npy(np.zeros((3, 4), np.int64)),
            lambda path: stored_votes.load_votes(path, kind="ids", classes=2, parties=None),
        ),
        "data npz": Reader("d.npz", npz(a=INPUTS), read_npz),
        "data lines": Reader("d.txt.gz", gzip.compress(b"a\nb\n", mtime=0), read_lines),
    }
    for name, content in kinds.items():
        kind = teacher_kind(name)
        listed[name] = Reader("teacher", content, lambda path, kind=kind: kind.load(path))
    return listed


def _study():
    study = deployed_study(parties=3, deadline_s=5.0)
    terms = replace(
        study.terms,
        class_names=("no", "yes"),
        label="label",
        input_shape=(2,),
        features=(),
        pool_size=len(INPUTS),
        pool_sha256=pool_digest(INPUTS),
    )
    return replace(study, terms=terms)


def _teacher(folder: Path, name: str) -> bytes:
    shape = (8, 8) if name == "small_cnn" else (2,)
    inputs = np.random.default_rng(1).standard_normal((8, *shape)).astype(np.float32)
    shard = (inputs, np.array([0, 1] * 4))
    (teacher,) = teacher_kind(name, device="cpu").fit([shard], classes=2, seeds=[1])
    teacher.save(folder / name)
    return (folder / name).read_bytes()


def _model(folder: Path) -> bytes:
    save_model(folder / "model.npz", Model((2,), (Dense(np.ones((2, 2)), np.zeros(2)),)))
    return (folder / "model.npz").read_bytes()


def _votes(folder: Path, study) -> bytes:
    sums = np.zeros((study.votes.queries, study.classes), np.int64)
    keep_votes(PartyHome(folder), study, [SeatVotes("hospital-0", 2, 2, sums, np.arange(2))], {"hospital-0": bytes(16)})
    return PartyHome(folder).contribution(study.digest, "hospital-0").read_bytes()


def _onnx() -> bytes:
    labels = np.array([0, 1] * 3)
    model = LogisticRegression().fit(INPUTS, labels)
    return to_onnx(model, INPUTS[:1], options={"zipmap": False}).SerializeToString()


def _network() -> bytes:
    shapes = {**MLP.shapes(INPUTS.shape[1:], 2), "offsets": (2,)}
    about = {"network": MLP.name, "input_shape": "2", "classes": "2"}
    return safetensors.torch.save({name: torch.ones(shape) for name, shape in shapes.items()}, metadata=about)


def _guardian(folder: Path) -> bytes:
    home = GuardianHome(folder / "guardian")
    settings = GuardianSettings(name="guardian", coordinator="centre", listen="127.0.0.1:1", metrics_port=0)
    create_guardian(home, settings)
    return home.settings_file.read_bytes()


_OWN_SCHEMA = Schema(
    name="own",
    labels=("label",),
    classes=("no", "yes"),
    columns=(Standardised("a"),),
    site=None,
    patient=None,
    split=None,
    shares=(0.6, 0.25, 0.15),
)
_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_SETTINGS = CoordinatorSettings(
    consortium="test",
    coordinator="centre",
    listen="127.0.0.1:1",
    enrol_listen="127.0.0.1:2",
    address="127.0.0.1:1",
    enrol_address="127.0.0.1:2",
)
