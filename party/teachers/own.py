"""A hospital's own teachers: code that it installed itself and names in its settings; none comes from the network.

"package.module:attribute" names a torch module class, called with (input_shape, classes), or a scikit-learn-like
estimator (a class or function that makes one, or one to copy) with fit(inputs, labels) and predict(inputs). An
estimator with save(path), whose class has load(path), is stored with these; others with skops, which runs no code when
it reads. A whole kind of teacher is a plugin instead, with a name (docs/how-to/add-a-part.md).
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final  # a hospital's own objects have no types

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from party.teachers import TEACHERS, teacher_kind
from party.teachers.teacher import Shard, Teacher, TeacherKind, check_shards
from protocols.errors import DataCorrupt, InvalidInput
from protocols.reading import open_file
from runtime.distribution import lacking
from runtime.files import write_atomically

# Packages whose types an estimator may contain, besides those of its own package.
_HARMLESS: Final = ("sklearn", "numpy", "scipy", "builtins", "collections")
_FILE_BYTES: Final = 2**31


@dataclass(frozen=True, eq=False)
class OwnTeacher(Teacher):
    """A fitted estimator; None where the shard held one class only."""

    estimator: Any = field(repr=False)
    only: int = field(repr=False)

    def predict(self, inputs: Float32[ndarray, "queries ..."]) -> Int64[ndarray, " queries"]:
        """The class of each query. Raises InvalidInput unless the estimator returns one class id per query."""
        if self.estimator is None:
            return np.full(len(inputs), self.only, np.int64)
        given = np.asarray(self.estimator.predict(inputs))
        if given.shape != (len(inputs),) or given.dtype.kind not in "iu":
            raise InvalidInput(
                f"the hospital's own teacher gives {given.dtype} of shape {given.shape}; allowed: one id per query"
            )
        return given.astype(np.int64)

    def save(self, path: Path) -> None:
        """Writes the estimator with its own `save`, or with skops. Raises StorageFailed."""
        if self.estimator is None:
            write_atomically(path, f"only {self.only}\n")
        elif hasattr(self.estimator, "save"):
            self.estimator.save(path)
        else:
            import skops.io

            write_atomically(path, skops.io.dumps(self.estimator))


@dataclass(frozen=True)
class OwnKind(TeacherKind):
    """Trains copies of an estimator. make: returns an untrained one; kind: its class."""

    make: Callable[[], Any]

    def fit(self, shards: list[Shard], *, classes: int, seeds: list[int]) -> list[Teacher]:
        """Trains one teacher per shard, see TeacherKind.fit; an estimator with random_state gets the teacher's seed."""
        check_shards(shards, classes, seeds)
        return [self._fit_one(inputs, labels, seed) for (inputs, labels), seed in zip(shards, seeds, strict=True)]

    def _fit_one(
        self, inputs: Float32[ndarray, "records ..."], labels: Int64[ndarray, " records"], seed: int
    ) -> OwnTeacher:
        if len(np.unique(labels)) == 1:  # nothing to separate, and many estimators refuse to
            return OwnTeacher(None, int(labels[0]))
        estimator = self.make()
        if hasattr(estimator, "random_state"):
            estimator.random_state = seed % 2**32
        estimator.fit(inputs, labels)
        return OwnTeacher(estimator, -1)

    def load(self, path: Path) -> Teacher:
        """Reads what OwnTeacher.save wrote. Raises DataCorrupt, also when it holds types of other packages."""
        try:
            with open_file(path, most=_FILE_BYTES) as file:
                start = file.read(64)
            if start.startswith(b"only "):
                return OwnTeacher(None, int(start[5:]))
            kind = type(self.make())
            if hasattr(kind, "load"):
                return OwnTeacher(kind.load(path), -1)
            import skops.io

            own = {kind.__module__.partition(".")[0], *_HARMLESS}
            untrusted = skops.io.get_untrusted_types(file=path)
            foreign = [name for name in untrusted if name.partition(".")[0] not in own]
            if foreign:
                raise DataCorrupt(f"{path} holds a {foreign[0]}; allowed: types of {', '.join(sorted(own))}")
            return OwnTeacher(skops.io.load(path, trusted=untrusted), -1)
        except DataCorrupt:
            raise
        except Exception as error:  # a hospital's own `load` may raise anything
            raise DataCorrupt(f"{path} is not a readable teacher: {type(error).__name__}") from error


def kind_of(name: str) -> TeacherKind:
    """The kind of teacher that settings name, on the CPU. Raises InvalidInput for one that is not installed."""
    if name == "onnx":
        try:
            from party.teachers.onnx_file import onnx
        except ModuleNotFoundError as missing:
            raise lacking(missing, "teacher 'onnx'") from missing
        return onnx(device="cpu")
    return trained_kind(name, setting="teachers.kind", others=("onnx",))


def trained_kind(name: str, *, setting: str, others: tuple[str, ...]) -> TeacherKind:
    """A kind of teacher that is trained here, as in `kind_of`. setting: the setting that names it; others: further
    allowed names."""
    if name in TEACHERS:
        return teacher_kind(name, device="cpu")
    module, colon, attribute = name.partition(":")
    if not (colon and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])):
        raise InvalidInput(
            f"{setting} is {name[:80]!r}; allowed: {', '.join([*others, *TEACHERS])} or package.module:attribute"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{setting} is {name!r}, which cannot be imported: {error}") from error
    return _kind_from(name, found)


def _kind_from(name: str, found: Any) -> TeacherKind:
    torch = sys.modules.get("torch")  # whoever wrote a torch module imported it
    if torch is not None and isinstance(found, type) and issubclass(found, torch.nn.Module):
        from party.teachers.own_torch import OwnTorchKind

        return OwnTorchKind(found)
    if isinstance(found, TeacherKind):
        return found
    make: Callable[[], Any]
    if hasattr(found, "fit") and not isinstance(found, type):
        make = lambda: copy.deepcopy(found)  # noqa: E731
    else:
        make = found
    try:
        sample = make()
    except TypeError as error:
        raise InvalidInput(f"teachers.kind {name!r} cannot be made without arguments: {error}") from error
    if not (callable(getattr(sample, "fit", None)) and callable(getattr(sample, "predict", None))):
        raise InvalidInput(f"teachers.kind {name!r} gives a {type(sample).__name__}; allowed: with fit and predict")
    return OwnKind(make)
