"""Figures on the papers' own votes: real data, so skipped with the reason where it is absent."""

import os
from pathlib import Path

import pytest

from benchmarks.published_votes import ClassicConversion, mean_answers
from protocols.budgets.accountant import ACCOUNTANTS, GaussianRdp, LabelOnly

needs_data = pytest.mark.skipif(
    not (Path(os.environ.get("CONCLAVE_DATA", "")) / "pate_votes").is_dir(), reason="CONCLAVE_DATA has no pate_votes"
)


@needs_data
@pytest.mark.parametrize(("accountant", "expected"), [(LabelOnly, 249), (GaussianRdp, 160), (ClassicConversion, 118)])
def test_the_answers_that_epsilon_two_affords_on_the_papers_mnist_votes(accountant, expected, monkeypatch):
    """T 200, sigma1 150, sigma2 40, delta 1e-5: the mean of 20 seeds, whose own standard error is below 1."""
    monkeypatch.setattr("protocols.budgets.accountant.ACCOUNTANTS", dict(ACCOUNTANTS))
    answers, asked, accuracy = mean_answers(accountant())
    assert answers == pytest.approx(expected, abs=3)
    assert 0.4 < answers / asked < 0.47
    assert accuracy > 0.93
