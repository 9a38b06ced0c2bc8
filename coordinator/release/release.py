"""Making a release: labels, student, statement, evidence and signature in one folder, written atomically."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any  # figures of JSON

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.labelling.training import released_pool_labels
from coordinator.release import folder as layout
from coordinator.release.bill import bill_of_materials
from coordinator.release.charges import check_covered
from coordinator.release.evidence import collect, files_of, receipts
from coordinator.release.export import export_student
from coordinator.release.folder import Released, signed_statement, to_json
from coordinator.release.guardian_signed import signature_files
from coordinator.release.left_out import missing_votes
from coordinator.release.pages import model_card, privacy_page, report_page
from coordinator.release.statement import Facts, stated_facts, statement
from coordinator.release.verify import verify_release
from coordinator.store.labelled import LabelledStudy
from coordinator.students.trained import Trained
from protocols.array_files import read_array
from protocols.crypto.identity import identify, to_pem
from protocols.errors import DataCorrupt, InvalidInput, StorageFailed
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.release.labels import LABELS_FILE, labels_csv
from protocols.release.manifest import AUTHORITY_FILE, COORDINATOR_FILE, STUDENT_FEATURES_FILE, write_manifest
from protocols.release.model_signature import write_model_signature
from protocols.release.sums import (
    QUERIES_FILE,
    SOFT_LABELS_FILE,
    SUMS_FILE,
    PoolLabels,
    soft_labels_csv,
    sums_csv,
)
from protocols.study.file import write_study
from protocols.study.queries import pool_digest
from protocols.study.queries_file import read_query_map
from protocols.votes import ABSTAIN, NOT_ASKED
from runtime.distribution import installed_version
from runtime.files import folder_beside, put_in_place, write_atomically
from runtime.officers_file import Asked, officers_file


def make_release(
    labelled: LabelledStudy,
    *,
    out: Path,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    authority: x509.Certificate,
    trained: Trained | None,
    earlier: Sequence[Path],
    named: Sequence[Sequence[str]],
    unproven: Sequence[str],
    now: datetime.datetime,
) -> Path:
    """Writes and verifies the folder `out`, which must not exist, and the officer's file beside it; returns `out`.

    trained: the student, None for labels only; earlier: the folders of all earlier releases of the same consortium;
    named: sets of hospitals, for each of which the guarantee of a patient known to all of them is stated; unproven: the
    seats with a charge that no receipt covers, which the statement names; now: UTC. Only the released labels depend on
    votes. Raises InvalidInput, DataUnavailable, DataCorrupt, Refused, StorageFailed; then no folder is left behind.
    """
    terms = labelled.study.terms
    beside = officers_file_of(out)
    for path in (out, beside):
        if path.exists():
            raise InvalidInput(f"{path} exists; allowed: a new one, so that no release, or file of an officer, is lost")
    signed_by = identify(certificate, authority=authority, now=now, role="coordinator")
    if signed_by.name != terms.coordinator:
        raise InvalidInput(f"this is the coordinator {signed_by.name!r}; the study's is {terms.coordinator!r}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"cannot write {out}: {error.strerror or error}; choose another folder") from error
    with folder_beside(out) as part:
        _write(part, labelled, authority, certificate, trained, earlier, named, unproven, now)
        write_manifest(part, study=labelled.study.digest, created=now, key=key)
        write_model_signature(part, name=labelled.study.name, key=key, certificate=certificate)
        for path in [part, *part.rglob("*")]:  # for everybody to read
            path.chmod(0o755 if path.is_dir() else 0o644)
        # With the pool: a check that was not made in full would be a failed one here.
        failed = [
            check for check in verify_release(part, authority=None, pool=labelled.pool, now=now) if not check.passed
        ]
        if failed:
            raise DataCorrupt(
                f"the release does not verify, and was not written: {failed[0].name}: {failed[0].message}"
            )
        write_atomically(beside, _officers_file(labelled, now))
        try:
            put_in_place(part, out)
        except StorageFailed:
            beside.unlink()
            raise
    return out


def officers_file_of(out: Path) -> Path:
    """Where the officer's file of a release lies: beside its folder, as people write into it and it is not signed."""
    return out.with_name(f"{out.name}-officers-file.html")


def _officers_file(labelled: LabelledStudy, now: datetime.datetime) -> str:
    asked = Asked(
        released=now.isoformat(timespec="seconds"),
        asked=int((labelled.labels != NOT_ASKED).sum()),
        answered=int((labelled.labels >= 0).sum()),
        ended=next((words for stop, words in STOP_MEANINGS.items() if stop == labelled.stop), "the labelling stopped"),
    )
    return officers_file(labelled.study, asked=asked)


def _write(
    part: Path,
    labelled: LabelledStudy,
    authority: x509.Certificate,
    certificate: x509.Certificate,
    trained: Trained | None,
    earlier: Sequence[Path],
    named: Sequence[Sequence[str]],
    unproven: Sequence[str],
    now: datetime.datetime,
) -> None:
    """Writes all files except manifest and signature."""
    study = labelled.study
    reinforced = np.where(labelled.labels == ABSTAIN, labelled.reinforced, ABSTAIN)
    evidence = collect(labelled.ledger, study=study.digest)
    # The frames are opened before anything is written: one that holds votes ends the release here.
    opened = receipts(evidence, authority=authority)
    check_covered(study, evidence, opened, unproven=unproven)
    before = [_earlier(path, authority, now) for path in earlier]
    stated = stated_facts(
        created=now.isoformat(),
        software=installed_version(),
        stop=labelled.stop,
        left_out=missing_votes(evidence, labelled.left_out),
        differences=labelled.differences,
        named=tuple(tuple(each) for each in named),
        unproven=tuple(unproven),
    )
    ordered = tuple(signed_statement(path, authority) for path in before)
    made = statement(Facts(study, labelled.labels, reinforced, evidence, opened, ordered, stated))
    figures = None if trained is None else _student(part, labelled, trained)
    soft = None if study.records is None else released_pool_labels(labelled, _pool(labelled))
    counts = Released(study, labelled.labels, reinforced, soft).counts
    texts = {
        layout.STUDY_FILE: write_study(study),
        **_labels(labelled, reinforced, soft),
        **signature_files(study, labelled.ledger, evidence),
        layout.STATEMENT_FILE: to_json(made),
        layout.PRIVACY_FILE: privacy_page(made),
        layout.BILL_FILE: to_json(bill_of_materials(made, figures)),
        layout.CARD_FILE: model_card(made, figures, counts),
        layout.REPORT_FILE: report_page(made, figures, counts, list(labelled.batches)),
        COORDINATOR_FILE: to_pem(certificate).decode(),
        AUTHORITY_FILE: to_pem(authority).decode(),
        **files_of(evidence),
    }
    if figures is not None:
        texts[layout.STUDENT_FIGURES_FILE] = to_json(figures)
    if study.records is not None:
        (part / QUERIES_FILE).write_bytes(read_query_map(labelled.queries, study).to_bytes())
    for name, text in texts.items():
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    for position, source in enumerate(before, start=1):
        target = part / layout.EARLIER_FOLDER / f"{position:03}"
        target.mkdir(parents=True)
        for name in layout.EARLIER_FILES:
            shutil.copyfile(source / name, target / name)


def _labels(labelled: LabelledStudy, reinforced: Int64[ndarray, " queries"], soft: PoolLabels | None) -> dict[str, str]:
    """The files of labels, or of noisy sums and of the soft labels that are made of them."""
    if labelled.study.records is None:
        return {LABELS_FILE: labels_csv(labelled.labels, reinforced)}
    if labelled.cells is None or soft is None:
        return {}
    return {SUMS_FILE: sums_csv(labelled.cells), SOFT_LABELS_FILE: soft_labels_csv(soft)}


def _earlier(path: Path, authority: x509.Certificate, now: datetime.datetime) -> Path:
    """The folder of an earlier release of the same authority, verified; `path` may also be its privacy.json."""
    folder = path.parent if path.name == layout.STATEMENT_FILE else path
    signed_statement(folder, authority)
    failed = [check for check in verify_release(folder, authority=None, now=now) if check.passed is False]
    if failed:
        raise DataCorrupt(f"the earlier release {folder} does not verify: {failed[0].name}: {failed[0].message}")
    return folder


def _student(part: Path, labelled: LabelledStudy, trained: Trained) -> dict[str, Any]:
    """Writes the student's files, and that of the features that it sees; returns its figures."""
    pool, features = _pool(labelled), trained.features
    if features is not None:
        pool = features(np.asarray(pool))
        (part / STUDENT_FEATURES_FILE).write_bytes(features.to_bytes())
    exported = export_student(trained.student, pool, part)
    return {
        "kind": trained.kind,
        "seed": trained.seed,
        "labels": trained.labels,
        "reinforced": trained.reinforced,
        "unlabelled": trained.unlabelled,
        "agreement": trained.agreement,
        "files": list(exported.files),
        "input_shape": list(exported.input_shape),
        "classes": list(exported.classes),
        "onnx_agreement": exported.agreement,
        "features_sha256": None if features is None else features.digest,
        "encoders": [] if features is None else [each.origin() for each in features.encoders],
    }


def _pool(labelled: LabelledStudy) -> Float32[ndarray, "queries ..."]:
    """The study's pool. Raises DataUnavailable, DataCorrupt."""
    pool: Float32[ndarray, "queries ..."] = read_array(labelled.pool)
    if pool_digest(pool) != labelled.study.terms.pool_sha256:
        raise DataCorrupt(f"{labelled.pool} is not the study's pool of public queries")
    return pool
