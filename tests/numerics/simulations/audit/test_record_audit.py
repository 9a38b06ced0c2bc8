"""The audit of record votes: honest studies pass, each break is found out, and what is shown comes close to the claim.

Seeds are fixed, so nothing here fails by chance. Confidence is 1 - 1e-6: with other seeds an honest study would fail
once in a million audits at most. A break is found at the same confidence.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.sum_breaks import SUM_BREAKS
from protocols.errors import InvalidInput
from protocols.sums.contributions import squared_norms
from simulations.audit import unit_sums
from simulations.audit.audit import run_audit
from simulations.audit.report import audit_figure
from simulations.audit.unit_sums import AUDITED_LEVELS, GRADED, RECORDS, SUMS, graded_cases, sides_of, worst_cases
from tests.harness.audits import of_sums
from tests.harness.refusals import refuses

EPSILON, DELTA = 1.0, 0.01
TERMS = dict(trials=4000, epsilon=EPSILON, delta=DELTA, confidence=1 - 1e-6, noise="fast", seed=0)


def audit(**changed):
    return run_audit(of_sums(**(TERMS | changed)), progress=lambda *_: None)


@pytest.fixture(scope="module")
def honest():
    return audit(trials=50_000)


def test_no_honest_study_is_shown_to_leak_more_than_claimed_at_any_level_or_unit(honest):
    assert len(honest.findings) == len(AUDITED_LEVELS) * sum(len(each.units) for each in SUMS)
    assert not honest.failed
    for finding in honest.findings:
        assert 0 < finding.lower.value <= finding.exact <= finding.claim.epsilon
        assert finding.lower_mu < finding.claim.mu
        assert finding.claim.epsilon == pytest.approx(1.0, rel=1e-6)


def test_what_is_shown_reaches_three_quarters_of_the_claim_and_the_worst_cases_all_of_it(honest):
    for finding in honest.findings:
        assert finding.lower_of_claimed > 0.75, finding.to_json()
        assert finding.exact > 0.994
        assert not finding.law.failed
        # Entries of graded votes are of any size, and each is rounded.
        assert (0.999 if finding.line.facts["sums"] == "records" else 0.994) < finding.moves <= 1


# Faults of the noise that no bound above the claim shows, and that its law does.
LAW_ONLY = ("noise-90", "clipped", "noise-again")
# Faults of whole numbers, and one too rare for the noise of every line.
INTEGER = ("multiples-of-2", "multiples-of-4", "multiples-of-8", "rare-noiseless")


@pytest.mark.parametrize("name", INTEGER[:3])
def test_noise_whose_low_bits_are_empty_is_refuted_by_the_remainders_of_the_sums_and_fails_its_law(name):
    for finding in audit(broken=name, trials=2000).findings:
        if finding.line.facts["lattice_units"] is None:
            assert not finding.failed
            continue
        assert finding.refuted
        assert finding.law.worst.family == "low bits"
        assert finding.lower_of_claimed > 2


def test_one_draw_in_5_000_without_noise_is_found_by_the_heavy_centre_of_the_law(monkeypatch):
    monkeypatch.setattr(unit_sums, "AUDITED_LEVELS", AUDITED_LEVELS[:1])  # integer noise has the value of no noise, too
    found = audit(broken="rare-noiseless", trials=1000, law_trials=40_000).findings
    assert all(finding.law.failed and finding.law.worst.family == "centre" for finding in found)


@pytest.mark.parametrize("name", LAW_ONLY)
def test_faults_of_the_noise_below_the_claim_are_found_by_its_law(name):
    result = audit(broken=name, trials=1000, law_trials=4000)
    for finding in result.findings:
        assert finding.law.failed
        assert not finding.refuted
    assert result.failure.startswith("another law: ")


@pytest.mark.parametrize("name", [name for name in SUM_BREAKS if name not in ("rounded-up", *LAW_ONLY, *INTEGER)])
def test_each_break_is_found_by_trials(name):
    """At every level; a patient's missing scale only where patients are protected."""
    # Half as much again in mu is the least of them.
    least = ("whole-in-each", "share-ignored", "noise-of-cells", "long-rows", "long-targets", "findings-whole",
             "findings-one-charged", "residuals-free", "residuals-uncut", "residuals-twice",
             "residuals-weight", "residuals-row")  # fmt: skip
    # No noise at all, or at least four times as much in mu.
    most = ("bare-cell", "one-noise", "residuals-noise") if "unscaled" not in name else (name,)
    trials = 20_000 if name in least else 1500 if name in most else 5000
    for finding in audit(broken=name, trials=trials, law_trials=1000).findings:
        if name.split("-")[-1] in ("unscaled", "patients") and finding.line.facts["unit"] == "record":
            assert not finding.failed
            continue
        if name == "correlated-cells" and finding.line.facts["sums"] == "findings":
            # A record moves neighbouring entries alike there, and has more noise in them together: the law shows it.
            assert finding.law.failed
            continue
        assert finding.refuted
        assert finding.lower_of_claimed > 1.05, finding.to_json()


def test_rounding_up_is_found_by_exact_arithmetic_where_no_trial_could_see_it():
    for finding in audit(broken="rounded-up", trials=1000).findings:
        assert finding.too_far
        assert finding.failed
        assert 1 < finding.moves < 1.01


def test_the_nodes_samplers_pass_on_a_seeded_stream_and_on_the_systems_generator():
    """The system's draws differ in each run; an honest study fails once in a million runs."""
    for noise in ("seeded", "system"):
        assert not audit(noise=noise, trials=1000).failed


def test_every_worst_case_moves_all_that_a_weight_allows_but_for_rounding():
    for unit in RECORDS.units:
        for case in worst_cases(unit):
            for level in AUDITED_LEVELS:
                study = RECORDS.study(level, case, EPSILON, DELTA)
                weight = round(study.roster[0].weight * study.units)
                sides = sides_of(study, case, RECORDS.contribute)
                assert 2 * (weight - 4) ** 2 < sides.squared_move <= 2 * weight**2
                change = sides.after[0] - sides.before[0]
                moved = np.stack([np.maximum(0, sign * change) for sign in (1, -1)])
                assert max(squared_norms(moved)) <= weight**2


def test_the_worst_graded_votes_move_two_weights_but_for_rounding():
    for unit in GRADED.units:
        for level in AUDITED_LEVELS:
            moves = []
            for case in graded_cases(unit):
                study = GRADED.study(level, case, EPSILON, DELTA)
                allowed = 4 * round(study.roster[0].weight * study.units) ** 2
                moves.append(sides_of(study, case, GRADED.contribute).squared_move / allowed)
            assert 0.99 < max(moves) <= 1


def test_breaks_change_what_is_released_and_not_what_is_claimed():
    case = worst_cases("record")[0]
    study = RECORDS.study(AUDITED_LEVELS[0], case, EPSILON, DELTA)
    assert SUM_BREAKS["half-noise"].run(study).gaussian.sigma == study.gaussian.sigma / 2
    draws = np.arange(12.0).reshape(3, 4)
    assert (SUM_BREAKS["bare-cell"].noise(draws)[:, 0] == 0).all()
    assert (SUM_BREAKS["one-noise"].noise(draws) == draws[:, :1]).all()
    assert study.weights[0] < study.weights[1]
    again = replace(case, after=case.before)
    for broken in SUM_BREAKS.values():
        if broken.of in (None, "records"):
            assert sides_of(study, again, broken.contribute or RECORDS.contribute).squared_move == 0


def test_an_audit_is_json_and_draws_a_line_for_each_finding_and_repeats_itself(honest, monkeypatch):
    document = json.loads(json.dumps(honest.to_json(), allow_nan=False))
    assert document["verdict"] == "passed"
    assert document["votes_by"] == "record"
    assert [one["verdict"] for one in document["findings"]] == ["passed"] * 24
    labels = [tick.get_text() for tick in audit_figure(honest).axes[0].get_yticklabels()]
    assert "records, unit patient\nreal-valued noise" in labels
    monkeypatch.setattr(unit_sums, "AUDITED_LEVELS", AUDITED_LEVELS[1:2])
    first, again, other = audit(trials=1000), audit(trials=1000), audit(trials=1000, seed=1)
    assert first.to_json() == again.to_json()
    assert first.to_json()["findings"] != other.to_json()["findings"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 10}, ("trials", 10)),
        ({"epsilon": 0.0}, ("epsilon", "0.01 to 20")),
        ({"delta": 1.0}, ("delta", 1.0)),
        ({"confidence": 1.0}, ("confidence", 1.0)),
        ({"noise": "none"}, ("noise", "none")),
        ({"broken": "same-noise"}, ("break", "same-noise", "--votes-by")),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with refuses(InvalidInput, *message):
        of_sums(**(TERMS | change))
