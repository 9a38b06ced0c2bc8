"""The labels of a release, for comparing them with the outcomes that were signed batch by batch.

A release is signed as a whole: manifest.json holds the study's digest and the hash of each file, manifest.sig the
coordinator's signature of it. So if a label contradicts an outcome, the coordinator signed both.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import re
from pathlib import Path
from typing import Final  # what JSON returns, checked below

import numpy as np
from cryptography import x509
from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.identity import PEM_BYTES, certificate_from_pem, identify
from protocols.errors import DataCorrupt, DataUnavailable, Refused
from protocols.reading import open_file, parse_json, read_bytes
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.votes import NOT_ASKED

_BYTES: Final = 2**30
_MANIFEST_BYTES: Final = 2**20
_FORMAT: Final = "conclave release 1"
# More digits than any number in range has; longer strings would be cut, or refused by Python.
_DIGITS: Final = re.compile("[0-9]{1,18}")
_DOMAIN: Final = b"conclave release manifest 1\n"


def released_study(release: Path, *, authority: x509.Certificate, coordinator: str) -> bytes:
    """The digest of a release's study, provided that `coordinator` signed it with these labels.

    Raises DataUnavailable, DataCorrupt, InvalidInput, or Refused ("bad_signature", "other_coordinator", as identify).
    """
    content = _bytes(release / "manifest.json", _MANIFEST_BYTES)
    try:
        manifest = parse_json(content, where=str(release / "manifest.json"))
        created = datetime.datetime.fromisoformat(manifest["created"])
        study, wanted = bytes.fromhex(manifest["study"]), str(manifest["files"]["labels.csv"])
        if manifest["format"] != _FORMAT or created.tzinfo is None or len(study) != 32:
            raise ValueError(f"format {str(manifest['format'])[:60]!r}")
    except (DataCorrupt, ValueError, KeyError, TypeError) as error:
        raise DataCorrupt(f"{release / 'manifest.json'} cannot be read: {str(error)[:200]}") from None
    certificate = certificate_from_pem(_bytes(release / "coordinator.pem", PEM_BYTES))
    signer = identify(certificate, authority=authority, now=created, role="coordinator")
    signer.verify(_bytes(release / "manifest.sig", PEM_BYTES), _DOMAIN + content)
    if signer.name != coordinator:
        raise Refused(Code.OTHER_COORDINATOR, f"{signer.name!r} signed the release; allowed: {coordinator!r}")
    if hashlib.sha256(_bytes(release / "labels.csv", _BYTES)).hexdigest() != wanted:
        raise DataCorrupt(f"{release / 'labels.csv'} was changed since the release was signed")
    return study


def released_labels(release: Path, study: DeployedStudy) -> Int64[ndarray, " queries"]:
    """The class id of each query of the study's pool, below 0 where none was released, from a release's labels.csv.

    Its columns are query and label (a class id, or empty); a query that is absent has none. Raises DataUnavailable,
    DataCorrupt.
    """
    terms = study.terms
    path = release / "labels.csv"
    _check_size(path, _BYTES)
    labels = np.full(terms.pool_size, NOT_ASKED, np.int64)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row, fields in enumerate(csv.DictReader(file, strict=True), start=1):
                query, label = fields.get("query") or "", (fields.get("label") or "").strip()
                if not (_DIGITS.fullmatch(query) and int(query) < len(labels)):
                    raise DataCorrupt(f"{path}: row {row}: query {query[:40]!r}; allowed: 0 to {len(labels) - 1}")
                if label:
                    if not (_DIGITS.fullmatch(label) and int(label) < study.classes):
                        raise DataCorrupt(f"{path}: row {row}: label {label[:40]!r}; allowed: 0 to {study.classes - 1}")
                    labels[int(query)] = int(label)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataCorrupt(f"{path} cannot be read: {str(error)[:200]}; allowed: CSV in UTF-8") from error
    return labels


def _bytes(path: Path, limit: int) -> bytes:
    _check_size(path, limit)
    return read_bytes(path, most=limit)


def _check_size(path: Path, limit: int) -> None:
    try:
        open_file(path, most=limit).close()
    except (DataUnavailable, DataCorrupt) as error:
        raise DataUnavailable(f"{error}; allowed: a release of this study") from None
