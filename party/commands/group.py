"""conclave-party: its commands, and how errors reach people: one line with a code, one with the next step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from protocols.errors import (
    BudgetExceeded,
    ConclaveError,
    DataCorrupt,
    DataUnavailable,
    EngineFailed,
    InvalidInput,
    MalformedMessage,
    Refused,
    StorageFailed,
    VerificationFailed,
)
from runtime.cli import CONTEXT, EPILOG, CommandTable, home_flag, run_group

if TYPE_CHECKING:
    from party.home import PartyHome

HOME_VARIABLE: Final = "CONCLAVE_PARTY_HOME"
DEFAULT_HOME: Final = Path("~/.conclave-party")
# A command is imported when it is called: most need neither gRPC nor a teacher's packages.
COMMANDS: Final[dict[str, str]] = {
    "init": "party.commands.membership:init",
    "enrol": "party.commands.membership:enrol",
    "doctor": "party.commands.membership:doctor",
    "data": "party.commands.study:data",
    "approve": "party.commands.study:approve",
    "train": "party.commands.study:train",
    "run": "party.commands.running:run",
    "ask": "party.commands.ask:ask",
    "budget": "party.commands.accounts:budget",
    "audit": "party.commands.accounts:audit",
    "withdraw": "party.commands.accounts:withdraw",
    "demo": "party.commands.demo:demo",
}
_ERRORS: Final[tuple[tuple[type[ConclaveError], int, str, str], ...]] = (
    (InvalidInput, 3, "invalid_input", "correct the value and run the command again"),
    (DataUnavailable, 3, "data_unavailable", "put it there, or correct the path, and run the command again"),
    (DataCorrupt, 3, "data_corrupt", "correct the file and run the command again"),
    (MalformedMessage, 7, "malformed", "check the address, and that both sides run versions that fit"),
    (Refused, 4, "refused", "see conclave-party doctor"),
    (BudgetExceeded, 5, "budget_exceeded", "nothing was charged; see conclave-party budget show"),
    (StorageFailed, 6, "storage_failed", "mend that and run the same command again; nothing is lost"),
    (EngineFailed, 7, "engine_failed", "run the command again"),
    (ConclaveError, 1, "error", "run the command again; if it fails again, report it"),
)
_NEXT: Final[dict[str, str]] = {
    "pending": "read the fingerprint to the operator, who approves it; then run conclave-party enrol again",
    "home_open": "chmod 700 that folder, after asking who may have read the key in it",
    "already_running": "stop the other conclave-party run, or see its log",
    "lifetime_cap": "see conclave-party budget show; a withdrawn study gives back what it never spent",
    "no_lifetime_cap": "set it in node.toml and approve again",
    "lifetime_cap_changed": "put the promised cap back into node.toml",
    "withdrawn": "a study that was withdrawn can not be taken up again; the operator may make a new one",
    "approved_elsewhere": "answer from that home: two would spend twice",
    "revoked": "ask the consortium's operator why; a new key needs a new invitation",
    "certificate_expired": "set the clock if it is wrong; otherwise ask the operator for a new invitation",
    "ledger_rolled_back": "use the newest copy of this home alone; see conclave-party audit verify",
    "policy_rolled_back": "put the newest policy.sqlite back; if it is lost, approve nothing more for this data set",
    "peer_rolled_back": "ask the operator to use the newest copy of the coordinator's files",
    "wire_version": "install a version of conclave that the coordinator also speaks",
    "clock_jumped": "set this machine's clock right, and run the command again",
    "too_many_refusals": "tell the consortium's operator: the coordinator asks for what may not be answered",
    "not_confirmed": "nothing was approved; run the command again to approve",
    "quorum_lost": "run the same command again when those that did not come are back, and those that refused have "
    "mended what they name; what was asked costs nobody anything more",
    "wrong_role": "correct the address: somebody else than who should be there answers at it",
    "wrong_guardian": "give the address of the guardian that the study names",
    "not_querier": "ask in the study whose [confidentiality] names this hospital as its querier",
    "not_enrolled": "run: conclave-party enrol",
    "no_teachers": "run: conclave-party train STUDY",
}
_BUDGET_CODES: Final = frozenset({"lifetime_cap", "no_lifetime_cap", "lifetime_cap_changed", "lifetime_currency"})
_UNREACHABLE: Final = 7
VERIFICATION_FAILED: Final = 8


@click.group(cls=CommandTable, table=COMMANDS, epilog=EPILOG, context_settings=CONTEXT)
@click.version_option(package_name="conclave")
def cli() -> None:
    """The hospital's side of a consortium: which studies it joins, what they may cost, and its node.

    \b
    From an invitation to a running node:
      conclave-party init invitation.toml       (then read the fingerprint to the operator)
      conclave-party enrol --wait 600
      conclave-party doctor
      conclave-party data check study.toml
      conclave-party approve study.toml
      conclave-party train STUDY
      conclave-party run
      conclave-party budget show
    """


def _home(folder: Path) -> PartyHome:
    from party.home import PartyHome

    return PartyHome(folder.resolve())


home_option = home_flag(_home, variable=HOME_VARIABLE, default=DEFAULT_HOME, whose="The node's folder")


def run_command(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    return run_group(cli, arguments, program="conclave-party", show_error=show_error)


def show_error(error: ConclaveError) -> int:
    """Prints what went wrong and what to do next, on standard error; returns the exit code."""
    exit_code, code, step = next(
        (number, name, step) for kind, number, name, step in _ERRORS if isinstance(error, kind)
    )
    text = str(error)
    if isinstance(error, Refused):
        code, prefix = error.code, f"{error.code}: "
        while text.startswith(prefix):  # a reason from the other side may repeat its code
            text = text.removeprefix(prefix)
        exit_code = 5 if code in _BUDGET_CODES else exit_code
    elif isinstance(error, VerificationFailed):
        exit_code, code, step = VERIFICATION_FAILED, "not_verified", "get the release again from the coordinator"
    elif type(error).__name__ == "Unreachable":  # its module needs gRPC, which most commands do without
        exit_code, code, step = _UNREACHABLE, "unreachable", "run: conclave-party doctor"
    click.echo(f"error [{code}]: {text}", err=True)
    click.echo(f"next: {_NEXT.get(code, step)}", err=True)
    return exit_code
