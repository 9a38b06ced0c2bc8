"""What a node answers when its ledger or its policy is from before, gone, a copy, or of another home: nothing."""

import contextlib
import shutil
import sqlite3
from dataclasses import replace

import pytest

from party.budget.policy import Policy
from party.budget.spending import withdraw
from party.budget.watermarks import Mark, remember_approval
from party.home import PartyHome
from party.lifetime import LifetimeCap
from protocols.errors import InvalidInput, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.wire.messages import Refusal, VoteReply
from tests.harness.answering import SEAT, answered, copied, ended, opened, request, reserved
from tests.harness.refusals import refused_for, refuses

# Teachers run in a process: one for nearly every test.
pytestmark = pytest.mark.usefixtures("forked")


def test_a_ledger_of_another_study_is_not_answered_from(place):
    home, _, study, _ = place
    with Ledger(home.ledger(study.digest, SEAT)) as ledger:
        ledger.bind(study=bytes(32), run=b"")
    events = []
    with opened(place, events) as answering:
        assert answering.seats() == []
    assert events == ["study_failed"]


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
    assert ended(home, policy, study) == {SEAT: (spent, False)}


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
        with refused_for("ledger_rolled_back"):
            second.anchor()
        assert isinstance(first.answer(lambda: first.party.handle(sent)), VoteReply)
        assert second.answer(lambda: second.party.handle(same)).code == "ledger_rolled_back"
    final = ended(other, policy, study)[SEAT]
    with Ledger(home.ledger(study.digest, SEAT)) as ledger:
        assert final == (ledger.balance(SEAT).spent, False)


def test_a_home_that_was_moved_goes_on_and_its_old_ledger_is_found(place, tmp_path_factory):
    home, settings, study, policy = place
    spent = answered(place, [0])
    moved = PartyHome(tmp_path_factory.mktemp("elsewhere") / "home")
    moved.path.mkdir()
    for name in ("studies", "home.id"):
        (home.path / name).rename(moved.path / name)
    assert answered((moved, settings, study, policy), [1]) > spent
    (moved.path / "studies").rename(moved.path / "lost")
    final = ended(moved, policy, study)
    assert final == {SEAT: (2 * spent, False)}


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
        lambda: policy.approve(
            study, party=SEAT, data_set="ward", caps=settings.lifetime, home=other, told_apart=False
        ),
        lambda: withdraw(other, policy, study, data_set="ward", party=SEAT),
        lambda: policy.withdraw(study, data_set="ward", home=other),
        lambda: policy.release(study, data_set="ward", home=other, spent={SEAT: 0}),
    ):
        with refused_for("approved_elsewhere"):
            step()
    assert not policy.approval(study.digest, "ward").withdrawn
    assert reserved(policy) == before
    withdraw(home, policy, study, data_set="ward", party=SEAT)
    with refused_for("approved_elsewhere"):
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
    assert ended(home, policy, study) == {SEAT: (spent, True)}


def test_nothing_leaves_when_the_policy_cannot_be_written(place):
    _, _, study, policy = place
    with opened(place) as answering:
        (seat,) = answering.seats()
        policy.log.append = lambda *args, **more: (_ for _ in ()).throw(sqlite3.OperationalError("disk I/O error"))
        with pytest.raises(StorageFailed):
            seat.answer(lambda: seat.party.handle(request(study, 0)))
        del policy.log.append
        assert isinstance(seat.answer(lambda: seat.party.handle(request(study, 0))), VoteReply)


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
    with refused_for("policy_rolled_back"):
        withdraw(home, policy, study, data_set="ward", party=SEAT)


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
        with refused_for("policy_rolled_back"):
            older.approve(another, party=SEAT, data_set="ward", caps=settings.lifetime, home=home, told_apart=False)
        assert older.approvals() == []
        with refused_for("policy_rolled_back"), opened((*place[:3], older)):
            pass


def test_a_policy_from_before_a_charge_is_found_while_a_node_runs_and_when_it_starts(place, tmp_path):
    home, settings, study, _ = place
    answered(place, [0])
    copied(settings.policy, tmp_path / "older")
    answered(place, [1])
    with Policy(tmp_path / "older") as older:
        with refused_for("policy_rolled_back"), opened((*place[:3], older)):
            pass
        with opened(place) as answering:
            (seat,) = answering.seats()
            seat.party._voter.policy = older
            reply = seat.party.handle(request(study, 2, start=10))
            assert isinstance(reply, Refusal)
            assert reply.code == "policy_rolled_back"
            assert str(tmp_path) not in reply.reason
        before = reserved(older)
        with refused_for("policy_rolled_back"):
            withdraw(home, older, study, data_set="ward", party=SEAT)
        assert reserved(older) == before


def test_a_policy_from_before_a_later_approval_is_found_by_the_head_that_a_ledger_knows(place, tmp_path):
    home, settings, study, policy = place
    copied(settings.policy, tmp_path / "older")
    caps = {"record": LifetimeCap(12.0, 1e-5)}
    policy.approve(replace(study, name="later"), party=SEAT, data_set="other", caps=caps, home=home, told_apart=False)
    answered(place, [0])
    with Policy(tmp_path / "older") as older, refused_for("policy_rolled_back"):
        older.check_newest(home.path)
    policy.check_newest(home.path)


def test_a_study_is_approved_under_one_name_of_the_data_alone(place):
    """Two names would be two marks of one ledger, and a restored one could be believed under the other."""
    home, settings, study, policy = place
    with refused_for("approved_elsewhere"):
        policy.approve(study, party=SEAT, data_set="another", caps=settings.lifetime, home=home, told_apart=False)
    assert len(policy.approvals()) == 1


def test_the_identity_of_a_home_is_kept_and_something_else_in_its_file_is_refused(tmp_path):
    home = PartyHome(tmp_path)
    assert home.identity == PartyHome(tmp_path).identity
    (tmp_path / "home.id").write_text("somebody's home")
    with refuses(InvalidInput, 32):
        _ = home.identity
