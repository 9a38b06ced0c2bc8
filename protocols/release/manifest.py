"""The manifest of a release: the SHA-256 of every file, signed by the coordinator's certified key."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.crypto.identity import Identity, certificate_from_pem, identify, sign
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.reading import JSON_BYTES, parse_json, read_bytes

MANIFEST_FILE, SIGNATURE_FILE = "manifest.json", "manifest.sig"
# Covers the manifest too (model_signature.py), so the manifest cannot cover it. Stock tools know it by this name.
MODEL_SIGNATURE_FILE = "model.sig"
COORDINATOR_FILE, AUTHORITY_FILE = "coordinator.pem", "authority.pem"
STATEMENT_FILE = "privacy.json"
# What the student sees of a record (protocols/features/feature_map.py); absent where it sees the record itself.
STUDENT_FEATURES_FILE = "features.npz"
FORMAT = "conclave release 1"
_DOMAIN = b"conclave release manifest 1\n"


def write_manifest(folder: Path, *, study: bytes, created: datetime.datetime, key: ec.EllipticCurvePrivateKey) -> None:
    """Writes manifest and signature of all files in the folder. created: UTC."""
    files = {name: sha256_of(folder / name) for name in files_in(folder)}
    content = _content(study.hex(), created, files)
    (folder / MANIFEST_FILE).write_bytes(content)
    (folder / SIGNATURE_FILE).write_bytes(sign(key, _DOMAIN + content))


def _content(study: str, created: datetime.datetime, files: Mapping[str, str]) -> bytes:
    manifest = {"format": FORMAT, "study": study, "created": created.isoformat(), "files": dict(files)}
    return (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()


def read_manifest(folder: Path) -> tuple[str, datetime.datetime, dict[str, str]]:
    """The study's digest (hexadecimal), the time of signing (UTC), and each file's hash. Raises DataCorrupt."""
    try:
        content = read_bytes(folder / MANIFEST_FILE, most=JSON_BYTES)
        manifest = parse_json(content, where=MANIFEST_FILE)
        created = datetime.datetime.fromisoformat(manifest["created"])
        files = {str(name): str(digest) for name, digest in manifest["files"].items()}
        study, kind = str(manifest["study"]), manifest["format"]
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorrupt(f"{MANIFEST_FILE} cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    if kind != FORMAT or created.tzinfo is None:
        raise DataCorrupt(f"{MANIFEST_FILE} is {str(kind)[:80]!r}; allowed: {FORMAT!r}, with a time in UTC")
    if _content(study, created, files) != content:
        raise DataCorrupt(f"{MANIFEST_FILE} differs from the form in which a release is written")
    return study, created, files


def signer(folder: Path, authority: x509.Certificate) -> Identity:
    """The coordinator that signed the manifest, with a certificate that was valid at the time of signing.

    Raises DataCorrupt, InvalidInput, and Refused: "bad_signature" or as identify().
    """
    _, created, _ = read_manifest(folder)
    certificate = certificate_from_pem(_bytes(folder / COORDINATOR_FILE))
    coordinator = identify(certificate, authority=authority, now=created, role="coordinator")
    coordinator.verify(_bytes(folder / SIGNATURE_FILE), _DOMAIN + _bytes(folder / MANIFEST_FILE))
    return coordinator


def check_files(folder: Path) -> None:
    """Raises DataCorrupt unless the folder holds exactly the files of the manifest, each with its hash."""
    _, _, files = read_manifest(folder)
    found = files_in(folder)
    extra, missing = sorted(set(found) - set(files)), sorted(set(files) - set(found))
    if extra or missing:
        raise DataCorrupt(f"files not in the manifest: {extra[:5]}; missing files: {missing[:5]}")
    for name in files:
        check_file(folder, name, files)


def check_file(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """Raises DataCorrupt unless the file has the hash that the manifest gives it. files: as read_manifest."""
    if sha256_of(folder / name) != files.get(name):
        raise DataCorrupt(f"{folder / name} was changed since the release was signed")


def files_in(folder: Path) -> list[str]:
    """The files below a folder, except manifest and signatures. Raises DataCorrupt for a link or the like."""
    return [name for name in signed_paths(folder) if name not in (MANIFEST_FILE, SIGNATURE_FILE)]


def signed_paths(folder: Path) -> list[str]:
    """The files below a folder that the model's signature covers: all but itself. Raises DataCorrupt as `files_in`, and
    for a folder without files, of which nothing would be signed."""
    names = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DataCorrupt(f"{path.name!r} is neither a file nor a folder; a release holds nothing else")
        if path.is_dir() and not any(path.iterdir()):
            raise DataCorrupt(f"{path.name!r} is an empty folder; a release holds none")
        if path.is_file():
            names.append(path.relative_to(folder).as_posix())
    return [name for name in names if name != MODEL_SIGNATURE_FILE]


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal. Raises DataCorrupt if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataCorrupt(f"{path.name} cannot be read: {error.strerror or error}") from None


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path, most=JSON_BYTES)
    except DataUnavailable as error:
        raise DataCorrupt(f"{path.name} cannot be read: {error}") from None
