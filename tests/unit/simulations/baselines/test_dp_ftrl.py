"""DP-FTRL: which noise a running sum has, and how private its trees are."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from simulations.baselines.federated import EPOCHS, ROUNDS, depth, prefix_noise
from simulations.baselines.noise_multiplier import epsilon_of


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
