"""What students of a paper's labels say of test records; each is trained once, and what it says is kept."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from protocols.array_files import array_bytes
from runtime.files import write_atomically
from simulations.datasets.dataset import content_digest
from simulations.source import source_digest
from simulations.stages.cached import cached_array, make_cache
from simulations.stages.inputs import Host


def predicted(
    host: Host,
    kind: str,
    inputs: Float32[ndarray, "queries ..."],
    targets: Float32[ndarray, "queries classes"],
    test: Float32[ndarray, "test ..."],
    *,
    seed: int,
) -> Int64[ndarray, " test"]:
    """The classes that a student of the queries and their targets names; kind: as the table of students names it.

    Raises StorageFailed, and InvalidInput for a kind that is not in the table.
    """
    from coordinator.students import STUDENTS, student_kind

    student = student_kind(kind, device="cpu")
    source = source_digest(
        STUDENTS[kind].__module__, "coordinator.students", "coordinator.queries", "runtime.torch_networks"
    )
    path = host.cache_dir / "papers" / f"{content_digest(inputs, targets, test, text=f'{kind} {seed} {source}')}.npy"
    kept = cached_array(path)
    if kept is None:
        make_cache(path.parent, cache_dir=host.cache_dir)
        learned = student.fit(inputs, targets, unlabelled=inputs[:0], classes=targets.shape[1], seed=seed)
        kept = np.asarray(learned.predict(test), dtype=np.int64)
        write_atomically(path, array_bytes(kept))
    return kept
