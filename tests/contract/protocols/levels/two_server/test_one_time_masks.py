"""The test of one-time masks: who deals others is left out, and a server that deviates in it gains nothing."""

from dataclasses import replace

import numpy as np
import pytest

from protocols.crypto.channel import pair
from protocols.errors import Refused
from protocols.levels.two_server import one_time_masks
from protocols.levels.two_server.keyed_shares import KeyedShares
from protocols.levels.two_server.one_time_masks import INPUT_REPETITIONS, MaskShares, PinnedExchange, masks_hold
from tests.harness.two_server_cheats import QUERIES, VOTERS, ballots, shared
from tests.harness.two_server_sides import converse

EVERYBODY = np.ones(VOTERS, dtype=bool)


def found(coordinator, guardian, *, shifted=None, wrap=lambda exchange: exchange):
    """Which voters the servers find. shifted: a place in the coordinator's share of the masks that it moves."""
    terms = ballots()
    keyed = [KeyedShares.of_coordinator(coordinator, terms), KeyedShares.of_guardian(guardian, terms)]
    if shifted is not None:
        masks = keyed[0].masks.masks.copy()
        masks[shifted] ^= 1
        keyed[0] = replace(keyed[0], masks=MaskShares(masks, keyed[0].masks.keyed))

    def side(at):
        def run(channel):
            exchange = PinnedExchange(channel, leads=at == 0, pin=lambda *_: None)
            about = {"secret": bytes([at]) * 32, "digest": terms.digest}
            return masks_hold(wrap(exchange) if at == 0 else exchange, keyed[at].masks, keyed[at].keys, **about)

        return run

    one, other = converse(side(0), side(1), channels=pair(wait_s=300.0))
    np.testing.assert_array_equal(one, other)
    return one


def test_masks_that_are_dealt_as_agreed_pass() -> None:
    assert found(*shared()).all()


@pytest.mark.parametrize("which", [0, 1], ids=["mask", "spare mask"])
@pytest.mark.parametrize("repetition", range(INPUT_REPETITIONS))
@pytest.mark.parametrize("query", [0, QUERIES - 1])
def test_a_voter_whose_masks_are_spoilt_is_found_and_no_other(which, repetition, query) -> None:
    coordinator, guardian = shared()
    coordinator.masks[2, which, repetition, query] ^= 1
    np.testing.assert_array_equal(found(coordinator, guardian), np.arange(VOTERS) != 2)


def test_a_server_that_shifts_a_mask_gets_that_voter_left_out() -> None:
    np.testing.assert_array_equal(found(*shared(), shifted=(1, 0, 0, 0)), np.arange(VOTERS) != 1)


def test_a_server_that_opens_another_result_is_noticed() -> None:
    def lying(exchange):
        real = exchange.of
        exchange.of = lambda step, message, size: real(
            step, bytes(4) + message[4:] if step == "mask results" else message, size
        )
        return exchange

    with pytest.raises(Refused, match="other mask results than it had committed to"):
        found(*shared(), wrap=lying)


def test_masks_of_another_batch_do_not_pass(monkeypatch) -> None:
    coordinator, guardian = shared()
    real = one_time_masks._expanded
    monkeypatch.setattr(
        "protocols.levels.two_server.one_time_masks._expanded",
        lambda label, seeds, queries, parts, context: real(label, seeds, queries, parts, context + b"'"),
    )
    np.testing.assert_array_equal(found(coordinator, guardian), ~EVERYBODY)
