"""The own model before and after: intervals against an independent computation, what is counted, what is refused."""

import numpy as np
import pytest
from scipy.stats import binomtest

from party.asking.report import check_model, improve
from party.data.records import Records
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import Precision
from tests.harness.refusals import refuses

PRECISION = Precision(input_bound=8.0)


def records(count, seed, *, flipped=0.0):
    """Rows whose first feature says the class."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-4, 4, (count, 4)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    return Records(inputs, np.where(rng.random(count) < flipped, 1 - labels, labels))


def improved(own, test, queries, labels, kind="logistic_regression"):
    return improve(kind, own, test, queries, labels, classes=2, seed=1, precision=PRECISION)


def test_right_labels_help_and_each_figure_follows_from_the_others():
    own, test, asked = records(8, 1, flipped=0.4), records(400, 2), records(60, 3)
    found = improved(own, test, asked.inputs, asked.labels)
    assert found.accuracy_after > 0.9 > found.accuracy_before
    assert found.gained - found.lost == round(400 * (found.accuracy_after - found.accuracy_before))
    assert (found.own_records, found.answered, found.test_records) == (8, 60, 400)
    for when in ("before", "after"):
        share = getattr(found, f"accuracy_{when}")
        expected = binomtest(round(400 * share), 400).proportion_ci(0.95, method="wilson")
        assert getattr(found, f"interval_{when}") == pytest.approx((expected.low, expected.high), abs=1e-6)
        assert getattr(found, f"error_{when}") == pytest.approx(np.sqrt(share * (1 - share) / 400))
    # Fixed point has some 2^-11 of resolution: of 60 records next to none lies so near to the boundary.
    assert found.agreement > 0.95


def test_queries_without_a_label_train_nothing():
    own, test, asked = records(30, 1), records(50, 2), records(20, 3)
    labels = np.full(20, -1)
    found = improved(own, test, asked.inputs, labels)
    assert found.answered == found.gained == found.lost == 0
    assert found.accuracy_before == found.accuracy_after
    labels[:5] = 1 - asked.labels[:5]
    assert improved(own, test, asked.inputs, labels).answered == 5


def test_an_interval_of_few_records_that_are_all_right_stays_within_one():
    own, test, asked = records(200, 1), records(1, 2), records(20, 3)
    found = improved(own, test, asked.inputs, asked.labels)
    low, high = found.interval_after
    assert 0 <= low < high <= 1


def test_a_kind_that_cannot_be_computed_in_fixed_point_has_no_agreement():
    own, test, asked = records(30, 1), records(50, 2), records(20, 3)
    assert improved(own, test, asked.inputs, asked.labels, kind="random_forest").agreement is None


def test_without_test_records_and_of_kinds_that_are_not_trained_here_nothing_is_scored():
    own, asked = records(30, 1), records(20, 3)
    with refuses(InvalidInput, "0 test records"):
        improved(own, records(0, 2), asked.inputs, asked.labels)
    for kind in ("onnx", "oracle"):
        with pytest.raises(InvalidInput, match=f"^--model is '{kind}'; allowed: cnn, mlp, (?!.*onnx)(?!.*teachers)"):
            check_model(kind)
    with pytest.raises(InvalidInput, match=r"^--model is 'nothing_here:Model', which cannot be imported"):
        check_model("nothing_here:Model")
    check_model("logistic_regression")
