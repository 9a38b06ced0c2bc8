"""Votes and judges: the theorem of two sums for one charge, by enumeration and quadrature, where it fails, and
coverage."""

import hashlib
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm, rankdata

from protocols.bounds.gaussian import gdp_delta
from protocols.sums.contributions import contribution_sum, said
from protocols.sums.judged import Judged, PoolBins
from protocols.sums.judging import Evaluation, judge_weight, judged, scored
from tests.harness.record_votes import GRADED, QUERIES

KEY = Evaluation.of(share=0.4, key=b"k" * 32, bins=6, classes=2, threshold=0.5)


def most_moved(roles, *, signed, units, ids):
    """The largest squared move of both sums, over all replacements of one unit's id and what every unit says.

    roles(ids, which key) -> who judges; a vote is +1 or -1, or one of two unit vectors; a judgement one of two.
    """
    vectors = np.eye(2)
    votes = [np.array([1.0, 0.0]), np.array([-1.0, 0.0])] if signed else list(vectors)
    most = 0.0
    for had, new in product(units, ids):
        if new in units:
            continue
        before, after = list(units), sorted({*units, new} - {had})
        first, second = (({u: f for u, f in zip(x, roles(x), strict=True)}) for x in (before, after))
        moved = [u for u in {*before, *after} if first.get(u) != second.get(u)]
        for said_by in product(votes, repeat=len(moved)):
            for judged_by in product(vectors, repeat=len(moved)):
                move = np.zeros((2, 2))
                for unit, vote, verdict in zip(moved, said_by, judged_by, strict=True):
                    for sign, world in ((1, second), (-1, first)):
                        for role in () if unit not in world else world[unit]:
                            move[role] += sign * (verdict if role else vote)
                most = max(most, float(np.square(move).sum()))
    return most


def by_hash(ids):
    return [(1,) if judge else (0,) for judge in KEY.judges(ids)]


def fewest_hashes(ids):
    ranked = sorted(ids, key=lambda each: hashlib.sha256(each.encode()).digest())
    return [(1,) if each in ranked[:2] else (0,) for each in ids]


def every_third(ids):
    return [(1,) if at % 3 == 0 else (0,) for at, _ in enumerate(ids)]


def restored(ids):
    first, other = (Evaluation.of(share=0.5, key=each * 32, bins=6, classes=2, threshold=0.5) for each in (b"k", b"o"))
    votes, judges = ~first.judges(ids), other.judges(ids)
    return [((0,) if vote else ()) + ((1,) if judge else ()) for vote, judge in zip(votes, judges, strict=True)]


def chosen_after_looking(ids):
    # The first of some keys with which the last unit votes.
    keys = [Evaluation.of(share=0.5, key=bytes([each]) * 32, bins=6, classes=2, threshold=0.5) for each in range(8)]
    key = next((each for each in keys if not each.judges(ids[-1:])[0]), keys[0])
    return [(1,) if judge else (0,) for judge in key.judges(ids)]


NAMES = [f"patient {each}" for each in range(9)]
MORE = [f"patient {each}" for each in range(10, 30)]


@pytest.mark.parametrize(("signed", "most"), [(True, 4), (False, 2)])
def test_by_the_hash_of_its_own_id_a_unit_moves_both_sums_as_far_as_one_of_votes(signed, most):
    assert most_moved(by_hash, signed=signed, units=NAMES[1:6], ids=NAMES) == most


@pytest.mark.parametrize(
    ("roles", "units", "least"),
    [(fewest_hashes, NAMES[1:6], 6), (every_third, NAMES[1:7], 24), (restored, MORE[:8], 6)],
)
def test_where_roles_depend_on_others_or_on_a_restore_one_unit_moves_more_than_is_charged(roles, units, least):
    assert most_moved(roles, signed=True, units=units, ids=MORE if roles is restored else NAMES) >= least


def test_with_a_key_chosen_for_the_data_one_unit_moves_everybody():
    few, many = (most_moved(chosen_after_looking, signed=True, units=NAMES[:n], ids=NAMES) for n in (2, 5))
    assert many > few > 4


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([True, False]),
    st.sampled_from(["record", "patient"]),
    st.integers(100, 2**20),
)
def test_whole_numbers_of_voters_and_judges_move_the_sums_no_further(seed, signed, unit, weight):
    rng = np.random.default_rng(seed)
    blocks, several = (GRADED if signed else QUERIES), 3 if unit == "patient" else 1

    def vote():
        records, labels = rng.normal(size=(several, 3)).astype(np.float32), rng.integers(-1, 2, several)
        spoken = said(blocks, records, labels, classes=2)
        units = None if unit == "record" else np.zeros(several, np.int64)
        return contribution_sum(blocks, spoken, units, weight_units=weight, classes=2, fewest=0).ravel()

    def judge():
        two = rng.random(several)
        shown = np.stack([1 - two, two], axis=1)
        shown[rng.random(several) < 0.1] = np.nan
        units = None if unit == "record" else np.zeros(several, np.int64)
        of = rng.integers(-1, 3, several)
        return judged(KEY, shown, of, units, weight_units=weight, signed=signed).ravel()

    squared = [[sum(int(x) ** 2 for x in a - b) for a, b in ((f(), f()), (f(), 0 * f()))] for f in (vote, judge)]
    delta = 4 if signed else 2
    (votes, one_vote), (judges, one_judge) = squared
    assert votes <= delta * weight**2
    assert judges <= 2 * judge_weight(weight, signed=signed) ** 2 <= delta * weight**2
    assert one_vote + one_judge <= delta * weight**2


@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(2, 14), st.integers(1, 3), st.integers(1, 2**20))
def test_a_judge_of_several_findings_moves_the_sum_no_further_than_one_of_a_label(seed, signed, told, several, weight):
    rng = np.random.default_rng(seed)

    def judge():
        shown, of = rng.random((several, told)), rng.integers(-1, 2, (several, told))
        shown[rng.random((several, told)) < 0.1] = np.nan
        how = {"signed": signed, "thresholds": rng.uniform(0.01, 0.99, told).tolist()}
        return judged(KEY, shown, of, np.zeros(several, np.int64), weight_units=weight, **how)

    one, other = (judge().ravel().tolist() for _ in range(2))
    most = judge_weight(weight, signed=signed) ** 2
    assert min(one) >= 0
    assert sum(x * x for x in one) <= most
    assert sum((x - y) ** 2 for x, y in zip(one, other, strict=True)) <= 2 * most


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.floats(0.2, 2.0), st.floats(0.1, 1.5), st.floats(0, 4))
def test_an_adaptive_second_sum_leaks_no_more_than_the_gaussian_of_both_moves(shape, first, second, epsilon):
    # Z1 moves by `first`; given z the second sum by m(z), of size at most `second`, as an adversary likes.
    z, step = np.linspace(-12, 12 + first, 4001, retstep=True)
    m = second * np.abs(np.tanh(shape[0] + shape[1] * z + shape[2] * z * z))
    for sign in (1, -1):
        p, q = (norm.pdf(each) for each in (z, z - first)[::sign])
        other = epsilon + np.log(np.maximum(q, 1e-300)) - np.log(np.maximum(p, 1e-300))
        # Given z: P(Z2) - e^other Q(Z2) at its best set, in closed form.
        size = np.maximum(m, 1e-9)
        gap = norm.cdf(-other / size + size / 2) - np.exp(np.minimum(other, 700)) * norm.cdf(-other / size - size / 2)
        found = float((p * np.clip(gap, 0, 1)).sum() * step)
        assert found <= gdp_delta(np.array([np.hypot(first, second)]), np.array([epsilon]))[0] + 1e-6


def drawn(rng, classes, base, n):
    """Probabilities of a model that is not quite calibrated, and classes."""
    if classes == 2:
        logit = rng.normal(size=n) * 1.5 + np.log(base / (1 - base))
        true = 1 / (1 + np.exp(0.1 - 0.8 * logit))
        two = 1 / (1 + np.exp(-logit))
        return np.stack([1 - two, two], axis=1), (rng.random(n) < true).astype(np.int64)
    logits = 2 * rng.normal(size=(n, classes))
    model, true = (np.exp(each) / np.exp(each).sum(axis=1, keepdims=True) for each in (logits, 0.7 * logits))
    return model, (true.cumsum(axis=1) > rng.random(n)[:, None]).argmax(axis=1)


def exact(evaluation, model, labels, pool):
    """The figures of everybody, without noise or bins."""
    named, bins = evaluation.decisions(model), np.searchsorted(evaluation.edges, model, side="right")
    found = {"accuracy": (named == labels).mean()}
    squares, gaps = [], np.zeros(evaluation.bins)
    for each in range(model.shape[1]):
        of = labels == each
        found[f"sensitivity {each}"] = (named[of] == each).mean()
        found[f"specificity {each}"] = (named[~of] != each).mean()
        squares.append(((model[:, each] - of) ** 2).mean())
        if each in scored(model.shape[1]):
            ranks = rankdata(model[:, each])[of].sum() - of.sum() * (of.sum() + 1) / 2
            found[f"auroc {each}"] = ranks / of.sum() / (~of).sum()
            gaps += np.bincount(bins[:, each], weights=of - pool.means[bins[:, each]], minlength=evaluation.bins)
    found["brier"] = np.sum(squares)
    found["calibration error"] = np.abs(gaps).sum() / len(labels) / len(scored(model.shape[1]))
    return found


def shown(of):
    found = {"accuracy": of.accuracy, "brier": of.brier, "calibration error": of.calibration_error}
    for each in range(len(of.decisions)):
        found |= {f"sensitivity {each}": of.sensitivity(each), f"specificity {each}": of.specificity(each)}
    return found | {f"auroc {each}": of.auroc(each) for each in scored(len(of.decisions))}


@pytest.mark.parametrize(("classes", "base", "units"), [(2, 0.45, 500), (2, 0.05, 5000), (6, 0.1, 10_000)])
def test_intervals_of_every_figure_hold_the_true_one_in_95_of_100_draws(classes, base, units):
    rng, sigma, draws = np.random.default_rng(7), 7.5, 200
    evaluation = Evaluation.of(share=0.2, key=b"k" * 32, bins=10, classes=classes, threshold=0.5)
    model, labels = drawn(rng, classes, base, 200_000)
    pool = PoolBins.of(evaluation, model[:5000])
    true, hits = exact(evaluation, model, labels, pool), {}
    for _ in range(draws):
        at = rng.integers(0, len(labels), rng.binomial(units, evaluation.share))
        whole = judged(evaluation, model[at], labels[at], None, weight_units=2**16, signed=True)
        noisy = whole / 2**16 + rng.normal(0.0, sigma, size=whole.shape)
        of = Judged.of(evaluation, noisy, noise=sigma, signed=True, heaviest=1.0, pool=pool)
        for name, each in shown(of).items():
            assert 0 <= each.low <= each.value <= each.high <= (2 if name == "brier" else 1)
            hits[name] = hits.get(name, 0) + (each.low <= true[name] <= each.high)
    # False alarms: each below 1e-4 if an interval holds in exactly 95 of 100 draws; seeds are fixed.
    least = binom.ppf(1e-4, draws, 0.95)
    assert {name: hit for name, hit in hits.items() if hit < least} == {}


@pytest.mark.parametrize("slope", [0.0, 2.5])
def test_the_interval_of_the_area_holds_for_a_model_that_says_more_or_less_than_it_knows(slope):
    rng = np.random.default_rng(11)
    evaluation = Evaluation.of(share=0.2, key=b"k" * 32, bins=6, classes=2, threshold=0.5)
    model, _ = drawn(rng, 2, 0.05, 200_000)
    true = 0.05 * np.exp(slope * (np.log(model[:, 1] / model[:, 0]) - np.log(0.05 / 0.95)))
    labels = (rng.random(len(model)) < true / (0.95 + true)).astype(np.int64)
    area = exact(evaluation, model, labels, PoolBins.of(evaluation, model[:5000]))["auroc 1"]
    for at in rng.integers(0, len(labels), (8, 10_000)):
        whole = judged(evaluation, model[at], labels[at], None, weight_units=2**16, signed=True) / 2**16
        noisy = whole + rng.normal(size=whole.shape)
        pool = PoolBins.of(evaluation, model[:5000])
        found = Judged.of(evaluation, noisy, noise=1.0, signed=True, heaviest=1.0, pool=pool).auroc(1)
        assert found.low <= area <= found.high


def test_without_noise_and_with_many_judges_figures_are_the_exact_ones():
    rng = np.random.default_rng(3)
    evaluation = Evaluation.of(share=0.2, key=b"k" * 32, bins=20, classes=2, threshold=0.4)
    model, labels = drawn(rng, 2, 0.3, 100_000)
    pool = PoolBins.of(evaluation, model)
    whole = judged(evaluation, model, labels, None, weight_units=2**20, signed=False)
    of = Judged.of(evaluation, whole / 2**20, noise=1e-6, signed=False, heaviest=1.0, pool=pool)
    for name, each in shown(of).items():
        assert each.value == pytest.approx(exact(evaluation, model, labels, pool)[name], abs=0.006), name
    calibrated = of.calibrated()
    assert (np.diff(calibrated) >= 0).all()
    assert calibrated == pytest.approx([each.value for each in of.seen()], abs=0.03)
