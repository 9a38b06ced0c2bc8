"""The methods that benchmarks/ adds, as plug-ins, and what they compute."""

import tomllib

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from benchmarks import federated
from benchmarks.federated import EPOCHS, ROUNDS, depth, noisy_mean, prefix_noise
from benchmarks.linear import epsilon_of
from protocols.plugins import _registered
from simulations.baselines import METHODS, cells, method
from tests.harness.distributions import install, refreshed
from tests.harness.pages import ROOT


def test_a_party_moves_the_sum_of_a_round_by_no_more_than_one_and_the_noise_is_a_multiple_of_that():
    small, large = np.full((50, 20), 0.001), np.full((50, 20), 7.0)
    rng = np.random.default_rng(0)
    found = noisy_mean([small, large], noise_multiplier=0.0, rng=rng)
    assert found == pytest.approx((small + large / np.linalg.norm(large)) / 2)
    noisy = noisy_mean([small, large], noise_multiplier=3.0, rng=rng) - found
    # 1,000 normal numbers: six standard errors of their standard deviation.
    assert noisy.std() == pytest.approx(3.0 / 2, rel=6 / 2000**0.5)


class Marks:
    """In the place of noise: the n-th draw is 1000 ** n."""

    drawn = 0

    def standard_normal(self, shape):
        self.drawn += 1
        return np.full(shape, 1000.0 ** (self.drawn - 1))


def test_a_running_sum_has_the_noise_of_the_fewest_nodes_that_make_it_up():
    # Nodes in the order of their ends: leaf 1, leaves 1-2, leaf 3, leaves 1-4.
    a, b, c, d = 1.0, 1e3, 1e6, 1e9
    found = prefix_noise(4, (1,), scale=2.0, rng=Marks()).ravel()
    assert (found == 2 * np.array([a, b, b + c, d])).all()


@pytest.mark.parametrize("leaves", [1, 2, 4, 5, 8])
def test_no_leaf_is_in_more_nodes_than_depth_says(leaves):
    rng, used = Marks(), set()
    prefix_noise(leaves, (1,), scale=1.0, rng=rng)
    for done in range(1, leaves + 1):
        end = done
        while end:
            used.add((end - (end & -end), end))
            end -= end & -end
    assert len(used) == rng.drawn
    assert max(sum(low <= leaf < high for low, high in used) for leaf in range(leaves)) <= depth(leaves)


def test_trees_are_as_private_as_dp_accounting_says_and_nearly_no_more():
    noise = 20.0
    ours = epsilon_of(noise, rate=1.0, steps=EPOCHS * depth(ROUNDS), delta=1e-5)
    # There neighbours replace a leaf by nothing, which moves a sum half as far; Renyi orders are a little looser.
    theirs = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    theirs.compose(dp_accounting.SingleEpochTreeAggregationDpEvent(noise / 2, ROUNDS), EPOCHS)
    assert ours <= theirs.get_epsilon(1e-5) <= 1.15 * ours


def test_replacing_any_record_moves_the_minimum_by_no_more_than_is_said():
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(20, 3)), rng.integers(0, 3, 20)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    first = federated.minimum(rows, labels, classes=3, strength=0.2)
    moved = []
    for record, label in ((-rows[0], 0), (-rows[0], 1), (rows[0], 2)):
        others, other_labels = rows.copy(), labels.copy()
        others[0], other_labels[0] = record, label
        second = federated.minimum(others, other_labels, classes=3, strength=0.2)
        moved.append(float(np.linalg.norm(second - first)))
    bound = federated.moved_by(20, 0.2)
    assert bound == pytest.approx(2 * 2**0.5 / (20 * 0.2), rel=1e-4)
    assert 0.1 * bound < max(moved) <= bound


def test_what_benchmarks_register_are_methods_that_a_comparison_then_offers(tmp_path, monkeypatch):
    own = len(METHODS)
    entries = tomllib.loads((ROOT / "benchmarks" / "pyproject.toml").read_text())["project"]["entry-points"]
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, name="conclave_benchmarks", group="conclave.baselines", entries=entries["conclave.baselines"])
    installed = refreshed(METHODS)
    monkeypatch.setattr(cells, "METHODS", installed)
    monkeypatch.setattr(method, "METHODS", installed)
    added = cells.parse_methods(None)[own:]
    assert set(added) == set(entries["conclave.baselines"])
    assert [name for name in added if not installed[name].private] == ["fedavg"]
    for name in set(added) - {"dp_sgd_cnn"}:  # which imports torch
        assert callable(method.method_of(name))
    _registered.cache_clear()
