"""The demo's studies, in which teachers or records vote, and their data: records, public queries and labels that judge.

They are the patients of the four real hospitals of the UCI Heart Disease data set, which come with the package.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.data.files import CsvFile
from party.data.records import DataSettings, table_records
from protocols.errors import InvalidInput
from protocols.mechanisms import ThresholdedGNMax
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import Clear
from protocols.study.queries import pool_digest
from protocols.study.study import Seat
from protocols.study.terms import Feature, Terms
from protocols.study.votes import TeacherVotes, UnitSums
from runtime.shipped import heart_disease

TASK = "Tell patients with narrowed coronary vessels from patients without."
HOSPITALS = tuple(heart_disease.about()["checksums"])
_PUBLIC, _TEST = 250, 170


@dataclass(frozen=True, eq=False)
class DemoData:
    """What each hospital holds (header and rows of a CSV), and what is public.

    pool: public queries; test_inputs and their labels judge the student.
    """

    class_names: tuple[str, ...]
    label: str
    features: tuple[Feature, ...]
    header: list[str]
    rows: dict[str, list[list[str]]] = field(repr=False)
    pool: Float32[ndarray, "queries features"] = field(repr=False)
    test_inputs: Float32[ndarray, "tests features"] = field(repr=False)
    test_labels: Int64[ndarray, " tests"] = field(repr=False)

    @property
    def hospitals(self) -> tuple[str, ...]:
        """The names of the hospitals."""
        return tuple(self.rows)


def demo_data(folder: Path | None) -> DemoData:
    """The four hospitals' records: of the copy in `folder`, if it has one, else of the one that comes with the package.

    Public queries and test records are taken out, in proportion from every hospital; the rest stays private. Raises
    DataUnavailable and DataCorrupt for a copy that is not whole.
    """
    about, features = heart_disease.about(), heart_disease.features()
    class_names, header, rows = tuple(about["classes"]), about["header"], {}
    for name, lines in heart_disease.hospital_lines(folder).items():
        rows[name] = [[*row[:-1], class_names[row[-1] != "0"]] for row in heart_disease.cleaned(lines)]
    rng, total = np.random.default_rng(1), sum(len(each) for each in rows.values())
    public: list[list[str]] = []
    tests: list[list[str]] = []
    private = {}
    for name, each in rows.items():
        order = rng.permutation(len(each))
        asked, kept = (round(size * len(each) / total) for size in (_PUBLIC, _TEST))
        public += [each[at] for at in order[:asked]]
        tests += [each[at] for at in order[asked : asked + kept]]
        private[name] = [each[at] for at in order[asked + kept :]]
    pool, _ = encoded_rows(public, header, features, class_names)
    test_inputs, test_labels = encoded_rows(tests, header, features, class_names)
    return DemoData(class_names, header[-1], features, header, private, pool, test_inputs, test_labels)


def encoded_rows(
    rows: list[list[str]], header: list[str], features: tuple[Feature, ...], class_names: tuple[str, ...]
) -> tuple[Float32[ndarray, "rows features"], Int64[ndarray, " rows"]]:
    """Inputs and class ids of rows, encoded as the hospitals' nodes would."""
    terms = Terms(
        task="demo",
        class_names=class_names,
        label=header[-1],
        input_shape=(sum(feature.width for feature in features),),
        pool_size=1,
        pool_sha256="0" * 64,
        deadline_s=1.0,
        coordinator="centre",
        ends="2999-12-31",
        features=features,
    )
    columns = {name: [row[at] for row in rows] for at, name in enumerate(header)}
    records = table_records(columns, DataSettings(name="demo", loader="csv", source=CsvFile(Path("demo"))), terms)
    return records.inputs, records.labels


_TEACHERS, EPSILON, DELTA = 12, 8.0, 1e-5
RECORD_EPSILON = 1.0
_SIGMA, _THRESHOLD = 7.0, 30.0
_UNITS = 1024
# Far more than the teachers need on a quiet machine: the demo must also end on a busy one.
_DEADLINE_S = 180.0


def demo_study(data: DemoData, *, unit: str = "record") -> DeployedStudy:
    """The study in which teachers vote; its noise is chosen for 4 x TEACHERS votes and EPSILON per record."""
    return DeployedStudy(
        name="demo",
        classes=2,
        votes=TeacherVotes(
            mechanism=ThresholdedGNMax(sigma=_SIGMA, threshold=_THRESHOLD),
            view="label",
            teachers=_TEACHERS,
            query_limit=len(data.pool),
            batch_limit=50,
            answer_rate=1.0,
            stop="first-exhausted",
            participation_name="all",
        ),
        unit=unit,
        # Exact composition holds where a unit moves one vote.
        accountant_name="exact_composition" if unit == "record" else "label_only",
        quorum=4,
        confidentiality=Clear(),
        roster=_roster(data, EPSILON),
        terms=_terms(data),
    )


def record_draft(data: DemoData) -> DeployedStudy:
    """The draft of the study in which records vote, before the operator's command makes its queries."""
    return DeployedStudy(
        name="demo",
        classes=2,
        votes=UnitSums(
            queries=2,
            votes=1,
            signed=False,
            queries_sha256="0" * 64,
            population=sum(len(each) for each in data.rows.values()),
            sigma=8.0,
        ),
        unit="record",
        accountant_name="gaussian",
        quorum=4,
        confidentiality=Clear(units=_UNITS),
        roster=_roster(data, RECORD_EPSILON),
        terms=_terms(data),
    )


# The study that the demo begins with, by who votes.
DRAFTS = {TeacherVotes.by: demo_study, UnitSums.by: record_draft}


def labels_for_whole_hospitals(data: DemoData) -> int:
    """The number of labels that teachers' budgets would afford if all of a hospital's data were the unit."""
    try:
        budgets = demo_study(data, unit="party").budgets
    except InvalidInput:  # the budgets do not afford one query
        return 0
    return int(budgets.affordable(np.zeros(len(data.hospitals), dtype=np.int64), limit=len(data.pool)).min())


# What people call the hospitals of the data set (its file heart-disease.names).
_NAMES = {
    "cleveland": "Cleveland Clinic Foundation",
    "hungarian": "Magyar Kardiológiai Intézet, Budapest",
    "switzerland": "Universitätsspitäler Zürich und Basel",
    "va": "V.A. Medical Center, Long Beach",
}


def _roster(data: DemoData, epsilon: float) -> tuple[Seat, ...]:
    return tuple(
        Seat(party=name, epsilon=epsilon, delta=DELTA, weight=1.0, rate=1.0, display_name=_NAMES.get(name))
        for name in data.hospitals
    )


def _terms(data: DemoData) -> Terms:
    return Terms(
        task=TASK,
        class_names=data.class_names,
        label=data.label,
        input_shape=data.pool.shape[1:],
        pool_size=len(data.pool),
        pool_sha256=pool_digest(data.pool),
        deadline_s=_DEADLINE_S,
        coordinator="centre",
        ends="2999-12-31",
        features=data.features,
    )
