"""The demo's consortium for tests: servers in processes of their own, and people's commands in this one."""

import contextlib
import io
import signal
import threading
from pathlib import Path

from coordinator.commands.group import run_command as run_coordinator
from guardian.commands import run_command as run_guardian
from party.commands.group import run_command as run_party
from party.demo.demo import LocalConsortium
from protocols.errors import EngineFailed
from tests.harness.clocks import wait_until

_PROGRAMS = {"party": run_party, "coordinator": run_coordinator, "guardian": run_guardian}


class ConsortiumHere(LocalConsortium):
    """Commands are called as functions: the start of Python and its packages is most of the time of a short one."""

    # Hospitals join in two threads, and standard output belongs to all of them.
    one_at_a_time = threading.Lock()

    def call(self, program: str, home: Path | None, *arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
        where = [] if home is None else ["--home", str(home)]
        out, err = io.StringIO(), io.StringIO()
        with self.one_at_a_time, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _PROGRAMS[program]([*arguments, *where])
        if code not in allowed:
            raise EngineFailed(f"conclave-{program} {arguments[0]} ended with exit code {code}: {err.getvalue()}")
        return out.getvalue()

    def start(self, name: str) -> None:
        """Starts a server; the coordinator's ports are open when this returns: it logs a line then."""
        log = self.folder / f"{name}.log"
        lines = log.read_bytes().count(b"\n") if log.exists() else 0
        super().start(name)
        if name == "centre":
            wait_until(lambda: log.read_bytes().count(b"\n") > lines, timeout_s=600)

    def kill(self, *names: str) -> None:
        """Kills servers as by kill -9, and starts them again."""
        for name in names:
            self.processes[name].send_signal(signal.SIGKILL)
            self.processes[name].wait()
            self.start(name)

    def verified_release(self, *required: str) -> Path:
        """The release of "demo", as soon as all receipts are here, which anybody and every hospital verify."""
        release = self.folder / "release"
        told = ["release", "demo", "--out", str(release), *required]

        def released() -> bool:
            # Receipts come when the nodes have connected again.
            self.call("coordinator", self.folder / "centre", *told, allowed=(0, 5, 7, 8, 9))
            return release.exists()

        wait_until(released, timeout_s=120)
        authority, pool = self.folder / "centre" / "authority.pem", self.folder / "pool.npy"
        said = self.call(
            "coordinator", None, "verify", str(release), "--authority", str(authority), "--pool", str(pool)
        )
        assert "verified: " in said
        for name in self.data.hospitals:
            self.party(name, "verify", "--release", str(release))
        return release
