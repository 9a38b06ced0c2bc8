"""The audit itself, a sample in every run of the tests: honest mechanisms pass, each break is found out.

Seeds are fixed, so nothing here fails by chance. Confidence is 1 - 1e-6: with other seeds an honest mechanism would
fail once in a million audits at most. What is broken lies far above its claim.
"""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.breaks import MECHANISM_BREAKS as BREAKS
from simulations.audit.audit import run_audit
from tests.harness.audits import of_mechanisms

TERMS = dict(
    trials=50_000, queries=8, classes=3, weight=1.0, sigma=4.0,
    parameters={"sigma_threshold": 8.0, "gamma": 0.25},
    rate=0.5, delta=0.01,
    confidence=1 - 1e-6, noise="fast", seed=0,
)  # fmt: skip


def audit(**changed):
    return run_audit(of_mechanisms(**(TERMS | changed)), progress=lambda *_: None)


@pytest.fixture(scope="module")
def honest():
    return audit(law_trials=20_000)


def test_no_honest_mechanism_is_shown_to_leak_more_than_claimed(honest):
    assert len(honest.findings) == 12
    assert not honest.failed
    for finding in honest.findings:
        assert finding.law.families > 10
        assert 0 < finding.lower.value <= finding.exact * (1 + 1e-3)
        assert finding.exact <= finding.claim.epsilon * (1 + 1e-3)


def test_what_is_shown_comes_close_to_what_is_true(honest):
    for finding in honest.findings:
        assert finding.lower.value > 0.55 * finding.exact, finding.to_json()
    tight = [f for f in honest.findings if f.line.facts["accountant"] == "gaussian_dp"]
    assert min(f.exact / f.claim.epsilon for f in tight) > 0.9999


@pytest.mark.parametrize(("name", "trials"), [("half-noise", 50_000), ("same-noise", 4000)])
def test_each_break_that_lifts_epsilon_above_the_claim_is_shown_to_in_every_mechanism(name, trials):
    for finding in audit(broken=name, classes=2, trials=trials, confidence=0.999, law_trials=1000).findings:
        # The claim for a bit and a label of one coin has twice the slack of the others.
        blunt = finding.line.facts["rate"] < 1 and finding.line.facts["mechanism"] not in ("gnmax", "thresholded_gnmax")
        assert finding.lower_of_claimed > (1.0 if blunt else 1.02), finding.to_json()
        assert finding.refuted
        assert finding.failed
        assert finding.reason == "more leakage than claimed"


def test_a_fault_below_the_claim_is_found_as_another_law_and_said_so():
    result = audit(broken="noise-90", mechanisms=("gnmax",), views=("label",), rate=1.0, trials=20_000)
    (finding,) = result.findings
    assert finding.failed
    assert not finding.refuted
    assert result.failure == finding.reason == f"another law: {finding.law.worst.family}"
    assert result.runs == ()


def test_more_than_the_exact_epsilon_of_a_pair_is_a_failure_even_below_the_claim(honest):
    finding = next(one for one in honest.findings if one.line.facts["rate"] < 1)
    shown = (finding.pair.exact + finding.claim.epsilon) / 2
    above = replace(finding, lower=replace(finding.lower, value=shown))
    assert not above.refuted
    assert above.above_exact
    assert above.failed
    assert above.reason == "more leakage than the stated mechanism has"


def test_what_passed_is_said_with_the_faults_that_would_have_been_found_and_what_was_not_tested(honest):
    law, _, missing, unended = honest.words
    assert "no difference from the stated laws was found" in law
    assert "by 15 % with probability 0.99" in law
    assert missing == "not tested as a study runs: interactive_gnmax"
    assert "lnmax" in unended
    assert " gnmax" not in unended
    assert len(honest.runs) == 12
    assert all(not run.failed and run.queries >= 1900 for run in honest.runs)


def test_where_the_bound_is_tight_the_audit_comes_within_a_tenth_of_it():
    """One query, two classes: the label-only claim is Gaussian DP but for 1 %; and the histogram's claim is exact."""
    found = audit(
        mechanisms=("gnmax",),
        queries=1,
        classes=2,
        sigma=1.0,
        rate=1.0,
        trials=1_000_000,
        confidence=0.999,
        law_trials=1000,
    ).findings
    label, histogram = found
    assert label.exact > 0.99 * label.claim.epsilon
    assert label.lower.value > 0.9 * label.claim.epsilon
    assert histogram.lower.value > 0.9 * histogram.claim.epsilon
    assert histogram.lower_by_mu is not None
    assert 0.97 * histogram.claim.epsilon < histogram.lower_by_mu <= histogram.claim.epsilon


def test_the_nodes_sampler_passes_on_a_seeded_stream_and_on_the_systems_generator():
    """The system's draws differ in each run; an honest mechanism fails once in a million runs."""
    for noise, mechanism in (("seeded", "gnmax"), ("system", "lnmax")):
        assert not audit(noise=noise, mechanisms=(mechanism,), rate=1.0, trials=1000).failed


def test_the_same_seed_gives_the_same_audit_and_another_one_does_not(honest):
    names = dict(mechanisms=("gnmax",), views=("histogram",), rate=1.0, trials=1000)
    first, again, other = audit(**names), audit(**names), audit(**names, seed=1)
    assert first.to_json() == again.to_json()
    assert first.to_json() != other.to_json()


def test_breaks_change_what_the_release_is_handed_and_nothing_else():
    noise = np.random.default_rng(0).standard_normal
    drawn = BREAKS["same-noise"].noise(noise)((50, 4))
    assert (drawn == drawn[:, :1]).all()
    assert len(np.unique(drawn)) == 50
    assert len(np.unique(BREAKS["same-noise"].noise(noise)((50,)))) == 50
    counts = np.array([[1.0, 2.0]])
    assert BREAKS["double-votes"].counts(counts).tolist() == [[2.0, 4.0]]
    for target in of_mechanisms(**TERMS).of.targets():
        broken = BREAKS["half-noise"].mechanism(target.mechanism)
        for name, factor in (("sigma", 0.5), ("sigma_threshold", 0.5), ("gamma", 2.0), ("threshold", 1.0)):
            if hasattr(broken, name):
                assert getattr(broken, name) == factor * getattr(target.mechanism, name)
