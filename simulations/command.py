"""The sub-commands run, plan, sweep and compare; exit codes."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any  # values of flags, as click gives them

import click

from protocols.errors import (
    ConclaveError,
    InvalidInput,
)
from protocols.reading import read_json
from runtime.distribution import DISTRIBUTION
from runtime.files import write_atomically
from simulations.ask.command import ask_flags
from simulations.audit.command import audit_flags
from simulations.exits import EPILOG, EPILOG_OF_RUN, EXIT_CODES, INTERRUPTED
from simulations.options import check_idle_analyses, given_settings, host_from, settings_flags, settings_from
from simulations.planning.command import check_idle, optimise_flags, run_optimise

if TYPE_CHECKING:
    from simulations.progress import Reporter
    from simulations.setup.experiment import Experiment

Flags = dict[str, Any]


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run whose folder is known."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self.out = out


class _RunByDefault(click.Group):
    """`conclave-simulate --parties 250` means `conclave-simulate run --parties 250`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version")):
            args = ["run", *args]
        return super().parse_args(context, args)


@click.group(
    cls=_RunByDefault,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name=DISTRIBUTION)
def cli() -> None:
    """Many parties with private data and their own privacy budgets, on one host.

    \b
    Examples:
      conclave-simulate --parties 250
      conclave-simulate run --dataset mnist --teacher cnn --budgets 1:0.34,2:0.43,3:0.23 --seeds 0-19
      conclave-simulate plan --parties 250 --budgets 2.0
      conclave-simulate plan --optimise --parties 250 --classes 10 --budgets 2 --accuracy 0.85
      conclave-simulate run --votes votes.npy --votes-kind ids --labels truth.npy --budgets 2.0
      conclave-simulate sweep sweep.toml --out runs/sweep
      conclave-simulate compare runs/a runs/b
      conclave-simulate accountants
      conclave-simulate audit --mechanism gnmax
    """


@cli.command(name="run", epilog=EPILOG_OF_RUN)
@settings_flags
@click.option("--sweep", "sweep_file", help="Run a sweep instead, like `sweep FILE`.", type=click.Path())
@click.option("--out", help="Folder for the results [runs/NAME-TIME].", type=click.Path())
@click.option("--resume", is_flag=True, help="Continue the run in --out, whose config.toml must be the same.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def run_flags(**flags: Any) -> None:
    """Train teachers, vote, release labels under every party's budget, train a student, report.

    \b
    Examples:
      conclave-simulate run --parties 250
      conclave-simulate run --parties 100 --dataset digits --budgets lognormal:2,0.5 --seeds 0-4 --out runs/digits
      conclave-simulate run --resume --out runs/digits --parties 100 ...   (after Ctrl-C)
    """
    from simulations.pipeline import run, study_of
    from simulations.planning.plan import make_plan, must_afford
    from simulations.planning.terminal import print_plan
    from simulations.report.terminal import print_summary
    from simulations.stages.inputs import read_inputs

    if flags["sweep_file"]:
        for name in ("dry_run", "resume"):
            if flags[name]:
                raise InvalidInput(f"--{name.replace('_', '-')} has no effect with --sweep; leave one of them out")
        _sweep(flags)
        return
    reporter, host = _reporter(flags), host_from(flags)
    settings = _resumed(flags) if flags["resume"] else settings_from(flags)
    if not flags["resume"]:
        check_idle_analyses(settings, given_settings(flags), votes=True)
    _say_defaults(settings, reporter)
    inputs = read_inputs(settings, host=host, reporter=reporter)
    budgets, study = study_of(inputs)
    plan = make_plan(study, budgets)
    if flags["dry_run"]:
        print_plan(plan, as_json=flags["as_json"])
        return
    must_afford(plan)
    out = _out(flags, inputs.settings, {"study": study.digest.hex(), "data": inputs.fingerprint})
    from simulations.plots.figures import write_figures
    from simulations.report.page import write_report
    from simulations.report.private_section import printed, write_private
    from simulations.results.files import write_results

    try:
        result = run(inputs, budgets=budgets, study=study, host=host, reporter=reporter)
        with reporter.stage("report"):
            figures = write_results(result, out)
            write_figures(result, out)
            write_private(result, out)
            write_report(result, figures, out)
    except KeyboardInterrupt:
        raise _Interrupted(out) from None
    if flags["as_json"]:
        click.echo(json.dumps(figures, indent=2))
    else:
        print_summary(figures, out)
        for line in printed(result):
            click.echo(line)


@cli.command(name="plan", epilog=EPILOG)
@settings_flags
@optimise_flags
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def plan_flags(**flags: Any) -> None:
    """Show what a set of budgets affords, before anything is trained; with --optimise, how best to spend it.

    \b
    Examples:
      conclave-simulate plan --parties 250 --budgets 1:0.34,2:0.43,3:0.23
      conclave-simulate plan --parties 4 --budgets 3 --mechanism gnmax --sigma 2
      conclave-simulate plan --optimise --parties 250 --classes 10 --budgets 2 --accuracy 0.85 --out plans/a
    """
    from simulations.pipeline import study_of
    from simulations.planning.plan import make_plan
    from simulations.planning.terminal import print_plan
    from simulations.stages.inputs import read_inputs

    settings, reporter = settings_from(flags), _reporter(flags)
    check_idle_analyses(settings, given_settings(flags), votes=False)
    if not flags["optimise"]:
        check_idle(flags)
    _say_defaults(settings, reporter)
    if flags["optimise"]:
        run_optimise(flags, reporter)
        return
    budgets, study = study_of(read_inputs(settings, host=host_from(flags), reporter=reporter))
    print_plan(make_plan(study, budgets), as_json=flags["as_json"])


@cli.command(name="sweep", epilog=EPILOG)
@click.argument("sweep_file", type=click.Path())
@settings_flags
@click.option("--out", help="Folder for the results [runs/sweep-TIME].", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def sweep_flags(**flags: Any) -> None:
    """Run many settings on votes that are cast once: SWEEP_FILE has [base] settings and a [grid] of lists.

    \b
    Example of a file:
      [base]
      parties = 250
      seeds = "0-4"
      [grid]
      weights = ["uniform", "proportional", "exhaustive"]
      budgets = ["1.0", "2.0", "1:0.5,4:0.5"]
    """
    _sweep(flags)


@cli.command(name="accountants")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def accountants_flags(as_json: bool) -> None:
    """List the accountants: what each figure means, and whether it charges budgets and may be published."""
    from simulations.report.terminal import print_rows
    from simulations.setup.accountants import accountant_table

    table = accountant_table()
    if as_json:
        click.echo(json.dumps([asdict(row) | {"publishable": row.publishable} for row in table], indent=2))
    else:
        print_rows(
            "Accountants; adjacency replace-one. The figures of those that do not charge are private.",
            ["name", "charges", "statement", "unit", "view", "noise"],
            [[row.name, "yes" if row.charges else "no", row.statement, row.unit, row.view, row.noise] for row in table],
        )


@cli.command(name="compare", epilog=EPILOG)
@click.argument("run_a", type=click.Path())
@click.argument("run_b", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def compare_flags(run_a: str, run_b: str, as_json: bool) -> None:
    """Compare two runs: settings that differ, figures, and whether they are comparable at all."""
    from rich.console import Console

    from simulations.report.compare import compare_runs

    comparison = compare_runs(Path(run_a), Path(run_b))
    if as_json:
        click.echo(json.dumps(comparison.to_json(), indent=2))
    else:
        Console().print(comparison.to_table())


cli.add_command(audit_flags)
cli.add_command(ask_flags)


def run_command(arguments: list[str]) -> int:
    """Runs the command line and returns its exit code; errors become one line with the next step."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Without standalone mode click returns the code of an Exit, and otherwise what the command returns: None.
        code = cli.main(arguments, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort) as stopped:
        # click turns every KeyboardInterrupt into an Abort.
        if isinstance(stopped.__cause__, _Interrupted):
            rest = f"what was finished is kept: continue with --resume --out {stopped.__cause__.out}"
        else:
            rest = "nothing was written: run the same command again"
        print(f"\ninterrupted; {rest}", file=sys.stderr)
        return INTERRUPTED
    except ConclaveError as error:
        print(f"error: {error}", file=sys.stderr)
        return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _reporter(flags: Flags) -> Reporter:
    from simulations.progress import Reporter

    return Reporter(quiet=bool(flags["quiet"]))


def _say_defaults(settings: Experiment, reporter: Reporter, *, varied: tuple[str, ...] = ()) -> None:
    """Prints the privacy-relevant settings first. varied: what a sweep varies, of which it prints no value."""
    parts = []
    for name in ("unit", "view", "delta"):
        given = "" if name in settings.model_fields_set else " (default)"
        parts.append(f"{name} varied" if name in varied else f"{name} {getattr(settings, name)}{given}")
    budgets = "varied" if "budgets" in varied else settings.budgets
    reporter.say(f"privacy: {', '.join(parts)}; adjacency replace-one; budgets {budgets}")


def _out(flags: Flags, settings: Experiment, started_from: dict[str, str]) -> Path:
    """The results folder, with config.toml and started_from.json in it. Raises InvalidInput when it holds another run.

    started_from: digests of the study and of the data, which show whether a file named in config.toml has changed.
    """
    from simulations.setup.experiment import write_config

    name = Path(settings.votes).stem if settings.votes else Path(settings.dataset).stem
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    out = Path(flags["out"]) if flags["out"] else Path("runs") / f"{name}-{settings.parties}-{stamp}"
    if not flags["resume"] and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder, or --resume to continue in it")
    record = out / "started_from.json"
    if flags["resume"] and record.exists():
        before = read_json(record)
        for what, digest in started_from.items():
            if before.get(what) != digest:
                raise InvalidInput(
                    f"{out} was started from another {what}: a file that its config.toml names has changed since "
                    f"({str(before.get(what))[:16]}, now {digest[:16]}); allowed: the same content, or another --out"
                )
    write_atomically(out / "config.toml", write_config(settings))
    write_atomically(record, json.dumps(started_from, indent=2) + "\n")
    return out


def _resumed(flags: Flags) -> Experiment:
    """The settings of the run in --out; given flags must agree with them."""
    from simulations.setup.experiment import read_config

    if not flags["out"]:
        raise InvalidInput("--resume needs --out, the folder of the run to continue")
    stored = read_config(Path(flags["out"]) / "config.toml")
    wanted = given_settings(flags)
    for key, value in wanted.items():
        before = stored.model_dump().get(key)
        if settings_from(flags).model_dump().get(key) != before:
            raise InvalidInput(
                f"{flags['out']} was started with {key} = {before!r}, not {value!r}; "
                "allowed: the same settings, or another --out"
            )
    return stored


def _sweep(flags: Flags) -> None:
    import tomli_w

    from simulations.plots.figures import sweep_figure, write_figure
    from simulations.report.terminal import print_rows
    from simulations.results.files import environment
    from simulations.sweep import read_sweep, run_sweep

    reporter, host = _reporter(flags), host_from(flags)
    sweep = read_sweep(Path(flags["sweep_file"]), given=given_settings(flags))
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    out = Path(flags["out"]) if flags["out"] else Path("runs") / f"sweep-{stamp}"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder")
    _say_defaults(sweep.settings[0], reporter, varied=sweep.varied)
    table = run_sweep(sweep, host=host, reporter=reporter)
    write_atomically(out / "sweep.csv", table.to_csv(index=False))
    write_atomically(out / "sweep.toml", tomli_w.dumps(sweep.document))
    write_atomically(out / "env.json", json.dumps(environment(), indent=2) + "\n")
    write_figure(sweep_figure(table), out / "figures" / "sweep")
    if flags["as_json"]:
        click.echo(table.to_json(orient="records", indent=2))
    else:
        hidden = {"unit", "view", "accountant", "note", "answered_ci95"} - set(sweep.varied)
        shown = [column for column in table.columns if column not in hidden]
        print_rows(f"{len(table)} settings, {out / 'sweep.csv'}", shown, table[shown].head(40).to_numpy().tolist())
        for note, times in table["note"][table["note"] != ""].value_counts().head(5).items():
            click.echo(f"{times} settings were not run: {note}")
