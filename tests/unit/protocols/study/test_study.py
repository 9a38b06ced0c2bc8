import dataclasses

import numpy as np
import pytest

from protocols.errors import InvalidInput
from protocols.mechanisms import InteractiveGNMax, LNMax
from protocols.study.chosen import check_questions
from protocols.study.file import read_study, write_study
from protocols.study.study import Seat
from protocols.study.units import votes_per_unit
from tests.harness.deployed_records import draft
from tests.harness.refusals import refuses
from tests.harness.studies import changed, make_study

STUDY = make_study([1.0, 2.0], rule="proportional", threshold=1.0, unit="party", teachers=3)
LOW = dataclasses.replace(STUDY.mechanism, threshold=0.5)


def test_a_study_written_and_read_again_is_the_same_study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(write_study(STUDY))
    again = read_study(path)
    assert again == STUDY
    assert again.digest == STUDY.digest
    plain = make_study([1.0], mechanism="gnmax", threshold=None, sigma_threshold=None)
    path.write_text(write_study(plain))
    assert read_study(path) == plain


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"mechanism": dataclasses.replace(STUDY.mechanism, sigma=41.0)},
        {"unit": "record"},
        {"query_limit": 999},
        {"quorum": 2},
        {"questions": "uncertainty"},
        {"roster": STUDY.roster[::-1]},
        {"roster": (dataclasses.replace(STUDY.roster[0], epsilon=1.5), STUDY.roster[1])},
    ],
)
def test_the_digest_changes_with_every_term(change):
    assert changed(STUDY, **change).digest != STUDY.digest


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"classes": 1}, "classes is 1; allowed: 2 or more"),
        ({"roster": ()}, "roster is empty"),
        ({"roster": (STUDY.roster[0], STUDY.roster[0])}, "'p0' is on the roster twice"),
        ({"roster": (Seat(party="a", epsilon=1.0, delta=1e-5, weight=0.0, rate=1.0),)}, "multiples of 1/1048576, > 0"),
        (
            {"roster": (Seat(party="a", epsilon=1.0, delta=1e-5, weight=1 / 3, rate=1.0),)},
            "multiples of 1/1048576, > 0",
        ),
        ({"roster": (Seat(party="a", epsilon=1.0, delta=1e-5, weight=float("nan"), rate=1.0),)}, "multiples of"),
        ({"quorum": 3}, "quorum is 3; allowed: at most the 2 parties"),
        ({"unit": "patient"}, "allowed where teachers vote: record, party"),
        ({"view": "clear"}, "allowed: label, histogram"),
        ({"view": "histogram", "mechanism": dataclasses.replace(LOW, sigma_threshold=None)}, "does not hold for view"),
        ({"participation_name": "sometimes"}, "allowed: all, periodic, secret"),
        ({"participation_name": "secret", "unit": "party", "teachers": 2}, "one vote per unit"),
        ({"view": "histogram"}, "sigma_threshold is 150, which confident_gnmax does not use under the view"),
        ({"mechanism": LNMax(gamma=0.1)}, "'label_only' does not hold for view 'label' of lnmax; allowed: laplace"),
        (
            {
                "mechanism": InteractiveGNMax(
                    sigma=40.0,
                    sigma_threshold=150.0,
                    threshold=0.5,
                    interactive_threshold=1.0,
                    reinforce_confidence=0.9,
                    round_one=1001,
                )
            },
            "round_one is 1001; allowed: from 1 to the 1000 queries",
        ),
        ({"roster": (Seat(party="a", epsilon=1.0, delta=1e-5, weight=1.0, rate=0.5),)}, "allowed: 1 with"),
        (
            {
                "participation_name": "periodic",
                "roster": (Seat(party="a", epsilon=1.0, delta=1e-5, weight=1.0, rate=0.3),),
            },
            "multiples of 1/1048576 in",
        ),
        (
            {"unit": "party", "roster": (Seat(party="a/1", epsilon=1.0, delta=1e-5, weight=1.0, rate=1.0),)},
            "privacy group",
        ),
        ({"pooled_teachers": 3, "unit": "party"}, "upsampling pools records"),
        ({"pooled_teachers": 0}, "pooled_teachers is 0; allowed"),
        ({"answer_rate": 1.5}, r"allowed: in \[0, 1\]"),
        ({"stop": "later"}, "allowed: first-exhausted"),
        ({"questions": "hardest"}, "questions is 'hardest'; allowed: given, uncertainty"),
        (
            {"questions": "uncertainty", "participation_name": "periodic"},
            "'uncertainty', but participation 'periodic' follows the pool's order; allowed: 'given'",
        ),
        (
            {
                "questions": "uncertainty",
                "mechanism": InteractiveGNMax(
                    sigma=40.0,
                    sigma_threshold=150.0,
                    threshold=0.5,
                    interactive_threshold=1.0,
                    reinforce_confidence=0.9,
                    round_one=10,
                ),
            },
            "'uncertainty', but interactive_gnmax splits the pool's order into two rounds",
        ),
    ],
)
def test_a_term_out_of_range_is_refused_with_value_and_range(change, reason):
    roster = change.get("roster")
    quorum = {"quorum": 1} if roster is not None else {}
    with pytest.raises(InvalidInput, match=reason):
        changed(STUDY, **{**quorum, "mechanism": LOW, **change})


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sigma = 40.0", "", ("sigma is missing",)),
        ("sigma = 40.0", 'sigma = "40"', ("sigma", 40)),
        ("sigma = 40.0", "sigma = true", ("sigma is True",)),
        ("classes = 10", "classes = 10.0", ("classes", "10.0")),
        ("sigma = 40.0", "sigma = 40.0\nsurprise = 1", ("surprise", 1, "confident_gnmax")),
        ("sigma = 40.0", "sigma = ", ("TOML",)),
        ("classes = 10", "classes = 10\nsurprise = 1", ("surprise",)),
        ('name = "confident_gnmax"', 'name = "max"', ("mechanism", "max", "thresholded_gnmax")),
        ('name = "confident_gnmax"', "", ("[mechanism]",)),
        ('party = "p1"', "", ("party",)),
    ],
)
def test_a_study_file_that_is_wrong_names_the_key(tmp_path, old, new, reason):
    path = tmp_path / "study.toml"
    path.write_text(write_study(STUDY).replace(old, new))
    with refuses(InvalidInput, *reason):
        read_study(path)
    with pytest.raises(InvalidInput, match="does not exist"):
        read_study(tmp_path / "absent.toml")


def test_whole_numbers_are_accepted_where_a_float_is_meant(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(write_study(STUDY).replace("sigma = 40.0", "sigma = 40"))
    assert read_study(path) == STUDY


def test_a_party_unit_moves_all_of_its_teachers_votes():
    assert STUDY.votes_per_unit == 3
    np.testing.assert_allclose(
        STUDY.budgets.answer / dataclasses.replace(STUDY, unit="record").budgets.answer > 1, True
    )
    with refuses(InvalidInput, "record, patient, party"):
        votes_per_unit("site", teachers=1)


def test_questions_are_not_chosen_where_no_labels_are_known_between_batches():
    study = {"two_rounds": None, "pattern": "secret"}
    check_questions("uncertainty", **study, hidden=False)
    check_questions("given", **study, hidden=True)
    with refuses(InvalidInput, "questions", "uncertainty"):
        check_questions("uncertainty", **study, hidden=True)


@pytest.mark.parametrize(
    "beside", ["teachers = 1", 'view = "histogram"', "query_limit = 16", 'questions = "given"', "answer_rate = 1.0",
               '[mechanism]\nname = "gnmax"\nsigma = 8.0\n']
)  # fmt: skip
def test_a_study_of_unit_sums_has_none_of_the_terms_of_teachers(tmp_path, beside):
    path = tmp_path / "study.toml"
    written = write_study(draft())
    path.write_text(written)
    assert read_study(path) == draft()
    path.write_text(beside + "\n" + written if "[" not in beside else written + "\n" + beside)
    key = beside.split()[0].strip("[]")
    with refuses(InvalidInput, key, "[records]"):
        read_study(path)
