"""A node's home: the folder of its key, settings, approvals and studies.

node.toml  key.pem  certificate.pem  authority.pem  invitation.toml  home.id  policy.sqlite
studies/<first 16 digits of the digest>/{study.toml, pool.npy, ledger-SEAT.sqlite, teachers/SEAT/, votes-SEAT.npz}
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from party.data.queries import keep_pool
from party.settings import Invitation, PartySettings, mapping_path, read_invitation, read_settings
from protocols.errors import DataUnavailable, InvalidInput, Refused, StorageFailed
from protocols.private_files import private_folder
from protocols.reading import read_text
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from runtime.files import alone, sync, write_atomically
from runtime.key_files import read_key

# home.id is 32 digits; a person who edited it may have added a line end.
_IDENTITY_BYTES = 100
_LOST_KEY = (
    "restore it from a backup; if it is lost, ask the operator for a new invitation, then run: conclave-party init "
    "INVITATION.toml --new-key"
)


@dataclass(frozen=True)
class PartyHome:
    """The folder of one node."""

    path: Path

    @property
    def settings_file(self) -> Path:
        """node.toml"""
        return self.path / "node.toml"

    @property
    def key(self) -> Path:
        """The private key, which never leaves."""
        return self.path / "key.pem"

    def open_key(self) -> ec.EllipticCurvePrivateKey:
        """The private key; raises as read_key does."""
        return read_key(self.key, lost=_LOST_KEY)

    @property
    def certificate(self) -> Path:
        """The certificate, once enrolled."""
        return self.path / "certificate.pem"

    @property
    def authority(self) -> Path:
        """The certificate of the consortium's authority."""
        return self.path / "authority.pem"

    @property
    def invitation_file(self) -> Path:
        """The invitation, as it came."""
        return self.path / "invitation.toml"

    @property
    def moved(self) -> Path:
        """Says, once it exists, that the home was moved away, and no command may use it."""
        return self.path / "moved.txt"

    @property
    def restoring(self) -> Path:
        """Is there while the home is restored: what it forfeits is not charged yet, and no command may use it."""
        return self.path / "restoring.txt"

    @property
    def identity(self) -> str:
        """Identifies this home wherever it is stored: 32 hexadecimal digits in home.id, drawn at first use.

        A home that is moved keeps it; so does a copy, and only one of the two may go on (party.budget.watermarks).
        Raises StorageFailed; InvalidInput if the file holds something else.
        """
        path = self.path / "home.id"
        if not path.exists():
            _create(path, secrets.token_hex(16).encode())
        found = read_text(path, most=_IDENTITY_BYTES).strip()
        if not re.fullmatch("[0-9a-f]{32}", found):
            raise InvalidInput(f"{path} holds {found[:40]!r}; allowed: 32 hexadecimal digits, as in a backup of it")
        return found

    def settings(self) -> PartySettings:
        """The settings in node.toml. Raises InvalidInput naming the key."""
        return read_settings(self.settings_file)

    def mapping_file(self) -> Path:
        """The mapping file that node.toml names. Raises InvalidInput naming the key."""
        return mapping_path(self.settings_file)

    def invitation(self) -> Invitation:
        """The invitation. Raises InvalidInput naming the key."""
        return read_invitation(self.invitation_file)

    def study_folder(self, digest: bytes) -> Path:
        """The folder of a study's files."""
        return self.path / "studies" / digest.hex()[:16]

    def ledger(self, digest: bytes, seat: str) -> Path:
        """The ledger of one seat."""
        return self.study_folder(digest) / f"ledger-{file_name(seat)}.sqlite"

    def teachers(self, digest: bytes, seat: str) -> Path:
        """The folder of one seat's teachers."""
        return self.study_folder(digest) / "teachers" / file_name(seat)

    def pool(self, digest: bytes) -> Path:
        """The study's public queries, if the hospital was sent them."""
        return self.study_folder(digest) / "pool.npy"

    def contribution(self, digest: bytes, seat: str) -> Path:
        """The sum of the votes of one seat's records."""
        return self.study_folder(digest) / f"votes-{file_name(seat)}.npz"

    def judges(self, digest: bytes, seat: str) -> Path:
        """The records of one seat's units that judge."""
        return self.study_folder(digest) / f"judges-{file_name(seat)}.npz"

    def forget_votes(self, digest: bytes, seat: str) -> None:
        """Deletes the sum of the votes of one seat's records, and its judges, if they are kept. Raises
        StorageFailed."""
        for path in (self.contribution(digest, seat), self.judges(digest, seat)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageFailed(f"{path} was not deleted: {error.strerror or error}; delete it") from error

    def forget_teachers(self, digest: bytes, seat: str) -> None:
        """Deletes the teachers of one seat, if there are any. Raises StorageFailed."""
        folder = self.teachers(digest, seat)
        try:
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            raise StorageFailed(f"{folder} was not deleted: {error.strerror or error}; delete it") from error

    def keep_study(self, study: DeployedStudy, *, pool: Path | None = None) -> None:
        """Writes the study's file, and its pool if there is one, into its folder. Raises as read_pool does."""
        folder = self.study_folder(study.digest)
        private_folder(folder)
        write_atomically(folder / "study.toml", write_study(study))
        if pool is not None:
            keep_pool(pool, self.pool(study.digest), study.terms)

    def study(self, digest: bytes) -> DeployedStudy:
        """A study kept here. Raises InvalidInput if its file is absent or was changed."""
        study = read_deployed(self.study_folder(digest) / "study.toml")
        if study.digest != digest:
            raise InvalidInput(
                f"{self.study_folder(digest) / 'study.toml'} has digest {study.digest.hex()[:16]}; allowed: "
                f"{digest.hex()[:16]}, as it was approved"
            )
        return study

    def find_study(self, name: str) -> DeployedStudy:
        """A study, given its file, or the name or first digits of the digest of one kept here.

        Raises DataUnavailable for a file that does not exist, InvalidInput unless exactly one study matches.
        """
        if name.endswith(".toml") and Path(name).is_file():
            return read_deployed(Path(name))
        kept = [read_deployed(path) for path in sorted((self.path / "studies").glob("*/study.toml"))]
        found = [study for study in kept if study.name == name or (name and study.digest.hex().startswith(name))]
        if not found and (name.endswith(".toml") or "/" in name):
            raise DataUnavailable(
                f"{name} does not exist or is not a study's file; allowed: a study's .toml file, or the name of "
                "a study "
                "kept here"
            )
        if len(found) != 1:
            known = ", ".join(f"{study.name} ({study.digest.hex()[:16]})" for study in kept) or "none"
            raise InvalidInput(f"{len(found)} studies match {name!r}; allowed: one of those kept here: {known}")
        return found[0]

    def check_not_moved(self) -> None:
        """Raises Refused("home_moved") for a home that goes on elsewhere."""
        if self.moved.exists():
            raise Refused(Code.HOME_MOVED, f"{self.path} was moved away, as {self.moved.name} in it says")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Locks the home while a node runs from it. Raises Refused("already_running"), ("home_moved")."""
        with alone(self.path / "run.lock", Refused(Code.ALREADY_RUNNING, f"another node is running from {self.path}")):
            self.check_not_moved()  # perhaps while this waited
            yield

    @property
    def is_running(self) -> bool:
        """Whether a node runs from this home."""
        try:
            with self.running():
                return False
        except Refused:
            return True


def file_name(seat: str) -> str:
    """A seat as a file name: a group's "/" becomes "+", which no party's name contains."""
    return "".join(c if c.isalnum() or c in "._-" else f"+{ord(c):x}+" if c != "/" else "+" for c in seat)


def make_home(path: Path) -> PartyHome:
    """Creates the folder, readable by its owner only. Raises StorageFailed, or Refused("home_open") if others can read
    it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"cannot make {path}: {error.strerror}") from error
    if path.stat().st_mode & 0o077:
        raise Refused(
            Code.HOME_OPEN, f"{path} can be read by others (mode {path.stat().st_mode & 0o777:o}); allowed: 700"
        )
    return PartyHome(path)


def _create(path: Path, content: bytes) -> None:
    """Writes a private file unless it exists: of two processes, the first wins. Raises StorageFailed."""
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_atomically(own, content)
    try:
        path.hardlink_to(own)
    except FileExistsError:
        pass
    except OSError as error:
        raise StorageFailed(f"cannot write {path}: {error.strerror or error}; free space or choose another") from error
    finally:
        own.unlink(missing_ok=True)
    sync(path.parent)  # the file survives a power cut, as the approvals that refer to it do
