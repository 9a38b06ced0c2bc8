"""Masked sums through Party and Coordinator in faults: whoever leaves, stops or lies, and what is asked again."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.in_process import InProcess
from party.party import Party
from protocols.accounting.ledger import Ledger
from protocols.aggregation.summed_votes import SecureSum, SummedBallot
from protocols.coordinator import Coordinator
from protocols.errors import InvalidInput
from protocols.messages import HiddenVotes, Outcome, Refusal, StepReply, StepRequest, VoteRequest
from protocols.queries import QueryBatch
from protocols.randomness import seeded_source
from tests.contracts.levels import SEAT_KEYS, lattice_study, rng_votes, secure_sum

STUDY = lattice_study(secure_sum(colluders=1), batch_limit=40)
NAMES = [seat.party for seat in STUDY.roster]
VOTES = rng_votes(6, 1, 40, 5, 3)
POOL = np.zeros((40, 2), np.float32)
STEPS = ["sum_keys", "sum_shares", "vote", "sum_agree", "sum_open"]


def kind(request):
    return request.step if isinstance(request, StepRequest) else "vote" if isinstance(request, VoteRequest) else "told"


class World:
    """Six parties and a coordinator; `tamper(name, request, reply)` stands between them."""

    def __init__(self, tamper=lambda name, request, reply: reply):
        self.ledgers = {name: Ledger(":memory:") for name in NAMES}
        self.own, self.tamper = Ledger(":memory:"), tamper
        self.parties = {
            name: Party(
                name,
                study=STUDY,
                ledger=self.ledgers[name],
                voter=lambda batch, i=i: VOTES[i][:, batch.ids],
                coins_from=None,
                ballot=SummedBallot(STUDY, name, ledger=self.ledgers[name], key=SEAT_KEYS[i], source=seeded_source(i)),
            )
            for i, name in enumerate(NAMES)
        }

    def exchange(self, requests):
        handlers = {
            name: lambda request, name=name: self.tamper(name, request, self.parties[name].handle(request))
            for name in NAMES
        }
        replies = InProcess(handlers)(requests)
        return replies

    def label(self):
        return Coordinator(STUDY, ledger=self.own, aggregation=SecureSum(), exchange=self.exchange, run=b"run").label(
            POOL
        )

    def close(self):
        for ledger in (*self.ledgers.values(), self.own):
            ledger.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_party_that_leaves_at_any_step_is_named_and_the_rest_is_released(step):
    gone = STEPS.index(step)

    def tamper(name, request, reply):
        at = kind(request)
        return None if name == "p2" and at != "told" and STEPS.index(at) >= gone else reply

    world = World(tamper)
    got = world.label()
    assert (got.labels >= 0).any()
    in_the_sum = gone > STEPS.index("vote")
    assert got.refusals == ({} if in_the_sum else {"p2": "absent"})
    assert (got.spent[2] > 0) == in_the_sum
    own = [world.ledgers[name].balance(name).spent for name in NAMES]
    # A vote whose reply was lost is charged at its party all the same.
    assert own[:2] + own[3:] == got.spent.tolist()[:2] + got.spent.tolist()[3:]
    assert own[2] == (0 if gone < STEPS.index("vote") else STUDY.budgets.amount(got.batches[0][0], 0)[2])
    world.close()


@pytest.mark.parametrize("step", STEPS)
def test_two_that_leave_at_any_step_release_nothing_and_the_batch_goes_on_when_they_are_back(step):
    world = World(lambda name, request, reply: None if name in ("p2", "p4") and kind(request) == step else reply)
    first = world.label()
    if step in ("sum_agree", "sum_open"):  # enough are left to sign and to open
        assert (first.labels >= 0).any()
        world.close()
        return
    assert first.stop.reason == "quorum_lost"
    assert (first.labels < 0).all()
    spent = [world.ledgers[name].balance(name).spent for name in NAMES]
    world.tamper = lambda name, request, reply: reply
    again = world.label()
    assert (again.labels >= 0).any()
    after = [world.ledgers[name].balance(name).spent for name in NAMES]
    assert after == again.spent.tolist()
    assert all(now >= before for now, before in zip(after, spent, strict=True))
    world.close()


def truncated(reply):
    if isinstance(reply, HiddenVotes):
        return HiddenVotes(reply.batch_digest, (reply.arrays[0][:-1],))
    return StepReply(reply.batch_digest, reply.step, reply.arrays[:-1])


@pytest.mark.parametrize("step", ["sum_keys", "sum_shares", "vote"])
def test_a_malformed_reply_leaves_its_party_out_and_names_it(step):
    world = World(lambda name, request, reply: truncated(reply) if name == "p1" and kind(request) == step else reply)
    got = world.label()
    assert got.refusals == {"p1": "malformed"}
    assert (got.labels >= 0).any()
    assert got.spent[1] == 0
    world.close()


def test_a_second_set_of_survivors_is_signed_by_nobody():
    world, asked = World(), {}

    def keep(name, request, reply):
        if kind(request) == "sum_agree":
            asked[name] = request
        return reply

    world.tamper = keep
    world.label()
    request = asked["p0"]
    # The secrets were forgotten with the outcome, so neither set is signed again.
    assert world.parties["p0"].handle(request).code == "unknown_batch"
    world.close()


def test_survivors_other_than_the_first_are_refused_before_the_outcome():
    world = World()
    answers = []

    def lie(name, request, reply):
        if name == "p0" and kind(request) == "sum_agree":
            fewer = request.arrays[1].copy()
            fewer[5] = 0
            other = StepRequest(request.study, request.batch_digest, request.step, (request.arrays[0], fewer))
            answers.append(world.parties["p0"].handle(other))
        return reply

    world.tamper = lie
    world.label()
    assert answers[0].code == "other_survivors"
    world.close()


@pytest.mark.parametrize("step", ["sum_shares", "sum_agree", "sum_open"])
def test_a_step_out_of_the_blue_is_refused_and_charges_nothing(step):
    world = World()
    request = StepRequest(STUDY.digest, bytes(32), step, ())
    assert world.parties["p0"].handle(request).code == "unknown_batch"
    assert world.parties["p0"].handle(StepRequest(STUDY.digest, bytes(32), "nothing", ())).code == "no_such_step"
    assert world.parties["p0"].handle(StepRequest(bytes(32), bytes(32), step, ())).code == "other_study"
    assert world.ledgers["p0"].balance("p0").spent == 0
    world.close()


def test_a_vote_without_keys_or_of_another_size_is_refused_and_charges_nothing():
    world = World()
    batch = QueryBatch(0, np.arange(3), POOL[:3])
    request = VoteRequest(STUDY.digest, b"run", batch)
    assert world.parties["p0"].handle(request).code == "unknown_batch"
    world = World()
    keys = StepRequest(STUDY.digest, request.digest, "sum_keys", (np.array([4]),))
    assert isinstance(world.parties["p0"].handle(keys), StepReply)
    assert world.parties["p0"].handle(request).code == "other_shape"
    assert world.parties["p0"].handle(StepRequest(STUDY.digest, bytes(32), "sum_keys", (np.array([41]),))).code == (
        "batch_too_large"
    )
    assert world.ledgers["p0"].balance("p0").spent == 0
    world.close()


def test_no_outcome_lowers_what_a_histogram_cost():
    world = World()
    got = world.label()
    size, _ = got.batches[0]
    full = STUDY.budgets.amount(size, 0)
    assert world.ledgers["p0"].balance("p0").spent >= full[0]
    digest = world.own.stored(0).digest
    reply = world.parties["p0"].handle(Outcome(STUDY.digest, digest, np.zeros(size, dtype=bool)))
    assert not isinstance(reply, Refusal) or reply.code == "settled_otherwise"
    assert world.ledgers["p0"].balance("p0").spent >= full[0]
    world.close()


def test_a_key_that_the_roster_does_not_name_is_refused():
    with pytest.raises(InvalidInput, match="is not the one that study"):
        SummedBallot(STUDY, "p0", ledger=Ledger(":memory:"), key=SEAT_KEYS[1], source=seeded_source(1))
