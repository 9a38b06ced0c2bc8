"""A home that is backed up, moved, restored, or mended where something is lost.

An archive is one zip file of named parts, whole or sealed with a passphrase: AES-256-GCM under a key from scrypt (RFC
7914). It says what it is: a backup, whose home may have answered since, or a move, whose home stopped for good.

A home of which something is lost works again, and what cannot be proved counts as spent:

- A ledger that is lost, unreadable or old, beside the newest policy.sqlite: its study ends here. All that it ever
  reserved is in the policy's mark, which was written before anything left; so much is charged.
- A policy.sqlite that is lost, unreadable or old: nobody knows what was approved and withdrawn. Every study of this
  home ends here, with its whole cap, and the lifetime caps of its data sets are charged in full (budget/policy.py).

A coordinator is not asked how much was spent: its log can prove that more was, never that no more was.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import secrets
import sqlite3
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from party.budget.policy import Policy
from party.budget.spending import HomeSpent, forget_study, what_was_spent, withdraw
from party.budget.watermarks import REPAIR
from party.home import PartyHome, make_home
from party.settings import PartySettings, read_settings
from protocols.errors import DataCorrupt, DataUnavailable, InvalidInput, Refused, StorageFailed
from protocols.ledger.database import step_after
from protocols.ledger.ledger import Ledger
from protocols.plural import at_most, utc
from protocols.reading import parse_json, read_bytes
from protocols.refusals.code import Code
from protocols.study.file import read_deployed
from runtime.files import sync, write_atomically

_Kind = Literal["backup", "move"]
ABOUT: Final = "archive.json"
# What a home keeps: no records, which stay where they are, and nothing that can be made again from them.
_PARTS: Final = re.compile(
    r"node\.toml|mapping\.toml|format|key\.pem|certificate\.pem|authority\.pem|invitation\.toml|home\.id|policy\.sqlite"
    r"|studies/[0-9a-f]{16}/(study\.toml|pool\.npy|ledger-[A-Za-z0-9._+-]{1,200}\.sqlite)"
)
# Of records' votes: what may be asked once more, though votes that were asked are never counted again. A home that is
# moved goes on with them; in one that is restored from a backup every study has ended.
_MOVED: Final = re.compile(r"studies/[0-9a-f]{16}/(votes|judges)-[A-Za-z0-9._+-]{1,200}\.npz")
_MAGIC: Final = b"conclave home 1 sealed\n"
_SALT, _NONCE = 16, 12
_MOST_BYTES: Final = 2**31 - 2**20
_MOST_PARTS: Final = 10_000
_COST: Final = 2**15


@dataclass(frozen=True)
class Archive:
    """kind; made: when, as text in UTC; party and consortium: whose home; parts: content by name, as PARTS allows."""

    kind: _Kind
    made: str
    party: str
    consortium: str
    parts: Mapping[str, bytes] = field(repr=False)


def write_archive(path: Path, archive: Archive, *, passphrase: bytes | None) -> None:
    """Writes the file, for its owner alone. Raises InvalidInput where it exists or would be too large,
    StorageFailed."""
    if path.exists():
        raise InvalidInput(f"{path} exists; allowed: the name of a new file")
    about = {"kind": archive.kind, "made": archive.made, "party": archive.party, "consortium": archive.consortium}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as zipped:
        for name, data in {ABOUT: json.dumps(about).encode(), **archive.parts}.items():
            zipped.writestr(zipfile.ZipInfo(name), data)
    plain = content.getvalue()
    if len(plain) > _MOST_BYTES:
        raise InvalidInput(f"the home has {len(plain)} bytes; allowed: {_MOST_BYTES}; copy its pools by hand")
    write_atomically(path, plain if passphrase is None else _sealed(plain, passphrase))


def read_archive(path: Path, *, passphrase: Callable[[], bytes]) -> Archive:
    """The archive in a file; passphrase: called where it has one.

    Raises DataUnavailable, DataCorrupt for anything else or a part that no home has, Refused("key_locked").
    """
    data = read_bytes(path, most=_MOST_BYTES + 2**20)
    if data.startswith(_MAGIC):
        data = _opened(path, data, passphrase())
    parts: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            listed = zipped.infolist()
            if len(listed) > _MOST_PARTS or sum(each.file_size for each in listed) > _MOST_BYTES:
                raise DataCorrupt(f"{path} claims {len(listed)} parts; allowed: an archive of a home")
            for each in listed:
                if each.compress_type != zipfile.ZIP_STORED or each.filename in parts:
                    raise DataCorrupt(f"{path} holds a part that is compressed or there twice")
                parts[each.filename] = zipped.read(each)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, OSError) as error:
        raise DataCorrupt(f"{path} is not an archive of a home, or was damaged: {type(error).__name__}") from None
    wrong = [name for name in parts if name != ABOUT and not (_PARTS.fullmatch(name) or _MOVED.fullmatch(name))]
    if ABOUT not in parts or wrong:
        raise DataCorrupt(f"{path} holds {(wrong or ['no description'])[0][:80]!r}; allowed: the files of a home")
    about = parse_json(_text(path, parts.pop(ABOUT)), where=f"{path}: {ABOUT}")
    keys = ("kind", "made", "party", "consortium")
    if not isinstance(about, dict) or set(about) != set(keys) or not all(type(about[key]) is str for key in keys):
        raise DataCorrupt(f"{path}: {ABOUT} has other keys; allowed: {', '.join(keys)}")
    if about["kind"] not in ("backup", "move"):
        raise DataCorrupt(f"{path}: kind is {about['kind'][:20]!r}; allowed: backup or move")
    return Archive(about["kind"], about["made"][:40], about["party"][:80], about["consortium"][:80], parts)


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataCorrupt(f"{path}: {ABOUT} is not text") from None


def _sealed(plain: bytes, passphrase: bytes) -> bytes:
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    return _MAGIC + salt + nonce + AESGCM(_key(passphrase, salt)).encrypt(nonce, plain, _MAGIC)


def _opened(path: Path, data: bytes, passphrase: bytes) -> bytes:
    start = len(_MAGIC)
    salt, nonce = data[start : start + _SALT], data[start + _SALT : start + _SALT + _NONCE]
    if len(nonce) != _NONCE:
        raise DataCorrupt(f"{path} ends before its content; copy it again")
    try:
        return AESGCM(_key(passphrase, salt)).decrypt(nonce, data[start + _SALT + _NONCE :], _MAGIC)
    except InvalidTag:
        raise Refused(Code.KEY_LOCKED, f"the passphrase does not open {path}, or it was damaged") from None


def _key(passphrase: bytes, salt: bytes) -> bytes:
    """A key of 32 bytes; the cost is that of RFC 7914 for a file: 32 MB of memory and about 0.1 s a guess."""
    return Scrypt(salt=salt, length=32, n=_COST, r=8, p=1).derive(passphrase)


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


_PART_BYTES: Final = 2**31


def back_up(home: PartyHome, file: Path, *, kind: _Kind, passphrase: bytes | None) -> Archive:
    """Writes everything of a home that cannot be made again into a new file; returns the archive.

    A node may go on while a backup is made: ledgers are copied before the policy, so that one which is older than its
    policy is known to be. A move wants the home for itself, and retires it: no command works there any more. Raises
    Refused("already_running") for a move beside a node, DataUnavailable or InvalidInput for a home that is none,
    InvalidInput for a file that exists, StorageFailed.
    """
    invitation = home.invitation()
    made = utc(time.time())

    def whole() -> Archive:
        parts = dict(_parts(home, moved=kind == "move"))
        archive = Archive(kind, made, invitation.party, invitation.consortium, parts)
        write_archive(file, archive, passphrase=passphrase)
        return archive

    if kind == "backup":
        return whole()
    with home.running():
        if file.exists():  # what fails below deletes it
            raise InvalidInput(f"{file} exists; allowed: the name of a new file")
        # Before the archive is there: whatever stops this in between, no two homes go on.
        write_atomically(
            home.moved,
            f"This home was moved on {made}, into {file.resolve()}.\nRestore that file with: conclave-party home "
            "restore. Only if it was never restored anywhere may this file be deleted: then this home goes on.\n",
        )
        try:
            with Policy(home.settings().policy) as policy:  # who approves or withdraws now has done so, or is refused
                policy.log.append("moved")
            return whole()
        except BaseException:
            file.unlink(missing_ok=True)  # first: beside an archive that may be restored, this home must not go on
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
            home.restoring, f"{used.resolve()} is being restored here. The home is complete once this file is gone.\n"
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
            f"cannot delete {home.restoring}: {error.strerror}; delete it, the home is complete"
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


def _parts(home: PartyHome, *, moved: bool) -> Iterator[tuple[str, bytes]]:
    """The parts of a home by name: ledgers first, then the policy, then the other files, with records' votes if it is
    moved."""
    names = {each.relative_to(home.path).as_posix() for each in home.path.rglob("*") if each.is_file()}
    kept = sorted(name for name in names if _PARTS.fullmatch(name) or (moved and _MOVED.fullmatch(name)))
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
        raise StorageFailed(f"{path}: {error}; {step_after(error, damaged=REPAIR)}") from error
    finally:
        copy.unlink(missing_ok=True)
