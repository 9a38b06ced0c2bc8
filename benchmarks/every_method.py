"""The tables of benchmarks/every-method.md: every method on every data set at every epsilon.

    pip install ./benchmarks interpret-core
    python -m benchmarks.every_method --out runs/every_method

A cell that --out holds is not run again, so the command goes on where it was stopped. It takes one core; started twice,
with other data sets, it takes two. --store puts the rows beside those of tests/vectors/measured, in the place of rows
of the same method, epsilon and seed, and the tables of the page follow from all of them.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pandas as pd

from simulations.baselines.cells import Comparison, comparison_settings, parse_epsilons, parse_methods, run_comparison
from simulations.baselines.table import markdown, means, tidy
from simulations.progress import Reporter
from simulations.stages.inputs import Host

ROOT: Final = Path(__file__).resolve().parents[1]
STORED: Final = ROOT / "tests" / "vectors" / "measured"
PAGE: Final = ROOT / "benchmarks" / "every-method.md"
FIVE: Final = tuple(range(5))
SETS: Final[dict[str, dict[str, object]]] = {
    "heart_disease": {"partition": "by-site", "seeds": tuple(range(10))},
    "adult": {"private_size": 5000, "queries": 2000, "parties": 50, "seeds": FIVE},
    "diabetes130": {"private_size": 5000, "queries": 2000, "parties": 50, "seeds": FIVE},
    "garments": {
        "private_size": 4000, "queries": 600, "parties": 40, "student": "logistic_regression", "seeds": FIVE,
    },
    "street_digits": {
        "private_size": 5000, "queries": 1000, "parties": 50, "student": "logistic_regression", "seeds": FIVE,
    },
    "pneumoniamnist": {"parties": 20, "seeds": FIVE},
}  # fmt: skip
# In the order of the tables. Those of other tables: dp_sgd_cnn, idp_sgd.
METHODS: Final = (
    "majority", "alone", "pooled", "pooled_linear", "fedavg", "pate", "record_votes", "graded_votes",
    "graded_twice", "dp_sgd_rounds", "dp_sgd",
    "adassp", "dp_ebm", "output_perturbation", "dp_fedavg", "dp_ftrl",
)  # fmt: skip
EPSILONS: Final = "0.1,0.5,1,2,8"
_KEPT: Final = ["method", "epsilon", "delta", "protects", "seed", "accuracy", "parties_that_gain", "labels", "note"]
_NUMBERS: Final = ("epsilon", "delta", "accuracy", "parties_that_gain", "labels")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what the arguments name, one data set after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"{', '.join(SETS)} [all]")
    parser.add_argument("--methods", default=",".join(METHODS), help="between commas [all of the tables]")
    parser.add_argument("--epsilons", default=EPSILONS, help=f"between commas [{EPSILONS}]")
    parser.add_argument("--seeds", type=int, help="so many of the first alone")
    parser.add_argument("--out", type=Path, required=True, help="folder of finished cells")
    parser.add_argument("--store", action="store_true", help="write the rows and the page's tables")
    said = parser.parse_args(arguments)
    if unknown := set(said.sets) - set(SETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; allowed: {', '.join(SETS)}")
    methods, epsilons = parse_methods(said.methods), parse_epsilons(said.epsilons)
    data = os.environ.get("CONCLAVE_DATA")
    for name in said.sets or SETS:
        given = dict(SETS[name])
        if said.seeds is not None:
            given["seeds"] = tuple(range(said.seeds))
        rows = run_comparison(
            Comparison(comparison_settings({"dataset": name, **given}), methods, epsilons, "auto"),
            host=Host(
                data_dir=Path(data) if data else None, cache_dir=said.out / "cache", engine="in_process", workers=1
            ),
            reporter=Reporter(quiet=False),
            kept=said.out / "finished",
        )
        found = tidy(rows)[_KEPT]
        if said.store:
            store(name, found)
        print(f"\n{name}\n\n{markdown(means(found))}", flush=True)


def stored(name: str) -> pd.DataFrame:
    """The rows of a data set that are stored."""
    missing = {column: [""] for column in _NUMBERS}
    return pd.read_csv(STORED / f"{name}.csv", keep_default_na=False, na_values=missing)


def store(name: str, found: pd.DataFrame) -> None:
    """Puts the rows beside those that are stored, and the table of all of them on the page."""
    both = pd.concat([stored(name), found.fillna({"note": ""})], ignore_index=True)
    both = both.drop_duplicates(["method", "epsilon", "seed"], keep="last")
    order = [*METHODS, *(set(both["method"]) - set(METHODS))]
    both = both.assign(at=both["method"].map(order.index))
    both = both.sort_values(["at", "epsilon", "seed"], kind="stable").drop(columns="at")
    both.to_csv(STORED / f"{name}.csv", index=False)
    page = PAGE.read_text(encoding="utf-8")
    mark = f"<!-- measured: {name}.csv -->\n"
    table = re.search(re.escape(mark) + r"((?:\|.*\n)+)", page)
    assert table is not None
    shown = parse_epsilons(EPSILONS)
    made = markdown(means(both[both["epsilon"].isna() | both["epsilon"].isin(shown)]))
    PAGE.write_text(page.replace(table[0], mark + made), encoding="utf-8")


if __name__ == "__main__":
    main()
