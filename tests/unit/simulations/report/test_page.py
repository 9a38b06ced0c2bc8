"""What a run says to try next."""

import pytest

from simulations.report.page import advised, doubts


@pytest.mark.parametrize(
    ("alone", "together", "records", "said"),
    [(0.9, 0.6, None, True), (0.6, 0.9, None, False), (0.9, None, None, False),
     (None, 0.6, None, False)],
)  # fmt: skip
def test_record_votes_are_advised_where_teachers_voted_and_their_student_is_worse_than_one_party(
    alone, together, records, said
):
    figures = {
        "baselines": {"single_party_accuracy_mean": alone},
        "student_accuracy": together,
        "record_votes": records,
    }
    assert (advised(figures, of_columns=True) is not None) == said


@pytest.mark.parametrize(
    ("pooled", "half", "of_columns", "said"),
    [(0.9, None, True, True), (0.9, 0.2, True, False), (0.9, None, False, False), (0.82, None, True, False),
     (None, None, True, False)],
)  # fmt: skip
def test_clusters_are_advised_where_records_voted_in_columns_and_pooled_data_are_far_better(
    pooled, half, of_columns, said
):
    figures = {
        "baselines": {"single_party_accuracy_mean": 0.7, "non_private_student_accuracy": pooled},
        "student_accuracy": 0.8,
        "student_accuracy_ci95": half,
        "record_votes": {"pool_records_labelled": 120},
    }
    advice = advised(figures, of_columns=of_columns)
    assert (advice is not None and "10.0 points better" in advice and "columns+clusters:20`" in advice) == said


@pytest.mark.parametrize(
    ("cost", "said"),
    [({"cost": -0.03, "cost_low": -0.05, "cost_high": -0.01}, True),
     ({"cost": -0.01, "cost_low": -0.03, "cost_high": 0.01}, False),
     ({"cost": 0.03, "cost_low": 0.01, "cost_high": 0.05}, False), (None, False)],
)  # fmt: skip
def test_a_student_above_the_ceiling_by_more_than_the_paired_interval_is_in_the_verdict(cost, said):
    found = doubts({"warnings": [], "by_group": None, "student_accuracy": 0.8,
                    "baselines": {"cost": cost, "majority_class_accuracy": None}})  # fmt: skip
    assert len(found) == said
    assert not said or ("3.0 points" in found[0][0] and not found[0][1])
