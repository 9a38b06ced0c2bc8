"""What an audit found: tables and sentences for a terminal and for report.html, one self-contained page; the figure."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from protocols.plural import at_most
from runtime.page import document, facts, lines, table
from runtime.page import verdict as opening
from simulations.audit.audit import AuditResult, audit_verdict
from simulations.plots.style import COLOURS, Drawing, inline_svg, light_grid, new_figure, style


@dataclass(frozen=True)
class AuditTable:
    """Rows of findings; columns: the names of their cells, the last of them the verdict."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def audit_tables(audit: AuditResult) -> list[AuditTable]:
    """All findings, line by line. A figure that no line has is no column."""
    broken = f", BROKEN ON PURPOSE: {audit.settings.broken}" if audit.settings.broken else ""
    figures = {
        "claimed": [_decimals(one.claim.epsilon) for one in audit.findings],
        "lower bound": [_decimals(one.lower.value) for one in audit.findings],
        "by Gaussian DP": [_decimals(one.lower_by_mu) for one in audit.findings],
        "exact": [_decimals(one.exact) for one in audit.findings],
        "lower/claimed": [_decimals(one.lower_of_claimed) for one in audit.findings],
        "lower/exact": [_decimals(one.lower_of_exact) for one in audit.findings],
        "moved/allowed": ["" if one.moves is None else f"{one.moves:.6f}" for one in audit.findings],
        "law: p": [f"{one.law.p:.2g}" for one in audit.findings],
        "verdict": [audit_verdict(one.failed) for one in audit.findings],
    }
    shown = {name: cells for name, cells in figures.items() if any(cells)}
    rows = [(*one.line.labels.values(), *cells) for one, *cells in zip(audit.findings, *shown.values(), strict=True)]
    named = audit.findings[0].line.labels if audit.findings else ()
    studies = [
        (one.run.words, one.mechanism, f"{one.queries:,}", f"{one.law.p:.2g}", audit_verdict(one.failed))
        for one in audit.runs
    ]
    budgets = [
        (one.mechanism, one.accountant, one.view, str(one.asked), str(one.most), audit_verdict(one.failed))
        for one in audit.budgets
    ]
    ended = ("mechanism", "accountant", "view", "queries asked", "affordable", "verdict")
    as_run = ("seen", "mechanism", "queries", "law: p", "verdict")
    tables = [AuditTable(f"{audit.subject}, replace-one{broken}", (*named, *shown), tuple(rows)),
              AuditTable(f"studies as they run{broken}", as_run, tuple(studies)),
              AuditTable(f"studies that a budget ends{broken}", ended, tuple(budgets))]  # fmt: skip
    return [each for each in tables if each.rows]


def audit_sentences(audit: AuditResult) -> list[str]:
    """On what the findings rest, and what was not tested."""
    settings = audit.settings
    return [
        f"{settings.trials:,} trials on each side of a pair, noise {settings.noise}; all lower bounds and all tests of "
        f"laws hold together with confidence {settings.confidence:g} (Clopper-Pearson; Bonferroni)",
        *audit.words,
    ]


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


_SHOWS = (
    "An audit refutes: a lower bound above the claim, or another law than is stated, is a fault of the code or of the "
    "proof. That nothing was found proves no guarantee; the claims rest on theorems."
)


def audit_page(audit: AuditResult, figure: Figure) -> str:
    """The page as HTML. figure: what audit_figure gives for this audit."""
    settings, tables = audit.settings, audit_tables(audit)
    lines_in_all = sum(len(each.rows) for each in tables)
    failed = sum(row[-1] == "FAILED" for each in tables for row in each.rows)
    if audit.failed:
        says = f"FAILED: {audit.failure}, in {failed} of {lines_in_all} lines."
    else:
        says = "Nothing was refuted: no lower bound passes its claim, and everything released has the stated law."
    points = [
        ("What was compared:", f"{audit.subject} on neighbouring votes, {settings.trials:,} trials on each side."),
        ("What that shows:", _SHOWS),
    ]
    if settings.broken is not None:
        points.insert(0, ("Broken on purpose:", f"{settings.broken}. An audit that works fails here."))
    caption = "Lower bound (line), exact epsilon of the worst pair (tick) and claim (diamond)."
    drawing = Drawing("audit", caption, f"{caption} {lines_in_all} lines; the tables below say the same.", figure)
    shown = [f"<figure>{inline_svg(drawing)}<figcaption>{caption}</figcaption></figure>"] if audit.findings else []
    seed = "the operating system's" if settings.noise == "system" else str(settings.seed)
    known = [
        ("trials on each side", f"{settings.trials:,}"),
        ("delta", at_most(settings.delta)),
        ("confidence of all lines together", f"{settings.confidence:g}"),
        ("noise", settings.noise),
        ("seed", seed),
    ]
    body = [
        opening(says, points, tone="warn" if audit.failed else "good"),
        *shown,
        "<h2>Line by line</h2>",
        *(table(each.title, each.columns, each.rows, words=(0,)) for each in tables),
        "<h2>On what it rests</h2>",
        lines(audit_sentences(audit)),
        facts(known),
    ]
    return document(title=f"Audit: {audit.subject}", kind="audit of mechanisms", body="\n".join(body))


def audit_figure(audit: AuditResult) -> Figure:
    """The claimed epsilon, the exact epsilon of the worst pair and the lower bound, for every finding."""
    rows = audit.findings[::-1]
    with style():
        figure = new_figure(height=1.5 + 0.42 * len(rows))
        axes = figure.subplots()
        for place, finding in enumerate(rows):
            shown = finding.lower.value
            colour = COLOURS["vermillion" if finding.failed else "blue"]
            axes.plot([0, shown], [place, place], color=colour, linewidth=5, solid_capstyle="butt")
            axes.plot(finding.exact, place, "|", color=COLOURS["ink"], markersize=13)
            axes.plot(finding.claim.epsilon, place, "D", color=COLOURS["green"])
            if finding.lower_by_mu is not None:
                axes.plot(finding.lower_by_mu, place, "o", color=colour, markerfacecolor="white")
        _legend_entries(audit, axes)
        axes.set_yticks(range(len(rows)), [finding.line.title for finding in rows])
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_xlim(left=0)
        axes.set_xlabel(audit.subject)
        broken = f", broken on purpose: {audit.settings.broken}" if audit.settings.broken else ""
        axes.set_title(f"Lower bounds and claims, {audit.settings.trials:,} trials{broken}")
        light_grid(axes, "x")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _legend_entries(audit: AuditResult, axes: Axes) -> None:
    """Draws one empty line per kind of mark, so that the legend names marks and not mechanisms."""
    colour = COLOURS["vermillion" if all(finding.failed for finding in audit.findings) else "blue"]
    axes.plot([], [], color=colour, linewidth=5, label=f"lower bound, {audit.settings.confidence:.4g} confidence")
    if any(finding.lower_by_mu is not None for finding in audit.findings):
        axes.plot([], [], "o", color=colour, markerfacecolor="white", label="lower bound by Gaussian DP")
    axes.plot([], [], "|", color=COLOURS["ink"], markersize=13, label="exact, worst votes found")
    axes.plot([], [], "D", color=COLOURS["green"], linestyle="none", label="claimed")
