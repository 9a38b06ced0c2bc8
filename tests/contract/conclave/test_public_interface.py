"""The public interface: its names, its examples, what importing it costs, and that it is the simulator's own code."""

import csv
import doctest
import importlib
import inspect
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import conclave
from protocols.installing import install
from runtime.distribution import BRINGS
from simulations.commands.group import run_command
from tests.harness.engine_here import running_here
from tests.harness.python_page import PAGE, page
from tests.harness.refusals import refuses
from tests.harness.undrawn import undrawn as undrawn

MODULES = ("accounting", "labelling", "records", "studies")
SETTINGS: dict[str, dict[str, str]] = {
    "defaults": {},
    "gnmax, proportional": {"mechanism": "gnmax", "weights": "proportional"},
    "lnmax, uniform": {"mechanism": "lnmax", "weights": "uniform", "gamma": "0.2"},
    "histogram": {"view": "histogram", "sigma": "12"},
    "vanishing": {"individualization": "vanishing"},
    "secret vanishing": {"individualization": "secret-vanishing", "mechanism": "gnmax"},
    "drop-exhausted with drop-outs": {"stop": "drop-exhausted", "dropout": "0.2"},
}


def _votes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Votes of 60 parties on 150 queries of 3 classes, the truth, and two budgets."""
    rng = np.random.default_rng(5)
    truth = rng.integers(3, size=150)
    votes = np.where(rng.random((60, 150)) < 0.85, truth, rng.integers(3, size=(60, 150)))
    return votes, truth, np.repeat([2.0, 5.0], 30)


def _typed(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


@pytest.mark.parametrize("module", MODULES)
def test_every_example_is_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"conclave.{module}"))
    assert found.attempted > 5
    assert found.failed == 0


def test_every_name_is_there_and_every_function_has_an_example() -> None:
    assert sorted(conclave.__all__) == dir(conclave)
    for name in conclave.__all__:
        one = getattr(conclave, name)
        if not isinstance(one, int):
            assert inspect.getdoc(one), name
        if inspect.isfunction(one) and name != "read_study":  # the example of write_study reads it back
            assert f"conclave.{name}(" in str(inspect.getdoc(one)), name
    with refuses(AttributeError, "nothing"):
        _ = conclave.nothing  # type: ignore[attr-defined]  # that is the test


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "numpy scipy pandas pydantic click simulations protocols"
    code = f"import sys, conclave; print([name for name in {heavy.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_whose_packages_are_missing_says_what_to_install() -> None:
    code = "import sys; sys.modules['scipy'] = None; import conclave; conclave.label"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"conclave.label needs scipy, which is not installed: {install('sim')}" in done.stderr
    code = "import sys; sys.modules['pyarrow'] = None; import conclave; conclave.run(" + (
        "budgets='4', delta=1e-5, unit='record', view='label')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"conclave.run needs pyarrow, which is not installed: {install('sim')}" in done.stderr


def test_labels_and_accounting_need_protocols_alone_and_labels_are_the_same_so() -> None:
    absent = sorted({module for modules in BRINGS.values() for module in modules})
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); import numpy as np, conclave\n"
        "votes = np.random.default_rng(1).integers(3, size=(40, 60))\n"
        "for noise in ({}, {'mechanism': 'gnmax', 'sigma': 4.0}):\n"
        "    found = conclave.label(votes, epsilon=8.0, delta=1e-5, unit='record', view='label', **noise)\n"
        "    print(found.labels.tolist())\n"
        "conclave.epsilon_after, conclave.privacy_curve\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'simulations', 'coordinator', 'guardian', "
        "'party', 'runtime'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, others = done.stdout.splitlines()
    assert others == "[]"
    votes = np.random.default_rng(1).integers(3, size=(40, 60))
    for line, noise in zip(lines, ({}, {"mechanism": "gnmax", "sigma": 4.0}), strict=True):
        found = conclave.label(votes, epsilon=8.0, delta=1e-5, unit="record", view="label", **noise)
        assert json.loads(line) == found.labels.tolist()


@pytest.mark.parametrize("room", ["simulations", "protocols", "party"])
def test_a_folder_beside_a_script_that_takes_the_place_of_a_package_is_named(tmp_path: Path, room: str) -> None:
    folder = tmp_path / room
    folder.mkdir()
    (folder / "__init__.py").touch()
    (tmp_path / "script.py").write_text("import conclave; conclave.run")
    # Without site, as the hooks of an editable installation find parts of a package that is replaced.
    paths = os.pathsep.join([str(Path(conclave.__file__).parents[1]), sysconfig.get_path("purelib")])
    done = subprocess.run(
        [sys.executable, "-S", tmp_path / "script.py"], capture_output=True, text=True, env={"PYTHONPATH": paths}
    )
    assert str(folder) in done.stderr.splitlines()[-1]
    assert "pip install" not in done.stderr


def test_a_table_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, _, epsilon = _votes()
    result = conclave.label(votes, epsilon=epsilon, delta=1e-5, unit="record", view="label")
    assert list(result.to_pandas()["epsilon"]) == epsilon.tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refuses(conclave.InvalidInput, "pandas", "pip install"):
        result.to_pandas()


def test_a_truth_of_more_labels_than_queries_is_refused_and_doubtful_votes_and_deltas_are_warned_of() -> None:
    votes, truth, epsilon = _votes()
    given = {"delta": 1e-5, "unit": "record", "view": "label"}
    with pytest.warns(match="transposed"), refuses(conclave.InvalidInput, 150, 60, "transposed"):
        conclave.label(votes.T, epsilon=epsilon[0], truth=truth, **given)
    with pytest.warns(match="at least 60 records"):
        conclave.replay(votes, budgets=[4.0], **(given | {"delta": 0.05}))
    with pytest.warns(match="there are 60 parties"):
        conclave.label(votes, epsilon=4.0, **(given | {"delta": 0.05, "unit": "party"}))
    with refuses(conclave.InvalidInput, "list"):
        conclave.replay(votes, budgets=1.0, **given)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("called", SETTINGS)
def test_labels_and_spends_are_those_of_the_simulator_bit_for_bit(
    called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    votes, truth, epsilon = _votes()
    np.save("votes.npy", votes)
    rows = [f"party-{i:02d},{each},1e-05" for i, each in enumerate(epsilon)]
    Path("budgets.csv").write_text("\n".join(["party,epsilon,delta", *rows]) + "\n")
    flags = [f"--{name}={value}" for name, value in SETTINGS[called].items()]
    files = ["--votes=votes.npy", "--votes-kind=ids", "--budgets=budgets.csv", "--out=out"]
    assert run_command(["run", *files, *flags, "--seeds=7", "--no-baselines", "--quiet"]) == 0

    settings = {name: _typed(value) for name, value in SETTINGS[called].items()}
    ours = conclave.label(
        votes, epsilon=epsilon, delta=1e-5, unit="record", truth=truth, seed=7, **({"view": "label"} | settings)
    )
    assert ours.labels.tolist() == pq.read_table("out/queries.parquet")["label"].to_pylist()
    with open("out/parties.csv", newline="") as file:
        theirs = list(csv.DictReader(file))
    assert [float(row["spent"]) for row in theirs] == ours.study.budgets.spend(ours.spent).tolist()
    assert [float(row["weight"]) for row in theirs] == ours.weight.tolist()
    assert [float(row["epsilon_spent"]) for row in theirs] == ours.epsilon_spent.tolist()
    assert [float(row["epsilon_guaranteed"]) for row in theirs] == ours.epsilon_guaranteed.tolist()
    assert [row["party"] for row in theirs] == list(ours.parties)
    assert len(ours.answered) > 0


def test_votes_counted_beforehand_give_the_labels_of_uniform_weights() -> None:
    votes, _, _ = _votes()
    counts = np.stack([(votes == c).sum(axis=0) for c in range(3)], axis=1).astype(float)
    common = {"epsilon": 3.0, "delta": 1e-5, "unit": "record", "view": "label"}
    of_ids = conclave.label(votes, **common, weights="uniform")
    assert conclave.label(counts, **common).labels.tolist() == of_ids.labels.tolist()


def test_a_replay_gives_what_each_budget_gives_alone() -> None:
    votes, truth, epsilon = _votes()
    given = {"delta": 1e-5, "unit": "record", "view": "label", "truth": truth}
    many = conclave.replay(votes, budgets=[1e-4, 2.0, epsilon], seeds=(0, 1), **given)
    assert many.results[:2] == (None, None)
    assert "0.0001" in many.notes[0]
    alone = conclave.label(votes, epsilon=epsilon, seed=1, **given)
    last = many.results[-1]
    assert last is not None
    assert last.labels.tolist() == alone.labels.tolist()
    assert last.spent.tolist() == alone.spent.tolist()
    table = many.to_pandas()
    assert table["answered"].tolist()[-1] == len(alone.answered)
    assert table["seed"].tolist() == [0, 1] * 3


@pytest.mark.parametrize("budgets", [[1e-4, 0.01], [0.01, 1e-4], [1e-4], [2.0, 1e-4]])
def test_a_budget_that_affords_nothing_is_a_note_in_any_order(budgets: list[float]) -> None:
    many = conclave.replay(_votes()[0], budgets=budgets, delta=1e-5, unit="record", view="label")
    assert [bool(note) for note in many.notes] == [each < 1 for each in budgets]
    assert [one is None for one in many.results] == [each < 1 for each in budgets]


@pytest.mark.parametrize("budgets", [[2.0, 1e-4], [1e-4, 2.0], [1e-4]])
def test_a_setting_that_is_wrong_under_every_budget_is_named_in_any_order(budgets: list[float]) -> None:
    with refuses(conclave.InvalidInput, "quorum", 5000):
        conclave.replay(_votes()[0], budgets=budgets, delta=1e-5, unit="record", view="label", quorum=5000)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"dataset": "adult"}, "dataset is no term of a study; allowed: parties, "),
        ({"attack": True}, "attack is no term"),
        ({"accountant": "papernot2018"}, "accountant is 'papernot2018'"),
        ({"sigmas": 3.0}, "unknown setting 'sigmas'"),
        ({"name": ""}, "the name '' is empty"),
    ],
)
def test_a_study_takes_only_its_terms(setting: dict[str, object], says: str) -> None:
    terms = {"budgets": "2", "delta": 1e-5, "unit": "record", "view": "label", "classes": 10, "queries": 100}
    assert conclave.define_study(parties=3, name="heart", **terms).name == "heart"
    with pytest.raises(conclave.InvalidInput, match=says):
        conclave.define_study(parties=3, **terms, **setting)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"epsilon": -1.0}, ("-1.0", 0)),
        ({"delta": 1.0}, ("delta", "1.0", "(0, 1)")),
        ({"epsilon": [1.0, 2.0]}, ("(2,)", 60)),
        ({"teacher": "cnn"}, ("unknown setting 'teacher'",)),
        ({"seed": -1}, (-1, 0)),
        ({"accountant": "papernot2018"}, ("papernot2018",)),
        ({"sigmas": 3.0}, ("sigmas",)),
        ({"classes": 2}, ("[0, 2]", "[0, 1]")),
        ({"names": ["a", "a"]}, (2, 1, 60)),
        ({"mechanism": "interactive_gnmax"}, ("trains a student; it cannot replay stored votes",)),
    ],
)
def test_what_is_out_of_range_is_said_with_the_value_and_the_range(given: dict[str, object], says: str) -> None:
    votes, _, _ = _votes()
    with refuses(conclave.InvalidInput, *says):
        conclave.label(votes, **({"epsilon": 2.0, "delta": 1e-5, "unit": "record", "view": "label"} | given))


def test_votes_of_unequal_rows_are_refused() -> None:
    with refuses(conclave.InvalidInput, "votes"):
        conclave.label([[0, 1], [0]], epsilon=2.0, delta=1e-5, unit="record", view="label")


def test_a_study_is_written_whole_also_to_a_new_folder(tmp_path: Path) -> None:
    study = conclave.define_study(
        parties=3, budgets="2", delta=1e-5, unit="record", view="label", classes=2, queries=10
    )
    conclave.write_study(study, tmp_path / "new" / "study.toml")
    assert conclave.read_study(tmp_path / "new" / "study.toml") == study
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["study.toml"]


def test_a_budget_that_affords_no_query_is_told_before_anything_is_released() -> None:
    votes, _, _ = _votes()
    with refuses(conclave.BudgetExceeded, "0.01"):
        conclave.label(votes, epsilon=0.01, delta=1e-5, unit="record", view="label")


def test_queries_afforded_are_those_of_the_plan_of_a_study() -> None:
    noise = {"mechanism": "gnmax", "sigma": 20.0}
    study = conclave.define_study(
        parties=100, budgets="1:0.5,4:0.5", weights="uniform", delta=1e-5, unit="record", view="label", classes=10,
        queries=1000, accountant="exact_composition", **noise,
    )  # fmt: skip
    planned = [group.answers_all for group in conclave.plan(study).groups]
    alone = conclave.queries_afforded(
        "gnmax", sigma=20.0, epsilon=[1.0, 4.0], delta=1e-5, view="label", sensitivity=1.0, classes=10,
        total_weight=100.0, query_limit=1000, accountant="exact_composition",
    )  # fmt: skip
    assert alone.tolist() == planned


def test_an_epsilon_of_queries_is_that_of_their_curve() -> None:
    given = {"view": "label", "sensitivity": 1.0, "classes": 10, "sigma": 30.0}
    curve = conclave.rdp_curve("gnmax", **given)
    assert conclave.epsilon_after(500, "gnmax", delta=1e-6, **given) == (curve * 500).to_epsilon(delta=1e-6)[0]
    with refuses(conclave.InvalidInput, "gaussian_dp"):
        conclave.rdp_curve("gnmax", accountant="gaussian_dp", **given)
    for bad in ({"sigma": [30.0]}, {"sigma": 3 + 1j}, {"classes": 2.5}, {"sensitivity": 0.0}, {"sensitivity": [1, 2]}):
        with refuses(conclave.InvalidInput):
            conclave.rdp_curve("gnmax", **(given | bad))
    with refuses(conclave.InvalidInput, "0 <= answered <= queries"):
        conclave.epsilon_after(5, "gnmax", answered=6, delta=1e-6, **given)


def test_a_run_is_that_of_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--parties=20", "--private-size=400", "--queries=60", "--student=none", "--budgets=4", "--no-attack"]
    places = ["--engine=in_process", "--workers=1", "--cache-dir=cache", "--out=out"]
    with running_here():
        assert run_command(["run", *flags, *places, "--no-baselines", "--quiet"]) == 0
    ours = conclave.run(
        parties=20, private_size=400, queries=60, student="none", budgets="4", delta=1e-5, unit="record",
        view="label", attack=False, baselines=False, cache_dir="cache",
    )  # fmt: skip
    assert ours.labels.tolist() == pq.read_table("out/queries.parquet")["label"].to_pylist()
    assert ours.to_pandas()["size"].sum() == 20


def test_the_page_of_the_reference_is_made_of_the_docstrings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/harness/python_page.py"
