"""The documentation is true: its commands run, its links lead somewhere, its tables are those of the program.

Every ```console block is run, in order, in one temporary folder a page, unless an HTML comment above it says
`not run: REASON`. Blocks of a page share that folder, all pages share one cache. No data set but the embedded ones.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow.parquet as pq
import pytest

from protocols.accounting.evidence import Evidence, Units
from protocols.accounting.private import Private
from protocols.accounting.rdp import rdp_to_epsilon
from protocols.errors import DataCorrupt
from protocols.mechanisms.gnmax import GNMax
from simulations.accountants import accountant_table
from simulations.audit.command import EXIT_REFUTED
from simulations.command import EXIT_CODES, cli, run_command
from simulations.experiment import Experiment, experiment, experiment_budgets, make_study
from simulations.plan import make_plan
from tests.docs.flag_tables import ACCOUNTANTS_PAGE, HOST, PAGE, options, page_with_accountants, page_with_tables

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorials" / "researcher.md"
SWEEP = ROOT / "docs" / "how-to" / "sweep-and-compare.md"
OUTPUTS = ROOT / "docs" / "reference" / "outputs.md"
LANGUAGES = {"console", "bash", "toml", "text", "python"}
_COMMANDS = {"console", "bash"}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n\Z", re.DOTALL)
_HEREDOC = re.compile(r"<<'(\w+)'$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text, line, and why it is not run (None: it is)."""

    language: str
    text: str
    line: int
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        reason = _NOT_RUN.search(before)
        found.append(Block(match[1], match[2], before.count("\n") + 1, reason and reason[1]))
    return found


def steps(block: Block) -> Iterator[list[str] | str]:
    """A block as arguments of conclave-simulate, where a line is no more than that, and as shell scripts."""
    lines = iter(block.text.splitlines())
    for line in lines:
        plain = line.startswith("conclave-simulate ") and not re.search(r"[|<>$&;\\`]", line)
        if plain:
            yield shlex.split(line)[1:]
            continue
        script = [line]
        if heredoc := _HEREDOC.search(line):
            for inner in lines:
                script.append(inner)
                if inner == heredoc[1]:
                    break
        yield "\n".join(script) + "\n"


RunPage = Callable[[Path], Path]


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunPage]:
    """Runs the blocks of a page, once, in a folder of its own, and returns that folder.

    Lines of conclave-simulate are run in this process, by the function that the command calls, as each start of
    Python with its packages takes seconds.
    """
    folders: dict[Path, Path] = {}
    here, terminate = Path.cwd(), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONCLAVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        for name in ("CONCLAVE_DATA", "RAY_ADDRESS"):
            patch.delenv(name, raising=False)

        def run(page: Path) -> Path:
            if page not in folders:
                folders[page] = tmp_path_factory.mktemp(page.stem)
                os.chdir(folders[page])
                for block in blocks(page):
                    if block.language in _COMMANDS and block.not_run is None:
                        _run_block(page, block)
            return folders[page]

        yield run
        os.chdir(here)
        signal.signal(signal.SIGTERM, terminate)


def _run_block(page: Path, block: Block) -> None:
    where = f"{page.relative_to(ROOT)}, block of line {block.line}"
    for step in steps(block):
        if isinstance(step, list):
            assert run_command(step) == 0, f"{where}: conclave-simulate {shlex.join(step)}"
        else:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", step], capture_output=True, text=True)
            assert done.returncode == 0, f"{where}: {step}{done.stderr}"


RUNNABLE = [p for p in PAGES if any(b.language in _COMMANDS and b.not_run is None for b in blocks(p))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_runs(page: Path, run_page: RunPage) -> None:
    assert any(run_page(page).iterdir())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_names_its_language_and_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"line {block.line}: language {block.language!r}"
        if block.not_run is not None:
            assert block.language in _COMMANDS, f"line {block.line}: only commands are run"
            assert len(block.not_run.split()) >= 3, f"line {block.line}: no reason"
    text = page.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(blocks(page)), "a fence is indented or not closed"
    assert text.count("<!-- not run:") == sum(block.not_run is not None for block in blocks(page))
    outside = _FENCE.sub("", text)
    assert not re.search(r"^ +(\$ )?conclave-simulate", outside, re.MULTILINE), "a command outside of a block"


def test_the_pages_that_teach_the_commands_are_run() -> None:
    names = {page.relative_to(ROOT / "docs").as_posix() for page in RUNNABLE}
    assert "tutorials/researcher.md" in names
    guides = {f"how-to/{path.name}" for path in (ROOT / "docs" / "how-to").glob("*.md")}
    assert guides - names == {"how-to/run-on-several-hosts.md", "how-to/add-a-part.md"}


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_internal_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{target} leads nowhere"
        assert to.is_relative_to(ROOT), f"{target} leads out of the repository"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", to.read_text(encoding="utf-8")), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_is_named_exists(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    pattern = r"`((?:protocols|party|coordinator|simulations|tests|benchmarks|docs|\.ci)/[\w./*-]*)`"
    for name in re.findall(pattern, text):
        if "NAME" not in name:
            assert list(ROOT.glob(name.rstrip("/"))), f"{name} does not exist"


def test_every_page_is_linked_from_another() -> None:
    linked = set()
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            to = (page.parent / target).resolve()
            linked |= {to, to / "README.md"} - {page}
    assert not [str(page) for page in PAGES if page not in linked and page != ROOT / "README.md"]


def test_the_architecture_names_every_module_in_a_line() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for package in ("protocols", "protocols/mechanisms", "protocols/accounting", "simulations", "simulations/audit"):
        for path in (ROOT / package).glob("*.py"):
            if path.name != "__init__.py":
                assert f"`{path.name}`" in text, path.relative_to(ROOT)
    named = set(re.findall(r"`(\w+\.py)`", text))
    assert not [name for name in named if not list(ROOT.glob(f"[!.]*/**/{name}"))]


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.glob("0*.md"):
        assert f"[{path.name[:4]}]({path.name})" in index


def test_the_picture_of_a_run_is_small() -> None:
    assert 10_000 < (ROOT / "docs" / "images" / "run.png").stat().st_size < 200_000


def test_the_tables_of_flags_are_those_of_the_command_line() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_with_tables(text), "run: python tests/docs/flag_tables.py"
    for command in cli.commands:
        assert f"`{command}" in text
        for option in options(command):
            for flag in (*option.opts, *option.secondary_opts):
                assert f"`{flag}`" in text, f"{flag} of {command}"


def test_the_table_of_accountants_is_that_of_the_program_and_each_has_a_section() -> None:
    text = ACCOUNTANTS_PAGE.read_text(encoding="utf-8")
    assert text == page_with_accountants(text), "run: python tests/docs/flag_tables.py"
    for row in accountant_table():
        assert f"| `{row.name}` | {'charges' if row.charges else 'analyses'} |" in text
        assert re.search(rf"^### {row.name}$", text, re.MULTILINE), f"no section on {row.name}"


def test_run_plan_and_sweep_share_the_settings_that_config_toml_stores() -> None:
    for command in ("run", "plan", "sweep"):
        names = {option.name for option in options(command)}
        assert {*Experiment.model_fields, *HOST} <= names


def section(page: Path, heading: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    parts = re.split(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return parts[parts.index(heading) + 1]


def names_of(table: str) -> set[str]:
    """The names in backquotes in the first column of a table."""
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_the_exit_codes_are_those_of_the_program() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section(PAGE, "Exit codes"), re.MULTILINE)}
    assert codes == {0, EXIT_REFUTED, 130} | {code for _, code in EXIT_CODES}


def keys(value: object, name: str = "") -> set[str]:
    """The keys of a JSON value, with dots for objects and [] for lists of objects."""
    if isinstance(value, dict):
        return {one for key, inner in value.items() for one in keys(inner, f"{name}.{key}".lstrip("."))}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {one for inner in value for one in keys(inner, f"{name}[]")}
    return {name}


@pytest.mark.slow
def test_every_file_and_key_of_a_run_is_described_and_no_other(run_page: RunPage) -> None:
    out = run_page(TUTORIAL) / "runs" / "exhaustive"
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    described = names_of(section(OUTPUTS, "A run")) - {".png"}
    described |= {name.replace(".svg", ".png") for name in described}
    assert written == described - {"private/parties.csv"}
    summary = json.loads((out / "summary.json").read_text())
    assert keys(summary) == names_of(section(OUTPUTS, "summary.json"))
    with (out / "parties.csv").open() as file:
        assert set(next(csv.reader(file))) == names_of(section(OUTPUTS, "parties.csv"))
    assert set(pq.read_schema(out / "queries.parquet").names) == names_of(section(OUTPUTS, "queries.parquet"))
    assert set(json.loads((out / "env.json").read_text())) == names_of(section(OUTPUTS, "env.json"))
    assert set(tomllib.loads((out / "config.toml").read_text())) <= set(Experiment.model_fields)
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
    assert set(findings) == names_of(section(OUTPUTS, "findings.json")) - {"retraining"}
    with (folder / "parties.csv").open() as file:
        columns = next(csv.reader(file))
    assert columns[:2] == ["party", "epsilon_guaranteed"]
    # What the tutorial says of this run.
    names = ["papernot2018", "papernot2018 (expected)", "exact"]
    assert columns[2:] == [f"private: {name}" for name in names]
    for party in findings["parties"]:
        assert party["exact"] < party["papernot2018"] < party["epsilon_guaranteed"]


@pytest.mark.slow
def test_every_column_of_a_sweep_is_described(run_page: RunPage) -> None:
    out = run_page(SWEEP) / "runs" / "sweep"
    with (out / "sweep.csv").open() as file:
        columns = set(next(csv.reader(file)))
    described = names_of(section(OUTPUTS, "A sweep")) - {".png"}
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    files = {name for name in described if "." in name}
    assert written == files | {name.replace(".svg", ".png") for name in files}
    # This sweep trains no students.
    assert columns - {"weights", "budgets", "sigma"} == described - files - {"student_accuracy"}


def _json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert run_command([*arguments, "--json"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.slow
def test_every_key_of_a_plan_and_of_a_comparison_is_described(
    run_page: RunPage, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _json_of(capsys, "plan", "--dataset", "digits", "--parties", "40", "--budgets", "4", "--quiet")
    assert keys(plan) == names_of(section(OUTPUTS, "A plan"))
    runs = run_page(SWEEP) / "runs"
    comparison = _json_of(capsys, "compare", str(runs / "a"), str(runs / "b"))
    named = set(re.findall(r"`(\w+)`", section(OUTPUTS, "A comparison")))
    for key in keys(comparison):
        assert key.rpartition(".")[2] in named


def _answers(weights: str, accountant: str) -> tuple[list[int], int]:
    """What the default study affords: answers of each budget, and of the study."""
    settings = experiment(parties=250, weights=weights, accountant=accountant)
    budgets = experiment_budgets(settings)
    plan = make_plan(make_study(settings, budgets, classes=10, queries=10_000), budgets)
    return [group.answers_all for group in plan.groups], plan.answers_all


def test_the_numbers_on_weights_and_epsilons_are_those_of_a_plan() -> None:
    text = (ROOT / "docs" / "explanation" / "weights.md").read_text(encoding="utf-8")
    for rule in ("uniform", "proportional", "exhaustive"):
        groups, study = _answers(rule, "label_only")
        assert re.search(rf"^\| `{rule}`: .*\| {' | '.join(map(str, groups))} \| {study} \|$".replace(
            " | ", r" \| "), text, re.MULTILINE), f"{rule}: {groups}, {study}"  # fmt: skip
    text = (ROOT / "docs" / "explanation" / "what-each-epsilon-means.md").read_text(encoding="utf-8")
    label_only, gaussian = _answers("exhaustive", "label_only")[1], _answers("exhaustive", "gaussian")[1]
    assert f"{label_only} answers under `label_only` and {gaussian} under `gaussian`" in text


def example(number: int, folder: Path) -> ModuleType:
    """A Python block of the page on adding parts, as a module."""
    page = ROOT / "docs" / "how-to" / "add-a-part.md"
    source = [block.text for block in blocks(page) if block.language == "python"][number]
    (folder / "example.py").write_text(source)
    spec = importlib.util.spec_from_file_location("example", folder / "example.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018  one condition to the type checker
    module = importlib.util.module_from_spec(spec)
    sys.modules["example"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["example"]
    return module


def test_the_example_of_an_accountant_gives_what_its_formula_says(tmp_path: Path) -> None:
    account = example(1, tmp_path).ReleasedGaussian()
    given = Evidence(
        mechanism=GNMax(sigma=10.0),
        counts=np.array([[30.0, 10.0], [25.0, 15.0], [20.0, 20.0]]),
        answered=np.array([True, True, False]),
        student_votes=None,
    )
    present = np.array([[True, True, True], [False, True, True], [False, False, True]])
    units = Units(sensitivity=np.array([1.0, 2.0, 1.0]), delta=np.full(3, 1e-5), present=present, own_votes=None)
    figures = account.figures(given, units)
    assert isinstance(figures, Private)
    found = figures.for_research()
    want = rdp_to_epsilon(np.array([0.02, 0.04, 0.0]) * found.order, found.order, delta=np.full(3, 1e-5))
    np.testing.assert_allclose(found.epsilon, want)


def test_the_example_of_a_teacher_does_what_a_teacher_must(tmp_path: Path) -> None:
    kind = example(0, tmp_path).majority(device="cpu")
    inputs = np.zeros((5, 3), dtype=np.float32)
    (teacher,) = kind.fit([(inputs, np.array([2, 1, 1, 0, 1]))], classes=3, seeds=[0])
    teacher.save(tmp_path / "teacher")
    np.testing.assert_array_equal(kind.load(tmp_path / "teacher").predict(inputs), np.ones(5, dtype=np.int64))
    (tmp_path / "teacher").write_bytes(b"{")
    with pytest.raises(DataCorrupt):
        kind.load(tmp_path / "teacher")
