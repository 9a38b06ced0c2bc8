"""The trees of a skops file, checked before scikit-learn makes them: its compiled code trusts their sizes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # values of JSON

import numpy as np
from numpy import ndarray
from sklearn.tree._tree import NODE_DTYPE

from protocols.errors import DataCorrupt
from protocols.reading import parse_json

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
                raise DataCorrupt("a tree whose parts are not its own")
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
