import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import cryptographic, simulated
from protocols.votes import ABSTAIN, NOT_ASKED
from protocols.wire.messages import Outcome, VoteReply, VoteRequest
from tests.harness.reference import run_batch
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.studies import make_study, make_votes

BUDGETS = [1.0] * 10 + [2.0] * 10 + [3.0] * 10
QUERIES = 400
VOTES, TRUTH = make_votes(30, QUERIES)


def small_study(**changes):
    defaults = {"rule": "exhaustive", "sigma": 8.0, "sigma_threshold": 10.0, "threshold": 20.0, "queries": QUERIES}
    return make_study(BUDGETS, **{**defaults, **changes})


def run_live(study, *, noise, votes=VOTES, wrap=lambda exchange: exchange):
    """A live study; the labelling and the parties' own ledgers."""
    ledgers = {seat.party: Ledger(":memory:") for seat in study.roster}
    parties = {
        seat.party: Party(
            seat.party,
            study=study,
            ledger=ledgers[seat.party],
            voter=lambda b, i=i: votes[i][:, b.ids].astype(np.int64),
            coins_from=None,
        )
        for i, seat in enumerate(study.roster)
    }
    exchange = wrap(InProcessTransport({name: party.handle for name, party in parties.items()}))
    with Ledger(":memory:") as ledger:
        coordinator = Coordinator(
            study, ledger=ledger, aggregation=ClearAggregation(noise), exchange=exchange, run=b"run"
        )
        labelling = coordinator.label(np.zeros((QUERIES, 1), np.float32))
    return labelling, np.array([ledgers[seat.party].balance(seat.party).spent for seat in study.roster])


def test_a_live_study_agrees_with_the_reference_batch_by_batch():
    study = small_study(sigma=16.0, sigma_threshold=18.0, batch_limit=7)
    labelling, own = run_live(study, noise=simulated(np.random.default_rng(5)))
    rng = np.random.default_rng(5)
    spent = {seat.party: 0 for seat in study.roster}
    start = 0
    for size, answered in labelling.batches:
        bit, label = rng.standard_normal(size), rng.standard_normal((size, 10))
        votes = {seat.party: VOTES[i][:, start : start + size] for i, seat in enumerate(study.roster)}
        labels, spent = run_batch(study, votes, spent, threshold_noise=bit, label_noise=label)
        assert labels == labelling.labels[start : start + size].tolist()
        assert answered == sum(label != ABSTAIN for label in labels)
        start += size
    assert len(labelling.batches) >= 5
    assert list(spent.values()) == labelling.spent.tolist() == own.tolist()
    assert (labelling.labels[start:] == NOT_ASKED).all()
    assert labelling.stop.reason == "budget_exhausted"


@pytest.mark.parametrize("stop", ["first-exhausted", "drop-exhausted"])
@pytest.mark.parametrize("rule", ["uniform", "proportional", "exhaustive"])
@pytest.mark.parametrize(("unit", "mechanism"), [("record", "confident_gnmax"), ("party", "gnmax")])
def test_no_ledger_passes_its_cap_and_both_sides_agree(stop, rule, unit, mechanism):
    noise = {"threshold": None, "sigma_threshold": None} if mechanism == "gnmax" else {}
    study = small_study(rule=rule, stop=stop, unit=unit, mechanism=mechanism, **noise)
    labelling, own = run_live(study, noise=cryptographic(seeded_source(1)))
    assert (own == labelling.spent).all()
    assert (own <= study.budgets.cap).all()
    assert labelling.ledger_differences == {}
    assert (labelling.labels >= 0).sum() > 0
    # The study really stopped because not one query more would fit, for the first or for all parties.
    fits = study.budgets.affordable(labelling.spent, limit=1)
    if labelling.stop.reason != "pool_exhausted":
        assert (fits.min() if stop == "first-exhausted" else fits.max()) < 1


def test_released_labels_are_mostly_right():
    labelling, _ = run_live(small_study(), noise=simulated(np.random.default_rng(0)))
    answered = labelling.labels >= 0
    assert (labelling.labels == TRUTH)[answered].mean() > 0.85


def test_parties_that_refuse_or_lie_are_left_out_named_and_cost_nothing():
    study = small_study(quorum=20)

    def spoil(exchange):
        def spoiled(requests):
            replies = exchange(requests)
            for party, reply in replies.items():
                if isinstance(reply, VoteReply) and party in ("p1", "p2", "p3"):
                    bad = {"p1": reply.votes[:, :-1], "p2": reply.votes + 10, "p3": reply.votes}[party]
                    digest = bytes(32) if party == "p3" else reply.batch_digest
                    replies[party] = VoteReply(digest, bad)
            return replies

        return spoiled

    labelling, own = run_live(study, noise=simulated(np.random.default_rng(0)), wrap=spoil)
    assert set(labelling.refusals) == set(labelling.ledger_differences) == {"p1", "p2", "p3"}
    assert labelling.spent[1:4].tolist() == [0, 0, 0]
    assert (labelling.spent[4:] > 0).all()
    assert (own <= study.budgets.cap).all()
    # Their own ledgers keep the reservation of every batch until they refuse at their cap.
    assert (own[1:4] > 0).all()


def test_too_few_parties_release_nothing():
    study = small_study(quorum=25)

    def silence(exchange):
        return lambda requests: {
            party: None if int(party[1:]) < 10 else reply for party, reply in exchange(requests).items()
        }

    labelling, own = run_live(study, noise=simulated(np.random.default_rng(0)), wrap=silence)
    assert labelling.stop.reason == "quorum_lost"
    assert (labelling.labels == NOT_ASKED).all()
    # The reservations stand, on both sides.
    assert (labelling.spent > 0).all()
    assert (own <= labelling.spent).all()


def test_an_outcome_that_is_lost_leaves_the_party_with_the_higher_figure():
    study = small_study()

    def lose_outcomes(exchange):
        def lossy(requests):
            first = next(iter(requests.values()))
            if isinstance(first, Outcome):
                kept = {party: request for party, request in requests.items() if party != "p4"}
                return {**exchange(kept), "p4": None}
            assert isinstance(first, VoteRequest)
            return exchange(requests)

        return lossy

    labelling, own = run_live(study, noise=simulated(np.random.default_rng(0)), wrap=lose_outcomes)
    assert own[4] > labelling.spent[4]
    assert own[4] <= study.budgets.cap[4]
    assert labelling.ledger_differences.keys() == {"p4"}


def test_a_pool_above_the_query_limit_is_refused():
    study = small_study()
    with Ledger(":memory:") as ledger:
        coordinator = Coordinator(
            study,
            ledger=ledger,
            aggregation=ClearAggregation(simulated(np.random.default_rng(0))),
            exchange=InProcessTransport({}),
            run=b"run",
        )
        with refuses(InvalidInput, 400):
            coordinator.label(np.zeros((401, 1), np.float32))


class Hospitals:
    """Parties whose ledgers outlive coordinators."""

    def __init__(self, study):
        self.study = study
        self.ledgers = {seat.party: Ledger(":memory:") for seat in study.roster}
        self.handlers = {
            seat.party: Party(
                seat.party,
                study=study,
                ledger=self.ledgers[seat.party],
                voter=lambda b, i=i: VOTES[i][:, b.ids].astype(np.int64),
                coins_from=None,
            ).handle
            for i, seat in enumerate(study.roster)
        }

    def label(self, ledger, *, seed, run, exchange=None):
        exchange = exchange or InProcessTransport(self.handlers)
        noise = simulated(np.random.default_rng(seed))
        coordinator = Coordinator(
            self.study, ledger=ledger, aggregation=ClearAggregation(noise), exchange=exchange, run=run
        )
        return coordinator.label(np.zeros((QUERIES, 1), np.float32))

    def spent(self):
        return [ledger.balance(name).spent for name, ledger in self.ledgers.items()]


def test_a_restarted_coordinator_releases_the_same_labels_and_charges_nothing():
    hospitals = Hospitals(small_study(sigma=16.0, sigma_threshold=18.0, batch_limit=7))
    with Ledger(":memory:") as ledger:
        first = hospitals.label(ledger, seed=1, run=b"a")
        spent = hospitals.spent()
        again = hospitals.label(ledger, seed=2, run=b"b")
    np.testing.assert_array_equal(first.labels, again.labels)
    assert first.batches == again.batches
    assert hospitals.spent() == spent


def test_a_coordinator_that_stopped_within_a_batch_asks_it_again_without_another_charge():
    hospitals = Hospitals(small_study(sigma=16.0, sigma_threshold=18.0, batch_limit=7))

    class Died(Exception):
        pass

    def dying(requests, calls=[0]):  # noqa: B006  # counts its calls on purpose
        calls[0] += 1
        replies = InProcessTransport(hospitals.handlers)(requests)
        # The third message round carries the second batch's votes: they are given and never released.
        if calls[0] == 3:
            raise Died
        return replies

    with Ledger(":memory:") as ledger:
        with pytest.raises(Died):
            hospitals.label(ledger, seed=1, run=b"a", exchange=dying)
        spent = hospitals.spent()
        reserved = [ledger.balance(name).spent for name in hospitals.ledgers]
        assert spent == reserved
        whole = hospitals.label(ledger, seed=2, run=b"b")
        assert whole.ledger_differences == {}
        assert whole.spent.tolist() == hospitals.spent()
        assert len(whole.batches) > 2
        assert sum(size for size, _ in whole.batches) == (whole.labels != NOT_ASKED).sum()


def test_a_coordinator_that_lost_its_ledger_gets_no_votes_for_a_charge_that_was_used():
    hospitals = Hospitals(small_study(quorum=1))
    with Ledger(":memory:") as ledger:
        hospitals.label(ledger, seed=1, run=b"a")
    spent = hospitals.spent()
    with Ledger(":memory:") as fresh:
        again = hospitals.label(fresh, seed=2, run=b"b")
    assert again.stop.reason == "quorum_lost"
    assert (again.labels == NOT_ASKED).all()
    assert set(again.refusals.values()) == {"batch_reused"}
    assert hospitals.spent() == spent


def test_votes_of_a_party_that_was_not_asked_are_not_counted():
    study = small_study(rule="uniform", stop="drop-exhausted", sigma=16.0, sigma_threshold=18.0)
    hospitals = Hospitals(study)
    plain = Hospitals(study)

    def eager(requests):
        replies = InProcessTransport(hospitals.handlers)(requests)
        extra = next((reply for reply in replies.values() if isinstance(reply, VoteReply)), None)
        if extra is not None:
            for name in hospitals.handlers:
                replies.setdefault(name, extra)
        return replies

    with Ledger(":memory:") as ledger, Ledger(":memory:") as other:
        got = hospitals.label(ledger, seed=1, run=b"a", exchange=eager)
        expected = plain.label(other, seed=1, run=b"a")
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert len(expected.batches) > 3
