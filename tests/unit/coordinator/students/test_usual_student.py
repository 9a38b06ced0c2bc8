"""The usual student: by the number of labels, and where records of a table vote by the public number of units."""

import numpy as np
import pytest

from coordinator.students import STUDENTS, usual_table_student
from coordinator.students.choice import ToLearn, usual_student
from protocols.study.column_queries import usual_bins
from protocols.study.votes import TeacherVotes, UnitSums


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
    chosen = usual_student(TeacherVotes, ToLearn(side=28 * image, labels=labels))
    assert (chosen.kind, chosen.scores) == (student, ())
    assert chosen.why.endswith("labels")
    assert student in STUDENTS


@pytest.mark.parametrize(
    ("shape", "labels", "graded", "student"),
    [
        ((9,), 99, True, "scores"),
        ((9,), 99, False, "gradient_boosting"),
        ((8, 8), 99, True, "scores"),
        ((28, 28), 99, True, "cnn"),
        ((28, 28, 3), 1999, True, "scores"),
        ((28, 28, 3), 2000, True, "cnn"),
        ((8, 8), 99, False, "cnn"),
    ],
)
def test_graded_votes_of_rows_are_a_student_and_images_have_one_that_learns_them(shape, labels, graded, student):
    given = ToLearn.of(np.zeros((1, *shape), np.float32), labels=labels, units=5000, graded=graded)
    assert usual_student(UnitSums, given).kind == student
