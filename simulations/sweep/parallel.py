"""The runs of a sweep side by side: an engine's workers take the cells, as they take parties when votes are cast.

Votes are cast first, once for all cells that share them, so a worker only reads what is cached. Each cell is kept as
soon as it is finished, by the worker. On a cluster every machine needs the caller's folder, the cache and the results
at the same paths.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from protocols.errors import EngineFailed
from protocols.reading import parse_json
from simulations.engines import open_engine
from simulations.engines.engine import Exchange, HostSpec
from simulations.progress import Reporter
from simulations.setup.experiment import experiment
from simulations.stages.inputs import Host
from simulations.sweep.cells import Cell, Shared, keep, votes_key

_ENGINE_OF_WORKERS = "in_process"


def run_apart(cells: Sequence[Cell], *, host: Host, reporter: Reporter, kept: Path) -> None:
    """Runs the cells that `kept` does not hold in the workers of the host's engine, and keeps their rows there.

    The rows are those that one process makes, cell by cell. Raises what a cell raises, and EngineFailed; what was
    finished before is kept.
    """
    wanted = {cell.key: cell for cell in cells if not cell.refused and not (kept / f"{cell.key}.json").exists()}
    if not wanted:
        return
    _cast(wanted.values(), host=host, reporter=reporter)
    folders = {
        "kept": str(kept.absolute()),
        "here": str(Path.cwd()),
        "cache_dir": str(host.cache_dir.absolute()),
        "data_dir": "" if host.data_dir is None else str(host.data_dir.absolute()),
    }
    requests = {
        # What was not given stays so: it may follow from the data.
        key: json.dumps(cell.settings.model_dump(mode="json", exclude_unset=True)).encode()
        for key, cell in wanted.items()
    }
    with reporter.stage(f"{len(wanted)} runs, side by side") as stage:

        def body(exchange: Exchange) -> None:
            if None in exchange(requests, stage.update).values():
                raise EngineFailed("a worker left out a run of the sweep")

        spec = HostSpec("simulations.sweep.parallel:open_host", {**folders})
        open_engine(host.engine, workers=host.workers).run(spec, list(requests), body)


def _cast(cells: Iterable[Cell], *, host: Host, reporter: Reporter) -> None:
    """Makes sure that the votes of all cells are cached; those of one kind at a time are in memory."""
    shared = Shared(host, reporter)
    for cell in {votes_key(cell.settings): cell for cell in cells}.values():
        shared.run(cell.settings)


class SweepHost:
    """The cells of one worker."""

    def __init__(self, *, kept: Path, host: Host) -> None:
        self._kept = kept
        self._shared = Shared(host, Reporter(quiet=True))

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Runs each cell (its key, and its settings as JSON) and keeps its rows; the reply is empty."""
        for key, request in requests.items():
            settings = experiment(**parse_json(request, where="the settings of a run"))
            keep(Cell(0, settings, "", key, None), self._shared, self._kept / f"{key}.json")
            yield key, b""


def open_host(*, kept: str, here: str, cache_dir: str, data_dir: str) -> SweepHost:
    """The host of a worker, which works in the caller's folder `here`: settings may name files from there."""
    os.chdir(here)
    host = Host(
        data_dir=Path(data_dir) if data_dir else None, cache_dir=Path(cache_dir), engine=_ENGINE_OF_WORKERS, workers=1
    )
    return SweepHost(kept=Path(kept), host=host)
