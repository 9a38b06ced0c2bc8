"""Files of tree teachers that would read memory outside their trees, or run code."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import skops.io
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from party.teachers.trees import TreeKind, TreeTeacher, hist_gradient_boosting, random_forest
from protocols.errors import DataCorrupt
from tests.harness.refusals import refuses


def trained(kind: TreeKind) -> TreeTeacher:
    source = load_digits()
    shard = (source.data[:60].astype(np.float32), source.target[:60].astype(np.int64))
    (teacher,) = kind.fit([shard], classes=10, seeds=[0])
    assert isinstance(teacher, TreeTeacher)
    # Its first trees: writing and reading all of them takes a second.
    for trees in ("estimators_", "_predictors"):
        if hasattr(teacher.model, trees):
            setattr(teacher.model, trees, getattr(teacher.model, trees)[:4])
    return teacher


def test_a_forest_whose_nodes_point_outside_is_corrupt(tmp_path: Path) -> None:
    kind, path = random_forest(device="cpu"), tmp_path / "teacher"
    teacher = trained(kind)
    tree = teacher.model.estimators_[3].tree_
    for column, value in (("children_left", 10**6), ("children_left", -2), ("children_right", 0), ("feature", 64)):
        teacher.save(path)
        kind.load(path)
        nodes = getattr(tree, column)
        true, nodes[0] = nodes[0], value
        teacher.save(path)
        with refuses(DataCorrupt, "outside"):
            kind.load(path)
        nodes[0] = true


def altered(path: Path, part: str, value: object) -> None:
    """Puts an array, or a number as text, in the place of a part of the first tree of a file."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    forest = schema["content"]["model"]["content"]["content"]
    tree = forest["estimators_"]["content"][0]["content"]["content"]["tree_"]
    arguments = tree["__reduce__"]["args"]["content"]
    node = {"classes": arguments[1], "outputs": arguments[2]}.get(part) or tree["content"]["content"][part]
    if isinstance(value, str):
        node["content"] = value
    else:
        with io.BytesIO() as written:
            np.save(written, value)
            members[node["file"]] = written.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | {"schema.json": json.dumps(schema).encode()}).items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("nodes", np.array(1)),
        ("values", np.zeros(3)),
        ("node_count", "1000000"),
        ("classes", np.array([3.0])),
        ("classes", np.array([10, 10])),
        ("outputs", "7"),
    ],
)
def test_a_tree_whose_sizes_contradict_each_other_is_corrupt(part: str, value: object, tmp_path: Path) -> None:
    """Compiled code would read beyond its arrays, some of it while the file is read."""
    kind, path = random_forest(device="cpu"), tmp_path / "teacher"
    teacher = trained(kind)
    teacher.model.estimators_ = teacher.model.estimators_[:1]
    teacher.save(path)
    kind.load(path)
    altered(path, part, value)
    with pytest.raises(DataCorrupt):
        kind.load(path)


def test_boosted_trees_whose_nodes_point_outside_are_corrupt(tmp_path: Path) -> None:
    kind, path = hist_gradient_boosting(device="cpu"), tmp_path / "teacher"
    teacher = trained(kind)
    nodes = teacher.model._predictors[2][1].nodes
    for column, value in (("left", 10**6), ("right", 0), ("feature_idx", 64), ("is_categorical", 1)):
        teacher.save(path)
        kind.load(path)
        true, nodes[column][0] = nodes[column][0], value
        teacher.save(path)
        with pytest.raises(DataCorrupt, match=r"outside|categorical"):
            kind.load(path)
        nodes[column][0] = true


@pytest.mark.parametrize("model", [os.getcwd, SGDClassifier(), {"a": 1}])
def test_a_file_that_holds_something_else_is_corrupt(model: object, tmp_path: Path) -> None:
    about = json.dumps({"kind": "random_forest", "seen": [0, 1], "input_shape": [64]})
    skops.io.dump({"about": about, "model": model}, tmp_path / "teacher")
    with pytest.raises(DataCorrupt):
        random_forest(device="cpu").load(tmp_path / "teacher")
