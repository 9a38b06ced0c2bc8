"""The file of a study's queries, where records vote: handed round beside the study, which names its hash.

Every node needs it to know where its records vote, and the coordinator to know where the public pool lies.
"""

from __future__ import annotations

from pathlib import Path

from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import read_bytes
from protocols.study.deployed import DeployedStudy
from protocols.study.query_map import QUERIES_BYTES, QueryMap
from protocols.study.votes import unit_sums


def read_query_map(path: Path, study: DeployedStudy) -> QueryMap:
    """The queries in a file, if they are the study's.

    Raises DataUnavailable, and InvalidInput unless the study names these queries and its records have their features.
    """
    try:
        queries = QueryMap.from_bytes(read_bytes(path, most=QUERIES_BYTES), where=str(path))
    except DataCorrupt as error:
        raise InvalidInput(f"queries file {error}") from None
    records = unit_sums(study)
    if queries.digest != records.queries_sha256:
        raise InvalidInput(
            f"queries file {path} has SHA-256 {queries.digest}; allowed: that of the study, {records.queries_sha256}"
        )
    if (queries.queries, queries.votes) != (records.queries, records.votes):
        raise InvalidInput(
            f"queries file {path} has {queries.queries} queries and {queries.votes} votes of a record; allowed: the "
            f"{records.queries} and {records.votes} of the study"
        )
    check_shape(queries, study.terms.input_shape)
    return queries


def check_shape(queries: QueryMap, input_shape: tuple[int, ...]) -> None:
    """Raises InvalidInput unless the queries' features are made of records of this shape."""
    if queries.input_shape != input_shape:
        raise InvalidInput(
            f"the queries look at records of shape {queries.input_shape}; allowed: {input_shape}, as in "
            "terms.input_shape"
        )
