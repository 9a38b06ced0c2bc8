"""A name of the code that makes something, for caches: another version makes it anew."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path


@cache
def source_digest(*modules: str) -> str:
    """The hash of the source of these modules, which are imported: of a package, of all files that lie in it."""
    digest = hashlib.sha256()
    for module in modules:
        file = sys.modules[module].__file__
        assert file is not None  # source code, not a built-in module
        path = Path(file)
        for each in sorted(path.parent.glob("*.py")) if path.name == "__init__.py" else [path]:
            digest.update(each.name.encode() + each.read_bytes())
    return digest.hexdigest()
