"""The audit of teachers' votes on several findings: honest ways pass, and each of five faults is found."""

import pytest

from benchmarks.sum_breaks import FINDING_BREAKS
from protocols.errors import InvalidInput
from simulations.audit.audit import run_audit
from simulations.audit.finding_votes import AuditedFindings
from simulations.audit.settings import AuditSettings
from tests.harness.refusals import refuses

# Seeds are fixed, so nothing here fails by chance.
TERMS = dict(
    ways=("binary", "powerset", "tau"), views=("label", "histogram"), queries=4, findings=3, weight=1.0, sigma=2.0
)


def audit(*, trials=10_000, broken=None, **changed):
    hard = dict(trials=trials, delta=0.01, confidence=1 - 1e-6, noise="fast", seed=0, broken=broken)
    return run_audit(AuditSettings(of=AuditedFindings(**(TERMS | changed)), **hard), progress=lambda *_: None)


def test_no_way_shows_more_than_is_charged_and_each_nearly_so_much():
    result = audit(trials=40_000)
    assert not result.failed
    assert [one.line.facts["findings_by"] for one in result.findings] == ["binary"] * 2 + ["powerset"] * 2 + ["tau"] * 2
    for one in result.findings:
        assert 0.5 * one.exact < one.lower.value <= one.exact <= one.claim.epsilon * (1 + 1e-9)
        assert one.moves == pytest.approx(1, abs=1e-4)
        if one.line.facts["view"] == "histogram":
            assert one.exact == pytest.approx(one.claim.epsilon, rel=1e-4)


@pytest.mark.parametrize("name", FINDING_BREAKS)
def test_each_fault_is_found_in_every_way_that_has_it(name):
    found = audit(broken=name).findings
    assert len(found) == (6 if FINDING_BREAKS[name].of is None else 2)
    assert all(one.failed for one in found), name
    assert any(one.refuted for one in found)


def test_terms_out_of_range_are_refused():
    for wrong in ({"findings": 5}, {"queries": 17}, {"sigma": 0.0}):
        with refuses(InvalidInput, *wrong.values()):
            audit(**wrong)
    with refuses(InvalidInput, "class", "tau"):
        audit(ways=("class",))
    with refuses(InvalidInput, "votes-unclipped", "tau"):
        audit(broken="votes-unclipped", ways=("binary",))
