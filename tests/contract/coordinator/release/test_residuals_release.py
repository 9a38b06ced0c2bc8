"""A release of two sums: its statement, its file, and what a verifier finds of any part of it."""

import json
import shutil

import pytest

from coordinator.labelling.training import released_soft_labels, train_student
from coordinator.release.verify import verify_release
from protocols.sums.residuals import FirstScores
from tests.harness.deployed_records import POOL, record_study_of
from tests.harness.released import Consortium, failed


class AskedTwice:
    """A consortium whose hospitals were asked again, and its release."""

    def __init__(self, folder):
        self.consortium = Consortium(folder)
        self.study, queries = record_study_of("graded", epsilon=50.0, residuals=True)
        self.labelled = self.consortium.label(self.study, queries=queries, judge=self.scores)
        self.folder = folder / "release"
        self.trained = train_student(self.labelled, POOL, kind="scores", seed=0, device="cpu")
        self.consortium.release(self.labelled, self.folder, trained=self.trained)

    def scores(self, labelled):
        self.first = released_soft_labels(labelled, POOL)[1].scores
        made = FirstScores.of(self.first.coefficients).to_bytes()
        labelled.asked_about.write_bytes(made)
        return made


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    return AskedTwice(tmp_path_factory.mktemp("twice"))


def test_both_sums_make_the_student_and_all_of_it_is_made_again_with_the_pool(twice):
    checks = {each.name: each for each in verify_release(twice.folder, None, pool=twice.labelled.pool)}
    assert [name for name, each in checks.items() if not each.passed] == ["authority"]
    assert "3 seats" in checks["second sum"].message
    without = {each.name: each for each in verify_release(twice.folder, None)}
    assert without["second sum"].passed is None
    made = released_soft_labels(twice.labelled, POOL)[1].scores
    assert abs(made.coefficients - twice.first.coefficients).max() > 1e-3
    statement = json.loads((twice.folder / "privacy.json").read_text())
    assert all("two noisy sums" in each for each in statement["records"]["used_once"].values())
    assert "asked again" in json.dumps(statement["kept"])


@pytest.mark.parametrize("part", ["scores", "sums", "counted", "run"])
def test_no_part_of_the_second_sum_can_be_changed_or_left_out(twice, tmp_path, part):
    folder = tmp_path / "changed"
    shutil.copytree(twice.folder, folder)
    said = json.loads((folder / "residuals.json").read_text())
    if part == "counted":
        said[part] = said[part][:-1]
    elif part == "run":
        said[part] = "00"
    else:
        said[part][0][0] += 5000
    (folder / "residuals.json").write_text(json.dumps(said))
    twice.consortium.sign_again(folder)
    assert failed(folder, pool=twice.labelled.pool)
    (folder / "residuals.json").unlink()
    twice.consortium.sign_again(folder)
    assert "soft labels" in failed(folder, pool=twice.labelled.pool)
