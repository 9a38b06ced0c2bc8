"""One suite for every level of confidentiality that hides votes: the labels of `clear`, and everybody's ledger."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.secure_sum import aggregation as summed_votes
from protocols.levels.secure_sum.aggregation import SummedAggregation, open_sum
from protocols.levels.table import Means, ballot_of
from protocols.levels.two_server import circuit_inputs
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.circuit_inputs import InputCheck
from protocols.levels.two_server.noise_pool import NoiseLaw, noise_of
from protocols.noise import LatticeNoise
from protocols.study.levels import Clear
from protocols.votes import ABSTAIN, count_votes
from tests.harness.levels import SEAT_KEYS, UNITS, GuardianHere, lattice_study, rng_votes, secure_sum, two_server
from tests.harness.seeded import seeded_source

POOL = np.zeros((40, 2), np.float32)
# Of a pool where a circuit decides: two batches.
ASKED = 20
ROUND_TWO = {
    "mechanism": "interactive_gnmax",
    "round_one": 10,
    "interactive_threshold": 1.0,
    "reinforce_confidence": 0.5,
}
ONE_DRAW = {"mechanism": "thresholded_gnmax", "sigma_threshold": None}
STUDIES = {
    "thresholded": lattice_study(two_server(), threshold=6.0),
    "abstention": lattice_study(two_server(abstention=True), threshold=6.0),
    "gnmax": lattice_study(two_server(), mechanism="gnmax", sigma_threshold=None, threshold=None, sigma=5.0),
    "several teachers": lattice_study(two_server(), teachers=3, sigma=8.0, threshold=15.3),
    "weights": lattice_study(two_server(units=256), rule="proportional", sigma=4.0, threshold=6.0),
    "periodic participation": lattice_study(
        two_server(), threshold=4.0, participation="periodic", rates=[0.5, 1.0, 0.5, 1.0, 0.25, 1.0]
    ),
    "two classes": lattice_study(two_server(), threshold=6.0, classes=2),
    "drop-exhausted": lattice_study(two_server(), threshold=6.0, stop="drop-exhausted"),
}


class TotalNoise:
    """Keeps both servers' seeds of each batch, and gives the sum of their noise again as one server's."""

    def __init__(self, monkeypatch, study) -> None:
        self._law = NoiseLaw.of(study)
        self._seeds = seeds = {True: [], False: []}

        class Recorded(InputCheck):
            def run(self, exchange):
                seeds[exchange.leads].append((self._seed, self._queries))
                return super().run(exchange)

        monkeypatch.setattr(circuit_inputs, "InputCheck", Recorded)

    def again(self, units: int = UNITS) -> LatticeNoise:
        totals: deque = deque()
        for (first, queries), (second, _) in zip(self._seeds[True], self._seeds[False], strict=True):
            totals.append(sum(noise_of((first, second), self._law, queries=queries)))
        return LatticeNoise(units, lambda count, sigma: totals.popleft().reshape(count))


def train(labels):
    """A student that is sure of what it was told, and unsure elsewhere."""
    predictions = np.full((40, 5), 0.2)
    told = labels >= 0
    predictions[told] = 0.05
    predictions[told, labels[told]] = 0.8
    return predictions


def labelled(study, votes, aggregation, ledger=None, pool=POOL, wrap=lambda exchange: exchange):
    """(labelling, spent by each party's own ledger) of one study in one process. wrap: of the exchange."""
    ledgers = {seat.party: Ledger(":memory:") for seat in study.roster}
    parties = {
        seat.party: Party(
            seat.party,
            study=study,
            ledger=ledgers[seat.party],
            voter=lambda batch, i=i: votes[i][:, batch.ids].astype(np.int64),
            coins_from=None,
            ballot=ballot_of(
                study,
                seat.party,
                ledger=ledgers[seat.party],
                source=seeded_source(i),
                means=Means(key=lambda: SEAT_KEYS[i]),
            ),
        )
        for i, seat in enumerate(study.roster)
    }
    coordinator = Coordinator(
        study,
        ledger=ledger or Ledger(":memory:"),
        aggregation=aggregation,
        exchange=wrap(InProcessTransport({name: party.handle for name, party in parties.items()})),
        run=b"contract",
    )
    labelling = coordinator.label(pool, train=train if study.mechanism.interactive else None)
    own = [ledgers[seat.party].balance(seat.party).spent for seat in study.roster]
    for each in ledgers.values():
        each.close()
    return labelling, own


def in_clear(study):
    """The same study with clear votes and integer noise at the coordinator."""
    return replace(study, confidentiality=Clear(units=study.confidentiality.units))


@pytest.mark.parametrize("name", STUDIES)
def test_the_labels_are_those_of_clear_votes_with_the_same_weights_and_total_noise(name, monkeypatch):
    study = STUDIES[name]
    votes = rng_votes(6, study.votes.voters, 40, study.classes, 3)
    if study.confidentiality.abstention:
        votes = np.where(np.random.default_rng(4).random(votes.shape) < 0.3, -1, votes)
    total = TotalNoise(monkeypatch, study)
    with Ledger(":memory:") as guardians:
        here = GuardianHere(study, guardians, seeded_source(5))
        got, own = labelled(study, votes, SharedAggregation(here.dial, source=seeded_source(6)), pool=POOL[:ASKED])
        at_guardian = [guardians.balance(seat.party).spent for seat in study.roster]
    clear = ClearAggregation(total.again(study.confidentiality.units))
    expected, _ = labelled(in_clear(study), votes, clear, pool=POOL[:ASKED])
    np.testing.assert_array_equal(got.labels, expected.labels)
    np.testing.assert_array_equal(got.reinforced, expected.reinforced)
    assert got.batches == expected.batches
    assert got.spent.tolist() == expected.spent.tolist() == own == at_guardian
    assert not got.refusals
    assert set(here.faults) == {None}
    assert (got.labels >= 0).any()
    assert (got.labels == ABSTAIN).any() == (name != "gnmax")


SUMS = {
    "confident": lattice_study(secure_sum()),
    "thresholded": lattice_study(secure_sum(), **ONE_DRAW, threshold=6.0),
    "gnmax": lattice_study(secure_sum(), mechanism="gnmax", threshold=None),
    "interactive": lattice_study(secure_sum(), **ROUND_TWO),
    "several teachers": lattice_study(secure_sum(), teachers=3, sigma=8.0, threshold=6.3),
    "weights": lattice_study(secure_sum(units=256), rule="proportional"),
    "periodic participation": lattice_study(
        secure_sum(), participation="periodic", rates=[0.5, 1.0, 0.5, 1.0, 0.25, 1.0]
    ),
}


class Opened:
    """Records the noisy histograms that a coordinator opened."""

    def __init__(self, monkeypatch) -> None:
        self.sums: list = []

        def opening(agreed, replies):
            opened = open_sum(agreed, replies)
            self.sums.append(opened.sums)
            return opened

        monkeypatch.setattr(summed_votes, "open_sum", opening)

    def noise(self, study, votes, voted) -> LatticeNoise:
        """What is left of the sums when the votes of those that were counted are taken off."""
        weights, asked, left = study.weights.copy(), 0, deque()
        weights[[seat.party not in voted for seat in study.roster]] = 0
        for sums in self.sums:
            queries = np.arange(asked, asked + len(sums) // study.classes)
            cast = np.where(study.participation.votes(queries)[:, None, :], votes[:, :, queries], -1)
            counts = count_votes(cast, weights, classes=study.classes) * study.confidentiality.units
            left.append(sums - counts.ravel().astype(np.int64))
            asked += len(queries)
        return LatticeNoise(study.confidentiality.units, lambda count, sigma: left.popleft())


@pytest.mark.parametrize("name", SUMS)
def test_the_labels_of_a_masked_sum_are_those_of_clear_votes_with_the_noise_that_is_in_it(name, monkeypatch):
    study = SUMS[name]
    votes = rng_votes(6, study.votes.voters, 40, study.classes, 3)
    opened = Opened(monkeypatch)
    got, own = labelled(study, votes, SummedAggregation())
    everyone = {seat.party for seat in study.roster}
    expected, _ = labelled(in_clear(study), votes, ClearAggregation(opened.noise(study, votes, everyone)))
    np.testing.assert_array_equal(got.labels, expected.labels)
    np.testing.assert_array_equal(got.reinforced, expected.reinforced)
    assert got.batches == expected.batches
    assert got.spent.tolist() == expected.spent.tolist() == own
    assert not got.refusals
    assert (got.labels >= 0).any()


def test_the_noise_in_a_sum_is_that_of_all_who_are_in_it(monkeypatch):
    study = lattice_study(secure_sum(), mechanism="gnmax", threshold=None, queries=400, batch_limit=400, sigma=400.0)
    votes = rng_votes(6, 1, 400, 5, 3)
    opened = Opened(monkeypatch)
    with_pool = np.zeros((400, 2), np.float32)
    labelled(study, votes, SummedAggregation(), pool=with_pool)
    noise = opened.noise(study, votes, {seat.party for seat in study.roster}).draw(2000, 0.0)
    # Six shares where the three honest parties of a quorum of five add up to sigma: variance 2 sigma^2. The sample
    # variance of 2,000 draws is within 16 % (five standard errors) but for 1 in 1,700,000.
    assert noise.var() == pytest.approx(2 * (400.0 * UNITS) ** 2, rel=0.16)
