"""The attack finds what an over-fitted model has learnt, nothing where nothing can be found, and refuses bad input."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.stats import binom

from protocols.errors import InvalidInput
from protocols.research.private import Private
from simulations.datasets.dataset import Dataset
from simulations.membership.attack import Controls, area_ceiling, make_controls, membership_attack, record_seats
from simulations.membership.report import LEVEL
from simulations.pipeline import run, study_of
from simulations.progress import Reporter
from simulations.results.text import finding
from simulations.setup.experiment import experiment
from simulations.stages.inputs import Host, read_inputs
from simulations.stages.students import pooled_student
from tests.harness.engine_here import running_here

NO_CONTROLS = Controls(None, None)


def task(*, records: int, seed: int, classes: int = 3, shift: float = 0.0) -> Dataset:
    """Classes as overlapping clouds; with a shift, private records lie nearer to their class's centre than others."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1, (classes, 6))

    def part(count, spread):
        labels = rng.integers(classes, size=count)
        return (centres[labels] + rng.normal(0, spread, (count, 6))).astype(np.float32), labels

    private, public, test = part(records, 1.0 - shift), part(200, 1.0), part(records, 1.0)
    return Dataset(
        name="clouds",
        kind="table",
        class_names=tuple(map(str, range(classes))),
        private_inputs=private[0],
        private_labels=private[1],
        public_inputs=public[0],
        public_labels=public[1],
        test_inputs=test[0],
        test_labels=test[1],
    )


class Nearest:
    """A model from a formula: probabilities fall with the distance to the mean of each class of what it learnt.

    memory: how much the probability of the right class rises for records that it was given.
    """

    def __init__(self, inputs, labels, *, classes, memory=0.0):
        self.centres = np.stack([inputs[labels == c].mean(axis=0) for c in range(classes)])
        self.known = {row.tobytes(): label for row, label in zip(inputs, labels.tolist(), strict=True)}
        self.memory = memory

    def probabilities(self, inputs):
        logits = -((inputs[:, None, :] - self.centres) ** 2).sum(axis=2)
        for i, row in enumerate(inputs):
            label = self.known.get(row.tobytes())
            if label is not None:
                logits[i, label] += self.memory
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def public_model(data):
    return Nearest(data.public_inputs, data.public_labels, classes=data.classes)


def attack(student, data, *, seats=None, controls=NO_CONTROLS, epsilon=(2.0,), delta=1e-5, seed=0):
    epsilon = np.array(epsilon)
    return membership_attack(
        student, data, epsilon=epsilon, delta=np.full(len(epsilon), delta), seats=seats, seed=seed, controls=controls
    )


def test_a_model_that_remembers_is_found_and_the_same_model_without_memory_is_not():
    data = task(records=500, seed=0)
    models = [Nearest(data.private_inputs, data.private_labels, classes=3, memory=memory) for memory in (0.0, 3.0)]
    plain, remembering = (attack(model, data).for_research() for model in models)
    for result in remembering.released:
        assert result.area.low > 0.55
        assert result.advantage.low > 0.1
    for result in plain.released:
        assert result.area.low < 0.5 + 0.02
    loss = remembering.released[0]
    assert (loss.members, loss.non_members) == (500, 500)
    assert {result.members for result in remembering.released[1:]} == {250}
    # Attacks that find nothing where nothing protects are called too weak.
    for model, blind in zip(models, (True, False), strict=True):
        found = finding(attack(models[0], data, controls=Controls(model, None)).for_research())
        assert ("too weak here" in found) == blind


def test_a_model_that_has_seen_no_member_is_flagged_as_often_as_stated():
    """Exchangeable parts: each interval covers 1/2 in 95 % of 200 tasks, the false alarm being below 1e-4."""
    covered = {"loss": 0, "modified_entropy_by_class": 0, "advantage": 0, "permuted": 0}
    draws = 200
    for seed in range(draws):
        data = task(records=60, seed=seed)
        report = attack(public_model(data), data, seed=seed).for_research()
        for result in report.released:
            covered[result.attack] += result.area.low <= 0.5 <= result.area.high
        gain = report.released[0].advantage
        covered["advantage"] += gain.low <= 0 <= gain.high
        covered["permuted"] += report.permuted.low <= report.released[0].area.value <= report.permuted.high
    for name, times in covered.items():
        # The range of 400 permutations is itself uncertain by about a point.
        assert binom.cdf(times, draws, LEVEL - 0.01 * (name == "permuted")) > 1e-4, (name, times)


def test_a_shift_between_the_parts_is_not_taken_for_leakage():
    data = task(records=1500, seed=1, shift=0.3)
    student = Nearest(data.public_inputs[:120], data.public_labels[:120], classes=3)
    unseen = Nearest(data.public_inputs[80:], data.public_labels[80:], classes=3)
    alone = attack(student, data).for_research()
    assert alone.released[0].area.low > 0.5
    assert "no control was measured" in finding(alone)
    held = attack(student, data, controls=Controls(None, unseen)).for_research()
    for beyond in held.beyond_shift:
        assert beyond.area.low <= 0 <= beyond.area.high
        assert beyond.advantage.low <= 0 <= beyond.advantage.high
    assert "this shows no leakage" in finding(held)
    assert held.permuted.high < held.released[0].area.value
    leaking = Nearest(data.private_inputs, data.private_labels, classes=3, memory=2.0)
    found = attack(leaking, data, controls=Controls(None, unseen)).for_research()
    for beyond, leaks, base in zip(found.beyond_shift, found.released, found.no_private_data, strict=True):
        assert beyond.area.low > 0
        assert beyond.area.value == pytest.approx(leaks.area.value - base.area.value, abs=1e-12)
        assert beyond.advantage.value == pytest.approx(leaks.advantage.value - base.advantage.value, abs=1e-12)
    assert finding(found).endswith("more than on a student that has seen no private data.")


def test_groups_with_larger_budgets_are_told_apart():
    data = task(records=600, seed=2)
    seats = np.random.default_rng(0).integers(-1, 3, size=600)
    leaked = seats == 2
    model = Nearest(data.private_inputs[leaked], data.private_labels[leaked], classes=3, memory=4.0)
    base = public_model(data)
    epsilon = (1.0, 1.0, 4.0)
    report = attack(model, data, seats=seats, epsilon=epsilon, controls=Controls(None, base)).for_research()
    low, high = report.groups
    assert (low.epsilon_low, low.epsilon_high, high.epsilon_low) == (1.0, 1.0, 4.0)
    assert (low.members, high.members) == (int(np.isin(seats, (0, 1)).sum()), int(leaked.sum()))
    assert report.released[0].members == int((seats >= 0).sum())
    assert low.area.low < 0.55 < 0.6 < high.area.low
    assert high.beyond_shift.low > 0.1
    assert high.ceiling == pytest.approx(area_ceiling(epsilon=np.array(4.0), delta=np.array(1e-5)))
    many = attack(
        model, data, seats=np.arange(600), epsilon=np.linspace(1, 3, 600), controls=NO_CONTROLS
    ).for_research()
    assert [group.members for group in many.groups] == [100] * 6
    assert all(group.epsilon_low < group.epsilon_high for group in many.groups)


def test_ceilings_hold_for_every_seat_also_where_deltas_differ():
    data = task(records=60, seed=3)
    report = membership_attack(
        public_model(data),
        data,
        epsilon=np.array([1.0, 3.0, 2.0]),
        delta=np.array([1e-5, 1e-6, 1e-3]),
        seats=None,
        seed=0,
        controls=NO_CONTROLS,
    ).for_research()
    assert (report.most_protected.epsilon, report.most_protected.delta) == (1.0, 1e-5)
    assert (report.least_protected.epsilon, report.least_protected.delta) == (3.0, 1e-3)
    assert report.least_protected.rates[0] == pytest.approx(np.exp(3.0) * 0.001 + 1e-3)


def test_the_report_is_private_plain_and_a_function_of_the_seed():
    data = task(records=100, seed=4)
    first, second, other = (attack(public_model(data), data, seed=seed) for seed in (0, 0, 1))
    assert isinstance(first, Private)
    with pytest.raises(TypeError):
        json.dumps(first)
    plain = first.for_research().to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == second.for_research().to_json()
    assert plain != other.for_research().to_json()
    assert plain["released"][0]["attack"] == "loss"
    assert set(plain) >= {"level", "ceilings", "permuted", "groups", "non_private", "no_private_data", "beyond_shift"}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A whole run on the embedded digits, and its attack with both controls."""
    host = Host(data_dir=None, cache_dir=tmp_path_factory.mktemp("cache"), engine="in_process", workers=1)
    forest, quiet = {"student": "random_forest"}, Reporter(quiet=True)
    settled = experiment(dataset="digits", parties=20, budgets="4:0.5,8:0.5", baselines=False, sigma=2.0, **forest)
    inputs = read_inputs(settled, host=host, reporter=quiet)
    budgets, study = study_of(inputs)
    with running_here():
        result = run(inputs, budgets=budgets, study=study, host=host, reporter=quiet)
    controls = make_controls(
        inputs.dataset,
        non_private=pooled_student(inputs.dataset, **forest, seed=0, cache_dir=host.cache_dir),
        answered=len(result.seeds[0].answered),
        **forest | {"seed": 0, "cache_dir": host.cache_dir},
    )
    report = membership_attack(
        result.released_student,
        inputs.dataset,
        epsilon=study.budgets.epsilon_guaranteed,
        delta=budgets.delta,
        seats=record_seats(inputs),
        seed=0,
        controls=controls,
    )
    return inputs, report.for_research()


def test_a_student_of_released_labels_is_not_flagged_and_the_model_without_privacy_is(digits):
    _, report = digits
    for result in report.released:
        assert result.area.low <= 0.5
    assert all(beyond.area.low <= 0 for beyond in report.beyond_shift)
    for result in report.non_private:
        assert result.area.low > 0.65
        assert result.advantage.low > 0.2
    assert report.released[0].area.high < report.non_private[0].area.low
    assert "do not tell" in finding(report)
    assert "too weak here" not in finding(report)
    assert [group.epsilon_high for group in report.groups] == pytest.approx([4, 8], rel=0.01)


def test_the_seat_of_a_record_is_the_one_whose_teachers_learned_it(digits):
    inputs, report = digits
    seats = record_seats(inputs)
    for seat, shards in enumerate(inputs.shards):
        np.testing.assert_array_equal(np.flatnonzero(seats == seat), np.sort(np.concatenate(shards)))
    assert report.released[0].members == (seats >= 0).sum()
    pooled = dataclasses.replace(
        inputs, settings=inputs.settings.changed(individualization="upsampling", budgets="1:0.5,2:0.5")
    )
    assert np.bincount(record_seats(pooled)).tolist() == [549, 548]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seats": np.full(20, -1)}, "0 members; allowed: at least 8"),
        ({"seats": np.zeros(19, dtype=np.int64)}, "one for each private record"),
        ({"seats": np.full(20, 1)}, r"span \[1, 1\]; allowed: \[-1, 0\]"),
        ({"epsilon": np.zeros(0)}, "one of each per seat"),
        ({"epsilon": np.array([-1.0])}, "epsilon is -1"),
        ({"delta": np.array([2.0])}, "delta is 2"),
    ],
)
def test_bad_input_is_one_error(changes, message):
    data = task(records=20, seed=0)
    usual = {"epsilon": np.array([1.0]), "delta": np.array([1e-5]), "seats": None}
    with pytest.raises(InvalidInput, match=message):
        membership_attack(public_model(data), data, seed=0, controls=NO_CONTROLS, **(usual | changes))
