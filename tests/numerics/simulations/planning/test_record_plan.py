"""Plans of record votes: rehearsed on made-up labels of the public pool, and blind to everything private."""

from dataclasses import replace

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.release.counts import Count
from simulations.datasets.dataset import Dataset
from simulations.planning.records import ForeseenAccuracies, Publics, RehearsedTeachers, compare, rehearse
from simulations.planning.stand_ins import stand_in
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from tests.harness.refusals import refuses

RNG = np.random.default_rng(5)
FACTOR = RNG.normal(size=(900, 1))
INPUTS = (FACTOR + RNG.normal(size=(900, 5))).astype(np.float32)
LABELS = (FACTOR[:, 0] > 0).astype(np.int64)
TABLE = Dataset(
    name="made up",
    kind="table",
    class_names=("no", "yes"),
    private_inputs=INPUTS[:600],
    private_labels=LABELS[:600],
    public_inputs=INPUTS[600:800],
    public_labels=LABELS[600:800],
    test_inputs=INPUTS[800:],
    test_labels=LABELS[800:],
)


def planned(dataset=TABLE, *, accuracy=0.8, majority=None, **changed):
    settings = experiment(**({"votes_by": "record", "parties": 4, "budgets": "1", "bins": 3} | changed))
    publics = Publics.of(settings, dataset, majority=majority)
    with Reporter(quiet=True).stage("test") as stage:
        rehearsed = rehearse(settings, publics, accuracy=accuracy, stage=stage)
    return settings, publics, rehearsed


def figures(rehearsed):
    return [(each.words, each.pool_labels, each.study.gaussian.sigma) for each in rehearsed.candidates]


@pytest.mark.parametrize("images", [False, True])
def test_a_stand_ins_classes_are_as_frequent_as_is_known(images):
    frequent = np.array([0.7, 0.1, 0.2])
    made = stand_in(
        INPUTS, classes=3, accuracy=0.97, sizes=np.array([30]), images=images, differ=False,
        rng=np.random.default_rng(0), frequent=frequent,
    )  # fmt: skip
    assert made.chances.mean(axis=0) == pytest.approx(frequent, abs=0.03)


@pytest.mark.parametrize(("images", "classes", "accuracy"), [(False, 2, 0.8), (False, 5, 0.6), (True, 3, 0.9)])
def test_a_stand_in_is_as_predictable_as_assumed_and_its_labels_follow_it(images, classes, accuracy):
    sizes = np.array([3000, 2000])
    made = stand_in(
        INPUTS, classes=classes, accuracy=accuracy, sizes=sizes, images=images, differ=False,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert made.best == pytest.approx(accuracy, abs=1e-6)
    assert [len(each) for each in made.labels] == sizes.tolist()
    predicted = made.chances.argmax(axis=1)
    right = np.concatenate([labels == predicted[rows] for rows, labels in zip(made.rows, made.labels, strict=True)])
    # Five standard errors: a fixed seed, 1 in 1,700,000 otherwise.
    assert right.mean() == pytest.approx(accuracy, abs=5 * np.sqrt(0.25 / 5000))
    assert made.accuracy(predicted) == made.best
    assert 1 / classes <= made.guessing < made.best


def test_hospitals_that_differ_see_classes_more_or_less_often():
    given = dict(classes=2, accuracy=0.8, sizes=np.full(6, 4000), images=False)
    shares = {
        differ: np.ptp(
            [each.mean() for each in stand_in(INPUTS, **given, differ=differ, rng=np.random.default_rng(1)).labels]
        )
        for differ in (False, True)
    }
    assert shares[False] < 0.05
    assert shares[True] > 0.15


def counts_of(told):
    return [
        Count(site=site, column="", value="", label=label, patients=patients, low=0, high=high)
        for site, label, patients, high in told
    ]


def test_a_plan_takes_the_records_and_classes_of_each_hospital_from_a_count():
    publics = Publics.of(experiment(votes_by="record", parties=2, budgets="1"), TABLE, majority=None)
    told = [("all", "no", 950, 960), ("a", "no", 900, 960), ("a", "yes", 100, 120), ("b", "no", None, 200),
            ("b", "yes", 450, 470), ("b", "missing", 5, 9)]  # fmt: skip
    counted = publics.counted(counts_of(told))
    assert counted.sizes.tolist() == [1000, 500]
    assert counted.population == 1500
    assert counted.shares == pytest.approx(np.array([[0.9, 0.1], [0.1, 0.9]]))
    made = stand_in(
        INPUTS, classes=2, accuracy=0.8, sizes=np.full(2, 4000), images=False, differ=False,
        rng=np.random.default_rng(1), shares=counted.shares,
    )  # fmt: skip
    assert made.labels[0].mean() < 0.35 < 0.65 < made.labels[1].mean()
    with refuses(InvalidInput, "3 hospitals"):
        publics.counted(counts_of([*told, ("c", "no", 5, 9), ("c", "yes", 5, 9)]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *[({"accuracy": accuracy}, "0.5") for accuracy in (0.5, 0.0, 1.1)],
        *[({"majority": majority}, "1/2") for majority in (0.4, 1.0)],
        ({"parties": 400}, "1 records"),
        ({"record_queries": "clusters:20"}, "columns, with bins, for a table"),
    ],
)
def test_what_cannot_be_planned_is_refused(given, words):
    with refuses(InvalidInput, words):
        planned(**given)


def test_a_plan_depends_on_nothing_private_but_how_many_records_there_are():
    other = replace(
        TABLE,
        private_inputs=-7 * TABLE.private_inputs,
        private_labels=1 - TABLE.private_labels,
        public_labels=1 - TABLE.public_labels,
        test_inputs=TABLE.test_inputs + 1,
        test_labels=1 - TABLE.test_labels,
    )
    settings, publics, rehearsed = planned()
    again, publics_again, rehearsed_again = planned(other)
    assert figures(rehearsed) == figures(rehearsed_again)
    assert compare(settings, publics, rehearsed) == compare(again, publics_again, rehearsed_again)
    assert len(publics.pool.private_inputs) == len(publics.pool.test_inputs) == 0
    assert not publics.pool.public_labels.any()


def test_more_budget_gives_better_labels_and_with_much_they_are_nearly_the_best_there_are():
    poor, fair, rich = (planned(budgets=budget)[2].best for budget in ("0.05", "1", "100"))
    assert poor.pool_labels < fair.pool_labels < rich.pool_labels
    assert rich.pool_labels > 0.77


def test_a_study_of_small_hospitals_is_recommended_or_not_by_its_budget_and_how_rare_the_outcome_is():
    fair = compare(*planned(budgets="4", parties=140))
    assert fair.votes_by == "record"
    assert fair.worth
    assert fair.guessing < fair.alone < fair.pooled <= fair.best + 0.01
    assert all(each in fair.verdict for each in ("let records vote", "--majority"))
    # Of a rare outcome the most frequent class gives it all.
    rare = compare(*planned(budgets="4", parties=140, majority=0.92))
    assert rare.alone >= rare.guessing == pytest.approx(0.92, abs=0.001)
    assert (rare.worth, "right for 0.92" in rare.verdict) == (False, True)
    poor = compare(*planned(budgets="0.02"))
    assert not poor.worth
    assert poor.verdict.startswith("not worth its budget")


def test_a_plan_rehearses_what_a_run_would_do_and_variants_of_cells_that_are_named():
    (graded,) = planned(bins=None)[2].candidates
    assert graded.given == {"record_queries": "graded"}
    assert [each.words for each in planned(bins=None, record_queries="graded")[2].candidates] == [graded.words]
    columns = [each.words for each in planned(bins=None, record_queries="columns")[2].candidates]
    assert len(columns) > 2
    assert "columns, 2 bins" in columns
    assert [each.words for each in planned()[2].candidates] == ["columns, 3 bins"]
    fixed = planned(bins=None, record_queries="clusters:20", nearest=2)[2].candidates
    assert [each.words for each in fixed] == ["clusters:20, nearest 2"]


def test_teachers_are_recommended_where_their_student_is_expected_to_be_better():
    base = dict(student=0.7, alone=0.6, pooled=0.9, best=0.9, guessing=0.5, gain=0.1, spread=0.01, equal=False)
    assert ForeseenAccuracies(**base, teachers=None).votes_by == "record"
    better = ForeseenAccuracies(**base, teachers=RehearsedTeachers(sigma=4.0, labels=300, student=0.8))
    assert better.votes_by == "teacher"
    assert better.verdict.startswith("let teachers vote: 300 labels at sigma 4")
    doubtful = ForeseenAccuracies(**(base | {"spread": 0.08}), teachers=None)
    assert doubtful.verdict.startswith("about as good")
    assert not doubtful.worth
    for change in ({"gain": -0.2}, {"guessing": 0.7}):
        assert ForeseenAccuracies(**(base | change), teachers=None).verdict.startswith("not worth its budget")


def test_images_are_mapped_once_and_their_queries_are_clusters():
    pixels = np.random.default_rng(2).random((400, 28, 28)).astype(np.float32)
    images = replace(
        TABLE,
        kind="image",
        private_inputs=pixels[:200],
        private_labels=LABELS[:200],
        public_inputs=pixels[200:300],
        public_labels=LABELS[200:300],
        test_inputs=pixels[300:],
        test_labels=LABELS[300:400],
    )
    _, _, rehearsed = planned(images, accuracy=0.9, bins=None, record_queries="clusters:10", nearest=1, budgets="50")
    assert rehearsed.features.shape[0] == 100
    assert rehearsed.best.queries.features.input_shape == rehearsed.features.shape[1:]
    assert rehearsed.best.words == "clusters:10, nearest 1"
    assert rehearsed.best.pool_labels > 0.6
