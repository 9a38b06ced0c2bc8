"""A distribution that is installed beside Conclave, as a folder to put on sys.path: a module and its entry points."""

import copy
import tomllib
from pathlib import Path
from typing import TypeVar

from protocols.plugins import Parts, _registered
from tests.harness.pages import ROOT, blocks

T = TypeVar("T")
PAGE = ROOT / "docs" / "how-to" / "add-a-part.md"


def install(folder: Path, *, name: str, group: str, entries: dict[str, str], source: str | None = None) -> Path:
    """Writes the distribution `name`; entries: of the group, by name; source: of the module `name`, None for none."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    if source is not None:
        (folder / f"{name}.py").write_text(source)
    return folder


def example(start: str) -> str:
    """The Python block of the page on adding parts whose docstring begins so."""
    (source,) = [one.text for one in blocks(PAGE) if one.language == "python" and one.text.startswith(f'"""{start}')]
    return source


def install_gumbel(folder: Path) -> Path:
    """The page's Gumbel noisy-max, registered as the page says."""
    (project,) = [one.text for one in blocks(PAGE) if one.text.startswith("[project]")]
    ((group, entries),) = tomllib.loads(project)["project"]["entry-points"].items()
    return install(folder, name="gumbel_noisy_max", group=group, entries=entries, source=example("Gumbel noisy-max"))


def refreshed(parts: Parts[T]) -> Parts[T]:
    """The same table, which has not looked yet at what is installed."""
    _registered.cache_clear()
    table = copy.copy(parts)
    for found in ("_plugins", "_loaded"):
        table.__dict__.pop(found, None)
    return table
