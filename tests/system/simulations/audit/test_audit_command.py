"""`conclave-simulate audit`: exit codes, files and refusals."""

import json

import pytest

from simulations.commands.group import run_command

QUICK = ["--trials", "2000", "--noise", "fast", "--quiet"]
# As few trials as are allowed: for an audit of what is not broken.
QUICKEST = ["--trials", "1000", "--noise", "fast", "--quiet"]


def test_an_honest_audit_ends_with_code_0_and_writes_its_findings(tmp_path, capsys):
    out = tmp_path / "audit"
    assert run_command(["audit", "--mechanism", "gnmax,lnmax", "--out", str(out), *QUICKEST]) == 0
    printed = capsys.readouterr().out
    assert "passed" in printed
    assert "FAILED" not in printed
    assert "no difference from the stated laws was found" in printed
    assert "two_server, both servers" in printed
    document = json.loads((out / "audit.json").read_text())
    assert {one["mechanism"] for one in document["findings"]} == {"gnmax", "lnmax"}
    assert {one["level"] for one in document["studies_as_run"]} == {"clear", "secure_sum", "two_server"}
    laws = [one["law"] for one in (*document["findings"], *document["studies_as_run"])]
    assert all(law["verdict"] == "no difference found" and law["tests"] > 100 for law in laws)
    assert {path.name for path in (out / "figures").iterdir()} == {"audit.svg", "audit.png"}
    page = (out / "report.html").read_text()
    assert page.index("Nothing was refuted") < page.index("<svg") < page.index("Line by line")
    assert page.count("</td></tr>") == sum(len(document[each]) for each in ("findings", "studies_as_run", "budgets"))
    # Studies that a budget ends are lines of gnmax, and none of lnmax.
    ended = [(one["mechanism"], one["accountant"]) for one in document["budgets"]]
    assert ended == [("gnmax", name) for name in ("gaussian_dp", "gaussian", "label_only")]
    assert run_command(["audit", "--out", str(out), *QUICK]) == 2


def test_record_votes_are_audited_and_a_broken_study_of_them_ends_with_code_8(tmp_path, capsys):
    records = ["audit", "--votes-by", "record", "--trials", "2000", "--noise", "fast", "--quiet"]
    assert run_command([*records, "--out", str(tmp_path / "audit")]) == 0
    assert "patient" in capsys.readouterr().out
    document = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert {one["unit"] for one in document["findings"]} == {"record", "patient"}
    assert run_command([*records, "--break", "bare-cell", "--json"]) == 8
    assert json.loads(capsys.readouterr().out)["broken"] == "bare-cell"


@pytest.mark.parametrize(
    ("name", "trials"), [("units-twice", 8000), ("share-missing", 60_000), ("vote-left-out", 8000)]
)
def test_a_broken_level_ends_with_code_8_and_only_its_level_is_audited(name, trials, capsys):
    flags = ["--mechanism", "gnmax", "--break", name, "--noise", "fast", "--quiet", "--trials", str(trials), "--json"]
    assert run_command(["audit", *flags]) == 8
    document = json.loads(capsys.readouterr().out)
    assert document["findings"] == []
    assert len({one["level"] for one in document["studies_as_run"]}) == 1
    assert document["verdict"] == "FAILED"


def test_studies_that_a_budget_ends_are_audited_in_the_views_that_are_audited_alone(capsys):
    assert run_command(["audit", "--mechanism", "gnmax,lnmax", "--view", "label", "--json", *QUICKEST]) == 0
    ended = json.loads(capsys.readouterr().out)["budgets"]
    assert [(one["mechanism"], one["accountant"]) for one in ended] == [("gnmax", "label_only")]


@pytest.mark.parametrize("name", ["half-noise", "same-noise", "batch-noise"])
def test_a_broken_mechanism_ends_with_code_8(name, capsys):
    flags = ["--mechanism", "gnmax", "--view", "histogram", "--rate", "1", "--break", name, "--json"]
    assert run_command(["audit", *flags, *QUICK]) == 8
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "FAILED"
    assert document["broken"] == name


def test_a_rate_off_the_lattice_is_rounded_to_it_and_said(capsys):
    assert run_command(["audit", "--mechanism", "gnmax", "--view", "histogram", "--rate", "0.3", *QUICKEST]) == 0
    printed = capsys.readouterr().out
    assert "secret coins of rate 0.300000191" in printed
    assert 0.300000191 == pytest.approx(round(0.3 * 2**20) / 2**20, abs=1e-9)
    flags = ["--mechanism", "gnmax", "--view", "histogram", "--rate", "1e-9", "--json"]
    assert run_command(["audit", *flags, *QUICKEST]) == 0
    rates = {finding["rate"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert rates == {2.0**-20, 1.0}
