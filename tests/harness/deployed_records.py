"""A study between three hospitals in which records vote, with its pool, its queries and their tables of records."""

from functools import partial
from pathlib import Path

import numpy as np

from coordinator.labelling.study_creation import plan_records
from coordinator.queries.choice import QueryChoice
from protocols.features.scored_model import ScoredModel
from protocols.study.deployed import DeployedStudy, deployed
from protocols.study.levels import Clear, Confidentiality
from protocols.study.study import Seat, Study
from protocols.study.terms import Terms
from protocols.study.votes import UnitSums
from protocols.sums.blocks import Blocks
from protocols.sums.contributions import contribution_sum, said
from protocols.sums.judging import Evaluation, judged
from protocols.sums.residuals import FirstScores, residual_sum
from tests.harness.homes import FEATURES
from tests.harness.studies import DEADLINE_S, pool_of

POOL = pool_of(40, len(FEATURES))
HOSPITALS = tuple(f"hospital-{number}" for number in range(3))
POPULATION = 300


def draft(
    *,
    unit: str = "record",
    level: Confidentiality | None = None,
    epsilon: float = 2.0,
    quorum: int = 2,
    population: int = POPULATION,
    share: float | None = None,
    findings: tuple[str, ...] = (),
    residuals: bool = False,
) -> DeployedStudy:
    """What an operator writes before the queries are made."""
    study = Study(
        name="test",
        classes=2 * max(1, len(findings)),
        findings=findings,
        votes=UnitSums(
            queries=2,
            votes=1,
            signed=False,
            queries_sha256="0" * 64,
            population=population,
            sigma=8.0,
            evaluation=share and Evaluation(share=share, key="0" * 64, bins=6, rows=8, threshold=0.5),
            residuals=residuals,
        ),
        unit=unit,
        accountant_name="gaussian",
        quorum=quorum,
        confidentiality=level or Clear(units=1024),
        roster=tuple(Seat(party=name, epsilon=epsilon, delta=1e-5, weight=1.0, rate=1.0) for name in HOSPITALS),
    )
    terms = Terms(
        task="tell left from right",
        class_names=("left", "right"),
        label="" if findings else "side",
        input_shape=(len(FEATURES),),
        pool_size=1,
        pool_sha256="0" * 64,
        deadline_s=DEADLINE_S,
        coordinator="centre",
        ends="2999-12-31",
        features=FEATURES,
        findings=findings,
    )
    return deployed(study, terms)


def record_study_of(kind: str = "columns", **how) -> tuple[DeployedStudy, Blocks]:
    """The study and its queries: two cells of each of four columns, so a record votes in four of eight; or graded."""
    planned = plan_records(draft(**how), POOL, choice=QueryChoice(kind=kind), rule="exhaustive")
    return planned.study, planned.queries


def records_of(seat: str, *, rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a hospital's records; the first feature says the class."""
    features = np.random.default_rng(HOSPITALS.index(seat)).normal(size=(rows, len(FEATURES))).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64)


def labels_of(study: DeployedStudy, features: np.ndarray) -> np.ndarray:
    """A record's label, which its first feature says; of several findings each is said by a feature, and every fifth
    record does not know the last."""
    if not study.findings:
        return (features[:, 0] > 0).astype(np.int64)
    found = (features[:, : len(study.findings)] > 0.5).astype(np.int64)
    found[::5, -1] = -1
    return found


def judging(study: DeployedStudy, rows: int) -> np.ndarray:
    """Which of a hospital's records judge."""
    terms = study.votes.evaluation
    return np.zeros(rows, dtype=bool) if terms is None else terms.judges([str(row) for row in range(rows)])


def sum_of(study: DeployedStudy, queries: Blocks, seat: str) -> np.ndarray:
    """What a hospital sends, computed here from its records; each is a unit of its own."""
    features, _ = records_of(seat)
    labels = labels_of(study, features)
    weight = round(study.roster[study.seats[seat]].weight * study.units)
    votes = ~judging(study, len(labels))
    spoken = said(queries, features[votes], labels[votes], classes=study.classes)
    return contribution_sum(queries, spoken, None, weight_units=weight, classes=study.classes)


def judged_by(study: DeployedStudy, model: bytes, seat: str) -> np.ndarray:
    """What a hospital's judges say of a model."""
    features, _ = records_of(seat)
    labels, scored = labels_of(study, features), ScoredModel.from_bytes(model)
    weight, judges = round(study.roster[study.seats[seat]].weight * study.units), judging(study, len(labels))
    given = scored.probabilities(features[judges], classes=study.labelled.said)
    terms, of = study.votes.evaluation, {"signed": study.votes.signed, "thresholds": scored.thresholds}
    found = judged(terms, given, labels[judges], None, weight_units=weight, **of)
    return found.reshape(study.votes.rows_again, study.classes)


def record_voter(study: DeployedStudy, queries: Blocks, seat: str):
    """A Voter of these records."""
    again = partial(residuals_by, queries=queries) if study.votes.residuals else judged_by
    return lambda batch: again(study, batch.model, seat) if batch.model else sum_of(study, queries, seat)


def residuals_by(study: DeployedStudy, model: bytes, seat: str, *, queries: Blocks) -> np.ndarray:
    """What a hospital's records say of the first sum's scores."""
    weight = round(study.roster[study.seats[seat]].weight * study.units)
    first = FirstScores.from_bytes(model, rows=queries.rows, classes=study.classes)
    return residual_sum(first, said(queries, *records_of(seat), classes=study.classes), None, weight_units=weight)


def write_queries(folder: Path, queries: Blocks) -> Path:
    """queries.npz, as the operator sends it."""
    path = folder / "queries.npz"
    path.write_bytes(queries.to_bytes())
    return path


def with_sum_queries(study: DeployedStudy, number: int) -> DeployedStudy:
    """The study, named after another digest of queries."""
    return study.voting(queries_sha256=f"{number:064x}")
