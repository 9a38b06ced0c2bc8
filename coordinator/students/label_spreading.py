"""Label spreading on a graph of nearest neighbours (Zhou et al. 2004, "Learning with Local and Global Consistency").

Neighbours are near by public features of the pool: of images the gradients that record votes use and, where they are
coloured, the principal components of their pixels beside them, as gradients say nothing of colours; of table rows the
values themselves. The student answers with the mean of the nearest inputs of the pool. It holds these inputs, so it has
no files for a release.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from scipy.sparse import csr_array
from sklearn.neighbors import NearestNeighbors

from coordinator.queries.features import features_for, principal
from coordinator.students.student import Released, Student, StudentKind, is_image, normalised, seen_classes
from protocols.features.feature_map import FeatureMap
from runtime.label_spreading import NEIGHBOURS, adjacency, spread
from runtime.models import check_cpu_only, check_queries

_PRECISION: Final = 1e-6
_MOST_ROUNDS: Final = 200  # 0.9 ** 200 < 1e-9


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
    """found: the probabilities of each class for each input of the pool, in the order of `nearest`."""

    features: _Compared = field(repr=False)

    nearest: Any = field(repr=False)  # scikit-learn has no types
    found: Float64[ndarray, "inputs classes"] = field(repr=False)
    input_shape: tuple[int, ...]

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
        return self.found[places].mean(axis=1).astype(np.float32)


@dataclass(frozen=True)
class SpreadKind(StudentKind):
    """Labels flow along the edges of the graph, and each labelled input keeps a part of its own."""

    def learn(self, released: Released) -> Student:
        """Spreads the targets over all inputs. The seed changes nothing."""
        inputs, targets, classes = released.inputs, released.targets, released.classes
        graph, places = _graph_of(np.concatenate([inputs, released.unlabelled]))
        given = np.zeros((len(places), classes))
        given[places[: len(inputs)]] = normalised(targets)
        seen = np.isin(np.arange(classes), seen_classes(targets))

        found = given
        if graph.smooth is not None:
            found = spread(graph.smooth, given, rounds=_MOST_ROUNDS, precision=_PRECISION)
        total = found.sum(axis=1, keepdims=True)
        # What no label reaches may be any class that there is.
        chances = np.where(total > 0, found / np.where(total > 0, total, 1), seen / seen.sum())
        return SpreadStudent(graph.features, graph.nearest, chances, inputs.shape[1:])


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


def label_spreading(*, device: str) -> SpreadKind:
    """Label spreading, on images and on table rows, which should be standardised."""
    check_cpu_only("label_spreading", device)
    return SpreadKind()
