"""How a command ends: exit codes, errors as two lines on standard error, and signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

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
    Unreachable,
    VerificationFailed,
)
from protocols.refusals.code import Code


class Exit(IntEnum):
    """The exit codes of conclave-party, conclave-coordinator and conclave-guardian."""

    DONE = 0
    UNEXPECTED = 1
    WRONG_USE = 2
    INVALID_INPUT = 3
    REFUSED = 4
    BUDGET = 5
    STORAGE = 6
    NETWORK = 7
    VERIFICATION = 8
    PARTLY = 9
    INTERRUPTED = 130


class SimulationExit(IntEnum):
    """The exit codes of conclave-simulate, which tells an absent data set from a corrupt one."""

    DONE = 0
    OTHER = 1
    INVALID_INPUT = 2
    ABSENT = 3
    CORRUPT = 4
    BUDGET = 5
    STORAGE = 6
    ENGINE = 7
    REFUTED = 8
    INTERRUPTED = 130


_ERRORS: Final[tuple[tuple[type[ConclaveError], Exit, SimulationExit, Code], ...]] = (
    (InvalidInput, Exit.INVALID_INPUT, SimulationExit.INVALID_INPUT, Code.INVALID_INPUT),
    (DataUnavailable, Exit.INVALID_INPUT, SimulationExit.ABSENT, Code.DATA_UNAVAILABLE),
    (DataCorrupt, Exit.INVALID_INPUT, SimulationExit.CORRUPT, Code.DATA_CORRUPT),
    (Refused, Exit.REFUSED, SimulationExit.OTHER, Code.REFUSED),
    (BudgetExceeded, Exit.BUDGET, SimulationExit.BUDGET, Code.BUDGET_EXCEEDED),
    (StorageFailed, Exit.STORAGE, SimulationExit.STORAGE, Code.STORAGE_FAILED),
    (EngineFailed, Exit.NETWORK, SimulationExit.ENGINE, Code.ENGINE_FAILED),
    (MalformedMessage, Exit.NETWORK, SimulationExit.OTHER, Code.MALFORMED),
    (Unreachable, Exit.NETWORK, SimulationExit.OTHER, Code.UNREACHABLE),
    (VerificationFailed, Exit.VERIFICATION, SimulationExit.OTHER, Code.NOT_VERIFIED),
    (ConclaveError, Exit.UNEXPECTED, SimulationExit.OTHER, Code.ERROR),
)
_BUDGET_CODES: Final = frozenset(
    {Code.LIFETIME_CAP, Code.NO_LIFETIME_CAP, Code.LIFETIME_CAP_CHANGED, Code.LIFETIME_CURRENCY}
    | {Code.LIFETIME_FORFEITED, Code.KNOWN_RECORDS, Code.SPOKE_ELSEWHERE}
)


def show_error(error: ConclaveError, pasteable: Callable[[str], str] = str) -> Exit:
    """Prints on standard error what went wrong and what to do next; returns the exit code.

    pasteable: makes commands in it such that they can be pasted (runtime.printing).
    """
    from protocols.refusals.table import meaning_of  # a table that most commands never need

    exit_code, known = next((number, code) for kind, number, _, code in _ERRORS if isinstance(error, kind))
    code, text = str(known), str(error)
    if isinstance(error, Refused):
        code, prefix = error.code, f"{error.code}: "
        while text.startswith(prefix):  # a reason from the other side may repeat its code
            text = text.removeprefix(prefix)
        exit_code = Exit.BUDGET if code in _BUDGET_CODES else exit_code
    click.echo(f"error [{code}]: {pasteable(on_terminal(text))}", err=True)
    click.echo(f"next: {pasteable(meaning_of(code).next_step)}", err=True)
    return exit_code


def on_terminal(text: str) -> str:
    """The text with "?" for what a terminal might obey: a message may quote a file of somebody else."""
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


def simulation_exit(error: ConclaveError) -> SimulationExit:
    """The exit code with which conclave-simulate ends for an error."""
    return next(number for kind, _, number, _ in _ERRORS if isinstance(error, kind))


INTERRUPTED = "interrupted; run the same command again"


def until_signalled(work: Callable[[threading.Event], None]) -> int:
    """Runs `work`, which ends when its event is set; SIGTERM and Ctrl-C set it. Returns the exit code."""
    stop, interrupted = threading.Event(), threading.Event()

    def end(received: int, _: object) -> None:
        if received == signal.SIGINT:
            interrupted.set()
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        work(stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Exit.INTERRUPTED if interrupted.is_set() else 0


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process at once with exit code 130, for work that may be killed at any point.

    KeyboardInterrupt would be raised in whatever line runs, also amid the code of locks and of gRPC, where it may break
    an invariant or be lost. Nothing is cleaned up. For the main thread.
    """

    def end(_: int, __: object) -> None:
        os.write(2, f"\n{INTERRUPTED}\n".encode())
        os._exit(Exit.INTERRUPTED)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
