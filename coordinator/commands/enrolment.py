"""init, invite, requests, approve, revoke: who belongs to the consortium."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option
from protocols.errors import InvalidInput
from runtime.address import check_address
from runtime.cli import EPILOG, json_option
from runtime.files import write_atomically
from runtime.printing import print_json

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome
    from coordinator.store.store import Store


@click.command(epilog=EPILOG)
@click.option("--consortium", required=True, help="Name of the consortium.")
@click.option("--coordinator", required=True, help="Name of this coordinator, as studies name it.")
@click.option("--address", required=True, help="Public HOST:PORT at which hospitals reach this coordinator.")
@click.option("--enrol-address", help="Public HOST:PORT for new hospitals [the same host, the next port].")
@click.option("--listen", help="Where it listens, HOST:PORT [0.0.0.0 and the port of --address].")
@click.option("--enrol-listen", help="Where it listens for new hospitals [0.0.0.0 and the port of --enrol-address].")
@click.option("--certificate-days", type=int, default=90, show_default=True, help="Validity of certificates.")
@click.option("--metrics-port", type=int, default=9464, show_default=True, help="Port on 127.0.0.1; 0 for none.")
@home_option
@json_option
def init(
    consortium: str,
    coordinator: str,
    address: str,
    enrol_address: str | None,
    listen: str | None,
    enrol_listen: str | None,
    certificate_days: int,
    metrics_port: int,
    home: CoordinatorHome,
    as_json: bool,
) -> None:
    """Create the consortium's authority, this coordinator's certificate and its store.

    \b
    Example:
      conclave-coordinator init --consortium heart --coordinator centre --address centre.example.org:7443
    """
    from coordinator.home import CoordinatorSettings
    from coordinator.members.authority import create_consortium
    from protocols.crypto.fingerprints import phrase

    host, _, port = check_address("--address", address).rpartition(":")
    enrol_address = enrol_address or f"{host}:{int(port) + 1}"
    enrol_port = check_address("--enrol-address", enrol_address).rpartition(":")[2]
    settings = CoordinatorSettings(
        consortium=consortium,
        coordinator=coordinator,
        listen=listen or f"0.0.0.0:{port}",
        enrol_listen=enrol_listen or f"0.0.0.0:{enrol_port}",
        address=address,
        enrol_address=enrol_address,
        certificate_days=certificate_days,
        metrics_port=metrics_port,
    )
    made = create_consortium(home, settings)
    words = phrase(made.fingerprint)
    if as_json:
        print_json({"home": str(home.folder), "fingerprint": made.fingerprint, "words": words, **asdict(settings)})
        return
    click.echo(f"coordinator {made.name!r} of consortium {consortium!r} in {home.folder}")
    click.echo(f"fingerprint {made.fingerprint}")
    click.echo(f"in words    {words}")
    click.echo(f"{home.authority_key_file} can certify anybody: back it up where nobody else can read it.")
    click.echo("next: conclave-coordinator serve, and conclave-coordinator invite PARTY")


@click.command(epilog=EPILOG)
@click.argument("party")
@click.option("--out", type=click.Path(path_type=Path), help="File to write [invitation-PARTY.toml].")
@home_option
@json_option
def invite(party: str, out: Path | None, home: CoordinatorHome, as_json: bool) -> None:
    """Write an invitation for PARTY, with a token that works once; the party's older invitations become invalid.

    \b
    Example:
      conclave-coordinator invite hospital-a --out invitation.toml
    """
    from coordinator.members.authority import Authority, authority_pem, invitation_toml
    from coordinator.store.store import Store
    from protocols.crypto.identity import check_name

    settings = home.settings()
    check_name(party)
    file = out or Path(f"invitation-{party}.toml")
    if file.exists():
        raise InvalidInput(f"{file} exists; allowed: a new file")
    with Store(home) as store:
        token = Authority(home, store, settings).invite(party)
        expires_s = store.now_s + settings.invitation_days * 86_400
    write_atomically(file, invitation_toml(settings, party=party, token=token, authority=authority_pem(home)))
    if as_json:
        print_json({"party": party, "file": str(file), "expires_s": expires_s})
        return
    click.echo(f"{file}: for {party} only, valid until {_day(expires_s)}")
    click.echo(
        "next: send it; the hospital runs conclave-party init, then reads the words of its fingerprint out to you"
    )


@click.command(epilog=EPILOG)
@home_option
@json_option
def requests(home: CoordinatorHome, as_json: bool) -> None:
    """List the certificate requests that wait for approval.

    \b
    Example:
      conclave-coordinator requests
    """
    from protocols.crypto.fingerprints import phrase

    with _store(home) as store:
        waiting = store.members.pending()
    if as_json:
        print_json(
            [
                {"party": r.party, "fingerprint": r.fingerprint, "words": phrase(r.fingerprint), "asked_s": r.asked_s}
                for r in waiting
            ]
        )
    elif waiting:
        for each in waiting:
            click.echo(f"{each.party}, asked {_day(each.asked_s)}")
            click.echo(f"  fingerprint {each.fingerprint}")
            click.echo(f"  in words    {phrase(each.fingerprint)}")
        click.echo("next: have each hospital read out its words, then approve PARTY --fingerprint WHAT-THEY-READ")
    else:
        click.echo("no requests are waiting")


@click.command(epilog=EPILOG)
@click.argument("party")
@click.option(
    "--fingerprint", required=True, help="The fingerprint as the hospital read it out, in words or in digits."
)
@home_option
@json_option
def approve(party: str, fingerprint: str, home: CoordinatorHome, as_json: bool) -> None:
    """Issue the certificate that PARTY requests, if its key has this fingerprint.

    \b
    Example:
      conclave-coordinator approve hospital-a --fingerprint pottery-lunar-...
    """
    from coordinator.members.authority import Authority
    from coordinator.store.store import Store

    settings = home.settings()
    with Store(home) as store:
        issued = Authority(home, store, settings).approve(party, key_fingerprint=fingerprint)
    if as_json:
        print_json({"party": party, "serial": issued.serial, "not_after_s": issued.not_after_s})
        return
    click.echo(f"{party} has a certificate until {_day(issued.not_after_s)}, which its node fetches by itself")


@click.command(epilog=EPILOG)
@click.argument("party", required=False)
@click.option("--serial", help="Revoke the key of one certificate, with all certificates of that key.")
@click.option("--reason", default="revoked by the operator", show_default=True, help="Why, for the audit log.")
@home_option
@json_option
def revoke(party: str | None, serial: str | None, reason: str, home: CoordinatorHome, as_json: bool) -> None:
    """Deny PARTY from now on: its certificates, invitations and requests. A running serve disconnects it within a
    second.

    \b
    Examples:
      conclave-coordinator revoke hospital-a --reason "laptop stolen"
      conclave-coordinator revoke --serial 1234567890
    """
    from coordinator.members.authority import Authority
    from coordinator.store.store import Store

    if (party is None) == (serial is None):
        raise InvalidInput("give either a PARTY or a --serial")
    settings = home.settings()
    with Store(home) as store:
        denied = Authority(home, store, settings).revoke(party=party, serial=serial, reason=reason[:500])
    if as_json:
        print_json({"party": party, "serials": denied})
        return
    click.echo(f"{party or 'the certificate'} is denied from now on ({len(denied)} certificates)")
    click.echo("It stays denied. To take the party back: conclave-coordinator invite, with a new key.")


def _store(home: CoordinatorHome) -> Store:
    from coordinator.store.store import Store

    home.settings()
    return Store(home)


def _day(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
