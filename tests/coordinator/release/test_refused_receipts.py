"""A receipt that cannot be true stops no release: it is named there, and proves nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from coordinator.labelled import LabelledStudy
from coordinator.release.release import make_release
from coordinator.release.verify import verify_release
from protocols.audit_log import EMPTY, Head
from protocols.frames import Answer
from protocols.messages import Settled
from tests.consortium import NOW, deployed_study, pool_of
from tests.consortium import Consortium as Deployed
from tests.coordinator.release import consortium as made_here
from tests.coordinator.release.consortium import small_study
from tests.operators import wait_until

LIAR = "hospital-1"
LIES = {
    "of another batch": lambda settled: replace(settled, batch_digest=b"x" * 32),
    "of nothing spent": lambda settled: replace(settled, spent=0),
    "above the cap": lambda settled: replace(settled, spent=2**62),
}


def look(folder):
    checks = {check.name: check for check in verify_release(folder, None)}
    assert all(check.passed for check in checks.values()), checks
    events = json.loads((folder / "privacy.json").read_text())["during_the_study"]
    return checks["receipts"], events


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("batches", ["first", "every"])
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
    assert f"refused: that of {LIAR} for batch 0" in check.message
    assert "audit verify" in check.next_step
    assert words.replace("'", "&#39;") in (folder / "privacy.html").read_text()


@pytest.mark.parametrize("head", ["own", "seen"])
def test_heads_that_cannot_be_are_no_dead_end_either(signed, tmp_path, monkeypatch, head):
    consortium = signed[0]
    lie = {"own": EMPTY} if head == "own" else {"seen": Head(1, b"x" * 32)}
    seal = made_here.seal

    def lying(frame, **how):
        if isinstance(frame, Answer) and frame.seat == LIAR:
            frame = replace(frame, **lie)
        return seal(frame, **how)

    monkeypatch.setattr(made_here, "seal", lying)
    labelled = consortium.label(small_study(name="heads"))
    _, events = look(consortium.release(labelled, tmp_path / "release"))
    assert list(events["receipts_refused"]) == [LIAR]


@pytest.mark.parametrize("lie", [*LIES, "replayed"])
def test_a_lying_receipt_is_refused_when_it_comes_and_the_labelling_goes_on_to_a_release(tmp_path, lie):
    with Deployed(deployed_study(3), tmp_path) as consortium:
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
        np.save(tmp_path / "pool.npy", pool_of(60, 4))
        labelled = LabelledStudy(
            study=consortium.study,
            ledger=tmp_path / "coordinator.sqlite",
            pool=tmp_path / "pool.npy",
            labels=labelling.labels,
            reinforced=labelling.reinforced,
            batches=tuple(labelling.batches),
            stop=labelling.stop.reason,
            refusals=labelling.refusals,
            differences=labelling.ledger_differences,
        )
        folder = make_release(
            labelled,
            out=tmp_path / "release",
            key=consortium.key,
            certificate=consortium.certificate,
            authority=consortium.authority,
            trained=None,
            earlier=[],
            named=[],
            unproven=[],
            now=NOW.__class__.now(NOW.tzinfo),
        )
        check, events = look(folder)
        assert [each["batch"] for each in events["receipts_refused"][LIAR]] == lied
        assert LIAR in events["charges_unproven"]
        assert LIAR in check.message


def test_a_party_that_tells_the_truth_again_confirms_its_ledger(tmp_path):
    with Deployed(deployed_study(3), tmp_path) as consortium:
        consortium.start_all()
        party = consortium.parties[LIAR]
        settle, party._settle = party._settle, lambda outcome: Settled(outcome.batch_digest, 0)
        last = len(consortium.label().batches) - 1
        assert not consortium.ledger.log.kept(last, LIAR, "settled")
        party._settle = settle
        consortium.stop_node(LIAR)
        consortium.start_node(LIAR)
        wait_until(lambda: consortium.ledger.log.kept(last, LIAR, "settled"))
