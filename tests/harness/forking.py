"""Programs that start as a fork of a process which has imported them: their packages take a second or two to import.

What starts so is a process of its own, with its own pid, files, signals, folder and environment. That the programs
start from nothing is tested where they are installed, in tests/system/coordinator, tests/system/party and
tests/system/deployment/test_distribution.py.
"""

import atexit
import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAMS: Final = ("party", "coordinator", "guardian", "tests")
_IMPORTED: Final = (
    "coordinator.commands.running", "coordinator.commands.study",
    "coordinator.labelling.training", "coordinator.serving", "guardian.serving", "party.commands.ask",
    "party.commands.homes", "party.commands.running", "party.commands.study", "party.connection.node",
    "party.voting.answering", "party.voting.teacher_child", "protocols.levels.hidden_queries.dealing",
    "protocols.levels.two_server.released", "scipy.stats", "sklearn.linear_model",
)  # fmt: skip


class Forked(subprocess.Popen[Any]):
    """A process as Popen starts it, but for programs of this repository, which are forked."""

    # Where the process that forks listens.
    address: ClassVar[str]
    _line: socket.socket | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any,
                       env: Any, startupinfo: Any, creationflags: Any, shell: Any, *rest: Any) -> None:  # fmt: skip
        words = [] if shell or isinstance(args, str | os.PathLike) else [os.fspath(each) for each in args]
        if not _is_program(words):
            super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *rest
            )
            return
        read, _, _, written, _, errors = pipes = rest[:6]
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(self.address)
        given = [theirs if theirs != -1 else own for own, theirs in enumerate((read, written, errors))]
        socket.send_fds(self._line, [b"\n"], given)
        request = {
            "words": words[1:],
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        self._line.sendall(json.dumps(request).encode() + b"\n")
        self._line.shutdown(socket.SHUT_WR)
        self.pid = int.from_bytes(self._line.recv(4), "big")
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._line is None:
            ended: tuple[int, int] = super()._try_wait(wait_flags)
            return ended
        try:
            said = self._line.recv(4, socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else 0)
        except BlockingIOError:
            return 0, 0
        self._line.close()
        return self.pid, int.from_bytes(said, "big")

    def _internal_poll(self, _deadstate: int | None = None, **named: Any) -> int | None:
        if self._line is None:
            code: int | None = super()._internal_poll(_deadstate, **named)
            return code
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = (0, 0) if self.returncode is not None else self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _is_program(words: list[str]) -> bool:
    """Whether it is `python -m` of a program of this repository, or one of its scripts."""
    if len(words) < 2 or words[0] != sys.executable:
        return False
    if words[1] == "-m":
        return words[2].partition(".")[0] in _PROGRAMS
    return words[1].endswith(".py") and Path(words[1]).is_relative_to(ROOT)


@contextmanager
def forking() -> Iterator[str]:
    """The process that forks runs; where it listens."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # A socket's path has 107 bytes at most, and the path of temporary files may be longer.
    place = None if len(tempfile.gettempdir()) < 80 else "/tmp"
    with tempfile.TemporaryDirectory(prefix="forking-", dir=place) as folder:
        address = f"{folder}/socket"
        with subprocess.Popen(
            [sys.executable, "-m", "tests.harness.forking", address],
            cwd=ROOT,
            env={**os.environ, **threads, "GRPC_VERBOSITY": "NONE"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdout is not None
            assert server.stdout.read(1) == b"."
            yield address
            server.communicate()


def _serve(address: str) -> list[str]:
    """Forks for each request. Returns in the children only: what they are to run. Ends when standard input does."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(128)
    os.write(1, b".")
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([0, listening, *running], [], [])[0]:
            if ready == 0:
                os._exit(0)
            if ready in running:
                pid, line = running.pop(ready)
                os.close(ready)
                _told(line, os.waitpid(pid, 0)[1])
                line.close()
                continue
            line, _ = listening.accept()
            _, given, _, _ = socket.recv_fds(line, 1, 3)
            data = b"".join(iter(lambda line=line: line.recv(2**16), b""))
            if not data.endswith(b"\n"):  # who asked was killed
                for each in (*given, line.detach()):
                    os.close(each)
                continue
            pid = os.fork()
            if pid == 0:
                for each in (listening, line, *(told for _, told in running.values())):
                    each.close()
                for own, theirs in enumerate(given):
                    os.dup2(theirs, own)
                for each in (*given, *running):
                    os.close(each)
                return _entered(json.loads(data))
            for each in given:
                os.close(each)
            _told(line, pid)
            running[os.pidfd_open(pid)] = pid, line


def _told(line: socket.socket, number: int) -> None:
    """Whoever asked may have ended."""
    try:
        line.sendall(number.to_bytes(4, "big"))
    except ConnectionError:
        return


def _entered(request: dict[str, Any]) -> list[str]:
    """The request's folder and environment are this process's own; what it is to run."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    words: list[str] = request["words"]
    return words


def _main() -> None:
    for name in _IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    # What programs start is forked, too.
    Forked.address, subprocess.Popen = sys.argv[1], Forked
    words = _serve(sys.argv[1])
    # That a module was imported before it is run as a program.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    try:
        _run(words)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        _exit(ended.code or 0)
    _exit(0)


def _run(words: list[str]) -> None:
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")


def _exit(code: int) -> None:
    """As the interpreter ends, but memory is left to the system: to free it one by one would copy it all."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _main()
