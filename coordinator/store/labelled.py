"""A labelling's result, for a release: the labels, how it ended, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.release.sums import QUERIES_FILE
from protocols.study.deployed import DeployedStudy
from protocols.study.levels import hidden


@dataclass(frozen=True, eq=False)
class LabelledStudy:
    """A study whose labelling ended.

    ledger: path of the coordinator's ledger of it, which holds charges, audit log and signed evidence; pool: path of
    the public queries (.npy); labels: a class id, ABSTAIN or NOT_ASKED per query; reinforced: see Labelling; batches:
    size and answered queries of each; stop: the StopReason; left_out: batch to the seats whose votes were
    left out at least once, each with the last reason (a batch may be asked again, so that a seat of it may have voted);
    differences: party to the nano-units by which its own ledger may be higher; cells: the noisy sums in lattice units,
    where records vote and they were released.
    """

    study: DeployedStudy
    ledger: Path
    pool: Path
    labels: Int64[ndarray, " queries"] = field(repr=False)
    reinforced: Int64[ndarray, " queries"] = field(repr=False)
    batches: tuple[tuple[int, int], ...]
    stop: str
    left_out: Mapping[int, Mapping[str, str]]
    differences: Mapping[str, int]
    cells: Int64[ndarray, "queries classes"] | None = field(default=None, repr=False)

    @property
    def queries(self) -> Path:
        """The file of the queries in which records vote."""
        return self.pool.with_name(QUERIES_FILE)


def check_labelled_here(study: DeployedStudy) -> None:
    """Raises InvalidInput for a study with a querying hospital: its coordinator neither labels nor releases."""
    level = study.confidentiality
    if level.hides_queries:
        raise InvalidInput(
            f"{hidden(level).querier!r} asks in study {study.name!r}, with conclave-party ask, and has its labels; "
            "allowed: a study that is labelled here"
        )
