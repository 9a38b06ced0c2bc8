"""conclave-party: the hospital's command."""

from __future__ import annotations

from runtime.distribution import run_program


def main() -> None:
    """Runs the command line; the process ends with its exit code."""
    run_program("party.commands.group")


if __name__ == "__main__":
    main()
