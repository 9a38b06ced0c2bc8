"""The usual student: by the number of labels, and where records of a table vote by the public number of units."""

import pytest

from coordinator.students import STUDENTS, usual_table_student
from coordinator.students.choice import usual_student
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


@pytest.mark.parametrize(
    ("labels", "image", "student"),
    [
        (1999, True, "label_spreading"),
        (2000, True, "cnn"),
        (499, False, "logistic_regression"),
        (500, False, "gradient_boosting"),
    ],
)
def test_few_labels_get_a_student_that_needs_few_and_the_reason_says_so(labels, image, student):
    chosen = usual_student(labels, image=image)
    assert (chosen.kind, chosen.scores) == (student, ())
    assert chosen.why.endswith("labels")
    assert student in STUDENTS
