"""Trained teachers as models for private inference, and the votes that it gives, computed in fixed point.

Only the precision of numbers is approximate. The kinds that a node offers make their own layers (party/teachers/); the
cnn is added here. Its maximum over 2 x 2 windows, which private inference lacks, is built from ReLUs: for non-negative
values max(a, b) = ReLU(a - b) + b, twice.

The votes of all parties on all querying parties' records: heterogeneous teachers, answering as in private inference.

Teachers are trained by an engine and cached, with one cast per kind (`cast.py`). The cast holds each model's answers in
floating point; the votes are those of the same model in fixed point, which private inference gives bit for bit
(protocols/levels/hidden_queries/inference/model.py). They are cached too, in one file per party.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, Integer
from numpy import ndarray

from party.teachers import teacher_kind
from party.teachers.teacher import PRIVATE, Teacher
from protocols.array_files import array_bytes
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.levels.hidden_queries.inference.architecture import PoolShape, Precision, ReLUShape
from protocols.levels.hidden_queries.inference.model import (
    Convolution,
    Dense,
    Model,
    QuantisedModel,
    quantise,
    quantised_inputs,
)
from protocols.levels.hidden_queries.inference.plan import InferencePlan
from runtime.files import write_atomically
from simulations.ask.settings import AskSettings
from simulations.datasets.dataset import Dataset, content_digest
from simulations.engines import open_engine
from simulations.progress import Reporter
from simulations.source import source_digest
from simulations.stages.cached import cached_array
from simulations.stages.cast import Cast, OnStage, cast_votes
from simulations.stages.inputs import Host

# Table inputs are standardised; the querying party clips larger values; the bound is public.
TABLE_BOUND = 8.0
# Fraction bits of inputs and weights, and bits of sums: public, and a node's (levels/hidden_queries/dealing.py).
_BITS = (8, 10, 32)


def precision(*, images: bool) -> Precision:
    """The public fixed point of models, a node's."""
    return Precision(*_BITS, 1.0 if images else TABLE_BOUND)


def private_model(kind: str, teacher: Teacher, *, classes: int) -> Model:
    """A trained teacher as layers for private inference. Raises InvalidInput for another kind."""
    if kind not in PRIVATE:
        raise InvalidInput(f"model is {kind!r}; allowed, as private inference computes it: {', '.join(PRIVATE)}")
    return teacher.private_model(classes=classes)


def quantised_model(kind: str, teacher: Teacher, *, classes: int, images: bool) -> QuantisedModel:
    """The same model in fixed point. Raises InvalidInput if it could overflow; nothing has been shared then."""
    return quantise(private_model(kind, teacher, classes=classes), precision(images=images))


def check_turn(kind: str, dataset: Dataset, *, turn: int) -> None:
    """Raises InvalidInput, before anything is trained, unless a turn of that many queries fits one batch of private
    inference. The size follows from the public architecture, so a model without weights is enough."""
    record = (dataset.private_inputs[:1], dataset.private_labels[:1])
    trial = teacher_kind(kind, device="cpu").fit([record], classes=dataset.classes, seeds=[0])[0]
    model = private_model(kind, trial, classes=dataset.classes)
    layers: list[object] = []
    for layer in model.layers:
        if isinstance(layer, Dense):
            layer = Dense(0.0 * layer.weights, 0.0 * layer.bias)
        elif isinstance(layer, Convolution):
            layer = replace(layer, kernels=0.0 * layer.kernels, bias=0.0 * layer.bias)
        layers.append(layer)
    blank = quantise(replace(model, layers=tuple(layers)), precision(images=dataset.kind == "image"))
    try:
        InferencePlan.of(blank.architecture, turn)
    except InvalidInput as error:
        raise InvalidInput(f"--turn {turn} is too much for one batch of a {kind}: {error}") from None


def bounded(inputs: Float[ndarray, "queries ..."], *, images: bool) -> Float[ndarray, "queries ..."]:
    """A querying party's records within the public bound of inputs."""
    bound = 1.0 if images else TABLE_BOUND
    return np.clip(inputs, -bound, bound)


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


Shard = Int64[ndarray, " records"]


@dataclass(frozen=True, eq=False)
class Consortium:
    """Who is who: each party's kind of model and records, and the querying parties (positions, ascending)."""

    kinds: tuple[str, ...]
    shards: tuple[Shard, ...]
    queriers: Int64[ndarray, " queriers"]

    def of_kind(self, kind: str) -> list[int]:
        """The parties that have this kind of model."""
        return [party for party, other in enumerate(self.kinds) if other == kind]


@dataclass(frozen=True, eq=False)
class HeterogeneousVotes:
    """Votes on each querying party's records, in fixed point, and other outputs of the trained models.

    agreement: by kind, the share of votes that floating point gives too; own_on_test: the classes that each querying
    party's own model predicts, in floating point, on the test part before it asked anybody; test_accuracy: that of
    every party's model on the test part.
    """

    votes: Integer[ndarray, "parties queriers records"]
    agreement: dict[str, float]
    own_on_test: Int64[ndarray, "queriers tests"]
    test_accuracy: Float64[ndarray, " parties"]


def consortium(settings: AskSettings, dataset: Dataset, shards: list[Shard]) -> Consortium:
    """Assigns kinds of models and chooses the querying parties, both from the data seed, so publicly and independently
    of the data.

    Both come from one shuffled roster, so querying parties have different kinds in turn.
    """
    models = settings.models or tuple(
        kind for kind in PRIVATE if dataset.kind == "image" or not teacher_kind(kind).needs_images
    )
    order = simulation_rng(settings.data_seed, "consortium").permutation(len(shards))
    kinds = [""] * len(shards)
    for place, party in enumerate(order.tolist()):
        kinds[party] = models[place % len(models)]
    return Consortium(tuple(kinds), tuple(shards), np.sort(order[: settings.queriers]))


def heterogeneous_votes(
    settings: AskSettings, dataset: Dataset, who: Consortium, *, host: Host, reporter: Reporter
) -> HeterogeneousVotes:
    """Trains what is not cached, and casts every party's votes. Raises InvalidInput for a model that overflows."""
    images = dataset.kind == "image"
    asked = bounded(dataset.public_inputs, images=images)
    votes = np.empty((len(who.kinds), len(asked)), dtype=np.int16)
    own = np.empty((len(who.queriers), len(dataset.test_labels)), dtype=np.int64)
    accuracy = np.empty(len(who.kinds))
    agreement = {}
    for kind in dict.fromkeys(who.kinds):
        parties = who.of_kind(kind)
        with reporter.stages() as on_stage:
            cast = cast_kind(
                dataset,
                [who.shards[party] for party in parties],
                np.concatenate([asked, dataset.test_inputs]),
                kind=kind,
                seed=settings.data_seed,
                host=host,
                on_stage=lambda stage, done, total, kind=kind: on_stage(f"{kind}: {stage}", done, total),  # type: ignore[misc]  # a closure over the loop's variable
            )
            reporter.say(f"{kind}: {cast.trained} of {len(parties)} models trained now, the rest from the cache")
            title = f"{kind}: votes in fixed point"
            votes[parties] = _fixed_point(
                cast,
                kind,
                asked,
                dataset,
                on_party=lambda done, total, title=title: on_stage(title, done, total),  # type: ignore[misc]  # likewise
            )
        floats = cast.votes[:, 0]
        agreement[kind] = float((votes[parties] == floats[:, : len(asked)]).mean())
        on_test = floats[:, len(asked) :]
        accuracy[parties] = (on_test == dataset.test_labels).mean(axis=1)
        for place, querier in enumerate(who.queriers.tolist()):
            if who.kinds[querier] == kind:
                own[place] = on_test[parties.index(querier)]
    return HeterogeneousVotes(votes.reshape(len(votes), len(who.queriers), -1), agreement, own, accuracy)


def cast_kind(
    dataset: Dataset,
    shards: list[Shard],
    queries: Float32[ndarray, "queries ..."],
    *,
    kind: str,
    seed: int,
    host: Host,
    on_stage: OnStage,
) -> Cast:
    """Trains one model of a kind for each shard and predicts the queries, in floating point; cached.

    Only the records of these shards are written for the workers.
    """
    together = np.concatenate(shards)
    ends = np.cumsum([len(shard) for shard in shards])
    part = replace(
        dataset,
        private_inputs=dataset.private_inputs[together],
        private_labels=dataset.private_labels[together],
        public_inputs=queries,
        public_labels=np.zeros(len(queries), dtype=np.int64),
        private_sites=None,
        site_names=(),
        private_patients=None,
    )
    return cast_votes(
        part,
        [[np.arange(end - len(shard), end)] for end, shard in zip(ends.tolist(), shards, strict=True)],
        teacher=kind,
        seed=seed,
        # Opened only if something is not cached.
        engine=lambda: open_engine(host.engine, workers=host.workers),
        cache_dir=host.cache_dir,
        on_stage=on_stage,
    )


def _fixed_point(
    cast: Cast,
    kind: str,
    queries: Float32[ndarray, "queries ..."],
    dataset: Dataset,
    *,
    on_party: Callable[[int, int], None],
) -> Integer[ndarray, "parties queries"]:
    """The votes of the cast's teachers in fixed point; each party's are cached as soon as they are computed.

    Raises InvalidInput for a model that private inference would refuse.
    """
    images = dataset.kind == "image"
    source = source_digest("protocols.levels.hidden_queries.inference", "simulations.ask.votes")
    about = f"fixed point {kind} {cast.folder.name} {precision(images=images)} {source}"
    folder = cast.folder.parent.parent / "votes" / content_digest(queries, text=about)
    loader = teacher_kind(kind, device="cpu")
    rows = []
    for party in range(len(cast.votes)):
        path = folder / f"{party}.npy"
        row = _cached(path, len(queries))
        if row is None:
            teacher = loader.load(cast.folder / f"teacher-{party}-0")
            model = quantised_model(kind, teacher, classes=dataset.classes, images=images)
            row = fixed_point_votes(model, queries).astype(np.int16)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, array_bytes(row))
        rows.append(row)
        on_party(party + 1, len(cast.votes))
    return np.stack(rows)


def _cached(path: Path, queries: int) -> Integer[ndarray, " queries"] | None:
    """A party's cached votes; None if there are no readable ones, so that they are computed again."""
    row = cached_array(path)
    return row if row is not None and row.shape == (queries,) and row.dtype == np.int16 else None
