"""A release of a study with a guardian holds its signature of every batch's labels: other labels are found."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from coordinator.release.verify import verify_release
from party.audit import audit_seat, released_labels, released_study
from protocols.errors import DataCorrupt
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.levels.two_server.released import read_signed
from protocols.release.labels import read_labels
from protocols.release.signatures import SIGNATURES_FILE, read_signatures, signatures_text
from protocols.study.file import read_deployed
from protocols.votes import ABSTAIN, NOT_ASKED
from tests.harness.levels import SEAT_KEYS, GuardianHere, two_server
from tests.harness.released import Consortium, failed, small_study
from tests.harness.seeded import seeded_source

CHECK = "guardian's signatures"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A consortium with a guardian, what it labelled, and its release, not to be written to."""
    folder = tmp_path_factory.mktemp("guarded")
    consortium = Consortium(folder)
    study = small_study(
        mechanism="thresholded_gnmax", sigma=2.0, sigma_threshold=None, threshold=2.0, epsilon=30.0,
        confidentiality=two_server(units=64, seats=3),
    )  # fmt: skip
    with Ledger(":memory:") as guardians:
        labelled = consortium.label(
            study,
            aggregation=SharedAggregation(
                GuardianHere(study, guardians, seeded_source(1)).dial, source=seeded_source(2)
            ),
            ballots=lambda name, ledger: SharedBallot(
                study, name, key=SEAT_KEYS[study.seats[name]], source=seeded_source(3, study.seats[name])
            ),
        )
    return consortium, labelled, consortium.release(labelled, folder / "release")


@pytest.fixture
def unchecked(monkeypatch):
    """A coordinator's software that signs whatever it has."""
    monkeypatch.setattr("coordinator.release.release.verify_release", lambda *_, **__: [])


def with_another_label(labelled):
    """What a coordinator has that changed one answered label after it was computed, and nothing else."""
    labels = labelled.labels.copy()
    query = int(np.flatnonzero(labels >= 0)[0])
    labels[query] = 1 - labels[query]
    return replace(labelled, labels=labels)


def audited(consortium, folder):
    """The codes that each hospital's own audit finds in a release, without those of the harness.

    The harness keeps signed frames at the coordinator only.
    """
    name = released_study(folder, authority=consortium.authority, coordinator="centre")
    study = read_deployed(folder / "study.toml")
    assert name == study.digest.hex()
    labels = released_labels(folder, study)
    return [
        {each.code for each in audit_seat(
            ledger, study, seat, authority=consortium.authority, labels=labels,
            attested=read_signed(folder, study, labels),
        ).findings} - {"no_evidence"}
        for seat, ledger in consortium.ledgers[study.name].items()
    ]  # fmt: skip


def test_every_released_batch_has_a_signature_that_verifies(guarded):
    consortium, labelled, folder = guarded
    assert (labelled.labels >= 0).any()
    assert (labelled.labels == ABSTAIN).any()
    checks = {check.name: check for check in verify_release(folder, None)}
    assert all(check.passed is not False for check in checks.values())
    batches = len(labelled.batches)
    assert batches > 1
    assert checks[CHECK].message == f"'guardian' computed the same labels of {batches} batches, and signed them"
    assert sorted(read_signatures(folder)) == list(range(batches))
    assert audited(consortium, folder) == [set()] * 3


def test_a_coordinator_that_releases_another_label_than_was_computed_is_found(guarded, tmp_path, unchecked):
    """All else in its release agrees: charges, receipts, statement and pages, as the query was answered."""
    consortium, labelled, _ = guarded
    folder = consortium.release(with_another_label(labelled), tmp_path / "lie")
    found = failed(folder)
    assert list(found) == [CHECK]
    assert "batch 0: the guardian did not sign what is released" in found[CHECK]
    assert audited(consortium, folder) == [{"other_labels"}] * 3


def test_our_own_software_writes_no_such_release(guarded, tmp_path):
    consortium, labelled, _ = guarded
    with pytest.raises(DataCorrupt, match="guardian did not sign"):
        consortium.release(with_another_label(labelled), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_an_abstention_released_in_place_of_a_label_is_found(guarded, tmp_path, unchecked):
    consortium, labelled, _ = guarded
    labels = labelled.labels.copy()
    labels[np.flatnonzero(labels >= 0)[0]] = ABSTAIN
    assert CHECK in failed(consortium.release(replace(labelled, labels=labels), tmp_path / "lie"))


def missing(signatures):
    del signatures[1]


def emptied(signatures):
    signatures.clear()


def swapped(signatures):
    signatures[0], signatures[1] = signatures[1], signatures[0]


def one_more(signatures):
    signatures[99] = signatures[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (missing, "batch 1: the release lacks the guardian's signature"),
        (emptied, "batch 0: the release lacks the guardian's signature"),
        (swapped, "batch 0: the guardian did not sign what is released"),
        (one_more, "batches of which nothing is released: [99]"),
    ],
)
def test_signatures_that_are_not_those_of_the_batches_are_found(guarded, tmp_path, change, said):
    consortium, _, folder = guarded
    copy = shutil.copytree(folder, tmp_path / "copy")
    signatures = read_signatures(copy)
    change(signatures)
    (copy / SIGNATURES_FILE).write_text(signatures_text(signatures))
    consortium.sign_again(copy)
    found = failed(copy)
    assert list(found) == [CHECK]
    assert said in found[CHECK]
    assert audited(consortium, copy) == [set() if change is one_more else {"other_labels"}] * 3


def test_a_release_without_the_file_of_signatures_is_found(guarded, tmp_path):
    consortium, _, folder = guarded
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / SIGNATURES_FILE).unlink()
    consortium.sign_again(copy)
    assert SIGNATURES_FILE in failed(copy)[CHECK]


def test_a_batch_of_which_nothing_is_released_needs_no_signature(guarded):
    _, labelled, folder = guarded
    labels, _ = read_labels(folder, classes=2)
    study = labelled.study
    nothing = read_signed(folder, study, np.full_like(labels, NOT_ASKED))
    assert not nothing.check(0, request=bytes(32), queries=range(12))


def test_a_study_without_a_guardian_has_no_such_file(signed):
    _, labelled, folder = signed
    labels = read_labels(folder, classes=2)[0]
    assert read_signed(folder, labelled.study, labels) is None
    assert not (folder / SIGNATURES_FILE).exists()
    assert CHECK not in {check.name for check in verify_release(folder, None)}


@pytest.mark.parametrize("text", ["0 aa\n", f"0 {'0f' * 64}", f"00 {'0f' * 64}\n", f"1 {'0f' * 64}\n0 {'0f' * 64}\n"])
def test_signatures_in_another_form_than_is_written_are_refused(tmp_path, text):
    (tmp_path / SIGNATURES_FILE).write_text(text)
    with pytest.raises(DataCorrupt, match=r"allowed: the number of a batch|differs from the form"):
        read_signatures(tmp_path)
