"""Hidden queries in one process: the labels of clear votes, everybody's ledger, and what repeated steps can gain."""

import os
from dataclasses import replace

import numpy as np
import pytest

from protocols.crypto.channel import pair
from protocols.errors import ChannelClosed, InvalidInput
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.hidden_queries import querier as private_queries
from protocols.levels.hidden_queries.ballot import PrivateBallot
from protocols.levels.hidden_queries.dealing import DEAL, serve_deals
from protocols.levels.hidden_queries.inference.model import plain_inference
from protocols.study.levels import Clear
from protocols.study.queries import QueryBatch
from protocols.wire.messages import ConcealedVotes, Refusal, StepReply, VoteRequest, decode, encode
from tests.contract.test_level_contract import POOL, TotalNoise, labelled
from tests.harness.levels import SIGNING_KEY, GuardianHere, lattice_study, two_server
from tests.harness.private_models import (
    QUERIER_KEY,
    PrivateParties,
    asking,
    begun,
    hidden_queries,
    hidden_study,
    linear_models,
    private_models,
)
from tests.harness.refusals import refused_for, refuses
from tests.harness.seeded import seeded_source

STUDY = hidden_study()
LINEAR = linear_models(STUDY)


def plain_votes(study, queries):
    """What the models vote in the clear, on the pool of `labelled`."""
    votes = np.zeros((len(study.roster), 1, 40), dtype=np.int64)
    for position, model in enumerate(private_models(study).values()):
        votes[position, 0, : len(queries)] = plain_inference(model, queries)
    return votes


def in_clear(study):
    return replace(study, confidentiality=Clear(units=study.confidentiality.units))


@pytest.mark.parametrize(
    "study",
    [
        STUDY,
        hidden_study(mechanism="gnmax", threshold=None),
        hidden_study(rule="proportional", confidentiality=replace(STUDY.confidentiality, units=256)),
    ],
    ids=["thresholded", "gnmax", "weights"],
)
def test_the_labels_are_those_of_clear_votes_of_the_same_models_with_the_same_total_noise(study, monkeypatch):
    queries = hidden_queries()
    total = TotalNoise(monkeypatch, study)
    parties = PrivateParties(study)
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(study, guardians, seeded_source(5))
        coordinator, positions = asking(study, here, own, parties.exchange(), queries)
        got = coordinator.label(positions)
        at_guardian = [guardians.balance(seat.party).spent for seat in study.roster]
    expected, _ = labelled(
        in_clear(study),
        plain_votes(study, queries),
        ClearAggregation(total.again(study.confidentiality.units)),
        pool=POOL[: len(queries)],
    )
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.batches == expected.batches
    assert got.spent.tolist() == expected.spent.tolist() == parties.spent() == at_guardian
    assert not got.refusals
    assert set(here.faults) == {None}
    assert len(np.unique(got.labels[got.labels >= 0])) > 1


def test_messages_hold_no_query_and_survive_the_wire():
    seen = []
    parties = PrivateParties(STUDY)

    def over_the_wire(requests):
        data = {name: encode(request) for name, request in requests.items()}
        seen.extend(data.values())
        return {name: decode(encode(parties.handlers[name](decode(each)))) for name, each in data.items()}

    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        coordinator, positions = asking(STUDY, GuardianHere(STUDY, guardians, seeded_source(5)), own, over_the_wire)
        got = coordinator.label(positions)
    assert not got.refusals
    assert (got.labels >= 0).any()
    queries = hidden_queries()
    assert not any(queries[row].tobytes() in data for data in seen for row in range(len(queries)))


def test_absent_and_malformed_parties_are_named_and_the_rest_goes_on():
    parties = PrivateParties(STUDY, LINEAR)
    parties.handlers["p1"] = lambda request: None

    class BadStep(PrivateBallot):
        def _infer(self, known, arrays):
            return super()._infer(known, arrays)[:-1]

    class BadOffer(PrivateBallot):
        def _offer(self, model, key, about):
            return replace(super()._offer(model, key, about), key=bytes(31) + b"1")  # not the key that it signed

    class BadVotes(PrivateBallot):
        def _sealed(self, request, own, guardians):
            votes = own[0].copy()
            votes[0, :, 0, 0] ^= 1  # no longer one-hot, whichever is chosen
            return super()._sealed(request, (votes, *own[1:]), guardians)

    for name, kind in {"p2": BadStep, "p3": BadOffer, "p4": BadVotes}.items():
        parties.parties[name]._ballot.__class__ = kind
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        coordinator, positions = asking(
            STUDY, GuardianHere(STUDY, guardians, seeded_source(5)), own, parties.exchange()
        )
        got = coordinator.label(positions)
    assert got.refusals == {"p1": "absent", "p2": "bad_step", "p3": "bad_offer", "p4": "bad_votes"}
    assert got.batches
    assert got.spent[0] == parties.spent()[0] > 0
    assert parties.spent()[1:4] == [0, 0, 0]


def computing(study, parties, name, here, request, *, exchange=None, querier=private_queries.Querier):
    """The querying party's steps with one seat up to the last request: what it noted, and who was left out."""
    with Ledger(":memory:") as own, pytest.MonkeyPatch.context() as patch:
        patch.setattr(private_queries, "Querier", querier)
        aggregation = private_queries.PrivateQueries(
            study, hidden_queries(), here.dial, key=QUERIER_KEY, source=os.urandom
        )
        everyone = np.ones((len(study.roster), 8), bool)
        reserved = private_queries.ReservedBatch(
            study, own, request, (name,), everyone, None, exchange or parties.exchange()
        )
        left_out: dict[str, str] = {}
        aggregation._compute(reserved, [name], left_out)
        return own.noted(request.digest, private_queries._COMPUTED + name), left_out


def session(study, parties, name, here, request):
    """The querying party's steps with one seat up to the last request, which is returned."""
    noted, left_out = computing(study, parties, name, here, request)
    assert not left_out
    return private_queries.decode_arrays(noted)


def vote_request(study, number=0):
    batch = QueryBatch(number, np.arange(8 * number, 8 * number + 8), np.zeros((8, 0), np.float32))
    return VoteRequest(study.digest, b"contract", batch)


def test_a_batch_that_is_computed_again_gives_the_reply_that_was_stored_and_no_second_share():
    parties = PrivateParties(STUDY)
    request = vote_request(STUDY)
    with Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        first = session(STUDY, parties, "p2", here, request)
        reply = parties.handlers["p2"](replace(request, relayed=first[:1]))
        second = session(STUDY, parties, "p2", here, request)
        again = parties.handlers["p2"](replace(request, relayed=second[:1]))
    assert isinstance(reply, ConcealedVotes)
    assert encode(reply) == encode(again)
    spent = parties.ledgers["p2"].balance("p2").spent
    assert spent == STUDY.budgets.amount(8, 8)[2]


def test_no_step_gives_the_last_reply_which_is_charged():
    parties = PrivateParties(STUDY)
    request = vote_request(STUDY)
    with Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        kept = []

        class Early(private_queries.Querier):
            """Sends the last request as if it were a step."""

            def step(self, reply):
                name, values = super().step(reply)
                kept.append(values)
                return ("vote wins", values) if name == private_queries.LAST_REQUEST else (name, values)

        left_out = computing(STUDY, parties, "p0", here, request, querier=Early)[1]
    assert left_out == {"p0": "malformed"}
    assert parties.spent()[0] == 0
    # And the computation is over: its randomness serves nobody any more.
    after = parties.handlers["p0"](replace(request, relayed=(np.zeros(9, np.uint8),)))
    assert isinstance(after, Refusal)
    assert after.code == "no_inference"


def test_a_node_that_was_restarted_before_the_charge_computes_again_and_after_it_repeats_itself():
    parties = PrivateParties(STUDY, LINEAR)
    restarted: list[str] = []

    def forgetful(request):
        if isinstance(request, VoteRequest) and request.batch.number == 0 and not restarted:
            restarted.append("before")
            parties.parties["p1"] = parties.opened("p1", key=1)
        reply = parties.parties["p1"].handle(request)
        if isinstance(request, VoteRequest) and request.batch.number == 1 and len(restarted) == 1:
            restarted.append("after")
            parties.parties["p1"] = parties.opened("p1", key=2)
            return None
        return reply

    parties.handlers["p1"] = forgetful
    study = STUDY
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(study, guardians, seeded_source(5))
        coordinator, positions = asking(study, here, own, parties.exchange())
        got = coordinator.label(positions[:13])  # two batches: a third may not fit what p1's ledger holds
        assert got.refusals == {"p1": "absent"}
        assert parties.admitted.count(("p1", 0)) == parties.admitted.count(("p1", 1)) == 1
        assert got.spent[0] == guardians.balance("p0").spent == parties.spent()[0]
        # The reservation of the batch whose reply was lost stands.
        assert parties.spent()[1] > got.spent[1]


def test_a_querying_party_that_lost_its_line_goes_on_with_the_votes_that_were_paid_for():
    parties = PrivateParties(STUDY, LINEAR)
    lost = []

    def dropping(requests):
        replies = parties.exchange()(requests)
        if any(isinstance(request, VoteRequest) for request in requests.values()) and not lost:
            lost.append(True)
            raise ChannelClosed("the line is down")
        return replies

    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        coordinator, positions = asking(STUDY, here, own, dropping)
        assert coordinator.label(positions).stop.reason == "guardian_lost"
        charged = parties.spent()
        assert all(charged)
        # As after a restart: another aggregation, the same ledger.
        coordinator, positions = asking(STUDY, here, own, dropping, key=8)
        got = coordinator.label(positions)
        assert not got.refusals
        assert got.spent.tolist() == parties.spent()
        assert {name for name, number in parties.admitted if number == 0} == set(parties.parties)
        assert len([1 for _, number in parties.admitted if number == 0]) == len(STUDY.roster)


def test_other_records_in_the_place_of_those_that_were_asked_are_refused_and_more_at_the_end_are_not():
    parties = PrivateParties(STUDY, LINEAR)
    queries = hidden_queries()
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        coordinator, positions = asking(STUDY, here, own, parties.exchange(), queries[:8])
        before = coordinator.label(positions)
        private_queries.check_same_queries(own, queries)
        with refuses(InvalidInput, "batch 0"):
            private_queries.check_same_queries(own, queries[::-1])
        with refuses(InvalidInput, "batch 0"):
            private_queries.check_same_queries(own, queries[:7])
        coordinator, positions = asking(STUDY, here, own, parties.exchange(), queries)
        got = coordinator.label(positions)
        np.testing.assert_array_equal(got.labels[:8], before.labels)
        assert len(got.batches) > len(before.batches)


def test_a_step_that_is_sent_again_gets_the_reply_that_it_got():
    parties = PrivateParties(STUDY)
    step, _ = begun(STUDY, vote_request(STUDY).digest, "p0")
    first, again = parties.handlers["p0"](step), parties.handlers["p0"](step)
    assert isinstance(first, StepReply)
    assert encode(first) == encode(again)


def test_queries_in_the_clear_are_refused_as_are_too_many():
    parties = PrivateParties(STUDY)
    shown = QueryBatch(0, np.arange(8), np.zeros((8, 36), np.float32))
    refused = parties.handlers["p0"](VoteRequest(STUDY.digest, b"contract", shown))
    assert isinstance(refused, Refusal)
    assert refused.code == "other_shape"
    many = begun(STUDY, bytes(32), "p0", queries=9)[0]
    refused = parties.handlers["p0"](many)
    assert isinstance(refused, Refusal)
    assert refused.code == "batch_too_large"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teachers": 2}, "teachers is 2; allowed at level 'hidden_queries': 1"),
        ({"confidentiality": replace(STUDY.confidentiality, querier="p3")}, "a party of the roster"),
        ({"confidentiality": replace(STUDY.confidentiality, querier="guardian")}, "the guardian"),
        ({"confidentiality": replace(STUDY.confidentiality, seat_keys=())}, "0 keys of seats"),
        ({"confidentiality": replace(STUDY.confidentiality, querier_key="")}, "querier_key is ''"),
        (
            {"confidentiality": replace(STUDY.confidentiality, querier_key=STUDY.confidentiality.seat_keys[2])},
            "querier_key is that of a seat",
        ),
        ({"participation": "periodic", "rates": [0.5] * 6}, "participation_name is 'periodic'"),
    ],
)
def test_a_study_that_cannot_hide_queries_is_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        hidden_study(**changes)


@pytest.mark.parametrize(
    ("changes", "message"), [({"input_bound": 0.0}, ("input_bound", "0.0", 0)), ({"querier": "a/b"}, ("a/b",))]
)
def test_terms_of_hidden_queries_that_say_too_little_are_refused(changes, message):
    with refuses(InvalidInput, *message):
        replace(STUDY.confidentiality, **changes)


def test_queries_beyond_the_bound_are_refused_before_anything_is_asked():
    queries = hidden_queries()
    queries[3, 0, 0] = 1.5
    with refuses(InvalidInput, 1, 16):
        private_queries.PrivateQueries(STUDY, queries, lambda: None, key=QUERIER_KEY, source=seeded_source(1))


def test_a_guardian_deals_for_no_study_without_a_querier():
    study = lattice_study(two_server())
    here, _ = pair()
    with refused_for("no_querier"):
        serve_deals(here, (DEAL,), study, key=SIGNING_KEY, source=seeded_source(5))
