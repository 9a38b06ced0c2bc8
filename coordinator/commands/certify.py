"""guardian certify: the certificate of the organisation that runs a study's second server."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option
from runtime.cli import EPILOG, json_option
from runtime.files import read_received, write_atomically
from runtime.printing import print_json, say_next

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome


@click.group(epilog=EPILOG)
def guardian() -> None:
    """Certify a guardian, which another organisation runs with conclave-guardian.

    \b
    Example:
      conclave-coordinator guardian certify request.pem --fingerprint pottery-lunar-...
    """


@guardian.command(epilog=EPILOG)
@click.argument("request_file", type=click.Path(path_type=Path))
@click.option(
    "--fingerprint", required=True, help="The fingerprint as the guardian read it out, in words or in digits."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder to write [.].")
@home_option
@json_option
def certify(request_file: Path, fingerprint: str, out: Path, home: CoordinatorHome, as_json: bool) -> None:
    """Issue the certificate that a guardian requests, if its key has this fingerprint.

    Doing it again for the same request renews the certificate. `revoke NAME` denies a guardian.

    \b
    Example:
      conclave-coordinator guardian certify request.pem --fingerprint pottery-lunar-...
    """
    from coordinator.members.authority import Authority, authority_pem
    from coordinator.store.store import Store

    settings = home.settings()
    with Store(home) as store:
        authority_of_home = Authority(home, store, settings)
        issued = authority_of_home.certify_guardian(read_received(request_file), key_fingerprint=fingerprint)
    certificate, authority = out / f"{issued.name}.pem", out / "authority.pem"
    write_atomically(certificate, issued.pem)
    write_atomically(authority, authority_pem(home))
    until = datetime.datetime.fromtimestamp(issued.not_after_s, datetime.UTC)
    if as_json:
        print_json(
            {
                "guardian": issued.name,
                "serial": issued.serial,
                "not_after_s": issued.not_after_s,
                "certificate": str(certificate),
                "authority": str(authority),
            }
        )
        return
    click.echo(f"{issued.name} has a certificate as a guardian until {until:%Y-%m-%d %H:%M UTC}")
    say_next(f"send {certificate} and {authority} to it, and set guardian in {home.settings_file}")
