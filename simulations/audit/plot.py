"""The figure of an audit: lower bounds against claims, one line per mechanism and view."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.audit.audit import AuditedTarget, AuditResult
from simulations.audit.record_votes.audit import AuditedRecords, RecordAuditResult
from simulations.plots.style import COLOURS, light_grid, new_figure, style


def audit_figure(audit: AuditResult | RecordAuditResult) -> Figure:
    """The claimed epsilon, the exact epsilon of the worst pair and the lower bound, for every finding."""
    rows: Sequence[AuditedTarget | AuditedRecords] = audit.findings[::-1]
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
        axes.set_yticks(range(len(rows)), [finding.title for finding in rows])
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_xlim(left=0)
        axes.set_xlabel(audit.subject)
        broken = f", broken on purpose: {audit.settings.broken}" if audit.settings.broken else ""
        axes.set_title(f"Lower bounds and claims, {audit.settings.trials:,} trials{broken}")
        light_grid(axes, "x")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _legend_entries(audit: AuditResult | RecordAuditResult, axes: Axes) -> None:
    """Draws one empty line per kind of mark, so that the legend names marks and not mechanisms."""
    colour = COLOURS["vermillion" if all(finding.failed for finding in audit.findings) else "blue"]
    axes.plot([], [], color=colour, linewidth=5, label=f"lower bound, {audit.settings.confidence:.4g} confidence")
    if any(finding.lower_by_mu is not None for finding in audit.findings):
        axes.plot([], [], "o", color=colour, markerfacecolor="white", label="lower bound by Gaussian DP")
    axes.plot([], [], "|", color=COLOURS["ink"], markersize=13, label="exact, worst votes found")
    axes.plot([], [], "D", color=COLOURS["green"], linestyle="none", label="claimed")
