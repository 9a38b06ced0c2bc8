"""A digest of source code for cache keys: changed code is run again."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

# What decides the result of a run, beside a method's or a command's own code.
OF_RESULTS: Final = (
    "protocols", "coordinator.labelling", "coordinator.queries", "coordinator.students", "party.teachers",
    "party.voting", "runtime.torch_networks", "simulations.datasets", "simulations.pipeline", "simulations.planning",
    "simulations.setup", "simulations.stages",
)  # fmt: skip


@cache
def source_digest(*modules: str) -> str:
    """The hash of these modules' source, without importing them; a package counts with all its files and folders."""
    digest = hashlib.sha256()
    for module in modules:
        found = find_spec(module)
        assert found is not None  # whoever asks names modules that there are
        # A package's folder: one without an __init__.py may have several.
        for root in map(Path, found.submodule_search_locations or [str(found.origin)]):
            for each in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
                digest.update(str(each.relative_to(root)).encode() + each.read_bytes())
    return digest.hexdigest()
