"""What organisations fix besides a study is part of it, and goes with it or is refused."""

from dataclasses import replace

import pytest

from protocols.errors import InvalidInput
from protocols.study.deployed import deployed
from protocols.study.file import read_deployed, read_study, write_study
from tests.harness.askers import asked_study
from tests.harness.guardians import guarded_study
from tests.harness.refusals import refuses
from tests.harness.studies import deployed_study, make_study

STUDY = deployed_study(3)


@pytest.mark.parametrize("study", [STUDY, guarded_study(3), asked_study()])
def test_a_deployed_study_written_and_read_again_is_the_same_study(tmp_path, study):
    path = tmp_path / "study.toml"
    path.write_text(write_study(study))
    assert read_deployed(path) == study
    assert read_study(path).digest == study.digest


def test_a_study_without_terms_is_not_read_as_one_between_organisations(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(write_study(make_study([1.0], threshold=-2.0)))
    with refuses(InvalidInput, "[terms]"):
        read_deployed(path)


def test_the_digest_changes_with_every_term():
    other = {
        "task": "another",
        "class_names": ("a", "b"),
        "deadline_s": 9.0,
        "coordinator": "other",
        "ends": "2998-01-01",
    }
    digests = {replace(STUDY, terms=replace(STUDY.terms, **{key: value})).digest for key, value in other.items()}
    assert len(digests | {STUDY.digest}) == 6


@pytest.mark.parametrize(
    ("study", "terms", "message"),
    [
        (STUDY, {"class_names": ("a", "b", "c")}, ("terms name 3 classes; allowed: the study's 2",)),
        (STUDY, {"class_names": ("a", "b\x1b[2J")}, ("class_names", "\\x1b")),
        (STUDY, {"pool_size": 61}, (61, "query_limit", 60)),
        (guarded_study(3), {"coordinator": "notary"}, ("guardian", "notary")),
        (asked_study(), {"coordinator": "asker"}, ("querier", "asker")),
        (asked_study(), {"pool_sha256": "1" * 64}, ("hidden_queries", "0" * 64)),
    ],
)
def test_terms_that_do_not_go_with_the_study_are_refused(study, terms, message):
    with refuses(InvalidInput, *message):
        replace(study, terms=replace(study.terms, **terms))


def test_only_names_that_a_certificate_can_bear_are_deployed():
    base = make_study([12.0], classes=2, queries=60, threshold=-2.0)
    odd = replace(base, roster=(replace(base.roster[0], party="a b"),))
    with refuses(InvalidInput, "a b"):
        deployed(odd, STUDY.terms)
