"""conclave-guardian: the commands of the organisation that runs the guardian."""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocols.errors import Refused
from protocols.installing import DISTRIBUTION
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.cli import CONTEXT, EPILOG, home_flag, json_option, passphrase_command, run_group
from runtime.files import read_received
from runtime.logs import Log
from runtime.printing import print_json, say_next, text_table

if TYPE_CHECKING:
    from guardian.home import GuardianHome

PROGRAM = "conclave-guardian"
HOME_VARIABLE = "CONCLAVE_GUARDIAN_HOME"
_DEFAULT_HOME = Path("~/.conclave-guardian")
_SECRETS = ("key.pem", "sealing.pem", "signing.pem")


def _home(folder: Path) -> GuardianHome:
    from guardian.home import GuardianHome

    return GuardianHome(folder)


_guardian_home_option = home_flag(
    _home, variable=HOME_VARIABLE, default=_DEFAULT_HOME, whose="The guardian's folder", secrets=_SECRETS
)


@click.group(epilog=EPILOG, context_settings=CONTEXT)
@click.version_option(package_name=DISTRIBUTION)
def cli() -> None:
    """Hold the second share of every vote, for the coordinator of another organisation.

    \b
    Example, from nothing to a study:
      conclave-guardian init --name notary --coordinator centre
      conclave-coordinator guardian certify request.pem --fingerprint pottery-lunar-...     (at the coordinator)
      conclave-guardian accept notary.pem authority.pem
      conclave-guardian show                                            (for the study's file)
      conclave-guardian approve study.toml
      conclave-guardian serve
    """


@cli.command(epilog=EPILOG)
@click.option("--name", required=True, help="Name of this guardian, as studies name it.")
@click.option("--coordinator", required=True, help="Name of the coordinator that may converse with it.")
@click.option("--listen", default="0.0.0.0:7445", show_default=True, help="Where it listens, HOST:PORT.")
@click.option("--metrics-port", type=int, default=9465, show_default=True, help="Port on 127.0.0.1; 0 for none.")
@_guardian_home_option
@json_option
def init(name: str, coordinator: str, listen: str, metrics_port: int, home: GuardianHome, as_json: bool) -> None:
    """Create a guardian's keys and its certificate request.

    \b
    Example:
      conclave-guardian init --name notary --coordinator centre
    """
    from guardian.home import GuardianSettings, create_guardian
    from protocols.crypto.identity import phrase

    settings = GuardianSettings(name=name, coordinator=coordinator, listen=listen, metrics_port=metrics_port)
    made = create_guardian(home, settings)
    if as_json:
        figures = {"home": str(home.folder), "fingerprint": made, "words": phrase(made)}
        print_json(figures | {"request": str(home.request_file)} | asdict(settings) | _public_lines(home))
        return
    click.echo(f"guardian {name!r} in {home.folder}")
    click.echo(f"fingerprint {made}")
    click.echo(f"in words    {phrase(made)}")
    say_next(f"send {home.request_file} to the operator of {coordinator!r}, and read them the words by telephone")


@cli.command(epilog=EPILOG)
@click.argument("certificate_file", type=click.Path(path_type=Path))
@click.argument("authority_file", type=click.Path(path_type=Path))
@_guardian_home_option
@json_option
def accept(certificate_file: Path, authority_file: Path, home: GuardianHome, as_json: bool) -> None:
    """Check and store the certificate that came back, and the consortium's.

    \b
    Example:
      conclave-guardian accept notary.pem authority.pem
    """
    from guardian.home import accept_certificate

    identity = accept_certificate(
        home, read_received(certificate_file), read_received(authority_file), now=datetime.datetime.now(datetime.UTC)
    )
    until = identity.certificate.not_valid_after_utc
    if as_json:
        print_json({"guardian": identity.name, "serial": str(identity.serial), "not_after_s": int(until.timestamp())})
        return
    click.echo(f"{identity.name!r} is certified as a guardian until {until:%Y-%m-%d %H:%M UTC}")
    say_next("send the lines of conclave-guardian show to whoever writes the study")


@cli.command(epilog=EPILOG)
@_guardian_home_option
@json_option
def show(home: GuardianHome, as_json: bool) -> None:
    """Print what a study's [confidentiality] must say about this guardian, and the fingerprint of its keys.

    Read its words (or the digits) out by telephone to each hospital, which types them when it approves the study.

    \b
    Example:
      conclave-guardian show
    """
    from protocols.crypto.identity import phrase

    name = {"guardian": home.settings().name}
    if as_json:
        print_json(name | _public_lines(home))
        return
    for key, value in {**name, **home.public_keys()}.items():
        click.echo(f"{key} = {json.dumps(value)}")
    click.echo(f"# to read out to each hospital: {home.keys_fingerprint()}")
    click.echo(f"# or in words: {phrase(home.keys_fingerprint())}")


def _public_lines(home: GuardianHome) -> dict[str, str]:
    from protocols.crypto.identity import phrase

    print_of_keys = home.keys_fingerprint()
    return home.public_keys() | {"keys_fingerprint": print_of_keys, "keys_words": phrase(print_of_keys)}


@cli.command(epilog=EPILOG)
@click.argument("study_file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask first.")
@_guardian_home_option
@json_option
def approve(study_file: Path, yes: bool, home: GuardianHome, as_json: bool) -> None:
    """Say in plain words what a study asks of this guardian, ask for approval, and open a ledger for it.

    \b
    Example:
      conclave-guardian approve study.toml
    """
    from guardian.home import approve_study, check_study, describe
    from protocols.crypto.randomness import system_source
    from protocols.study.file import read_deployed

    study, today = read_deployed(study_file), datetime.datetime.now(datetime.UTC).date()
    terms = check_study(home, study, today=today)
    click.echo("\n".join(describe(study, terms)), err=as_json)
    if not yes and not click.confirm("Approve?", err=as_json):
        raise Refused(Code.NOT_CONFIRMED, "nothing was approved")
    new = approve_study(home, study, today=today, source=system_source)
    if as_json:
        print_json({"study": study.name, "digest": study.digest.hex(), "new": new})
        return
    click.echo(f"approved: {study.name}" if new else f"{study.name} was already approved; nothing was changed")
    say_next("conclave-guardian serve")


@cli.command(epilog=EPILOG)
@click.argument("fingerprint")
@_guardian_home_option
@json_option
def deny(fingerprint: str, home: GuardianHome, as_json: bool) -> None:
    """Deny a coordinator's key from now on, for instance one that leaked.

    \b
    Example:
      conclave-guardian deny pottery-lunar-...
    """
    home.settings()
    denied = home.deny(fingerprint)
    if as_json:
        print_json({"denied": denied})
        return
    click.echo(f"denied from now on: {denied}")


@cli.command(epilog=EPILOG)
@click.option("--listen", help="Where it listens, HOST:PORT [as guardian.toml says].")
@_guardian_home_option
def serve(listen: str | None, home: GuardianHome) -> int:
    """Serve the coordinator, batch by batch, until Ctrl-C or SIGTERM.

    Logs are JSON lines on standard error, without votes, shares or labels. /healthz and /metrics are on 127.0.0.1.

    \b
    Example:
      conclave-guardian serve
    """
    from guardian.serving import serve_guardian
    from runtime.exits import until_signalled

    return until_signalled(lambda stop: serve_guardian(home, listen=listen, stop=stop, log=Log(sys.stderr)))


@cli.command(epilog=EPILOG)
@_guardian_home_option
@json_option
def status(home: GuardianHome, as_json: bool) -> None:
    """Show the approved studies: batches, queries answered, answers left.

    \b
    Example:
      conclave-guardian status
    """
    from guardian.serving import guardian_status

    figures = guardian_status(home)
    if as_json:
        print_json(figures)
        return
    click.echo(
        f"guardian {figures['guardian']!r} for coordinator {figures['coordinator']!r}; its certificate expires in "
        f"{figures['days_left']:.0f} days"
    )
    columns = ["seat", "answers left", "epsilon used", "epsilon guaranteed", "delta"]
    for study in figures["studies"]:
        click.echo(
            f"\nstudy {study['study']}: {study['asked']} of "
            f"{counted(study['pool'], 'query')} asked in {counted(study['batches'], 'batch')} "
            f"({study['unsettled']} without outcome), {study['answered']} answered; until {study['ends']}"
        )
        click.echo(text_table(columns, [list(seat.values()) for seat in study["seats"]]))


cli.add_command(
    passphrase_command(
        PROGRAM,
        _guardian_home_option,
        keys=lambda home: [home.key_file, home.sealing_file, home.signing_file],
        runs="serve",
    )
)


def run_command(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    return run_group(cli, arguments, program=PROGRAM, extra="party")
