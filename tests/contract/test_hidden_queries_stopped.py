"""A querying party that is stopped before or after any message of a batch goes on: once charged, once noised."""

import sqlite3
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.inference.model import plain_inference
from protocols.levels.two_server.noise_pool import NoiseLaw, noise_of
from protocols.noise import LatticeNoise
from protocols.wire.messages import Outcome
from tests.harness.levels import GuardianHere
from tests.harness.private_models import PrivateParties, asking, hidden_queries, hidden_study, private_models
from tests.harness.seeded import seeded_source

# The quorum is all, so that none may be lost on the way.
STUDY = hidden_study(
    seats=3, mechanism="gnmax", sigma_threshold=None, threshold=None, sigma=4.0, batch_limit=2, quorum=3
)
QUERIES = hidden_queries(4)
# Linear models but one, whose hidden layer takes more steps; a CNN's steps are the same once more.
MODELS = private_models(STUDY)


class Stopped(BaseException):
    """The process ended: nothing after this ran. No handler of exceptions sees it."""


class World:
    """Ledgers on disk; a querying party that ends at its `at`-th edge: each message has one before and one after."""

    def __init__(self, folder, queries) -> None:
        folder.mkdir(exist_ok=True)
        self.queries = queries
        self.folder, self.at, self.edge = folder, None, 0
        self.parties = PrivateParties(STUDY, MODELS)
        self.guardians = opened(folder / "guardian.sqlite")
        self.seeds: dict[str, dict[bytes, bytes]] = {"guardian": {}, "asker": {}}
        self.outcomes: dict[bytes, bytes] = {}
        self._watching: dict[str, sqlite3.Connection] = {}
        self.attempts = 0

    def passed(self) -> None:
        """One edge. What both servers noted must stand as it was."""
        for name, known in self.seeds.items():
            for digest, seed in self._noted_seeds(name).items():
                assert known.setdefault(digest, seed) == seed, f"{name} drew its noise again"
        self.edge += 1
        if self.edge - 1 == self.at:
            raise Stopped

    def _noted_seeds(self, name):
        """What is on disk, as a process that starts now would find it."""
        if name not in self._watching:
            path = self.folder / f"{name}.sqlite"
            self._watching[name] = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=300)
        found = self._watching[name].execute("SELECT digest, substr(value, 9) FROM note WHERE kind = 'noise_seed'")
        return dict(found.fetchall())

    def close(self):
        for database in self._watching.values():
            database.close()
        self.guardians.close()

    def exchange(self, requests):
        self.passed()
        for request in requests.values():
            if isinstance(request, Outcome):
                answered = request.answered.tobytes()
                assert self.outcomes.setdefault(request.batch_digest, answered) == answered, "two outcomes of a batch"
        replies = self.parties.exchange()(requests)
        self.passed()
        return replies

    def attempt(self, at=None):
        """As after a start of the command, with randomness of its own."""
        self.at, self.edge, self.attempts = at, 0, self.attempts + 1
        here = GuardianHere(STUDY, self.guardians, seeded_source(5, self.attempts % 4))
        own = opened(self.folder / "asker.sqlite")
        try:
            coordinator, positions = asking(
                STUDY, Dialled(here, self), own, self.exchange, self.queries, key=100 + self.attempts % 4
            )
            return coordinator.label(positions)
        finally:
            own.close()


class Dialled:
    """A guardian whose every message is an edge."""

    def __init__(self, here, world) -> None:
        self._here, self._world = here, world

    @contextmanager
    def dial(self):
        with self._here.dial() as channel:
            yield _Edged(channel, self._world)


class _Edged:
    def __init__(self, channel, world) -> None:
        self._channel, self._world = channel, world

    def send(self, data):
        self._world.passed()
        self._channel.send(data)
        self._world.passed()

    def recv(self, limit):
        data = self._channel.recv(limit)
        self._world.passed()
        return data


def opened(path):
    ledger = Ledger(path)
    # A test need not wait for the platter.
    ledger._database.execute("PRAGMA synchronous = OFF")
    return ledger


def labels_of_seeds(world, digest, ids):
    """The labels of a batch in the clear, with the noise that follows from what both servers noted."""
    units = STUDY.lattice.units
    seeds = world.seeds["asker"][digest], world.seeds["guardian"][digest]
    total = sum(noise_of(seeds, NoiseLaw.of(STUDY), queries=len(ids)))
    votes = np.array([plain_inference(model, QUERIES[ids]) for model in MODELS.values()])
    counts = np.stack([(votes == each).sum(axis=0) for each in range(STUDY.classes)], axis=1).astype(float)
    noise = LatticeNoise(units, lambda count, sigma: total.reshape(count))
    return STUDY.released(counts, noise, predictions=None)[0]


def check(world, got, released):
    """Charged once by everybody; labels are those of the noise that was noted, and of what was released before."""
    assert got.stop.reason == "pool_exhausted"
    assert not got.refusals
    assert not got.ledger_differences
    number, size = len(got.batches), STUDY.batch_limit
    everyone = np.full(len(STUDY.roster), size)
    expected = (number * STUDY.budgets.amount(everyone, everyone)).tolist()
    at_guardian = [world.guardians.balance(seat.party).spent for seat in STUDY.roster]
    assert got.spent.tolist() == world.parties.spent() == at_guardian == expected
    with Ledger(world.folder / "asker.sqlite") as own:
        assert own.unsettled() == world.guardians.unsettled() == []
        for batch in range(number):
            digest, ids = own.stored(batch).digest, np.arange(size * batch, size * (batch + 1))
            np.testing.assert_array_equal(got.labels[ids], labels_of_seeds(world, digest, ids))
    np.testing.assert_array_equal(got.labels[: len(released)], released, err_msg="released otherwise")


def released_by(world):
    """The labels that the querying party has had."""
    path = world.folder / "asker.sqlite"
    if not path.exists():
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=300) as database:
        rows = database.execute("SELECT payload FROM batch WHERE settled ORDER BY number").fetchall()
    return [label for (payload,) in rows for label in np.frombuffer(payload, dtype="<i8").tolist()]


def test_stopped_again_and_again_one_message_later_each_time_it_ends_as_if_nothing_had_been(tmp_path):
    world, released, got = World(tmp_path, QUERIES), [], None
    while got is None:
        with suppress(Stopped):
            got = world.attempt(at=world.attempts)
        known = released_by(world)
        assert known[: len(released)] == released, "released otherwise"
        released = known
    check(world, got, released)
    assert world.attempts > 10
    # Each attempt computed again what it had not noted; no party was asked for its votes of a batch twice over.
    assert len(set(world.parties.admitted)) == len(world.parties.admitted) == 2 * len(STUDY.roster)
    world.close()


@pytest.mark.slow
def test_stopped_between_any_two_messages_of_a_batch_it_charges_once_and_gives_the_noise_that_was_noted(tmp_path):
    at, stopped = 1, True
    while stopped:
        world, stopped = World(tmp_path / str(at), QUERIES[:2]), False
        try:
            world.attempt(at)
        except Stopped:
            stopped = True
        check(world, world.attempt(), released_by(world))
        world.close()
        # Of what lies between two messages, one edge is before it and one after.
        at += 2
    assert at > 30
