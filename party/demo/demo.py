"""The demo: a coordinator and four hospitals as real processes on this machine, from nothing to a verified release."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from party.demo.demo_data import demo_data
from party.demo.local_consortium import LocalConsortium, Say
from party.demo.studies import DRAFTS
from protocols.errors import InvalidInput, Refused
from protocols.installing import install
from protocols.refusals.code import Code
from protocols.study.levels import LEVELS, Clear, GuardedLevel
from runtime.locks import alone

# Names a folder as a demo's, whose content the next demo may delete; it is locked while one runs.
MARK: Final = ".conclave-demo"
# What the operator's programs and the teachers import; that of the node itself is there when this runs.
_NEEDED: Final = ("jinja2", "matplotlib", "onnx", "onnxruntime", "safetensors", "sklearn", "skl2onnx", "skops")


def run_demo(
    folder: Path, *, data_dir: Path | None, say: Say, level: str = Clear.name, votes_by: str = "record"
) -> dict[str, object]:
    """Runs the whole demo in `folder`, which must be new, empty, or an earlier demo's, which is then replaced; returns
    the figures that it shows.

    level: clear, or two_server with a guardian; votes_by: "record" or "teacher". Raises InvalidInput for a folder of
    anything else, or where a package is missing, and EngineFailed when a step fails (what it said is in the message).
    """
    _check_installed()
    data = demo_data(data_dir)
    with _own_folder(folder, say):
        started = time.monotonic()
        study = DRAFTS[votes_by](data)
        consortium = LocalConsortium(folder.resolve(), data, study, say)
        try:
            if issubclass(LEVELS[level], GuardedLevel):
                consortium.add_guardian()
            consortium.set_up()
            for name in data.hospitals:
                consortium.start(name)
            return {**consortium.finish(), "seconds": round(time.monotonic() - started, 1)}
        finally:
            consortium.stop()


def _check_installed() -> None:
    """Raises InvalidInput with the command that installs all that the demo's programs need."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"the demo runs every program, for which these packages are missing: {', '.join(missing)}; "
            + install("party", "coordinator", "sklearn")
        )


@contextmanager
def _own_folder(folder: Path, say: Say) -> Iterator[None]:
    """Makes the demo's folder, empty but for its mark, and holds it until the end; an earlier demo in it is deleted."""
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.is_file():
        raise InvalidInput(f"{folder} is not empty; allowed: a new folder, an empty one, or an earlier demo's")
    busy = Refused(Code.ALREADY_RUNNING, f"another demo runs in {folder}; allowed: one in each folder")
    with alone(mark, busy):
        earlier = [path for path in folder.iterdir() if path != mark]
        if earlier:
            say(f"An earlier demo in {folder} is deleted.")
        for path in earlier:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        yield
