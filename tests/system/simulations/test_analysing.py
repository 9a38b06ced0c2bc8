"""`analyse`: a fixed number of queries on stored votes, whatever they cost, and nothing that could be published."""

import json

import numpy as np
import pytest
from scipy.special import ndtr

from protocols.bounds.label_only import ORDERS, label_rdp, threshold_rdp
from protocols.bounds.rdp import rdp_to_epsilon
from protocols.research.private import WHY
from tests.harness.simulating import run

# As SVHN was published (Papernot et al. 2018): 8,500 queries to 250 teachers, T = 300.
SVHN = (
    "--mechanism confident_gnmax --queries 8500 --threshold 300 --sigma-threshold 200 --sigma 40 --delta 1e-6".split()
)


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Made-up votes of 250 teachers of ten classes on 8,600 queries, most of them clear."""
    rng = np.random.default_rng(0)
    share = rng.beta(6, 1.5, 8600)
    votes = np.stack([rng.multinomial(250, [p, *[(1 - p) / 9] * 9]) for p in share])
    path = tmp_path_factory.mktemp("votes") / "counts.npy"
    np.save(path, votes.astype(float))
    return path


def test_queries_are_analysed_whose_worst_case_no_budget_would_pay(counts, tmp_path, capsys):
    assert run("analyse", "--votes", counts, *SVHN, "--out", tmp_path / "figures.json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert WHY in lines[0]
    assert "no label of it may be published, and none is kept" in lines[1]
    assert [line.split(":")[0].strip() for line in lines[5:]] == [
        "papernot2018 (realised)", "as the papers convert (Mironov 2017)",
        "papernot2018 (expected)", "as the papers convert (Mironov 2017)",
    ]  # fmt: skip
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["publishable"] is False
    assert "no budget was charged" in written["why"]
    assert written["asked"] == 8500
    assert "labels" not in written
    votes = np.load(counts)[:8500]
    passes = ndtr((votes.max(axis=1) - 300) / 200)
    # Four standard deviations of the number of answers: exceeded by 1 in 16,000 seeds, and this one is fixed.
    assert abs(written["answered"] - passes.sum()) < 4 * np.sqrt((passes * (1 - passes)).sum())
    worst = 8500 * (label_rdp(1 / 40, ORDERS, classes=10) + threshold_rdp(1 / 200, ORDERS))
    assert written["worst_case"]["epsilon"] == pytest.approx(rdp_to_epsilon(worst, ORDERS, delta=1e-6).min(), rel=1e-9)
    assert written["worst_case"]["epsilon"] > 10
    ours, papers = (written["figures"][f"papernot2018 (expected){kind}"][0] for kind in ("", " by Mironov 2017"))
    assert 0 < ours < papers < written["worst_case"]["epsilon"]


def test_its_figures_are_those_of_a_run_whose_budget_paid_for_all_queries(stored, undrawn, tmp_path, capsys):
    noise = "--mechanism confident_gnmax --sigma 25 --sigma-threshold 30 --threshold 40".split()
    names = "papernot2018"
    uniform = ["--weights", "uniform", "--budgets", "8", "--accountant", f"label_only,{names}"]
    assert run("run", *stored, *noise, *uniform, "--out", "out") == 0
    capsys.readouterr()
    votes = [each for each in stored if each != "--quiet"]
    assert run("analyse", *votes, *noise, "--accountant", names, "--json") == 0
    alone = json.loads(capsys.readouterr().out)
    findings = json.loads((tmp_path / "out" / "private" / "findings.json").read_text())
    assert findings["asked"] == alone["asked"] == 400
    assert findings["answered"] == alone["answered"]
    assert set(alone["figures"]) == set(findings["parties"][0]) - {"party", "delta", "weight", "epsilon_guaranteed"}
    for name, values in alone["figures"].items():
        np.testing.assert_allclose(values, [party[name] for party in findings["parties"]], rtol=1e-9)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "votes is missing; allowed: --votes FILE.npy"),
        (["--accountant", "label_only"], "'label_only' charges budgets, and here are none; allowed: papernot2018"),
        (["--unit", "patient"], "unit is 'patient'; allowed"),
        (["--accountant", "papernot2018", "--mechanism", "lnmax"], "lnmax; allowed: gnmax"),
        (["--mechanism", "interactive_gnmax"], "trains a student; it cannot replay stored votes"),
        (["--queries", "9000"], "queries is 9000; allowed: at most the 8600"),
    ],
)
def test_what_it_cannot_analyse_is_one_clear_error(counts, capsys, flags, reason):
    given = ["--votes", counts] if flags else []
    mechanism = [] if "--mechanism" in flags else ["--mechanism", "confident_gnmax"]
    assert run("analyse", *given, *mechanism, *flags) == 2
    assert reason in capsys.readouterr().err
