import sqlite3
from contextlib import closing

import numpy as np
import pytest

from party.audit import audit_seat
from party.release_labels import released_labels
from protocols.errors import DataCorrupt, DataUnavailable
from tests.consortium import Consortium, deployed_study

SEAT = "hospital-0"


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A ledger after a whole study over the wire, and the labels that came out."""
    folder = tmp_path_factory.mktemp("study")
    with Consortium(deployed_study(2, deadline_s=20.0), folder) as consortium:
        consortium.start_all()
        labels = consortium.label().labels
        yield consortium, labels


def audit(labelled, labels=None, *, authority=None):
    consortium, _ = labelled
    return audit_seat(
        consortium.ledgers[SEAT],
        consortium.study,
        SEAT,
        authority=authority or consortium.authority,
        labels=labels,
    )


def test_an_honest_study_holds(labelled):
    _, labels = labelled
    result = audit(labelled, labels)
    assert result.findings == ()
    assert result.batches == result.requests == result.outcomes > 1
    assert result.compared == (labels >= -1).sum()
    assert (labels == -1).any()


def test_a_release_that_answers_what_was_signed_as_unanswered_is_found(labelled):
    _, labels = labelled
    silent = int(np.flatnonzero(labels == -1)[0])
    changed = labels.copy()
    changed[silent] = 1
    (finding,) = audit(labelled, changed).findings
    assert (finding.code, f"query {silent}:" in finding.what) == ("outcome_false", True)
    given = int(np.flatnonzero(labels >= 0)[0])
    changed = labels.copy()
    changed[given] = -1
    assert [each.code for each in audit(labelled, changed).findings] == ["outcome_differs"]
    assert {each.code for each in audit(labelled, labels[:10]).findings} == {"release_differs"}


def test_evidence_that_another_authority_signed_is_found(labelled, tmp_path):
    with Consortium(deployed_study(1), tmp_path) as other:
        result = audit(labelled, authority=other.authority)
    assert {each.code for each in result.findings} == {"bad_evidence", "no_evidence"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE audit SET entry = replace(entry, 'batch', 'botch') WHERE count = 2", "chain_broken"),
        ("DELETE FROM audit WHERE count = 3", "chain_broken"),
        ("DELETE FROM evidence WHERE kind = 'request' AND number = 0", "no_evidence"),
        ("DELETE FROM evidence WHERE kind = 'outcome' AND number = 0", "no_evidence"),
        ("UPDATE evidence SET signed = x'00' WHERE number = 1", "bad_evidence"),
        ("UPDATE evidence SET kind = 'swap' WHERE kind = 'outcome' AND number = 1", "no_evidence"),
        ("UPDATE charge SET settled = settled - 1 WHERE number = 1", "sums_differ"),
        ("UPDATE account SET settled = settled - 1", "sums_differ"),
        ("UPDATE charge SET reserved = reserved + 1 WHERE number = 1", "sums_differ"),
        ("DELETE FROM audit WHERE count > 3", "rolled_back"),
    ],
)
def test_a_ledger_that_was_changed_is_found(labelled, tmp_path, change, code):
    from protocols.accounting.ledger import Ledger

    consortium, labels = labelled
    copy = tmp_path / "copy.sqlite"
    with (
        closing(sqlite3.connect(consortium.folder / f"{SEAT}.sqlite")) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        target.execute(change)
        target.commit()
    with Ledger(copy) as ledger:
        result = audit_seat(ledger, consortium.study, SEAT, authority=consortium.authority, labels=labels)
    assert code in {each.code for each in result.findings}


def test_labels_of_a_release_are_read_or_refused_with_their_row(labelled, tmp_path):
    consortium, _ = labelled
    with pytest.raises(DataUnavailable, match=r"labels\.csv"):
        released_labels(tmp_path, consortium.study)
    file = tmp_path / "labels.csv"
    file.write_text("query,label\n3,left\n5,\n0,right\n")
    labels = released_labels(tmp_path, consortium.study)
    assert (labels[3], labels[5], labels[0], labels[1]) == (0, -2, 1, -2)
    for row, words in (("999,left", "row 1: query '999'"), ("-1,left", "query '-1'"), ("1,up", "label 'up'")):
        file.write_text(f"query,label\n{row}\n")
        with pytest.raises(DataCorrupt, match=words):
            released_labels(tmp_path, consortium.study)
