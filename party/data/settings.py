"""How this hospital's own files are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from protocols.study.features import MISSING


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where the private records are and how they are read.

    name: of the data set, to which lifetime caps belong; path: file or folder; loader: of party/data or an installed
    entry point; patient: column that names the patient (images: the separator that ends the patient's part of a file
    name), whose records all go to one teacher, "" if every record is a patient; group: column of the privacy group, ""
    for none; columns: the study's column -> this file's; classes: this file's value -> the study's class; missing:
    strings that mean no value.
    """

    name: str
    path: Path
    loader: str
    patient: str = ""
    group: str = ""
    delimiter: str = ","
    missing: tuple[str, ...] = MISSING
    columns: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
