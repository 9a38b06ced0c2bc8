"""Teachers trained again with one record replaced by another, and the votes they then cast.

Everything but that record stays the same: its place in the shard, the seed, the kind. So a vote that changes was
changed by the record; as a check, each teacher is first trained again on its own shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int64, Integer
from numpy import ndarray

from party.teachers.teacher import TeacherKind
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from simulations.datasets.dataset import Dataset
from simulations.stages.cast import teacher_seed

Population = Literal["federation", "party"]
POPULATIONS: tuple[Population, ...] = get_args(Population)
Votes = Integer[ndarray, "parties teachers queries"]
Shards = list[list[Int64[ndarray, " records"]]]

# The share of votes that may differ because batched matrix products round differently.
_ROUNDING = 0.01


@dataclass(frozen=True)
class Draw:
    """One record replaced: its teacher, its place in the teacher's shard, and the replacement."""

    teacher: int
    place: int
    instead: int


def draw(shards: Shards, party: int, count: int, population: Population, seed: int) -> list[Draw]:
    """`count` independent draws: a record of the party, uniformly, and the one that replaces it.

    population "federation": any record of another party; "party": any other record of the same one, which is then held
    twice. A function of the arguments alone.
    """
    rng = simulation_rng(seed, "retraining", party)
    own = shards[party]
    sizes = np.cumsum([len(shard) for shard in own])
    held = np.concatenate(own)
    others = held
    if population == "federation":
        others = np.setdiff1d(np.concatenate([shard for of_party in shards for shard in of_party]), held)
    draws = []
    for position in rng.integers(sizes[-1], size=count):
        teacher = int(np.searchsorted(sizes, position, side="right"))
        place = int(position - (sizes[teacher - 1] if teacher else 0))
        # Any of the party's own records except the replaced one.
        pool = others if population == "federation" else np.delete(held, position)
        draws.append(Draw(teacher, place, int(pool[rng.integers(len(pool))])))
    return draws


def retrain(
    kind: TeacherKind,
    dataset: Dataset,
    shards: Shards,
    party: int,
    draws: list[Draw],
    votes: Votes,
    asked: Int64[ndarray, " queries"],
    *,
    seed: int,
    on_done: Callable[[int], None],
) -> Integer[ndarray, "draws queries"]:
    """The votes on the asked queries of the teacher of each draw, trained again with the other record in place.

    votes: those that were cast, on all queries; seed: that of `cast_votes`; on_done(retrainings done). Raises
    InvalidInput if a teacher that is trained again on its own shard votes differently than before; stacked on a GPU,
    whose rounding differs, only if more than a hundredth of its votes change: those count as moved, which costs more.
    """
    teachers = sorted({each.teacher for each in draws})
    changed = []
    for each in draws:
        records = shards[party][each.teacher].copy()
        records[each.place] = each.instead
        changed.append(records)
    # First the unchanged teachers: trained again they must vote as before, or a moved vote would mean nothing.
    work = [(k, shards[party][k]) for k in teachers]
    work += [(each.teacher, records) for each, records in zip(draws, changed, strict=True)]
    queries = dataset.public_inputs[asked]
    step = len(work) if kind.stacks else 1
    cast = []
    for start in range(0, len(work), step):
        part = work[start : start + step]
        trained = kind.fit(
            [
                (np.asarray(dataset.private_inputs[records], dtype=np.float32), dataset.private_labels[records])
                for _, records in part
            ],
            classes=dataset.classes,
            seeds=[teacher_seed(seed, party, k) for k, _ in part],
        )
        cast += [one.predict(queries) for one in trained]
        on_done(max(0, len(cast) - len(teachers)))
    for k, again in zip(teachers, cast[: len(teachers)], strict=True):
        differ = int((again != votes[party, k, asked]).sum())
        if differ > (_ROUNDING * len(asked) if kind.stacks else 0):
            raise InvalidInput(
                f"teacher {k} of party {party}, trained again on its own shard, casts {differ} of {len(asked)} votes "
                "differently; allowed: votes of the same data, shards, kind, seed and device"
            )
    return np.stack(cast[len(teachers) :])
