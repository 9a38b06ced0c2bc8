"""The documentation is true: its commands run, its links lead somewhere, its examples work.

Every ```console block is run, in order, in one temporary folder a page, unless an HTML comment above it says
`not run: REASON`. Blocks of a page share that folder, all pages share one cache. No data set but the embedded ones.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from protocols.bounds.rdp import rdp_to_epsilon
from protocols.errors import DataCorrupt
from protocols.mechanisms.gnmax import GNMax
from protocols.research import DATA_DEPENDENT
from protocols.research.data_dependent import QueryVotes, Units
from protocols.research.private import Private
from protocols.study.plan import make_plan
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from tests.harness.distributions import example, install, refreshed
from tests.harness.pages import COMMANDS, FENCE, LANGUAGES, PAGES, ROOT, Call, RunPage, blocks, slug, steps

_ROOMS = r"protocols|party|coordinator|guardian|runtime|conclave|simulations|tests|benchmarks|deploy|docs|\.ci"
NAMED = re.compile(rf"`((?:{_ROOMS})/[\w./*-]*)`")
RUNNABLE = [p for p in PAGES if any(b.language in COMMANDS and b.not_run is None for b in blocks(p))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_runs(page: Path, run_page: RunPage) -> None:
    assert any(run_page(page).iterdir())


def test_every_block_names_its_language_and_what_is_not_run_says_why(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(str(page.relative_to(ROOT))):
            for block in blocks(page):
                assert block.language in LANGUAGES, f"line {block.line}: language {block.language!r}"
                if block.not_run is not None:
                    assert block.language in COMMANDS, f"line {block.line}: only commands are run"
                    assert len(block.not_run.split()) >= 3, f"line {block.line}: no reason"
            text = page.read_text(encoding="utf-8")
            assert text.count("```") == 2 * len(blocks(page)), "a fence is indented or not closed"
            assert text.count("<!-- not run:") == sum(block.not_run is not None for block in blocks(page))
            outside = FENCE.sub("", text)
            assert not re.search(r"^ +(\$ )?conclave-simulate", outside, re.MULTILINE), "a command outside of a block"


def test_a_first_release_takes_as_many_command_lines_as_the_tutorial_says() -> None:
    page = ROOT / "docs" / "tutorials" / "operator.md"
    said = re.search(r"that was (\d+) command lines of the operator and (\d+) of each hospital", page.read_text())
    assert said is not None
    end = page.read_text()[: said.start()].count("\n")
    scripts = [
        f"conclave-{step.program} {' '.join(step.arguments)}" if isinstance(step, Call) else step
        for block in blocks(page)
        if block.line < end and block.not_run is None
        for step in steps(block)
    ]
    lines = [line for script in scripts if "<<" not in script for line in script.splitlines()]
    operator = sum("conclave-coordinator " in line for line in lines)
    hospital = sum("conclave-party " in line and line.partition("--home ")[2].startswith("north") for line in lines)
    assert (operator, hospital) == (int(said[1]), int(said[2]))
    assert operator + 4 * (hospital + 1) <= 25  # of an operator and four hospitals, each with a mapping file


def test_the_pages_that_teach_the_commands_are_run() -> None:
    names = {page.relative_to(ROOT / "docs").as_posix() for page in RUNNABLE}
    assert "tutorials/researcher.md" in names
    guides = {f"how-to/{path.name}" for path in (ROOT / "docs" / "how-to").glob("*.md")}
    # An index; people alone; a cluster, a registry and Helm; a clone, data sets and published votes.
    needs_more = {f"how-to/{name}.md" for name in ("install", "run-a-consortium", "kubernetes", "reproduce-a-paper")}
    assert guides - names == {"how-to/run-on-several-hosts.md", "how-to/add-a-part.md"} | needs_more


def test_every_internal_link_leads_to_a_file_and_a_heading_and_every_path_exists(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(str(page.relative_to(ROOT))):
            text = FENCE.sub("", page.read_text(encoding="utf-8"))
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if target.startswith(("http://", "https://")):
                    continue
                path, _, anchor = target.partition("#")
                to = (page.parent / path).resolve() if path else page
                assert to.exists(), f"{target} leads nowhere"
                assert to.is_relative_to(ROOT), f"{target} leads out of the repository"
                if anchor:
                    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", to.read_text(encoding="utf-8")), re.MULTILINE)
                    assert anchor in {slug(heading) for heading in headings}, f"{target}: no such heading"
            for name in NAMED.findall(text):
                if "NAME" not in name:
                    assert list(ROOT.glob(name.rstrip("/"))), f"{name} does not exist"


def test_every_page_is_linked_from_another() -> None:
    linked = set()
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            to = (page.parent / target).resolve()
            linked |= {to, to / "README.md"} - {page}
    assert not [str(page) for page in PAGES if page not in linked and page != ROOT / "README.md"]


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = ("protocols", "party", "coordinator", "simulations")
    for package in packages:
        rooms = {init.parent.name for init in (ROOT / package).glob("*/__init__.py")}
        assert not [room for room in rooms if f"`{room}/`" not in text], package
    drawn = " ".join(re.findall(r"^    .*", text, re.MULTILINE)).split()
    assert {*packages, "runtime", "guardian", "conclave"} <= set(drawn)
    modules = {path.name for path in (ROOT / "protocols").glob("*.py") if path.name != "__init__.py"}
    named = set(re.findall(r"`([a-z_]+\.py)`", text))
    assert not modules - named
    assert not [name for name in named if not list(ROOT.glob(f"[!.]*/**/{name}"))]
    folders = {place.name for package in packages for place in (ROOT / package).rglob("*/")} | {*packages, "guardian"}
    assert not [name for name in re.findall(r"`([a-z_]+)/`", text) if name not in folders]


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for path in folder.glob("0*.md"):
        assert f"[{path.name[:4]}]({path.name})" in index


def _answers(weights: str, accountant: str) -> tuple[list[int], int]:
    """What the default study affords: answers of each budget, and of the study."""
    settings = experiment(parties=250, weights=weights, accountant=accountant)
    budgets = experiment_budgets(settings)
    plan = make_plan(make_study(settings, budgets, classes=10, queries=10_000))
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


def loaded(start: str, folder: Path) -> ModuleType:
    """The Python block of the page on adding parts whose docstring begins so, as a module."""
    (folder / "example.py").write_text(example(start))
    spec = importlib.util.spec_from_file_location("example", folder / "example.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018  one condition to the type checker
    module = importlib.util.module_from_spec(spec)
    sys.modules["example"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["example"]
    return module


def test_the_example_of_an_accountant_gives_what_its_formula_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, source = {"released_gaussian": "released_labels:ReleasedGaussian"}, example("The Gaussian bound of")
    install(tmp_path, name="released_labels", group="conclave.analyses", entries=entries, source=source)
    monkeypatch.syspath_prepend(str(tmp_path))
    account = refreshed(DATA_DEPENDENT)["released_gaussian"]
    given = QueryVotes(
        mechanism=GNMax(sigma=10.0),
        counts=np.array([[30.0, 10.0], [25.0, 15.0], [20.0, 20.0]]),
        abstentions=False,
        answered=np.array([True, True, False]),
        student_votes=None,
    )
    present = np.array([[True, True, True], [False, True, True], [False, False, True]])
    weights = np.array([1.0, 2.0, 1.0])
    units = Units(sensitivity=weights, cast=weights, delta=np.full(3, 1e-5), present=present, own_votes=None)
    figures = account.figures(given, units)
    assert isinstance(figures, Private)
    found = figures.for_research()
    want = rdp_to_epsilon(np.array([0.02, 0.04, 0.0]) * found.order, found.order, delta=np.full(3, 1e-5))
    np.testing.assert_allclose(found.epsilon, want)


def test_the_example_of_a_teacher_does_what_a_teacher_must(tmp_path: Path) -> None:
    kind = loaded("The most frequent class", tmp_path).majority(device="cpu")
    inputs = np.zeros((5, 3), dtype=np.float32)
    (teacher,) = kind.fit([(inputs, np.array([2, 1, 1, 0, 1]))], classes=3, seeds=[0])
    teacher.save(tmp_path / "teacher")
    np.testing.assert_array_equal(kind.load(tmp_path / "teacher").predict(inputs), np.ones(5, dtype=np.int64))
    (tmp_path / "teacher").write_bytes(b"{")
    with pytest.raises(DataCorrupt):
        kind.load(tmp_path / "teacher")
