"""What parties would have alone: a model of its own records for each, on the test records. Not for release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from party.teachers import TEACHERS, teacher_kind
from protocols.array_files import array_bytes
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.source import source_digest
from simulations.stages.cached import cached_array
from simulations.stages.cast import teacher_path, teacher_seed

# With more parties, so many of them are measured, evenly spread over the roster.
MOST_MEASURED = 50


def measured_parties(parties: int) -> Int64[ndarray, " measured"]:
    """The positions of the parties that are measured: all, or MOST_MEASURED evenly spread over the roster."""
    return np.unique(np.linspace(0, parties - 1, min(parties, MOST_MEASURED)).astype(np.int64))


def alone_right(
    dataset: Dataset,
    shards: Sequence[Sequence[Int64[ndarray, " records"]]],
    *,
    teacher: str,
    seed: int,
    cache_dir: Path,
    trained: Path | None,
) -> Bool[ndarray, "measured test"]:
    """On which test records a teacher of all of a party's records is right, of at most MOST_MEASURED parties.

    The i-th row is the party i's where all are measured. Cached by what it depends on. trained: the folder
    of the teachers that voted, of these shards and this seed: a party's only teacher is the model that it has alone,
    and is not trained again. None where records voted.
    """
    chosen = measured_parties(len(shards)).tolist()
    holdings = [np.concatenate(shards[party]) for party in chosen]
    source = source_digest(TEACHERS[teacher].__module__, "party.teachers", "runtime.torch_networks", __name__)
    kind = teacher_kind(teacher).with_pool(dataset.public_inputs)
    pool = dataset.public_digest if kind.uses_pool else ""
    about = f"alone {dataset.private_digest} {pool} {dataset.test_digest} {teacher} {seed} {chosen} {source}"
    path = cache_dir / "alone" / f"{content_digest(*holdings, text=about)}.npy"
    known = cached_array(path)
    if known is not None and known.shape == (len(chosen), len(dataset.test_labels)) and known.dtype == np.bool_:
        return known
    if trained is not None and all(len(of_party) == 1 for of_party in shards):
        models = [kind.load(teacher_path(trained, str(party), 0)) for party in chosen]
    else:
        models = kind.fit(
            [(dataset.private_inputs[records], dataset.private_labels[records]) for records in holdings],
            classes=dataset.classes,
            seeds=[teacher_seed(seed, party, 0) for party in chosen],
        )
    found = np.array([model.predict(dataset.test_inputs) == dataset.test_labels for model in models])
    write_atomically(path, array_bytes(found))
    return found
