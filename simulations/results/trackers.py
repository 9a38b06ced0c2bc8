"""Figures of runs in MLflow or TensorBoard, where somebody asks for it: both are optional, and imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from types import ModuleType

from protocols.errors import InvalidInput, StorageFailed
from runtime.distribution import lacking
from simulations.results.text import MARK, not_for_release

_FORMS = "mlflow | mlflow:URI | tensorboard:FOLDER"
# Each kind's module, and the extra that installs it.
_MODULES = {"mlflow": "mlflow", "tensorboard": "tensorboardX"}


@dataclass(frozen=True)
class Tracked:
    """One run as a tracker shows it: its name, its settings, and its figures at each step (a seed)."""

    name: str
    settings: Mapping[str, object]
    figures: Sequence[tuple[int, Mapping[str, float]]]


@dataclass(frozen=True)
class Tracker:
    """Where runs are tracked. kind: mlflow or tensorboard; where: a URI ("" for the usual one) or a folder."""

    kind: str
    where: str
    module: ModuleType = field(repr=False)

    def track(self, runs: Sequence[Tracked]) -> None:
        """Writes these runs. Raises StorageFailed, which names the tracker; what was written before stays."""
        write = _to_mlflow if self.kind == "mlflow" else _to_tensorboard
        try:
            for run in runs:
                write(self, run)
        except Exception as error:  # a tracker's client and server may raise anything
            raise StorageFailed(f"cannot track {self.kind}:{self.where}: {str(error)[:300]}") from error


def find_tracker(text: str) -> Tracker:
    """The tracker that `--track` names, its package imported, before anything is run. Raises InvalidInput."""
    kind, _, where = text.partition(":")
    if kind not in _MODULES or (kind == "tensorboard" and not where):
        raise InvalidInput(f"--track is {text!r}; allowed: {_FORMS}")
    try:
        module = importlib.import_module(_MODULES[kind])
    except ModuleNotFoundError as missing:
        raise lacking(missing, f"--track {text}", kind) from missing
    return Tracker(kind, where, module)


def tracked_run(figures: Mapping[str, object], settings: Mapping[str, object], *, name: str) -> Tracked:
    """A run from its summary: figures of each seed at the seed's number, the others at the first seed's.

    A figure that is not for release is named so.
    """
    per_seed = figures["seeds"]
    assert isinstance(per_seed, list)  # as `summary` makes it
    first = int(per_seed[0]["seed"])
    rest = {key: value for key, value in figures.items() if key not in ("seeds", "groups", "not_for_release")}
    steps = [(int(seed["seed"]), {f"seed/{key}": value for key, value in _numbers(seed)}) for seed in per_seed]
    return Tracked(name, settings, [(first, dict(_numbers(rest))), *steps])


def _numbers(values: Mapping[str, object], at: str = "") -> list[tuple[str, float]]:
    """The finite numbers among the values, those of tables by dotted names."""
    found: list[tuple[str, float]] = []
    for key, value in values.items():
        name = f"{at}{key}"
        if isinstance(value, Mapping):
            found += _numbers(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            found.append((f"{MARK.replace(': ', '/')}{name}" if not_for_release(name) else name, float(value)))
    return found


def _to_mlflow(tracker: Tracker, run: Tracked) -> None:
    mlflow = tracker.module
    if tracker.where:
        mlflow.set_tracking_uri(tracker.where)
    with mlflow.start_run(run_name=run.name):
        mlflow.log_params(dict(run.settings))
        for step, figures in run.figures:
            mlflow.log_metrics(dict(figures), step=step)


def _to_tensorboard(tracker: Tracker, run: Tracked) -> None:
    writer = tracker.module.SummaryWriter(str(Path(tracker.where) / run.name))
    try:
        lines = [f"| {key} | {value} |" for key, value in run.settings.items()]
        writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))
        for step, figures in run.figures:
            for name, value in figures.items():
                writer.add_scalar(name, value, step)
    finally:
        writer.close()
