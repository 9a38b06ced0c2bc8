"""The demo's studies, in which teachers or records vote, and their data: records, public queries and labels that judge.

The four hospitals of the UCI Heart Disease data set (Janosi, Steinbrunn, Pfisterer & Detrano 1989, doi 10.24432/C52P4X)
if available, otherwise scikit-learn's breast cancer data set (Wolberg, Mangasarian, Street & Street 1993, doi
10.24432/C5DW2B), split among four hospitals.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.data.files import CsvFile
from party.data.records import DataSettings, table_records
from protocols.errors import DataUnavailable, InvalidInput
from protocols.installing import install
from protocols.mechanisms import ThresholdedGNMax
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import Clear
from protocols.study.queries import pool_digest
from protocols.study.study import Seat
from protocols.study.terms import Feature, Terms
from protocols.study.votes import TeacherVotes, UnitSums

_HEART_HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
# Those to which the breast cancer data, which are of one hospital, are dealt.
HOSPITALS = ("north", "east", "south", "west")
_FILES = "heart_disease/processed.{}.data"
_HEADER = "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num".split()
# Codes as in heart-disease.names; centres and scales are round clinical constants.
_FEATURES = (
    Feature(column="age", kind="numeric", centre=55.0, scale=10.0),
    Feature(column="sex", kind="categorical", categories=("0", "1")),
    Feature(column="cp", kind="categorical", categories=("1", "2", "3", "4")),
    Feature(column="trestbps", kind="numeric", centre=130.0, scale=20.0, may_miss=True),
    Feature(column="chol", kind="numeric", centre=230.0, scale=60.0, may_miss=True),
    Feature(column="fbs", kind="categorical", categories=("0", "1"), may_miss=True),
    Feature(column="restecg", kind="categorical", categories=("0", "1", "2"), may_miss=True),
    Feature(column="thalach", kind="numeric", centre=140.0, scale=25.0, may_miss=True),
    Feature(column="exang", kind="categorical", categories=("0", "1"), may_miss=True),
    Feature(column="oldpeak", kind="numeric", centre=1.0, scale=1.0, may_miss=True),
    Feature(column="slope", kind="categorical", categories=("1", "2", "3"), may_miss=True),
    Feature(column="ca", kind="numeric", centre=0.5, scale=1.0, may_miss=True),
    Feature(column="thal", kind="categorical", categories=("3", "6", "7"), may_miss=True),
)
_CHOLESTEROL = _HEADER.index("chol")
_PUBLIC, _TEST = 250, 170


@dataclass(frozen=True, eq=False)
class DemoData:
    """What each hospital holds (header and rows of a CSV), and what is public.

    source: in words; task: of the study; pool: public queries; test_inputs and their labels judge the student.
    """

    source: str
    task: str
    class_names: tuple[str, str]
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
    """The four hospitals' heart disease records from `folder`, if available; otherwise the breast cancer data."""
    if folder is not None and all((folder / _FILES.format(name)).is_file() for name in _HEART_HOSPITALS):
        return _hearts(folder)
    return _breasts()


def _hearts(folder: Path) -> DemoData:
    rows = {}
    for name in _HEART_HOSPITALS:
        with (folder / _FILES.format(name)).open(encoding="utf-8", newline="") as file:
            read = [row for row in csv.reader(file) if len(row) == len(_HEADER)]
        # The hospitals write the same code as 1 or as 1.0.
        plain = [[value.removesuffix(".0") for value in row] for row in read]
        for row in plain:
            if row[_CHOLESTEROL] == "0":
                row[_CHOLESTEROL] = "?"  # none was measured
        rows[name] = [row[:-1] + ["no disease" if row[-1] == "0" else "disease"] for row in plain]
    return _cut(
        source="UCI Heart Disease: the records of four real hospitals",
        task="Tell patients with narrowed coronary vessels from patients without.",
        class_names=("no disease", "disease"),
        features=_FEATURES,
        header=_HEADER,
        rows=rows,
    )


def _breasts() -> DemoData:
    try:
        from sklearn.datasets import load_breast_cancer
    except ModuleNotFoundError:
        raise DataUnavailable(
            "the demo needs the four hospitals' heart disease data (--data-dir) or scikit-learn: "
            + install("party", "coordinator", "sklearn")
        ) from None
    bunch = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in bunch.feature_names[:10]]
    values = bunch.data[:, :10]
    # Public knowledge in a real study; here round figures near those of the whole data set.
    features = tuple(
        Feature(column=name, kind="numeric", centre=float(f"{column.mean():.1g}"), scale=float(f"{column.std():.1g}"))
        for name, column in zip(names, values.T, strict=True)
    )
    texts = [
        [*(f"{value:g}" for value in row), "benign" if label else "malignant"]
        for row, label in zip(values, bunch.target, strict=True)
    ]
    order = np.random.default_rng(0).permutation(len(texts))
    rows = {name: [texts[at] for at in order[number::4]] for number, name in enumerate(HOSPITALS)}
    return _cut(
        source="Breast Cancer Wisconsin (Diagnostic), shipped with scikit-learn, dealt to four made-up hospitals",
        task="Tell malignant from benign tumours.",
        class_names=("benign", "malignant"),
        features=features,
        header=[*names, "num"],
        rows=rows,
    )


def _cut(
    *,
    source: str,
    task: str,
    class_names: tuple[str, str],
    features: tuple[Feature, ...],
    header: list[str],
    rows: dict[str, list[list[str]]],
) -> DemoData:
    """Takes out public queries and test records, in proportion from every hospital; the rest stays private."""
    rng, total = np.random.default_rng(1), sum(len(each) for each in rows.values())
    public: list[list[str]] = []
    tests: list[list[str]] = []
    private = {}
    for name, each in rows.items():
        order = rng.permutation(len(each))
        asked, kept = (round(size * len(each) / total) for size in (min(_PUBLIC, total // 3), min(_TEST, total // 5)))
        public += [each[at] for at in order[:asked]]
        tests += [each[at] for at in order[asked : asked + kept]]
        private[name] = [each[at] for at in order[asked + kept :]]
    label = header[-1]
    pool, _ = encoded(public, header, features, class_names)
    test_inputs, test_labels = encoded(tests, header, features, class_names)
    return DemoData(source, task, class_names, label, features, header, private, pool, test_inputs, test_labels)


def encoded(
    rows: list[list[str]], header: list[str], features: tuple[Feature, ...], class_names: tuple[str, str]
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


TEACHERS, EPSILON, DELTA = 12, 8.0, 1e-5
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
            teachers=TEACHERS,
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


def _roster(data: DemoData, epsilon: float) -> tuple[Seat, ...]:
    return tuple(Seat(party=name, epsilon=epsilon, delta=DELTA, weight=1.0, rate=1.0) for name in data.hospitals)


def _terms(data: DemoData) -> Terms:
    return Terms(
        task=data.task,
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
