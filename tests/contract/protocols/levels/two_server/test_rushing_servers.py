"""Servers that rush in the check of inputs, and one that holds two conversations about a batch at once."""

import numpy as np
import pytest

from protocols.errors import Refused
from protocols.levels.two_server.noisy_argmax import guardian_evaluates
from protocols.refusals.code import Code
from tests.harness.input_cheats import noticed, outcomes, sides
from tests.harness.refusals import refused_for
from tests.harness.rushing_servers import RUSHING, SendingBack, SendingBackAllButVotes
from tests.harness.seeded import seeded_source
from tests.harness.two_server_sides import converse, coordinator_side, guardian_side, notes_of_a_batch, split

COUNTS = np.array([[30, 10, 5], [8, 2, 33]])
ZERO = np.zeros_like(COUNTS)


@pytest.mark.parametrize(
    ("cheat", "test"), [(SendingBack, "of the votes"), (SendingBackAllButVotes, "sums are not those")]
)
def test_a_guardian_that_sends_back_what_the_coordinator_entered_fits_one_test_and_not_both(cheat, test) -> None:
    """Its numbers then have macs that fit, though it knows neither them nor the macs."""
    *_, checks = sides(1, cheat=cheat, cheater=1)
    found = outcomes(checks)[0]
    assert isinstance(found, Refused)
    assert found.code == Code.FALSE_INPUTS
    assert test in str(found)


@pytest.mark.parametrize("cheater", [0, 1], ids=["coordinator", "guardian"])
@pytest.mark.parametrize("cheat", RUSHING)
def test_shifts_that_cancel_in_one_test_are_noticed_by_the_other(cheat, cheater) -> None:
    assert noticed(3, cheat, cheater)


def test_a_coordinator_with_two_conversations_at_once_gets_one_evaluation_of_a_batch_opened() -> None:
    """The port admits one conversation a study; where it did not, each would open labels of its own circuit."""
    notes = notes_of_a_batch()
    share, other = split(COUNTS, np.random.default_rng(1))
    opened = []

    def conversation(seed, during=lambda: None):
        about = {"noise": ZERO, "threshold": 20, "total_units": 50}

        def evaluates(channel, inputs, *, source):
            evaluated = guardian_evaluates(channel, inputs, source=source)
            during()
            return evaluated

        def opening(channel):
            found = coordinator_side(channel, share, source=seeded_source(seed), **about)
            opened.append(found.labels.tolist())

        converse(
            opening,
            lambda channel: guardian_side(
                channel, other, source=seeded_source(seed, 1), notes=notes, evaluates=evaluates, **about
            ),
        )

    with refused_for("labels_differ"):
        conversation(1, during=lambda: conversation(2))
    assert opened == [[0, 2]]
