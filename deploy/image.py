"""Builds the images of a release, from a base that is pinned by its digest and from nothing else.

    python deploy/image.py pin                  asks the registry (by skopeo) for the base's digest, and writes it down
    python deploy/image.py build party          builds with podman, or what ENGINE names
    python deploy/image.py build coordinator --lock coordinator-torch

A tag can be moved to another image; a digest cannot. The digest is of the day it was asked: look at what changed, and
commit deploy/base.digest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("party", "coordinator")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def tag_of(root: Path) -> str:
    """The base that both Containerfiles name, with its tag. Raises ValueError if they differ."""
    texts = [(root / "deploy" / f"Containerfile.{kind}").read_text(encoding="utf-8") for kind in KINDS]
    named = {name for text in texts for name in re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)}
    if len(named) != 1:
        raise ValueError(f"the Containerfiles name the bases {sorted(named)}; allowed: one")
    return named.pop()


def checked(digest: str) -> str:
    """The digest of an image. Raises ValueError for anything else."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"the base's digest is {digest[:100]!r}; allowed: sha256: and 64 hexadecimal digits")
    return digest


def pin(root: Path) -> str:
    """Writes deploy/base.digest; returns the digest that the registry has for the base."""
    asked = ["skopeo", "inspect", "--format", "{{.Digest}}", f"docker://{tag_of(root)}"]
    digest = checked(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    (root / "deploy" / "base.digest").write_text(f"{digest}\n", encoding="utf-8")
    return digest


def build(root: Path, kind: str, *, lock: str | None) -> None:
    """Builds the image conclave-KIND. Raises ValueError, and starts no build, unless the base is pinned."""
    pinned = root / "deploy" / "base.digest"
    if not pinned.is_file():
        raise ValueError(f"{pinned} does not exist; allowed: a pinned base: run python deploy/image.py pin")
    digest = checked(pinned.read_text(encoding="utf-8").strip())
    command = [os.environ.get("ENGINE", "podman"), "build", "--file", f"deploy/Containerfile.{kind}"]
    command += ["--build-arg", f"BASE={tag_of(root)}@{digest}", "--tag", f"conclave-{kind}"]
    command += [] if lock is None else ["--build-arg", f"LOCK={lock}"]
    subprocess.run([*command, "."], check=True, cwd=root)


def main(arguments: list[str], *, root: Path = ROOT) -> int:
    """Runs the command line; returns the exit code: 3 where the base is not pinned, 7 where a tool failed."""
    parser = argparse.ArgumentParser(description="Builds the images of a release from a pinned base.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pin")
    building = commands.add_parser("build")
    building.add_argument("kind", choices=KINDS)
    building.add_argument("--lock", help="a file of requirements/, without its ending")
    given = parser.parse_args(arguments)
    try:
        if given.command == "pin":
            print(pin(root))
        else:
            build(root, given.kind, lock=given.lock)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
