"""A server that attacks the check of votes reads none, is noticed, and gains nothing by breaking the check off.

The attacking programs are in tests/harness/vote_check_attacks.py; the other server runs the real code. Where a number
of right guesses is compared with chance, the false-alarm rate is RATE, by the exact binomial law.
"""

import numpy as np
import pytest
from scipy.stats import binom

from protocols.errors import ChannelClosed, MalformedMessage, Refused
from protocols.labelling import guardian as guardian_module
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server import aggregation as shared_votes
from protocols.levels.two_server.batch_notes import OneCheck
from protocols.levels.two_server.sketch import coordinator_checks, guardian_checks
from tests.harness.guardian_attempts import NAMES, World
from tests.harness.refusals import refused_for, refuses
from tests.harness.seeded import seeded_source
from tests.harness.two_server_cheats import ballots, shared
from tests.harness.two_server_sides import converse
from tests.harness.vote_check_attacks import CLASSES, GUESS, STEPS, Attack, without_keys

RATE = 1e-9
VOTERS, QUERIES = 3000, 2
VOTES = np.random.default_rng(4).integers(0, CLASSES, (VOTERS, QUERIES))
SERVERS = ("coordinator", "guardian")
REQUEST = bytes(32)


def met(server, attack, *, voters=VOTERS, seed=1, pins=(lambda *_: None, lambda *_: None), secrets=(1, 2)):
    """What the other server finds of the voters, where this one attacks. pins, secrets: the coordinator's first."""
    coordinator, guardian = shared(VOTES[:voters], classes=CLASSES, seed=seed)
    terms = ballots(voters=voters, queries=QUERIES, classes=CLASSES)
    sides = {"coordinator": coordinator_checks, "guardian": guardian_checks} | {server: getattr(attack, server)}
    secret = [bytes([each]) * 32 for each in secrets]
    found = converse(
        lambda channel: sides["coordinator"](channel, coordinator, terms, secret=secret[0], pin=pins[0]),
        lambda channel: sides["guardian"](channel, guardian, terms, secret=secret[1], pin=pins[1]),
    )
    return found[1 - SERVERS.index(server)]


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_shifts_what_it_opens_guesses_votes_no_better_than_chance_and_every_shift_is_noticed(
    server,
) -> None:
    attack = Attack()
    assert not met(server, attack).any()
    assert not attack.zeros.any()
    right = int((attack.guesses == VOTES[:, 0]).sum())
    assert right <= binom.isf(RATE, VOTERS, 1 / CLASSES)


@pytest.mark.parametrize("server", SERVERS)
def test_the_same_attack_tells_who_voted_for_a_class_if_there_are_no_keys(server, monkeypatch) -> None:
    without_keys(monkeypatch)
    attack = Attack()
    met(server, attack)
    np.testing.assert_array_equal(attack.zeros, VOTES[:, 0] == GUESS)


@pytest.mark.parametrize("step", STEPS)
def test_a_coordinator_that_answers_what_it_saw_is_refused(step) -> None:
    with refuses(MalformedMessage, step):
        met("coordinator", Attack(rushing=step), voters=5)


class Kept:
    """Both servers' ledgers, over several checks of one batch."""

    def __init__(self):
        self.ledgers = {name: Ledger(":memory:") for name in SERVERS}
        self.checks = {
            name: OneCheck(self.ledgers[name], REQUEST, number=0, other=SERVERS[1 - at])
            for at, name in enumerate(SERVERS)
        }

    def attempt(self, server, attack, **how):
        """One check in which `server` attacks; the other notes and logs as it does in a batch."""
        honest = SERVERS[1 - SERVERS.index(server)]
        with self.checks[honest].attempt(b"voters") as pin:
            pins = [(lambda *_: None) if name == server else pin for name in SERVERS]
            return met(server, attack, voters=5, pins=pins, **how)

    def log(self, server):
        return [(entry.event, dict(entry.fields)) for entry in self.ledgers[server].log.entries()]

    def close(self):
        for ledger in self.ledgers.values():
            ledger.close()


@pytest.fixture
def kept():
    made = Kept()
    yield made
    made.close()


# After the last step a guardian has nothing more to hear.
@pytest.mark.parametrize(
    ("server", "step"), [("coordinator", step) for step in STEPS] + [("guardian", step) for step in STEPS[:2]]
)
def test_a_server_that_breaks_off_and_comes_back_with_another_message_is_refused_and_logged(server, step, kept) -> None:
    honest = SERVERS[1 - SERVERS.index(server)]
    with pytest.raises(ChannelClosed):
        kept.attempt(server, Attack(stops=step))
    # It saw the other's message. Shifting another query is another message of the first step, for one.
    with refused_for("other_check"):
        kept.attempt(server, Attack(query=1))
    events = kept.log(honest)
    assert [event for event, _ in events] == ["check_broken_off", "checked_again", "check_broken_off"]
    assert [fields.get("by") for _, fields in events] == [f"{server} or the line", None, server]


@pytest.mark.parametrize("server", SERVERS)
def test_another_number_after_a_broken_check_is_refused(server, kept) -> None:
    with pytest.raises(ChannelClosed):
        kept.attempt(server, Attack(stops="masked results"))
    secrets = (7, 2) if server == "coordinator" else (1, 7)
    with refuses(Refused, "other_"):
        kept.attempt(server, Attack(), secrets=secrets)


@pytest.mark.parametrize("server", SERVERS)
def test_checks_are_broken_off_so_often_and_no_more(server, kept, monkeypatch) -> None:
    monkeypatch.setattr("protocols.levels.two_server.batch_notes.MOST_ATTEMPTS", 3)
    honest = SERVERS[1 - SERVERS.index(server)]
    for _ in range(3):
        with pytest.raises(ChannelClosed):
            kept.attempt(server, Attack(stops="blinded sums"))
    with refused_for("too_many_checks"):
        kept.attempt(server, Attack())
    broken = [fields["times"] for event, fields in kept.log(honest) if event == "check_broken_off"]
    assert broken == [1, 2, 3]


def test_other_voters_in_a_repeated_check_are_refused_and_a_check_that_ended_is_not_counted(kept, monkeypatch) -> None:
    monkeypatch.setattr("protocols.levels.two_server.batch_notes.MOST_ATTEMPTS", 3)
    check = kept.checks["guardian"]
    for _ in range(4):
        with check.attempt(b"these"):
            pass
        check.end(["p1", "p4"])
    with refused_for("other_check"), check.attempt(b"those"):
        pass
    refused = [fields["parties"] for event, fields in kept.log("guardian") if event == "votes_refused"]
    assert refused == ["p1, p4"]


# End to end: a whole batch, with a coordinator or a guardian whose check is the attacker's.

REPLACED = {"coordinator": (shared_votes, "coordinator_checks"), "guardian": (guardian_module, "guardian_checks")}


@pytest.mark.parametrize("server", SERVERS)
def test_end_to_end_an_attacking_server_reads_no_vote_and_the_other_logs_whose_votes_it_spoilt(
    server, monkeypatch
) -> None:
    attack, made = Attack(), World()
    monkeypatch.setattr(*REPLACED[server], getattr(attack, server))
    got = made.label()
    honest = {"coordinator": made.guardians, "guardian": made.own}[server]
    assert not attack.zeros.any()
    assert len(attack.zeros) == len(NAMES)
    logged = [entry.fields for entry in honest.log.entries() if entry.event == "votes_refused"]
    assert logged == [{"batch": 0, "parties": ", ".join(NAMES)}]
    assert not (got.labels >= 0).any()
    made.close()


def test_end_to_end_a_coordinator_that_rushes_gets_nothing_and_both_logs_say_who_broke_off(monkeypatch) -> None:
    attack, made = Attack(rushing="tests"), World()
    honest = coordinator_checks
    monkeypatch.setattr(shared_votes, "coordinator_checks", attack.coordinator)
    assert made.label().stop.reason == "guardian_lost"
    fields = next(entry.fields for entry in made.guardians.log.entries() if entry.event == "check_broken_off")
    assert fields == {"batch": 0, "by": "coordinator", "code": "malformed", "times": 1}
    # It goes on as if nothing had been: but its first message is another than the one that it had committed to.
    monkeypatch.setattr(shared_votes, "coordinator_checks", honest)
    assert made.label().stop.reason == "guardian_lost"
    assert "other_check" in str(made.here.faults[0])
    by = [entry.fields["by"] for entry in made.own.log.entries() if entry.event == "check_broken_off"]
    # Once an attempt: the test of masks, which ends the check, found the line closed in the first one too.
    assert by == ["guardian or the line"] * 2
    made.close()


def test_thousands_of_honest_voters_pass() -> None:
    votes = np.random.default_rng(6).integers(-1, 10, (4000, 1))
    coordinator, guardian = shared(votes, classes=10)
    terms = ballots(voters=4000, queries=1, classes=10, abstention=True)
    found = converse(
        lambda channel: coordinator_checks(
            channel, coordinator, terms, secret=seeded_source(1)(32), pin=lambda step, value: None
        ),
        lambda channel: guardian_checks(
            channel, guardian, terms, secret=seeded_source(2)(32), pin=lambda step, value: None
        ),
    )
    assert found[0].all()
    assert found[1].all()
