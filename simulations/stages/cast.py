"""Train teachers and cast votes: the heavy stages, run by an engine, cached by the hash of their inputs.

Budgets, mechanisms, weights and noise play no part here, so votes cast once serve any number of replays. Teachers and
votes are in a folder named by the hash of everything they depend on: the data, the partition, the kind of teacher, the
seed, and the source code of teachers. An interrupted run finds its finished teachers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int64, Integer
from numpy import ndarray

from party.teachers import TEACHERS, teacher_kind
from party.teachers.teacher import Teacher
from protocols.array_files import array_bytes, array_parts, parse_array, read_array, read_arrays
from protocols.errors import DataCorrupt, EngineFailed
from protocols.levels.hidden_queries.dealing import precision
from protocols.levels.hidden_queries.inference.architecture import PoolShape, ReLUShape
from protocols.levels.hidden_queries.inference.model import QuantisedModel, quantise, quantised_inputs
from protocols.reading import parse_json
from protocols.votes import ABSTAIN
from runtime.files import write_atomically
from simulations.datasets.dataset import Dataset, content_digest
from simulations.engines.engine import Engine, Exchange, HostSpec
from simulations.source import source_digest
from simulations.stages.cached import cached_array, make_cache

# Votes are cast and cached in blocks of so many queries, in the order of the pool, which is that of asking.
_BLOCK = 1000
# Parties whose teachers are trained at once if their kind stacks them on a GPU.
_STACKED_PARTIES = 250
# The most parties whose teachers stay in memory between blocks; those of others are read again, which takes less time
# than their votes.
_MOST_LOADED = 1000

_Shard = Int64[ndarray, " records"]
_OnStage = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Cast:
    """Votes of every teacher on the public queries from the first on, and statistics of the casting."""

    votes: Integer[ndarray, "parties teachers queries"]
    trained: int
    folder: Path


def cast_votes(
    dataset: Dataset,
    shards: list[list[_Shard]],
    *,
    teacher: str,
    seed: int,
    engine: Callable[[], Engine],
    cache_dir: Path,
    on_stage: _OnStage,
    queries: int | None = None,
    block: int = _BLOCK,
    input_bound: float | None = None,
) -> Cast:
    """Trains the teachers that are not cached and casts their votes on at least the first `queries` of the pool.

    Whole blocks are cast, and those that were cast before are read; queries: None casts all of the pool. input_bound:
    votes are those of private inference, in fixed point, on inputs cut off there; None: those of the teachers.
    shards: for each party, the private records of each of its teachers (disjoint, non-empty, as many for every
    party); where records have L findings, a teacher is L models, one after the other, each with votes of its own.
    on_stage(stage, done, total) reports "teachers" and "votes". The result depends on the arguments alone, not on the
    engine, which is opened only when something is not cached.
    """
    shards = _shards_of_findings(shards, dataset.private_labels)
    source = source_digest(TEACHERS.module_of(teacher), "party.teachers", "runtime.torch_networks", __name__)
    learned = f"{dataset.private_digest} {dataset.public_digest if teacher_kind(teacher).uses_pool else ''}"
    train_key = content_digest(
        *[shard for of_party in shards for shard in of_party],
        text=f"teachers {learned} {dataset.classes} {teacher} {seed} {len(shards[0])} {source}",
    )
    private = "" if input_bound is None else f" {input_bound} {source_digest('protocols.levels.hidden_queries')}"
    vote_key = content_digest(text=f"votes {dataset.public_digest} {train_key}{private}")
    folder = cache_dir / "teachers" / train_key
    pool = len(dataset.public_inputs)
    wanted = pool if queries is None else min(queries, pool)
    paths = {
        (start, min(start + block, pool)): cache_dir / "votes" / vote_key / f"{start}-{min(start + block, pool)}.npy"
        for start in range(0, wanted, block)
    }
    blocks: dict[tuple[int, int], ndarray] = {}
    for (start, stop), path in paths.items():
        cached = cached_array(path)
        if cached is not None and cached.shape == (len(shards), len(shards[0]), stop - start):
            blocks[start, stop] = cached
    missing = [part for part in paths if part not in blocks]
    if not missing:
        return Cast(np.concatenate(list(blocks.values()), axis=2), 0, folder)
    make_cache(folder, cache_dir / "votes" / vote_key, cache_dir=cache_dir)
    _write_inputs(folder, dataset, shards, vote_key)
    names = [str(i) for i in range(len(shards))]
    spec = HostSpec(
        "simulations.stages.cast:CastHost",
        {
            "folder": str(folder),
            "teacher": teacher,
            "classes": dataset.classes,
            "seed": seed,
            "pool": vote_key,
            "input_bound": input_bound or 0.0,
        },
    )
    trained = 0

    def body(exchange: Exchange) -> None:
        nonlocal trained
        replies = all_replies(
            exchange, names, _order(stage="train"), lambda done, total: on_stage("teachers", done, total)
        )
        trained = sum(parse_json(reply, where="a reply")["trained"] for reply in replies.values())
        for before, (start, stop) in enumerate(missing):
            request = _order(stage="vote", start=start, stop=stop)
            replies = all_replies(exchange, names, request, partial(_of_blocks, on_stage, before, len(missing)))
            rows = [parse_array(replies[name], where=f"the votes of {name}") for name in names]
            blocks[start, stop] = np.stack(rows)
            write_atomically(paths[start, stop], array_bytes(blocks[start, stop]))

    on_stage("starting the engine", 0, 1)
    engine().run(spec, names, body)
    return Cast(np.concatenate([blocks[part] for part in paths], axis=2), trained, folder)


def _shards_of_findings(
    shards: list[list[_Shard]], labels: Int64[ndarray, "records *findings"]
) -> list[list[Int64[ndarray, " rows"]]]:
    """What each model learns: a teacher's records; or, of each finding, the rows of those of which it is known."""
    if labels.ndim == 1:
        return shards
    count = labels.shape[1]
    return [
        [shard[labels[shard, at] != ABSTAIN] * count + at for shard in of_party for at in range(count)]
        for of_party in shards
    ]


class CastHost:
    """The parties of one worker in the casting stages; all of its state is in the folder or can be read again."""

    def __init__(self, *, folder: str, teacher: str, classes: int, seed: int, pool: str, input_bound: float) -> None:
        self._folder = Path(folder)
        self._kind = teacher_kind(teacher)
        self._classes = classes
        self._seed = seed
        self._bound = input_bound
        self._inputs = read_array(self._folder / "private_inputs.npy", mapped=True)
        labels = read_array(self._folder / "private_labels.npy")
        # Where records have several findings, row r L + i is finding i of record r (_shards_of_findings).
        self._labels, self._findings = labels.ravel(), labels.size // max(1, len(labels))
        self._public = read_array(self._folder / f"{pool}.npy", mapped=True)
        if self._kind.uses_pool:
            self._kind = self._kind.with_pool(np.array(self._public, dtype=np.float32))
        table = read_arrays(self._folder / "shards.npz")
        self._records, self._bounds = table["records"], table["bounds"]
        self._teachers: dict[str, list[Teacher | None]] = {}

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Answers {"stage": "train"} and {"stage": "vote", "start", "stop"}."""
        messages = {name: parse_json(request, where="a request") for name, request in requests.items()}
        training = [name for name, message in messages.items() if message["stage"] == "train"]
        step = _STACKED_PARTIES if self._kind.stacks else 1
        for start in range(0, len(training), step):
            for name, trained in self._train(training[start : start + step]).items():
                yield name, json.dumps({"trained": trained}).encode()
        for name, message in messages.items():
            if message["stage"] == "vote":
                queries = np.array(self._public[message["start"] : message["stop"]], dtype=np.float32)
                votes = [
                    np.full(len(queries), ABSTAIN, np.int16)
                    if teacher is None
                    else self._votes(teacher, queries).astype(np.int16)
                    for teacher in self._load(name)
                ]
                yield name, array_bytes(np.stack(votes))

    def _train(self, names: list[str]) -> dict[str, int]:
        """Trains what is not on disk yet; returns the number of teachers trained for each party."""
        missing = [
            (name, k)
            for name in names
            for k in range(self._count)
            if self._knows(name, k) and not self._path(name, k).exists()
        ]
        if missing:
            teachers = self._kind.fit(
                [self._shard(int(name), k) for name, k in missing],
                classes=self._classes,
                seeds=[teacher_seed(self._seed, int(name), k) for name, k in missing],
            )
            for (name, k), teacher in zip(missing, teachers, strict=True):
                teacher.save(self._path(name, k))
        return {name: sum(name == who for who, _ in missing) for name in names}

    def _votes(self, teacher: Teacher, queries: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        if not self._bound:
            return teacher.predict(queries)
        model = quantise(teacher.private_model(classes=self._classes), precision(self._bound))
        return fixed_point_votes(model, np.clip(queries, -self._bound, self._bound))

    def _knows(self, name: str, k: int) -> bool:
        """Whether a teacher has a record: of a finding that its hospital does not record it has none."""
        start, stop = self._bounds[int(name), k]
        return bool(start < stop)

    def _load(self, name: str) -> list[Teacher | None]:
        """The teachers of a party; None for one that learned nothing, and abstains."""
        loaded = self._teachers.get(name)
        if loaded is None:
            paths = [self._path(name, k) for k in range(self._count)]
            try:
                loaded = [self._kind.load(path) if self._knows(name, k) else None for k, path in enumerate(paths)]
            except DataCorrupt as error:
                for path in paths:
                    path.unlink(missing_ok=True)
                raise DataCorrupt(f"cached teacher: {error}; it was removed, so run the command again") from error
            if len(self._teachers) < _MOST_LOADED:
                self._teachers[name] = loaded
        return loaded

    @property
    def _count(self) -> int:
        return int(self._bounds.shape[1])

    def _path(self, name: str, k: int) -> Path:
        return teacher_path(self._folder, name, k)

    def _shard(self, position: int, k: int) -> tuple[Float32[ndarray, "records ..."], _Shard]:
        start, stop = self._bounds[position, k]
        rows = self._records[start:stop]
        return np.asarray(self._inputs[rows // self._findings], dtype=np.float32), self._labels[rows]


def teacher_path(folder: Path, party: str, teacher: int) -> Path:
    """Where a trained teacher is kept, in the folder of a cast."""
    return folder / f"teacher-{party}-{teacher}"


def teacher_seed(seed: int, party: int, teacher: int) -> int:
    """A teacher's training seed: a function of only (seed, party, teacher)."""
    return int(np.random.SeedSequence((seed, party, teacher)).generate_state(1, np.uint32)[0])


def fixed_point_votes(model: QuantisedModel, inputs: Float[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
    """The labels that `plain_inference` gives, bit for bit, in a fraction of its time.

    Computes with integers in float64, which BLAS multiplies: exact, because `quantise` has ensured that no sum reaches
    2^31.
    """
    values = quantised_inputs(model.architecture, inputs).astype(np.float64)
    for layer in model.layers:
        if isinstance(layer, ReLUShape):
            values = np.floor(np.maximum(values + layer.half, 0.0) * 2.0**-layer.shift)
        elif isinstance(layer, PoolShape):
            values = layer.sums(values)
        else:
            shape, matrix, bias = layer.shape, layer.matrix.T.astype(np.float64), layer.bias.astype(np.float64)
            parts = [
                shape.gathered(shape.columns(values[start : start + shape.chunk]) @ matrix + bias)
                for start in range(0, len(values), shape.chunk)
            ]
            values = np.concatenate(parts)
    return values.argmax(axis=1)


def _of_blocks(on_stage: _OnStage, before: int, blocks: int, done: int, total: int) -> None:
    """Reports the votes of some parties on one block, as many blocks were finished before."""
    on_stage("votes", before * total + done, blocks * total)


def _order(**what: str | int) -> bytes:
    return json.dumps(what).encode()


def all_replies(
    exchange: Exchange, names: list[str], request: bytes, on_reply: Callable[[int, int], None]
) -> dict[str, bytes]:
    """Every party's reply to the same request. Raises EngineFailed, naming the first, where some did not answer."""
    replies = exchange(dict.fromkeys(names, request), on_reply)
    silent = [name for name, reply in replies.items() if reply is None]
    if silent:
        raise EngineFailed(f"{len(silent)} of {len(names)} parties did not answer, party {silent[0]} first; run again")
    return {name: reply for name, reply in replies.items() if reply is not None}


def _write_inputs(folder: Path, dataset: Dataset, shards: list[list[_Shard]], pool: str) -> None:
    """Writes what the workers read: once, named by content, to be memory-mapped and never sent in messages."""
    flat = [shard for of_party in shards for shard in of_party]
    ends = np.cumsum([len(shard) for shard in flat])
    bounds = np.stack([ends - [len(shard) for shard in flat], ends], axis=1).reshape(len(shards), -1, 2)
    table = io.BytesIO()
    np.savez(table, records=np.concatenate(flat), bounds=bounds)
    for name, array in (
        ("private_inputs", dataset.private_inputs),
        ("private_labels", dataset.private_labels),
        (pool, dataset.public_inputs),
    ):
        present = cached_array(folder / f"{name}.npy", mapped=True)
        if present is None or present.shape != array.shape or present.dtype != array.dtype:
            write_atomically(folder / f"{name}.npy", array_parts(array))
    write_atomically(folder / "shards.npz", table.getvalue())
