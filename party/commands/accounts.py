"""The commands budget show, verify and withdraw: what was spent, what can be proved, and how it ends."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any  # the values of a JSON object

import click

from party.commands.group import home_option
from protocols.errors import DataCorrupt, InvalidInput, Refused, VerificationFailed
from protocols.plural import counted
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.exits import Exit
from runtime.pasting import say_next

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from party.budget.policy import Approval
    from party.home import PartyHome
    from protocols.ledger.ledger import Balance
    from protocols.study.deployed import DeployedStudy


@click.group()
def budget() -> None:
    """Show what studies may still ask of this hospital."""


@budget.command(epilog=EPILOG)
@home_option
@json_option
def show(home: PartyHome, as_json: bool) -> None:
    """Show the answers left in every study, the epsilon used of its cap, and the lifetime caps.

    \b
    Example:
      conclave-party budget show
    """
    from party.budget.policy import Policy

    settings = home.settings()
    with Policy(settings.policy) as policy:
        policy.check_newest(home.path)
        uses = policy.lifetime_uses()
        forfeited = {each.data_set for each in uses if each.forfeited}
        seats = [
            row
            for approval in policy.own_approvals(home)
            for row in _rows(home, approval, forfeited=approval.data_set in forfeited)
        ]
    lifetime: list[dict[str, Any]] = [
        {
            "data_set": each.data_set,
            "unit": each.unit,
            "epsilon": each.cap.epsilon,
            "delta": each.cap.delta,
            "share_reserved": each.share,
            "epsilon_reserved": each.epsilon_reserved,
        }
        for each in uses
    ]
    if as_json:
        click.echo(json.dumps({"seats": seats, "lifetime": lifetime}, indent=2))
        return
    for row in seats:
        state = " (withdrawn)" if row["withdrawn"] else ""
        state = " (forfeited: its whole cap counts as spent)" if row["forfeited"] else state
        waiting = f", {counted(row['unsettled'], 'batch')} not settled" if row["unsettled"] else ""
        left = f"{counted(row['answers_left'], 'answer')} left"
        if row["once"]:
            left = "not asked yet, and then once" if row["answers_left"] else "asked once, and never again"
        click.echo(
            f"{row['study']}, {row['seat']}: {left}{state}; budget used: epsilon "
            f"{row['epsilon_used']:.4g} of {row['epsilon_cap']:.4g} at delta {row['delta']:g}{waiting}"
        )
    if not seats:
        click.echo("no study is approved here")
    for line in lifetime:
        click.echo(
            f"lifetime cap of {line['data_set']}, unit {line['unit']}: {100 * line['share_reserved']:.1f} % of epsilon "
            f"{line['epsilon']:g} at delta {line['delta']:g} is reserved"
        )
    click.echo("The guarantee is the cap; 'budget used' is for monitoring, not an epsilon to publish.")


@click.command(epilog=EPILOG)
@click.argument("study", required=False)
@home_option
@json_option
@click.option("--release", type=click.Path(path_type=Path, file_okay=False), help="Compare with this release.")
def verify(study: str | None, home: PartyHome, as_json: bool, release: Path | None) -> int:
    """Check this node's logs and the signatures that it kept, and whether a release agrees with what was signed.

    \b
    Examples:
      conclave-party verify
      conclave-party verify heart --release release/
    """
    from party.audit import audit_seat, released_labels
    from party.budget.policy import Policy
    from party.lifetime import seats_of
    from party.live.state import remember_audit
    from protocols.crypto.identity import certificate_from_pem
    from protocols.ledger.ledger import Ledger
    from protocols.levels.two_server.released import read_signed

    settings, invitation = home.settings(), home.invitation()
    authority = certificate_from_pem(invitation.authority)
    with Policy(settings.policy) as policy:
        entries = sum(1 for _ in policy.log.entries())
        approvals = policy.own_approvals(home)
    studies = [home.find_study(study)] if study is not None else [home.study(each.study) for each in approvals]
    if release is not None:
        digest = _signed_study(release, authority, invitation.coordinator)
        studies = [each for each in studies if each.digest.hex() == digest]
        if not studies:
            raise InvalidInput(f"{release} is a release of study {digest[:16]}; allowed: a study approved here")
    results: list[dict[str, Any]] = []
    for found in studies:
        labels = None if release is None else released_labels(release, found)
        attested = None if release is None or labels is None else read_signed(release, found, labels)
        for seat in seats_of(found, invitation.party):
            path = home.ledger(found.digest, seat)
            if not path.exists():
                continue
            with Ledger(path, audited=True) as ledger:
                audited = audit_seat(ledger, found, seat, authority=authority, labels=labels, attested=attested)
            results.append({"study": found.name, "seat": seat, **dataclasses.asdict(audited)})
    failed = any(result["findings"] for result in results)
    remember_audit(home, holds=not failed, seats=len(results))
    if as_json:
        click.echo(json.dumps({"policy_entries": entries, "seats": results, "holds": not failed}, indent=2))
    else:
        click.echo(f"policy: {counted(entries, 'entry')}, the hash chain is intact")
        for result in results:
            click.echo(
                f"{result['study']}, {result['seat']}: {counted(result['entries'], 'entry')}, "
                f"{counted(result['batches'], 'batch')} ({result['unsettled']} not settled: charged as reserved), "
                f"{counted(result['requests'], 'signed request')}, "
                f"{counted(result['outcomes'], 'signed outcome')}, {counted(result['compared'], 'query')} "
                "compared with the release"
            )
            if result["counted"] or result["not_counted"]:
                unknown = result["batches"] - result["counted"] - result["not_counted"]
                click.echo(
                    f"  the guardian's statements: votes counted in {counted(result['counted'], 'batch')}, and not in "
                    f"{result['not_counted']}; there is none of {unknown}"
                )
            for finding in result["findings"]:
                click.echo(f"  error [{finding['code']}]: {finding['what']}", err=True)
    if failed:
        say_next("keep this home as it is (it holds the signed proof) and show it to the data-protection "
                   "officers of the consortium", err=True)  # fmt: skip
        return Exit.VERIFICATION
    return 0


@click.command(epilog=EPILOG)
@click.argument("study")
@home_option
@json_option
@click.option("--yes", is_flag=True, help="Withdraw without asking.")
def withdraw(study: str, home: PartyHome, as_json: bool, yes: bool) -> None:
    """End a study at this node for ever. What it did not spend returns to the lifetime cap.

    What was trained for it here is deleted, and the operator is told at the next connection. Votes that were sent stay
    sent, and labels that were released stay released, with the models trained on them.

    \b
    Example:
      conclave-party withdraw heart
    """
    from party.budget.policy import Policy
    from party.budget.withdrawal import withdraw as end

    settings, party = home.settings(), home.invitation().party
    found = home.find_study(study)
    with Policy(settings.policy) as policy:
        policy.check_newest(home.path)
        policy.own_approval(found.digest, settings.data.name, home)
    if not yes and not click.confirm(f"Withdraw {found.name} for ever?", err=True):
        raise Refused(Code.NOT_CONFIRMED, f"study {found.name!r} goes on")
    with Policy(settings.policy) as policy:
        final = end(home, policy, found, data_set=settings.data.name, party=party)
        uses = [each for each in policy.lifetime_uses() if each.data_set == settings.data.name]
    if as_json:
        shares = {each.unit: each.share for each in uses}
        spent = {seat: each.nano for seat, each in final.items()}
        unproven = [seat for seat, each in final.items() if not each.proven]
        figures = {"study": found.digest.hex(), "spent_nano": spent, "unproven": unproven, "share_reserved": shares}
        click.echo(json.dumps(figures, indent=2))
        return
    click.echo(f"{found.name} is withdrawn; this node no longer answers it")
    click.echo(
        "its teachers were deleted, or the sum of its records' votes; terms, ledger and signed evidence stay for an "
        "audit. The operator is told when the node next connects. It cannot take back what was answered: votes that "
        "were sent, labels that were released, and models trained on them"
    )
    for seat, shown in final.items():
        if not shown.proven:
            click.echo(f"seat {seat}: its ledger is missing or not the newest; all it ever reserved counts as spent")
    for each in uses:
        click.echo(f"lifetime cap of {each.data_set}, unit {each.unit}: {100 * each.share:.1f} % is reserved")


def _signed_study(release: Path, authority: Certificate, coordinator: str) -> str:
    """The digest (hexadecimal) of a release's study; a wrong signature or file counts as a failed verification."""
    from party.audit import released_study

    try:
        return released_study(release, authority=authority, coordinator=coordinator)
    except (Refused, DataCorrupt) as error:
        raise VerificationFailed(str(error)) from error


def _rows(home: PartyHome, approval: Approval, *, forfeited: bool) -> list[dict[str, Any]]:
    from party.budget.spending import spending
    from party.lifetime import seats_of

    study = home.study(approval.study)
    rows = []
    for seat in seats_of(study, approval.party):
        balance, unsettled = _balance(home, study, seat, withdrawn=approval.withdrawn)
        found = spending(study, seat, balance.spent)
        rows.append(
            {
                "study": study.name,
                "seat": seat,
                "answers_left": 0 if approval.withdrawn else found.answers_left,
                "epsilon_used": found.epsilon_used,
                "epsilon_cap": found.epsilon_cap,
                "delta": found.delta,
                "unit": study.unit,
                "view": study.view,
                "once": study.records is not None,
                "unsettled": unsettled,
                "withdrawn": approval.withdrawn,
                "forfeited": forfeited,
            }
        )
    return rows


def _balance(home: PartyHome, study: DeployedStudy, seat: str, *, withdrawn: bool) -> tuple[Balance, int]:
    """A seat's account and its number of unsettled batches; an unused account if there is no ledger yet, and a spent
    one if its ledger was given up (party.keeping.repair)."""
    from protocols.ledger.ledger import Balance, Ledger

    path = home.ledger(study.digest, seat)
    if path.exists():
        with Ledger(path) as ledger:
            balances = ledger.balances()
            if seat in balances:
                return balances[seat], len(ledger.unsettled())
    cap = int(study.budgets.cap[study.seats[seat]])
    return Balance(cap, cap if withdrawn and not path.exists() else 0, 0), 0
