"""What every record says: worked out by the parties themselves on an engine, cached by what it depends on.

Budgets, weights and noise play no part in it, so what was found once serves any number of studies.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from protocols.array_files import array_bytes, array_parts, parse_array, read_array, read_arrays
from protocols.errors import InvalidInput
from protocols.reading import read_bytes
from protocols.study.findings import Labelled
from protocols.study.queries_file import check_terms
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.blocks import BLOCKS_BYTES, Blocks
from protocols.sums.contributions import FEWEST_UNITS, contribution_sum, said
from protocols.sums.residuals import FirstScores, residual_sum
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.engines.engine import Engine, Exchange, HostSpec
from simulations.source import source_digest
from simulations.stages.cached import cached_array, make_cache
from simulations.stages.cast import all_replies

Contribution = Int64[ndarray, "queries classes"]
OnStage = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class RecordCells:
    """What every record says, seat by seat.

    labelled: with what; cells: of each seat, as `said` in protocols/sums/contributions.py; units: of each seat, the
    number of each record's protected unit (None: each record is one of its own); population: how many units there are
    in all; records: of each seat, the positions of its records in the data set.
    """

    labelled: Labelled
    population: int
    map: Blocks
    cells: tuple[Int64[ndarray, "records numbers"], ...] = field(repr=False)
    units: tuple[Int64[ndarray, " records"] | None, ...] = field(repr=False)
    records: tuple[Int64[ndarray, " records"], ...] = field(default=(), repr=False)
    _summed: dict[bytes, list[Contribution]] = field(default_factory=dict, init=False, repr=False)

    def judges(self, study: Study) -> list[Bool[ndarray, " records"]]:
        """Of each seat, which records are of a unit that judges and does not vote: by its patient, or its place."""
        evaluation = unit_sums(study).evaluation
        if evaluation is None:
            return [np.zeros(len(cells), dtype=bool) for cells in self.cells]
        ids = (places if units is None else units for places, units in zip(self.records, self.units, strict=True))
        return [evaluation.judges([str(each) for each in of_seat.tolist()]) for of_seat in ids]

    @property
    def queries(self) -> int:
        """How many public queries there are."""
        return self.map.rows

    @property
    def of_columns(self) -> bool:
        """Whether every query looks at a part of the features only, as the cells of one column do."""
        return self.map.plain and self.map.narrow

    def sums(self, study: Study) -> list[Contribution]:
        """Each seat's sum of contributions, in lattice units; nothing of a seat with fewer than FEWEST_UNITS units.

        Raises InvalidInput for another map than the study's.
        """
        if study.digest not in self._summed:  # those of the last study are kept, for its other seeds
            self._summed.clear()
            self._summed[study.digest] = self._of_seats(study, self._votes)
        return self._summed[study.digest]

    def residuals(self, study: Study, first: FirstScores) -> list[Contribution]:
        """The same of residuals, in the second batch."""

        def of_seat(study: Study, cells: ndarray, units: ndarray | None, weight: int) -> Contribution:
            return residual_sum(first, cells, units, weight_units=weight)

        return self._of_seats(study, of_seat)

    def _votes(self, study: Study, cells: ndarray, units: ndarray | None, weight: int) -> Contribution:
        return contribution_sum(self.map, cells, units, weight_units=weight, classes=study.classes, fewest=0)

    def _of_seats(
        self, study: Study, said_by: Callable[[Study, ndarray, ndarray | None, int], Contribution]
    ) -> list[Contribution]:
        records = unit_sums(study)
        if records.queries_sha256 != self.map.digest:
            raise InvalidInput("the queries are not those of the study; allowed: the map whose digest it names")
        check_terms(self.map, records)
        shape, found = (self.queries, study.classes), []
        for seat, cells, units, judges in zip(study.roster, self.cells, self.units, self.judges(study), strict=True):
            weight, spoken = round(seat.weight * study.units), None if units is None else units[~judges]
            found.append(
                np.zeros(shape, dtype=np.int64)
                if _units(study.unit, cells, units) < FEWEST_UNITS
                else said_by(study, cells[~judges], spoken, weight)
            )
        return found


def _units(unit: str, cells: ndarray, units: ndarray | None) -> int:
    """How many protected units have records here; where all of a party's data are one unit, how many records."""
    return len(cells) if units is None or unit == "party" else len(np.unique(units))


def find_cells(
    dataset: Dataset,
    holdings: Sequence[Int64[ndarray, " records"]],
    queries: Blocks,
    *,
    engine: Callable[[], Engine],
    cache_dir: Path,
    on_stage: OnStage,
) -> list[Int64[ndarray, "records numbers"]]:
    """What the records of each seat say. holdings: each seat's records.

    on_stage(stage, done, total) reports "record votes". The engine is opened only where the cells are not cached.
    """
    source = source_digest(__name__, "protocols.sums", "protocols.features")
    key = content_digest(
        *holdings,
        text=f"record votes {dataset.private_digest} {dataset.labelled} {queries.digest} {len(holdings)} {source}",
    )
    folder = cache_dir / "record-votes" / key
    found = cached_array(folder / "cells.npy")
    if found is not None and len(found) == sum(map(len, holdings)):
        return np.split(found, np.cumsum([len(each) for each in holdings])[:-1])
    make_cache(folder, cache_dir=cache_dir)
    _write_inputs(folder, dataset, holdings, queries)
    names = [str(seat) for seat in range(len(holdings))]

    def body(exchange: Exchange) -> list[ndarray]:
        replies = all_replies(exchange, names, b"", lambda done, total: on_stage("record votes", done, total))
        return [parse_array(replies[name], where=f"the cells of party {name}") for name in names]

    on_stage("starting the engine", 0, 1)
    columns = dataset.labelled.columns(signed=queries.signed)
    spec = HostSpec("simulations.stages.record_cells:RecordHost", {"folder": str(folder), "classes": columns})
    cells = [each.astype(np.int64) for each in engine().run(spec, names, body)]
    write_atomically(folder / "cells.npy", array_bytes(np.concatenate(cells)))
    return cells


class RecordHost:
    """The parties of one worker: each gives what its own records say."""

    def __init__(self, *, folder: str, classes: int) -> None:
        self._classes, inside = classes, Path(folder)
        self._inputs = read_array(inside / "private_inputs.npy", mapped=True)
        self._labels = read_array(inside / "private_labels.npy")
        table = read_arrays(inside / "holdings.npz")
        self._records, self._bounds = table["records"], table["bounds"]
        file = inside / "queries.npz"
        self._queries = Blocks.from_bytes(read_bytes(file, most=BLOCKS_BYTES), where=str(file))

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """What each party's records say."""
        for name in requests:
            records = self._records[slice(*self._bounds[int(name)])]
            inputs = np.asarray(self._inputs[records], dtype=np.float32)
            yield name, array_bytes(said(self._queries, inputs, self._labels[records], classes=self._classes))


def _write_inputs(
    folder: Path, dataset: Dataset, holdings: Sequence[Int64[ndarray, " records"]], queries: Blocks
) -> None:
    """Writes what the workers read: once, named by content, to be memory-mapped and never sent in messages."""
    ends = np.cumsum([len(each) for each in holdings])
    table = io.BytesIO()
    bounds = np.stack([ends - [len(each) for each in holdings], ends], axis=1)
    np.savez(table, records=np.concatenate(holdings), bounds=bounds)
    write_atomically(folder / "private_inputs.npy", array_parts(dataset.private_inputs))
    write_atomically(folder / "private_labels.npy", array_parts(dataset.private_labels))
    write_atomically(folder / "holdings.npz", table.getvalue())
    write_atomically(folder / "queries.npz", queries.to_bytes())
