"""Label spreading on a graph of nearest neighbours (Zhou et al. 2004, "Learning with Local and Global Consistency").

Neighbours are near by public features of the pool: of images the gradients that record votes use and, where they are
coloured, the principal components of their pixels beside them, as gradients say nothing of colours; of table rows the
values themselves. The student answers with the mean of the nearest inputs of the pool. It holds these inputs, so it has
no files for a release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors

from coordinator.queries.features import features_for, principal
from coordinator.students.student import (
    Released,
    Student,
    StudentKind,
    is_image,
    normalised,
    seen_classes,
)
from protocols.features.feature_map import FeatureMap
from runtime.label_spreading import NEIGHBOURS, adjacency, spread
from runtime.models import check_cpu_only, check_queries

_PRECISION: Final = 1e-6
_MOST_ROUNDS: Final = 200  # 0.9 ** 200 < 1e-9
# Folds of the labels, and the fewest, by which probabilities are calibrated; the powers that are tried.
_FOLDS, _FEWEST = 3, 30
_POWERS: Final = np.geomspace(0.5, 16, 41)
_WRONG: Final = np.linspace(0.001, 0.601, 25)  # shares of labels that are another class


@dataclass(frozen=True, eq=False)
class _Compared:
    """By what inputs are compared: feature maps side by side, each divided by its scale."""

    parts: tuple[tuple[FeatureMap, float], ...]

    @classmethod
    def of(cls, pool: Float32[ndarray, "inputs ..."]) -> _Compared:
        """Of this pool: its values, if it has table rows or is the same input over and over."""
        raw = FeatureMap(pool.shape[1:])
        if not is_image(pool.shape[1:]) or bool((pool == pool[0]).all()):
            return cls(((raw, 1.0),))
        maps = [features_for(pool, "auto", seed=0)]
        if pool.ndim > 3:
            maps.append(principal(pool, raw, None))
        # Principal components: their mean is 0.
        return cls(tuple((each, float(np.sqrt((each(pool) ** 2).sum(axis=1).mean())) or 1.0) for each in maps))

    def __call__(self, inputs: Float32[ndarray, "inputs ..."]) -> Float32[ndarray, "inputs features"]:
        return np.hstack([each(inputs) / scale for each, scale in self.parts])


@dataclass(frozen=True, eq=False)
class _Graph:
    """A pool as rows of features; `nearest` finds a row's neighbours, `smooth` is their graph; None of one row."""

    features: _Compared
    rows: Float32[ndarray, "inputs features"]
    nearest: Any  # scikit-learn has no types
    smooth: csr_array | None

    @classmethod
    def of(cls, pool: Float32[ndarray, "inputs ..."]) -> _Graph:
        features = _Compared.of(pool)
        rows = features(pool)
        nearest = NearestNeighbors(n_jobs=1).fit(rows)
        return cls(features, rows, nearest, adjacency(nearest, records=len(rows)) if len(rows) > 1 else None)


_KEPT: dict[bytes, _Graph] = {}


@dataclass(frozen=True, eq=False)
class SpreadStudent(Student):
    """found: the probabilities of each class for each input of the pool, in the order of `nearest`; certainty: to what
    power what the nearest say is raised (`_certainty`)."""

    features: _Compared = field(repr=False)

    nearest: Any = field(repr=False)  # scikit-learn has no types
    found: Float64[ndarray, "inputs classes"] = field(repr=False)
    input_shape: tuple[int, ...]
    certainty: float

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        return np.asarray(self.predict_proba(inputs).argmax(axis=1), np.int64)

    def predict_proba(self, inputs: Float32[ndarray, "queries ..."]) -> Float32[ndarray, "queries classes"]:
        """The mean of the nearest inputs. Raises InvalidInput as predict does."""
        check_queries(inputs, self.input_shape)
        if not len(inputs):
            return np.zeros((0, self.found.shape[1]), np.float32)
        neighbours = min(NEIGHBOURS, len(self.found))
        places = self.nearest.kneighbors(self.features(inputs), neighbours, return_distance=False)
        return _raised(self.found[places].mean(axis=1), self.certainty).astype(np.float32)


@dataclass(frozen=True)
class SpreadKind(StudentKind):
    """Labels flow along the edges of the graph, and each labelled input keeps a part of its own."""

    def learn(self, released: Released) -> Student:
        """Spreads the targets over all inputs. The seed changes nothing."""
        inputs, targets, classes = released.inputs, released.targets, released.classes
        graph, places = _graph_of(np.concatenate([inputs, released.unlabelled]))
        answered = places[: len(inputs)]
        given = np.zeros((len(places), classes))
        given[answered] = normalised(targets)
        seen = np.isin(np.arange(classes), seen_classes(targets))

        def probabilities(known: Float64[ndarray, "inputs classes"]) -> Float64[ndarray, "inputs classes"]:
            found = known
            if graph.smooth is not None:
                found = spread(graph.smooth, known, rounds=_MOST_ROUNDS, precision=_PRECISION)
            total = found.sum(axis=1, keepdims=True)
            # What no label reaches may be any class that there is.
            return np.where(total > 0, found / np.where(total > 0, total, 1), seen / seen.sum())

        certainty = _certainty(probabilities, graph, given, answered)
        return SpreadStudent(graph.features, graph.nearest, probabilities(given), inputs.shape[1:], certainty)


def _graph_of(pool: Float32[ndarray, "inputs ..."]) -> tuple[_Graph, Int64[ndarray, " inputs"]]:
    """The graph of the pool, and the place there of each input.

    Its order is that of the inputs' hashes, so that students of other labels of the same pool share one graph; the last
    one is kept.
    """
    hashes = [sha256(each.tobytes()).digest() for each in pool]
    order = sorted(range(len(pool)), key=hashes.__getitem__)
    places = np.empty(len(pool), np.int64)
    places[order] = np.arange(len(pool))
    name = sha256(repr(pool.shape).encode() + b"".join(hashes[each] for each in order)).digest()
    graph = _KEPT.get(name)
    if graph is None:
        _KEPT.clear()
        graph = _KEPT[name] = _Graph.of(pool[order])
    return graph, places


def _raised(chances: Float64[ndarray, "inputs classes"], power: float) -> Float64[ndarray, "inputs classes"]:
    """The chances to this power, normalised: their order stays."""
    raised = (chances / chances.max(axis=1, keepdims=True)) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def _certainty(
    probabilities: Callable[[Float64[ndarray, "inputs classes"]], Float64[ndarray, "inputs classes"]],
    graph: _Graph,
    given: Float64[ndarray, "inputs classes"],
    answered: Int64[ndarray, " answered"],
) -> float:
    """The power to which what is said of an input is raised; 1 for fewer than _FEWEST labels.

    Labels that flow over many edges say too little: they were right more often than their probabilities. The power is
    the one with which it is likeliest that the released labels, each held out in one of _FOLDS folds, are as released,
    where a share of them, fitted beside it, is another class at random: released labels are noisy. Soft labels say
    themselves how sure they are.
    """
    if len(answered) < _FEWEST:
        return 1.0
    rows = graph.rows
    places = graph.nearest.kneighbors(rows[answered], min(NEIGHBOURS, len(rows)), return_distance=False)
    held = np.empty((len(answered), given.shape[1]))
    for fold in range(_FOLDS):
        out = np.arange(len(answered)) % _FOLDS == fold
        rest = given.copy()
        rest[answered[out]] = 0
        held[out] = probabilities(rest)[places[out]].mean(axis=1)
    own = given[answered]
    losses = {
        (power, wrong): -float((own * np.log((1 - wrong) * raised + wrong / given.shape[1])).sum())
        for power, raised in [(each, _raised(held, each)) for each in _POWERS.tolist()]
        for wrong in (_WRONG if (own.max(axis=1) == 1).all() else _WRONG[:1]).tolist()
    }
    return min(losses, key=lambda each: losses[each])[0]


def label_spreading(*, device: str) -> SpreadKind:
    """Label spreading, on images and on table rows, which should be standardised."""
    check_cpu_only("label_spreading", device)
    return SpreadKind()
