"""The check of shared votes: honest voters pass, each kind of cheat is named, and the rest goes on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.crypto.channel import Channel, pair
from protocols.crypto.field import P, from_integers, times
from protocols.errors import ChannelClosed, InvalidInput, MalformedMessage, Refused
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare
from protocols.levels.two_server.sketch import coordinator_checks, guardian_checks
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source
from tests.harness.two_server_cheats import (
    CHEAT,
    CHEATS,
    CLASSES,
    QUERIES,
    VOTERS,
    VOTES,
    ballots,
    shared,
    sums_of,
    verdicts,
    with_moved,
    with_votes,
)
from tests.harness.two_server_sides import centred, converse, unbuffered_pair


@given(
    seed=st.integers(0, 2**32), voters=st.integers(0, 5), queries=st.integers(0, 6), classes=st.integers(2, 8),
    abstention=st.booleans(),
)  # fmt: skip
@settings(max_examples=12)
def test_honest_voters_always_pass_and_their_weighted_sums_are_exact(
    seed, voters, queries, classes, abstention
) -> None:
    rng = np.random.default_rng(seed)
    takes_part = rng.random((voters, queries)) < 0.7
    # Whoever does not take part may hold anything there, an abstention included.
    votes = np.where(takes_part, rng.integers(-1 if abstention else 0, classes, (voters, queries)), -1)
    coordinator, guardian = shared(votes, classes=classes, seed=seed)
    terms = ballots(takes_part=takes_part, abstention=abstention, classes=classes)
    valid = verdicts(coordinator, guardian, terms, seed)
    assert valid.all()
    weights = rng.integers(0, 2**27, voters)
    sums = sums_of(coordinator, guardian, terms, weights[:, None] * (terms.takes_part & valid[:, None]))
    counts = np.einsum("v,vqc->qc", weights, votes[:, :, None] == np.arange(classes))
    np.testing.assert_array_equal(centred(sums), counts)


@pytest.mark.parametrize("abstention", [False, True])
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_is_named_and_the_rest_goes_on(name, abstention) -> None:
    coordinator, guardian = CHEATS[name](*shared())
    terms = ballots(abstention=abstention)
    valid = verdicts(coordinator, guardian, terms)
    np.testing.assert_array_equal(valid, np.arange(VOTERS) != CHEAT)
    weights = np.array([3, 1, 64, 2, 5])
    sums = sums_of(coordinator, guardian, terms, weights[:, None] * (terms.takes_part & valid[:, None]))
    rest = np.where(valid, weights, 0)
    np.testing.assert_array_equal(centred(sums), np.einsum("v,vqc->qc", rest, VOTES[:, :, None] == np.arange(CLASSES)))


def test_the_servers_exchange_one_element_a_repetition_and_query_and_three_a_repetition() -> None:
    coordinator, guardian = shared()
    ends = pair()
    converse(
        lambda channel: coordinator_checks(
            channel, coordinator, ballots(), secret=seeded_source(1)(32), pin=lambda step, value: None
        ),
        lambda channel: guardian_checks(
            channel, guardian, ballots(), secret=seeded_source(2)(32), pin=lambda step, value: None
        ),
        channels=ends,
    )
    elements = 4 * VOTERS * 3 * (QUERIES + 3)
    # Digest, number, and the coordinator's four commitments and salts have 32 bytes each.
    assert [end.sent for end in ends] == [elements + 10 * 32, elements + 2 * 32]


class Recorded:
    """A channel that keeps what it sends."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.messages = channel, []

    def send(self, data: bytes) -> None:
        self.messages.append(data)
        self.channel.send(data)

    def recv(self, limit: int) -> bytes:
        return self.channel.recv(limit)

    def close(self) -> None:
        self.channel.close()


def sent_in_one_attempt(voters: slice) -> list[list[bytes]]:
    """What each server sends about these voters, with the seeds of one batch."""
    coordinator, guardian = shared()
    some = CoordinatorShare(*(array[voters] for array in coordinator.arrays()))
    terms = ballots(takes_part=np.ones((len(some.seeds), QUERIES), dtype=bool))
    ends = tuple(Recorded(end) for end in pair())
    converse(
        lambda channel: coordinator_checks(channel, some, terms, secret=bytes(32), pin=lambda step, value: None),
        lambda channel: guardian_checks(
            channel, GuardianShare(guardian.seeds[voters]), terms, secret=bytes([1]) * 32, pin=lambda step, value: None
        ),
        channels=ends,
    )
    return [end.messages for end in ends]


def test_a_second_attempt_sends_what_the_first_did() -> None:
    # Under another coin, or after another message of the other side, differences of what is opened would give votes.
    assert sent_in_one_attempt(slice(None)) == sent_in_one_attempt(slice(None))


def test_a_check_of_fewer_voters_blinds_nothing_with_what_served_before() -> None:
    """Which `pin` refuses at once; but the factors would be others too."""
    first, fewer = (sent_in_one_attempt(each) for each in (slice(None), slice(1, None)))
    for server, step in ((0, 3), (1, 2)):
        before, after = (
            np.frombuffer(each[server][step][: -64 if server == 0 else None], "<u4") for each in (first, fewer)
        )
        assert not np.isin(after.reshape(2, -1, 3)[0], before.reshape(2, -1, 3)[0]).any()


@pytest.mark.parametrize("refusing", ["coordinator", "guardian"])
def test_a_server_that_pins_another_coin_sends_nothing_of_its_shares(refusing: str) -> None:
    coordinator, guardian = shared()
    ends = tuple(Recorded(end) for end in pair(wait_s=1.0))

    def pin(server: str) -> Callable[[str, bytes], None]:
        def check(step: str, value: bytes) -> None:
            if server == refusing and step == "coin":
                raise Refused("other_coin", "another coin was followed before")

        return check

    with pytest.raises((Refused, ChannelClosed)):
        converse(
            lambda channel: coordinator_checks(
                channel, coordinator, ballots(), secret=bytes(32), pin=pin("coordinator")
            ),
            lambda channel: guardian_checks(channel, guardian, ballots(), secret=bytes(32), pin=pin("guardian")),
            channels=ends,
        )
    mine = ends[refusing == "guardian"].messages
    assert all(len(message) <= 96 for message in mine), "elements were sent"


def test_a_channel_without_buffers_does_not_lock_the_check() -> None:
    coordinator, guardian = shared()
    found = converse(
        lambda channel: coordinator_checks(
            channel, coordinator, ballots(), secret=seeded_source(1)(32), pin=lambda step, value: None
        ),
        lambda channel: guardian_checks(
            channel, guardian, ballots(), secret=seeded_source(2)(32), pin=lambda step, value: None
        ),
        channels=unbuffered_pair(),
    )
    assert found[0].all()
    assert found[1].all()


def test_two_parties_whose_shares_were_swapped_both_fail() -> None:
    coordinator, guardian = shared()
    votes = coordinator.votes.copy()
    votes[[0, 4]] = votes[[4, 0]]
    valid = verdicts(replace(coordinator, votes=votes), guardian, ballots())
    np.testing.assert_array_equal(valid, [False, True, True, True, False])


def test_an_abstention_passes_only_where_the_study_allows_it() -> None:
    votes = VOTES.copy()
    votes[CHEAT, 4] = -1
    coordinator, guardian = shared(votes)
    assert verdicts(coordinator, guardian, ballots(abstention=True)).all()
    np.testing.assert_array_equal(verdicts(coordinator, guardian, ballots()), np.arange(VOTERS) != CHEAT)


def test_what_takes_no_part_is_neither_checked_nor_counted() -> None:
    coordinator, guardian = with_votes([7, 7, 7, 7])(*shared())
    coordinator, guardian = with_moved("constants", 5, (slice(None), 3))(coordinator, guardian)
    takes_part = np.ones((VOTERS, QUERIES), dtype=bool)
    takes_part[CHEAT, 3] = False
    terms = ballots(takes_part=takes_part)
    valid = verdicts(coordinator, guardian, terms)
    assert valid.all()
    weights = np.ones(VOTERS, dtype=np.int64)
    sums = sums_of(coordinator, guardian, terms, weights[:, None] * (terms.takes_part & valid[:, None]))
    expected = ((VOTES[:, :, None] == np.arange(CLASSES)) & takes_part[:, :, None]).sum(axis=0)
    np.testing.assert_array_equal(centred(sums), expected)


def test_blocks_of_voters_do_not_change_what_is_found(monkeypatch) -> None:
    monkeypatch.setattr("protocols.levels.two_server.sketch._BLOCK_CELLS", 2 * QUERIES * CLASSES)
    coordinator, guardian = CHEATS["two-hot"](*shared())
    np.testing.assert_array_equal(verdicts(coordinator, guardian, ballots()), np.arange(VOTERS) != CHEAT)


def test_the_polynomial_of_the_check_vanishes_for_zero_and_unit_vectors_alone() -> None:
    """All vectors of three small entries, at random points: the identity the check stands on."""
    values = np.array(np.meshgrid(*3 * [np.arange(-2, 4)])).reshape(3, -1).T
    r = np.random.default_rng(0).integers(0, P, (3, 3)).astype(np.uint32)
    vanishes = np.ones(len(values), dtype=bool)
    for point in r:
        v = from_integers(values)
        linear, quadratic = (
            np.array([sum(map(int, row)) % P for row in times(v, w)]) for w in (point, times(point, point))
        )
        vanishes &= (linear.astype(object) ** 2 - quadratic) % P == 0
    np.testing.assert_array_equal(vanishes, (np.abs(values).sum(axis=1) <= 1) & (values >= 0).all(axis=1))


@pytest.mark.parametrize(
    "other",
    [
        {"abstention": True}, {"context": b"other"}, {"takes_part": np.arange(30).reshape(5, 6) > 3},
    ],
)  # fmt: skip
def test_servers_that_differ_in_the_batch_stop_before_anything_is_opened(other) -> None:
    coordinator, guardian = shared()
    with refuses(MalformedMessage, "servers"):
        converse(
            lambda channel: coordinator_checks(
                channel, coordinator, ballots(), secret=seeded_source(1)(32), pin=lambda step, value: None
            ),
            lambda channel: guardian_checks(
                channel, guardian, ballots(**other), secret=seeded_source(2)(32), pin=lambda step, value: None
            ),
        )


def test_shares_of_another_size_than_the_batch_are_refused() -> None:
    coordinator, guardian = shared()
    terms = ballots(voters=4)
    with refuses(InvalidInput, "expected"):
        coordinator_checks(Untouched(), coordinator, terms, secret=seeded_source(1)(32), pin=lambda step, value: None)
    with refuses(InvalidInput, "expected"):
        guardian_checks(Untouched(), guardian, terms, secret=seeded_source(1)(32), pin=lambda step, value: None)


def test_weights_that_the_ring_cannot_hold_are_refused() -> None:
    coordinator, guardian = shared()
    for weights in (np.full(VOTERS, 2**28), np.full(VOTERS, -1)):
        with refuses(InvalidInput, "weights"):
            sums_of(coordinator, guardian, ballots(), np.tile(weights[:, None], QUERIES))


class Untouched:
    """A channel that must not be used."""

    def send(self, data):
        raise AssertionError("something was sent")

    def recv(self, limit):
        raise AssertionError("something was asked for")
