"""A name of the code that makes something, for caches: another version makes it anew."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path


@cache
def source_digest(part: Callable[..., object], *modules: str) -> str:
    """The hash of the file in which a part lies (a plugin's, it may be), of modules and of whole packages."""
    files = set()
    for module in (part.__module__, *modules):
        file = sys.modules[module].__file__
        assert file is not None  # source code, not a built-in module
        path = Path(file)
        files |= set(path.parent.glob("*.py")) if path.name == "__init__.py" else {path}
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
