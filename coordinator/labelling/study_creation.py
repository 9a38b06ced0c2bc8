"""Creating a study: its pool, the queries where records vote, and the checks before anybody is asked to approve it.

Nothing here looks at a private record: the pool, the terms' columns, budgets and the public number of records are all.
No pickle is read.
"""

from __future__ import annotations

import datetime
import io
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32
from numpy import ndarray

from coordinator.home import CoordinatorSettings
from coordinator.queries import choice_between_batches
from coordinator.queries.choice import GRADED, QueryChoice, make_queries
from coordinator.store.store import Store
from protocols.array_files import read_array
from protocols.crypto.identity import certificate_from_pem, check_name, encoded_point
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.plural import at_most
from protocols.private_files import private_folder
from protocols.release.sums import QUERIES_FILE
from protocols.study.count_cells import NO_LABEL, count_cells, counted_feature
from protocols.study.deployed import DeployedStudy, deployed
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import NO_POOL
from protocols.study.purposes import ForCounts
from protocols.study.queries import no_inputs, pool_digest
from protocols.study.queries_file import blocks_of, check_shape
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study_of_draft
from protocols.study.released_noise import noise_of_mean
from protocols.study.study import Study
from protocols.study.terms import Feature
from protocols.study.votes import unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.judging import Evaluation, usual_score_bins
from runtime.files import folder_beside, put_in_place, write_atomically
from runtime.tables import read_pool_file


def read_pool(
    path: Path, *, features: Sequence[Feature] = (), labels: Sequence[str] = ()
) -> Float32[ndarray, "queries ..."]:
    """The queries in a file, as float32. features: how columns of a table are encoded; if empty, all are numbers;
    labels: the study's columns that a pool of public records does not have.

    Raises DataUnavailable, DataCorrupt, and InvalidInput for an unknown kind of file, a label or missing columns.
    """
    given = read_pool_file(path, features, mapped=False, labels=labels)
    if not (np.issubdtype(given.dtype, np.floating) or np.issubdtype(given.dtype, np.integer)):
        raise InvalidInput(f"pool file {path.name} holds {given.dtype}; allowed: numbers")
    if given.ndim < 2 or given.size == 0:
        raise InvalidInput(f"pool file {path.name} holds an array {given.shape}; allowed: [queries, features, ...]")
    with np.errstate(over="ignore"):
        pool = np.ascontiguousarray(given, dtype="<f4")
    finite = np.isfinite(pool).reshape(len(pool), -1).all(axis=1)
    if not finite.all():
        raise InvalidInput(
            f"pool file {path.name}: query {int(finite.argmin())} has a value that is missing, infinite or beyond "
            f"float32 ({int((~finite).sum())} of {len(pool)} have); allowed: finite numbers"
        )
    return pool


def check_pool(pool: Float32[ndarray, "queries ..."], study: DeployedStudy) -> None:
    """Raises InvalidInput unless this is the pool that the study's terms name."""
    terms = study.terms
    if pool.shape[1:] != terms.input_shape:
        raise InvalidInput(f"queries have the shape {pool.shape[1:]}; allowed: terms.input_shape, {terms.input_shape}")
    if len(pool) != terms.pool_size:
        raise InvalidInput(f"the pool has {len(pool)} queries; allowed: terms.pool_size, {terms.pool_size}")
    digest = pool_digest(pool)
    if digest != terms.pool_sha256:
        raise InvalidInput(
            f"the pool's hash is {digest}; allowed: terms.pool_sha256, {terms.pool_sha256}. If this is the "
            "intended pool, leave pool_size and pool_sha256 out of the study file, and they are filled in"
        )


def write_pool(path: Path, pool: Float32[ndarray, "queries ..."]) -> None:
    """Stores a pool as .npy. Raises StorageFailed."""
    buffer = io.BytesIO()
    np.save(buffer, pool, allow_pickle=False)
    write_atomically(path, buffer.getvalue())


def stored_pool(path: Path, study: DeployedStudy) -> Float32[ndarray, "queries ..."]:
    """A stored pool, checked and memory-mapped. Raises DataUnavailable, DataCorrupt, InvalidInput as check_pool."""
    pool = read_array(path, mapped=True)
    check_pool(pool, study)
    return pool


def stored_inputs(path: Path, study: DeployedStudy) -> Float32[ndarray, "queries ..."]:
    """What is sent of a study's queries: its stored pool, or only their number. Raises as stored_pool."""
    if study.sent_shape == (0,):
        return no_inputs(study.queries_to_ask)
    pool, rows = stored_pool(path, study), study.votes.asks.rows
    return pool if rows == 1 else np.repeat(pool, rows, axis=0)


def create_study(
    store: Store,
    settings: CoordinatorSettings,
    *,
    file: Path,
    pool_file: Path | None,
    queries_file: Path | None = None,
    today: datetime.date,
) -> DeployedStudy:
    """Checks a study and its pool and stores both; stores nothing if anything is wrong.

    What the file leaves out of the pool's shape, size and hash is filled in from the pool; where a querier asks, the
    size is the query limit. queries_file: where records vote; today: in UTC. Raises InvalidInput with what is wrong,
    BudgetExceeded if a budget cannot pay for one query, and StorageFailed.
    """
    study, pool = _with_pool(file, pool_file, keys=lambda party: signing_key(store, party))
    check_name(study.name)
    terms = study.terms
    if terms.coordinator != settings.coordinator:
        raise InvalidInput(
            f"terms.coordinator is {terms.coordinator!r}; allowed: {settings.coordinator!r}, this coordinator"
        )
    if terms.ended(today):
        raise InvalidInput(f"terms.ends is {terms.ends}, which is over; allowed: today, {today}, or later")
    _check_budgets(study)
    if pool is not None:
        # It refuses a pool, or an installation, that it cannot choose from.
        choice_between_batches(study.votes.questions, pool, columns=study.terms.features)
    queries = _queries(study, queries_file)
    if study.name in store.studies():
        raise InvalidInput(f"study {study.name!r} exists; allowed: another name")
    folder = store.home.study(study.name)
    private_folder(folder.parent)
    with folder_beside(folder) as part:
        write_atomically(part / "study.toml", write_study(study))
        if pool is not None:
            write_pool(part / "pool.npy", pool)
        if queries is not None:
            write_atomically(part / QUERIES_FILE, queries.to_bytes())
        with store.together():
            store.add_study(study)
            if (folder / "ledger.sqlite").exists():
                raise InvalidInput(f"{folder} holds a ledger that the store does not know; allowed: another name")
            # It may have been left by a creation that was interrupted before the store recorded it.
            put_in_place(part, folder, replace=True)
    return study


def read_draft(file: Path, *, keys: Callable[[str], str | None]) -> DeployedStudy:
    """A study file that may leave out what follows from the pool; those of its terms are placeholders then.

    Raises InvalidInput as read_deployed does.
    """
    return read_deployed(file, keys=keys, left_out={"input_shape": [1], "pool_size": 1, "pool_sha256": "0" * 64})


def terms_of(pool: Float32[ndarray, "queries ..."]) -> dict[str, object]:
    """What a study's terms say of its pool."""
    return {"input_shape": list(pool.shape[1:]), "pool_size": len(pool), "pool_sha256": pool_digest(pool)}


def _with_pool(
    file: Path, pool_file: Path | None, *, keys: Callable[[str], str | None]
) -> tuple[DeployedStudy, Float32[ndarray, "queries ..."] | None]:
    """The study and its public queries; None if a querier asks about its own, which nobody else sees."""
    draft = read_draft(file, keys=keys)
    level = draft.confidentiality
    asked = f"{level.asked_by!r} asks about records of its own" if level.asked_by else "a count has no queries"
    if (pool_file is None) != bool(level.asked_by or not draft.votes.pool):
        raise InvalidInput(
            "a pool is missing; allowed: --pool FILE"
            if pool_file is None
            else f"--pool {pool_file} is given, but {asked}; allowed: no pool"
        )
    if pool_file is None:
        return read_deployed(file, keys=keys, left_out={"pool_size": draft.query_limit, "pool_sha256": NO_POOL}), None
    pool = read_pool(pool_file, features=draft.terms.features, labels=draft.terms.labels)
    study = read_deployed(file, keys=keys, left_out=terms_of(pool))
    check_pool(pool, study)
    return study, pool


def _queries(study: DeployedStudy, file: Path | None) -> Blocks | None:
    """The queries in which units vote; None where hospitals are given the pool."""
    if study.votes.evaluation is not None and study.votes.evaluation.drafted:
        raise InvalidInput("evaluation: key is only zeros; allowed: a key that `study queries` draws")
    return blocks_of(study, file) if study.votes.once else None


def signing_key(store: Store, party: str) -> str | None:
    """The public key of a party's certificate, which the roster names at level secure_sum; None if it has none."""
    denied = store.members.denied()
    keys = [
        encoded_point(key)
        for issued in store.members.certificates()
        if issued.name == party
        and issued.role == "party"
        and issued.serial not in denied
        and isinstance(key := certificate_from_pem(issued.pem).public_key(), ec.EllipticCurvePublicKey)
    ]
    return keys[-1] if keys else None


def _check_budgets(study: DeployedStudy) -> None:
    """Raises BudgetExceeded, naming the seat, unless every budget can pay for one query."""
    nothing_spent = np.zeros(len(study.roster), dtype=np.int64)
    poor = study.budgets.affordable(nothing_spent, limit=1) < 1
    if poor.any():
        seat = study.roster[int(poor.argmax())]
        raise BudgetExceeded(
            f"the budget of {seat.party!r}, epsilon {at_most(seat.epsilon)} at delta {at_most(seat.delta)}, "
            "cannot pay for a query; allowed: a larger epsilon, more noise, or a smaller weight"
        )


# Of sigma.
_DIGITS = 5


@dataclass(frozen=True, eq=False)
class PlannedRecords:
    """A study with its queries. study: the draft, with queries, noise and weights filled in."""

    study: DeployedStudy
    queries: Blocks


def plan_records(
    draft: DeployedStudy,
    pool: Float32[ndarray, "pool ..."],
    *,
    choice: QueryChoice,
    rule: str,
    residuals: bool | None = False,
) -> PlannedRecords:
    """The draft's study with the queries of this choice, and all that follows from them and the budgets.

    rule: of the weights; residuals: whether units are asked twice, as they are if the draft says so; None: where that
    is usual (usual_residuals). The draft's name, terms, unit, level, population, quorum and budgets stay; the terms get
    the pool's size and hash. Raises InvalidInput for a draft in which teachers vote, a pool that does not fit, queries
    that cannot be made of it, and a budget that affords nothing.
    """
    records, terms = unit_sums(draft), draft.terms
    if pool.shape[1:] != terms.input_shape:
        raise InvalidInput(f"the pool's records have the shape {pool.shape[1:]}; allowed: {terms.input_shape}")
    labelled = draft.labelled
    columns = labelled.columns(signed=True)
    plan = RecordVotesPlan.of_draft(
        draft, classes=columns, queries=ANY_SIGNED, rule=rule, evaluation=_judges(draft, columns),
        residuals=records.residuals or residuals, pool=len(pool),
    )  # fmt: skip
    noise = None
    if choice.kind == GRADED:
        # A label of several is shorter by the root of their number.
        noise = noise_of_mean(record_study_of_draft(plan, draft)) * labelled.told**0.5
    queries = make_queries(
        pool, terms.features, choice, population=records.population, classes=labelled.states, noise=noise
    )
    check_shape(queries, terms.input_shape)
    columns = labelled.columns(signed=queries.signed)
    plan = replace(plan, queries=queries, classes=columns, evaluation=_judges(draft, columns, plan.evaluation))
    made = _as_drafted(record_study_of_draft(plan, draft), draft, "population", "display_name")
    known = replace(terms, pool_size=len(pool), pool_sha256=pool_digest(pool))
    return PlannedRecords(deployed(made, known), queries)


def plan_count(draft: DeployedStudy) -> DeployedStudy:
    """The study that counts what the draft's columns hold: its cells, one weight, and the least noise that every budget
    affords. Values may be missing, and so may labels.

    Raises InvalidInput for a draft of another purpose, columns that cannot be counted, and as record_study does.
    """
    sums, terms = unit_sums(draft), draft.terms
    if not isinstance(sums.use, ForCounts):
        raise InvalidInput(
            f"records: purpose is {sums.purpose!r}; allowed: {ForCounts.name!r}, as in `study create --template "
            "--votes-by count`"
        )
    features = tuple(counted_feature(each) for each in terms.features)
    named = (*terms.class_names, *([NO_LABEL] if terms.label and NO_LABEL not in terms.class_names else []))
    terms = replace(
        terms, features=features, class_names=named, input_shape=(sum(each.width for each in features) or 1,)
    )
    blocks = count_cells(terms).blocks
    plan = RecordVotesPlan.of_draft(draft, classes=len(named), queries=blocks, rule="uniform")
    made = _as_drafted(record_study_of_draft(plan, draft), draft, "display_name")
    return deployed(made, replace(terms, pool_size=blocks.rows, pool_sha256=NO_POOL))


def _as_drafted(made: Study, draft: DeployedStudy, *keys: str) -> Study:
    """The study with what the draft says of each seat under these keys, on which no noise depends; and with its noise
    rounded up: more of it costs less, and a person can read it."""
    made = made.voting(sigma=_rounded_up(made.mechanism.label_sigma))
    seats = zip(made.roster, draft.roster, strict=True)
    return replace(made, roster=tuple(replace(s, **{key: getattr(d, key) for key in keys}) for s, d in seats))


def _judges(draft: DeployedStudy, columns: int, known: Evaluation | None = None) -> Evaluation | None:
    """What the study fixes about judges: the draft's share and threshold, a fresh key, or the known one, and bins for
    so many."""
    votes = unit_sums(draft)
    if votes.evaluation is None:
        return None
    share, drawn = votes.evaluation.share, votes.evaluation if known is None else known
    return Evaluation.of(
        share=share,
        key=bytes.fromhex(drawn.key) if not drawn.drafted else secrets.token_bytes(32),
        bins=usual_score_bins(share * votes.population),
        classes=columns,
        threshold=votes.evaluation.threshold,
        findings=len(draft.findings),
    )


def _rounded_up(sigma: float) -> float:
    step = 10.0 ** (floor(log10(sigma)) + 1 - _DIGITS)
    return float(f"{ceil(sigma / step) * step:.{_DIGITS}g}")


def study_lines(study: DeployedStudy) -> list[str]:
    """What a draft needs to become this study: the lines of its file, table by table."""
    records = unit_sums(study)
    lines = [
        *([f"classes = {study.classes}"] if study.findings else []),
        f'accountant_name = "{study.accountant_name}"',
        "",
        "[records]",
        f"sigma = {records.sigma!r}",
        f"queries = {records.queries}",
        f"votes = {records.votes}",
        f"signed = {str(records.signed).lower()}",
        f"partitions = {list(records.partitions)}",
        f'queries_sha256 = "{records.queries_sha256}"',
        *(["residuals = true  # units are asked twice"] if records.residuals else []),
        *_judge_lines(records.evaluation),
        "",
        "[terms]",
        f"pool_size = {study.terms.pool_size}",
        f'pool_sha256 = "{study.terms.pool_sha256}"',
    ]
    return lines + [f"# {seat.party}: weight = {seat.weight!r}" for seat in study.roster]


def _judge_lines(terms: Evaluation | None) -> list[str]:
    if terms is None:
        return []
    return ["", "[evaluation]", f'key = "{terms.key}"', f"bins = {terms.bins}", f"rows = {terms.rows}"]


def study_template(votes_by: str, findings: Sequence[str] = ()) -> str:
    """A commented study file, for teachers that vote ("teacher"), for records ("record"), or for a count ("count").
    findings: their names, none for one label of classes."""
    from runtime.templates import templates  # slow to import

    pages = templates("coordinator.labelling", autoescape=False)
    return pages.get_template(f"{votes_by}.toml.j2").render(findings=list(findings), rows=len(findings) or 1)
