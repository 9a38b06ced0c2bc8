"""No vote, label, share, mask or seed is in anything that a study writes down for people to read.

What is searched: every event of nodes, hub and guardian with all of its fields, before a log leaves any out; what is
logged at any level and printed; the entries of every ledger's audit log, and what is kept as evidence. What is looked
for is recorded while the study runs, faults included, and in every way in which bytes and numbers get into a text.
"""

import base64
import csv
import logging
import threading

import numpy as np
import pytest

from coordinator.labelling.jobs import ServedStudy
from coordinator.store.store import Store
from party.commands.group import run_command
from party.party import Party
from protocols.crypto import masks
from protocols.crypto.identity import new_key
from protocols.crypto.masks import MaskSum
from protocols.crypto.randomness import system_source
from protocols.ledger.ledger import Ledger
from protocols.levels.secure_sum import dealing
from protocols.levels.secure_sum.aggregation import SummedAggregation
from protocols.study.file import write_study
from protocols.wire.messages import ConcealedVotes, StepReply
from tests.harness.askers import AskedConsortium, asked_study, asker_home
from tests.harness.consortium import Consortium
from tests.harness.levels import secure_sum
from tests.harness.operators import FakeHub, add_study, make_home
from tests.harness.studies import deployed_study

# A text holds a secret if it holds so many bytes of either end of it; by chance it does once in 10^20 texts.
_ENDS = 12
_NUMBERS = 8


def forms(octets):
    """The texts in which a part of some bytes may be found."""
    for part in (octets[:_ENDS], octets[-_ENDS:]):
        if len(set(part)) == 1:
            continue
        yield part.hex()
        yield repr(part)[2:-1]
        for of in range(3):
            # Base64 goes by three bytes: a part may begin at any of them.
            cut = part[of : of + 9]
            yield base64.b64encode(cut).decode()
            yield base64.urlsafe_b64encode(cut).decode()
        yield from _lists(list(part))


def _lists(numbers):
    for between in (", ", ",", " ", "  ", "\n"):
        yield between.join(str(number) for number in numbers)


class Secrets:
    """What nobody may read in a log. seeds: what keys, masks, noise and shares come of; shares: what is sent."""

    def __init__(self):
        self.seeds, self.shares, self.numbers = set(), set(), []

    def source(self, count):
        drawn = system_source(count)
        self.seed(drawn)
        return drawn

    def seed(self, octets):
        if len(octets) >= _ENDS:
            self.seeds.add(bytes(octets))

    def replied(self, reply):
        """The arrays of a reply, but those that are too short or plain to be told from anything else."""
        if isinstance(reply, ConcealedVotes | StepReply):
            for array in reply.arrays:
                if array.size >= _NUMBERS and len(np.unique(array.reshape(-1)[:_NUMBERS])) > 1:
                    self.shares.add(array.tobytes())
                    self.numbers.append(array.reshape(-1)[:_NUMBERS].tolist())

    def of_votes(self, votes):
        """Votes or labels; fewer than eight could stand in a text by chance."""
        if len(votes) >= _NUMBERS:
            self.numbers.append(np.asarray(votes).reshape(-1).tolist())

    def found(self, text, blobs):
        """Those that are in a text, or whole in one of the blobs."""
        texts = {form for secret in self.seeds | self.shares for form in forms(secret)}
        texts |= {form for numbers in self.numbers for form in _lists(numbers)}
        lower = text.lower()
        seen = [form for form in texts if form in text or form in lower]
        return seen + [secret for secret in self.seeds for blob in blobs if secret in blob]


@pytest.mark.parametrize(
    "said",
    [
        lambda secret: secret.hex(),
        lambda secret: f"share {secret[:16].hex().upper()}",
        lambda secret: repr({"seed": secret}),
        lambda secret: base64.b64encode(secret).decode(),
        lambda secret: base64.b64encode(b"x" + secret).decode(),
        lambda secret: base64.urlsafe_b64encode(b"xy" + secret).decode(),
        lambda secret: str(list(secret)),
        lambda secret: str(np.frombuffer(secret, np.uint8)),
    ],
)
def test_a_secret_that_is_said_is_found(said) -> None:
    secrets = Secrets()
    secret = secrets.source(20)
    # NumPy pads numbers in columns; this secret has none to pad.
    secret = bytes(100 + octet % 100 for octet in secret)
    secrets.seed(secret)
    assert secrets.found("x" + said(secret), [])
    assert not secrets.found("nothing", [b"nothing"])
    assert secrets.found("nothing", [b"x" + secret])


def test_votes_that_are_said_are_found() -> None:
    secrets = Secrets()
    votes = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    secrets.of_votes(votes)
    for said in (str(votes), str(votes.tolist()), ",".join(map(str, votes))):
        assert secrets.found(said, [])


@pytest.fixture
def secrets(monkeypatch):
    """Everything that a party draws, derives and replies with from now on."""
    made = Secrets()
    handle, derived, add = Party.handle, masks.derived, MaskSum.add

    def handled(self, request):
        reply = handle(self, request)
        made.replied(reply)
        return reply

    def deriving(*args):
        octets = derived(*args)
        made.seed(octets)
        return octets

    def adding(self, seed, *, sign):
        before = self.total.copy()
        add(self, seed, sign=sign)
        made.seed(seed)
        made.shares.add((self.total - before).tobytes())

    monkeypatch.setattr(Party, "handle", handled)
    monkeypatch.setattr(dealing, "derived", deriving)
    monkeypatch.setattr(MaskSum, "add", adding)
    for module in ("tests.harness.consortium", "tests.harness.askers", "party.asking.asking"):
        monkeypatch.setattr(f"{module}.system_source", made.source)
    return made


def written(events, ledgers):
    """(all that can be read, all that is kept as evidence)."""
    entries = [(entry.event, dict(entry.fields)) for ledger in ledgers for entry in ledger.log.entries()]
    blobs = [part for ledger in ledgers for item in ledger.log.evidence() for part in item if isinstance(part, bytes)]
    assert len(entries) > len(ledgers)
    return "\n".join(map(str, [*events, *entries])), blobs


def test_a_study_of_masked_sums_writes_no_secret_down(tmp_path, secrets, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    keys = {f"hospital-{number}": new_key() for number in range(5)}
    study = deployed_study(
        5,
        confidentiality=secure_sum(colluders=1),
        view="histogram",
        account="gaussian",
        sigma=2.0,
        sigma_threshold=None,
        threshold=2.5,
        quorum=4,
        keys=list(keys.values()),
    )
    handle = Party.handle

    def faulty(self, request):
        reply = handle(self, request)
        if isinstance(reply, StepReply) and reply.step == "sum_shares" and self is made.parties["hospital-4"]:
            return StepReply(reply.batch_digest, reply.step, tuple(array[:-1] for array in reply.arrays))
        return reply

    monkeypatch.setattr(Party, "handle", faulty)
    with Consortium(study, tmp_path, keys=keys, aggregation=SummedAggregation) as made:
        for seat in study.roster:
            party = made.add_node(seat.party)
            party._voter = recorded(party._voter, secrets)
            made.start_node(seat.party)
        assert not made.hub.wait_for(frozenset(made.threads), timeout_s=300)
        got = made.label()
        assert (got.labels >= 0).any()
        assert set(got.refusals) == {"hospital-4"}
        secrets.of_votes(got.labels)
        text, blobs = written(made.events, [made.ledger, *made.ledgers.values()])
        assert len(made.events) > 5
    assert blobs
    assert min(map(len, (secrets.seeds, secrets.shares, secrets.numbers))) > 20
    printed = capfd.readouterr()
    assert not secrets.found("\n".join([text, caplog.text, *printed]), blobs)


def test_a_job_of_the_coordinator_writes_no_vote_and_no_label_down(tmp_path, secrets, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("coordinator.labelling.jobs._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("coordinator.labelling.jobs.system_source", secrets.source)
    home = make_home(tmp_path)
    hub, events = FakeHub(add_study(home, tmp_path)), []
    for party in hub.parties.values():
        party._voter = recorded(party._voter, secrets)
    hub.refusing["hospital-1"] = "teachers_failed"
    with Store(home) as store:
        job = store.ask_job("test", student=None)
        opened = ServedStudy(
            store,
            "test",
            hub,
            guardians=None,
            stop=threading.Event(),
            on_event=lambda event, fields: events.append((event, fields)),
        )
        opened.run(job, patience_s=0.2)
        labels, batches = store.labelled("test").labels, store.labelled("test").batches
        assert (labels >= 0).any()
        entries = [(entry.event, dict(entry.fields)) for entry in store.entries()]
        text, _ = written([*events, *entries], [opened._ledger, *hub.ledgers.values()])
        opened.close()
    assert {event for event, _ in events} >= {"job_started", "job_ended"}
    # A log would hold them batch by batch.
    ends = np.cumsum([size for size, _ in batches])
    for of_batch in np.split(labels, ends)[: len(ends)]:
        secrets.of_votes(of_batch)
    assert len(secrets.numbers) > 3
    assert not secrets.found("\n".join([text, caplog.text, *capfd.readouterr()]), [])


def recorded(voter, secrets):
    def vote(batch):
        votes = voter(batch)
        for teacher in votes:
            secrets.of_votes(teacher)
        return votes

    return vote


@pytest.mark.parametrize("faulty", [False, True])
def test_asking_writes_no_secret_down(faulty, tmp_path, secrets, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    study = asked_study()
    handle = Party.handle

    def one_more(self, request):
        reply = handle(self, request)
        if faulty and isinstance(reply, ConcealedVotes) and self is made.parties["hospital-2"]:
            last = reply.arrays[-1] + np.ones(1, dtype=reply.arrays[-1].dtype)
            return ConcealedVotes(reply.batch_digest, (*reply.arrays[:-1], last))
        return reply

    monkeypatch.setattr(Party, "handle", one_more)
    queries = np.random.default_rng(5).uniform(-4, 4, (20, 4)).astype(np.float32)
    out, table, file = (tmp_path / name for name in ("labels.csv", "new.csv", "study.toml"))
    file.write_text(write_study(study))
    with table.open("w", newline="") as opened:
        csv.writer(opened).writerows([["f0", "f1", "f2", "f3"], *queries.tolist()])
    with AskedConsortium(study, tmp_path) as made:
        made.start_all()
        home = asker_home(tmp_path / "asker", made)
        words = ["ask", str(file), "--queries", str(table), "--guardian", made.guardian, "--out", str(out)]
        assert run_command([*words, "--home", str(home.path)]) == 0
        with out.open(newline="") as opened:
            labels = [row["label"] for row in csv.DictReader(opened)]
        (asked,) = home.path.glob("**/*.sqlite")
        with Ledger(asked) as own:
            text, blobs = written(made.events, [own, made.ledger, made.guardian_ledger, *made.ledgers.values()])
    ids = [study.terms.class_names.index(label) for label in labels if label]
    assert len(ids) > 5
    secrets.of_votes(ids)
    # The queries are hidden too, as they were written and as they were read.
    secrets.numbers += [queries[0].tolist(), np.round(queries[0], 4).tolist()]
    assert blobs
    assert min(map(len, (secrets.seeds, secrets.shares, secrets.numbers))) > 10
    text = "\n".join([text, caplog.text, *capfd.readouterr()])
    assert "absent" in text or not faulty  # altered after it was sealed, and so again when asked once more
    assert not secrets.found(text, blobs)
    assert not any(between.join(labels) in text for between in (", ", ",", " ", "\n", "', '"))
