"""A relay that reads with the guardian, or meddles with what it passes on: it reads nothing, and nobody is named."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from protocols.crypto.field import P, plus
from protocols.crypto.prg import Stream
from protocols.errors import MalformedMessage
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries import dealing
from protocols.levels.hidden_queries.ballot import PrivateBallot
from protocols.levels.hidden_queries.inference.comparison import drawn, received
from protocols.levels.hidden_queries.inference.model import plain_inference, quantised_inputs
from protocols.levels.hidden_queries.inference.plan import InferencePlan
from protocols.levels.hidden_queries.inference.vote import chosen_messages
from protocols.levels.hidden_queries.sealing import Sealing
from protocols.levels.two_server.shares import guardian_votes
from protocols.wire.messages import ConcealedVotes, Outcome, StepReply, StepRequest, VoteRequest
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, asking, hidden_queries, hidden_study, linear_models
from tests.harness.seeded import seeded_source

STUDY = hidden_study()
MODELS = linear_models(STUDY)
QUERIES = hidden_queries(8)
VICTIM = "p0"


def asked(relay, parties, queries=QUERIES):
    with Ledger(":memory:") as own, Ledger(":memory:") as guardians:
        here = GuardianHere(STUDY, guardians, seeded_source(5))
        coordinator, positions = asking(STUDY, here, own, relay, queries)
        return coordinator.label(positions)


def arrays_of(message):
    """What travels in a message, of those that are sealed."""
    return message.relayed if isinstance(message, VoteRequest) else message.arrays


def cut(arrays, pieces):
    """The arrays that a plain message has; of any other, its last bytes in their place."""
    try:
        return received("a message", arrays, pieces)
    except MalformedMessage:
        data, found = b"".join(each.tobytes() for each in arrays)[:-16], []
        for piece in reversed(pieces):
            size = prod(piece.shape) * int(piece.dtype[-1])
            array = np.frombuffer(data[len(data) - size :], piece.dtype).reshape(piece.shape)
            found.append(array % P if piece.group == "field" else array)
            data = data[: len(data) - size]
        return tuple(reversed(found))


def read(transcript, dealt, seeds, request, architecture):
    """What relay and guardian together make of one hospital's computation: (weights, queries, votes).

    transcript: (request, reply) each, as arrays; dealt: both halves; seeds: the guardian's share of the votes.
    """
    plan = InferencePlan.of(architecture, len(QUERIES))
    (gate,) = plan.linear
    asking_seed, answering_seed = Stream(dealt[0][0].tobytes()), Stream(dealt[1][0].tobytes())
    (weight_mask,) = drawn(answering_seed, plan.answerers(gate))
    value_mask, _ = drawn(asking_seed, plan.queriers(gate))
    choices = drawn(asking_seed, plan.queriers(plan.vote))[-1]
    sent = [cut(each, trip.request) for (each, _), trip in zip(transcript, plan.exchanges, strict=True)]
    back = [cut(each, trip.reply) for (_, each), trip in zip(transcript, plan.exchanges, strict=True)]
    shown = chosen_messages(back[-1][0], plan.vote.modulo(sent[-1][0] + choices), dealt[0][1])[0]
    kept = guardian_votes(seeds, queries=len(QUERIES), classes=STUDY.classes, context=request)[0]
    return back[0][0] + weight_mask, sent[1][0] + value_mask, plus(shown, kept)


def test_relay_and_guardian_together_read_no_weight_no_query_and_no_vote(monkeypatch):
    parties, passed, plain, dealt, seeds = PrivateParties(STUDY, MODELS), [], {}, [], {}
    honest = parties.exchange()

    def relay(requests):
        replies = honest(requests)
        passed.append((requests[VICTIM], replies[VICTIM]))
        return replies

    def kept(name):
        whole = getattr(Sealing, name)

        def sealed(self, step, arrays, **more):
            made = whole(self, step, arrays, **more)
            plain[made.tobytes()] = arrays
            return made

        monkeypatch.setattr(Sealing, name, sealed)

    kept("request")
    kept("reply")
    deal, share = dealing.deal, PrivateBallot._sealed
    monkeypatch.setattr(dealing, "deal", lambda *given, **more: dealt.append(deal(*given, **more)) or dealt[-1])

    def opened_by_the_guardian(self, request, own, guardians):
        seeds[self._seat] = guardians.seeds
        return share(self, request, own, guardians)

    monkeypatch.setattr(PrivateBallot, "_sealed", opened_by_the_guardian)
    assert not asked(relay, parties).refusals

    steps = [each for each in passed if not isinstance(each[0], Outcome)][1:]  # after that for the architecture
    sealed = [(arrays_of(asked), arrays_of(reply)[:1]) for asked, reply in steps]
    inside = [tuple(plain[side[0].tobytes()] for side in pair) for pair in sealed]
    # As they travelled before: without the name of a step, the seal to the guardian and the signature.
    clear = [
        ((), inside[0][1]),
        *((asked[1:], reply) for asked, reply in inside[1:-1]),
        (inside[-1][0], inside[-1][1][1:-1]),
    ]
    model, request = MODELS[VICTIM], steps[-1][0].digest
    truth = (
        model.layers[0].matrix.astype(np.uint32),
        quantised_inputs(model.architecture, QUERIES).astype(np.uint32),
        (plain_inference(model, QUERIES)[:, None] == np.arange(STUDY.classes)).astype(np.uint32),
    )
    about = (dealt[0], seeds[VICTIM], request, model.architecture)
    for found, true in zip(read(clear, *about), truth, strict=True):
        np.testing.assert_array_equal(found.reshape(true.shape), true)  # the control: the program reads plain messages
    weights, queries, votes = read(sealed, *about)
    assert (weights == truth[0]).sum() == 0
    assert (queries.reshape(truth[1].shape) == truth[1]).sum() == 0
    assert (votes == truth[2]).all(axis=1).sum() == 0


def flipped(message):
    """A message with another bit in the last array of what is sealed."""
    *before, last = arrays_of(message)
    other = last.copy()
    other.reshape(-1).view(np.uint8)[-1] ^= 1
    name = "relayed" if isinstance(message, VoteRequest) else "arrays"
    return replace(message, **{name: (*before, other)})


class Meddling:
    """A relay that does one thing to every message of one kind between the querying hospital and the victim."""

    def __init__(self, parties, what, kind) -> None:
        self.honest, self.what, self.kind = parties.exchange(), what, kind
        self.before: dict[type, object] = {}

    def __call__(self, requests):
        victims = requests.get(VICTIM)
        if not isinstance(victims, self.kind):
            return self.honest(requests)
        if self.what == "alters requests":
            requests = requests | {VICTIM: flipped(victims)}
        if self.what == "sends twice":
            self.honest(requests)
        if self.what == "swaps requests":
            requests = requests | {VICTIM: requests["p1"], "p1": victims}
        replies = self.honest(requests)
        theirs = replies[VICTIM]
        if self.what == "alters replies" and isinstance(theirs, ConcealedVotes | StepReply):
            replies[VICTIM] = flipped(theirs)
        if self.what == "swaps replies":
            replies[VICTIM], replies["p1"] = replies["p1"], theirs
        if self.what == "repeats replies" and isinstance(known := self.before.get(type(theirs)), type(theirs)):
            replies[VICTIM] = known if isinstance(known, ConcealedVotes) else replace(known, step=theirs.step)
        if self.what == "drops":
            replies[VICTIM] = None
        self.before.setdefault(type(theirs), theirs)
        return replies


@pytest.mark.parametrize("kind", [StepRequest, VoteRequest], ids=["steps", "votes"])
@pytest.mark.parametrize(
    "what",
    ["alters requests", "alters replies", "swaps requests", "swaps replies", "repeats replies", "drops", "sends twice"],
)
def test_whatever_a_relay_does_to_messages_nobody_is_named_and_nobody_pays_twice(what, kind):
    parties = PrivateParties(STUDY, MODELS)
    many = what == "repeats replies" and kind is VoteRequest  # the votes of an earlier batch
    queries = hidden_queries(12 if many else 8)
    got = asked(Meddling(parties, what, kind), parties, queries)
    touched = {VICTIM, "p1"} if what.startswith("swaps") else {VICTIM}
    assert got.refusals == ({} if what == "sends twice" else dict.fromkeys(touched, "absent"))
    assert (got.labels[:8] >= 0).any()
    assert len(set(parties.admitted)) == len(parties.admitted)
    batches = [np.full(6, size) for size in (8, len(queries) - 8)]
    most = sum(STUDY.budgets.amount(each, each) for each in batches)
    assert (np.array(parties.spent()) <= most).all()
    if kind is StepRequest and what != "sends twice":
        assert parties.spent()[0] == 0  # no computation, so no charge


def test_a_beginning_that_is_sent_again_later_does_not_end_the_computation():
    parties, begun = PrivateParties(STUDY, MODELS), []
    honest = parties.exchange()

    def relay(requests):
        asked = requests.get(VICTIM)
        if isinstance(asked, StepRequest) and asked.step == "architecture":
            begun.append(asked)
        elif isinstance(asked, VoteRequest):
            assert honest({VICTIM: begun[0]})[VICTIM].code == "malformed"
        return honest(requests)

    assert not asked(relay, parties).refusals
    assert begun
