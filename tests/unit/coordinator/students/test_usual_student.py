"""What is chosen for a table where records vote: of the public number of protected units alone."""

import pytest

from coordinator.students import STUDENTS, usual_table_student
from protocols.study.column_queries import usual_bins


@pytest.mark.parametrize(
    ("units", "student", "bins"),
    [
        (2, "logistic_regression", 2),
        (1999, "logistic_regression", 2),
        (2000, "gradient_boosting", 10),
        (80_000, "gradient_boosting", 10),
    ],
)
def test_few_units_get_few_cells_and_a_linear_student_many_get_more_of_both(units, student, bins):
    assert usual_table_student(units) == student
    assert student in STUDENTS
    assert usual_bins(units) == bins
