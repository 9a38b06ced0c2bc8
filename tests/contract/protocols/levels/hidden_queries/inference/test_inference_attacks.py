"""Hidden queries: a querying party or a guardian that attacks the check reads no vote of a private model.

Whatever a guardian deals, whether a vote is taken says nothing of it: all voters' are, or none's.
"""

from dataclasses import replace

import numpy as np
import pytest

from protocols.crypto.field import plus
from protocols.levels.hidden_queries.inference import computing
from protocols.levels.hidden_queries.inference.architecture import Precision
from protocols.levels.hidden_queries.inference.model import plain_inference, quantise
from protocols.levels.hidden_queries.inference.vote import VoteGate
from protocols.levels.two_server import sketch
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


def dealing(change):
    """A guardian whose tables of the winner's number are others."""
    honest = VoteGate.secrets

    def secrets(gate, free):
        *others, numbers = honest(gate, free)
        return (*others, change(numbers))

    return secrets


def zero_but_for_the_guess(tables):
    return tables * (np.arange(tables.shape[-1]) == GUESS).astype(tables.dtype)


def of_the_next_class(tables):
    return np.roll(tables, 1, axis=-1)


def of_every_entry(tables):
    return tables + np.arange(len(tables), dtype=tables.dtype)[:, None, None]


@pytest.mark.parametrize("change", [zero_but_for_the_guess, of_the_next_class, of_every_entry])
def test_a_guardian_that_deals_other_tables_has_all_votes_taken_whatever_they_are(change, monkeypatch) -> None:
    monkeypatch.setattr(VoteGate, "secrets", dealing(change))
    found = checked(computed())
    assert found[0].all()
    assert found[1].all()


def moved_pads(monkeypatch, at):
    """A guardian that deals the querying party a pad that is one more in one number than the answering party's."""
    honest = computing.deal

    def moved(*given, **more):
        (seed, pad), answerers = honest(*given, **more)
        pad = pad.copy()
        pad[at][:, GUESS] = plus(pad[at][:, GUESS], np.array([1], dtype=np.uint32))
        return (seed, pad), answerers

    monkeypatch.setattr("tests.harness.inference_parties.deal", moved)


def undoing(monkeypatch, at):
    """A guardian that puts into its own share what it took from the querying party's."""
    honest = sketch.guardian_votes, sketch.guardian_determined
    added = np.zeros(CLASSES, dtype=np.uint32)
    added[GUESS] = 1

    def determined(*given, **more):
        found = honest[1](*given, **more)
        keyed = found.keyed.copy()
        keyed[:, 0] = plus(keyed[:, 0], np.broadcast_to(added, keyed[:, 0].shape))
        return replace(found, keyed=keyed)

    def votes(*given, **more):
        found = honest[0](*given, **more)
        return plus(found, np.broadcast_to(added, found.shape))

    monkeypatch.setattr(sketch, *[("guardian_votes", votes), ("guardian_determined", determined)][at])


@pytest.mark.parametrize("undone", [False, True], ids=["left", "undone"])
@pytest.mark.parametrize("at", [0, 1], ids=["of votes", "of keyed votes"])
def test_a_guardian_that_deals_other_pads_has_all_votes_refused_or_if_it_undoes_them_taken(
    at, undone, monkeypatch
) -> None:
    """What it added is known to it, and the same for every vote: it can take it out, of all or of none."""
    moved_pads(monkeypatch, at)
    both = computed()
    if undone:
        undoing(monkeypatch, at)
    for found in checked(both):
        assert (found == undone).all()
