"""Puts all that a role installs into one folder, with checksums and a script that installs it without a network.

    python deploy/bundle.py hospital bundle

Versions and hashes are those of requirements/. Run it on a machine with an index, of the same system, architecture and
version of Python as the one that installs.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from build import ROOT, build, commit_time

# The lock of each role; the last ones are for teachers and students of every kind.
ROLES = {
    "hospital": "party",
    "operator": "coordinator",
    "guardian": "guardian",
    "officer": "officer",
    "physician": "physician",
    "researcher": "simulator",
    "hospital-all": "party-all",
    "operator-torch": "coordinator-torch",
}
SUMS = "SHA256SUMS"
_INSTALL = """\
#!/bin/sh
# Installs the wheels of this folder into a new virtual environment, without a network: ./install.sh /opt/conclave
# Made for {python} on {system} {machine}; PYTHON names another interpreter than python3.
set -eu
target="${{1:?the folder of the new environment}}"
target="$(cd "$(dirname "$target")" && pwd)/$(basename "$target")"
cd "$(dirname "$0")"
python="${{PYTHON:-python3}}"
test ! -e "$target" || {{ echo "$target exists; allowed: a new folder" >&2; exit 3; }}
sha256sum --check --strict --quiet {sums} || {{ echo "files differ from {sums}; nothing was installed" >&2; exit 8; }}
found="$("$python" -c 'import platform as p; print(*p.python_version_tuple()[:2], p.system(), p.machine())')"
test "$found" = "{found}" || {{ echo "$python is $found; allowed: {found}" >&2; exit 3; }}
"$python" -m venv "$target"
"$target/bin/python" -m pip --isolated --disable-pip-version-check --quiet install --no-index --find-links wheels \
  --only-binary :all: --require-hashes --requirement requirements.txt
"$target/bin/python" -m pip --disable-pip-version-check check
echo "installed {wheel} in $target"
"""


def bundle(out: Path, *, lock: Path, wheel: Path, options: Sequence[str] = ()) -> str:
    """Makes the folder `out`; returns the SHA-256 of its list of checksums, in hexadecimal digits.

    lock: requirements with hashes; wheel: of the project; options: more of them for pip download. Raises
    FileExistsError if `out` exists, and CalledProcessError if pip cannot get one of the packages.
    """
    wheels = out / "wheels"
    wheels.mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
         "--require-hashes", "--requirement", lock, "--dest", wheels, *options],
        check=True,
    )  # fmt: skip
    (wheels / wheel.name).write_bytes(wheel.read_bytes())
    name, version, _ = wheel.name.split("-", 2)
    own = f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    (out / "requirements.txt").write_text(lock.read_text(encoding="utf-8") + own, encoding="utf-8")
    major, minor, _ = platform.python_version_tuple()
    text = _INSTALL.format(
        python=f"Python {major}.{minor}",
        system=platform.system(),
        machine=platform.machine(),
        found=f"{major} {minor} {platform.system()} {platform.machine()}",
        sums=SUMS,
        wheel=wheel.name,
    )
    (out / "install.sh").write_text(text, encoding="utf-8")
    (out / "install.sh").chmod(0o755)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files)
    (out / SUMS).write_text(sums, encoding="utf-8")
    return hashlib.sha256(sums.encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts all that a role installs into one folder.")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("out", type=Path, help="a new folder")
    given = parser.parse_args()
    lock = ROOT / "requirements" / f"{ROLES[given.role]}.txt"
    with tempfile.TemporaryDirectory() as place:
        _, wheel = build(Path(place), epoch=commit_time())
        digest = bundle(given.out, lock=lock, wheel=wheel)
    print(f"{given.out}: carry it over, and run: {given.out.name}/install.sh /opt/conclave")
    print(f"SHA-256 of {given.out / SUMS}, to be told by another way: {digest}")


if __name__ == "__main__":
    main()
