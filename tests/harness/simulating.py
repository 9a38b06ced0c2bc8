"""conclave-simulate, run in this process."""

from simulations.commands.group import run_command


def run(*arguments: object) -> int:
    """The exit code of conclave-simulate with these arguments."""
    return run_command([str(a) for a in arguments])
