"""A home of which something is lost: it works again, and what cannot be proved counts as spent.

- A ledger that is lost, unreadable or old, beside the newest policy.sqlite: its study ends here. All that it ever
  reserved is in the policy's mark, which was written before anything left; so much is charged.
- A policy.sqlite that is lost, unreadable or old: nobody knows what was approved and withdrawn. Every study of this
  home ends here, with its whole cap, and the lifetime caps of its data sets are charged in full (budget/forfeits.py).

A coordinator is not asked how much was spent: its log can prove that more was, never that no more was.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from party.budget.policy import Policy
from party.budget.spending import HomeSpent, what_was_spent
from party.budget.withdrawal import forget_study, withdraw
from party.home import PartyHome
from party.settings import PartySettings
from protocols.errors import InvalidInput, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.plural import at_most
from protocols.study.file import read_deployed
from runtime.files import write_atomically

ASIDE: Final = "forfeited"


def repair(home: PartyHome, *, everything: bool, why: str = "") -> list[str]:
    """Brings a home to where it works; returns what was found and what it cost, in lines.

    everything: forfeits as if policy.sqlite were lost, for a home that was put together from old copies; why: recorded
    with what is forfeited. Ledgers that are no longer believed are kept in forfeited/, as evidence. Raises
    Refused("already_running"), InvalidInput or DataUnavailable where node.toml, the invitation or a study's file is
    lost, StorageFailed. Run again after a failure, it goes on.
    """
    settings, party = home.settings(), home.invitation().party
    with home.running():
        said = _set_damaged_aside(home, settings.policy)
        with Policy(settings.policy) as policy:
            said += _restore_identity(home, settings, policy)
            found = what_was_spent(home, policy)
            if isinstance(found.doubt, StorageFailed):
                raise found.doubt
            if everything or found.doubt is not None:
                why = why or ("the hospital said so" if everything else "policy.sqlite was lost, or is an older copy")
                said += _forfeit(home, settings, policy, party, why)
            else:
                said += _end_unproven(home, policy, found, party)
    if not home.key.exists():
        said.append(
            "the key is lost: ask the operator for a new invitation, then conclave-party init INVITATION.toml "
            "--new-key, and conclave-party enrol; budgets and approvals stay"
        )
    return said or ["nothing is lost here"]


def _ledgers(home: PartyHome) -> list[Path]:
    return sorted((home.path / "studies").glob("*/ledger*.sqlite"))


def _forfeit(home: PartyHome, settings: PartySettings, policy: Policy, party: str, why: str) -> list[str]:
    """Ends every study of the home, and charges every cap in full."""
    studies = []
    for path in sorted((home.path / "studies").glob("*/study.toml")):
        with suppress(InvalidInput):  # a damaged file: its approval ends without it
            studies.append(read_deployed(path))
    policy.forfeit(home, data_set=settings.data.name, caps=settings.lifetime, party=party, studies=studies, reason=why)
    for study in studies:
        forget_study(home, study, party)
    for path in _ledgers(home):
        _aside(home, path)
    caps = [each for each in policy.lifetime_uses() if each.forfeited]
    return [
        *(f"study {study.name}: it ends at this node; its whole cap counts as spent" for study in studies),
        *(
            f"lifetime cap of {each.data_set}, unit {each.unit}: epsilon {at_most(each.cap.epsilon)} at delta "
            f"{at_most(each.cap.delta)} is charged in full, because {why}"
            for each in caps
        ),
        "this home can approve studies for another data set: records of other patients, under a data.name of their own "
        "(approve with --other-people, as nobody can compare them)",
    ]


def _end_unproven(home: PartyHome, policy: Policy, found: HomeSpent, party: str) -> list[str]:
    """Ends the studies whose ledgers do not show what the policy knows to have left, or whose terms are lost."""
    said = []
    for approval, _ in found.lost:
        if not approval.withdrawn:
            free = policy.end_lost(approval)
            how = "nothing was asked, and its cap is free again" if free else "its whole cap is charged"
            said.append(f"study {approval.name}: it ends at this node, as its file is lost here; {how}")
    unproven = {each.approval: each.study for each in found.seats if each.doubt is not None}
    for approval, study in unproven.items():
        if approval.withdrawn:
            continue
        for seat, spent in withdraw(home, policy, study, data_set=approval.data_set, party=party).items():
            how = "all that it ever reserved is charged" if not spent.proven else "what it spent is charged"
            said.append(f"study {study.name}, seat {seat}: it ends at this node; {how}, the rest returns to the cap")
    return said


def _set_damaged_aside(home: PartyHome, policy: Path) -> list[str]:
    """Moves databases that cannot be read, so that they count as lost."""
    said = []
    openings: list[tuple[Path, Callable[[Path], Policy | Ledger]]] = [(each, Ledger) for each in _ledgers(home)]
    for path, open_it in [*openings, *([(policy, Policy)] if policy.exists() else [])]:
        try:
            with open_it(path):
                pass
        except StorageFailed as error:
            cause = error.__cause__
            # An operational error is one of the disk, or of another process: the file may be whole.
            if not isinstance(cause, sqlite3.DatabaseError) or isinstance(cause, sqlite3.OperationalError):
                raise
            said.append(f"{path.name} cannot be read: it is kept in {_aside(home, path)}")
    return said


def _restore_identity(home: PartyHome, settings: PartySettings, policy: Policy) -> list[str]:
    """Writes home.id anew where it was lost and the home's own policy.sqlite knows but one home."""
    known = {each.home for each in policy.approvals()}
    if settings.policy.resolve().parent != home.path.resolve() or len(known) != 1 or home.identity in known:
        return []
    write_atomically(home.path / "home.id", known.pop())
    return ["home.id was lost: it is written anew, as policy.sqlite knows it"]


def _aside(home: PartyHome, path: Path) -> Path:
    """Moves a database that is no longer used, with its journals, into forfeited/; returns its new folder.

    That of a policy outside the home is beside it, as it may lie on another disk.
    """
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S%f")
    inside = path.is_relative_to(home.path)
    of_study = inside and path.parent != home.path
    folder = (home.path if inside else path.parent) / ASIDE / now
    write_atomically(folder / "README", "No longer believed: kept as evidence for an audit.\n")
    try:
        for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal"))):
            if each.exists():
                each.rename(folder / (f"{path.parent.name}-{each.name}" if of_study else each.name))
    except OSError as error:
        raise StorageFailed(f"cannot move {path}: {error.strerror}; check who owns it") from error
    return folder
