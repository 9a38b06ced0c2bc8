"""Homes, policies, restores, copies, stops, withdrawals in any order: what is recorded is never below what was spent.

The model counts answers that left, by itself: each distinct answer to a request costs its worst case, or what the
outcome that was told of it says. Teachers vote at random, so that an answer that is computed again is another one.

CONCLAVE_SEQUENCES: how many sequences are generated. The gate takes some; a campaign of many thousands runs by hand.
"""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import party.voting.answering
from party.budget.policy import Policy
from party.budget.spending import withdraw
from party.budget.watermarks import remember_approval, remember_policy
from party.data.files import CsvFile
from party.data.records import DataSettings
from party.settings import PartySettings, TeacherSettings
from party.voting.answering import Answering
from protocols.errors import Refused
from protocols.wire.messages import Outcome, Refusal, Settled, VoteReply, encode
from tests.harness.approved_homes import (
    BY_DIGEST,
    CAPS,
    EXPECTED,
    QUERIES,
    SEAT,
    STUDIES,
    Answer,
    Place,
    Stop,
    copied,
    lifetime_cost,
    price,
    request,
)

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
homes = st.integers(0, 5)
studies = st.integers(0, len(STUDIES) - 1)
# Where a process ends: before the policy knows, before the ledger knows that it does, before the answer is sent.
STOPS = ["ledger", "policy", "all"]


class Hospital(RuleBasedStateMachine):
    """One hospital: two homes and copies of them, one policy, and a coordinator that may say anything."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(dir=SCRATCH))
        self.file = self.folder / "policy.sqlite"
        self.homes = []
        for name in ("a", "b"):
            (self.folder / name).mkdir()
            self.homes.append(Place(self.folder / name))
        self.policy = Policy(self.file)
        self.newest = None  # a copy of the policy that the one in use is behind of
        self.left = {}  # (digest of the request, bytes of the answer) -> Answer
        self.told = {}  # digest of the request -> mask
        self.backups = []
        self.made = 0
        # What each ledger's file must know of the policy: how many entries this had when its last answer left.
        self.knowledge = {}
        self.random = np.random.default_rng(1)
        self.approve(0, 0)
        self.approve(1, 1)
        self.back_up(0)
        self.ask(0, 0, 0, 0, None)
        self.ask(0, 1, 0, 0, None)

    # What people do.

    @rule(at=homes, number=studies)
    def approve(self, at, number):
        home, study = self.homes[at % len(self.homes)], STUDIES[number]
        with self.refusals(), self.policy.log.together():
            self.policy.approve(study, party=SEAT, data_set="ward", caps=CAPS, home=home, told_apart=False)
            home.keep_study(study)
            remember_approval(home, study, SEAT, self.policy.log)
            self.learn(home, number)

    @rule(at=homes, number=studies)
    def keep_by_hand(self, at, number):
        self.homes[at % len(self.homes)].keep_study(STUDIES[number])

    @rule(at=homes, number=studies)
    def withdraw(self, at, number):
        with self.refusals():
            withdraw(self.homes[at % len(self.homes)], self.policy, STUDIES[number], data_set="ward", party=SEAT)

    @rule(at=homes)
    def move(self, at):
        at %= len(self.homes)
        self.made += 1
        old = self.homes[at]
        self.homes[at] = Place(old.path.rename(self.folder / f"moved-{self.made}"))
        self.hand_on(old, self.homes[at])

    @rule(at=homes)
    def copy(self, at):
        if len(self.homes) < 5:
            self.made += 1
            target = self.folder / f"copy-{self.made}"
            shutil.copytree(self.homes[at % len(self.homes)].path, target)
            self.homes.append(Place(target))
            self.hand_on(self.homes[at % len(self.homes)], self.homes[-1])

    # What a coordinator asks for.

    @rule(at=homes, which=studies, batch=st.integers(0, 3), start=st.integers(0, 7))
    def vote(self, at, which, batch, start):
        self.ask(at, which, batch, start, None)

    @rule(at=homes, which=studies, batch=st.integers(0, 3), start=st.integers(0, 7))
    def vote_again(self, at, which, batch, start):
        self.ask(at, which, batch, start, None)

    @rule(at=homes, which=studies, batch=st.integers(0, 3), start=st.integers(0, 7), where=st.sampled_from(STOPS))
    def vote_and_stop(self, at, which, batch, start, where):
        self.ask(at, which, batch, start, where)

    def ask(self, at, which, batch, start, stop):
        found = self.answering(at, which)
        if found is None:
            return
        home, number = found
        study, sent = STUDIES[number], request(STUDIES[number], batch, QUERIES * start)
        with self.seat(home, number) as seat:
            if seat is None:
                return

            def teachers(batch):
                return self.random.integers(0, 2, (study.votes.voters, len(batch.ids)))

            def stopped(*_):
                raise Stop

            seat.party._voter.source = teachers
            if stop == "ledger":
                seat = replace(seat, anchor=stopped)
            if stop == "policy":
                party.voting.answering.remember_policy = stopped
            try:
                reply = seat.answer(lambda: seat.party.handle(sent))
            except Stop:
                return
            finally:
                party.voting.answering.remember_policy = remember_policy
            if isinstance(reply, Refusal):
                assert reply.code in EXPECTED, reply
                return
            assert isinstance(reply, VoteReply)
            if stop == "all":
                return
            assert self.newest is None, "the policy was behind, and a vote left"
            self.learn(home, number)
            key = (sent.digest, encode(reply))
            if key not in self.left:
                self.left[key] = Answer(number, sent.digest, self.told.get(sent.digest))
            assert seat.ledger.balance(SEAT).spent >= self.real(number)

    @rule(at=homes, which=st.integers(0, 3), answered=st.integers(0, QUERIES))
    def settle(self, at, which, answered):
        asked = sorted((each.digest, each.study) for each in self.left.values())
        if not asked:
            return
        digest, number = asked[which % len(asked)]
        answered = self.told.setdefault(digest, answered)
        with self.seat(self.homes[at % len(self.homes)], number) as seat:
            if seat is not None:
                said = Outcome(STUDIES[number].digest, digest, np.arange(QUERIES) < answered)
                reply = seat.answer(lambda: seat.party.handle(said))
                assert isinstance(reply, Settled) or reply.code == "unknown_batch"
        for each in self.left.values():
            if each.digest == digest:
                each.answered = answered

    # What happens to files.

    @rule(at=homes)
    def back_up(self, at):
        self.made += 1
        folder = self.folder / f"backup-{self.made}"
        folder.mkdir()
        copied(self.file, folder / "policy.sqlite")
        for path in self.homes[at % len(self.homes)].path.glob("studies/*/ledger*.sqlite"):
            target = folder / path.parent.name
            target.mkdir()
            copied(path, target / path.name)
            self.knowledge[target / path.name] = self.knowledge.get(path, 0)
        self.backups.append(folder)

    @rule(which=st.integers(0, 9), at=homes, number=studies)
    def restore_a_ledger(self, which, at, number):
        home = self.homes[at % len(self.homes)]
        path = home.ledger(STUDIES[number].digest, SEAT)
        if self.backups and self.newest is None:
            old = self.backups[which % len(self.backups)] / path.parent.name / path.name
            if old.exists() and path.parent.exists():
                copied(old, path)
                self.knowledge[path] = self.knowledge.get(old, 0)

    @rule(at=homes, number=studies)
    def lose_a_ledger(self, at, number):
        path = self.homes[at % len(self.homes)].ledger(STUDIES[number].digest, SEAT)
        if self.newest is None:
            for end in ("", "-wal", "-shm"):
                path.with_name(path.name + end).unlink(missing_ok=True)
            self.knowledge.pop(path, None)

    @rule(which=st.integers(0, 9))
    def restore_the_policy(self, which):
        """Only where every home knows a later entry: what nobody here knows of, nobody here can find."""
        if not self.backups or self.newest is not None:
            return
        old = self.backups[which % len(self.backups)] / "policy.sqlite"
        if all(self.knows_later(home, old) for home in self.homes):
            self.newest = self.folder / f"newest-{self.made}"
            copied(self.file, self.newest)
            self.policy.__exit__(None, None, None)
            copied(old, self.file)
            self.policy = Policy(self.file)

    @rule()
    def bring_the_newest_policy_back(self):
        if self.newest is not None:
            self.policy.__exit__(None, None, None)
            copied(self.newest, self.file)
            self.newest = None
            self.policy = Policy(self.file)

    # What must hold.

    @invariant()
    def no_more_was_spent_than_is_recorded_and_allowed(self):
        for number, study in enumerate(STUDIES):
            assert self.real(number) <= int(study.budgets.cap[0])
        standings = self.policy.lifetime_uses()
        if not standings:
            assert not self.left
            return
        (standing,) = standings
        costs = {n: lifetime_cost(n, int(self.real(n)), standing.currency) for n in range(len(STUDIES))}
        assert sum(costs.values()) <= standing.allowed
        if self.newest is None:
            rows = self.policy._rows("SELECT study, nano FROM reservation", ())
            recorded = {BY_DIGEST[study]: nano for study, nano in rows}
            for number, study in enumerate(STUDIES):
                assert recorded.get(study, 0) >= costs[number]
            assert sum(recorded.values()) == standing.reserved <= standing.allowed

    def teardown(self):
        if hasattr(self, "policy"):
            list(self.policy.log.entries())
            self.policy.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    def real(self, number):
        """Nano-units that the answers of a study really cost."""
        ask, answer = price(number)
        left = [each for each in self.left.values() if each.study == number]
        answered = sum(QUERIES if each.answered is None else each.answered for each in left)
        return len(left) * QUERIES * ask + answered * answer

    def knows_later(self, home, old):
        with contextlib.closing(sqlite3.connect(old)) as database:
            (count,) = database.execute("SELECT coalesce(max(count), 0) FROM audit").fetchone()
        ledgers = [home.ledger(study.digest, SEAT) for study in STUDIES]
        return max(self.knowledge.get(path, 0) for path in ledgers) > count

    def learn(self, home, number):
        self.knowledge[home.ledger(STUDIES[number].digest, SEAT)] = self.policy.log.head().count

    def hand_on(self, old, new):
        for study in STUDIES:
            known = self.knowledge.get(old.ledger(study.digest, SEAT))
            if known is not None:
                self.knowledge[new.ledger(study.digest, SEAT)] = known

    def answering(self, at, which):
        """A home, or a copy of it, and a study that it approved."""
        active = [each for each in self.policy.approvals() if not each.withdrawn]
        if not active:
            return None
        approval = active[which % len(active)]
        homes = [home for home in self.homes if home.identity == approval.home]
        return homes[at % len(homes)], STUDIES.index(BY_DIGEST[approval.study])

    @contextlib.contextmanager
    def seat(self, home, number):
        """The seat of a study at a home, if it may vote there."""
        settings = PartySettings(
            data=DataSettings(name="ward", loader="csv", source=CsvFile(home.path)),
            teachers=TeacherSettings(kind="none", seed=1),
            lifetime=CAPS,
            settle=True,
            policy=self.file,
        )
        with contextlib.ExitStack() as stack:
            try:
                answering = Answering(home, settings, self.policy, party=SEAT, on_event=lambda *_: None)
                stack.enter_context(answering)
            except Refused as error:
                if error.code != "policy_rolled_back":
                    raise
                yield None
                return
            found = [seat for seat in answering.seats() if seat.study is STUDIES[number]]
            yield found[0] if found else None

    @contextlib.contextmanager
    def refusals(self):
        try:
            yield
        except Refused as error:
            if error.code not in EXPECTED:
                raise


TestHospital = Hospital.TestCase
TestHospital.settings = settings(
    max_examples=int(os.environ.get("CONCLAVE_SEQUENCES", "25")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
