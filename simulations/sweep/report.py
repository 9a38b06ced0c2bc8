"""report.html of a sweep: one self-contained page; all its numbers come from the table of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import pandas as pd

from protocols.claims import SIMULATED
from protocols.study.study import ADJACENCY
from runtime.page import cards, document, facts, lines, table, text, verdict
from simulations.plots.style import Drawing, inline_svg
from simulations.results.files import environment
from simulations.sweep.grid import Sweep, words
from simulations.sweep.intervals import covered

# Rows shown on the page; the rest is in intervals.csv.
_MOST_ROWS = 300
_SHARES = ("label_accuracy", "student_accuracy", "share_of_budget_used_min")


def sweep_report(sweep: Sweep, settings: pd.DataFrame, drawn: Sequence[Drawing], *, config: str, command: str) -> str:
    """The page as HTML. settings: the table of intervals; config: sweep.toml; command: what makes the same again."""
    first = sweep.settings[0]
    body = [
        _verdict(settings, sweep.varied),
        f'<p class="notice"><strong>This was a simulation.</strong> {text(SIMULATED)}</p>',
        cards(
            [
                ("Settings", str(len(settings)), f"varied: {', '.join(sweep.varied)}"),
                ("Seeds", str(len(first.seeds)), "of noise, coins and student"),
                ("Data seeds", str(len(sweep.data_seeds)), "of data, partition, teachers and who has which budget"),
                ("Afford nothing", str(int((settings["note"] != "").sum())), "settings without a label"),
            ]
        ),
        '<section aria-labelledby="figures"><h2 id="figures">Figures</h2>',
        *(
            f'<figure><div class="scroll" role="region" tabindex="0" aria-label="Figure {number}">{inline_svg(one)}'
            f"</div><figcaption>Figure {number}. {text(one.caption)}</figcaption></figure>"
            for number, one in enumerate(drawn, 1)
        ),
        "</section>",
        '<section aria-labelledby="settings"><h2 id="settings">Settings</h2>',
        table(
            "Means and 95 % intervals",
            [*(name.replace("_", " ") for name in ("setting", *sweep.varied)), "labels", "asked", "label accuracy",
             "student accuracy", "most frequent class", "ε that may be published", "least share of a budget used"],
            [_row(row, sweep.varied) for row in settings.head(_MOST_ROWS).to_dict("records")],
        ),
        *([lines(f"{words({key: row[key] for key in sweep.varied})}: {row['note']}" for row in refused)]
          if (refused := settings[settings["note"] != ""].head(_MOST_ROWS).to_dict("records")) else []),
        "</section>",
        '<section aria-labelledby="reading"><h2 id="reading">How to read it</h2>',
        lines(
            [
                covered(settings),
                f"Each ε protects one {first.unit} ({ADJACENCY}) against whoever sees the "
                f"{'labels' if first.view == 'label' else 'noisy counts'}, unless unit or view vary. It holds for one "
                "run: a hospital that took part in all of these runs would have spent the sum.",
                "Accuracies of labels and students are measured against true labels that a federation would not have. "
                "Choosing the best of many settings by them is a choice that no budget pays for.",
                "With many settings some differ by chance: an interval holds for one setting, not for the best of all.",
            ]
        ),
        "</section>",
        '<section aria-labelledby="again"><h2 id="again">Make it again</h2>',
        f"<pre>{text(command)}</pre><pre>{_kept_lines(config)}</pre>",
        facts((name, value) for name, value in environment().items() if name != "versions"),
        "</section>",
    ]  # fmt: skip
    return document(
        title=f"Sweep of {len(settings)} settings", kind="report of a simulated sweep", body="\n".join(body)
    )


def _verdict(settings: pd.DataFrame, varied: tuple[str, ...]) -> str:
    """The setting with the best student, else the best labels, and whether its interval is apart from the next."""
    shown = settings[settings["note"] == ""]
    name = next((key for key in ("student_accuracy", "answered") if pd.to_numeric(shown[key]).notna().any()), None)
    if name is None:
        return verdict("No setting affords a label.", tone="warn")
    ranked = shown.assign(_rank=pd.to_numeric(shown[name])).sort_values("_rank", ascending=False)
    best = ranked.iloc[0]
    what = "the best student" if name == "student_accuracy" else "the most labels"
    said = f"{what[0].upper()}{what[1:]}: {_figure(best, name)}, at {words({key: best[key] for key in varied})}."
    points = [("Intervals:", covered(settings))]
    if len(ranked) > 1 and best["repetitions"] > 1:
        second = ranked.iloc[1]
        apart = best[f"{name}_low"] > second[f"{name}_high"]
        points.append(
            (
                "Is it better than the next?",
                f"The next has {_figure(second, name)}. "
                + ("Their intervals do not overlap." if apart else "Their intervals overlap: it may be chance."),
            )
        )
    return verdict(said, points)


def _row(row: dict[object, object], varied: tuple[str, ...]) -> list[object]:
    epsilon, majority = row["epsilon_guaranteed_max"], row["majority_share"]
    return [
        row["setting"], *(row[key] for key in varied),
        *(_figure(row, name) for name in ("answered", "asked", "label_accuracy", "student_accuracy")),
        "none" if not _known(majority) else f"{100 * float(majority):.1f} %",  # type: ignore[arg-type]  # a number
        "none" if not _known(epsilon) else f"{float(epsilon):.4g}",  # type: ignore[arg-type]  # a number
        _figure(row, "share_of_budget_used_min"),
    ]  # fmt: skip


def _figure(row: object, name: str) -> str:
    """A figure with the half-width of its interval."""
    mean, high = row[name], row[f"{name}_high"]  # type: ignore[index]  # a row, as a dict or a series
    if not _known(mean):
        return "none"
    scale, unit = (100, " %") if name in _SHARES else (1, "")
    half = f" ± {scale * (float(high) - float(mean)):.1f}" if _known(high) else ""
    return f"{scale * float(mean):.1f}{half}{unit}".replace(" ", "\N{NO-BREAK SPACE}")


def _known(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _kept_lines(config: str) -> str:
    return "\n".join(text(line) for line in config.splitlines())
