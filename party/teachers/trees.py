"""Teachers made of decision trees, saved with skops: no code is run when a file is read.

The trees of a file are checked before scikit-learn makes them: its compiled code trusts their sizes.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final  # values of JSON

import numpy as np
import skops.io
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree._tree import NODE_DTYPE
from skops.io.exceptions import UntrustedTypesFoundException

from party.teachers.teacher import Shard, Teacher, TeacherKind, check_shards
from protocols.array_files import check_archive
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.reading import parse_json
from runtime.files import write_atomically
from runtime.models import check_cpu_only, check_queries

_SCHEMA = "schema.json"


def check_trees(path: Path) -> None:
    """Raises DataCorrupt unless each tree has one output, and as many nodes and values as it says.

    May raise LookupError, TypeError and ValueError for a schema of another form, and what zipfile raises.
    """
    with zipfile.ZipFile(path) as archive:
        for tree in _trees(parse_json(archive.read(_SCHEMA), where=str(path))):
            _, classes, outputs = tree["__reduce__"]["args"]["content"]
            state = tree["content"]
            if tree["__reduce__"]["args"]["__loader__"] != "TupleNode" or state["__loader__"] != "DictNode":
                raise DataCorrupt("a tree whose parts have other types than a tree's")
            found = state["content"]
            counts, nodes, values = (_array(archive, each) for each in (classes, found["nodes"], found["values"]))
            if counts.dtype != np.int64 or counts.shape != (1,) or not counts[0] >= 1 or _number(outputs) != 1:
                raise DataCorrupt("a tree of several outputs; allowed: one, with its number of classes")
            if nodes.dtype != NODE_DTYPE or nodes.ndim != 1 or _number(found["node_count"]) != len(nodes):
                raise DataCorrupt(f"a tree with nodes of shape {nodes.shape}; allowed: as many as it says, in a row")
            if values.dtype != np.float64 or values.shape != (len(nodes), 1, counts[0]):
                raise DataCorrupt(
                    f"a tree with values of shape {values.shape}; allowed: ({len(nodes)}, 1, {counts[0]})"
                )


def _trees(schema: Any) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("__loader__") == "TreeNode":
                yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _array(archive: zipfile.ZipFile, node: dict[str, Any]) -> ndarray:
    """An array that is stored in a file of its own."""
    known = [node[key] for key in ("__loader__", "__module__", "__class__", "type")]
    if known != ["NdArrayNode", "numpy", "ndarray", "numpy"]:
        raise DataCorrupt("a tree holds something else in place of an array")
    found: ndarray = np.load(io.BytesIO(archive.read(node["file"])), allow_pickle=False)
    return found


def _number(node: dict[str, Any]) -> int:
    if node["__loader__"] != "JsonNode":
        raise DataCorrupt("a tree holds something else in place of a number")
    return int(node["content"])


TEACHER_TREES: Final = 100
TEACHER_ROUNDS: Final = 30
_SMALLEST_LEAF: Final = 5
# What a file may hold beyond skops' own list of harmless types; everything else is refused.
# When they predict, both kinds index arrays without checking bounds, so `load` checks their nodes.
_TRUSTED: Final = ("sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor", "sklearn.tree._tree.Tree")

# For each node of a tree: its left and its right child, the feature it splits on, whether it is a leaf.
Nodes = tuple[Int64[ndarray, " nodes"], Int64[ndarray, " nodes"], Int64[ndarray, " nodes"], Bool[ndarray, " nodes"]]
_Model = Any  # a fitted scikit-learn classifier: scikit-learn has no types
_FILE_BYTES: Final = 2**31


@dataclass(frozen=True, eq=False)
class TreeTeacher(Teacher):
    """A fitted scikit-learn classifier of rows; None where the shard held one class only."""

    kind: str
    model: _Model | None = field(repr=False)
    seen: Int64[ndarray, " seen"] = field(repr=False)
    input_shape: tuple[int, ...]

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput for queries of another shape or not finite."""
        check_queries(inputs, self.input_shape)
        if self.model is None or len(inputs) == 0:
            return np.full(len(inputs), self.seen[0], np.int64)
        return np.asarray(self.model.predict(inputs.reshape(len(inputs), -1)), np.int64)

    def save(self, path: Path) -> None:
        """Writes a skops file. Raises StorageFailed."""
        about = {"kind": self.kind, "seen": self.seen.tolist(), "input_shape": list(self.input_shape)}
        write_atomically(path, skops.io.dumps({"about": json.dumps(about), "model": self.model}))


@dataclass(frozen=True)
class TreeKind(TeacherKind):
    """Trains scikit-learn classifiers; `make(random_state)` returns an untrained one and
    `nodes_of(model)` the trees of a trained one."""

    name: str
    model: Any  # the scikit-learn class that `make` returns
    make: Callable[[int], _Model]
    nodes_of: Callable[[_Model], Iterator[Nodes]]

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit."""
        check_shards(shards, classes, seeds)
        return [self._fit_one(inputs, labels, seed) for (inputs, labels), seed in zip(shards, seeds, strict=True)]

    def _fit_one(
        self, inputs: Float32[ndarray, "records ..."], labels: Int64[ndarray, " records"], seed: int
    ) -> TreeTeacher:
        seen = np.unique(labels)
        model = None
        if len(seen) > 1:
            # scikit-learn takes 32 bits; a seed may be any non-negative integer.
            model = self.make(int(np.random.SeedSequence(seed).generate_state(1)[0]))
            model.fit(inputs.reshape(len(inputs), -1), labels)
        return TreeTeacher(self.name, model, seen, inputs.shape[1:])

    def load(self, path: Path) -> Teacher:
        """Reads what TreeTeacher.save wrote. Raises DataCorrupt, also when the file holds any other type."""
        try:
            check_archive(path, most=_FILE_BYTES)
            check_trees(path)
            content = skops.io.load(path, trusted=list(_TRUSTED))
            about = parse_json(content["about"], where=str(path))
            model, kind = content["model"], about["kind"]
            seen = np.array(about["seen"], np.int64)
            input_shape = tuple(int(length) for length in about["input_shape"])
        except (
            UntrustedTypesFoundException,
            zipfile.BadZipFile,
            zlib.error,
            ArithmeticError,
            AttributeError,
            DataCorrupt,
            DataUnavailable,
            EOFError,
            ImportError,
            LookupError,
            MemoryError,
            OSError,
            RuntimeError,
            SyntaxError,
            TypeError,
            ValueError,
        ) as failure:
            raise DataCorrupt(f"{path} is not a readable {self.name}: {failure}") from failure
        try:
            self._check(model, kind, seen, input_shape, where=str(path))
        except (AttributeError, LookupError, TypeError, ValueError) as failure:  # a model that lacks some of its parts
            raise DataCorrupt(f"{path} is not a readable {self.name}: {failure}") from failure
        return TreeTeacher(self.name, model, seen, input_shape)

    def _check(
        self,
        model: _Model | None,
        kind: object,
        seen: Int64[ndarray, " seen"],
        input_shape: tuple[int, ...],
        *,
        where: str,
    ) -> None:
        """Raises DataCorrupt for parts that do not fit each other."""
        if kind != self.name or not (model is None or isinstance(model, self.model)):
            raise DataCorrupt(f"{where} holds a teacher of kind {kind!r}, not {self.name!r}")
        if seen.ndim != 1 or not len(seen) or (model is None) != (len(seen) == 1):
            raise DataCorrupt(f"{where} does not list the classes that its teacher has seen")
        if model is not None and (
            not np.array_equal(model.classes_, seen) or model.n_features_in_ != np.prod(input_shape)
        ):
            raise DataCorrupt(f"{where}: its model and its classes or shape differ")
        if model is not None and not all(
            _in_bounds(*nodes, features=model.n_features_in_) for nodes in self.nodes_of(model)
        ):
            raise DataCorrupt(f"{where} holds a tree whose nodes point outside it")


def random_forest(*, device: str) -> TreeKind:
    """A random forest of TEACHER_TREES trees on flattened inputs."""
    check_cpu_only("random_forest", device)
    return TreeKind(
        "random_forest",
        RandomForestClassifier,
        lambda random_state: RandomForestClassifier(TEACHER_TREES, random_state=random_state, n_jobs=1),
        _forest_nodes,
    )


def hist_gradient_boosting(*, device: str) -> TreeKind:
    """Gradient boosting on histograms (TEACHER_ROUNDS rounds), for tables: slow on images."""
    check_cpu_only("hist_gradient_boosting", device)
    return TreeKind(
        "hist_gradient_boosting",
        HistGradientBoostingClassifier,
        lambda random_state: HistGradientBoostingClassifier(
            max_iter=TEACHER_ROUNDS,
            max_leaf_nodes=8,
            max_bins=63,
            min_samples_leaf=_SMALLEST_LEAF,
            early_stopping=False,
            random_state=random_state,
        ),
        _boosting_nodes,
    )


def _forest_nodes(model: _Model) -> Iterator[Nodes]:
    for tree in (estimator.tree_ for estimator in model.estimators_):
        # As scikit-learn tells a leaf: any other number that is negative would be followed.
        yield tree.children_left, tree.children_right, tree.feature, tree.children_left == -1


def _boosting_nodes(model: _Model) -> Iterator[Nodes]:
    for tree in (tree for round_ in model._predictors for tree in round_):
        nodes = tree.nodes
        if nodes["is_categorical"].any():  # a categorical split would index a bit set; these teachers have none
            raise DataCorrupt("a tree splits on a categorical feature; allowed: numeric features")
        children = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
        yield *children, nodes["feature_idx"].astype(np.int64), nodes["is_leaf"].astype(bool)


def _in_bounds(
    left: Int64[ndarray, " nodes"],
    right: Int64[ndarray, " nodes"],
    feature: Int64[ndarray, " nodes"],
    leaf: Bool[ndarray, " nodes"],
    *,
    features: int,
) -> bool:
    """Whether every inner node leads to later nodes, so that a walk ends, and splits on a feature that exists."""
    inner = ~leaf
    ends = np.stack([left[inner], right[inner]])
    own = np.flatnonzero(inner)
    columns = feature[inner]
    return bool(
        len(leaf)
        and (ends > own).all()
        and (ends < len(leaf)).all()
        and (columns >= 0).all()
        and (columns < features).all()
    )
