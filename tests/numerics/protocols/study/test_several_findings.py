"""Votes on findings, sampled: what one record's change shows is what is charged, and five faults of it show."""

import numpy as np
import pytest

from protocols.budgets.accountant import accountant
from protocols.mechanisms import GNMax, Sensitivity, TauVoting
from protocols.noise import simulated
from protocols.study import several_findings
from protocols.study.several_findings import Binary, Powerset, Tau
from protocols.votes import LATTICE
from simulations.audit.bounds import Samples, mu_lower_bound

FINDINGS, TRIALS, ALPHA = 8, 20_000, 1e-6  # the chance that a right way fails here is one in a million
NONE, ALL = np.zeros(FINDINGS, dtype=np.int64), np.ones(FINDINGS, dtype=np.int64)
FIRST, LAST = (np.roll(np.arange(FINDINGS) == 0, turn).astype(np.int64) for turn in (0, 1))
TAU = (Tau(FINDINGS), TauVoting(sigma=2.0, tau=1.0, threshold=0.0), FIRST, LAST)
EVERY = (*TAU[:2], NONE, ALL)
WAYS = {
    "tau": TAU,
    "binary": (Binary(FINDINGS), GNMax(sigma=4.0), NONE, ALL),
    "powerset": (Powerset(FINDINGS, ((), tuple(range(FINDINGS)))), GNMax(sigma=2.0), NONE, ALL),
}


def charged(way, mechanism, *, rows):
    moved = Sensitivity.always(np.ones(1), delta_squared=mechanism.squared_move(way.classes))
    cost = accountant("gaussian_dp").query_cost(mechanism, moved, view="histogram", classes=way.classes)
    return float(np.sqrt(rows * cost.ask[0, 0]))


def shown(way, mechanism, before, after):
    """What a test of the noisy counts of one teacher's vote on many queries surely shows of mu."""
    seen, direction = [], None
    rng = np.random.default_rng(11)
    for said in (before, after):
        votes = way.votes(np.broadcast_to(said, (1, 1, TRIALS, FINDINGS)))
        counts = way.counts(votes, np.ones(1), units=LATTICE, mechanism=mechanism, classes=way.classes)
        noisy = mechanism.noisy(counts, simulated(rng), view="histogram")
        seen.append((counts.reshape(TRIALS, -1)[0], noisy.reshape(TRIALS, -1)))
    direction = seen[0][0] - seen[1][0]
    return mu_lower_bound([Samples(*(noisy @ direction for _, noisy in seen))], alpha=ALPHA).value


@pytest.mark.parametrize("name", WAYS)
def test_a_changed_record_shows_nearly_what_is_charged_and_no_more(name):
    way, mechanism, before, after = WAYS[name]
    claim = charged(way, mechanism, rows=way.rows)
    assert 0.7 * claim < shown(way, mechanism, before, after) <= claim


def unclipped(weight, *, tau, findings):
    return np.full(findings + 1, weight, dtype=np.int64)


def one_noise(self, counts, noise, *, view):
    return counts + self.sigma * noise((len(counts), 1))


def half_noise(self, counts, noise, *, view):
    return counts + self.sigma / 2 * noise(counts.shape)


def twice(votes, weights, *, classes):
    return 2 * np.eye(classes)[votes[0, 0]]


def test_five_faults_of_votes_on_findings_show(subtests, monkeypatch):
    faults = {
        "votes are not clipped": (several_findings, "entries", unclipped, EVERY),
        "one noise for all findings": (TauVoting, "noisy", one_noise, TAU),
        "half of the noise": (TauVoting, "noisy", half_noise, TAU),
        "a vote on a set counts twice": (several_findings, "count_votes", twice, WAYS["powerset"]),
    }
    for name, (where, what, fault, (way, mechanism, before, after)) in faults.items():
        with subtests.test(name), monkeypatch.context() as patched:
            patched.setattr(where, what, fault)
            assert shown(way, mechanism, before, after) > charged(way, mechanism, rows=1)
    with subtests.test("a finding is charged, not all"):
        way, mechanism, before, after = WAYS["binary"]
        assert shown(way, mechanism, before, after) > charged(way, mechanism, rows=1)
