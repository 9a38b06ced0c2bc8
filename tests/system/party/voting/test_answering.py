import contextlib
import os
import shutil
import sqlite3
import threading
from dataclasses import replace

import numpy as np
import pytest

from party.budget.policy import Policy
from party.budget.watermarks import Mark, remember_approval
from party.budget.withdrawal import FinalSpend, withdraw
from party.data import load_records
from party.data.settings import DataSettings
from party.home import PartyHome
from party.lifetime import LifetimeCap
from party.settings import PartySettings, TeacherSettings
from party.voting.answering import Answering
from party.voting.training import deals_of, train
from protocols.errors import InvalidInput, Refused, StorageFailed
from protocols.ledger.audit_log import Head
from protocols.ledger.ledger import Ledger
from protocols.study.queries import QueryBatch
from protocols.wire.messages import Outcome, Refusal, Settled, VoteReply, VoteRequest
from tests.harness.clocks import wait_until
from tests.harness.homes import FEATURES, write_records
from tests.harness.studies import deployed_study

SEAT = "hospital-0"


@pytest.fixture
def place(tmp_path):
    """A home with settings, and a study that is approved and trained."""
    study = deployed_study(1, teachers=2, deadline_s=60.0)
    study = replace(study, terms=replace(study.terms, features=FEATURES))
    home = PartyHome(tmp_path)
    settings = PartySettings(
        data=DataSettings(name="ward", path=write_records(tmp_path / "r.csv"), loader="csv", patient="patient"),
        teachers=TeacherSettings(kind="tests.harness.own_models:Saved", seed=1),
        lifetime={"record": LifetimeCap(12.0, 1e-5)},
        settle=True,
        policy=tmp_path / "policy.sqlite",
    )
    home.keep_study(study)
    train(home, settings, study, SEAT, say=lambda text: None)
    with Policy(settings.policy) as policy:
        policy.approve(study, party=SEAT, data_set="ward", caps=settings.lifetime, home=home)
        yield home, settings, study, policy


def request(study, number, start=0):
    inputs = np.zeros((5, 4), np.float32)
    return VoteRequest(study.digest, b"run", QueryBatch(number, np.arange(start, start + 5), inputs))


def opened(place, events=None):
    home, settings, _, policy = place
    kept = [] if events is None else events
    return Answering(home, settings, policy, party=SEAT, on_event=lambda event, fields: kept.append(event))


def test_an_approved_study_is_answered_and_a_withdrawn_one_is_refused_at_once(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        assert answering.seats() == [seat]
        assert isinstance(seat.party.handle(request(study, 0)), VoteReply)
        spent = seat.ledger.balance(SEAT).spent
        assert withdraw(home, policy, study, data_set="ward", party=SEAT) == {SEAT: FinalSpend(spent, proven=True)}
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
        ending = threading.Thread(
            target=lambda: given.append(withdraw(home, policy, study, data_set="ward", party=SEAT))
        )
        ending.start()
        ending.join(0.3)
        assert not given  # it waits for the vote
        go.set()
        voting.join()
        ending.join()
        spent = seat.ledger.balance(SEAT).spent
        assert spent > 0
        assert given == [{SEAT: FinalSpend(spent, proven=True)}]
        assert policy.standings()[0].reserved > 0


def test_a_withdrawal_ends_teachers_that_predict_and_nothing_is_charged(place):
    home, _, study, policy = place
    folder = home.teachers(study.digest, SEAT)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(":Saved", ":Gated"))
    os.mkfifo(folder / "gate")
    with opened(place) as answering:
        (seat,) = answering.seats()
        teachers = seat.party._voter.teachers
        answering.end_withdrawn()
        replies, given = [], []

        def vote():
            with seat.ledger.log.together():  # as a node does
                replies.append(seat.party.handle(request(study, 0)))

        def end():
            given.append(withdraw(home, policy, study, data_set="ward", party=SEAT))

        voting, ending = threading.Thread(target=vote), threading.Thread(target=end)
        voting.start()
        wait_until(lambda: teachers.process_id is not None)
        ending.start()
        wait_until(lambda: policy.approval(study.digest, "ward").withdrawn)
        answering.end_withdrawn()
        voting.join()
        ending.join()
        assert teachers.process_id is None
        assert isinstance(replies[0], Refusal)
        assert given == [{SEAT: FinalSpend(0, proven=True)}]


def test_teachers_are_warm_before_the_first_question_one_study_after_the_other(place):
    home, settings, study, policy = place
    second = replace(study, name="second")
    home.keep_study(second)
    train(home, settings, second, SEAT, say=lambda text: None)
    policy.approve(second, party=SEAT, data_set="other", caps=settings.lifetime, home=home)
    events = []
    with opened(place, events) as answering:
        seats = answering.seats()
        answering.warm(seats)
        answering._warming.join()
        load = ["teachers_started", "teachers_ready"]
        assert events == [*load, "teachers_ended", *load]
        # The last one stays, and is not loaded again when it is asked.
        seats[-1].party._voter.teachers(QueryBatch(0, np.arange(5), np.zeros((5, 4), np.float32)))
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
        settings.data, path=with_groups(tmp_path, [(n % 3 - 1, "ab"[n // 10]) for n in range(20)]), group="budget"
    )
    records = load_records(data, study.terms)
    first, second = deals_of(records, study, SEAT, seed=1)
    assert (first.seat, second.seat) == (f"{SEAT}/a", f"{SEAT}/b")
    np.testing.assert_array_equal(first.rows, np.arange(10))
    assert sum(second.sizes(2)) == 10
    with pytest.raises(InvalidInput, match=r"data\.group is not set"):
        deals_of(replace(records, groups=None), study, SEAT, seed=1)
    crossing = load_records(
        replace(data, path=with_groups(tmp_path, [(1, "ab"[n % 2]) for n in range(20)])), study.terms
    )
    with pytest.raises(InvalidInput, match="in two privacy groups"):
        deals_of(crossing, study, SEAT, seed=1)
    strange = load_records(
        replace(data, path=with_groups(tmp_path, [(1, "ac"[n // 10]) for n in range(20)])), study.terms
    )
    with pytest.raises(InvalidInput, match=r"row 11: .c. is not a privacy group"):
        deals_of(strange, study, SEAT, seed=1)


def test_a_ledger_of_another_study_is_not_answered_from(place):
    home, _, study, _ = place
    with Ledger(home.ledger(study.digest, SEAT)) as ledger:
        ledger.bind(study=bytes(32), run=b"")
    events = []
    with opened(place, events) as answering:
        assert answering.seats() == []
    assert events == ["study_failed"]


def copied(source, target):
    """A backup, or its restoration: a file as it was, without the journals of the one that it replaces."""
    for end in ("-wal", "-shm"):
        target.with_name(target.name + end).unlink(missing_ok=True)
    target.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


def answered(place, numbers):
    """Votes for these batches of five; what the seat's ledger says it spent."""
    with opened(place) as answering:
        (seat,) = answering.seats()
        for number in numbers:
            sent = request(place[2], number, start=5 * number)
            reply = seat.answer(lambda sent=sent: seat.party.handle(sent))
            assert isinstance(reply, VoteReply), reply
        return seat.ledger.balance(SEAT).spent


def reserved(policy):
    return policy.standings()[0].reserved


@pytest.mark.parametrize("batches", [[1], [1, 2]])
@pytest.mark.parametrize("removed", [False, True])
def test_a_ledger_that_went_back_or_is_gone_answers_nothing_and_counts_as_all_it_ever_reserved(
    place, tmp_path, removed, batches
):
    home, _, study, policy = place
    answered(place, [0])
    ledger = home.ledger(study.digest, SEAT)
    copied(ledger, tmp_path / "old")
    spent = answered(place, batches)
    copied(tmp_path / "old", ledger)
    if removed:
        ledger.unlink()
    events = []
    with opened(place, events) as answering:
        assert answering.seats() == []
    assert events == ["study_failed"]
    assert ledger.exists() != removed
    assert withdraw(home, policy, study, data_set="ward", party=SEAT) == {SEAT: FinalSpend(spent, proven=False)}


def test_the_number_of_a_batch_that_a_restored_ledger_lost_buys_no_second_answer(place, tmp_path):
    """A coordinator that lies uses the number again, with other queries."""
    home, _, study, _ = place
    answered(place, [0])
    ledger = home.ledger(study.digest, SEAT)
    copied(ledger, tmp_path / "old")
    answered(place, [1])
    with opened(place) as answering:
        (seat,) = answering.seats()  # the node runs on while its ledger is restored
        with contextlib.closing(sqlite3.connect(tmp_path / "old")) as old:
            old.backup(seat.ledger._database)
        reply = seat.answer(lambda: seat.party.handle(request(study, 1, start=50)))
        assert isinstance(reply, Refusal)
        assert reply.code == "ledger_rolled_back"


def test_of_two_copies_of_a_home_that_share_a_policy_one_goes_on(place, tmp_path):
    home, settings, study, policy = place
    answered(place, [0])
    other = PartyHome(tmp_path / "copy")
    shutil.copytree(home.path / "studies", other.path / "studies")
    shutil.copy(home.path / "home.id", other.path)
    assert other.identity == home.identity
    with opened(place) as here, opened((other, settings, study, policy)) as there:
        (first,), (second,) = here.seats(), there.seats()
        # Both charge, and neither knows of the other; then both would speak.
        sent, same = request(study, 1, start=5), request(study, 1, start=50)
        for seat, each in ((first, sent), (second, same)):
            with seat.ledger.log.together():
                assert isinstance(seat.party.handle(each), VoteReply)
        first.anchor()
        with pytest.raises(Refused, match="ledger_rolled_back"):
            second.anchor()
        assert isinstance(first.answer(lambda: first.party.handle(sent)), VoteReply)
        assert second.answer(lambda: second.party.handle(same)).code == "ledger_rolled_back"
    final = withdraw(other, policy, study, data_set="ward", party=SEAT)[SEAT]
    with Ledger(home.ledger(study.digest, SEAT)) as ledger:
        assert final == FinalSpend(ledger.balance(SEAT).spent, proven=False)


def test_a_home_that_was_moved_goes_on_and_its_old_ledger_is_found(place, tmp_path_factory):
    home, settings, study, policy = place
    spent = answered(place, [0])
    moved = PartyHome(tmp_path_factory.mktemp("elsewhere") / "home")
    moved.path.mkdir()
    for name in ("studies", "home.id"):
        (home.path / name).rename(moved.path / name)
    assert answered((moved, settings, study, policy), [1]) > spent
    (moved.path / "studies").rename(moved.path / "lost")
    final = withdraw(moved, policy, study, data_set="ward", party=SEAT)
    assert final == {SEAT: FinalSpend(2 * spent, proven=False)}


@pytest.mark.parametrize("kept", [False, True])
def test_another_home_neither_withdraws_a_study_nor_lowers_what_it_spent(place, tmp_path, kept):
    """Kept by accident, or by `approve`, which says that the other home approved it."""
    home, settings, study, policy = place
    answered(place, [0])
    before = reserved(policy)
    other = PartyHome(tmp_path / "other")
    other.path.mkdir()
    if kept:
        other.keep_study(study)
    for step in (
        lambda: policy.approve(study, party=SEAT, data_set="ward", caps=settings.lifetime, home=other),
        lambda: withdraw(other, policy, study, data_set="ward", party=SEAT),
        lambda: policy.withdraw(study, data_set="ward", home=other),
        lambda: policy.release(study, data_set="ward", home=other, spent={SEAT: 0}),
    ):
        with pytest.raises(Refused, match="approved_elsewhere"):
            step()
    assert not policy.approval(study.digest, "ward").withdrawn
    assert reserved(policy) == before
    withdraw(home, policy, study, data_set="ward", party=SEAT)
    with pytest.raises(Refused, match="approved_elsewhere"):
        policy.release(study, data_set="ward", home=other, spent={SEAT: 0})


@pytest.mark.parametrize("after", ["ledger", "policy"])
def test_a_stop_between_the_commits_loses_nothing_and_charges_once(place, after):
    home, _, study, policy = place
    sent = request(study, 0)
    with opened(place) as answering:
        (seat,) = answering.seats()
        with seat.ledger.log.together():
            seat.party.handle(sent)
        if after == "policy":
            reached = Mark(seat.ledger.log.head(), seat.ledger.ever_reserved(SEAT))
            policy.marks.move(study.digest, data_set="ward", seat=SEAT, known=Mark(), to=reached)
    with opened(place) as answering:
        (seat,) = answering.seats()
        assert isinstance(seat.answer(lambda: seat.party.handle(sent)), VoteReply)
        spent = seat.ledger.balance(SEAT).spent
        assert len(seat.ledger.unsettled()) == 1
    assert withdraw(home, policy, study, data_set="ward", party=SEAT) == {SEAT: FinalSpend(spent, proven=True)}


def test_nothing_leaves_when_the_policy_cannot_be_written(place):
    _, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        policy.log.append = lambda *args, **more: (_ for _ in ()).throw(sqlite3.OperationalError("disk I/O error"))
        with pytest.raises(StorageFailed):
            seat.answer(lambda: seat.party.handle(request(study, 0)))
        del policy.log.append
        assert isinstance(seat.answer(lambda: seat.party.handle(request(study, 0))), VoteReply)


def test_a_vote_that_was_charged_and_not_yet_said_when_its_study_was_withdrawn_is_not_said(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        with seat.ledger.log.together():
            seat.party.handle(request(study, 0))
        spent = seat.ledger.balance(SEAT).spent
        assert withdraw(home, policy, study, data_set="ward", party=SEAT) == {SEAT: FinalSpend(spent, proven=True)}
        with pytest.raises(Refused, match="withdrawn"):
            seat.anchor()


def test_a_copy_of_a_ledger_that_went_on_alone_is_refused(place, tmp_path):
    home, _, study, policy = place
    ledger = home.ledger(study.digest, SEAT)
    answered(place, [0])
    copied(ledger, tmp_path / "old")
    copied(home.path / "policy.sqlite", tmp_path / "old-policy")
    answered(place, [1, 2])
    copied(ledger, tmp_path / "first")
    copied(tmp_path / "old", ledger)
    with Policy(tmp_path / "old-policy") as old:
        answered((*place[:3], old), [3, 4])
    with pytest.raises(Refused, match="policy_rolled_back"):
        withdraw(home, policy, study, data_set="ward", party=SEAT)


def test_votes_that_were_refused_when_the_ledger_looked_cost_nothing(place):
    home, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        seat.party.handle(request(study, 0))
        for number in range(1, 6):  # the queries of batch 0 again: refused once the ledger looks
            assert seat.party.handle(request(study, number)).code == "query_repeated"
        seat.party.handle(request(study, 6, start=5))
        spent = seat.ledger.balance(SEAT).spent
        assert withdraw(home, policy, study, data_set="ward", party=SEAT) == {SEAT: FinalSpend(spent, proven=True)}


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
    assert withdraw(home, policy, study, data_set="ward", party=SEAT) == {SEAT: FinalSpend(spent, proven=True)}


@pytest.mark.parametrize("charged", [False, True])
def test_a_policy_from_before_an_approval_approves_and_answers_nothing(place, tmp_path, charged):
    home, settings, study, policy = place
    Policy(tmp_path / "older").__exit__(None, None, None)
    if charged:
        answered(place, [0])
    else:
        remember_approval(home, study, SEAT, policy.log)
    another = replace(study, name="another")
    with Policy(tmp_path / "older") as older:
        with pytest.raises(Refused, match="policy_rolled_back"):
            older.approve(another, party=SEAT, data_set="ward", caps=settings.lifetime, home=home)
        assert older.approvals() == []
        with pytest.raises(Refused, match="policy_rolled_back"), opened((*place[:3], older)):
            pass


def test_a_policy_from_before_a_charge_is_found_while_a_node_runs_and_when_it_starts(place, tmp_path):
    home, settings, study, _ = place
    answered(place, [0])
    copied(settings.policy, tmp_path / "older")
    answered(place, [1])
    with Policy(tmp_path / "older") as older:
        with pytest.raises(Refused, match="policy_rolled_back"), opened((*place[:3], older)):
            pass
        with opened(place) as answering:
            (seat,) = answering.seats()
            seat.party._voter.policy = older
            reply = seat.party.handle(request(study, 2, start=10))
            assert isinstance(reply, Refusal)
            assert reply.code == "policy_rolled_back"
            assert str(tmp_path) not in reply.reason
        before = reserved(older)
        with pytest.raises(Refused, match="policy_rolled_back"):
            withdraw(home, older, study, data_set="ward", party=SEAT)
        assert reserved(older) == before


def test_a_policy_from_before_a_later_approval_is_found_by_the_head_that_a_ledger_knows(place, tmp_path):
    home, settings, study, policy = place
    copied(settings.policy, tmp_path / "older")
    caps = {"record": LifetimeCap(12.0, 1e-5)}
    policy.approve(replace(study, name="later"), party=SEAT, data_set="other", caps=caps, home=home)
    answered(place, [0])
    with Policy(tmp_path / "older") as older, pytest.raises(Refused, match="policy_rolled_back"):
        older.check_newest(home.path)
    policy.check_newest(home.path)


def test_a_study_is_approved_under_one_name_of_the_data_alone(place):
    """Two names would be two marks of one ledger, and a restored one could be believed under the other."""
    home, settings, study, policy = place
    with pytest.raises(Refused, match="approved_elsewhere"):
        policy.approve(study, party=SEAT, data_set="another", caps=settings.lifetime, home=home)
    assert len(policy.approvals()) == 1


def test_one_stale_ledger_does_not_silence_the_other_groups_of_a_party(place):
    home, settings, study, policy = place
    both = replace(grouped(study), name="grouped")
    home.keep_study(both)
    policy.approve(both, party=SEAT, data_set="ward-2", caps=settings.lifetime, home=home)
    stale = Mark(Head(9, b"h" * 32), 5)
    policy.marks.move(both.digest, data_set="ward-2", seat=f"{SEAT}/a", known=Mark(), to=stale)
    events, there = [], replace(settings, data=replace(settings.data, name="ward-2"))
    with opened((home, there, study, policy), events) as answering:
        assert [seat.party.name for seat in answering.seats() if seat.study == both] == [f"{SEAT}/b"]
    assert "study_failed" in events


def test_the_identity_of_a_home_is_kept_and_something_else_in_its_file_is_refused(tmp_path):
    home = PartyHome(tmp_path)
    assert home.identity == PartyHome(tmp_path).identity
    (tmp_path / "home.id").write_text("somebody's home")
    with pytest.raises(InvalidInput, match="32 hexadecimal digits"):
        _ = home.identity
