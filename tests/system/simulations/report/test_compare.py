import json

import pytest

from protocols.errors import DataCorrupt, InvalidInput
from simulations.report.compare import compare_runs
from simulations.results.files import write_results
from tests.harness.refusals import refuses
from tests.harness.stored_runs import stored_run, with_students


def written(folder, name, *, students=None, **settings):
    votes = folder / "votes"
    votes.mkdir(exist_ok=True)
    run = stored_run(votes, **settings)
    write_results(run if students is None else with_students(run, students), folder / name)
    return folder / name


@pytest.fixture
def shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")

    def printed(comparison) -> str:
        comparison.show()
        return capsys.readouterr().out

    return printed


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three seeds with uniform and with proportional weights, on the same votes."""
    folder = tmp_path_factory.mktemp("runs")
    return (
        written(folder, "a", seeds=(0, 1, 2), weights="uniform", students=[0.80, 0.82, 0.84]),
        written(folder, "b", seeds=(0, 1, 2), weights="proportional", students=[0.85, 0.88, 0.91]),
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run with the settings of stored_run; another one in its folder reads the same votes from the same file."""
    return written(tmp_path_factory.mktemp("plain"), "a")


def test_settings_that_differ_are_listed_and_no_others(runs):
    comparison = compare_runs(*runs)
    assert [(s.name, s.a, s.b) for s in comparison.settings] == [("weights", "uniform", "proportional")]
    assert comparison.warnings == []


def test_figures_stand_side_by_side_with_their_paired_interval(runs):
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    figures = {figure.name: figure for figure in compare_runs(*runs).figures}
    student = figures["student accuracy"]
    assert (student.a, student.b) == (pytest.approx(0.82), pytest.approx(0.88))
    # Differences 0.05, 0.06, 0.07; Student's t with two degrees of freedom: 4.3027 * 0.01 / sqrt(3).
    assert student.difference == pytest.approx(0.06)
    assert student.half_width == pytest.approx(0.024841, abs=1e-6)
    labels = figures["labels or sums released"]
    assert (labels.a, labels.b) == tuple(summary["answered"] for summary in summaries)
    assert labels.difference == labels.b - labels.a
    assert figures["not for release: non-private model"].half_width is None


def test_a_run_against_itself_differs_in_nothing(runs, shown):
    comparison = compare_runs(runs[0], runs[0])
    assert comparison.settings == comparison.warnings == []
    assert {figure.difference for figure in comparison.figures} == {0.0}
    assert "All settings are the same." in shown(comparison)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"unit": "party"}, "unit is record in a, party in b"),
        ({"view": "histogram"}, "view is label in a, histogram in b"),
        ({"accountant": "gaussian_dp"}, "accountant is gaussian in a, gaussian_dp in b"),
        ({"delta": 1e-6}, "delta is 1e-05 in a, 1e-06 in b"),
        ({"queries": 100}, "queries is the default in a, 100 in b"),
    ],
)
def test_runs_that_cannot_be_compared_are_marked(plain, settings, warning, shown):
    # The same votes and the same file, so only what is named differs.
    comparison = compare_runs(plain, written(plain.parent, "-".join(settings), **settings))
    assert [warning in text for text in comparison.warnings] == [True]
    assert f"Not comparable: {warning}" in shown(comparison)


def test_a_folder_without_a_finished_run_is_refused_by_name(runs, tmp_path):
    with refuses(InvalidInput, tmp_path, "summary.json"):
        compare_runs(runs[0], tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[1, 2]",
        lambda text: text.replace('"groups"', '"grupps"'),
        lambda text: json.dumps({**json.loads(text), "label_accuracy": "0.9"}),
        lambda text: json.dumps({**json.loads(text), "seeds": [{"answered": 3}]}),
        lambda text: json.dumps({**json.loads(text), "asked": True}),
    ],
)
def test_a_damaged_summary_is_corrupt_data(runs, tmp_path, damage):
    for name in ("summary.json", "config.toml"):
        (tmp_path / name).write_text((runs[0] / name).read_text())
    damaged = damage((runs[0] / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(damaged)
    with refuses(DataCorrupt, "summary.json"):
        compare_runs(runs[0], tmp_path)


def test_a_missing_or_broken_configuration_is_refused(runs, tmp_path):
    (tmp_path / "summary.json").write_text((runs[0] / "summary.json").read_text())
    with refuses(InvalidInput, "config.toml"):
        compare_runs(runs[0], tmp_path)
    (tmp_path / "config.toml").write_text("parties = = 3")
    with refuses(InvalidInput, "TOML"):
        compare_runs(runs[0], tmp_path)
