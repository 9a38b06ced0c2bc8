"""A released student applied to records: the release is verified first, then the records are read as its study says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from party.audit import read_student
from party.data.files import CsvFile
from party.data.mapping import DataMapping, read_mapping
from party.data.queries import read_queries
from party.data.records import DataSettings
from protocols.crypto.identity import PEM_BYTES, certificate_from_pem
from protocols.reading import read_bytes


def predict(
    release: str | Path,
    records: str | Path | Float32[ndarray, "records ..."],
    *,
    authority: str | Path,
    coordinator: str,
    mapping: str | Path | None = None,
) -> list[str] | list[dict[str, float]]:
    """The class that a released student predicts for each record, by name; or the probability of each finding.

    release: its folder; records: a table with the study's columns (.csv, .parquet) or inputs of its shape (.npy, .npz,
    an array); authority: the consortium's certificate, as obtained at enrolment; coordinator: the name in the
    certificate of who signed; mapping: a hospital's mapping file, None for records in the study's own words. Raises
    Refused or DataCorrupt for a release that is not as signed, DataUnavailable, InvalidInput.

        conclave.predict("release-heart", "ward.csv", authority="authority.pem", coordinator="centre")
    """
    certificate = certificate_from_pem(read_bytes(Path(authority), most=PEM_BYTES))
    student = read_student(Path(release), authority=certificate, coordinator=coordinator)
    if isinstance(records, np.ndarray):
        inputs = np.asarray(records, np.float32)
    else:
        words = DataMapping() if mapping is None else read_mapping(Path(mapping))
        own = DataSettings(name="own", loader="csv", source=CsvFile(Path(records)), mapping=words)
        inputs = read_queries(Path(records), own, student.study.terms)
    if findings := student.study.findings:
        return [dict(zip(findings, chances, strict=True)) for chances in student.chances(inputs).tolist()]
    return [student.study.terms.class_names[each] for each in student.predict(inputs).tolist()]
