"""A release's folder as values: what `release` writes and `verify` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # parsed JSON, checked below

import numpy as np
from cryptography import x509
from jaxtyping import Int64
from numpy import ndarray

from coordinator.release.earlier import EarlierRelease, read_statement
from coordinator.release.evidence import Receipt, ReleaseEvidence
from coordinator.release.statement import Facts, stated_facts
from protocols import reading
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput
from protocols.ranges import whole
from protocols.release.labels import read_labels
from protocols.release.manifest import (
    COORDINATOR_FILE,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    check_file,
    read_manifest,
    signer,
)
from protocols.release.sums import SOFT_LABELS_FILE, PoolLabels, labels_of, read_soft_labels, read_sums
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed
from protocols.votes import ABSTAIN

STUDY_FILE, STUDENT_FIGURES_FILE = "study.toml", "student.json"
STATEMENT_FILE, PRIVACY_FILE, REPORT_FILE, CARD_FILE = "privacy.json", "privacy.html", "report.html", "model_card.md"
# CycloneDX's name for a bill of materials in JSON.
BILL_FILE = "sbom.cdx.json"
EARLIER_FOLDER = "evidence/earlier"
# The files kept of an earlier release: enough to check who signed its statement.
EARLIER_FILES = (STATEMENT_FILE, MANIFEST_FILE, SIGNATURE_FILE, COORDINATOR_FILE)


@dataclass(frozen=True, eq=False)
class Released:
    """What was released: study, labels and reinforced labels; where records vote, the soft labels of the pool."""

    study: DeployedStudy
    labels: Int64[ndarray, " queries"] = field(repr=False)
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    pool: PoolLabels | None = field(default=None, repr=False)

    @property
    def counts(self) -> list[int]:
        """The number of released labels of each class; where records vote, of the pool's likeliest classes."""
        if self.pool is not None:
            return np.bincount(self.pool.probabilities.argmax(axis=1), minlength=self.study.classes).tolist()
        if self.study.records is not None:
            return [0] * self.study.classes
        return np.bincount(self.labels[self.labels >= 0], minlength=self.study.classes).tolist()


def read_released(folder: Path) -> Released:
    """Study and labels of a release. Raises DataCorrupt if they do not match, InvalidInput for an invalid study
    file."""
    study = read_deployed(folder / STUDY_FILE)
    if study.records is not None:
        return _read_sums(folder, study)
    labels, reinforced = read_labels(folder, classes=study.classes)
    if len(labels) != study.terms.pool_size:
        raise DataCorrupt(f"labels of {len(labels)} queries; the study's pool has {study.terms.pool_size}")
    if (reinforced >= 0).any() and not study.mechanism.interactive:
        raise DataCorrupt("labels are reinforced by a student, but the study's mechanism is not interactive")
    return Released(study, labels, reinforced)


def _read_sums(folder: Path, study: DeployedStudy) -> Released:
    """What a study in which records vote released. Raises DataCorrupt, also for soft labels without sums."""
    cells = read_sums(folder, study)
    if cells is None and ((folder / SOFT_LABELS_FILE).exists() or (folder / STUDENT_FIGURES_FILE).exists()):
        raise DataCorrupt("soft labels or a student are released without the sums that they are made of")
    labels = labels_of(study, cells)
    pool = None if cells is None else read_soft_labels(folder, study)
    return Released(study, labels, np.full(len(labels), ABSTAIN, dtype=np.int64), pool)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises DataCorrupt."""
    try:
        value = reading.read_json(path)
    except DataUnavailable as error:
        raise DataCorrupt(f"{path.name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise DataCorrupt(f"{path.name} holds a {type(value).__name__}; allowed: a JSON object")
    return value


def to_json(value: Mapping[str, Any]) -> str:
    """The JSON text as it is written to the file: keys in the statement's order, no NaN."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def student_figures(folder: Path) -> dict[str, Any] | None:
    """The figures of the student, or None if the release has no student. Raises DataCorrupt."""
    path = folder / STUDENT_FIGURES_FILE
    return read_json(path) if path.exists() else None


def read_earlier(folder: Path, authority: x509.Certificate) -> tuple[EarlierRelease, ...]:
    """The earlier releases stored in a release, each with its statement's signature checked against the same authority.

    Raises DataCorrupt, InvalidInput, Refused.
    """
    kept = folder / EARLIER_FOLDER
    if not kept.is_dir():
        return ()
    return tuple(signed_statement(each, authority) for each in sorted(kept.iterdir()))


def signed_statement(folder: Path, authority: x509.Certificate) -> EarlierRelease:
    """The statement in the folder of a release, or of the files kept of it, after checking signature and hash."""
    signer(folder, authority)
    _, _, files = read_manifest(folder)
    check_file(folder, STATEMENT_FILE, files)
    return read_statement(folder / STATEMENT_FILE)


def facts_of(
    released: Released,
    evidence: ReleaseEvidence,
    receipts: list[Receipt],
    earlier: tuple[EarlierRelease, ...],
    statement: Mapping[str, Any],
) -> Facts:
    """The facts needed to make a statement again, taken from the one that was read. Raises DataCorrupt."""
    try:
        given = dict(statement["stated_by_the_coordinator"])
        stated = stated_facts(
            created=str(given["created"]),
            software=str(given["software"]),
            stop=str(given["stop"]),
            left_out={
                str(seat): {str(int(number)): str(code) for number, code in batches.items()}
                for seat, batches in given["left_out"].items()
            },
            differences={
                str(seat): whole(STATEMENT_FILE, "differences_nano", nano)
                for seat, nano in given["differences_nano"].items()
            },
            named=tuple(tuple(str(name) for name in each) for each in given["named_hospitals"]),
            unproven=tuple(str(seat) for seat in given["unproven"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(f"{STATEMENT_FILE}: the coordinator's stated facts are incomplete: {error!r:.200}") from None
    if stated != given:
        raise InvalidInput(f"{STATEMENT_FILE}: the coordinator's stated facts hold keys or values that are not allowed")
    return Facts(released.study, released.labels, released.reinforced, evidence, receipts, earlier, stated)
