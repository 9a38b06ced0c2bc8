"""The figure of a membership report: true over false positives, on logarithmic axes, and the ceiling."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from simulations.membership.ceiling import true_positive_ceiling
from simulations.membership.report import AttackResult, MembershipReport
from simulations.plots.style import COLOURS, Drawing, new_figure, style
from simulations.results.membership_text import ATTACKS, MODELS, finding

_LOOKS = {
    "released": ("blue", ("-", "--")),
    "no_private_data": ("green", ("-", "--")),
    "non_private": ("orange", ("-", "--")),
}


def roc_drawing(report: MembershipReport) -> Drawing:
    """The curves of all measured attacks, the chance line, and the ceiling that epsilon gives for every unit."""
    ceiling = report.least_protected
    least = 1 / max(result.non_members for result in report.released)
    wide = np.geomspace(least, 1, 200)
    with style():
        figure = new_figure(height=4.6)
        axes = figure.add_subplot()
        axes.set_title("Membership attack on the released student")
        at_most = true_positive_ceiling(wide, epsilon=np.asarray(ceiling.epsilon), delta=np.asarray(ceiling.delta))
        axes.fill_between(wide, at_most, 1, color=COLOURS["grid"], alpha=0.45, linewidth=0)
        axes.plot(wide, at_most, color=COLOURS["ink"], linewidth=1.3, label=f"ceiling, ε = {ceiling.epsilon:.3g}")
        axes.plot(wide, wide, color=COLOURS["muted"], linewidth=1.0, linestyle=":", label="chance")
        for name, (colour, dashes) in _LOOKS.items():
            for result, dash in zip(getattr(report, name), dashes, strict=False):
                _draw(axes, result, colour=COLOURS[colour], dash=dash, model=MODELS[name])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(least, 1)
        axes.set_ylim(least / 2, 1.15)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
            axis.set_minor_formatter(NullFormatter())
            axis.grid(True)
        axes.set_xlabel("non-members taken for members (false-positive rate)")
        axes.set_ylabel("members found (true-positive rate)")
        axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.14), ncols=1, fontsize=8.0)
    loss = report.released[0]
    return Drawing(
        "membership",
        f"{finding(report)} Shaded: what no attack on one unit can reach under the guarantee. A curve below the chance "
        "line at the left means that fewer members than non-members score highest. Computed from private records: for "
        "research, not for release.",
        f"Curves of true over false positives, both axes logarithmic. The loss attack on the released student has an "
        f"area of {loss.area.value:.3f}; the ceiling's is {ceiling.area:.3f}.",
        figure,
    )


def _draw(axes: Axes, result: AttackResult, *, colour: str, dash: str, model: str) -> None:
    """Draws one attack on one model, without rates of 0, which a logarithmic axis cannot show."""
    found = result.curve.true_positive_rate
    shown = np.where(found > 0, found, np.nan)
    axes.step(
        result.curve.false_positive_rate,
        shown,
        where="post",
        color=colour,
        linestyle=dash,
        linewidth=1.5,
        label=f"{model}; {ATTACKS[result.attack]}: AUC {result.area.value:.3f}",
    )
