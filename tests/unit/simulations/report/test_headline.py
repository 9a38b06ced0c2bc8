"""What a run says to try next."""

import pytest

from simulations.report.headline import advised


@pytest.mark.parametrize(
    ("alone", "together", "records", "said"),
    [(0.9, 0.6, None, True), (0.6, 0.9, None, False), (0.9, 0.6, {}, False), (0.9, None, None, False),
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
    assert (advised(figures) is not None) == said
