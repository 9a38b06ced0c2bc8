"""The demo: a coordinator and four hospitals as real processes on this machine, from nothing to a verified release."""

from __future__ import annotations

import time
from pathlib import Path

from party.demo.demo_data import HOSPITALS, demo_data
from party.demo.local_consortium import LocalConsortium, Say
from party.demo.studies import demo_study, record_draft
from protocols.errors import InvalidInput
from protocols.study.levels import LEVELS, Clear, GuardedLevel


def run_demo(
    folder: Path, *, data_dir: Path | None, say: Say, level: str = Clear.name, votes_by: str = "record"
) -> dict[str, object]:
    """Runs the whole demo in `folder`, which must be new or empty; returns the figures that it shows.

    level: clear, or two_server with a guardian; votes_by: "record" or "teacher". Raises InvalidInput for a folder that
    is not empty, EngineFailed when a step fails (its output is in the message).
    """
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty; allowed: a new folder, or an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    data = demo_data(data_dir)
    study = record_draft(data) if votes_by == "record" else demo_study(data)
    consortium = LocalConsortium(folder.resolve(), data, study, say)
    try:
        if issubclass(LEVELS[level], GuardedLevel):
            consortium.add_guardian()
        consortium.set_up()
        for name in HOSPITALS:
            consortium.start(name)
        return {**consortium.finish(), "seconds": round(time.monotonic() - started, 1)}
    finally:
        consortium.stop()
