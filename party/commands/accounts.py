"""The commands budget show, verify and withdraw: what was spent, what can be proved, and how it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any  # the values of a JSON object

import click

from party.commands.group import home_option
from protocols.errors import DataCorrupt, InvalidInput, Refused, StorageFailed, VerificationFailed
from protocols.plural import at_most, counted
from protocols.refusals.code import Code
from runtime.cli import EPILOG, json_option
from runtime.exits import Exit
from runtime.printing import print_json, say_next

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from party.budget.spending import SeatSpent
    from party.home import PartyHome


@click.group()
def budget() -> None:
    """Show what studies may still ask of this hospital."""


@budget.command(epilog=EPILOG)
@home_option
@json_option
def show(home: PartyHome, as_json: bool) -> None:
    """Show the answers left in every study, the epsilon used of its cap, and the lifetime caps.

    Where the home proves that a ledger or policy.sqlite is lost or old, it shows a bound, and ends with that error.

    \b
    Example:
      conclave-party budget show
    """
    from party.budget.policy import Policy
    from party.budget.spending import what_was_spent

    with Policy(home.settings().policy) as policy:
        found = what_was_spent(home, policy)
        forfeited = {each.data_set for each in found.lifetime if each.forfeited}
    seats = [_row(each, forfeited=each.approval.data_set in forfeited) for each in found.seats]
    lost = [{"study": each.name, "withdrawn": each.withdrawn} for each, _ in found.lost]
    lifetime: list[dict[str, Any]] = [
        {
            "data_set": each.data_set,
            "unit": each.unit,
            "epsilon": each.cap.epsilon,
            "delta": each.cap.delta,
            "share_reserved": each.share,
            "epsilon_reserved": each.epsilon_reserved,
            "bound": found.bound,
        }
        for each in found.lifetime
    ]
    if as_json:
        print_json({"seats": seats, "lost": lost, "lifetime": lifetime})
        return found.check()
    for each, row in zip(found.seats, seats, strict=True):
        state = " (withdrawn)" if row["withdrawn"] else ""
        state = " (forfeited: its whole cap counts as spent)" if row["forfeited"] else state
        waiting = f", {counted(row['unsettled'], 'batch')} not settled" if row["unsettled"] else ""
        left = f"{counted(row['answers_left'], 'answer')} left"
        if row["once"]:
            unasked = "not asked yet, and then once" if row["answers_left"] else "never asked"
            left = "asked once, and never again" if each.spent else unasked
        if row["bound"] != "exactly" and not row["withdrawn"]:
            left = "it is not answered"
        click.echo(f"{row['study']}, {row['seat']}: {left}{state}; {_used(row)}{waiting}")
    for gone in lost:
        click.echo(f"{gone['study']}: its file is lost; it {'has ended' if gone['withdrawn'] else 'is not answered'}")
    if not seats and not lost:
        click.echo("no study is approved here")
    known = "" if found.bound == "exactly" else "not known: at least "
    for line in lifetime:
        click.echo(
            f"lifetime cap of {line['data_set']}, unit {line['unit']}: {known}{100 * line['share_reserved']:.1f} % of "
            f"epsilon {at_most(line['epsilon'])} at delta {at_most(line['delta'])} is reserved"
        )
    click.echo("The guarantee is the cap; 'budget used' is for monitoring, not an epsilon to publish.")
    found.check()


@budget.command(epilog=EPILOG)
@click.argument("data_set")
@home_option
@click.option("--yes", is_flag=True, help="Do not ask first.")
def erase(data_set: str, home: PartyHome, yes: bool) -> None:
    """Delete the digests by which a data set's people are known. Its lifetime caps then count as spent for good.

    Every study of the data set must be withdrawn first. A data set that is approved later cannot be compared with
    this one, so a person must say that its people are others.

    \b
    Example:
      conclave-party budget erase ward
    """
    from party.budget.policy import Policy

    with Policy(home.settings().policy) as policy:
        if not yes and not click.confirm(f"Erase the digests of {data_set}, and spend its caps for ever?", err=True):
            raise Refused(Code.NOT_CONFIRMED, f"the digests of {data_set!r} stay")
        policy.erase(data_set)
    click.echo(f"the digests of {data_set} are erased; its lifetime caps count as spent")


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
    from party.audit import NOTHING_CHECKED, audit_seat, released_labels, unnamed_before
    from party.budget.policy import Policy
    from party.budget.spending import code_of_doubt, what_was_spent
    from party.live import remember_audit
    from protocols.crypto.identity import certificate_from_pem
    from protocols.ledger.ledger import Ledger
    from protocols.levels.two_server.released import read_signed
    from protocols.refusals.table import meaning_of

    settings, invitation = home.settings(), home.invitation()
    authority = certificate_from_pem(invitation.authority)
    with Policy(settings.policy) as policy:
        entries = sum(1 for _ in policy.log.entries())
        spent = what_was_spent(home, policy)
    unnamed: list[str] = []
    wanted = None if study is None else home.find_study(study).digest
    if release is not None:
        digest = bytes.fromhex(_signed_study(release, authority, invitation.coordinator))
        if digest not in {each.study.digest for each in spent.seats if wanted in (None, each.study.digest)}:
            raise InvalidInput(f"{release} is a release of study {digest.hex()[:16]}; allowed: a study approved here")
        wanted = digest
        others = {each.study.digest: each.study for each in spent.seats if each.spent and each.study.digest != digest}
        unnamed = unnamed_before(release, others.values()) if others else []
    results: list[dict[str, Any]] = []
    for each in spent.seats:
        if wanted not in (None, each.study.digest):
            continue
        labels = None if release is None else released_labels(release, each.study)
        attested = None if release is None or labels is None else read_signed(release, each.study, labels)
        audited, path = NOTHING_CHECKED, home.ledger(each.study.digest, each.seat)
        try:
            with Ledger(path, audited=True) if path.exists() else nullcontext() as ledger:
                if ledger is not None:
                    audited = audit_seat(
                        ledger, each.study, each.seat, authority=authority, labels=labels, attested=attested
                    )
        except StorageFailed:
            if not isinstance(each.doubt, StorageFailed):  # which says it
                raise
        results.append({**_row(each, forfeited=False), **dataclasses.asdict(audited)})
    doubts = [{"code": code_of_doubt(each), "what": str(each)} for each in spent.doubts(wanted)]
    failed = bool(doubts) or any(result["findings"] for result in results)
    remember_audit(home, holds=not failed, seats=len(results))
    if as_json:
        figures = {"policy_entries": entries, "seats": results, "findings": doubts, "holds": not failed}
        figures |= {"unnamed": unnamed}
        print_json(figures)
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
            click.echo(f"  {_used(result)}")
            for finding in result["findings"]:
                click.echo(f"  error [{finding['code']}]: {finding['what']}", err=True)
        for finding in doubts:
            click.echo(f"error [{finding['code']}]: {finding['what']}", err=True)
    if doubts:
        say_next(meaning_of(doubts[0]["code"]).next_step, err=True)
    elif failed:
        say_next("keep this home as it is (it holds the signed proof) and show it to the data-protection "
                   "officers of the consortium", err=True)  # fmt: skip
    if unnamed and not as_json:
        click.echo(f"NOT CHECKED  whether one of these was released before, which the release does not name: "
                   f"{', '.join(unnamed)}. This node voted in them", err=True)  # fmt: skip
        say_next("ask the operator; the figures of the release count only the earlier releases that it names", err=True)
    if not as_json:
        held = "verified: all that is kept here"
        held = "verified except whether every earlier release is named" if unnamed else held
        none = "" if release is not None else "; no release was compared: --release FOLDER"
        click.echo("NOT VERIFIED: see the errors above" if failed else f"{held}{none}")
    return Exit.VERIFICATION if failed else Exit.PARTLY if unnamed else Exit.DONE


@click.command(epilog=EPILOG)
@click.argument("study")
@home_option
@json_option
@click.option("--yes", is_flag=True, help="Do not ask first.")
def withdraw(study: str, home: PartyHome, as_json: bool, yes: bool) -> None:
    """End a study at this node for good. What it did not spend returns to the lifetime cap.

    What was trained for it here is deleted, and the operator is told at the next connection. Votes that were sent stay
    sent, and labels that were released stay released, with the models trained on them.

    \b
    Example:
      conclave-party withdraw heart
    """
    from party.budget.policy import Policy
    from party.budget.spending import withdraw as end

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
        keys = ("epsilon_used", "bound", "epsilon_cap", "delta")
        rows = {seat: _row(each, forfeited=False) for seat, each in final.items()}
        figures = {
            "study": found.digest.hex(),
            "spent": {seat: {key: row[key] for key in keys} for seat, row in rows.items()},
            "share_reserved": {each.unit: each.share for each in uses},
        }
        print_json(figures)
        return
    click.echo(f"{found.name} is withdrawn; this node no longer answers it")
    click.echo(
        "its teachers were deleted, or the sum of its records' votes; terms, ledger and signed evidence stay for an "
        "audit. The operator is told when the node next connects. It cannot take back what was answered: votes that "
        "were sent, labels that were released, and models trained on them. Digests of patients' names and of rows "
        "stay, as the lifetime cap is theirs"
    )
    for seat, shown in final.items():
        why = "" if shown.proven else "; its ledger is missing or old: all that it ever reserved counts as spent"
        click.echo(f"seat {seat}: {_used(_row(shown, forfeited=False))}{why}")
    for each in uses:
        click.echo(f"lifetime cap of {each.data_set}, unit {each.unit}: {100 * each.share:.1f} % is reserved")


def _signed_study(release: Path, authority: Certificate, coordinator: str) -> str:
    """The digest (hexadecimal) of a release's study; a wrong signature or file counts as a failed verification."""
    from party.audit import released_study

    try:
        return released_study(release, authority=authority, coordinator=coordinator)
    except (Refused, DataCorrupt) as error:
        raise VerificationFailed(str(error)) from error


def _row(found: SeatSpent, *, forfeited: bool) -> dict[str, Any]:
    study, shown = found.study, found.shown
    return {
        "study": study.name,
        "seat": found.seat,
        "answers_left": found.answers_left,
        "epsilon_used": shown.epsilon_used,
        "bound": found.bound,
        "epsilon_cap": shown.epsilon_cap,
        "delta": shown.delta,
        "unit": study.unit,
        "view": study.view,
        "once": study.votes.once,
        "unsettled": found.unsettled,
        "withdrawn": found.approval.withdrawn,
        "forfeited": forfeited,
    }


def _used(row: Mapping[str, Any]) -> str:
    """What a seat used of its budget, as a figure or a bound."""
    from party.budget.spending import bounded

    used = bounded(row["epsilon_used"], row["bound"])
    return f"budget used: epsilon {used} of {at_most(row['epsilon_cap'])} at delta {at_most(row['delta'])}"
