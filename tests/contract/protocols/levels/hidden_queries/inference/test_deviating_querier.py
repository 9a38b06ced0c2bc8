"""A querying party that sends something else than the protocol says, at every step: it learns no weight and no vote.

And whether the servers' check takes the vote that comes of it says nothing of the vote.

All that the answering party sends is masked by its own half of what was dealt, and each half is used once, so its
replies tell nothing, whatever they reply to. They are compared over two models that give equal votes, and over two that
do not, as in test_inference_views.py.
"""

import numpy as np
import pytest

from protocols.crypto.field import plus
from protocols.levels.hidden_queries.inference import computing
from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.contract.protocols.levels.hidden_queries.inference.test_inference_views import (
    ALARM,
    COPIES,
    FIRST,
    INPUTS,
    SECOND,
    batch,
    own_arrays,
    seen,
    two_layers,
    view,
)
from tests.contract.protocols.levels.hidden_queries.inference.test_inference_views import alarm as alarm_of
from tests.harness.inference_parties import CONTEXT, parties
from tests.harness.two_server_sides import converse

# Always votes for class 1, where FIRST votes for class 0.
OTHER = two_layers([[1.0, -1.0], [-2.0, 0.5]], [[0.0, 0.0], [2.0, 1.0], [0.0, 0.0]])


def shifted(array, generator):
    """By the same number everywhere: it moves a hidden value by an amount of its choice."""
    return array + np.array(77, dtype=array.dtype)


def flipped(array, generator):
    """Other bits: it lets a comparison come out wrongly."""
    return array ^ np.array(0x55, dtype=array.dtype)


def nothing(array, generator):
    return np.zeros_like(array)


def noise(array, generator):
    return generator.integers(0, 2 ** (8 * array.dtype.itemsize), array.shape, dtype=array.dtype)


DEVIATIONS = [shifted, flipped, nothing, noise]


def deviating(querier, answerer, change):
    """All messages, of which the answering party gets changed ones; the view is of what was really sent."""
    generator, transcript, request = np.random.default_rng(7), [], querier.start()
    while request is not None:
        name, arrays = request
        sent = tuple(change(array, generator) for array in arrays)
        reply = answerer.step(name, sent)
        transcript.append((name, sent, reply))
        request = querier.step(reply)
    return transcript


def sees(model, key, change):
    querier, answerer = batch(model, INPUTS[0], key)
    own = own_arrays(querier._seed, querier._plan, querier._plan.queriers)
    return seen(view(deviating(querier, answerer, change), own, 2), COPIES)


@pytest.mark.parametrize("change", DEVIATIONS, ids=lambda change: change.__name__)
@pytest.mark.parametrize("other", [SECOND, OTHER], ids=["other weights", "other votes"])
def test_whatever_it_sends_it_sees_the_same_of_any_model(change, other) -> None:
    first, second = sees(FIRST, 30, change), sees(other, 31, change)
    assert first.shape[1] > 200
    assert alarm_of(first, second) > ALARM


MODELS = [FIRST, SECOND, OTHER]


def accepted(change, *, key=32):
    """For each model, whether the servers' check takes the vote of a computation whose requests `change` altered.

    change: (name, arrays) -> what is sent; the last request is a choice, which the querying party then keeps to.
    """
    shares, guardians = [], []
    for number, model in enumerate(MODELS):
        querier, answerer = parties(model, INPUTS[0][None], key, number)
        request = querier.start()
        while request is not None:
            name, arrays = request[0], tuple(each.copy() for each in request[1])
            sent = change(name, arrays)
            if name == LAST_REQUEST and len(sent) == 1:
                querier._unfinished[0][:] += sent[0] - arrays[0]
                querier._unfinished[0][:] &= np.uint8(3)
            request = querier.step(answerer.step(name, sent))
        shares.append(querier.share)
        guardians.append(answerer.guardian_share)
    ballots = Ballots(np.ones((len(MODELS), 1), dtype=bool), 3, False, CONTEXT)

    def check(side, share):
        return lambda channel: side(channel, share, ballots, secret=bytes(32), pin=lambda step, value: None)

    ours, theirs = converse(
        check(coordinator_checks, CoordinatorShare.of_all(shares)),
        check(guardian_checks, GuardianShare.of_all(guardians)),
    )
    assert ours.tolist() == theirs.tolist()
    return ours.tolist()


def in_one(step, change):
    generator = np.random.default_rng(5)
    return lambda name, sent: tuple(change(each, generator) for each in sent) if name == step else sent


@pytest.mark.parametrize("change", DEVIATIONS, ids=lambda change: change.__name__)
@pytest.mark.parametrize("step", ["layer 2: signs", "layer 2: choices", "vote: signs", "vote: wins", LAST_REQUEST])
def test_the_vote_is_taken_whatever_it_sends_in_a_step_and_whatever_the_vote(step, change) -> None:
    """Shifted scores, wins and choices: a refusal would tell the vote, or on which side of a margin it is."""
    assert accepted(in_one(step, change)) == [True] * 3


@pytest.mark.parametrize("guess", range(3))
def test_wins_that_fit_one_class_alone_tell_nothing_of_a_vote(guess) -> None:
    """Every class but one is said to win other times than it does, so that its entry is in no table."""
    others = [each for each in range(3) if each != guess]

    def only(name, sent):
        if name == "vote: wins":
            sent[1][:, others] += 3
        return sent

    assert accepted(only) == [True] * 3


def test_a_share_that_it_moves_afterwards_is_refused_whatever_the_vote(monkeypatch) -> None:
    real = computing.chosen_messages
    added = np.array([1, 0, 0], dtype=np.uint32)
    monkeypatch.setattr(computing, "chosen_messages", lambda *given: plus(real(*given), added * given[2].any()))
    assert accepted(lambda name, sent: sent) == [False] * 3
