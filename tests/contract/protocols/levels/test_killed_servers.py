"""A server that is killed before or after it notes anything says the same again, up to the evaluation of the circuits.

So nothing of a vote is opened twice with other content: the vote check, the masks and the inputs are one transcript.
"""

from contextlib import suppress

import pytest

from protocols.errors import ConclaveError
from protocols.ledger.ledger import Ledger
from tests.harness.guardian_attempts import STUDY, World

SMALL = STUDY.voting(batch_limit=1)
# Of one attempt, after the submission and its answer: the vote check and the masks, five messages and four of each
# server; whether there is an evaluation; the check of inputs, seven and seven.
VOTES, INPUTS = 5 + 4 + 8, 7 + 7
# Of each attempt: so many notes more than the last one lived to make.
STRIDE = 5


class Killed(ConclaveError):
    """The end of a server, which no code of its own is there to see."""


class Mortal(Ledger):
    """A ledger whose server is killed at its note number `left`, before or after that is on the disk."""

    left = 0
    after = False

    def note(self, digest, kind, value):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        noted = super().note(digest, kind, value)
        if self.left == 0:
            raise Killed
        return noted


class Overheard:
    """The guardian's end of a channel, of which all messages are kept, as (from the guardian, message)."""

    def __init__(self, end):
        self.end, self.said = end, []
        self.close = end.close

    def send(self, data):
        self.said.append((True, bytes(data)))
        self.end.send(data)

    def recv(self, limit):
        self.said.append((False, self.end.recv(limit)))
        return self.said[-1][1]


def attempts(which, *, after, stride):
    """(the labels, what was said in each attempt): the server is killed at a later note each time, until it lives."""
    world, heard = World(study=SMALL), []
    ledger = Mortal(":memory:")
    getattr(world, which).close()
    setattr(world, which, ledger)
    ledger.after = after

    def wrap(end):
        heard.append(Overheard(end))
        return heard[-1]

    world.wrap, left = wrap, 1
    while True:
        ledger.left, labels = left, None
        with suppress(Killed):
            labels = world.label(queries=1)
        if labels is not None and labels.batches:
            break
        left += stride
    spent = world.spent()
    world.close()
    assert spent[0] == spent[1] == spent[2]
    return labels.labels.tolist(), [each.said for each in heard]


@pytest.mark.parametrize(("which", "after"), [("own", True), ("guardians", False)])
def test_a_server_that_is_killed_at_any_note_repeats_one_transcript_of_votes_and_inputs(which, after) -> None:
    labels, heard = attempts(which, after=after, stride=STRIDE)
    world = World(study=SMALL)
    assert labels == world.label(queries=1).labels.tolist()
    world.close()
    assert len(heard) > 3
    whole = max(heard, key=len)[2:]
    for said in heard:
        assert said[2:][:VOTES] == whole[:VOTES][: len(said[2:])]
    fresh = [said[2:] for said in heard if len(said) > 2 + VOTES and not any(said[2 + VOTES][1])]
    assert len(fresh) > 1
    for said in fresh:
        assert said[VOTES:][: 1 + INPUTS] == fresh[-1][VOTES:][: len(said[VOTES:])][: 1 + INPUTS]
