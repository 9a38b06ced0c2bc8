"""A hospital's home through its years: init, enrol, doctor, and home backup, move, restore, repair and passphrase."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import secrets
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from party.commands.group import home_option
from protocols.errors import InvalidInput, Refused, Unreachable
from protocols.reading import TOML_BYTES, read_bytes
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option, passphrase_command
from runtime.files import write_atomically
from runtime.printing import pasteable, print_json, say_next

if TYPE_CHECKING:
    from party.home import PartyHome
    from party.settings import Invitation

# The key of the file that goes with each kind of source.
_BESIDE: Final = {"sql": "query", "omop": "features", "fhir": "features", "dicom": "labels"}
_POLL_S: Final = 2.0
_CALL_S: Final = 15.0


@click.command(epilog=EPILOG)
@click.argument("invitation", type=click.Path(path_type=Path))
@home_option
@click.option("--data-name", help="Name of the data set, to which its lifetime caps belong.")
@click.option("--data", "data_path", type=click.Path(path_type=Path), help="The private records: a file or a folder.")
@click.option("--loader", help="csv, parquet, npz, images, jsonl, sql, omop, fhir, dicom, or an installed loader.")
@click.option("--url", help="sql, omop: URL of the database, without a password.")
@click.option(
    "--with", "beside", type=click.Path(path_type=Path),
    help="The file that goes with the records: the query (sql), the features (omop, fhir), the labels (dicom).",
)  # fmt: skip
@click.option("--patient", help="Column that names the patient; '' if every record belongs to a different patient.")
@click.option("--teacher", help="Kind of teachers.")
@click.option("--unit", type=click.Choice(["record", "patient", "party"]), help="Unit of the lifetime cap.")
@click.option("--epsilon", type=float, help="Lifetime cap: epsilon.")
@click.option("--delta", type=float, help="Lifetime cap: delta.")
@click.option("--settle/--no-settle", default=None, help="Charge less for what the coordinator says got no answer.")
@click.option(
    "--policy", type=click.Path(path_type=Path),
    help="policy.sqlite of another home of this hospital, such as an earlier consortium's: keep its caps.",
)  # fmt: skip
@click.option("--new-key", is_flag=True, help="Discard the old key and certificate, for a new invitation.")
@click.option("--enrol", "ask_now", is_flag=True, help="Ask for the certificate at once; `run` or `enrol` fetches it.")
def init(
    invitation: Path,
    home: PartyHome,
    data_name: str | None,
    data_path: Path | None,
    loader: str | None,
    url: str | None,
    beside: Path | None,
    patient: str | None,
    teacher: str | None,
    unit: str | None,
    epsilon: float | None,
    delta: float | None,
    settle: bool | None,
    policy: Path | None,
    new_key: bool,
    ask_now: bool,
) -> None:
    """Create this node's folder and its key, which never leaves it; print the fingerprint for the operator.

    With --enrol the key goes to the operator at once, who approves it after hearing the fingerprint.

    \b
    Examples:
      conclave-party init invitation.toml
      conclave-party init invitation.toml --data records.csv --loader csv --data-name cardiology --patient patient_id
          --teacher random_forest --unit record --epsilon 3 --delta 1e-6 --enrol
    """
    from party.home import make_home
    from party.settings import read_invitation
    from protocols.crypto.identity import fingerprint, phrase

    given = (unit, epsilon, delta)
    if any(value is not None for value in given) and None in given:
        raise click.UsageError("--unit, --epsilon and --delta go together")
    for file in (None if url is not None else data_path, beside, policy):
        if file is not None and not file.expanduser().exists():
            raise InvalidInput(f"{file} does not exist; allowed: a file or folder that is there")
    invited = read_invitation(invitation)
    caps = policy and str(policy.expanduser().resolve())
    lines = {
        "data_name": _line("name", data_name),
        "data_path": _place(loader, data_path, url, beside),
        "loader": _line("loader", loader),
        "patient": _line("patient", patient),
        "teacher": _line("kind", teacher),
        "lifetime": _NO_CAP if unit is None else f"[lifetime.{unit}]\nepsilon = {epsilon!r}\ndelta = {delta!r}",
        "policy": f"policy = {json.dumps(caps or 'policy.sqlite')}",
        "settle": "# settle =" if settle is None else f"settle = {json.dumps(settle)}",
    }
    make_home(home.path)
    if home.invitation_file.exists() and home.invitation().party != invited.party:
        raise InvalidInput(f"{home.path} is the home of {home.invitation().party!r}; allowed: another --home")
    _write_settings(home.settings_file, lines)
    if new_key:
        home.certificate.unlink(missing_ok=True)
        home.key.unlink(missing_ok=True)
    if not home.key.exists():
        write_atomically(home.key, _fresh_key())
    write_atomically(home.authority, invited.authority)
    write_atomically(home.invitation_file, read_bytes(invitation, most=TOML_BYTES))
    key = home.open_key()
    click.echo(f"home         {home.path}")
    click.echo(f"party        {invited.party} of {invited.consortium}")
    own = fingerprint(key.public_key())
    click.echo(f"fingerprint  {own}")
    click.echo(f"in words     {phrase(own)}")
    try:
        home.settings()
        first = ""
    except InvalidInput as error:  # an extra that is missing is installed first; anything else is for the file
        lacks = "pip install" in str(error)
        click.echo(f"not yet: {error}", err=True)
        first = "install that, then " if lacks else f"fill in {home.settings_file}, then "
    if ask_now:
        try:
            enrol_home(home, 0.0, say=click.echo)
        except Refused as error:
            if error.code != Code.PENDING:
                raise
            click.echo("asked for a certificate; the operator approves it once you have read them the words")
        else:
            click.echo(f"enrolled {invited.party}")
        say_next(f"{first}conclave-party data check STUDY.toml, once you have the study")
        return
    say_next(f"{first}conclave-party enrol, and read the words to the operator by telephone")


@click.command(epilog=EPILOG)
@home_option
@click.option("--wait", "wait_s", type=click.FloatRange(0, 86_400), default=0.0, help="Seconds to wait for approval.")
def enrol(home: PartyHome, wait_s: float) -> None:
    """Ask the coordinator for this node's certificate, which it issues once the operator has approved the fingerprint.

    \b
    Example:
      conclave-party enrol --wait 600
    """
    enrol_home(home, wait_s, say=lambda text: click.echo(text, err=True))
    click.echo(f"enrolled {home.invitation().party}")
    say_next("conclave-party doctor")


def enrol_home(home: PartyHome, wait_s: float, *, say: Callable[[str], None]) -> None:
    """Asks for the certificate, and fetches it. wait_s: seconds to wait for the approval; say: told of the wait.

    While it waits, a coordinator that cannot be reached is asked again. Raises Refused, "pending" where there is none
    yet, and Unreachable.
    """
    from party.connection.dialling import enrol as ask
    from protocols.crypto.identity import certificate_from_pem, certificate_request, fingerprint, phrase, to_pem
    from protocols.wire.enrolment import Enrol

    invited = home.invitation()
    key = home.open_key()
    request = to_pem(certificate_request(key, name=invited.party))
    authority = certificate_from_pem(invited.authority)
    words = phrase(fingerprint(key.public_key()))
    if wait_s:
        say(f"asking for up to {wait_s:g} s, until the operator has approved these words: {words}")
    deadline, lost = time.monotonic() + wait_s, False
    while True:
        try:
            reply = ask(
                Enrol(invited.party, invited.token, request),
                address=invited.enrol_address,
                authority=authority,
                timeout_s=_CALL_S,
            )
        except Unreachable as error:
            if time.monotonic() >= deadline:
                raise
            if not lost:
                say(f"{error}; asking again until then")
            lost = True
        else:
            lost = False
            if reply.certificate:
                break
            if reply.code != Code.PENDING:
                raise Refused(reply.code, reply.reason)
            if time.monotonic() >= deadline:
                raise Refused(reply.code, f"{reply.reason or 'the operator has not approved this node yet'}: {words}")
        time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
    _keep(home, invited, reply.certificate)


@click.command(epilog=EPILOG)
@home_option
@json_option
def doctor(home: PartyHome, as_json: bool) -> int:
    """Check home, connection, certificate, clock, records and studies, and name the step that fails.

    A step that is still to come is not a failure: it is shown with `next`, and the exit code is 0.

    \b
    Example:
      conclave-party doctor
    """
    from party.doctor import examine

    hops = []
    for hop in examine(home):
        hops.append(hop)
        if not as_json:
            state = "FAIL" if not hop.ok else "next" if hop.waits else "ok  "
            click.echo(f"{state}  {hop.name:<12} {hop.found}")
            if hop.todo:
                click.echo(pasteable(f"      next: {hop.todo}"))
    if as_json:
        print_json([dataclasses.asdict(hop) for hop in hops])
    return next((hop.exit_code for hop in hops if not hop.ok), 0)


def _keep(home: PartyHome, invited: Invitation, pem: bytes) -> None:
    """Stores the certificate if it is this node's own. Raises Refused."""
    from protocols.crypto.identity import certificate_from_pem, fingerprint, identify

    certificate = certificate_from_pem(pem)
    authority = certificate_from_pem(invited.authority)
    now = datetime.datetime.now(datetime.UTC)
    own = identify(certificate, authority=authority, now=now, role="party")
    key = home.open_key()
    if own.name != invited.party or own.fingerprint != fingerprint(key.public_key()):
        raise Refused(Code.BAD_CERTIFICATE, f"the certificate is for {own.name!r} or another key; allowed: this node's")
    write_atomically(home.certificate, pem)


def _fresh_key() -> bytes:
    from protocols.crypto.identity import key_to_pem, new_key

    return key_to_pem(new_key())


def _write_settings(file: Path, lines: dict[str, str]) -> None:
    """Writes node.toml, unless it is there as these lines say it, or nothing was said; one that nobody has filled in is
    replaced. Raises InvalidInput for any other."""
    template = (files("party") / "commands" / "node.toml").read_text(encoding="utf-8")
    there = file.read_text(encoding="utf-8") if file.exists() else None
    seed = re.search("^seed = ([0-9]+)$", there or "", re.MULTILINE)
    filled, blank = (
        template.format(seed=secrets.randbits(62) if seed is None else seed[1], **each) for each in (lines, _BLANK)
    )
    if there not in (None, filled, blank) and filled != blank:
        raise InvalidInput(f"{file} exists and says otherwise; allowed: to edit it, or to leave out what stands there")
    if there in (None, blank):
        write_atomically(file, filled.encode())


def _place(loader: str | None, path: Path | None, url: str | None, beside: Path | None) -> str:
    """The lines of node.toml that say where the records are. Raises InvalidInput for a file without a meaning."""
    key = _BESIDE.get(loader or "")
    if beside is not None and key is None:
        raise InvalidInput(f"--with {beside} is given with --loader {loader}; allowed: with {', '.join(_BESIDE)}")
    if url is not None and url.startswith("sqlite:///") and not url.startswith("sqlite:////"):
        url = f"sqlite:///{Path(url.removeprefix('sqlite:///')).expanduser().resolve()}"  # the home is elsewhere
    lines = [_line("path", None if path is None else str(path.expanduser().resolve()))] if url is None else []
    lines += [_line("url", url)] if url is not None else []
    lines += [_line(key, str(beside.expanduser().resolve()))] if key is not None and beside is not None else []
    return "\n".join(lines)


def _line(key: str, value: str | None) -> str:
    return f"# {key} =" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}"


_NO_CAP: Final = "# [lifetime.record]\n# epsilon =\n# delta ="
# The lines of a node.toml that nobody has filled in.
_BLANK: Final = {
    "data_name": "# name =", "data_path": "# path =", "loader": "# loader =", "patient": "# patient =",
    "teacher": "# kind =", "lifetime": _NO_CAP, "policy": 'policy = "policy.sqlite"', "settle": "# settle =",
}  # fmt: skip


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
    """Write keys, settings, approvals and ledgers into FILE; the node may keep running.

    Records and teachers are not in it. Restoring a backup charges what cannot be proved unspent: see home restore.

    \b
    Example:
      conclave-party home backup home-monday.conclave --encrypt
    """
    _write(home, file, "backup", encrypt=encrypt)
    click.echo(f"{file} holds this home as it is now, with its key: keep it as you keep the key")
    click.echo(
        "a home restored from it loses its studies and, unless node.toml's policy is outside the home, its "
        "lifetime caps; a home that still works goes to another machine by: conclave-party home move"
    )


@home_commands.command(epilog=EPILOG)
@_file
@_encrypt
@click.option("--yes", is_flag=True, help="Do not ask first.")
@home_option
def move(file: Path, encrypt: bool, yes: bool, home: PartyHome) -> None:
    """Write this home into FILE for another machine, and retire it here: no budget is lost.

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
    """Make a home from FILE, once: FILE is renamed to FILE.restored. It first shows what a backup will cost.

    A moved home continues as it was. A backup does not know what was answered and approved since: every study of it
    ends here with its whole cap, and its lifetime caps are charged in full. If node.toml's policy lies outside the
    home and is there, only the ledgers that are older than it are given up.

    \b
    Example:
      conclave-party home restore home.conclave --home ~/.conclave-party
    """
    from party.keeping import restore as make
    from runtime.key_files import read_passphrase

    def agree(forfeited: list[str]) -> None:
        if yes:
            return
        click.echo("A backup does not know what was answered since. Restoring it costs for good:", err=True)
        for line in forfeited or ["nothing: no study was approved, and no cap is set"]:
            click.echo(f"  {line}", err=True)
        if not click.confirm("Give that up for good, and restore?", err=True):
            raise Refused(Code.NOT_CONFIRMED, f"nothing was changed, and {file} can still be restored")

    for line in make(home, file, passphrase=lambda: read_passphrase(str(file)), agree=agree):
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
    """Repair a home of which a ledger, policy.sqlite or home.id is lost, unreadable or old.

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
