"""What a node answers, study by study: approvals, withdrawals, groups of records and what is settled."""

import os
import threading
from dataclasses import replace

import numpy as np
import pytest

from party.budget.watermarks import Mark, remember_approval
from party.data import load_records
from party.data.files import CsvFile
from party.voting.answering import Answering
from party.voting.trained import read_measured
from party.voting.training import deals_of, train
from protocols.errors import InvalidInput
from protocols.ledger.audit_log import Head
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Outcome, Refusal, Settled, VoteReply
from tests.harness.answering import SEAT, ended, opened, request
from tests.harness.clocks import wait_until
from tests.harness.refusals import refused_for, refuses

# Teachers run in a process: one for nearly every test.
pytestmark = pytest.mark.usefixtures("forked")


def test_an_approved_study_is_answered_and_a_withdrawn_one_is_refused_at_once(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        assert answering.seats() == [seat]
        assert isinstance(seat.party.handle(request(study, 0)), VoteReply)
        spent = seat.ledger.balance(SEAT).spent
        assert ended(home, policy, study) == {SEAT: (spent, True)}
        reply = seat.party.handle(request(study, 1, start=5))
        assert isinstance(reply, Refusal)
        assert reply.code == "withdrawn"
        assert seat.ledger.balance(SEAT).spent == spent
        assert answering.seats() == []


def test_a_withdrawal_counts_the_vote_that_is_in_flight(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        looked, go = threading.Event(), threading.Event()
        inner = seat.party._voter

        def slow(batch):
            votes = inner(batch)
            looked.set()
            go.wait(300)
            return votes

        seat.party._voter = slow

        def vote():
            with seat.ledger.log.together():  # as a node does
                assert isinstance(seat.party.handle(request(study, 0)), VoteReply)

        voting = threading.Thread(target=vote)
        voting.start()
        assert looked.wait(300)
        given = []
        ending = threading.Thread(target=lambda: given.append(ended(home, policy, study)))
        ending.start()
        ending.join(0.3)
        assert not given  # it waits for the vote
        go.set()
        voting.join()
        ending.join()
        spent = seat.ledger.balance(SEAT).spent
        assert spent > 0
        assert given == [{SEAT: (spent, True)}]
        assert policy.lifetime_uses()[0].reserved > 0


def test_a_withdrawal_ends_teachers_that_predict_and_nothing_is_charged(place):
    home, _, study, policy = place
    folder = home.teachers(study.digest, SEAT)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(":Saved", ":Gated"))
    os.mkfifo(folder / "gate")
    with opened(place) as answering:
        (seat,) = answering.seats()
        teachers = seat.party._voter.source
        answering.end_withdrawn()
        replies, given = [], []

        def vote():
            with seat.ledger.log.together():  # as a node does
                replies.append(seat.party.handle(request(study, 0)))

        def end():
            given.append(ended(home, policy, study))

        voting, ending = threading.Thread(target=vote), threading.Thread(target=end)
        voting.start()
        wait_until(lambda: teachers.process is not None)
        ending.start()
        wait_until(lambda: policy.approval(study.digest, "ward").withdrawn)
        answering.end_withdrawn()
        voting.join()
        ending.join()
        assert teachers.process is None
        assert isinstance(replies[0], Refusal)
        assert given == [{SEAT: (0, True)}]


def test_teachers_are_warm_before_the_first_question_one_study_after_the_other(place):
    home, settings, study, policy = place
    second = replace(study, name="second")
    home.keep_study(second)
    train(home, settings, second, SEAT, policy=policy, say=lambda text: None)
    policy.approve(second, party=SEAT, data_set="other", caps=settings.lifetime, home=home, told_apart=False)
    remember_approval(home, second, SEAT, policy.log)
    events = []
    with opened(place, events) as answering:
        seats = answering.seats()
        answering.warm(seats)
        answering._warming.join()
        assert read_measured(home.teachers(study.digest, SEAT)).queries == study.batch_limit
        load = ["teachers_started", "teachers_ready"]
        assert events == [*load, "teachers_ended", *load]
        # The last one stays, and is not loaded again when it is asked.
        seats[-1].party._voter.source(QueryBatch(0, np.arange(5), np.zeros((5, 4), np.float32)))
        answering.warm(answering.seats())
        assert events == [*load, "teachers_ended", *load]
    assert events[-1] == "teachers_ended"


def test_a_study_file_that_was_changed_is_reported_and_not_answered(place):
    home, _, study, _ = place
    file = home.study_folder(study.digest) / "study.toml"
    file.write_text(file.read_text().replace("left from right", "right from left"))
    events = []
    with opened(place, events) as answering:
        assert answering.seats() == []
    assert events == ["study_failed"]


def test_reservations_stand_where_settling_is_switched_off(place):
    home, settings, study, policy = place
    events = []
    with Answering(
        home, replace(settings, settle=False), policy, party=SEAT, on_event=lambda event, fields: events.append(event)
    ) as answering:
        (seat,) = answering.seats()
        sent = request(study, 0)
        seat.party.handle(sent)
        reserved = seat.ledger.balance(SEAT).spent
        assert isinstance(seat.party.handle(Outcome(study.digest, sent.digest, np.zeros(5, bool))), Settled)
        assert seat.ledger.balance(SEAT).spent == reserved


def grouped(study):
    seat = study.roster[0]
    return replace(study, roster=tuple(replace(seat, party=f"{SEAT}/{group}") for group in ("a", "b")))


def with_groups(tmp_path, groups):
    rows = [f"p{n // 2},{v},0,0,0,{'right' if v > 0 else 'left'},{g}" for n, (v, g) in enumerate(groups)]
    path = tmp_path / "groups.csv"
    path.write_text("patient,f0,f1,f2,f3,side,budget\n" + "\n".join(rows) + "\n")
    return path


def test_each_privacy_group_has_teachers_of_its_own_records(place, tmp_path):
    _, settings, study, _ = place
    study = grouped(study)
    data = replace(
        settings.data,
        source=CsvFile(with_groups(tmp_path, [(n % 3 - 1, "ab"[n // 10]) for n in range(20)])),
        group="budget",
    )
    records = load_records(data, study.terms)
    first, second = deals_of(records, study, SEAT, seed=1)
    assert (first.seat, second.seat) == (f"{SEAT}/a", f"{SEAT}/b")
    np.testing.assert_array_equal(first.rows, np.arange(10))
    assert sum(second.sizes(2)) == 10
    with refuses(InvalidInput, "data.group"):
        deals_of(replace(records, groups=None), study, SEAT, seed=1)
    crossing = load_records(
        replace(data, source=CsvFile(with_groups(tmp_path, [(1, "ab"[n % 2]) for n in range(20)]))), study.terms
    )
    with refuses(InvalidInput, "privacy groups"):
        deals_of(crossing, study, SEAT, seed=1)
    strange = load_records(
        replace(data, source=CsvFile(with_groups(tmp_path, [(1, "ac"[n // 10]) for n in range(20)]))), study.terms
    )
    with refuses(InvalidInput, 11):
        deals_of(strange, study, SEAT, seed=1)


def test_a_vote_that_was_charged_and_not_yet_said_when_its_study_was_withdrawn_is_not_said(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        with seat.ledger.log.together():
            seat.party.handle(request(study, 0))
        spent = seat.ledger.balance(SEAT).spent
        assert ended(home, policy, study) == {SEAT: (spent, True)}
        with refused_for("withdrawn"):
            seat.anchor()


def test_votes_that_were_refused_when_the_ledger_looked_cost_nothing(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        seat.party.handle(request(study, 0))
        for number in range(1, 6):  # the queries of batch 0 again: refused once the ledger looks
            assert seat.party.handle(request(study, number)).code == "query_repeated"
        seat.party.handle(request(study, 6, start=5))
        spent = seat.ledger.balance(SEAT).spent
        assert ended(home, policy, study) == {SEAT: (spent, True)}


def test_a_settled_batch_gives_back_what_it_did_not_cost(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        sent = request(study, 0)
        seat.party.handle(sent)
        worst = seat.ledger.balance(SEAT).spent
        seat.party.handle(Outcome(study.digest, sent.digest, np.zeros(5, bool)))
        spent = seat.ledger.balance(SEAT).spent
        assert spent < worst
    assert ended(home, policy, study) == {SEAT: (spent, True)}


def test_one_stale_ledger_does_not_silence_the_other_groups_of_a_party(place):
    home, settings, study, policy = place
    both = replace(grouped(study), name="grouped")
    home.keep_study(both)
    policy.approve(both, party=SEAT, data_set="ward-2", caps=settings.lifetime, home=home, told_apart=True)
    remember_approval(home, both, SEAT, policy.log)
    stale = Mark(Head(9, b"h" * 32), 5)
    policy.marks.move(both.digest, data_set="ward-2", seat=f"{SEAT}/a", known=Mark(), to=stale)
    events, there = [], replace(settings, data=replace(settings.data, name="ward-2"))
    with opened((home, there, study, policy), events) as answering:
        assert [seat.party.name for seat in answering.seats() if seat.study == both] == [f"{SEAT}/b"]
    assert "study_failed" in events
