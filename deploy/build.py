"""Builds the wheel and the source distribution of the state that git holds, the same bytes wherever it is run.

    python deploy/build.py dist

What git does not hold is left out. Time stamps are SOURCE_DATE_EPOCH, or that of the commit; modes, owners and the
order of files do not depend on the machine. The version of setuptools does count: requirements/build.txt pins it.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What a distribution is made of.
_PACKAGES = ("conclave", "party", "coordinator", "guardian", "runtime", "protocols", "simulations")
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", *_PACKAGES)
_HOOK = "import sys, setuptools.build_meta as build; getattr(build, sys.argv[1])(sys.argv[2])"


def commit_time() -> int:
    """Seconds since 1970 of SOURCE_DATE_EPOCH, or of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return int(given)
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True)
    return int(shown.stdout)


def build(out: Path, *, epoch: int) -> tuple[Path, Path]:
    """Writes the source distribution, and the wheel that it gives, into `out`; returns both paths.

    epoch: seconds since 1970, the time stamp of everything in them.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        copy_sources(Path(place, "source"), epoch=epoch)
        made = _made("build_sdist", Path(place, "source"), epoch=epoch)
        sources = out / made.name
        sources.write_bytes(evened(made.read_bytes(), epoch=epoch))
        # Not by tarfile: safe extraction came with Python 3.11.4, and Debian 12 has 3.11.2.
        subprocess.run(["tar", "-xpzf", str(sources), "-C", place], check=True)
        made = _made("build_wheel", Path(place, sources.name.removesuffix(".tar.gz")), epoch=epoch)
        wheel = out / made.name
        wheel.write_bytes(made.read_bytes())
    return sources, wheel


def _made(hook: str, source: Path, *, epoch: int) -> Path:
    """The one file that a hook of setuptools makes of a folder."""
    made = source.with_name(hook)
    made.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _HOOK, hook, str(made)],
        cwd=source, env=environment, check=True, umask=0o022, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    (path,) = made.iterdir()
    return path


def copy_sources(folder: Path, *, epoch: int) -> None:
    """Copies the sources that git holds, as they are now, with one time stamp and one mode."""
    held = subprocess.run(["git", "ls-files", "-z", *_SOURCES], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, held.decode().split("\0")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
        path.chmod(0o644)
        os.utime(path, (epoch, epoch))


def evened(data: bytes, *, epoch: int) -> bytes:
    """A .tar.gz with its files sorted, owned by nobody in particular, and of one time."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            kept = tarfile.TarInfo(member.name)
            kept.size, kept.type, kept.mtime = member.size, member.type, epoch
            kept.mode = 0o755 if member.isdir() else 0o644
            new.addfile(kept, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


if __name__ == "__main__":
    for each in build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"), epoch=commit_time()):
        print(each)
