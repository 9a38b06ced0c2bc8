"""The command that makes the tables of methods: what it runs, stores and writes."""

import pandas as pd
import pytest

from benchmarks import every_method
from simulations.baselines import METHODS, cells, method
from simulations.baselines.table import markdown, means
from tests.harness.distributions import install, refreshed

PAGE = "before\n\n<!-- measured: small.csv -->\n| method | old |\n| --- | --- |\n| a | 1 |\n\nafter\n"


def rows(name, epsilon, accuracies):
    return pd.DataFrame(
        [
            {"method": name, "epsilon": epsilon, "delta": 1e-5, "protects": "record", "seed": seed,
             "accuracy": accuracy, "parties_that_gain": None, "labels": None, "note": ""}
            for seed, accuracy in enumerate(accuracies)
        ]
    )  # fmt: skip


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A stored data set of one method at one epsilon, and a page with its table."""
    monkeypatch.setattr(every_method, "STORED", tmp_path)
    monkeypatch.setattr(every_method, "PAGE", tmp_path / "page.md")
    rows("dp_sgd", 1.0, [0.5, 0.6, 0.7]).to_csv(tmp_path / "small.csv", index=False)
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path


def test_rows_take_the_place_of_those_of_the_same_cell_alone_and_the_page_follows(small):
    every_method.store("small", rows("dp_sgd", 1.0, [0.9]))
    every_method.store("small", rows("record_votes", 3.0, [0.4, 0.4, 0.4]))  # an epsilon that no table shows
    every_method.store("small", rows("record_votes", 8.0, [0.4, 0.4, 0.4]))
    found = every_method.stored("small")
    assert found["method"].tolist() == ["record_votes"] * 6 + ["dp_sgd"] * 3  # in the order of the tables
    assert found["accuracy"].tolist() == [0.4] * 6 + [0.9, 0.6, 0.7]
    table = markdown(means(found[found["epsilon"] != 3.0]))
    text = (small / "page.md").read_text()
    assert text == f"before\n\n<!-- measured: small.csv -->\n{table}\nafter\n"


def test_every_method_of_the_tables_is_scored_on_the_same_splits_and_a_finished_cell_is_not_run_again(
    small, tmp_path, monkeypatch, capsys
):
    install(
        tmp_path / "installed", name="conclave_benchmarks", group="conclave.baselines",
        entries={name: f"benchmarks.methods:{name.upper()}" for name in ("dp_sgd", "adassp")},
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    installed = refreshed(METHODS)
    monkeypatch.setattr(cells, "METHODS", installed)
    monkeypatch.setattr(method, "METHODS", installed)
    monkeypatch.setattr(every_method, "SETS", {"breast_cancer": {"parties": 6, "seeds": (0, 1)}})
    rows("dp_sgd", 1.0, []).reindex(columns=every_method._KEPT).to_csv(small / "breast_cancer.csv", index=False)
    (small / "page.md").write_text(PAGE.replace("small.csv", "breast_cancer.csv"))
    said = ["--methods", "majority,dp_sgd,adassp", "--epsilons", "1", "--out", str(tmp_path / "out"), "--store"]
    every_method.main(said)
    first = every_method.stored("breast_cancer")
    assert first.groupby("method")["seed"].apply(list).to_dict() == {
        name: [0, 1] for name in ("majority", "dp_sgd", "adassp")
    }
    assert first.loc[first["method"] != "majority", "accuracy"].min() > 0.8
    monkeypatch.setattr(cells, "_row", None)
    every_method.main(said)
    assert every_method.stored("breast_cancer").equals(first)
    assert "| dp_sgd | record |" in capsys.readouterr().out
