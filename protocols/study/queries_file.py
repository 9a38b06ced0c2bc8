"""The file of a study's queries, where records vote: handed round beside the study, which names its hash.

Every node needs it to know where its records vote, and the coordinator to know where the public pool lies.
"""

from __future__ import annotations

from pathlib import Path

from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import read_bytes
from protocols.study.count_cells import count_cells
from protocols.study.deployed import DeployedStudy
from protocols.study.votes import UnitSums, unit_sums
from protocols.sums.blocks import BLOCKS_BYTES, Blocks, Ranges


def blocks_of(study: DeployedStudy, path: Path | None) -> Blocks:
    """What units of the study say something of: of the file, or by the terms alone. path: None where none is given.

    Raises InvalidInput for a file too many or too few, and as read_blocks does.
    """
    given = study.votes.given
    if (path is None) == bool(given):
        raise InvalidInput(
            f"{given} is missing; allowed for study {study.name!r}: {given} FILE, which `study queries` writes"
            if given
            else f"{path} is given; allowed for study {study.name!r}: no file, as its terms say what is counted"
        )
    return count_blocks(study) if path is None else read_blocks(path, study)


def count_blocks(study: DeployedStudy) -> Blocks:
    """The cells of a count, by its terms. Raises InvalidInput unless the study says of them what they are."""
    blocks, sums = count_cells(study.terms).blocks, unit_sums(study)
    _check_digest(blocks, sums, "the terms' columns")
    check_terms(blocks, sums)
    return blocks


def read_blocks(path: Path, study: DeployedStudy) -> Blocks:
    """The queries in a file, if they are the study's.

    Raises DataUnavailable, and InvalidInput unless the study names these queries and its records have their features.
    """
    try:
        queries = Blocks.from_bytes(read_bytes(path, most=BLOCKS_BYTES), where=str(path))
    except DataCorrupt as error:
        raise InvalidInput(f"queries file {error}") from None
    records = unit_sums(study)
    _check_digest(queries, records, f"queries file {path}")
    check_terms(queries, records)
    check_shape(queries, study.terms.input_shape)
    return queries


def _check_digest(queries: Blocks, records: UnitSums, where: str) -> None:
    if queries.digest != records.queries_sha256:
        raise InvalidInput(f"{where}: SHA-256 {queries.digest}; allowed: that of the study, {records.queries_sha256}")


def check_terms(queries: Blocks, records: UnitSums) -> None:
    """Raises InvalidInput unless the study says of these queries what they are: what a unit costs follows from it."""
    given = (queries.rows, queries.filled, queries.signed, queries.partitions)
    if given != (said := (records.queries, records.votes, records.signed, records.partitions)):
        raise InvalidInput(
            f"queries, votes of a record, signed and partitions are {given}; allowed: those of the study, {said}"
        )
    check_kind(queries)


def check_kind(queries: Blocks) -> None:
    """Raises InvalidInput unless these are the cells of record votes, or graded features with signs."""
    if not (queries.plain or queries.signed):
        raise InvalidInput("no block of features has signs; allowed: cells of equal weight alone, or one with signs")
    if queries.signed and any(isinstance(each, Ranges) for each in queries.blocks):
        raise InvalidInput("ranges stand beside features with signs; allowed: ranges of a count alone")


def check_shape(queries: Blocks, input_shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless the queries' features are made of records of this shape."""
    if queries.input_shape != input_shape:
        raise InvalidInput(
            f"the queries look at records of shape {queries.input_shape}; allowed: {input_shape}, as in "
            "terms.input_shape"
        )
