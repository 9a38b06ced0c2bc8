"""Tables of the pages hold the numbers of what made them: stored results of long runs, and bounds that take no time.

A comment `measured: NAME.csv` above a table says that it was made of tests/vectors/measured/NAME.csv, the rows of a run
of `baselines` (SOURCES.md). Bounds are computed again.
"""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from benchmarks.bayesian import bayesian_cost
from benchmarks.papers import find_papers
from benchmarks.papers.paper import number
from benchmarks.papers.written import from_tidy, papers_markdown
from protocols.bounds.label_only import label_rdp
from protocols.bounds.lattice_label_only import lattice_label_rdp
from protocols.bounds.secret_sampling import sampled_label_gaussian_rdp
from protocols.study.plan import make_plan
from simulations.baselines import METHODS
from simulations.baselines.table import markdown, means
from simulations.groups import FEWEST
from simulations.membership.attack import advantage_ceiling, area_ceiling, true_positive_ceiling
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.label import mean_and_interval
from tests.harness.pages import PAGES, ROOT

STORED = ROOT / "tests" / "vectors" / "measured"
MARKED = [
    (page, name, table)
    for page in PAGES
    for name, table in re.findall(
        r"^<!-- measured: ([\w-]+\.csv) -->\n((?:\|.*\n)+)", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    if "value" not in pd.read_csv(STORED / name, nrows=0)  # of those test_tables.py makes the table
]


def stored(name: str) -> pd.DataFrame:
    numbers = ("epsilon", "delta", "accuracy", "parties_that_gain", "labels")
    return pd.read_csv(STORED / name, keep_default_na=False, na_values={column: [""] for column in numbers})


def rows_below(page: str, head: str) -> list[list[str]]:
    """The cells of the table with this head, row by row."""
    text = (ROOT / "docs" / "explanation" / page).read_text(encoding="utf-8")
    table = re.search(rf"^{re.escape(head)}\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None, head
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def by_group_of_methods(rows: pd.DataFrame) -> str:
    """by_group.csv of a comparison of `pate` with `pooled`: groups of at least 20 records in the mean."""
    shown = "| by | group | test records | student | pooled | cost of privacy, points |\n|---|---|---|---|---|---|\n"
    for (by, group), found in rows.groupby(["attribute", "group"], sort=False):
        if (records := found["records"].mean()) >= FEWEST:
            student, pooled = (100 * of.set_index("seed")["accuracy"] for _, of in found.groupby("method"))
            mean, half = mean_and_interval((pooled - student).to_numpy())
            shown += f"| {by} | {group} | {records:.0f} | {student.mean():.1f} % | {pooled.mean():.1f} % | "
            shown += f"{mean:+.1f} ± {half:.1f} |\n"
    return shown


def test_a_table_of_stored_results_is_theirs(subtests: pytest.Subtests) -> None:
    assert MARKED
    for page, name, table in MARKED:
        with subtests.test(f"{page.stem}-{name}"):
            check(stored(name), table)


def check(rows: pd.DataFrame, table: str) -> None:
    """A table shows some of the epsilons of its rows."""
    if "group" not in rows:
        shown = [float(epsilon) for epsilon in re.findall(r"ε = ([\d.]+)", table.partition("\n")[0])]
        assert 1.0 in shown
        assert table == markdown(means(rows[rows["epsilon"].isna() | rows["epsilon"].isin(shown)]))
    else:
        assert table == by_group_of_methods(rows)


def test_the_page_of_reproduced_papers_is_that_of_its_run() -> None:
    text = (ROOT / "docs" / "reference" / "reproduced-papers.md").read_text(encoding="utf-8")
    _, mark, page = text.partition(" of the cells in tests/vectors/measured/papers.csv -->\n\n")
    cells = pd.read_csv(STORED / "papers.csv")
    assert mark
    assert page == papers_markdown(from_tidy(cells, find_papers("all")))
    assert len(cells) > 100


def test_labels_of_both_assignments_of_weights_are_those_of_the_run() -> None:
    head = "| table | row | printed | in proportion to budgets | as the published program assigns them |"
    (paper,) = find_papers("individualized")
    cells = {
        (one.table.name, cell.row, cell.figure): cell
        for one in from_tidy(pd.read_csv(STORED / "papers.csv"), [paper])
        for cell in one.cells
    }
    rows = rows_below("../how-to/reproduce-a-paper.md", head)
    assert len(rows) >= 6
    for table, row, *said in rows:
        ours, published = (cells[table.strip("`"), row, f"labels, Weight{how}"] for how in ("", " as published"))
        shown = [number(cell.ours, "count", half=cell.half) for cell in (ours, published)]
        assert said == [number(ours.printed, "count"), *shown]


def test_what_follows_from_the_comparison_is_what_its_runs_say() -> None:
    text = (ROOT / "docs" / "explanation" / "when-pate-is-wrong.md").read_text(encoding="utf-8")
    said = re.findall(
        r"`(\w+)` at\s+ε\s+=\s+(\d+):\s+([\d,]+)\s+labels,\s+better\s+than\s+(\d+)\s+%\s+of\s+the\s+parties", text
    )
    assert len(said) >= 4
    for name, epsilon, labels, gain in said:
        table = means(stored(f"{name}.csv"))
        of = table[(table["method"] == "pate") & (table["epsilon"] == float(epsilon))].iloc[0]
        found = (round(of["labels"]), round(100 * of["parties_that_gain"]))
        assert (int(labels.replace(",", "")), int(gain)) == found
    compared = re.findall(
        r"`(\w+)`[^`]*?(had a larger mean than|was within (\d+) points? of) `(\w+)` on (.*?) "
        r"at every ε from ([\d.]+) on",
        re.sub(r"\s+", " ", text),
    )
    assert len(compared) >= 3
    for method, how, points, other, sets, first in compared:
        for name in re.findall(r"`(\w+)`", sets):
            table = means(stored(f"{name}.csv")).set_index(["method", "epsilon"])["accuracy"]
            for epsilon in (each for each in (0.1, 0.5, 1.0, 2.0, 8.0) if each >= float(first)):
                more = 100 * (table[method, epsilon] - table[other, epsilon])
                assert abs(more) <= float(points) if points else more > 0, (method, how, name, epsilon)
    for name in METHODS:
        assert f"| `{name}` |" in text


def test_what_a_coin_saves_is_what_its_bound_says() -> None:
    rows = rows_below("secret-sampling.md", "| d | order | g = 0.1 | g = 0.3 | g = 0.5 | g = 0.9 |")
    rates = np.array([0.1, 0.3, 0.5, 0.9])
    assert len(rows) == 4
    for shift, order, *said in rows:
        d, a = float(shift), float(order)
        found = sampled_label_gaussian_rdp(np.full(4, d), rates, np.array([a]))[:, 0] / (a * d**2)
        assert said == [f"{share:.3f}" for share in found]


def test_what_integer_noise_adds_to_the_price_of_a_label_is_what_its_bound_says() -> None:
    ((_, *said),) = rows_below("lattice-noise.md", "| s = Sσ in units | 64 | 256 | 1,000 | 2,560 | 6,400 | 64,000 |")
    orders, found = np.array([2.0, 16.0]), []
    for units in (64, 256, 1000, 2560, 6400, 64_000):
        votes = np.array([max(1, round(units / 40))])
        lattice = lattice_label_rdp(votes, orders, sigma_units=units, classes=3)
        found.append(100 * (lattice / label_rdp(votes[:, None] / units, orders[None], classes=3) - 1).max())
    assert [share.removesuffix(" %") for share in said] == [
        f"{share:.{len(text.partition('.')[2].split()[0])}f}" for share, text in zip(found, said, strict=True)
    ]


def test_ceilings_of_membership_attacks_are_what_their_formulas_say() -> None:
    rows = rows_below("membership-attack.md", "| | at most | epsilon 1 | epsilon 2 | epsilon 3 |")
    epsilon, delta = np.array([1.0, 2.0, 3.0]), np.full(3, 1e-5)
    ceilings = {
        "AUC": [f"{each:.3f}" for each in area_ceiling(epsilon=epsilon, delta=delta)],
        "advantage": [f"{each:.3f}" for each in advantage_ceiling(epsilon=epsilon, delta=delta)],
        "TPR at FPR 1 %": [
            f"{100 * each:.1f} %" for each in true_positive_ceiling(np.full(3, 0.01), epsilon=epsilon, delta=delta)
        ],
    }
    assert {name: shown for name, _, *shown in rows} == ceilings


def test_how_often_a_confidence_of_a_typical_case_fails_is_exact() -> None:
    rows = rows_below("../../benchmarks/typical-case.md", "| rare record: share, x | N = 20 | N = 100 | N = 1000 |")
    assert len(rows) == 3
    for case, *said in rows:
        share, x = map(float, case.split(", "))
        true = np.log1p(share * np.expm1(x))
        for size, text in zip((20, 100, 1000), said, strict=True):
            fails = 0.0
            for rare in range(size + 1):  # of a sample; more of them only raise the estimate
                sample = np.where(np.arange(size) < rare, x, 0.0)[:, None]
                cost = bayesian_cost(sample, np.ones(1), total=1, confidence=1 - 1e-6).for_research().costs[0]
                if cost >= true:
                    break
                fails += binom.pmf(rare, size, share)
            assert text == f"{fails:.{len(text.partition('.')[2])}f}"


def test_what_exact_composition_affords_is_what_a_plan_says() -> None:
    afforded = {}
    for name in ("label_only", "exact_composition"):
        for budget in ("1", "2", "3"):
            settings = experiment(
                parties=250, weights="uniform", budgets=budget, sigma=52.5, threshold=150.0, accountant=name
            )
            budgets = experiment_budgets(settings)
            afforded[name, budget] = make_plan(make_study(settings, budgets, classes=10, queries=9000)).answers_all
    (_, renyi, exact), (_, renyi_both, exact_both) = rows_below(
        "exact-composition.md", "| | Rényi filter | exact composition |"
    )
    assert [renyi, exact] == [f"{afforded['label_only', '2']} queries", f"{afforded['exact_composition', '2']}"]
    for said, name in ((renyi_both, "label_only"), (exact_both, "exact_composition")):
        assert said == f"{afforded[name, '1']} and {afforded[name, '3']:,}"
