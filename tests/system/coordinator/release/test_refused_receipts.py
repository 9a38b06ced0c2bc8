"""A receipt that cannot be true stops no release: it is named there, and proves nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from coordinator.release.verify import verify_release
from protocols.errors import Refused
from protocols.ledger.audit_log import EMPTY, Head
from protocols.wire.frames import Answer
from protocols.wire.messages import Refusal, Settled, VoteReply
from tests.harness import released as made_here
from tests.harness.clocks import wait_until
from tests.harness.consortium import Consortium as Deployed
from tests.harness.released import labelled_study, release_of, small_study
from tests.harness.studies import deployed_study, pool_of

LIAR = "hospital-1"
# Two batches.
STUDY = deployed_study(3, pool=40)
LIES = {
    "of another batch": lambda settled: replace(settled, batch_digest=b"x" * 32),
    "of nothing spent": lambda settled: replace(settled, spent=0),
    "above the cap": lambda settled: replace(settled, spent=2**50),
    "above every cap": lambda settled: replace(settled, spent=2**53),
    "above every integer of a database": lambda settled: replace(settled, spent=2**63),
}
# What a party answers in place of a receipt.
FORGED = [Refusal("bad_receipt", "<b>pay me</b>\x1b[2J the coordinator lies"), Refusal("late", "soon")]


def look(folder):
    checks = {check.name: check for check in verify_release(folder, None)}
    assert all(check.passed is not False for check in checks.values()), checks
    events = json.loads((folder / "privacy.json").read_text())["during_the_study"]
    return checks["receipts"], events


def release(consortium, labelling, *, unproven=()):
    """The release of a study over the wire."""
    np.save(consortium.folder / "pool.npy", pool_of(consortium.study.terms.pool_size, 4))
    ledger, pool = consortium.folder / "coordinator.sqlite", consortium.folder / "pool.npy"
    labelled = labelled_study(consortium.study, ledger, pool, labelling)
    return release_of(labelled, consortium.folder / "release", by=consortium, unproven=unproven)


@pytest.mark.parametrize(("lie", "batches"), [("of another batch", "first"), *((lie, "every") for lie in LIES)])
def test_a_ledger_with_a_bad_receipt_is_released_and_says_whose_it_is(signed, tmp_path, monkeypatch, lie, batches):
    consortium, keep, told = signed[0], made_here.Consortium.keep, []

    def keep_a_lie(self, ledger, own, seat, outcome, settled):
        if seat == LIAR and (batches == "every" or not told):
            told.append(ledger.number_of(outcome.batch_digest))
            settled = LIES[lie](settled)
        keep(self, ledger, own, seat, outcome, settled)

    monkeypatch.setattr(made_here.Consortium, "keep", keep_a_lie)
    labelled = consortium.label(small_study(name="lied"))
    folder = consortium.release(labelled, tmp_path / "release")
    check, events = look(folder)
    assert list(events["receipts_refused"]) == [LIAR]
    assert [each["batch"] for each in events["receipts_refused"][LIAR]] == told
    words = events["receipts_refused"][LIAR][0]["in_words"]
    assert f"the receipt of {LIAR} for batch 0 was refused" in words
    assert ("its ledger's state is not confirmed" in words) == (batches == "every")
    assert (LIAR in events["charges_unproven"]) == (batches == "every")
    assert f"refused: the receipt of {LIAR} for batch 0" in check.message
    assert "conclave-party verify" in check.next_step
    assert words.replace("'", "&#39;") in (folder / "privacy.html").read_text()


@pytest.mark.parametrize("head", ["own", "seen"])
def test_heads_that_cannot_be_are_no_dead_end_either(signed, tmp_path, monkeypatch, head):
    consortium = signed[0]
    lie = {"own": EMPTY} if head == "own" else {"seen": Head(1, b"x" * 32)}
    sign_frame = made_here.sign_frame

    def lying(frame, **how):
        if isinstance(frame, Answer) and frame.seat == LIAR:
            frame = replace(frame, **lie)
        return sign_frame(frame, **how)

    monkeypatch.setattr(made_here, "sign_frame", lying)
    labelled = consortium.label(small_study(name="heads"))
    _, events = look(consortium.release(labelled, tmp_path / "release"))
    assert list(events["receipts_refused"]) == [LIAR]


@pytest.mark.parametrize("lie", ["of another batch", "above every integer of a database", "replayed"])
def test_a_lying_receipt_is_refused_when_it_comes_and_the_labelling_goes_on_to_a_release(tmp_path, lie):
    with Deployed(STUDY, tmp_path) as consortium:
        consortium.start_all()
        party, first = consortium.parties[LIAR], []
        settle = party._settle

        def lying(outcome):
            settled = settle(outcome)
            first.append(settled)
            return first[0] if lie == "replayed" else LIES[lie](settled)

        party._settle = lying
        labelling = consortium.label()
        assert labelling.stop.reason in ("pool_exhausted", "budget_exhausted")
        assert len(labelling.batches) > 1
        lied = list(range(lie == "replayed", len(labelling.batches)))
        refused = [entry.fields for entry in consortium.ledger.log.entries() if entry.event == "receipt_refused"]
        assert [(each["seat"], each["batch"]) for each in refused] == [(LIAR, number) for number in lied]
        assert "bad_receipt" in consortium.codes("refusal")
        kept = {number for number, seat, kind, _ in consortium.ledger.log.evidence() if seat == LIAR}
        assert kept.isdisjoint(lied)
        check, events = look(release(consortium, labelling))
        assert [each["batch"] for each in events["receipts_refused"][LIAR]] == lied
        assert LIAR in events["charges_unproven"]
        assert LIAR in check.message


def test_a_party_that_tells_the_truth_again_confirms_its_ledger(tmp_path):
    with Deployed(STUDY, tmp_path) as consortium:
        consortium.start_all()
        party = consortium.parties[LIAR]
        settle, party._settle = party._settle, lambda outcome: Settled(outcome.batch_digest, 0)
        last = len(consortium.label().batches) - 1
        assert not consortium.ledger.log.kept(last, LIAR, "settled")
        party._settle = settle
        consortium.stop_node(LIAR)
        consortium.start_node(LIAR)
        wait_until(lambda: consortium.ledger.log.kept(last, LIAR, "settled"))


@pytest.mark.parametrize("answer", ["votes", "nothing"])
def test_what_is_no_receipt_and_no_refusal_is_a_bad_receipt(tmp_path, answer):
    with Deployed(STUDY, tmp_path) as consortium:
        consortium.start_all()
        answers = {
            "votes": lambda outcome: VoteReply(outcome.batch_digest, np.zeros((1, 1), dtype=np.int64)),
            "nothing": lambda outcome: Settled(b"", 0),
        }
        consortium.parties[LIAR]._settle = answers[answer]
        labelling = consortium.label()
        refused = [entry.fields for entry in consortium.ledger.log.entries() if entry.event == "receipt_refused"]
        assert [each["batch"] for each in refused] == list(range(len(labelling.batches)))
        assert {each["seat"] for each in refused} == {LIAR}


@pytest.mark.parametrize("forged", FORGED)
def test_a_party_that_refuses_in_the_coordinators_words_is_not_excused(tmp_path, forged):
    with Deployed(STUDY, tmp_path) as consortium:
        consortium.start_all()
        consortium.parties[LIAR]._settle = lambda outcome: forged
        labelling = consortium.label()
        entries = [
            entry for entry in consortium.ledger.log.entries() if entry.event in ("receipt_refused", "refused_by")
        ]
        assert {entry.event for entry in entries} == {"refused_by"}
        assert {entry.fields["code"] for entry in entries} == {"refused"}
        said = [fields["reason"] for event, fields in consortium.events if event == "refusal"]
        assert said
        assert all(each.isprintable() for each in said)
        with pytest.raises(Refused, match=LIAR) as silent:
            release(consortium, labelling)
        assert silent.value.code == "unproven_charges"


def test_a_refused_receipt_excuses_no_later_silence(tmp_path):
    with Deployed(STUDY, tmp_path) as consortium:
        consortium.start_all()
        party, told = consortium.parties[LIAR], []
        settle = party._settle

        def lie_once(outcome):
            told.append(outcome.batch_digest)
            settled = settle(outcome)
            return replace(settled, spent=0) if len(told) == 1 else Refusal("silent", "no receipt")

        party._settle = lie_once
        labelling = consortium.label()
        assert len(labelling.batches) > 1
        with pytest.raises(Refused, match=LIAR) as silent:
            release(consortium, labelling)
        assert silent.value.code == "unproven_charges"
        _, events = look(release(consortium, labelling, unproven=[LIAR]))
        assert [each["batch"] for each in events["receipts_refused"][LIAR]] == [0]
        assert events["charges_unproven"][LIAR] == list(range(len(labelling.batches)))
