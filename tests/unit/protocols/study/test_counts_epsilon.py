"""What a server that departs from the protocol may learn costs at most what the noisy counts cost."""

from math import log

import numpy as np
import pytest

from protocols.bounds.label_only import ORDERS
from protocols.crypto.field import BITS, P
from protocols.crypto.garbling import PlainGates, noisy_argmax
from protocols.study.protection import counts_epsilon, protection_of
from tests.harness.levels import lattice_study, secure_sum, two_server
from tests.harness.private_models import hidden_study

SIGMA, MOVED, MIDDLE, REACH = 4.0, 2, 40, 36


def converted(rdp, order, delta):
    """Canonne, Kamath & Steinke 2020, Prop. 12."""
    return rdp + log((order - 1) / order) - (log(delta) + log(order)) / (order - 1)


@pytest.mark.parametrize("study", [lattice_study(two_server()), hidden_study()], ids=["two_server", "hidden_queries"])
def test_it_is_the_epsilon_of_as_many_noisy_counts_as_the_poorest_and_the_richest_cap_affords(study):
    budgets, each = study.budgets, []
    for seat in range(len(study.roster)):
        asked = min(int(budgets.cap[seat] / 1e9 / budgets.ask[seat]), study.query_limit)
        rdp = asked * (study.weights[seat] / study.mechanism.sigma) ** 2
        each.append(min(converted(a * rdp, a, budgets.delta[seat]) for a in ORDERS.tolist()))
    assert protection_of(study).counts_epsilon == counts_epsilon(study) == pytest.approx(max(each), rel=1e-9)


def test_it_is_more_than_the_same_labels_cost():
    study = lattice_study(two_server(), queries=2000, batch_limit=200)
    assert counts_epsilon(study) > study.budgets.epsilon_guaranteed.max() > 0


def test_where_no_guardian_is_there_nothing_is_said():
    assert protection_of(lattice_study(secure_sum())).counts_epsilon == 0


def outcomes(shift, honest):
    """0, 1, or 2 for no answer, of the real circuit for all pairs of noisy counts; shift: of a server's inputs."""
    pairs = np.stack(np.meshgrid(honest, honest, indexing="ij")).reshape(2, -1)
    mask = np.int64(123_456_789)
    own = np.broadcast_to((2 * mask + shift)[:, None] % P, pairs.shape)
    wires = [
        ((numbers % P >> np.arange(BITS)[:, None, None]) & 1).astype(bool) for numbers in (own, 2 * (pairs - mask))
    ]
    found = noisy_argmax(PlainGates(), *wires, threshold=True)
    return np.where(found.passed, found.label[0].astype(int), 2)


def divergence(one, other, order):
    return log(float((one**order * other ** (1 - order)).sum())) / (order - 1)


def test_no_shift_of_counts_even_over_the_edge_of_the_ring_tells_more_than_the_noisy_counts():
    """A malicious server's inputs put the edges of the ring, and the threshold, among two classes' noisy counts."""
    honest = np.arange(MIDDLE - REACH, MIDDLE + REACH + 1)
    density = np.exp(-((honest - MIDDLE) ** 2) / (2 * SIGMA**2))
    moved = np.roll(density, MOVED)
    before, after = (np.outer(*each).ravel() for each in ((moved, density), (density, moved)))
    before, after = before / before.sum(), after / after.sum()
    rng, worst = np.random.default_rng(1), 0.0
    edges = [-2 * MIDDLE, P - 2 * MIDDLE, 2**30 - 2 * MIDDLE]
    for _ in range(24):
        shift = rng.choice(edges, 2) + rng.integers(-16, 17, 2)
        found = outcomes(shift, honest)
        one, other = (np.bincount(found, weights=each, minlength=3) + 1e-30 for each in (before, after))
        for order in (1.5, 4.0):
            told = max(divergence(one, other, order), divergence(other, one, order))
            assert told <= order * (MOVED / SIGMA) ** 2
            worst = max(worst, told / (order * (MOVED / SIGMA) ** 2))
    assert worst > 0.2
