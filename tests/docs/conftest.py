"""Running the commands of a page."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from simulations.command import run_command
from tests.docs.pages import COMMANDS, ROOT, Block, RunPage, blocks, steps


@pytest.fixture(scope="session")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> RunPage:
    """Runs the blocks of a page, once, in a folder of its own, and returns that folder.

    Lines of conclave-simulate are run in this process, by the function that the command calls, as each start of
    Python with its packages takes seconds.
    """
    folders: dict[Path, Path] = {}
    cache = tmp_path_factory.mktemp("cache")

    def run(page: Path) -> Path:
        if page not in folders:
            folder = tmp_path_factory.mktemp(page.stem)
            terminate = signal.getsignal(signal.SIGTERM)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CONCLAVE_CACHE", str(cache))
                patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
                for name in ("CONCLAVE_DATA", "RAY_ADDRESS"):
                    patch.delenv(name, raising=False)
                patch.chdir(folder)
                try:
                    for block in blocks(page):
                        if block.language in COMMANDS and block.not_run is None:
                            _run_block(page, block)
                finally:
                    signal.signal(signal.SIGTERM, terminate)
            folders[page] = folder
        return folders[page]

    return run


def _run_block(page: Path, block: Block) -> None:
    where = f"{page.relative_to(ROOT)}, block of line {block.line}"
    for step in steps(block):
        if isinstance(step, list):
            assert run_command(step) == 0, f"{where}: conclave-simulate {shlex.join(step)}"
        else:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", step], capture_output=True, text=True)
            assert done.returncode == 0, f"{where}: {step}{done.stderr}"
