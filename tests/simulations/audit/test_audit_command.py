"""`conclave-simulate audit`: exit codes, files and refusals."""

import json

import pytest

from simulations.command import run_command

QUICK = ["--trials", "20000", "--noise", "fast", "--quiet"]


def test_an_honest_audit_ends_with_code_0_and_writes_its_findings(tmp_path, capsys):
    out = tmp_path / "audit"
    assert run_command(["audit", "--mechanism", "gnmax,lnmax", "--out", str(out), *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "passed" in printed
    assert "FAILED" not in printed
    document = json.loads((out / "audit.json").read_text())
    assert {one["mechanism"] for one in document["findings"]} == {"gnmax", "lnmax"}
    assert {path.name for path in (out / "figures").iterdir()} == {"audit.svg", "audit.png"}
    assert run_command(["audit", "--out", str(out), *QUICK]) == 2


@pytest.mark.parametrize("name", ["half-noise", "same-noise", "double-votes"])
def test_a_broken_mechanism_ends_with_code_8(name, capsys):
    flags = ["--mechanism", "gnmax", "--view", "histogram", "--rate", "1", "--break", name, "--json"]
    assert run_command(["audit", *flags, *QUICK]) == 8
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "FAILED"
    assert document["broken"] == name


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mechanism", "pate"], "mechanism is 'pate'"),
        (["--sigma", "0"], "sigma is 0"),
        (["--queries", "100"], "queries is 100"),
        (["--mechanism", "confident_gnmax", "--view", "histogram"], "is not audited"),
    ],
)
def test_a_flag_out_of_range_is_one_line_and_code_2(flags, message, capsys):
    assert run_command(["audit", *flags, *QUICK]) == 2
    assert message in capsys.readouterr().err
