"""The settings of a run: what its config.toml keeps is what it was."""

import pytest

from protocols.errors import InvalidInput
from protocols.study.votes import TeacherVotes, UnitSums
from simulations.setup.experiment import experiment, experiment_budgets, make_study, read_config, setting, write_config
from tests.harness.refusals import refuses


@pytest.mark.parametrize("given", [{}, {"weights": "proportional"}, *(
    {"individualization": way} for way in ("vanishing", "secret-vanishing", "upsampling")
)])  # fmt: skip
def test_a_stored_config_is_the_config(tmp_path, given):
    settings = experiment(parties=10, budgets="4:0.5,8:0.5", sigma=3.0, **given)
    (tmp_path / "config.toml").write_text(write_config(settings))
    found = read_config(tmp_path / "config.toml")
    assert found == settings
    studies = [make_study(each, experiment_budgets(each), classes=3, queries=20) for each in (settings, found)]
    assert studies[0].digest == studies[1].digest


@pytest.mark.parametrize(
    ("name", "value", "held"),
    [
        ("budgets", 4, "4"), ("parties", "12", 12), ("parties", 12.0, 12), ("delta", "1e-6", 1e-6),
        ("sigma", 16.0, 16.0),
        ("sigma", "3", 3), ("baselines", "false", False), ("seeds", [0, 3], (0, 3)), ("classes", None, None),
        ("votes_by", "record", UnitSums), ("votes_by", TeacherVotes, TeacherVotes),
    ],
)  # fmt: skip
def test_a_setting_is_held_as_what_it_is_whether_it_came_as_text_or_not(name, value, held):
    found = setting(name, value)
    assert (found, type(found)) == (held, type(held))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parties", 2.5), ("parties", True), ("parties", 0), ("parties", None), ("bins", 1001), ("delta", float("nan")),
        ("dataset", 3), ("view", "labels"), ("seeds", ()), ("seeds", [-1]), ("seeds", "0"), ("votes_by", "nobody"),
        ("baselines", "maybe"), ("sigma", "much"), ("unit", []),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_and_named(name, value):
    with refuses(InvalidInput, name):
        setting(name, value)


def test_a_config_names_the_noise_that_nobody_gave_and_other_parties_get_their_own(tmp_path):
    settings = experiment(parties=10, budgets="8")
    study = make_study(settings, experiment_budgets(settings), classes=3, queries=200)
    (tmp_path / "config.toml").write_text(write_config(settings, study))
    assert (tmp_path / "config.toml").read_text().endswith("# by default: sigma = 3, threshold = 6.5\n")
    assert read_config(tmp_path / "config.toml") == settings
    given = experiment(parties=10, budgets="8", sigma=3.0)
    assert "by default" not in write_config(given, study)
