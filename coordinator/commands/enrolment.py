"""init, invite, requests, approve, revoke, guardian certify: who belongs to the consortium."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coordinator.commands.group import home_option, store_of
from protocols.errors import InvalidInput
from protocols.plural import counted
from runtime.address import check_address, listening
from runtime.cli import EPILOG, ask_fingerprint, json_option
from runtime.files import read_received, write_atomically
from runtime.printing import print_json, say_next

if TYPE_CHECKING:
    from coordinator.home import CoordinatorHome


@click.command(epilog=EPILOG)
@click.option("--consortium", required=True, help="Name of the consortium.")
@click.option("--coordinator", required=True, help="Name of this coordinator, as studies name it.")
@click.option("--address", required=True, help="Public HOST:PORT at which hospitals reach this coordinator.")
@click.option("--enrol-address", help="Public HOST:PORT for new hospitals [the same host, the next port].")
@click.option(
    "--listen",
    help="Where it listens, HOST:PORT [--address if that is of this machine alone, as 127.0.0.1 is; otherwise 0.0.0.0 "
    "and its port].",
)
@click.option("--enrol-listen", help="Where it listens for new hospitals [the same of --enrol-address].")
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
    from coordinator.members import create_consortium
    from protocols.crypto.identity import phrase

    host, _, port = check_address("--address", address).rpartition(":")
    enrol_address = check_address("--enrol-address", enrol_address or f"{host}:{int(port) + 1}")
    settings = CoordinatorSettings(
        consortium=consortium,
        coordinator=coordinator,
        listen=listen or listening(address),
        enrol_listen=enrol_listen or listening(enrol_address),
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
    click.echo(f"listens on  {settings.listen}, and for new hospitals on {settings.enrol_listen}")
    click.echo(f"{home.authority_key_file} can certify anybody: back it up where nobody else can read it.")
    say_next("conclave-coordinator serve, and conclave-coordinator invite PARTY...")


@click.command(epilog=EPILOG)
@click.argument("parties", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), help="File to write, for one party [invitation-PARTY.toml].")
@home_option
@json_option
def invite(parties: tuple[str, ...], out: Path | None, home: CoordinatorHome, as_json: bool) -> None:
    """Write an invitation for each of PARTIES, with a token that works once; its older invitations become invalid.

    \b
    Examples:
      conclave-coordinator invite hospital-a --out invitation.toml
      conclave-coordinator invite hospital-a hospital-b hospital-c
    """
    from coordinator.members import Authority, authority_pem, invitation_toml
    from coordinator.store.store import Store
    from protocols.crypto.identity import check_name

    settings = home.settings()
    if out is not None and len(parties) > 1:
        raise InvalidInput(f"--out {out} is given for {len(parties)} parties; allowed: for one")
    files = {check_name(party): out or Path(f"invitation-{party}.toml") for party in parties}
    for file in files.values():
        if file.exists():
            raise InvalidInput(f"{file} exists; allowed: a new file")
    made = []
    for party, file in files.items():
        with Store(home) as store:
            token = Authority(home, store, settings).invite(party)
            expires_s = store.now_s + settings.invitation_days * 86_400
        write_atomically(file, invitation_toml(settings, party=party, token=token, authority=authority_pem(home)))
        made.append({"party": party, "file": str(file), "expires_s": expires_s})
        if not as_json:
            click.echo(f"{file}: for {party} only, valid until {_day(expires_s)}")
    if as_json:
        print_json(made)
        return
    sent = "it; the hospital runs" if len(made) == 1 else "each to its hospital, which runs"
    say_next(f"send {sent} conclave-party init, then reads the words of its fingerprint out to you")


@click.command(epilog=EPILOG)
@home_option
@json_option
def requests(home: CoordinatorHome, as_json: bool) -> None:
    """List the certificate requests that wait for approval, without their fingerprints: `approve` asks for them.

    \b
    Example:
      conclave-coordinator requests
    """
    with store_of(home) as store:
        waiting = store.members.pending()
    if as_json:
        print_json([{"party": each.party, "asked_s": each.asked_s} for each in waiting])
    elif waiting:
        for each in waiting:
            click.echo(f"{each.party}, asked {_day(each.asked_s)}")
        say_next("have each hospital read out its words, then conclave-coordinator approve")
    else:
        click.echo("no requests are waiting")


@click.command(epilog=EPILOG)
@click.argument("party", required=False)
@click.option("--fingerprint", help="The fingerprint as the hospital read it out, in words or in digits [asked for].")
@home_option
@json_option
def approve(party: str | None, fingerprint: str | None, home: CoordinatorHome, as_json: bool) -> None:
    """Issue the certificate that PARTY requests, if its key has the fingerprint that the hospital read out.

    Without PARTY, of every request that waits: each one's fingerprint is asked for, and an empty answer leaves it out.

    \b
    Examples:
      conclave-coordinator approve
      conclave-coordinator approve hospital-a --fingerprint pottery-lunar-...
    """
    from coordinator.members import Authority
    from coordinator.store.store import Store

    if party is None and fingerprint is not None:
        raise InvalidInput("--fingerprint is given without PARTY; allowed: with the party that read it out")
    settings, issued = home.settings(), []
    with Store(home) as store:
        authority = Authority(home, store, settings)
        for name in dict.fromkeys(each.party for each in store.members.pending()) if party is None else [party]:
            # What is expected is not shown: the operator types what was heard, and does not compare by eye.
            asked = f"What {name} reads out, in words or in digits (nothing: not now)"
            heard = fingerprint or ask_fingerprint(asked, default="")
            if not heard.strip():
                continue
            made = authority.approve(name, key_fingerprint=heard)
            issued.append({"party": name, "serial": made.serial, "not_after_s": made.not_after_s})
            if not as_json:
                until = _day(made.not_after_s)
                click.echo(f"{name} has a certificate until {until}, which its node fetches by itself")
    if as_json:
        print_json(issued)
    elif not issued:
        click.echo("nothing was approved")


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
    from coordinator.members import Authority
    from coordinator.store.store import Store

    if (party is None) == (serial is None):
        raise InvalidInput("give either a PARTY or a --serial")
    settings = home.settings()
    with Store(home) as store:
        denied = Authority(home, store, settings).revoke(party=party, serial=serial, reason=reason[:500])
    if as_json:
        print_json({"party": party, "serials": denied})
        return
    click.echo(f"{party or 'the certificate'} is denied from now on ({counted(len(denied), 'certificate')})")
    click.echo("It stays denied. To take the party back: conclave-coordinator invite, with a new key.")


def _day(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


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

    Repeating it for the same request renews the certificate. `revoke NAME` denies a guardian.

    \b
    Example:
      conclave-coordinator guardian certify request.pem --fingerprint pottery-lunar-...
    """
    from coordinator.members import Authority, authority_pem
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
