"""Masked sums through Party and Coordinator in faults: whoever leaves, stops or lies, and what is asked again."""

import contextlib
import os
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from coordinator.in_process import InProcessTransport
from party.budget.watermarks import Mark, check_believed
from party.party import Party
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.levels.secure_sum.ballot import SummedBallot
from protocols.study.queries import QueryBatch
from protocols.wire.messages import ConcealedVotes, Outcome, Refusal, StepReply, StepRequest, VoteRequest, decode
from tests.harness.levels import SEAT_KEYS
from tests.harness.refusals import refused_for
from tests.harness.seeded import seeded_source
from tests.harness.summed_world import NAMES, POOL, STEPS, STUDY, VOTES, World, kind


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
    if isinstance(reply, ConcealedVotes):
        return ConcealedVotes(reply.batch_digest, (reply.arrays[0][:-1], *reply.arrays[1:]))
    return StepReply(reply.batch_digest, reply.step, reply.arrays[:-1])


@pytest.mark.parametrize("step", ["sum_keys", "sum_shares", "sum_check", "vote"])
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


@pytest.mark.parametrize("step", ["sum_shares", "sum_check", "sum_dispute", "sum_agree", "sum_open"])
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


def masked_kinds(ledger):
    """What a party keeps of each digest that it was never charged for."""
    rows = ledger._rows("SELECT digest, kind FROM note WHERE digest NOT IN (SELECT digest FROM batch)", ())
    kinds: dict[bytes, set[str]] = {}
    for digest, kind_of in rows:
        kinds.setdefault(digest, set()).add(kind_of)
    return kinds


def refusing_votes(world, name):
    """The teachers of a party fail while a batch is cast: it noted whom it masks with, and was not charged."""
    world.parties[name]._voter = lambda batch: np.zeros((1, 1), np.int64)


def test_what_is_noted_of_a_vote_that_was_refused_goes_with_its_secret():
    world = World()
    refusing_votes(world, "p1")
    world.label()
    ledger = world.ledgers["p1"]
    ((digest, kinds),) = masked_kinds(ledger).items()
    assert kinds == {"sum_secret", "sum_cells", "sum_masking"}
    everyone = np.ones(len(NAMES), np.uint8)
    agreed = world.parties["p1"].handle(StepRequest(STUDY.digest, digest, "sum_agree", (everyone, everyone)))
    assert isinstance(agreed, Refusal)
    assert agreed.code == "unknown_batch"  # it masked nothing that left it
    for number in range(8):
        assert masked_kinds(ledger).get(digest) == kinds
        keys = StepRequest(STUDY.digest, bytes([number]) * 32, "sum_keys", (np.array([3]),))
        assert isinstance(world.parties["p1"].handle(keys), StepReply)
    assert digest not in masked_kinds(ledger)
    assert len(masked_kinds(ledger)) == 8
    assert ledger.balance("p1").spent == 0
    world.close()


def test_a_vote_that_was_refused_is_bound_to_its_sharers_as_long_as_its_secret_is_there():
    world, votes = World(), []

    def keep(name, request, reply):
        if name == "p1" and kind(request) == "vote":
            votes.append(request)
        return reply

    world.tamper = keep
    refusing_votes(world, "p1")
    world.label()
    (request,) = votes
    world.parties["p1"]._voter = lambda batch: VOTES[1][:, batch.ids]
    sharers = request.relayed[0].copy()
    sharers[5] = 0
    other = VoteRequest(request.study, request.run, request.batch, (sharers, *request.relayed[1:]))
    assert world.parties["p1"].handle(other).code == "other_sharers"
    assert world.ledgers["p1"].balance("p1").spent == 0
    assert isinstance(world.parties["p1"].handle(request), ConcealedVotes)
    charged = world.ledgers["p1"].balance("p1").spent
    assert charged > 0
    # Once it is charged, nothing takes its notes away but the outcome.
    for number in range(9):
        world.parties["p1"].handle(StepRequest(STUDY.digest, bytes([number]) * 32, "sum_keys", (np.array([3]),)))
    assert world.ledgers["p1"].noted(request.digest, "sum_masking") is not None
    assert world.ledgers["p1"].noted(request.digest, "sum_secret") is not None
    assert world.parties["p1"].handle(other).arrays[0].tobytes() == (
        world.parties["p1"].handle(request).arrays[0].tobytes()
    )
    assert world.ledgers["p1"].balance("p1").spent == charged
    world.close()


def test_survivors_of_a_batch_that_a_party_has_not_voted_on_are_not_noted():
    world = World()
    request = VoteRequest(STUDY.digest, b"run", QueryBatch(0, np.arange(3), POOL[:3]))
    party, ledger = world.parties["p0"], world.ledgers["p0"]
    party.handle(StepRequest(STUDY.digest, request.digest, "sum_keys", (np.array([3]),)))
    everyone = np.ones(6, dtype=np.uint8)
    agree = StepRequest(STUDY.digest, request.digest, "sum_agree", (everyone, everyone))
    assert party.handle(agree).code == "unknown_batch"
    assert ledger.noted(request.digest, "sum_survivors") is None
    world.close()


def test_a_key_that_the_roster_does_not_name_is_refused():
    with pytest.raises(InvalidInput, match="is not the one that study"):
        SummedBallot(STUDY, "p0", ledger=Ledger(":memory:"), key=SEAT_KEYS[1], source=seeded_source(1))


def test_a_ledger_that_was_restored_to_before_its_charge_masks_the_very_same(tmp_path):
    """Other coins or other noise under the same masks would show, by their difference, what was masked."""
    secret = replace(
        STUDY,
        votes=replace(STUDY.votes, participation_name="secret"),
        roster=tuple(replace(seat, rate=0.5) for seat in STUDY.roster),
    )
    ledgers = {name: Ledger(tmp_path / f"{name}.sqlite") for name in NAMES}

    def party(name, ledger):
        ballot = SummedBallot(
            secret, name, ledger=ledger, key=SEAT_KEYS[NAMES.index(name)], source=seeded_source(NAMES.index(name))
        )
        votes = VOTES[NAMES.index(name)]
        return Party(
            name, study=secret, ledger=ledger, voter=lambda b: votes[:, b.ids], coins_from=os.urandom, ballot=ballot
        )

    parties, asked = {name: party(name, ledgers[name]) for name in NAMES}, []

    def exchange(requests):
        if isinstance(request := requests.get("p0"), VoteRequest):
            with sqlite3.connect(tmp_path / "copy.sqlite") as copy:
                ledgers["p0"]._database.backup(copy)
            copy.close()
            asked.append(request)
        return InProcessTransport({name: parties[name].handle for name in NAMES})(requests)

    with Ledger(":memory:") as own:
        Coordinator(secret, ledger=own, aggregation=SummedAggregation(), exchange=exchange, run=b"run").label(POOL)
    masked, _, tags = decode(ledgers["p0"].stored(0).payload).arrays
    with Ledger(tmp_path / "copy.sqlite") as restored:
        party("p0", restored).handle(asked[0])
        again, _, tags_again = decode(restored.stored(0).payload).arrays
    np.testing.assert_array_equal(again, masked)
    np.testing.assert_array_equal(tags_again, tags)
    for ledger in ledgers.values():
        ledger.close()


def test_a_ledger_from_before_its_party_agreed_on_survivors_is_told_from_the_newest(tmp_path):
    """A copy from between the vote and `sum_agree` would agree on other survivors: a sum without somebody's share."""
    world, before = World(lambda name, asked, reply: None if kind(asked) == "sum_agree" else reply), {}
    ledger, handle = world.ledgers["p0"], world.parties["p0"].handle

    def copying(request):
        if isinstance(request, StepRequest) and request.step == "sum_agree" and not before:
            with contextlib.closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copy:
                ledger._database.backup(copy)
            before["head"] = ledger.log.head()
            reply = handle(request)
            before["after"] = ledger.log.head()
            assert isinstance(reply, StepReply)
            again = handle(request)  # the same set once more is no new entry
            assert isinstance(again, StepReply)
            assert ledger.log.head() == before["after"]
            return reply
        return handle(request)

    world.parties["p0"].handle = copying
    world.label()
    assert before["after"].count == before["head"].count + 1
    with Ledger(tmp_path / "copy.sqlite") as copy:
        with refused_for("ledger_rolled_back"):
            check_believed(copy, Mark(before["after"], 1), seat="a")
    world.close()
