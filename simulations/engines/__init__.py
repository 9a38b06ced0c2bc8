"""The engines that run a simulation's parties, by name. A new engine is one file and one line of ENGINES.

All give the same bytes. USUAL is flower where RAY_ADDRESS names a cluster, and in_process elsewhere: on one machine,
starting Ray takes longer than most of what there is to do.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from protocols.errors import EngineFailed, InvalidInput
from protocols.installing import install

if TYPE_CHECKING:
    from simulations.engines.engine import Engine

# Names map to "module:Class", not to classes: neither Flower nor Ray is imported until it is asked for.
ENGINES: dict[str, str] = {
    "flower": "simulations.engines.flower:Flower",
    "in_process": "simulations.engines.in_process:InProcessEngine",
}
USUALLY = "usual"


def check_engine(name: str) -> None:
    """Raises InvalidInput, listing the known names, unless `name` is in ENGINES or USUAL; imports nothing."""
    if name not in (*ENGINES, USUALLY):
        raise InvalidInput(f"engine is {name!r}; allowed: {', '.join(sorted(ENGINES))}, {USUALLY}")


def open_engine(name: str, *, workers: int | None) -> Engine:
    """The engine of that name, with `workers` worker processes (None: as suits this machine); starts nothing.

    Raises InvalidInput for a name that check_engine refuses or fewer than one worker, EngineFailed when what the
    engine runs on is not installed.
    """
    check_engine(name)
    if name == USUALLY:
        name = "flower" if os.environ.get("RAY_ADDRESS") else "in_process"
    module, _, attribute = ENGINES[name].partition(":")
    try:
        engine_class = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise EngineFailed(f"engine {name!r} needs the package {error.name!r}; {install('sim')}") from error
    engine: Engine = engine_class(workers=workers)
    return engine
