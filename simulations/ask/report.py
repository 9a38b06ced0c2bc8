"""report.html of `ask`: one self-contained page; all its numbers come from the summary."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from protocols.claims import SIMULATED, strength
from protocols.labelling.schedule import STOP_MEANINGS
from runtime.files import write_atomically
from runtime.page import document, verdict
from runtime.templates import templates
from simulations.ask.results import Summary
from simulations.ask.settings import AskSettings, write_ask_config
from simulations.plots.figures import Drawing, inline_svg
from simulations.results.files import environment
from simulations.results.text import count, interval, parties_words, percent, power_of_ten, seeds_text

_MOST_GROUPS = 300


def write_ask_report(figures: Summary, settings: AskSettings, drawn: Sequence[Drawing], out: Path) -> Path:
    """Writes out/report.html and returns its path. Raises StorageFailed; the file is whole or absent."""
    path = out / "report.html"
    write_atomically(path, render_ask_report(figures, settings, drawn))
    return path


def render_ask_report(figures: Summary, settings: AskSettings, drawn: Sequence[Drawing]) -> str:
    """The page as HTML. figures: what `ask_summary` gives; drawn: what `ask_drawings` gives."""
    pages = templates(
        "simulations.report", autoescape=True, count=count, percent=percent, power=power_of_ten, spread=_spread
    )
    seeds = len(figures["seeds"])
    body = pages.get_template("ask.html.j2").render(
        verdict=Markup(_verdict(figures)),
        figures=figures,
        simulated=SIMULATED,
        seeds=seeds,
        stop=STOP_MEANINGS[figures["stop"]],
        interval=lambda half, points: interval(half, seeds=seeds, points=points),
        groups=figures["groups"][:_MOST_GROUPS],
        drawings=[{"svg": Markup(inline_svg(one)), "caption": one.caption} for one in drawn],
        command=ask_command_line(settings),
        config=write_ask_config(settings),
        environment=environment(),
    )
    return document(
        title=f"{parties_words(figures['parties'])}, {len(figures['queriers'])} of them ask, {figures['dataset']}",
        kind="report of simulated confidential queries",
        body=body,
        footer=pages.get_template("ask_footer.html.j2").render(figures=figures),
    )


def _verdict(figures: Summary) -> str:
    """What asking brought, before anything else is said."""
    epsilon, delta = figures["epsilon_guaranteed_max"], max(group["delta"] for group in figures["groups"])
    change, half = figures["after"] - figures["before"], figures["after_ci95"]
    alone, together = percent(figures["before"]), percent(figures["after"])
    certain = half is not None and abs(change) > half
    return verdict(
        f"One party alone {alone}, with the answers of the others {together}, on the same test records.",
        [
            (
                "Is that more?",
                "Yes, by more than chance explains." if certain and change > 0
                else "No: it is less." if certain
                else "One seed cannot tell: run several (--seeds)." if half is None
                else "The interval includes no change: it may be chance.",
            ),
            ("What it cost those who answered:", f"ε of at most {epsilon:.3g} each. {strength(epsilon, delta)}"),
        ],
        tone="good" if certain and change > 0 else "plain",
    )  # fmt: skip


def ask_command_line(settings: AskSettings) -> str:
    """The command that repeats a run: every setting that is not the default."""
    words = ["conclave-simulate", "ask"]
    for name, field in AskSettings.model_fields.items():
        value = getattr(settings, name)
        if value == field.default or value is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif name == "seeds":
            words += [flag, seeds_text(value)]
        else:
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return shlex.join(words)


def _spread(mean: float | None, half: float | None) -> str:
    """A share with its interval."""
    if mean is None:
        return "none"
    return percent(mean) if half is None else f"{percent(mean)} ± {100 * half:.1f}"
