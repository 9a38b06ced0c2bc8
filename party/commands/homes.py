"""The commands home backup, move, restore, repair and passphrase: a hospital's home through its years."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from party.commands.group import home_option
from protocols.errors import InvalidInput, Refused
from protocols.refusals.code import Code
from runtime.cli import EPILOG, passphrase_command
from runtime.printing import say_next

if TYPE_CHECKING:
    from party.home import PartyHome

_encrypt = click.option(
    "--encrypt", is_flag=True,
    help="Seal the file with a passphrase: typed, or of CONCLAVE_PASSPHRASE, _FILE or _COMMAND.",
)  # fmt: skip
_COST: Final = (
    "A lost ledger ends its study here, and all that it ever reserved is charged. A policy.sqlite that is lost or old, "
    "and --forfeit-all, end every study of this home and charge its lifetime caps in full."
)
_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def home_commands() -> None:
    """Back up, move, restore or repair this node's home."""


@home_commands.command(epilog=EPILOG)
@_file
@_encrypt
@home_option
def backup(file: Path, encrypt: bool, home: PartyHome) -> None:
    """Write keys, settings, approvals and ledgers into FILE; the node may go on.

    Records and teachers are not in it. Restoring a backup forfeits what cannot be proved: see home restore.

    \b
    Example:
      conclave-party home backup home-monday.conclave --encrypt
    """
    _write(home, file, "backup", encrypt=encrypt)
    click.echo(f"{file} holds this home as it is now, with its key: keep it as you keep the key")
    click.echo(
        "a home restored from it has forfeited its studies and, unless node.toml's policy lies outside the home, its "
        "lifetime caps; one that still works goes to another machine by: conclave-party home move"
    )


@home_commands.command(epilog=EPILOG)
@_file
@_encrypt
@click.option("--yes", is_flag=True, help="Do not ask first.")
@home_option
def move(file: Path, encrypt: bool, yes: bool, home: PartyHome) -> None:
    """Write this home into FILE for another machine, and retire it here: nothing is forfeited.

    On the same machine no command is needed: stop the node and move the folder.

    \b
    Example:
      conclave-party home move home.conclave --encrypt
    """
    if not yes and not click.confirm(f"Retire {home.path}? No command works there afterwards.", err=True):
        raise Refused(Code.NOT_CONFIRMED, f"{home.path} goes on")
    _write(home, file, "move", encrypt=encrypt)
    click.echo(f"{home.path} is retired; next, on the other machine: conclave-party home restore {file.name}")


@home_commands.command(epilog=EPILOG)
@_file
@click.option("--yes", is_flag=True, help="Do not ask first.")
@home_option
def restore(file: Path, yes: bool, home: PartyHome) -> None:
    """Make a home from FILE, once: FILE is renamed to FILE.restored. What a backup forfeits is shown first.

    A moved home goes on as it was. A backup does not know what was answered and approved since: every study of it ends
    here with its whole cap, and its lifetime caps are charged in full. If node.toml's policy lies outside the home and
    is there, only the ledgers that are older than it are given up.

    \b
    Example:
      conclave-party home restore home.conclave --home ~/.conclave-party
    """
    from party.keeping import restore as make
    from runtime.key_files import passphrase

    def agree(forfeited: list[str]) -> None:
        if yes:
            return
        click.echo("A backup does not know what was answered since. Restoring it forfeits:", err=True)
        for line in forfeited or ["nothing: no study was approved, and no cap is set"]:
            click.echo(f"  {line}", err=True)
        if not click.confirm("Forfeit that for ever, and restore?", err=True):
            raise Refused(Code.NOT_CONFIRMED, f"nothing was changed, and {file} can still be restored")

    for line in make(home, file, passphrase=lambda: passphrase(str(file)), agree=agree):
        click.echo(line)
    click.echo(f"{home.path} works")
    say_next("conclave-party doctor")


@home_commands.command(epilog=EPILOG)
@click.option(
    "--forfeit-all", is_flag=True,
    help="End every study and charge every lifetime cap in full: for a home that was put together from old copies.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask first.")
@home_option
def repair(forfeit_all: bool, yes: bool, home: PartyHome) -> None:
    """Make a home work again of which a ledger, policy.sqlite or home.id is lost, unreadable or old.

    Put the newest copies back first, if there are any. A lost ledger ends its study here, and all that it ever reserved
    is charged. A lost policy.sqlite ends all studies here, and charges the lifetime caps in full.

    \b
    Example:
      conclave-party home repair
    """
    from party.keeping import repair as mend

    if not yes:
        click.echo(f"{_COST}\nPut the newest copies back first, if there are any.", err=True)
    what = "all of it" if forfeit_all else "what cannot be proved"
    if not yes and not click.confirm(f"Forfeit {what} in {home.path}, for ever?", err=True):
        raise Refused(Code.NOT_CONFIRMED, "nothing was changed")
    for line in mend(home, everything=forfeit_all):
        click.echo(line)
    say_next("conclave-party doctor")


home_commands.add_command(
    passphrase_command("conclave-party home", home_option, keys=lambda home: [home.key], runs="run")
)


def _write(home: PartyHome, file: Path, kind: str, *, encrypt: bool) -> None:
    from party.keeping import back_up
    from runtime.key_files import new_passphrase

    if file.exists():
        raise InvalidInput(f"{file} exists; allowed: the name of a new file")
    secret = new_passphrase(str(file)) if encrypt else None
    back_up(home, file, kind="move" if kind == "move" else "backup", passphrase=secret)
    if not encrypt:
        click.echo(f"warning: {file} is not encrypted, and holds the node's key; see --encrypt", err=True)
