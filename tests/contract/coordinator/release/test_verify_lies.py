"""A coordinator that told a party another outcome than it published is caught by verification."""

import json
from dataclasses import replace

import numpy as np
import pytest

from coordinator.release.verify import verify_release
from protocols.ledger.ledger import Ledger
from tests.harness.released import Consortium, failed, small_study


@pytest.fixture
def unchecked(monkeypatch):
    """A coordinator's software that signs whatever it has."""
    monkeypatch.setattr("coordinator.release.release.verify_release", lambda *_, **__: [])
    monkeypatch.setattr("coordinator.release.release.check_covered", lambda *_, **__: {})


def told_that_all_were_refused(seat, outcome):
    return replace(outcome, answered=np.zeros_like(outcome.answered)) if seat == "hospital-1" else outcome


def test_a_coordinator_that_lied_to_one_party_about_an_outcome_is_caught(signed, tmp_path, unchecked):
    consortium = signed[0]
    labelled = consortium.label(small_study(name="liar"), tell=told_that_all_were_refused)
    found = failed(consortium.release(labelled, tmp_path / "lie"))
    assert "an outcome that differs" in found["receipts"]
    assert "hospital-1" in found["receipts"]


def test_it_is_shown_by_a_later_receipt_where_it_hides_the_outcome_itself(signed, tmp_path, unchecked):
    consortium, lies = signed[0], []

    def lie_once(seat, outcome):
        told = told_that_all_were_refused(seat, outcome)
        lies.append(told is not outcome)
        return told if sum(lies) == 1 else outcome

    labelled = consortium.label(small_study(name="once"), tell=lie_once)
    assert sum(lies) > 1
    with Ledger(labelled.ledger) as ledger:
        ledger._database.execute("DELETE FROM evidence WHERE number = 0 AND name = 'hospital-1'")
    folder = consortium.release(labelled, tmp_path / "hidden")
    check = next(each for each in verify_release(folder, None) if each.name == "receipts")
    assert "hospital-1" in check.message
    assert "less than the" in check.message
    assert "told another outcome" in check.next_step


def told_that_nothing_was_answered(_, outcome):
    return replace(outcome, answered=np.zeros_like(outcome.answered))


@pytest.mark.parametrize("seats", [["hospital-0", "hospital-1", "hospital-2"], ["hospital-1"]])
def test_a_coordinator_that_lied_and_kept_no_receipts_of_it_is_caught(signed, tmp_path, unchecked, monkeypatch, seats):
    consortium, keep = signed[0], Consortium.keep
    monkeypatch.setattr(
        Consortium, "keep", lambda self, ledger, own, seat, *rest: seat in seats or keep(self, ledger, own, seat, *rest)
    )
    tell = {seat: told_that_nothing_was_answered for seat in seats}
    labelled = consortium.label(
        small_study(name="silent"), tell=lambda seat, outcome: tell.get(seat, lambda _, told: told)(seat, outcome)
    )
    folder = consortium.release(labelled, tmp_path / "silent")
    for seat in json.loads((folder / "privacy.json").read_text())["seats"]:
        own = consortium.ledgers["silent"][seat["seat"]].balance(seat["seat"]).spent
        assert (own < seat["ledger"]["charged"]) == (seat["seat"] in seats)
    found = {check.name: check for check in verify_release(folder, None) if check.passed is False}
    assert list(found) == ["receipts cover every charge"]
    assert all(seat in found["receipts cover every charge"].message for seat in seats)
    assert "conclave-party verify" in found["receipts cover every charge"].next_step


def test_our_own_software_does_not_write_such_a_release(signed, tmp_path):
    consortium = signed[0]
    labelled = consortium.label(small_study(name="liar-2"), tell=told_that_all_were_refused)
    with pytest.raises(Exception, match="an outcome that differs"):
        consortium.release(labelled, tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
