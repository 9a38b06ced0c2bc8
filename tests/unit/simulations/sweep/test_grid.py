"""What a sweep may start from, and what it says of its winner."""

import pandas as pd
import pytest

from protocols.errors import InvalidInput
from protocols.plural import at_most
from simulations.setup.experiment import experiment, write_config
from simulations.sweep.cells import read_sweep
from simulations.sweep.report import _verdict
from tests.harness.refusals import refuses


def test_the_config_of_a_run_is_the_base_of_a_sweep_unless_it_asked_for_figures_that_a_sweep_has_not(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(write_config(experiment(parties=30, budgets="4")))
    found = read_sweep(path, given={}, overrides={"sigma": [4.0, 8.0]})
    assert [settings.parameters for settings in found.settings] == [{"sigma": 4.0}, {"sigma": 8.0}]
    for name, value in (("attack", True), ("groups", "sex")):
        path.write_text(write_config(experiment(**{name: value})))
        with refuses(InvalidInput, name):
            read_sweep(path, given={}, overrides={"sigma": [4.0, 8.0]})


@pytest.mark.parametrize(("accuracies", "least"), [((0.7, 0.8, 0.9), True), ((0.7, 0.9, 0.8), False)])
def test_the_winner_of_a_sweep_is_said_to_be_the_least_private_where_it_is(accuracies, least):
    rows = [
        {"note": "", "budgets": str(epsilon), "repetitions": 2, "epsilon_guaranteed_max": epsilon,
         "student_accuracy": each, "student_accuracy_low": each - 0.01, "student_accuracy_high": each + 0.01}
        for epsilon, each in zip((0.5, 1.0, 8.0), accuracies, strict=True)
    ]  # fmt: skip
    settings = pd.DataFrame([{**row, "repeated": "seeds"} for row in rows])
    html = _verdict(settings, ("budgets",))
    assert ("least private" in html) == least
    for row in rows:
        assert f"ε {at_most(row['epsilon_guaranteed_max'])}: {100 * row['student_accuracy']:.1f}" in html
