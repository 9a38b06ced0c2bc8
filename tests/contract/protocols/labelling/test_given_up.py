"""A batch that is given up: what was charged stays charged, nothing of it is ever opened, and the study goes on."""

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.secure_sum.aggregation import openers
from protocols.noise import simulated
from protocols.study.levels import Clear
from protocols.votes import NOT_ASKED
from protocols.wire.messages import Outcome, StepRequest, VoteRequest
from tests.harness.dying import Deaths, Killed
from tests.harness.levels import lattice_study
from tests.harness.refusals import refused_for
from tests.harness.six_parties import NAMES, POOL, SHARED, SIZE, SUMMED, VOTES, World


@pytest.fixture
def world(tmp_path):
    made = []

    def make(study):
        made.append(World(study, tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def two_leave_before_opening(name, request):
    """Two sharers mask their votes and are never seen again: five must sign."""
    return name in ("p2", "p4") and isinstance(request, StepRequest) and request.step in ("sum_agree", "sum_open")


def stuck_sum(world):
    """A masked sum that one party was not in, and two of its sharers left: nobody can open it."""
    made = world(SUMMED)
    made.gone = lambda name, request: name == "p5" or two_leave_before_opening(name, request)
    assert made.label().stop.reason == "quorum_lost"
    assert made.label().stop.reason == "quorum_lost"
    made.gone = lambda name, request: name == "p2"
    return made


def stuck_shares(world):
    made = world(SHARED)
    made.guardian_gone = True
    assert made.label().stop.reason == "guardian_lost"
    return made


@pytest.mark.parametrize("stuck", [stuck_sum, stuck_shares])
def test_what_it_was_charged_stays_charged_and_the_study_goes_on(world, stuck):
    made = stuck(world)
    own, spends = made.coordinators(), made.spends()
    assert min(own) > 0
    number = made.coordinator().open_batch
    made.coordinator().give_up(number, POOL)
    assert (made.coordinators(), made.spends()) == (own, spends)
    assert made.coordinator().open_batch is None
    made.guardian_gone = False
    asked = len(made.requests)
    got = made.label()
    assert got.stop.reason == "pool_exhausted"
    assert (got.labels[:SIZE] == NOT_ASKED).all()
    assert (got.labels[SIZE:] != NOT_ASKED).all()
    assert got.batches[0] == (SIZE, 0)
    assert made.own.charged(0) == {name: amount for name, amount in zip(NAMES, own, strict=True)}
    assert made.own.settled(0) == {}
    # Its queries are never asked again, and no reply under its number is.
    assert all(request.batch.number > 0 for request in made.requests[asked:] if isinstance(request, VoteRequest))
    assert all(
        request.batch_digest != made.digest for request in made.requests[asked:] if isinstance(request, StepRequest)
    )
    # What the coordinator's ledger holds is never below what a party's does.
    for name, mine, theirs in zip(NAMES, made.coordinators(), made.spends(), strict=True):
        assert mine >= theirs - got.ledger_differences.get(name, 0)
    assert made.spends()[0] == made.coordinators()[0]


def test_the_parties_of_a_masked_sum_forget_its_secrets_and_open_it_for_nobody(world):
    made = stuck_sum(world)
    kept = next(each for each in made.requests if isinstance(each, StepRequest) and each.step == "sum_agree")
    spends = made.spends()
    assert "sum_secret" in made.notes(made.ledgers["p0"])
    made.coordinator().give_up(0, POOL)
    made.label()
    for name in ("p0", "p1", "p3", "p4"):
        assert not made.notes(made.ledgers[name])
        assert made.ledgers[name].settled(0) == {name: made.ledgers[name].charged(0)[name]}
    assert made.parties["p0"].handle(kept).code == "unknown_batch"
    again = StepRequest(SUMMED.digest, made.digest, "sum_keys", (np.array([SIZE]),))
    assert made.parties["p0"].handle(again).code == "unknown_batch"
    # One that is away keeps its secrets, and is told when it is back.
    assert "sum_secret" in made.notes(made.ledgers["p2"])
    outcome = made.coordinator().outcome_for("p2", made.digest)
    assert not outcome.answered.any()
    made.parties["p2"].handle(outcome)
    assert made.spends()[2] >= spends[2]
    assert not made.notes(made.ledgers["p2"])
    # One that never heard of it charged nothing; here it counts all the same.
    assert made.parties["p5"].handle(outcome).code == "unknown_batch"
    assert made.coordinators()[5] > made.spends()[5]


def test_who_could_open_a_sum_is_known_as_soon_as_it_is_fixed(world):
    made = world(SUMMED)
    made.gone = lambda name, request: True
    made.label()
    assert openers(made.own, made.digest) is None
    # Two shared, and never voted: who votes yet is open. One of them comes, and two others leave for good.
    made.gone = lambda name, request: name in ("p1", "p5") and isinstance(request, VoteRequest)
    made.label()
    assert openers(made.own, made.digest) == [0, 1, 2, 3, 4, 5]
    made.gone = lambda name, request: (
        two_leave_before_opening(name, request) or (name == "p1" and isinstance(request, VoteRequest))
    )
    made.label()
    assert openers(made.own, made.digest) == [0, 2, 3, 4, 5]


def test_the_next_sum_has_masks_and_noise_of_its_own(world):
    made = stuck_sum(world)
    before = [reply.arrays[0].tobytes() for reply in made.vectors]
    secrets = {made.ledgers[name].noted(made.digest, "sum_secret") for name in NAMES[:5]}
    made.coordinator().give_up(0, POOL)
    asked = len(made.vectors)
    fresh = []
    for name in NAMES:
        ledger = made.ledgers[name]
        ledger.note, noted = (lambda *given, keep=ledger.note: fresh.append(given[1:]) or keep(*given)), ledger.note
        assert noted is not None
    made.label()
    assert not {value for kind, value in fresh if kind == "sum_secret"} & secrets
    assert not set(before) & {reply.arrays[0].tobytes() for reply in made.vectors[asked:]}


def test_shares_and_noise_are_forgotten_and_no_charge_is_lowered_without_the_guardian(world):
    made = stuck_shares(world)
    assert {"submitted", "noise_seed"} <= made.notes(made.own)
    reserved = made.spends()
    made.coordinator().give_up(0, POOL)
    assert made.notes(made.own) == {"given_up"}
    assert all(made.coordinator().outcome_for(name, made.digest) is None for name in NAMES)
    made.guardian_gone = False
    told = [request for request in made.requests if isinstance(request, Outcome)]
    made.label()
    outcomes = [request for request in made.requests if isinstance(request, Outcome)][len(told) :]
    assert all(outcome.batch_digest != made.digest for outcome in outcomes)
    # Answered or not, the batch has one price, which each party charged for good when it voted.
    for name, amount in zip(NAMES, reserved, strict=True):
        assert made.ledgers[name].settled(0) == {name: amount}
    assert made.spends() == made.coordinators()
    # The guardian never saw the batch: it holds the caps at least as well as anybody.
    assert all(made.guardians.balance(name).spent <= spent for name, spent in zip(NAMES, made.spends(), strict=True))


def test_a_label_that_comes_too_late_is_dropped(world):
    made = stuck_sum(world)
    made.gone = lambda name, request: False
    # All are back, and the sum is opened; in that moment another process gives the batch up.
    going_on, real = made.coordinator(), made.exchange

    def given_up_in_between(requests):
        replies = real(requests)
        if any(isinstance(each, StepRequest) and each.step == "sum_open" for each in requests.values()):
            made.coordinator().give_up(0, POOL)
        return replies

    going_on._exchange = given_up_in_between
    with refused_for("given_up"):
        going_on.label(POOL)
    assert made.own.settled(0) == {}
    assert made.own.stored(0).payload == b""
    assert (made.label().labels[:SIZE] == NOT_ASKED).all()


def test_one_that_was_released_or_never_asked_is_not_given_up(world):
    made = world(SUMMED)
    with refused_for("unknown_batch"):
        made.coordinator().give_up(0, POOL)
    got = made.label()
    assert made.coordinator().open_batch is None
    with refused_for("settled_otherwise"):
        made.coordinator().give_up(0, POOL)
    assert (made.label().labels == got.labels).all()


def test_at_clear_a_reservation_stands_as_telling_would_lower_it(tmp_path):
    study = lattice_study(Clear(), batch_limit=SIZE, quorum=6, sigma=8.0, sigma_threshold=8.0)
    ledgers = {name: Ledger(":memory:") for name in NAMES}
    parties = {
        name: Party(name, study=study, ledger=ledgers[name], voter=lambda b, i=i: VOTES[i][:, b.ids], coins_from=None)
        for i, name in enumerate(NAMES)
    }
    own = Ledger(tmp_path / "own.sqlite")
    absent = [frozenset({"p3"})]
    told = []

    def exchange(requests):
        told.extend(each for each in requests.values() if isinstance(each, Outcome))
        return InProcessTransport({name: each.handle for name, each in parties.items()}, absent=lambda _: absent[0])(
            requests
        )

    made = Coordinator(
        study,
        ledger=own,
        aggregation=ClearAggregation(simulated(np.random.default_rng(1))),
        exchange=exchange,
        run=b"run",
    )
    assert made.label(POOL).stop.reason == "quorum_lost"
    made.give_up(0, POOL)
    absent[0] = frozenset()
    reserved = ledgers["p0"].balance("p0").reserved
    got = made.label(POOL)
    digest = own.stored(0).digest
    assert (got.labels[SIZE:] != NOT_ASKED).all()
    assert made.outcome_for("p0", digest) is None
    assert not [outcome for outcome in told if outcome.batch_digest == digest]
    assert ledgers["p0"].balance("p0").reserved == reserved > 0
    assert ledgers["p0"].balance("p0").spent == own.balance("p0").spent
    for ledger in (own, *ledgers.values()):
        ledger.close()


def statements_of_giving_up(world, monkeypatch):
    made = stuck_sum(world)
    deaths = Deaths(monkeypatch)
    made.own.close()
    made.own = Ledger(made.folder / "coordinator.sqlite")
    coordinator = made.coordinator()
    return made, deaths, coordinator


@pytest.mark.parametrize("dies_after", [0, 1, 5, 10, 15, 20, 25])
def test_killed_at_any_write_it_is_given_up_or_it_is_not(world, monkeypatch, dies_after):
    made, deaths, coordinator = statements_of_giving_up(world, monkeypatch)
    own, spends = made.coordinators(), made.spends()
    deaths.arm(dies_after)
    try:
        coordinator.give_up(0, POOL)
    except Killed:
        pass
    deaths.disarm()
    made.own.close()
    made.own = Ledger(made.folder / "coordinator.sqlite")
    assert (made.coordinators(), made.spends()) == (own, spends)
    assert made.own.given_up(0) == (made.coordinator().open_batch is None)
    made.coordinator().give_up(0, POOL)
    got = made.label()
    assert got.stop.reason == "pool_exhausted"
    assert made.own.charged(0) == {name: amount for name, amount in zip(NAMES, own, strict=True)}
    assert [entry.event for entry in made.own.log.entries()].count("given_up") == 1
    assert not {"sum_shared", "sum_masked"} & made.notes(made.own)


def test_a_stop_while_parties_are_told_tells_them_again_and_charges_nobody(world):
    made = stuck_sum(world)
    made.coordinator().give_up(0, POOL)
    real, going_on = made.exchange, made.coordinator()

    def killed(requests):
        real(dict(list(requests.items())[:2]))
        raise Killed

    going_on._exchange = killed
    with pytest.raises(Killed):
        going_on.label(POOL)
    before = made.spends()
    assert not made.notes(made.ledgers["p0"])
    assert made.notes(made.ledgers["p3"])
    going_on = made.coordinator()
    first = []

    def stopped(requests):
        first.append(requests)
        if len(first) == 1:
            return real(requests)
        raise Killed

    going_on._exchange = stopped
    with pytest.raises(Killed):
        going_on.label(POOL)
    assert made.spends() == before
    assert not made.notes(made.ledgers["p3"])
