"""Running the commands of a page."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from pathlib import Path

import pytest

from coordinator.commands.group import run_command as run_coordinator
from guardian.commands import run_command as run_guardian
from party.commands.group import run_command as run_party
from runtime.address import free_port
from simulations.commands.group import run_command as run_simulate
from tests.harness.engine_here import running_here
from tests.harness.forking import Forked
from tests.harness.pages import BACKGROUND, COMMANDS, ROOT, SUBSTITUTED, Block, Call, RunPage, after, blocks, steps
from tests.harness.undrawn import drawing_nothing

_PORT = re.compile(r"(127\.0\.0\.1:)(\d{4,5})\b")
_START_S, _STOP_S = 300, 300
# A program that runs on, and where its log goes.
_SERVER = re.compile(r"conclave-(\w+) (.+) 2> (\S+) &\n")
# Runs as large as those of the pages are in tests/numerics and tests/system/simulations, or show nothing more.
_MOST = {("audit", "--trials"): 1000, ("plan", "--queries"): 300}
_PROGRAMS = {"simulate": run_simulate, "party": run_party, "coordinator": run_coordinator, "guardian": run_guardian}


@pytest.fixture(scope="session")
def run_page(tmp_path_factory: pytest.TempPathFactory, forking_address: str) -> Iterator[RunPage]:
    """Runs the blocks of a page, once, in a folder of its own, and returns that folder.

    Lines that only call a program are run in this process, by the function that the command calls, as each start of
    Python with its packages takes a second. So are a simulation's parties, as each worker would take several seconds,
    and no figure is drawn: a run with workers and figures, as people start it, is in test_plugin_runs.py. Audits that
    are to pass, plans and what is asked are smaller. A page that goes on `after` another is run in that one's folder.
    Commands that end in " &" run on, forked, until the session of tests ends. Ports of 127.0.0.1 are replaced by free
    ones.
    """
    folders: dict[Path, Path] = {}
    ports: dict[str, str] = {}
    background: list[subprocess.Popen[bytes]] = []
    cache = tmp_path_factory.mktemp("cache")

    def free(match: re.Match[str]) -> str:
        return match[1] + ports.setdefault(match[2], str(free_port()))

    def run(page: Path) -> Path:
        if page not in folders:
            before = after(page)
            folder = tmp_path_factory.mktemp(page.stem) if before is None else run(before)
            terminate = signal.getsignal(signal.SIGTERM)
            with pytest.MonkeyPatch.context() as patch, running_here(), drawing_nothing():
                patch.setenv("CONCLAVE_CACHE", str(cache))
                patch.setenv("PYTHONPATH", str(ROOT))  # the benchmarks, as if they were installed
                patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
                for name in ("CONCLAVE_DATA", "CONCLAVE_PARTY_HOME", "CONCLAVE_COORDINATOR_HOME", "RAY_ADDRESS"):
                    patch.delenv(name, raising=False)
                patch.chdir(folder)
                patch.setattr(Forked, "address", forking_address, raising=False)
                try:
                    for block in blocks(page):
                        if block.language in COMMANDS and block.not_run is None:
                            _run_block(page, block, free, background)
                finally:
                    signal.signal(signal.SIGTERM, terminate)
            folders[page] = folder
        return folders[page]

    yield run
    for process in background:
        process.terminate()
    for process in background:
        try:
            process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run_block(
    page: Path, block: Block, free: Callable[[re.Match[str]], str], background: list[subprocess.Popen[bytes]]
) -> None:
    where = f"{page.relative_to(ROOT)}, block of line {block.line}"
    for step in steps(block):
        if isinstance(step, Call):
            arguments = [SUBSTITUTED.sub(_printed, _PORT.sub(free, each)) for each in step.arguments]
            with ExitStack() as redirected:
                if step.into is not None:
                    sink = redirected.enter_context(open(step.into, step.mode, encoding="utf-8"))
                    redirected.enter_context(redirect_stdout(sink))
                code = _PROGRAMS[step.program](_smaller(arguments))
            assert code == step.code, f"{where}: conclave-{step.program} {shlex.join(arguments)}"
            continue
        script = _PORT.sub(free, step)
        if BACKGROUND.search(script):
            background.append(_started(script))
            continue
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, f"{where}: {step}{done.stdout[-2000:]}{done.stderr[-2000:]}"


def _printed(script: re.Match[str]) -> str:
    """What a script of the page prints, as a shell puts it in its place."""
    return subprocess.run(shlex.split(script[1]), capture_output=True, text=True, check=True).stdout.rstrip("\n")


def _smaller(arguments: list[str]) -> list[str]:
    """What is run in place of what takes seconds; all else as it is."""
    found = list(arguments)
    if "--break" not in found:
        for at, flag in enumerate(arguments[:-1]):
            if (most := _MOST.get((arguments[0], flag))) is not None:
                found[at + 1] = str(min(most, int(found[at + 1])))
    every = "--trials" in found and not {"--break", "--votes-by", "--findings-by", "--mechanism"} & {*found}
    return [*found, "--mechanism", "gnmax"] if arguments[0] == "audit" and every else found


def _started(script: str) -> subprocess.Popen[bytes]:
    """A program that runs on. One that serves has opened its ports when its log says so, the page's and all others; a
    party's node has begun when its log has a line.
    """
    server = _SERVER.fullmatch(script)
    assert server is not None, f"a program that runs on is one line, with its log: {script}"
    begun = b"\n" if server[1] == "party" else b'"event": "serving"'
    with open(server[3], "wb") as log:
        process = Forked([sys.executable, "-m", server[1], *shlex.split(server[2])], stderr=log)
    deadline = time.monotonic() + _START_S
    while begun not in Path(server[3]).read_bytes():
        assert process.poll() is None, f"{script} ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{script} did not begin in {_START_S} s"
        time.sleep(0.05)
    return process
