"""The planner: what it predicts is what a replay gives, and nothing beside the settings that it chooses is better."""

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.crypto.randomness import simulation_rng
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.labelling.replay import replay
from protocols.labelling.stored_votes import CastVotes, VoteCounts, load_labels, load_votes
from protocols.noise import simulated
from simulations.planning.grid import GAIN, _tightest, batches_asked, neighbours, nondominated, optimise, optimise_each
from simulations.planning.objective import OBJECTIVES, information
from simulations.planning.predict import AssumedVotes, PilotVotes, PlannedNoise, Planner, asked_more_than
from simulations.setup.experiment import experiment
from tests.harness.refusals import refuses
from tests.harness.studies import make_study as study_with
from tests.harness.studies import one_stream

DATA = Path(os.environ.get("CONCLAVE_DATA", ""))
needs_votes = pytest.mark.skipif(
    not ((DATA / "pate_votes").is_dir() and (DATA / "mnist").is_dir()),
    reason="CONCLAVE_DATA has no pate_votes and mnist",
)


def planner(*, objective="information", accuracy=0.75, concentration=4.0, classes=4, **changes) -> Planner:
    wanted = {"parties": 40, "budgets": "4", "queries": 400, "weights": "uniform", "mechanism": "confident_gnmax"}
    wanted |= changes
    votes = AssumedVotes(classes=classes, accuracy=accuracy, concentration=concentration)
    return Planner.of(experiment(**wanted), votes, OBJECTIVES[objective], pool=wanted["queries"], bank=400)


@pytest.fixture(scope="module")
def small():
    return planner()


@pytest.fixture(scope="module")
def optima(small):
    """Every mechanism that can be planned; Confident-GNMax first."""
    return optimise_each(small, min_accuracy=0.75, first="confident_gnmax")[0]


@pytest.fixture(scope="module")
def found(optima):
    return optima[0]


@pytest.fixture(scope="module")
def one_draw(small, optima):
    return small.with_mechanism("thresholded_gnmax"), optima[1]


@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.05, 20))
def test_no_labels_of_balanced_classes_carry_less_information_than_their_worth(classes, seed, spread):
    """Fano's inequality, on channels drawn at random; with equality for the symmetric channel."""
    channel = np.random.default_rng(seed).dirichlet(np.full(classes, spread), size=classes) + 1e-12
    channel /= channel.sum(axis=1, keepdims=True)

    def mutual(rows):
        joint = rows / classes
        return float((joint * np.log2(joint / (joint.sum(axis=0) / classes))).sum())

    accuracy = np.trace(channel) / classes
    assert mutual(channel) >= information(np.array(accuracy), classes) - 1e-9
    symmetric = np.full((classes, classes), (1 - accuracy) / (classes - 1))
    np.fill_diagonal(symmetric, accuracy)
    if accuracy > 1 / classes:
        assert mutual(symmetric) == pytest.approx(float(information(np.array(accuracy), classes)), abs=1e-9)


@pytest.mark.parametrize("rate", [0.0, 0.37, 1.0])
def test_the_number_asked_has_the_law_of_the_schedule(rate):
    """Enumerated state by state with the filter's own arithmetic; parties of three budgets."""
    filters = study_with([0.9, 1.3, 2.0], sigma=14.0, sigma_threshold=12.0, threshold=1.0, rule="proportional").budgets
    pool, law, expected = 30, {0: 1.0}, []
    for asked in range(pool):
        goes_on: dict[int, float] = {}
        for answered, probability in law.items():
            # One that does not fit ends the study: what has ended stays out of the law.
            if filters.affordable(filters.amount(asked, answered), limit=1).min() >= 1:
                for more, share in enumerate((1 - rate, rate)):
                    goes_on[answered + more] = goes_on.get(answered + more, 0.0) + probability * share
        expected.append(sum(goes_on.values()))
        law = goes_on
    found = asked_more_than(filters, rate=rate, pool=pool)
    assert 0 < sum(expected) < len(expected)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "noise"),
    [
        ({}, PlannedNoise.of(sigma=8.0, sigma_threshold=20.0, threshold=25.0)),
        (
            {"budgets": "2:0.5,5:0.5", "weights": "exhaustive", "classes": 10},
            PlannedNoise.of(sigma=7.0, sigma_threshold=9.0, threshold=30.0),
        ),
        (
            {"unit": "party", "teachers_per_party": 3, "budgets": "8", "accountant": "gaussian", "queries": 1500},
            PlannedNoise.of(sigma=30.0, sigma_threshold=90.0, threshold=-400.0),
        ),
        ({"mechanism": "thresholded_gnmax"}, PlannedNoise.of(sigma=8.0, threshold=25.0)),
        (
            {"mechanism": "thresholded_gnmax", "budgets": "2:0.5,5:0.5", "weights": "exhaustive", "classes": 10},
            PlannedNoise.of(sigma=11.0, threshold=30.0),
        ),
    ],
)
def test_predictions_are_what_replays_of_the_planned_votes_release(changes, noise):
    """Forty replays, each of queries drawn anew from the bank: means within 4 standard errors."""
    plan = planner(**{"queries": 1000, **changes})
    predicted, study = plan.predict(noise), plan.study(noise, queries=plan.pool)
    figures = []
    for seed in range(40):
        order = np.random.default_rng(seed).integers(plan.stored.queries, size=plan.pool)
        stored = CastVotes(plan.stored.classes, plan.stored.votes[:, :, order])
        result = replay(study, stored, noise=one_stream(simulated(simulation_rng(seed, "noise"))), presence=None)
        labels = result.labelling.labels
        released = labels >= 0
        figures.append([(labels != -2).sum(), released.sum(), (labels == plan.truth[order])[released].sum()])
    asked, answered, right = np.array(figures, dtype=float).T
    right_expected = predicted.answered * predicted.accuracy
    for found, expected in ((asked, predicted.asked), (answered, predicted.answered), (right, right_expected)):
        assert abs(found.mean() - expected) < 4 * found.std(ddof=1) / 40**0.5 + 1e-3


def test_the_budgets_that_end_a_study_first_are_those_that_afford_fewest_queries_however_they_are_counted():
    """Exhaustive weights: all afford nearly the same number, at costs that differ by half."""
    terms = {"mechanism": "thresholded_gnmax", "sigma": 60.0, "sigma_threshold": None, "threshold": 1.0, "classes": 4}
    for account in ("exact_composition", "label_only"):
        study = study_with([2.0, 2.2, 3.0], rule="exhaustive", account=account, **terms)
        fits = study.budgets.affordable(np.zeros(3, np.int64), limit=1000)
        assert fits[_tightest(study)].tolist() == sorted(fits.tolist())


def test_no_cell_of_a_brute_force_grid_of_exact_predictions_is_better(small, found):
    best = small.predict(found.chosen.noise)
    for sigma, test, threshold in product((5, 8, 11, 14, 17, 20), (6, 20, 60, 200), (-60, 10, 20, 30, 40)):
        other = small.predict(
            PlannedNoise.of(sigma=float(sigma), sigma_threshold=float(test), threshold=float(threshold))
        )
        assert other.accuracy < 0.75 or other.value <= best.value * (1 + 1e-9)


def test_no_neighbour_and_no_cell_of_a_brute_force_grid_is_better_where_one_draw_decides(one_draw):
    plan, optimum = one_draw
    best = plan.predict(optimum.chosen.noise)
    assert best.accuracy >= 0.75
    cells = [
        PlannedNoise.of(sigma=float(s), threshold=float(t)) for s in range(5, 24, 2) for t in (-60, *range(5, 41, 5))
    ]
    for noise in (*neighbours(plan, best.noise, step=0.01), *cells):
        other = plan.predict(noise)
        assert other.accuracy < 0.75 or other.value <= best.value * (1 + GAIN)


def test_mechanisms_are_compared_under_the_same_budgets_and_the_better_one_comes_first_unless_one_is_named(
    small, optima
):
    confident, one_draw = optima
    assert [each.mechanism for each in optima] == ["confident_gnmax", "thresholded_gnmax"]
    assert one_draw.chosen.value > confident.chosen.value
    assert [name for name, _ in one_draw.chosen.noise.values] == ["sigma", "threshold"]
    assert len({each.study.roster for each in optima}) == 1
    found, refused = optimise_each(small, min_accuracy=0.75, first=None)
    assert not refused
    assert [each.mechanism for each in found] == ["thresholded_gnmax", "confident_gnmax"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=25))
def test_nondominated_points_are_those_of_comparing_all_pairs(points):
    x, y = np.array(points, dtype=float).T
    kept = nondominated(x, y)
    for i, (a, b) in enumerate(points):
        beaten = any(c >= a and d >= b and (c, d) != (a, b) for c, d in points)
        first = points.index((a, b)) == i
        assert kept[i] == (not beaten and first)


def test_a_run_shrinks_its_last_batches_in_as_many_steps_as_the_plan_says(small, found):
    """With everything answered the schedule is certain: the batches of a replay are counted."""
    noise = PlannedNoise.of(sigma=6.0, sigma_threshold=1e6, threshold=-1e8)
    predicted, study = small.predict(noise), small.study(noise, queries=small.pool)
    rate = predicted.answered / predicted.asked
    for size in (1, 2, 5, 20, small.pool):
        result = replay(
            study.voting(batch_limit=size),
            CastVotes(4, small.stored.votes),
            noise=one_stream(simulated(simulation_rng(0, "noise"))),
            presence=None,
        )
        planned = batches_asked(study, rate=rate, pool=small.pool, limit=size)
        assert abs(len(result.labelling.batches) - planned) <= 1


def test_accuracy_or_budgets_that_cannot_be_had_are_one_clear_error(small):
    with refuses(InvalidInput, "0.9999"):
        optimise_each(planner(accuracy=0.4), min_accuracy=0.9999, first=None)
    with refuses(InvalidInput, "4", "0.9999", "at best"):
        optimise(planner(accuracy=0.4), min_accuracy=0.9999)
    with refuses(InvalidInput, "0.001", "1e-05"):
        optimise(planner(budgets="0.001"), min_accuracy=0.0)
    with refuses(BudgetExceeded, "0.05", "0.3"):
        optimise(planner(budgets="0.05", parties=4, classes=10, accuracy=0.5), min_accuracy=0.3)


@pytest.mark.parametrize(("classes", "concentration", "share"), [(2, 0.8, 0.95), (10, 4.0, 0.85)])
def test_the_usual_noise_is_worth_nearly_as_much_as_a_plans(classes, concentration, share):
    """As docs/explanation/one-draw.md states, for more parties."""
    teachers = {"classes": classes, "accuracy": 0.8, "concentration": concentration}
    found = optimise(planner(**teachers, mechanism="thresholded_gnmax"), min_accuracy=0.8)
    assert found.common.value > share * found.chosen.value
    assert found.common.accuracy >= 0.8


@needs_votes
@pytest.mark.slow
def test_on_the_papers_mnist_votes_the_plan_beats_the_papers_noise_and_replays_agree():
    stored, parties = load_votes(
        DATA / "pate_votes/pate2018/mnist_250_teachers.npy", kind=None, classes=None, parties=None
    )
    truth = load_labels(f"{DATA / 'mnist/mnist.npz'}:y_test", queries=stored.queries, classes=10)
    wanted = experiment(parties=parties, budgets="2", weights="uniform", queries=9000, mechanism="confident_gnmax")
    plan = Planner.of(wanted, PilotVotes.of(stored, truth), OBJECTIVES["information"], pool=9000)
    paper = plan.predict(PlannedNoise.of(sigma=40.0, sigma_threshold=150.0, threshold=200.0))
    best = optimise(plan, min_accuracy=paper.accuracy).chosen
    assert best.accuracy >= paper.accuracy
    assert best.answered > 1.05 * paper.answered
    for predicted in (paper, best):
        study = plan.study(predicted.noise, queries=9000)
        labels = []
        for seed in range(20):
            order = np.random.default_rng(seed).permutation(stored.queries)
            shuffled = VoteCounts(10, stored.counts[order])
            result = replay(study, shuffled, noise=one_stream(simulated(simulation_rng(seed, "noise"))), presence=None)
            released = result.labelling.labels
            labels.append([(released >= 0).sum(), (released == truth[order])[released >= 0].mean()])
        answered, accuracy = np.mean(labels, axis=0)
        # Twenty replays of some 250 labels have a standard error of 0.003; 2,000 queries stand for the 9,000.
        assert answered == pytest.approx(predicted.answered, rel=0.01)
        assert accuracy == pytest.approx(predicted.accuracy, abs=0.012)
