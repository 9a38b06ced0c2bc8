"""Hidden queries: a querying party or a guardian that attacks the check reads no vote of a private model.

What a guardian that deals wrongly still learns is stated by a test too: one bit of a voter and batch, and at the price
of the voter being refused.
"""

import numpy as np
import pytest

from protocols.crypto.field import plus
from protocols.levels.hidden_queries.inference import computing
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import plain_inference, quantise
from protocols.levels.two_server.shares import CoordinatorShare, GuardianShare
from protocols.levels.two_server.sketch import Ballots, coordinator_checks, guardian_checks
from tests.harness.inference_parties import CONTEXT, linear_model, parties, run
from tests.harness.two_server_sides import converse
from tests.harness.vote_check_attacks import CLASSES, GUESS, Attack, without_keys

VOTERS, QUERIES = 114, 2
RNG = np.random.default_rng(8)
MODELS = [quantise(linear_model(RNG, features=3, classes=CLASSES), Precision()) for _ in range(VOTERS)]
INPUTS = RNG.uniform(-1, 1, (QUERIES, 3))
VOTES = np.array([plain_inference(model, INPUTS) for model in MODELS])
SERVERS = ("coordinator", "guardian")


def computed():
    """All voters' shares, as they come out of the private inference."""
    both = [parties(model, INPUTS, key) for key, model in enumerate(MODELS)]
    for querier, answerer in both:
        run(querier, answerer)
    return (
        CoordinatorShare.of_all([querier.share for querier, _ in both]),
        GuardianShare.of_all([answerer.guardian_share for _, answerer in both]),
    )


@pytest.fixture(scope="module")
def shares():
    return computed()


@pytest.fixture(scope="module")
def keyless():
    with pytest.MonkeyPatch.context() as patch:
        without_keys(patch)
        return computed()


def checked(shares, replaced=()):
    """What both servers find; replaced: (server, its attack)."""
    terms = Ballots(np.ones((len(shares[0].seeds), QUERIES), dtype=bool), CLASSES, False, CONTEXT)
    sides = {"coordinator": coordinator_checks, "guardian": guardian_checks} | dict([replaced] if replaced else [])
    return converse(
        lambda channel: sides["coordinator"](channel, shares[0], terms, secret=bytes(32), pin=lambda *_: None),
        lambda channel: sides["guardian"](channel, shares[1], terms, secret=bytes([1]) * 32, pin=lambda *_: None),
    )


@pytest.mark.parametrize("server", SERVERS)
def test_neither_server_reads_a_vote_by_shifting_what_it_opens_unless_there_are_no_keys(
    server, shares, keyless, monkeypatch
) -> None:
    assert len(np.unique(VOTES[:, 0])) == CLASSES
    attack = Attack()
    found = checked(shares, (server, getattr(attack, server)))
    assert not found[1 - SERVERS.index(server)].any()
    assert not attack.zeros.any()
    without_keys(monkeypatch)
    checked(keyless, (server, getattr(attack, server)))
    np.testing.assert_array_equal(attack.zeros, VOTES[:, 0] == GUESS)


def test_honest_votes_of_private_models_pass(shares) -> None:
    found = checked(shares)
    assert found[0].all()
    assert found[1].all()


def test_a_guardian_that_deals_wrongly_learns_whether_a_vote_was_refused_and_nothing_else(monkeypatch) -> None:
    """It spoils k v where class GUESS would win: such a voter is refused, and another is not. Of a refused voter the
    numbers that it sees are random, so they do not say by how much the vote was spoilt."""
    corrections = computing.corrections

    def spoiling(pieces, secrets, own):
        (secret,) = secrets[-1:]
        if pieces[-1].shape[0] == 3 and len(pieces) == 1 and secret.ndim == 4:
            spoilt = secret.copy()
            wins = dealt_wins.pop()
            spoilt[:, :, 0, GUESS] = plus(spoilt[:, :, 0, GUESS], wins[:, 0, GUESS][None].repeat(3, axis=0))
            secrets = (spoilt,)
        elif pieces[-1].group == "field":
            dealt_wins.append(secrets[-1])
        return corrections(pieces, secrets, own)

    dealt_wins: list[np.ndarray] = []
    monkeypatch.setattr(computing, "corrections", spoiling)
    found = checked(computed())
    np.testing.assert_array_equal(found[0], VOTES[:, 0] != GUESS)
    np.testing.assert_array_equal(found[1], found[0])
