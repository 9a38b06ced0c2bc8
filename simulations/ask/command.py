"""The sub-command ask: its flags, what it prints, and where it writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any  # values of flags, as click gives them

import click

from party.teachers.teacher import PRIVATE
from protocols.budgets.individualization import WEIGHT_RULES
from protocols.errors import InvalidInput
from protocols.plural import at_most
from simulations.ask.kinds import SHARES, askable
from simulations.datasets import DATASETS
from simulations.engines import ENGINES
from simulations.exits import EPILOG_OF_ASK
from simulations.options import host_from

if TYPE_CHECKING:
    from simulations.ask.settings import AskSettings
    from simulations.progress import Reporter


@click.command(name="ask", epilog=EPILOG_OF_ASK)
@click.option("--parties", help="Number of parties [250].", type=int)
@click.option("--queriers", help="Number of parties that ask [3].", type=int)
@click.option("--dataset", help=f"{' | '.join(DATASETS)}, or your own FILE.csv|.tsv|.parquet|.jsonl|.npz "
              "[glyphs, which needs no file].")  # fmt: skip
@click.option("--schema-file", help="Schema (TOML) of your own data file [FILE.schema.toml].", type=click.Path())
@click.option("--models", help=f"Kinds of models, assigned to the parties in turn: {', '.join(PRIVATE)} [all that the "
              "data allow].")  # fmt: skip
@click.option("--skew", help="Label skew: A of `run --partition dirichlet:A` [no skew].", type=float)  # fmt: skip
@click.option("--private-size", help="Labelled records of all parties [all that the data set has].", type=int)
@click.option("--classes", help="Number of classes (glyphs: 10 to 150).", type=int)
@click.option("--unlabelled", help="Unlabelled records of each querying party [200].", type=int)
@click.option("--turn", help="Largest number of queries per turn [10].", type=int)
@click.option("--budgets", help="1.0 | 1:0.34,2:0.43,3:0.23 (epsilon:share) | lognormal:MEDIAN,SIGMA | "
              "uniform:LOW,HIGH | FILE.csv (party, epsilon, delta) [1:0.34,2:0.43,3:0.23].")  # fmt: skip
@click.option("--delta", help="delta of every budget [1e-5].", type=float)
@click.option("--unit", help="Who is protected: one record, or all of a party's data [record].",
              type=click.Choice(["record", "party"]))  # fmt: skip
@click.option("--mechanism", help="Test a threshold, or answer every query [thresholded_gnmax].",
              type=click.Choice(list(askable())))  # fmt: skip
@click.option("--sigma", help="Standard deviation of each server's label noise, votes [0.12 per party].", type=float)
@click.option("--threshold", help="Votes that the largest noisy count of thresholded_gnmax must reach [0.4 per party].",
              type=float)  # fmt: skip
@click.option("--units", help="Lattice units per vote, a power of two [64].",
              type=int)  # fmt: skip
@click.option("--weights", help="How much a party's vote counts [exhaustive].",
              type=click.Choice(list(WEIGHT_RULES)))  # fmt: skip
@click.option("--stop", help="An exhausted budget ends the study, or its party stops answering [first-exhausted].",
              type=click.Choice(["first-exhausted", "drop-exhausted"]))  # fmt: skip
@click.option("--answer-rate", help="Public estimate of the share of queries answered, to choose orders [1].",
              type=float)  # fmt: skip
@click.option("--quorum", help="Parties that must answer each turn [1].", type=int)
@click.option("--baselines/--no-baselines", help="Also train on the same records with their true labels [on].",
              default=None)  # fmt: skip
@click.option("--seeds", help="Seeds of the noise: 0-9, 3 or 0,2,5-7 [0].")
@click.option("--data-seed", help="Seed of data, partition, models, and of who asks [0].", type=int)
@click.option("--data-dir", help="Folder of the data sets [CONCLAVE_DATA].", type=click.Path())
@click.option("--cache-dir", help="Folder of cached teachers and votes [CONCLAVE_CACHE, or your cache folder].",
              type=click.Path())  # fmt: skip
@click.option("--engine", help=f"{' | '.join(ENGINES)} [flower].", default="flower")
@click.option("--workers", help="Worker processes [one per core].", type=int)
@click.option("--out", help="Folder for the results [runs/ask-NAME-TIME].", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def ask_flags(**flags: Any) -> None:
    """Let querying parties get their own private records labelled by the others, and retrain their models.

    CaPC's experiment (Choquette-Choo et al. 2021), at level two_server with private inference: votes come from the
    parties' models in fixed point, both servers add integer noise, and every party has one cap over all querying
    parties.

    \b
    Examples:
      conclave-simulate ask --parties 250
      conclave-simulate ask --parties 50 --dataset mnist --skew 5 --budgets 20 --seeds 0-4 --out runs/ask
    """
    from simulations.progress import Reporter

    reporter, host = Reporter(quiet=bool(flags["quiet"])), host_from(flags)
    settings = settings_from(flags)
    out = _out(flags, settings)
    _say_defaults(settings, reporter)
    from simulations.ask.report import ask_drawings, write_ask_report, write_ask_results
    from simulations.ask.stages import ask, read_ask_inputs
    from simulations.plots.style import write_figures

    result = ask(read_ask_inputs(settings, host=host, reporter=reporter), host=host, reporter=reporter)
    with reporter.stage("report"):
        figures = write_ask_results(result, out)
        drawn = ask_drawings(figures)
        write_figures(drawn, out)
        write_ask_report(figures, settings, drawn, out)
    if flags["as_json"]:
        click.echo(json.dumps(figures, indent=2))
    else:
        _print(figures, out)


def settings_from(flags: dict[str, Any]) -> AskSettings:
    """The settings that the flags describe. Raises InvalidInput, also for flags without effect."""
    from simulations.ask.settings import AskSettings, ask_settings
    from simulations.setup.experiment import parse_seeds

    given = {key: value for key, value in flags.items() if value is not None and key in AskSettings.model_fields}
    if "seeds" in given:
        given["seeds"] = parse_seeds(given["seeds"])
    if "models" in given:
        given["models"] = tuple(kind.strip() for kind in given["models"].split(","))
    settings = ask_settings(**given)
    used = askable()[settings.mechanism].parameters(view="label")
    for name in SHARES:
        if name in given and name not in used:
            raise InvalidInput(f"--{name.replace('_', '-')} has no effect on {settings.mechanism}; leave it out")
    return settings


def _out(flags: dict[str, Any], settings: AskSettings) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"ask-{Path(settings.dataset).stem}-{settings.parties}-{stamp}"
    out = Path(flags["out"]) if flags["out"] else Path("runs") / name
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder")
    return out


def _say_defaults(settings: AskSettings, reporter: Reporter) -> None:
    """Prints the privacy-relevant settings first."""
    from protocols.study.study import ADJACENCY

    parts = []
    for name in ("unit", "delta"):
        given = "" if name in settings.model_fields_set else " (default)"
        parts.append(f"{name} {getattr(settings, name)}{given}")
    budgets = f"{settings.budgets}{'' if 'budgets' in settings.model_fields_set else ' (default)'}"
    reporter.say(
        f"privacy: {', '.join(parts)}; view label (level two_server); adjacency {ADJACENCY}; budgets {budgets}, each "
        f"over all queries of all {settings.queriers} querying parties"
    )


def _print(figures: dict[str, Any], out: Path) -> None:
    from simulations.report.terminal import print_rows

    def share(value: float | None, half: float | None = None) -> str:
        if value is None:
            return "none"
        return f"{100 * value:.1f} %" + ("" if half is None else f" ± {100 * half:.1f}")

    print_rows(
        f"{figures['parties']} parties, {figures['mechanism']['name']}, {figures['accounting']}, unit "
        f"{figures['unit']}, view {figures['view']}, {figures['adjacency']}",
        ["size", "budget", "weight", "epsilon guaranteed", "used (operator's reading)", "share used"],
        [
            [
                g["size"],
                g["budget"],
                g["weight"],
                g["epsilon_guaranteed"],
                g["epsilon_spent"],
                g["share_of_budget_used"],
            ]
            for g in figures["groups"][:40]
        ],
    )
    print_rows(
        "Querying parties, on test data",
        ["party", "model", "records", "labels", "labels right", "before", "after", "classes lacked", "before", "after"],
        [
            [
                q["party"], q["model"], q["records"], f"{q['answered']:.1f}", share(q["label_accuracy"]),
                share(q["before"]), share(q["after"], q["after_ci95"]), len(q["lacks"]), share(q["before_lacked"]),
                share(q["after_lacked"], q["after_lacked_ci95"]),
            ]
            for q in figures["queriers"]
        ],
    )  # fmt: skip
    click.echo(f"labels given     {figures['answered']:.1f} of {figures['asked']:.1f} asked ({figures['stop']})")
    click.echo(f"labels right     {share(figures['label_accuracy'], figures['label_accuracy_ci95'])}")
    click.echo(f"accuracy before  {share(figures['before'])}")
    click.echo(f"accuracy after   {share(figures['after'], figures['after_ci95'])}")
    for model in figures["models"]:
        click.echo(f"not for release: {model['kind']}, fixed point agrees {100 * model['agreement']:.2f} %")
    first = figures["statements"][0]
    click.echo(
        f"epsilon {at_most(first['epsilon'])} at delta {at_most(first['delta'])} protects {first['protected']} against "
        f"{first['against']}"
    )
    click.echo(f"report           {out / 'report.html'}")
