"""What an audit found as tables and sentences, for a terminal and for a page."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.plural import at_most, counted
from simulations.audit.audit import AuditResult
from simulations.audit.record_votes.audit import RecordAuditResult


@dataclass(frozen=True)
class AuditTable:
    """Rows of findings; columns: the names of their cells, the last of them the verdict."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def audit_tables(audit: AuditResult | RecordAuditResult) -> list[AuditTable]:
    """All findings, line by line."""
    return _of_records(audit) if isinstance(audit, RecordAuditResult) else _of_mechanisms(audit)


def audit_sentences(audit: AuditResult | RecordAuditResult) -> list[str]:
    """On what the findings rest, and what was not tested."""
    settings = audit.settings
    if isinstance(audit, RecordAuditResult):
        return [
            f"{settings.trials:,} trials on each side of a case, noise {settings.noise}; all bounds and laws hold "
            f"together with confidence {settings.confidence:g} (Clopper-Pearson); squared moves are exact, in whole "
            "lattice units"
        ]
    said = [
        f"{settings.trials:,} trials on each side of a pair, noise {settings.noise}; all lower bounds and all tests of "
        f"laws hold together with confidence {settings.confidence:g} (Clopper-Pearson; Bonferroni)"
    ]
    if any(finding.target.rate < 1 for finding in audit.findings):
        said.append(f"secret coins of rate {audit.settings.rate:.9g}, a multiple of 2^-20")
    return [*said, *audit.words]


def _of_records(audit: RecordAuditResult) -> list[AuditTable]:
    rows = tuple(
        (
            finding.unit, finding.level.words, f"{finding.sigma:.4g}",
            *(_decimals(value) for value in (finding.claim.epsilon, finding.lower.value, finding.lower_by_mu,
                                             finding.exact, finding.lower_of_claimed)),
            f"{finding.moves:.6f}", f"{finding.law.p:.2g}", _verdict(finding.failed),
        )
        for finding in audit.findings
    )  # fmt: skip
    columns = ("unit", "seen", "sigma", "claimed", "lower bound", "by Gaussian DP", "exact", "lower/claimed",
               "moved/allowed", "law: p", "verdict")  # fmt: skip
    return [AuditTable(f"{audit.subject}, view histogram, replace-one{_broken(audit)}", columns, rows)]


def _of_mechanisms(audit: AuditResult) -> list[AuditTable]:
    settings = audit.settings
    # The bound by Gaussian DP is a column only if an accountant claims a mu.
    by_mu = any(finding.lower_by_mu is not None for finding in audit.findings)
    rows = tuple(
        (
            finding.target.name, finding.target.view, finding.target.accountant.name,
            _decimals(finding.claim.epsilon), _decimals(finding.lower.value),
            *([_decimals(finding.lower_by_mu)] if by_mu else []),
            *(_decimals(value) for value in (finding.exact, finding.lower_of_claimed, finding.lower_of_exact)),
            f"{finding.law.p:.2g}", _verdict(finding.failed),
        )
        for finding in audit.findings
    )  # fmt: skip
    columns = ("mechanism", "view", "accountant", "claimed", "lower bound", *(["by Gaussian DP"] if by_mu else []),
               "exact", "lower/claimed", "lower/exact", "law: p", "verdict")  # fmt: skip
    title = (
        f"epsilon at delta {at_most(settings.delta)} of {counted(settings.queries, 'query')}, unit of total weight "
        f"{settings.weight:g}, replace-one, {settings.classes} classes{_broken(audit)}"
    )
    studies = tuple(
        (one.run.words, one.mechanism, f"{one.queries:,}", f"{one.law.p:.2g}", _verdict(one.failed))
        for one in audit.runs
    )
    budgets = tuple(
        (one.mechanism, one.accountant, one.view, str(one.asked), str(one.most), _verdict(one.failed))
        for one in audit.budgets
    )
    ended = ("mechanism", "accountant", "view", "queries asked", "affordable", "verdict")
    as_run = ("seen", "mechanism", "queries", "law: p", "verdict")
    tables = [AuditTable(title, columns, rows), AuditTable(f"studies as they run{_broken(audit)}", as_run, studies),
              AuditTable(f"studies that a budget ends{_broken(audit)}", ended, budgets)]  # fmt: skip
    return [each for each in tables if each.rows]


def _broken(audit: AuditResult | RecordAuditResult) -> str:
    return f", BROKEN ON PURPOSE: {audit.settings.broken}" if audit.settings.broken else ""


def _verdict(failed: bool) -> str:
    return "FAILED" if failed else "passed"


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
