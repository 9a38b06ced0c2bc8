"""A hospital asks over real gRPC on loopback: hub, nodes, guardian, and what every ledger says afterwards."""

import datetime
from dataclasses import replace

import numpy as np
import pytest

import party.asking.asking
from coordinator.connection.relaying import most_spent
from party.asking.asking import Relayed, ask, reserved
from party.budget.policy import Policy
from party.commands.ask import check_complete
from party.connection.dialling import RelayLine
from party.home import PartyHome
from party.lifetime import LifetimeCap
from protocols.errors import InvalidInput, Unreachable
from protocols.ledger.ledger import Ledger
from protocols.votes import NOT_ASKED
from protocols.wire.frames import read_frame
from protocols.wire.messages import Outcome, VoteRequest, decode
from tests.harness.askers import AskedConsortium, asked_study, queries
from tests.harness.clocks import wait_until
from tests.harness.refusals import refused_for, refuses

STUDY = asked_study()


def test_labels_come_back_to_the_asker_and_every_ledger_says_the_same(consortium, tmp_path):
    asked = queries()
    own = tmp_path / "asked.sqlite"
    got = ask(STUDY, asked, consortium.line(), ledger=own, on_batch=lambda *_: None)
    assert got.stop.reason == "pool_exhausted"
    assert not got.refusals
    assert not got.ledger_differences
    # Of 20 labels that are right with probability 0.89 or more, 12 are but for once in 50,000 runs.
    assert (got.labels == (asked[:, 0] > 0)).sum() >= 12
    spent = got.spent.tolist()
    assert [consortium.ledgers[seat.party].balance(seat.party).spent for seat in STUDY.roster] == spent
    assert [consortium.guardian_ledger.balance(seat.party).spent for seat in STUDY.roster] == spent
    # The operator, who has no ledger of it, knows as much from what passed.
    known, queries_asked, batches = most_spent(consortium.ledger, STUDY)
    assert (known.tolist(), queries_asked, batches) == (spent, 20, len(got.batches))
    # Evidence: requests and outcomes at each node, receipts at the operator and at the asker.
    batches = len(got.batches)
    for name, ledger in consortium.ledgers.items():
        kinds = [kind for _, _, kind, _ in ledger.log.evidence()]
        assert kinds.count("request") == kinds.count("outcome") == batches, name
    assert sum(kind == "settled" for _, _, kind, _ in consortium.ledger.log.evidence()) == 3 * batches
    with Ledger(own) as ledger:
        assert sum(kind == "settled" for _, _, kind, _ in ledger.log.evidence()) == 3 * batches
    # Asked again, the labels are those that were stored.
    again = ask(STUDY, asked, consortium.line(), ledger=own, on_batch=lambda *_: None)
    np.testing.assert_array_equal(again.labels, got.labels)
    assert again.spent.tolist() == spent


def test_an_absent_node_is_named_settles_nothing_more_and_the_rest_goes_on(consortium, tmp_path):
    consortium.stop_node("hospital-2")
    consortium.unawaited.add("hospital-2")
    study = consortium.study
    got = ask(study, queries(10), consortium.line(), ledger=tmp_path / "a.sqlite", on_batch=lambda *_: None)
    assert got.refusals == {"hospital-2": "absent"}
    assert (got.labels >= 0).all()
    assert consortium.ledgers["hospital-2"].balance("hospital-2").spent == 0


@pytest.fixture
def relayed(monkeypatch):
    """What was relayed to parties."""
    seen, real = [], Relayed.__call__

    def noted(self, requests):
        seen.append(dict(requests))
        return real(self, requests)

    monkeypatch.setattr(Relayed, "__call__", noted)
    return seen


def test_whoever_asks_decides_about_a_party_whose_votes_are_always_too_late(tmp_path, monkeypatch):
    real, made = RelayLine.passed, asked_study(batch_limit=4)
    study = replace(made, terms=replace(made.terms, misses=2))

    def passed(self, frame, **how):  # it votes, and is charged, but its votes come after the deadline
        now = datetime.datetime.now(datetime.UTC)
        answer, asked = real(self, frame, **how), read_frame(frame, authority=made.authority, now=now, role="party")[0]
        return None if asked.seat == "hospital-2" and isinstance(decode(asked.envelope), VoteRequest) else answer

    monkeypatch.setattr(RelayLine, "passed", passed)
    with AskedConsortium(study, tmp_path) as made:
        made.start_all()

        def asks(*without):
            own = tmp_path / "a.sqlite"
            return ask(study, queries(20), made.line(), ledger=own, on_batch=lambda *_: None, without=without)

        for batches in (2, 4):  # each time that it goes on as before, after as many again
            got = asks()
            assert (got.stop.reason, len(got.batches), got.refusals) == ("missed", batches, {"hospital-2": "late"})
            with refused_for("missed", "--without hospital-2"):
                check_complete(got, made.guardian)
        charged = made.ledgers["hospital-2"].balance("hospital-2").spent
        assert charged > 0
        got = asks("hospital-2")
        assert (got.stop.reason, len(got.batches), got.refusals) == ("pool_exhausted", 5, {})
        for seats in (["hospital-1"], ["nobody"]):  # with the one before it, too few would stay
            with refuses(InvalidInput, *seats, study.quorum):
                asks(*seats)
        assert made.ledgers["hospital-2"].balance("hospital-2").spent == charged


def test_a_guardian_that_is_absent_or_not_the_studys_is_found_before_anything_is_asked_or_kept(
    consortium, tmp_path, relayed
):
    own, line = tmp_path / "a.sqlite", consortium.line()
    with refused_for("wrong_role"):
        ask(STUDY, queries(10), replace(line, guardian=consortium.address), ledger=own, on_batch=lambda *_: None)
    consortium.port.stop()
    with refuses(Unreachable, line.guardian):
        ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    consortium.start_guardian(line.guardian, name="another-notary")
    with refused_for("wrong_guardian"):
        ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert not own.exists()
    assert not relayed
    # Nothing was pinned either: other records may be asked about.
    consortium.port.stop()
    consortium.start_guardian(line.guardian)
    got = ask(STUDY, queries(10)[::-1], line, ledger=own, on_batch=lambda *_: None)
    assert (got.labels >= 0).all()


def test_a_guardian_that_leaves_costs_nothing_and_asking_again_goes_on(consortium, tmp_path, relayed):
    own, line = tmp_path / "a.sqlite", consortium.line()
    got = ask(STUDY, queries(8), line, ledger=own, on_batch=lambda *_: consortium.port.stop())
    assert got.stop.reason == "pool_exhausted"
    passed_before = len(relayed)
    again = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert again.stop.reason == "guardian_lost"
    assert again.labels.tolist() == [*got.labels.tolist(), NOT_ASKED, NOT_ASKED]
    assert again.spent.tolist() == got.spent.tolist()
    assert len(relayed) == passed_before
    # What was labelled needs no guardian to be read.
    assert ask(STUDY, queries(8), line, ledger=own, on_batch=lambda *_: None).stop.reason == "pool_exhausted"
    consortium.start_guardian(line.guardian)
    got = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert (got.labels >= 0).all()


def test_a_guardian_that_goes_between_the_check_and_the_batch_leaves_a_reservation(consortium, tmp_path, monkeypatch):
    own, line = tmp_path / "a.sqlite", consortium.line()
    with monkeypatch.context() as leaving:
        leaving.setattr(party.asking.asking, "check_same_queries", lambda *_: consortium.port.stop())
        got = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert reserved(STUDY, own).tolist() == got.spent.tolist()
    assert got.spent.all()
    assert got.stop.reason == "guardian_lost"
    assert all(ledger.balance(name).spent == 0 for name, ledger in consortium.ledgers.items())
    consortium.start_guardian(line.guardian)
    got = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert (got.labels >= 0).all()


def test_one_that_was_away_is_told_when_it_is_back_and_its_receipt_is_kept_once(consortium, tmp_path, monkeypatch):
    real = Relayed.__call__

    def away(self, requests):
        if isinstance(next(iter(requests.values())), Outcome) and "hospital-2" in consortium.threads:
            consortium.stop_node("hospital-2")
            consortium.unawaited.add("hospital-2")
        return real(self, requests)

    monkeypatch.setattr(Relayed, "__call__", away)
    own = tmp_path / "a.sqlite"
    got = ask(STUDY, queries(8), consortium.line(), ledger=own, on_batch=lambda *_: None)
    # Nobody told it: what it charged is what was due.
    assert consortium.ledgers["hospital-2"].balance("hospital-2").settled == got.spent[2] > 0
    assert most_spent(consortium.ledger, STUDY)[0][2] == consortium.ledgers["hospital-2"].balance("hospital-2").spent
    digest = consortium.ledgers["hospital-2"].stored(0).digest
    assert consortium.ledger.noted(digest, "relayed_settled hospital-2") is None
    assert len(consortium.ledger.log.evidence()) == 4
    for _ in range(2):
        consortium.start_node("hospital-2")
        wait_until(lambda: consortium.ledger.noted(digest, "relayed_settled hospital-2") is not None)
        assert consortium.ledgers["hospital-2"].balance("hospital-2").spent == got.spent[2]
        assert len(consortium.ledger.log.evidence()) == 6
        consortium.stop_node("hospital-2")


def test_without_the_operator_the_command_says_so(consortium, tmp_path):
    line = consortium.line()
    consortium.hub.stop()
    with pytest.raises(Unreachable):
        ask(STUDY, queries(5), line, ledger=tmp_path / "a.sqlite", on_batch=lambda *_: None)
    consortium.start_hub("other.sqlite")


def test_studies_of_two_askers_cannot_together_pass_a_data_sets_lifetime_cap(tmp_path):
    caps = {"record": LifetimeCap(12.0, 1e-5)}
    with Policy(":memory:") as policy:
        for querier in ("asker", "another-asker"):
            study = asked_study(querier=querier, name=f"of-{querier}", sigma=20.0, epsilon=5.0)
            policy.approve(
                study, party="hospital-0", data_set="ward", caps=caps, home=PartyHome(tmp_path), told_apart=False
            )
        third = asked_study(querier="a-third", name="of-a-third", sigma=20.0, epsilon=9.0)
        with refused_for("lifetime_cap"):
            policy.approve(
                third, party="hospital-0", data_set="ward", caps=caps, home=PartyHome(tmp_path), told_apart=False
            )


def test_more_queries_than_the_terms_allow_are_refused(consortium, tmp_path):
    with refuses(InvalidInput, 21, 20):
        ask(STUDY, queries(21), consortium.line(), ledger=tmp_path / "a.sqlite", on_batch=lambda *_: None)
