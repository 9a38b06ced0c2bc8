"""Hidden queries in one process: the labels of clear votes, everybody's ledger, and what repeated steps can gain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.crypto.channel import pair
from protocols.errors import ChannelClosed, InvalidInput, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.levels.hidden_queries import querier as private_queries
from protocols.levels.hidden_queries.dealing import DEAL, serve_deals
from protocols.levels.hidden_queries.inference.fixed_point import plain_inference
from protocols.study.levels import Clear
from protocols.study.queries import QueryBatch
from protocols.wire.messages import HiddenVotes, Refusal, StepReply, StepRequest, VoteRequest, decode, encode
from tests.contract.test_level_contract import TotalNoise, labelled
from tests.harness.levels import SEAT_KEYS, SIGNING_KEY, GuardianHere, lattice_study, two_server
from tests.harness.private_models import PrivateParties, asking, hidden_queries, hidden_study, private_models
from tests.harness.seeded import seeded_source
from tests.harness.signed import signed_again

STUDY = hidden_study()
COUNT = np.array([8], dtype=np.int64)


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
        hidden_study(mechanism="gnmax", sigma_threshold=None, threshold=None, sigma=4.0),
        hidden_study(mechanism="thresholded_gnmax", sigma_threshold=None, sigma=4.0, threshold=4.0),
        hidden_study(rule="proportional", confidentiality=replace(STUDY.confidentiality, units=256)),
    ],
    ids=["confident", "gnmax", "thresholded", "weights"],
)
def test_the_labels_are_those_of_clear_votes_of_the_same_models_with_the_same_total_noise(study, monkeypatch):
    queries = hidden_queries(40)
    total = TotalNoise(monkeypatch)
    parties = PrivateParties(study)
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(study, guardians, seeded_source(5))
        coordinator, positions = asking(study, here, own, parties.exchange(), queries)
        got = coordinator.label(positions)
        at_guardian = [guardians.balance(seat.party).spent for seat in study.roster]
    expected, _ = labelled(
        in_clear(study), plain_votes(study, queries), ClearAggregation(total.again(study.confidentiality.units))
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
    parties = PrivateParties(STUDY)
    parties.handlers["p1"] = lambda request: None

    def bad_step(request):
        reply = parties.parties["p2"].handle(request)
        if isinstance(reply, StepReply) and request.step == "inference":
            return replace(reply, arrays=reply.arrays[:-1])
        return reply

    def bad_offer(request):
        reply = parties.parties["p3"].handle(request)
        if isinstance(reply, StepReply) and request.step == "architecture":
            other = reply.arrays[1].copy()
            other[0] ^= 1  # a key that the party did not sign
            return replace(reply, arrays=(reply.arrays[0], other, reply.arrays[2]))
        return reply

    def bad_votes(request):
        reply = parties.parties["p4"].handle(request)
        if isinstance(reply, HiddenVotes):
            share = reply.arrays[3].copy()
            share[0, 0, 0] ^= 1  # no longer one-hot
            changed = replace(reply, arrays=(*reply.arrays[:3], share, *reply.arrays[4:-1]))
            return signed_again(STUDY, "p4", changed, key=SEAT_KEYS[4], queries=request.batch.ids.tolist())
        return reply

    parties.handlers |= {"p2": bad_step, "p3": bad_offer, "p4": bad_votes}
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        coordinator, positions = asking(
            STUDY, GuardianHere(STUDY, guardians, seeded_source(5)), own, parties.exchange()
        )
        got = coordinator.label(positions)
    assert got.refusals == {"p1": "absent", "p2": "bad_step", "p3": "bad_offer", "p4": "bad_votes"}
    assert got.batches
    assert got.spent[0] == parties.spent()[0] > 0
    assert parties.spent()[1:4] == [0, 0, 0]


def session(study, parties, name, here, request):
    """The querying party's steps with one seat up to the last request, which is returned."""
    with Ledger(":memory:") as own:
        aggregation = private_queries.PrivateQueries(study, hidden_queries(), here.dial, source=seeded_source(3))
        reserved = private_queries.ReservedBatch(
            study, own, request, (name,), np.ones((len(study.roster), 8), bool), None, parties.exchange()
        )
        left_out: dict[str, str] = {}
        aggregation._compute(reserved, [name], left_out)
        assert not left_out
        noted = own.noted(request.digest, private_queries._COMPUTED + name)
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
        reply = parties.handlers["p2"](replace(request, relayed=first[:2]))
        second = session(STUDY, parties, "p2", here, request)
        again = parties.handlers["p2"](replace(request, relayed=second[:2]))
    assert isinstance(reply, HiddenVotes)
    assert encode(reply) == encode(again)
    spent = parties.ledgers["p2"].balance("p2").spent
    assert spent == STUDY.budgets.amount(8, 8)[2]


def test_no_step_gives_the_last_reply_which_is_charged():
    parties = PrivateParties(STUDY)
    request = vote_request(STUDY)
    with Ledger(":memory:") as guardians:
        last = session(STUDY, parties, "p0", GuardianHere(STUDY, guardians, seeded_source(5)), request)
    name = np.frombuffer(b"vote: wins", dtype=np.uint8)
    step = StepRequest(STUDY.digest, request.digest, "inference", (name, *last[:2]))
    refused = parties.handlers["p0"](step)
    assert isinstance(refused, Refusal)
    assert refused.code == "malformed"
    assert parties.spent()[0] == 0
    # And the computation is over: its randomness serves nobody any more.
    after = parties.handlers["p0"](replace(request, relayed=last[:2]))
    assert isinstance(after, Refusal)
    assert after.code == "no_inference"


def test_a_node_that_was_restarted_before_the_charge_computes_again_and_after_it_repeats_itself():
    parties = PrivateParties(STUDY)
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
    parties = PrivateParties(STUDY)
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
    parties = PrivateParties(STUDY)
    queries = hidden_queries()
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        coordinator, positions = asking(STUDY, here, own, parties.exchange(), queries[:16])
        before = coordinator.label(positions)
        private_queries.check_same_queries(own, queries)
        with pytest.raises(InvalidInput, match="batch 0 of this study was asked about other records"):
            private_queries.check_same_queries(own, queries[::-1])
        with pytest.raises(InvalidInput, match="was asked about other records"):
            private_queries.check_same_queries(own, queries[:15])
        coordinator, positions = asking(STUDY, here, own, parties.exchange(), queries)
        got = coordinator.label(positions)
        np.testing.assert_array_equal(got.labels[:16], before.labels)
        assert len(got.batches) > len(before.batches)


def test_a_dealt_part_is_of_the_guardian_for_this_key_seat_and_batch_or_it_is_refused():
    parties = PrivateParties(STUDY)
    request, other = vote_request(STUDY), vote_request(STUDY, 1)
    with Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        seen = []

        def noting(requests):
            seen.extend(requests.values())
            return parties.exchange()(requests)

        with Ledger(":memory:") as own:
            aggregation = private_queries.PrivateQueries(STUDY, hidden_queries(), here.dial, source=seeded_source(3))
            takes_part = np.ones((6, 8), bool)
            reserved = private_queries.ReservedBatch(STUDY, own, request, ("p0",), takes_part, None, noting)
            aggregation._compute(reserved, ["p0"], {})
    dealt = next(each for each in seen if each.step == "dealt")
    fresh = replace(dealt, step="architecture", arrays=(COUNT,))
    flipped = dealt.arrays[0].copy()
    flipped[40] ^= 1
    for changes in (
        {},  # dealt for a key that is gone
        {"arrays": (flipped, dealt.arrays[1])},
        {"arrays": dealt.arrays[:1]},
        {"arrays": (dealt.arrays[0], dealt.arrays[1][:-1])},
        {"batch_digest": other.digest},
    ):
        bad = replace(dealt, **changes)
        begun = parties.handlers["p0"](replace(fresh, batch_digest=bad.batch_digest))
        assert isinstance(begun, StepReply)
        reply = parties.handlers["p0"](bad)
        assert isinstance(reply, Refusal)
        assert reply.code in ("bad_signature", "malformed")
    assert parties.spent()[0] == 0


def test_a_step_that_is_sent_again_gets_the_reply_that_it_got():
    parties = PrivateParties(STUDY)
    step = StepRequest(STUDY.digest, vote_request(STUDY).digest, "architecture", (COUNT,))
    first, again = parties.handlers["p0"](step), parties.handlers["p0"](step)
    assert isinstance(first, StepReply)
    assert encode(first) == encode(again)


def test_queries_in_the_clear_are_refused_as_are_too_many():
    parties = PrivateParties(STUDY)
    shown = QueryBatch(0, np.arange(8), np.zeros((8, 36), np.float32))
    refused = parties.handlers["p0"](VoteRequest(STUDY.digest, b"contract", shown))
    assert isinstance(refused, Refusal)
    assert refused.code == "other_shape"
    many = StepRequest(STUDY.digest, bytes(32), "architecture", (np.array([9], dtype=np.int64),))
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
        ({"participation": "periodic", "rates": [0.5] * 6}, "participation_name is 'periodic'"),
    ],
)
def test_a_study_that_cannot_hide_queries_is_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        hidden_study(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_bound": 0.0}, "input_bound is 0.0; allowed: above 0"),
        ({"querier": "a/b"}, "the name 'a/b' is not allowed"),
    ],
)
def test_terms_of_hidden_queries_that_say_too_little_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        replace(STUDY.confidentiality, **changes)


def test_queries_beyond_the_bound_are_refused_before_anything_is_asked():
    queries = hidden_queries()
    queries[3, 0, 0] = 1.5
    with pytest.raises(InvalidInput, match="1 of 24 queries"):
        private_queries.PrivateQueries(STUDY, queries, lambda: None, source=seeded_source(1))


def test_a_guardian_deals_for_no_study_without_a_querier():
    study = lattice_study(two_server())
    here, _ = pair()
    with pytest.raises(Refused, match="no_querier"):
        serve_deals(here, (DEAL,), study, key=SIGNING_KEY, source=seeded_source(5))
