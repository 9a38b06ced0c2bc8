"""Making a release: labels, student, statement, evidence and signature in one folder, written atomically."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any  # facts of JSON

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32
from numpy import ndarray

from coordinator.labelling.soft_labels import pool_facts, pool_labels
from coordinator.labelling.training import released_soft_labels, second_sum
from coordinator.release import folder as layout
from coordinator.release.charges import check_covered, missing_votes
from coordinator.release.evaluation import ReleasedEvaluation, check_required
from coordinator.release.evidence import ReleaseEvidence, collect, receipts
from coordinator.release.folder import ReleasedStudy, contents, signed_statement
from coordinator.release.pages import libraries
from coordinator.release.residuals import ReleasedResiduals
from coordinator.release.statement import EarlierRelease, Facts, stated_facts, statement
from coordinator.release.verify import verify_release
from coordinator.store.store import LabelledStudy
from coordinator.students.choice import Trained
from protocols.array_files import read_array
from protocols.crypto.identity import identify
from protocols.errors import DataCorrupt, InvalidInput, StorageFailed
from protocols.labelling.coordinator import stored_again
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.released import kept_signature
from protocols.private_files import private_folder
from protocols.reading import JSON_BYTES, read_bytes
from protocols.release.manifest import STATEMENT_FILE, write_manifest
from protocols.release.model_signature import write_model_signature
from protocols.release.sums import SOFT_DIGITS
from protocols.study.deployed import DeployedStudy
from protocols.study.queries import pool_digest
from protocols.study.queries_file import blocks_of
from protocols.study.study import party_of
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.sums.blocks import Blocks
from protocols.votes import ABSTAIN, NOT_ASKED
from runtime.distribution import installed_version
from runtime.files import folder_beside, put_in_place, write_atomically
from runtime.officers_file import Course, officers_file


def make_release(
    labelled: LabelledStudy,
    *,
    out: Path,
    key: ec.EllipticCurvePrivateKey,
    certificate: x509.Certificate,
    authority: x509.Certificate,
    trained: Trained | None,
    model: bytes | None = None,
    required: Sequence[str] = (),
    earlier: Sequence[Path],
    own: Sequence[Path],
    keep: Path | None,
    named: Sequence[Sequence[str]],
    unproven: Sequence[str],
    now: datetime.datetime,
) -> Path:
    """Writes and verifies the folder `out`, which must not exist, and the officer's file beside it; returns `out`.

    trained: the student, None for labels only; model: what judges were asked about, None if they were not; required:
    what its figures must surely be (evaluation.py); earlier: the folders of other earlier releases of the same
    consortium; own: what this coordinator kept of each of its releases, of which those of the same hospitals are named
    too, and of several releases of a study the last; keep: a new folder for the same of this one; named: sets of
    hospitals, for each of which the guarantee of a patient known to all of them is stated; unproven: the seats with a
    charge that no receipt covers, which the statement names; now: UTC. Only the released labels, or sums, depend on
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
    evidence = collect(labelled.ledger, study=labelled.study.digest)
    # The frames are opened before anything is written: one that holds votes ends the release here.
    opened = receipts(evidence, authority=authority)
    check_covered(labelled.study, evidence, opened, unproven=unproven)
    given = [_earlier(path, authority, now) for path in earlier]
    released, beside_records = _released(labelled)
    if trained is not None and model is not None and labelled.study.votes.evaluation is not None:
        released = replace(released, evaluation=_evaluation(labelled, model))
    judged = None if released.evaluation is None else released.evaluation.to_json(labelled.study)["figures"]
    check_required(required, judged, terms.class_names, terms.findings)
    stated = stated_facts(
        created=now.isoformat(),
        software=installed_version(),
        stop=labelled.stop,
        left_out=missing_votes(evidence, labelled.left_out),
        differences=labelled.differences,
        named=tuple(tuple(each) for each in named),
        unproven=tuple(unproven),
        libraries=libraries(),
        pool=beside_records,
    )
    before = _before(labelled.study, given, own, authority)
    ordered = tuple(each for _, each in before)
    made = statement(Facts(released.study, released.labels, released.reinforced, evidence, opened, ordered, stated))
    with folder_beside(out) as part:
        student = None
        if trained is not None:
            from coordinator.release.export import write_student  # ONNX Runtime, which a release of labels does without

            judged_one = model if released.evaluation is not None else None
            student = write_student(part, released, trained, _pool(labelled), judged=judged_one)
        files = contents(
            released,
            evidence,
            made,
            student,
            queries=_QUERIES[type(labelled.study.votes)](labelled),
            signatures=_signatures(labelled, evidence),
            coordinator=certificate,
            authority=authority,
        )
        for position, (source, _) in enumerate(before, start=1):
            for name in layout.EARLIER_FILES:
                files[f"{layout.EARLIER_FOLDER}/{position:03}/{name}"] = read_bytes(source / name, most=JSON_BYTES)
        for name, content in files.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        write_manifest(part, study=labelled.study.digest, created=now, key=key)
        write_model_signature(part, name=labelled.study.name, key=key, certificate=certificate)
        for path in [part, *part.rglob("*")]:  # for everybody to read
            path.chmod(0o755 if path.is_dir() else 0o644)
        of_pool = trained is not None or released.pool is not None
        checks = verify_release(part, authority=None, pool=labelled.pool if of_pool else None, now=now)
        failed = [check for check in checks if check.passed is False]
        if failed:
            raise DataCorrupt(
                f"the release does not verify, and was not written: {failed[0].name}: {failed[0].message}"
            )
        try:
            if keep is not None:  # before anybody can see the release: if in vain, it is only counted too often
                private_folder(keep.parent)
                with folder_beside(keep) as kept:  # whole or absent: one that is neither would stop every later release
                    for name in layout.EARLIER_FILES:
                        write_atomically(kept / name, (part / name).read_bytes())
                    put_in_place(kept, keep)
            write_atomically(beside, _officers_file(labelled, now))
            put_in_place(part, out)
        except BaseException:
            if not out.exists():  # another command may have made it meanwhile, with the same file
                beside.unlink(missing_ok=True)
            raise
    return out


def officers_file_of(out: Path) -> Path:
    """Where the officer's file of a release lies: beside its folder, as people write into it and it is not signed."""
    return out.with_name(f"{out.name}-officers-file.html")


def _officers_file(labelled: LabelledStudy, now: datetime.datetime) -> str:
    asked = Course(
        released=now.isoformat(timespec="seconds"),
        asked=int((labelled.labels != NOT_ASKED).sum()),
        answered=int((labelled.labels >= 0).sum()),
        ended=next((words for stop, words in STOP_MEANINGS.items() if stop == labelled.stop), "the labelling stopped"),
    )
    return officers_file(labelled.study, asked=asked)


def _released(labelled: LabelledStudy) -> tuple[ReleasedStudy, dict[str, Any] | None]:
    """What is released of a labelling, and of its pool beside the records. Raises DataUnavailable, DataCorrupt,
    InvalidInput."""
    reinforced = np.where(labelled.labels == ABSTAIN, labelled.reinforced, ABSTAIN)
    if labelled.cells is None or not labelled.study.votes.pool:
        return ReleasedStudy(labelled.study, labelled.labels, reinforced, None, labelled.cells), None
    pool = _pool(labelled)
    made = released_soft_labels(labelled, pool)
    assert made is not None  # there are sums
    queries, soft = made
    labels = pool_labels(queries, pool, soft)
    # As the file will have them, so that whoever reads it counts the same likeliest classes.
    given = replace(labels, probabilities=np.round(labels.probabilities, SOFT_DIGITS))
    released = ReleasedStudy(labelled.study, labelled.labels, reinforced, given, labelled.cells)
    with Ledger(labelled.ledger) as ledger:
        again, run = second_sum(labelled, ledger), ledger.bind(study=labelled.study.digest, run=b"")
    residuals = None if again is None else ReleasedResiduals(run, again)
    return replace(released, residuals=residuals), pool_facts(soft.compared, pool)


def _evaluation(labelled: LabelledStudy, model: bytes) -> ReleasedEvaluation | None:
    """What judges said of a model, None where they have not."""
    with Ledger(labelled.ledger) as ledger:
        judgement, run = stored_again(labelled.study, ledger), ledger.bind(study=labelled.study.digest, run=b"")
    if judgement is None:
        return None
    return ReleasedEvaluation.of(labelled.study, judgement, model, _pool(labelled), run=run)


def _signatures(labelled: LabelledStudy, evidence: ReleaseEvidence) -> dict[int, bytes] | None:
    """The guardian's signature of each batch that was released; None if the study has no guardian."""
    if not labelled.study.confidentiality.second_server:
        return None
    with Ledger(labelled.ledger) as ledger:
        found = {
            charge.number: kept_signature(ledger, labelled.study, bytes.fromhex(charge.request))
            for charge in evidence.charges
            if charge.settled is not None
        }
    return {number: each for number, each in found.items() if each is not None}


def _earlier(path: Path, authority: x509.Certificate, now: datetime.datetime) -> Path:
    """The folder of an earlier release of the same authority, verified; `path` may also be its privacy.json."""
    folder = path.parent if path.name == STATEMENT_FILE else path
    signed_statement(folder, authority)
    failed = [check for check in verify_release(folder, authority=None, now=now) if check.passed is False]
    if failed:
        raise DataCorrupt(f"the earlier release {folder} does not verify: {failed[0].name}: {failed[0].message}")
    return folder


def _before(
    study: DeployedStudy, given: Sequence[Path], own: Sequence[Path], authority: x509.Certificate
) -> list[tuple[Path, EarlierRelease]]:
    """The earlier releases to name, with their folders, the oldest first: those given, the own ones with a hospital
    of the study, and the own ones that one of these names. Raises DataCorrupt, Refused."""
    found = [(path, signed_statement(path, authority)) for path in given]
    made = sorted(((path, signed_statement(path, authority)) for path in own), key=lambda each: each[1].created)
    kept = {each.study: (path, each) for path, each in made}.values()
    hospitals = {party_of(seat.party) for seat in study.roster}
    while True:
        known = {study.digest.hex(), *(each.study for _, each in found)}
        named = {digest for _, each in found for digest in each.before}
        others = [(path, each) for path, each in kept if each.study not in known]
        more = [(path, each) for path, each in others if hospitals & set(each.parties) or each.study in named]
        if not more:
            return sorted(found, key=lambda each: each[1].created)
        found += more


def _pool(labelled: LabelledStudy) -> Float32[ndarray, "queries ..."]:
    """The study's pool. Raises DataUnavailable, DataCorrupt."""
    pool: Float32[ndarray, "queries ..."] = read_array(labelled.pool)
    if pool_digest(pool) != labelled.study.terms.pool_sha256:
        raise DataCorrupt(f"{labelled.pool} is not the study's pool of public queries")
    return pool


# The queries that are released.
_QUERIES: dict[type[Votes], Callable[[LabelledStudy], Blocks | None]] = {
    TeacherVotes: lambda labelled: None,
    UnitSums: lambda labelled: blocks_of(labelled.study, labelled.queries if labelled.study.votes.given else None),
}
