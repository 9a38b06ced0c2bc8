"""The folder of a command's results, and whether it may be continued in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any  # values of flags, as click gives them

from protocols.errors import InvalidInput
from protocols.reading import read_text

_CONFIG_BYTES = 2**24


def results_folder(flags: dict[str, Any], *, kind: str, config: str) -> Path:
    """The folder of the results, which holds `config` as KIND.toml with --resume, and is new or empty without.

    Raises InvalidInput when it holds something else.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    out = Path(flags["out"]) if flags["out"] else Path("runs") / f"{kind}-{stamp}"
    if flags["resume"]:
        if not flags["out"]:
            raise InvalidInput("--resume needs --out, the folder to continue in")
        if read_text(out / f"{kind}.toml", most=_CONFIG_BYTES) != config:
            raise InvalidInput(f"{out} was started with other settings; allowed: the same, or another --out")
    else:
        check_new(out)
    return out


def check_new(out: Path) -> None:
    """Raises InvalidInput unless the folder is new or empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidInput(f"--out {out} is not empty; allowed: a new folder, or --resume to continue in it")
