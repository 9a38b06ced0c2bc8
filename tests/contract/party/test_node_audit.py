import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from party.audit import audit_seat, released_labels, released_study
from protocols.crypto.identity import to_pem
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable
from protocols.release.labels import labels_csv
from protocols.release.manifest import write_manifest
from protocols.votes import ABSTAIN
from runtime.exits import Exit
from tests.contract.party.voting.test_approving_record_votes import Place
from tests.harness import released
from tests.harness.consortium import Consortium
from tests.harness.homes import study_file, tabled
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import NOW, deployed_study

SEAT = "hospital-0"


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A ledger after a whole study over the wire, and the labels that came out."""
    folder = tmp_path_factory.mktemp("study")
    with Consortium(deployed_study(2), folder) as consortium:
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
        attested=None,
    )


def test_an_honest_study_holds(labelled):
    _, labels = labelled
    result = audit(labelled, labels)
    assert result.findings == ()
    assert result.batches == result.requests == result.outcomes > 1
    assert result.unsettled == 0
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
    from protocols.ledger.ledger import Ledger

    consortium, labels = labelled
    copy = tmp_path / "copy.sqlite"
    with (
        closing(sqlite3.connect(consortium.folder / f"{SEAT}.sqlite")) as source,
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
        # A hand that means it takes the triggers away first.
        for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            target.execute(f"DROP TRIGGER {name}")
        target.execute(change)
        target.commit()
    with Ledger(copy, audited=True) as ledger:
        result = audit_seat(
            ledger, consortium.study, SEAT, authority=consortium.authority, labels=labels, attested=None
        )
    assert code in {each.code for each in result.findings}


def test_labels_of_a_release_are_read_or_refused(labelled, tmp_path):
    consortium, labels = labelled
    file = tmp_path / "labels.csv"
    with refuses(DataCorrupt, "labels.csv"):
        released_labels(tmp_path, consortium.study)
    good = labels_csv(labels, np.full(len(labels), ABSTAIN))
    file.write_text(good)
    assert np.array_equal(released_labels(tmp_path, consortium.study), labels)
    head, first, *rest = good.splitlines(keepends=True)
    for changed in (
        head + "".join(rest),  # a query is missing
        head + "999" + first.removeprefix("0") + "".join(rest),
        head + "-" + first + "".join(rest),
        head + "0,2,answered,\n" + "".join(rest),  # a class that the study has not
        head + f"0,{'0' * 18}{2**63},answered,\n" + "".join(rest),
        head + f"{'9' * 5000},0,answered,\n" + "".join(rest),
        head + first + "".join(rest[:-1]),  # fewer than the pool has
    ):
        file.write_text(changed)
        with refuses(DataCorrupt, "labels"):
            released_labels(tmp_path, consortium.study)


def test_a_release_that_another_signed_or_that_was_changed_is_refused(labelled, tmp_path):
    consortium, _ = labelled
    (tmp_path / "labels.csv").write_text("query,label\n")
    (tmp_path / "coordinator.pem").write_bytes(to_pem(consortium.certificate))

    def study():
        return released_study(tmp_path, authority=consortium.authority, coordinator="centre")

    with refuses(DataUnavailable, "manifest.json"):
        study()
    write_manifest(tmp_path, study=consortium.study.digest, created=NOW, key=consortium.key)
    assert study() == consortium.study.digest.hex()
    with refused_for("other_coordinator"):
        released_study(tmp_path, authority=consortium.authority, coordinator="another")
    (tmp_path / "labels.csv").write_text("query,label\n0,1\n")
    with pytest.raises(DataCorrupt, match="changed since"):
        study()
    write_manifest(tmp_path, study=consortium.study.digest, created=NOW, key=consortium.keys[SEAT])
    with refused_for("bad_signature"):
        study()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_manifest_is_read_or_refused_with_an_error_of_ours(labelled, tmp_path, data):
    consortium, _ = labelled
    (tmp_path / "labels.csv").write_text("query,label\n")
    (tmp_path / "coordinator.pem").write_bytes(to_pem(consortium.certificate))
    write_manifest(tmp_path, study=consortium.study.digest, created=NOW, key=consortium.key)
    name = data.draw(st.sampled_from(["manifest.json", "manifest.sig", "coordinator.pem", "labels.csv"]))
    content = (tmp_path / name).read_bytes()
    at = int(data.draw(st.floats(0, 1)) * len(content))  # signatures differ in length
    changed = content[:at] + data.draw(st.binary(max_size=6)) + content[at + data.draw(st.integers(0, 6)) :]
    (tmp_path / name).write_bytes(changed)
    try:
        study = released_study(tmp_path, authority=consortium.authority, coordinator="centre")
        assert study == consortium.study.digest.hex()
    except ConclaveError:
        refused = True
    else:
        refused = False
    assert changed != content or not refused


def test_verify_ends_with_9_where_a_release_leaves_out_a_study_in_which_the_node_voted(tmp_path, capsys):
    operator = released.Consortium(tmp_path)
    place = Place(tmp_path, operator)
    assert place.approve() == 0
    second = tabled(released.small_study(name="second"))
    assert place.run("approve", str(study_file(tmp_path, second)), "--yes") == 0
    labelled = operator.label(second)
    release = operator.release(labelled, tmp_path / "release")
    assert place.run("verify", "second", "--release", str(release)) == 0, "it has not voted in the other one yet"
    place.ask()
    first = operator.label(place.study, queries=place.queries)
    naming = operator.release(labelled, tmp_path / "naming", earlier=[operator.release(first, tmp_path / "first")])
    for folder, unnamed in ((release, ["test"]), (naming, [])):
        capsys.readouterr()
        assert place.run("verify", "second", "--release", str(folder)) == (Exit.PARTLY if unnamed else 0)
        assert ("NOT CHECKED" in capsys.readouterr().err) == bool(unnamed)
        assert place.run("verify", "--release", str(folder), "--json") == (Exit.PARTLY if unnamed else 0)
        shown = json.loads(capsys.readouterr().out)
        assert (shown["unnamed"], shown["holds"]) == (unnamed, True)
