"""conclave-simulate: its commands, and how each of them ends."""

from __future__ import annotations

import signal
import sys
from typing import Final

import click

from protocols.errors import ConclaveError
from protocols.installing import DISTRIBUTION
from runtime.cli import CONTEXT, CommandTable
from runtime.distribution import lacking
from runtime.exits import SimulationExit, on_terminal, simulation_exit
from simulations.exits import EXIT_CODES, Interrupted

# Each command, and the first sentence of its help: to list them, none is imported, as flags name the mechanisms and
# accountants that there are, which need NumPy.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": (
        "simulations.commands.run:run_flags",
        "Train teachers, vote, release labels under every party's budget, train a student, report.",
    ),
    "plan": (
        "simulations.commands.plan:plan_flags",
        "Show what a set of budgets affords, before anything is trained; with --optimise, how to spend them best.",
    ),
    "count": (
        "simulations.commands.count:count_flags",
        "Simulate a count of patients: what hospitals on this host would learn, with the noise of a study.",
    ),
    "sweep": (
        "simulations.commands.sweep:sweep_flags",
        "Run many settings on votes that are cast once: SWEEP_FILE has [base] settings and a [grid] of lists.",
    ),
    "baselines": (
        "simulations.commands.baselines:baselines_flags",
        "Compare methods on the same records at equal epsilon: PATE, private training, parties alone, pooled data.",
    ),
    "analyse": (
        "simulations.commands.analyse:analyse_flags",
        "Say what a fixed number of stored votes' queries cost on these votes, without any budget: private figures.",
    ),
    "accountants": (
        "simulations.commands.tables:accountants_flags",
        "List the accountants: what each figure means, and whether it charges budgets and may be published.",
    ),
    "compare": (
        "simulations.commands.tables:compare_flags",
        "Compare two runs: settings that differ, figures, and whether they are comparable at all.",
    ),
    "audit": (
        "simulations.audit.command:audit_flags",
        "Run each mechanism on worst-case neighbouring votes: prints a lower bound on epsilon beside the claimed one.",
    ),
    "schema": (
        "simulations.commands.schema:schema_flags",
        "Propose the schema of your own CSV, Parquet or JSON lines table, from its columns and values, for you to "
        "correct.",
    ),
    "encoder": (
        "simulations.commands.encoder:encoder_flags",
        "Make an encoder of a data set's public pool, of public weights or trained on it, for --features onnx:FILE.",
    ),
}


class _RunByDefault(CommandTable):
    """`conclave-simulate --parties 250` means `conclave-simulate run --parties 250`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version")):
            args = ["run", *args]
        return super().parse_args(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(
    cls=_RunByDefault,
    table={name: where for name, (where, _) in COMMANDS.items()},
    epilog=EXIT_CODES,
    context_settings=CONTEXT,
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
      conclave-simulate analyse --votes votes.npy --votes-kind ids --mechanism gnmax --queries 640
      conclave-simulate accountants
      conclave-simulate audit --mechanism gnmax
    """


def run_command(arguments: list[str], command: click.Command = cli) -> int:
    """Runs a command line of conclave-simulate, or of `command`; returns its exit code.

    Errors become one line with the next step.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Without standalone mode click returns the code of an Exit, and otherwise what the command returns: None.
        code = command.main(arguments, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort) as stopped:
        # click makes an Abort of every KeyboardInterrupt.
        if isinstance(stopped.__cause__, Interrupted):
            rest = f"what was finished is kept: continue with --resume --out {stopped.__cause__.out}"
        else:
            rest = "nothing was written: run the same command again"
        print(f"\ninterrupted; {rest}", file=sys.stderr)
        return SimulationExit.INTERRUPTED
    except (ConclaveError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError):
            error = lacking(error, "conclave-simulate", "sim")
        print(f"error: {on_terminal(str(error))}", file=sys.stderr)
        return simulation_exit(error)
