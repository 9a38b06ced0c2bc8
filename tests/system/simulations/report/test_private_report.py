"""Private figures: computed where asked for, shown and marked in one place, refused where there is no theorem."""

import csv
import json
import re

import numpy as np
import pytest

from benchmarks import exact_per_instance as exact
from benchmarks.sanitised import corrected_cost, understated_published_cost
from protocols.budgets.accountant import ACCOUNTANTS
from protocols.errors import InvalidInput
from protocols.research import DATA_DEPENDENT
from simulations import private
from simulations.commands.group import run_command
from simulations.report.page import render_report
from simulations.report.private_section import printed, private_section, write_private
from simulations.results.files import summary, write_results
from simulations.setup import accountants
from simulations.setup.accountants import accountant_table, named_accountants
from tests.harness.distributions import install, refreshed
from tests.harness.refusals import refuses
from tests.harness.stored_runs import stored_run
from tests.harness.studies import make_votes

ANALYSES = "papernot2018,exact,exact_own_vote"


@pytest.fixture(scope="module", autouse=True)
def analyses(tmp_path_factory):
    """The analyses with those of the benchmarks, as if they were installed."""
    folder = tmp_path_factory.mktemp("installed")
    entries = {
        "exact": "benchmarks.exact_accountants:Exact",
        "exact_own_vote": "benchmarks.exact_accountants:ExactOwnVote",
        "moments2017": "benchmarks.moments2017:Moments2017",
        "smooth_sensitivity": "benchmarks.sanitised:SmoothSensitivity",
    }
    install(folder, name="conclave_benchmarks", group="conclave.analyses", entries=entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        found = refreshed(DATA_DEPENDENT)
        for module in (accountants, private):
            patch.setattr(module, "DATA_DEPENDENT", found)
        yield found


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return stored_run(
        tmp_path_factory.mktemp("analysed"),
        parties=30,
        pool=60,
        accountant=f"gaussian,{ANALYSES}",
        budgets="4:0.5,8:0.5",
    )


def test_every_private_file_says_so_and_holds_each_party(result, tmp_path):
    paths = {path.name: path for path in write_private(result, tmp_path)}
    assert set(paths) == {"READ-FIRST.txt", "findings.json", "parties.csv"}
    assert all(path.parent.name == "private" for path in paths.values())
    assert paths["READ-FIRST.txt"].read_text().startswith("PRIVATE, NOT FOR RELEASE")
    findings = json.loads(paths["findings.json"].read_text())
    assert findings["publishable"] is False
    assert set(findings["accountants"]) == set(ANALYSES.split(","))
    rows = list(csv.DictReader(paths["parties.csv"].read_text().splitlines()))
    assert len(rows) == 30
    for row, party in zip(rows, findings["parties"], strict=True):
        private = [name for name in row if name.startswith("private: ")]
        assert [name for name in private if not name.endswith(" order")] == [
            "private: papernot2018 (realised)", "private: papernot2018 (realised) by Mironov 2017",
            "private: papernot2018 (expected)", "private: papernot2018 (expected) by Mironov 2017",
            "private: exact", "private: exact by Mironov 2017",
            "private: exact_own_vote", "private: exact_own_vote by Mironov 2017",
        ]  # fmt: skip
        for name in private:
            assert name.endswith(" order") or float(row[f"{name} order"]) > 1
        assert float(row["private: exact_own_vote"]) <= float(row["private: exact"]) < float(row["epsilon_guaranteed"])
        assert party["exact"] == float(row["private: exact"])
    for name, wanted in (("exact", "exact"), ("papernot2018 (realised)", "papernot2018")):
        orders = result.findings.accountants[wanted].for_research().order
        assert [party[f"{name} order"] for party in findings["parties"]] == orders.tolist()
    expected = result.findings.accountants["papernot2018"].for_research().expected.order
    assert [party["papernot2018 (expected) order"] for party in findings["parties"]] == expected.tolist()


def test_nothing_that_may_be_published_holds_a_private_figure(result, tmp_path):
    write_results(result, tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"summary.json", "parties.csv", "queries.parquet"} <= written
    section = private_section(result)
    figures = [
        value.split(" ")[0]
        for row in section["groups"]
        for name, value in zip(section["columns"], row["values"], strict=True)
        # An order has too few digits to be told from other numbers.
        if not name.endswith(" order")
    ]
    text = (tmp_path / "summary.json").read_text() + (tmp_path / "parties.csv").read_text()
    assert figures
    for figure in figures:
        assert figure not in text
    assert "papernot" not in text


def test_the_report_boxes_and_marks_them_beside_the_worst_case(result):
    page = render_report(result, summary(result), ())
    box = page[page.index('<section class="private"') :]
    box = box[: box.index("</section>")]
    assert "Not for release." in box
    assert re.search(r"must\s+not stop a study, enter a ledger or be published", box)
    for row in private_section(result)["groups"]:
        assert f'class="publish">{row["guaranteed"]:.4g}</td>' in box
        for value in row["values"]:
            assert value in box
    for name in ANALYSES.split(","):
        assert f"<dt>{name}</dt>" in box
    assert box.count("neighbours always vote") == 2
    assert "exact_per_instance" not in page.replace(box, "")
    footer = page[page.index("<footer>") :]
    assert "private/, which is not for release" in footer
    assert "started_from.json" in footer


def test_the_table_has_every_accountant_once_and_only_those_that_charge_are_publishable(analyses):
    table = {row.name: row for row in accountant_table()}
    assert set(table) == set(ACCOUNTANTS) | set(analyses)
    for name, row in table.items():
        assert row.charges == (name in ACCOUNTANTS)
        assert row.adjacency == "replace-one"
        assert all((row.unit, row.view, row.statement, row.source))


@pytest.mark.parametrize(
    ("text", "charging", "analysing"),
    [
        (None, None, ()),
        ("gaussian", "gaussian", ()),
        ("exact", None, ("exact",)),
        ("exact, label_only ,papernot2018", "label_only", ("exact", "papernot2018")),
    ],
)
def test_a_list_names_what_charges_and_what_analyses(text, charging, analysing):
    assert named_accountants(text) == (charging, analysing)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("papernot", "'papernot'; allowed: .*label_only"),
        ("gaussian,label_only", "at most one"),
        ("exact,exact", "each once"),
        ("", "''; allowed"),
    ],
)
def test_lists_that_make_no_sense_are_refused(text, named):
    with pytest.raises(InvalidInput, match=named):
        named_accountants(text)


@pytest.mark.usefixtures("undrawn")
def test_votes_that_an_accountant_cannot_do_cost_the_run_nothing_else(tmp_path, monkeypatch, capsys):
    """More distinct counts in one histogram than are allowed: known from the votes alone, so after they were cast."""
    monkeypatch.setattr(exact, "MOST_GROUPS", 15)
    monkeypatch.chdir(tmp_path)
    np.save("counts.npy", np.tile(np.arange(16.0), (3, 1)))
    flags = ["--votes", "counts.npy", "--mechanism", "confident_gnmax",
             "--budgets", "8", "--accountant", "exact,papernot2018", "--sigma", "40",
             "--quiet", "--out", "out"]  # fmt: skip
    assert run_command(["run", *flags]) == 0
    assert "exact: refused: a query has 16 distinct counts" in capsys.readouterr().out
    findings = json.loads((tmp_path / "out" / "private" / "findings.json").read_text())
    assert "16 distinct counts" in findings["refused"]["exact"]
    assert all(party["papernot2018 (realised)"] > 0 and "exact" not in party for party in findings["parties"])
    page = (tmp_path / "out" / "report.html").read_text()
    box = page[page.index('<section class="private"') :]
    assert "16 distinct counts" in box[: box.index("</section>")]
    assert "distinct counts" not in (tmp_path / "out" / "summary.json").read_text()
    assert run_command(["run", *flags, "--resume"]) == 0


@pytest.mark.usefixtures("undrawn")
def test_private_abstentions_are_refused_by_exact_accounting_and_by_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    votes, _ = make_votes(20, 30, classes=3)
    votes[4, 0, 0] = -1
    np.save("votes.npy", votes[:, 0])
    flags = ["--votes", "votes.npy", "--votes-kind", "ids", "--budgets", "8", "--quiet", "--out", "out"]
    flags += ["--mechanism", "confident_gnmax"]
    assert run_command(["run", *flags, "--accountant", "exact,exact_own_vote,papernot2018"]) == 0
    findings = json.loads((tmp_path / "out" / "private" / "findings.json").read_text())
    assert set(findings["refused"]) == {"exact", "exact_own_vote"}
    assert "one abstained" in findings["refused"]["exact_own_vote"]
    assert all(party["papernot2018 (realised)"] > 0 for party in findings["parties"])


def test_smooth_sensitivity_counts_every_teacher_as_one_who_votes(tmp_path):
    """Two teachers a party cast twice as many votes as there are parties."""
    result = stored_run(
        tmp_path, parties=40, pool=60, teachers=2, classes=3, accountant="gaussian,smooth_sensitivity",
        weights="uniform", budgets="4", sigma=12.0,
    )  # fmt: skip
    assert result.findings.refused == {}
    figures = result.findings.accountants["smooth_sensitivity"].for_research()
    assert np.isfinite(figures.epsilon).all()
    assert (figures.epsilon > 0).all()
    write_private(result, tmp_path)
    document = json.loads((tmp_path / "private" / "findings.json").read_text())
    (release,) = document["details"]["smooth_sensitivity"]
    assert release == {"parties": 40, "weight": 1.0, "delta": 1e-5} | figures.details[0]
    assert release["std"] == pytest.approx(release["sigma_ss"] * release["sensitivity"], rel=1e-12)
    costs = {"order": release["order"], "beta": release["beta"], "sigma_ss": release["sigma_ss"]}
    assert release["corrected_cost"] == pytest.approx(float(corrected_cost(**costs)), rel=1e-12)
    assert release["published_cost"] == pytest.approx(float(understated_published_cost(**costs)), rel=1e-12)
    (line,) = [line for line in printed(result) if "smooth_sensitivity" in line]
    assert f"epsilon {release['epsilon']:.4g}, +- {release['std']:.4g} (standard deviation), order" in line


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"accountant": "moments2017"}, ("confident_gnmax",)),
        ({"accountant": "smooth_sensitivity", "dropout": 0.3}, ("every party in every query",)),
        ({"accountant": "smooth_sensitivity", "sigma": 0.4, "budgets": "1e3"}, ("C5", "C6")),
    ],
)
def test_an_analysis_without_a_theorem_is_refused_before_the_run(tmp_path, settings, named):
    with refuses(InvalidInput, *named):
        stored_run(tmp_path, parties=20, pool=40, **settings)
