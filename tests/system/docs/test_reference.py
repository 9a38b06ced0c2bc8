"""The reference is that of the program: flags, accountants, exit codes, and every file and key that a run writes."""

import csv
import json
import re
import tomllib
from typing import get_args

import pyarrow.parquet as pq
import pytest

from coordinator.encoders import ENCODERS
from coordinator.queries import POOL_ORDERS
from coordinator.students import STUDENTS
from party.teachers import TEACHERS
from protocols.budgets.accountant import ACCOUNTANTS
from protocols.labelling.schedule import STOP_MEANINGS, StopReason
from protocols.mechanisms import MECHANISMS, mechanism_parameters
from protocols.refusals.code import Code
from runtime.exits import Exit, SimulationExit
from simulations.baselines import METHODS
from simulations.commands.group import run_command
from simulations.datasets import DATASETS
from simulations.setup.accountants import accountant_table
from simulations.setup.experiment import SETTINGS
from tests.harness.pages import OUTPUTS, ROOT, RunPage, keys, names_of, section
from tests.system.docs.flag_tables import (
    ACCOUNTANTS_PAGE,
    ERRORS_PAGE,
    EXIT_MEANINGS,
    HOST,
    PAGE,
    SIMULATION_EXIT_MEANINGS,
    WIRE_PAGE,
    commands,
    options,
    page_with_accountants,
    page_with_codes,
    page_with_ranges,
    page_with_stops,
    page_with_tables,
)

TUTORIAL = ROOT / "docs" / "tutorials" / "researcher.md"
RECORDS = ROOT / "docs" / "how-to" / "let-records-vote.md"
ASKING = ROOT / "docs" / "how-to" / "ask-the-consortium-in-simulation.md"
SWEEP = ROOT / "docs" / "how-to" / "sweep-and-compare.md"
# The pages list the parts of Conclave; help lists those of other distributions, too.
PARTS = (ACCOUNTANTS, DATASETS, ENCODERS, MECHANISMS, METHODS, POOL_ORDERS, STUDENTS, TEACHERS)
of_conclave_alone = pytest.mark.skipif(
    any(table.added for table in PARTS), reason="parts of other distributions are installed"
)


@of_conclave_alone
def test_the_tables_of_flags_are_those_of_the_command_line() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_with_tables(text), "run: python tests/system/docs/flag_tables.py"
    for command in commands("simulate"):
        assert f"`{command}" in text
        for option in options(command):
            for flag in (*option.opts, *option.secondary_opts):
                assert f"`{flag}`" in text, f"{flag} of {command}"


@of_conclave_alone
def test_the_table_of_accountants_is_that_of_the_program_and_each_has_a_section() -> None:
    text = ACCOUNTANTS_PAGE.read_text(encoding="utf-8")
    assert text == page_with_accountants(text), "run: python tests/system/docs/flag_tables.py"
    for row in accountant_table():
        assert f"- `{row.name}`: {'charges, publishable' if row.charges else 'analyses, private'};" in text
        assert re.search(rf"^### {row.name}$", text, re.MULTILINE), f"no section on {row.name}"


def test_the_table_of_ranges_is_that_of_the_program() -> None:
    text = WIRE_PAGE.read_text(encoding="utf-8")
    assert text == page_with_ranges(text), "run: python tests/system/docs/flag_tables.py"
    assert text.count("`Settled.spent`") == 1


def test_the_tables_of_codes_are_those_of_the_program() -> None:
    text = ERRORS_PAGE.read_text(encoding="utf-8")
    assert text == page_with_codes(text), "run: python tests/system/docs/flag_tables.py"
    assert set(re.findall(r"^- `([a-z_]+)` \(", text, re.MULTILINE)) == set(Code)


def test_the_table_of_reasons_to_stop_is_that_of_the_program() -> None:
    text = OUTPUTS.read_text(encoding="utf-8")
    assert text == page_with_stops(text), "run: python tests/system/docs/flag_tables.py"
    assert names_of(section(OUTPUTS, "Why labelling stops")) == set(get_args(StopReason)) == set(STOP_MEANINGS)


def test_run_plan_and_sweep_share_the_settings_that_config_toml_stores() -> None:
    for command in ("run", "plan", "sweep"):
        names = {option.name for option in options(command)}
        assert {*SETTINGS, *mechanism_parameters(), *HOST} <= names


def test_the_exit_codes_are_those_of_the_program() -> None:
    assert EXIT_MEANINGS.keys() == set(Exit)
    assert SIMULATION_EXIT_MEANINGS.keys() == set(SimulationExit)
    for heading, meanings in (
        ("Exit codes of conclave-simulate", SIMULATION_EXIT_MEANINGS),
        ("Exit codes of conclave-party, conclave-coordinator and conclave-guardian", EXIT_MEANINGS),
    ):
        rows = re.findall(r"^\| (\d+) \| (.*) \|$", section(PAGE, heading), re.MULTILINE)
        assert rows == [(f"{code:d}", meaning) for code, meaning in meanings.items()]


@pytest.mark.slow
def test_every_file_and_key_of_a_run_is_described_and_no_other(run_page: RunPage) -> None:
    out = run_page(TUTORIAL) / "runs" / "exhaustive"
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    described = names_of(section(OUTPUTS, "A run")) - {".png"}
    described |= {name.replace(".svg", ".png") for name in described}
    of_records = {"sums.parquet", "pool.parquet"}
    # Without --attack or an accountant that analyses, nothing private is written: the next test has what they write.
    assert written == {name for name in described - of_records if not name.startswith("private/")}
    records = run_page(RECORDS) / "runs" / "records"
    assert {path.name for path in records.glob("*.parquet")} == of_records
    summary = json.loads((out / "summary.json").read_text())
    found = keys(summary) | keys(json.loads((records / "summary.json").read_text()))
    asking = json.loads((run_page(ASKING) / "runs" / "ask" / "summary.json").read_text())
    found |= keys(asking["asker"], "asker")
    # The page has the parameters of every mechanism, a run those of its own.
    other_mechanisms = {f"mechanism.{name}" for name in mechanism_parameters()} - found
    assert found == names_of(section(OUTPUTS, "summary.json")) - other_mechanisms
    assert set(pq.read_schema(records / "sums.parquet").names) == names_of(section(OUTPUTS, "sums.parquet"))
    described = names_of(section(OUTPUTS, "pool.parquet")) - {"...", "finding"}  # several findings
    assert set(pq.read_schema(records / "pool.parquet").names) == described
    for name in ("by_group.csv", "calibration.csv"):
        with (out / name).open() as file:
            assert set(next(csv.reader(file))) == names_of(section(OUTPUTS, name))
    with (out / "parties.csv").open() as file:
        assert set(next(csv.reader(file))) == names_of(section(OUTPUTS, "parties.csv"))
    assert set(pq.read_schema(out / "queries.parquet").names) == names_of(section(OUTPUTS, "queries.parquet"))
    assert set(json.loads((out / "env.json").read_text())) == names_of(section(OUTPUTS, "env.json"))
    assert set(tomllib.loads((out / "config.toml").read_text())) <= {*SETTINGS, *mechanism_parameters()}
    # What the tutorial says of this run.
    assert 0.9 < min(group["share_of_budget_used"] for group in summary["groups"])
    assert summary["answered"] > 1.5 * summary["baselines"]["minimum_budget_uniform"]["answered"]


@pytest.mark.slow
def test_every_private_file_and_key_of_a_run_is_described_and_no_other(run_page: RunPage) -> None:
    folder = run_page(TUTORIAL) / "runs" / "analysed" / "private"
    described = {name.removeprefix("private/") for name in names_of(section(OUTPUTS, "A run")) if "private/" in name}
    described |= {name.replace(".svg", ".png") for name in described}
    assert {path.name for path in folder.iterdir()} == described
    findings = json.loads((folder / "findings.json").read_text())
    assert set(findings) == names_of(section(OUTPUTS, "findings.json")) - {"details"}
    with (folder / "parties.csv").open() as file:
        columns = next(csv.reader(file))
    assert columns[:2] == ["party", "epsilon_guaranteed"]
    # What the tutorial says of this run.
    names = ["papernot2018 (realised)", "papernot2018 (expected)"]
    kinds = ("", " order", " by Mironov 2017", " by Mironov 2017 order")
    assert columns[2:] == [f"private: {name}{kind}" for name in names for kind in kinds]
    for party in findings["parties"]:
        assert 0 < party["papernot2018 (realised)"] < party["epsilon_guaranteed"]


@pytest.mark.slow
def test_every_column_of_a_sweep_is_described(run_page: RunPage) -> None:
    out = run_page(SWEEP) / "runs" / "sweep"
    described = names_of(section(OUTPUTS, "A sweep")) - {".png", ".pdf"}
    files = {name for name in described if "." in name}
    drawn = {name.replace(".svg", other) for name in files for other in (".png", ".pdf")}
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {name for name in written if "finished/" not in name} == (files | drawn) - {"finished/*.json"}
    varied = {"weights", "budgets", "sigma"}
    columns = set(pq.read_schema(out / "sweep.parquet").names)
    assert columns == (described - files - {"repeated", "repetitions"}) | varied
    with (out / "intervals.csv").open() as file:
        means = {name for name in next(csv.reader(file)) if not name.endswith(("_low", "_high"))}
    left_out = {"data_seed", "seed", "share_of_budget_used_max", "study_digest"}
    assert means == (described - files - left_out) | varied


def _json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert run_command([*arguments, "--json"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_what_a_level_affords_is_what_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "how-to" / "choose-a-level.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)(.*?)` \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for level, flags, if_all, if_half in rows:
        plan = _json_of(capsys, "plan", "--parties", "250", "--budgets", "3", "--sigma", "40", "--quiet",
                        "--confidentiality", level, *flags.split())  # fmt: skip
        assert (plan["answers_if_all_answered"], plan["answers_if_half_answered"]) == (int(if_all), int(if_half))


@pytest.mark.slow
def test_every_key_of_a_plan_and_of_a_comparison_is_described(
    run_page: RunPage, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _json_of(capsys, "plan", "--dataset", "digits", "--parties", "40", "--budgets", "4", "--quiet")
    assert keys(plan) == names_of(section(OUTPUTS, "A plan")) - (set(mechanism_parameters()) - keys(plan))
    runs = run_page(SWEEP) / "runs"
    comparison = _json_of(capsys, "compare", str(runs / "a"), str(runs / "b"))
    named = set(re.findall(r"`(\w+)`", section(OUTPUTS, "A comparison")))
    for key in keys(comparison):
        assert key.rpartition(".")[2] in named
