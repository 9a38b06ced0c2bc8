"""What a sweep may start from."""

import pytest

from protocols.errors import InvalidInput
from simulations.setup.experiment import experiment, write_config
from simulations.sweep.cells import read_sweep


def test_the_config_of_a_run_is_the_base_of_a_sweep_unless_it_asked_for_figures_that_a_sweep_has_not(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(write_config(experiment(parties=30, budgets="4")))
    found = read_sweep(path, given={}, overrides={"sigma": [4.0, 8.0]})
    assert [settings.parameters for settings in found.settings] == [{"sigma": 4.0}, {"sigma": 8.0}]
    for name, value in (("attack", True), ("groups", "sex")):
        path.write_text(write_config(experiment(**{name: value})))
        with pytest.raises(InvalidInput, match=f"{name} adds figures that a sweep does not have"):
            read_sweep(path, given={}, overrides={"sigma": [4.0, 8.0]})
