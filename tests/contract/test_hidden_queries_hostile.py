"""Hidden queries under hostile messages: each is refused with a code and costs nothing; the next honest step works."""

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocols.crypto.channel import pair
from protocols.crypto.edwards import LOW_ORDER, PRIME, encoded
from protocols.crypto.identity import sign
from protocols.errors import MalformedMessage, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.ballot import PrivateBallot
from protocols.levels.hidden_queries.dealing import DEAL, Offer, announced, serve_deals
from protocols.levels.two_server.conversation import receive_arrays, send_arrays
from protocols.wire.messages import Refusal, StepReply, StepRequest
from tests.contract.test_hidden_queries import vote_request
from tests.harness.levels import SEAT_KEYS, SIGNING_KEY, GuardianHere
from tests.harness.private_models import PrivateParties, asking, begun, hidden_study, private_models
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

STUDY = hidden_study()
PARTIES = PrivateParties(STUDY)
REQUEST = vote_request(STUDY)
NONCES = count()
DTYPES = ("|u1", "<u2", "<u4", "<u8", "<i8", "<f4")
arrays = st.lists(
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 255)),
    max_size=5,
).map(lambda made: tuple(np.full(shape, value).astype(dtype) for dtype, shape, value in made))


@given(
    st.lists(st.tuples(st.sampled_from(["architecture", "dealt", "inference", "other"]), arrays), max_size=4), arrays
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_arrays_in_any_order_are_answered_or_refused_and_cost_nothing(steps, relayed):
    handler = PARTIES.handlers["p0"]
    honest, _ = begun(STUDY, REQUEST.digest, "p0", nonce=next(NONCES))
    assert isinstance(handler(honest), StepReply)
    for step, given_arrays in steps:
        reply = handler(StepRequest(STUDY.digest, REQUEST.digest, step, given_arrays))
        assert isinstance(reply, Refusal | StepReply)
    assert isinstance(handler(replace(REQUEST, relayed=relayed)), Refusal)
    assert PARTIES.spent()[0] == 0
    assert isinstance(handler(honest), StepReply)  # nothing that did not come from the querier disturbed it


@given(arrays)
@settings(max_examples=25, deadline=None)
def test_any_offer_is_refused_unless_it_is_one(given_arrays):
    with pytest.raises(MalformedMessage):
        Offer.read(given_arrays, STUDY)


def dealt(*messages):
    """What the guardian answers to a request to deal and these offers, with what it raised."""
    here, there = pair(wait_s=5.0)
    sizes = np.array([8, len(messages)], dtype=np.int64)
    digests = (np.frombuffer(each, dtype=np.uint8) for each in (STUDY.digest, REQUEST.digest))
    for message in messages:
        send_arrays(here, message)
    here.close()
    try:
        serve_deals(there, (DEAL, *digests, sizes), STUDY, key=SIGNING_KEY, source=seeded_source(1))
    finally:
        there.close()
    return [receive_arrays(here) for _ in messages]


def offer(seat=0, model=None, signed_by=None, queries=8, key=bytes(range(32))):
    """A seat's offer: its position, architecture, key and signature."""
    name = STUDY.roster[seat].party
    text = announced((model or private_models(STUDY)[name]).architecture).encode()
    unsigned = Offer(text, key, b"")
    statement = unsigned.statement(STUDY.digest, REQUEST.digest, name, queries)
    made = Offer(text, unsigned.key, sign(SEAT_KEYS[seat if signed_by is None else signed_by], statement))
    return (np.array([seat], dtype=np.int64), *made.arrays())


def test_a_guardian_deals_to_those_whose_offers_are_signed_by_their_party_and_to_no_other():
    good = offer()
    flipped = good[3].copy()
    flipped[-1] ^= 1
    other_key = good[2].copy()
    other_key[0] ^= 1
    answers = dealt(
        good, offer(signed_by=1), (*good[:3], flipped), (*good[:2], other_key, good[3]), offer(queries=7), offer(seat=2)
    )
    assert [len(answer) for answer in answers] == [4, 0, 0, 0, 0, 4]
    assert [len(answer) for answer in dealt((np.array([1], dtype=np.int64), *good[1:]))] == [0]


@pytest.mark.parametrize("number", sorted(LOW_ORDER) + [PRIME])
def test_a_hospital_that_signs_a_key_of_low_order_gets_nothing_and_the_others_get_theirs(number):
    assert [len(answer) for answer in dealt(offer(key=encoded(number)), offer(seat=1))] == [0, 4]


def test_a_hospital_that_offers_a_key_of_low_order_is_left_out_named_and_the_batch_goes_on():
    parties = PrivateParties(STUDY)

    class WeakKey(PrivateBallot):
        def _offer(self, model, key, about):
            return super()._offer(model, bytes(32), about)

    parties.parties["p0"]._ballot.__class__ = WeakKey
    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        coordinator, positions = asking(
            STUDY, GuardianHere(STUDY, guardians, seeded_source(5)), own, parties.exchange()
        )
        got = coordinator.label(positions)
    assert got.refusals == {"p0": "bad_step"}
    assert (got.labels >= 0).any()


def test_every_deal_is_fresh():
    first, second = dealt(offer(), offer())
    assert first[0].tobytes() != second[0].tobytes()
    assert first[2].tobytes() != second[2].tobytes()


def test_an_architecture_of_another_precision_or_of_other_classes_is_refused():
    model = private_models(STUDY)["p0"]
    architecture = replace(model.architecture, precision=replace(model.architecture.precision, input_bound=2.0))
    other = private_models(hidden_study(classes=3, confidentiality=replace(STUDY.confidentiality, input_bound=4.0)))
    assert dealt(offer(model=replace(model, architecture=architecture)), offer(model=other["p0"])) == [(), ()]


def test_a_hospital_that_announces_very_many_layers_gets_nothing():
    """Each ReLU costs everybody two rounds, of which each may take the study's deadline."""
    model = private_models(STUDY)["p0"]
    text = json.loads(announced(model.architecture))
    # The scores, over and over: cheap in bytes, so that no limit of sizes refuses them.
    text["layers"] += [{"kind": "relu", "inputs": STUDY.classes, "shift": 0}] * 1000
    made = Offer(json.dumps(text).encode(), bytes(range(32)), bytes(70))
    with refuses(MalformedMessage, "layers"):
        Offer.read(made.arrays(), STUDY)


@pytest.mark.parametrize(
    "message",
    [
        (DEAL,),
        (DEAL, np.zeros(32, np.uint8), np.zeros(32, np.uint8), np.zeros(3, np.int64)),
        (DEAL, np.zeros(31, np.uint8), np.zeros(32, np.uint8), np.array([1, 1])),
    ],
)
def test_a_malformed_request_to_deal_is_refused(message):
    here, _ = pair(wait_s=1.0)
    with pytest.raises((MalformedMessage, Refused)):
        serve_deals(here, message, STUDY, key=SIGNING_KEY, source=seeded_source(1))


def test_an_offer_of_no_seat_ends_the_conversation():
    for position in (-1, 6):
        with pytest.raises(MalformedMessage, match=r"seat( is)? (-1|6); allowed"):
            dealt((np.array([position], dtype=np.int64), *offer()[1:]))
