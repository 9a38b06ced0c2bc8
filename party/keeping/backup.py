"""Writing a home into an archive, and making a home from one."""

from __future__ import annotations

import datetime
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from party.budget.policy import Policy
from party.home import PartyHome, make_home
from party.keeping.archive import PARTS, Archive, Kind, read_archive, write_archive
from party.keeping.repair import repair
from party.settings import read_settings
from protocols.errors import DataUnavailable, InvalidInput, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.plural import at_most
from protocols.reading import read_bytes
from protocols.study.file import read_deployed
from runtime.files import sync, write_atomically

_PART_BYTES: Final = 2**31


def back_up(home: PartyHome, file: Path, *, kind: Kind, passphrase: bytes | None) -> Archive:
    """Writes everything of a home that cannot be made again into a new file; returns the archive.

    A node may go on while a backup is made: ledgers are copied before the policy, so that one which is older than its
    policy is known to be. A move wants the home for itself, and retires it: no command works there any more. Raises
    Refused("already_running") for a move beside a node, DataUnavailable or InvalidInput for a home that is none,
    InvalidInput for a file that exists, StorageFailed.
    """
    invitation = home.invitation()
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    def whole() -> Archive:
        parts = dict(_parts(home))
        archive = Archive(kind, made, invitation.party, invitation.consortium, parts)
        write_archive(file, archive, passphrase=passphrase)
        return archive

    if kind == "backup":
        return whole()
    with home.running():
        # Before the archive is there: whatever stops this in between, no two homes go on.
        write_atomically(
            home.moved,
            f"This home was moved on {made}, into {file.resolve()}.\nRestore that file with: conclave-party home "
            "restore. Only if it was never restored anywhere may this file be deleted: then this home goes on.\n",
        )
        try:
            return whole()
        except BaseException:
            home.moved.unlink()
            raise


def restore(
    home: PartyHome, file: Path, *, passphrase: Callable[[], bytes], agree: Callable[[list[str]], None]
) -> list[str]:
    """Makes a home from an archive, which is renamed to FILE.restored; returns what was forfeited, in lines.

    agree: called before anything is written with what a backup will forfeit, in lines; it raises if nobody agrees. A
    move gives the home as it was. A backup does not know what its home answered since: what cannot be proved is
    charged as spent (party.keeping.repair). Raises InvalidInput for a folder that holds anything, and as read_archive
    and repair do; the archive has its name again if no home was made.
    """
    if home.path.exists() and any(home.path.iterdir()):
        raise InvalidInput(f"{home.path} holds something; allowed: a new folder, with --home")
    archive = read_archive(file, passphrase=passphrase)
    used = file.with_name(f"{file.name}.restored")
    if used.exists():
        raise InvalidInput(f"{used} exists; allowed: an archive of this name that was not restored before")
    if archive.kind == "backup":
        agree(_at_stake(home, archive))
    try:
        file.rename(used)
    except OSError as error:
        raise StorageFailed(f"cannot rename {file}: {error.strerror}; copy it to a folder of your own") from error
    try:
        make_home(home.path)
        write_atomically(
            home.restoring, f"{used.resolve()} is restored here. While this file is here, the home is not whole.\n"
        )
        for name, content in archive.parts.items():
            write_atomically(home.path / name, content)
    except BaseException:
        used.rename(file)
        raise
    said = [f"{archive.kind} of {archive.party} of {archive.consortium}, made {archive.made}"]
    settings = home.settings()
    inside = settings.policy.resolve().parent == home.path.resolve()
    for gone in (each for each in settings.data.source.files if not each.exists()):
        said.append(f"{gone} does not exist here: correct [data] in {home.settings_file}")
    if archive.kind == "backup":
        said += repair(home, everything=inside, why=f"the home was restored from a backup of {archive.made}")
    elif not settings.policy.exists():
        raise DataUnavailable(f"{settings.policy} does not exist; allowed: the policy of the home that was moved")
    else:
        _mark_arrival(home, settings.policy)
        said.append("nothing is forfeited: the home that was moved answers nothing more")
    try:
        home.restoring.unlink()
        sync(home.path)
    except OSError as error:
        raise StorageFailed(
            f"cannot delete {home.restoring}: {error.strerror}; delete it: the home is whole"
        ) from error
    return said


def _at_stake(home: PartyHome, archive: Archive) -> list[str]:
    """What restoring a backup into a home that does not exist yet will forfeit, in lines."""
    with tempfile.TemporaryDirectory() as place:
        for name, content in archive.parts.items():
            if name == "node.toml" or name.endswith("/study.toml"):
                write_atomically(Path(place, name), content)
        settings = read_settings(Path(place, "node.toml"))
        studies = [_named(path) for path in sorted(Path(place, "studies").glob("*/study.toml"))]
        inside = settings.policy.resolve().parent == Path(place).resolve()
        policy = home.path / settings.policy.relative_to(place) if settings.policy.is_relative_to(place) else None
    if not inside and (policy or settings.policy).exists():
        where = policy or settings.policy
        return [f"study {each}: it ends here if its ledger is older than {where} knows" for each in studies]
    return [
        *(f"study {each}: it ends here; its whole cap counts as spent" for each in studies),
        *(
            f"lifetime cap of {settings.data.name}, unit {unit}: epsilon {at_most(cap.epsilon)} at delta "
            f"{at_most(cap.delta)} is charged in full"
            for unit, cap in settings.lifetime.items()
        ),
    ]


def _named(path: Path) -> str:
    """The name of a study that is kept; of a damaged file, its folder's."""
    try:
        return read_deployed(path).name
    except InvalidInput:
        return path.parent.name


def _mark_arrival(home: PartyHome, policy: Path) -> None:
    """An entry of its own in each log: of two homes made from one archive, the first that answers is the only one.

    Whichever answers first, the coordinator signs its head, and refuses the other one's log (peer_rolled_back).
    """
    arrival = secrets.token_hex(16)
    with Policy(policy) as kept:
        kept.log.append("arrived", home=arrival)
    for path in sorted((home.path / "studies").glob("*/ledger*.sqlite")):
        with Ledger(path) as ledger:
            ledger.log.append("arrived", home=arrival)


def _parts(home: PartyHome) -> Iterator[tuple[str, bytes]]:
    """The parts of a home by name: ledgers first, then the policy, then the other files."""
    names = {each.relative_to(home.path).as_posix() for each in home.path.rglob("*") if each.is_file()}
    kept = sorted(name for name in names if PARTS.fullmatch(name))
    ledgers = [name for name in kept if name.endswith(".sqlite") and name != "policy.sqlite"]
    for name in [*ledgers, *(each for each in kept if each == "policy.sqlite")]:
        yield name, _database(home.path / name)
    for name in kept:
        if not name.endswith(".sqlite"):
            yield name, read_bytes(home.path / name, most=_PART_BYTES)


def _database(path: Path) -> bytes:
    """A database as committed, whoever writes it now. Raises StorageFailed."""
    copy = path.with_name(f".{path.name}.{os.getpid()}.copy")
    try:
        write_atomically(copy, b"")
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return read_bytes(copy, most=_PART_BYTES)
    except sqlite3.Error as error:
        raise StorageFailed(f"{path}: {error}; run: conclave-party home repair") from error
    finally:
        copy.unlink(missing_ok=True)
