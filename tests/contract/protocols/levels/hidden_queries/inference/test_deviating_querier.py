"""A querying party that sends something else than the protocol says, at every step: it learns no weight and no vote.

All that the answering party sends is masked by its own half of what was dealt, and each half is used once, so its
replies tell nothing, whatever they reply to. They are compared over two models that give equal votes, and over two that
do not, as in test_inference_views.py.
"""

import numpy as np
import pytest

from protocols.levels.hidden_queries.inference.plan import LAST_REQUEST
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


def accepted(model, spoil):
    """Whether the two servers' check takes the vote that comes of a computation whose last request `spoil` changed."""
    querier, answerer = parties(model, INPUTS[0][None], 32)
    request = querier.start()
    while request is not None:
        if request[0] == LAST_REQUEST:
            spoil(request[1][1])  # in place: the querying party goes on with what it sent
        request = querier.step(answerer.step(*request))
    ballots = Ballots(np.ones((1, 1), dtype=bool), 3, False, CONTEXT)

    def check(side, share):
        return lambda channel: side(channel, share, ballots, secret=bytes(32), pin=lambda step, value: None)

    verdicts = converse(check(coordinator_checks, querier.share), check(guardian_checks, answerer.guardian_share))
    return [bool(verdict[0]) for verdict in verdicts]


def one_more_win_for_class_2(wins):
    wins[:, 2] = (wins[:, 2] + 1) % 4


def test_what_remains_is_a_refusal_that_tells_one_bit_of_a_vote_and_names_the_seat() -> None:
    """It says that class 2 beat one class more than it did. Where class 2 was second, there are two winners then, and
    the vote is refused; where it was last, nothing changes. An honest computation is taken."""
    assert accepted(FIRST, lambda wins: None) == accepted(OTHER, lambda wins: None) == [True, True]
    assert accepted(FIRST, one_more_win_for_class_2) == [False, False]
    assert accepted(OTHER, one_more_win_for_class_2) == [True, True]
