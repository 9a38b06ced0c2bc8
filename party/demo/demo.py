"""The demo: a coordinator and four hospitals as real processes on this machine, from nothing to a verified release.

It calls the programs as people would, one after the other, and writes every command down. Nothing leaves the machine:
all processes talk over loopback, with mutual TLS.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from party.demo.demo_data import DRAFTS, DemoData, demo_data
from party.demo.figures import DEMO_PAGE, demo_page, figures_of
from protocols.errors import EngineFailed, InvalidInput, Refused
from protocols.installing import install
from protocols.refusals.code import Code
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import LEVELS, Clear, GuardedLevel, TwoServer
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from runtime.address import free_port
from runtime.files import alone, write_atomically

Say = Callable[[str], None]
_STEP_S, _LOOK_S = 600.0, 0.5


# Stands for the key of a seat whose hospital has none yet: the generator of P-256, whose private half is 1.
UNFILLED_KEY = "036b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"


@dataclass(frozen=True)
class _Kind:
    """How the demo runs with one kind of votes. given: the file of what is asked, for hospitals; planned: whether the
    operator's command makes it; trained: whether hospitals train; lifetime: of the cap, over the study's epsilon."""

    given: str
    planned: bool
    trained: bool
    approves: str
    student: str
    lifetime: float


_KINDS: dict[type[Votes], _Kind] = {
    TeacherVotes: _Kind(
        given="pool.npy",
        planned=False,
        trained=True,
        approves=" and trains teachers",
        student="random_forest",
        # A lifetime cap adds studies up in Renyi DP, in which queries that are composed exactly cost a little more.
        lifetime=1.25,
    ),
    UnitSums: _Kind(
        given="queries.npz",
        planned=True,
        trained=False,
        approves=", which counts its records' votes",
        student="scores",
        lifetime=1.0,
    ),
}


class LocalConsortium:
    """A coordinator and four hospitals on this machine: their folder, their processes, and the demo's steps."""

    def __init__(self, folder: Path, data: DemoData, study: DeployedStudy, say: Say) -> None:
        self.folder, self.data, self.study, self.say = folder, data, study, say
        self.guardian_address, self.guardian_fingerprint = "", ""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # What each hospital types of the guardian, if there is one.
        self.typed: list[str] = []

    def add_guardian(self) -> None:
        """Creates a guardian's keys, which the study then names."""
        self._step("Another organisation creates a guardian's keys; the study names them.")
        self.guardian_address = f"127.0.0.1:{free_port()}"
        made = json.loads(
            self.guardian(
                "init", "--name", "guardian", "--coordinator", "centre", "--listen", self.guardian_address,
                "--metrics-port", "0", "--json",
            )
        )  # fmt: skip
        self.guardian_fingerprint = made["fingerprint"]
        terms = TwoServer(
            units=self.study.confidentiality.units or 64,
            abstention=False,
            guardian="guardian",
            sealing_key=made["sealing_key"],
            signing_key=made["signing_key"],
            seat_keys=(UNFILLED_KEY,) * len(self.study.roster),
        )
        self.typed = ["--guardian-fingerprint", made["keys_fingerprint"]]
        self.study = replace(self.study, confidentiality=terms)

    def set_up(self) -> None:
        """Sets up the consortium and the study; every hospital joins and approves, and trains teachers if they vote."""
        self._files()
        address, enrol = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self._step("The operator sets up the consortium and the study.")
        self.coordinator(
            "init", "--consortium", "demo", "--coordinator", "centre", "--address", address, "--enrol-address", enrol,
            "--listen", address, "--enrol-listen", enrol, "--metrics-port", "0",
        )  # fmt: skip
        if self.guardian_address:
            self.certify_guardian()
        self.start("centre")
        self._wait_until_it_listens(enrol)
        self._step("Each hospital creates a key and is approved by its fingerprint; the study names these keys.")
        for name in self.data.hospitals:
            self.coordinator("invite", name, "--out", str(self.folder / f"{name}.invitation.toml"))
        with ThreadPoolExecutor(max_workers=2) as pairs:
            list(pairs.map(self._join, self.data.hospitals))
        self._create()
        # With the keys of its seats, if it names any.
        created = self.folder / "centre" / "studies" / self.study.name / "study.toml"
        (self.folder / "study.toml").write_bytes(created.read_bytes())
        self.study = read_deployed(created)
        if self.guardian_address:
            self.approve_at_guardian()
        self._step(f"Each hospital approves the study{_KINDS[type(self.study.votes)].approves}.")
        with ThreadPoolExecutor(max_workers=2) as pairs:
            list(pairs.map(self._approve, self.data.hospitals))

    def _create(self) -> None:
        """Creates the study, of the draft that _files wrote, at the operator's."""
        pool, kind = ["--pool", str(self.folder / "pool.npy")], _KINDS[type(self.study.votes)]
        if kind.planned:
            self._plan(pool)
            pool += [self.study.votes.given, str(self.folder / kind.given)]
        self.coordinator("study", "create", str(self.folder / "study.toml"), *pool)

    def finish(self) -> dict[str, object]:
        """Labels the pool, trains the student, releases and verifies; returns the figures."""
        self._step("The operator has the pool labelled, trains a student, and signs the release.")
        self.coordinator("label", "demo", "--wait")
        self.coordinator("train", "demo", "--student", _KINDS[type(self.study.votes)].student)
        release = self.folder / "release"
        self.coordinator("release", "demo", "--out", str(release))
        self._step("Anybody can verify the release; each hospital also compares it with what was signed to it.")
        verified = self.call(
            "coordinator",
            None,
            "verify",
            str(release),
            "--authority",
            str(self.folder / "centre" / "authority.pem"),
            "--pool",
            str(self.folder / "pool.npy"),
        )
        with ThreadPoolExecutor(max_workers=2) as pairs:
            spent = dict(zip(self.data.hospitals, pairs.map(self._budget, self.data.hospitals), strict=True))
            list(pairs.map(lambda name: self.party(name, "verify", "--release", str(release)), self.data.hospitals))
        self.say(f"  {verified.strip().splitlines()[-1]}")
        figures = {**figures_of(self.folder, self.data, self.study, spent), "commands": str(self.folder / _COMMANDS)}
        write_atomically(self.folder / DEMO_PAGE, demo_page(figures, self.study))
        return figures

    def _plan(self, pool: list[str]) -> None:
        """Has the operator's command make the queries, and the noise and weights that the budgets afford."""
        study, queries = self.folder / "study.toml", self.folder / "queries.npz"
        study.rename(self.folder / "draft.toml")
        self.coordinator(
            "study", "queries", str(self.folder / "draft.toml"), *pool, "--out", str(queries), "--complete", str(study),
        )  # fmt: skip
        self.study = read_deployed(study)

    def approve_at_guardian(self) -> None:
        """The guardian approves the study, and serves."""
        self.guardian("approve", str(self.folder / "study.toml"), "--yes")
        self.start("guardian")

    def certify_guardian(self) -> None:
        """The operator certifies the guardian, and says where it is."""
        sent = self.folder / "sent"
        request = str(self.folder / "guardian" / "request.pem")
        fingerprint = self.guardian_fingerprint
        self.coordinator("guardian", "certify", request, "--fingerprint", fingerprint, "--out", str(sent))
        self.guardian("accept", str(sent / "guardian.pem"), str(sent / "authority.pem"))
        settings = self.folder / "centre" / "coordinator.toml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace('guardian = ""', f'guardian = "{self.guardian_address}"'), encoding="utf-8")

    def _join(self, name: str) -> None:
        seat = self.study.roster[self.study.seats[name]]
        lifetime = _KINDS[type(self.study.votes)].lifetime * seat.epsilon
        said = self.party(
            name, "init", str(self.folder / f"{name}.invitation.toml"), "--data", str(self.folder / f"{name}.csv"),
            "--loader", "csv", "--data-name", name, "--patient", "", "--teacher", "logistic_regression", "--unit",
            "record", "--epsilon", str(lifetime), "--delta", str(seat.delta), "--enrol",
        )  # fmt: skip
        # As a person would read them out from the hospital's own terminal.
        words = next(line.split()[-1] for line in said.splitlines() if line.startswith("in words "))
        self.coordinator("approve", name, "--fingerprint", words)
        self.party(name, "enrol")

    def _approve(self, name: str) -> None:
        kind, study = _KINDS[type(self.study.votes)], str(self.folder / "study.toml")
        given = [self.study.votes.given, str(self.folder / kind.given)]
        self.party(name, "approve", study, *given, *self.typed, "--yes")
        if kind.trained:
            self.party(name, "train", "demo")
        self.party(name, "doctor")

    def _files(self) -> None:
        lines = write_study(self.study).splitlines(keepends=True)
        # `study create` fills in the keys of the seats once the hospitals have certificates.
        text = "".join(line for line in lines if UNFILLED_KEY not in line)
        (self.folder / "study.toml").write_text(text, encoding="utf-8")
        np.save(self.folder / "pool.npy", self.data.pool)
        for name, rows in self.data.rows.items():
            with (self.folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([self.data.header, *rows])

    def _budget(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.party(name, "budget", "show", "--json"))
        return found

    def coordinator(self, *arguments: str) -> str:
        """Runs one command of the operator; returns its output."""
        return self.call("coordinator", self.folder / "centre", *arguments)

    def guardian(self, *arguments: str) -> str:
        """Runs one command of the guardian's administrator; returns its output."""
        return self.call("guardian", self.folder / "guardian", *arguments)

    def party(self, name: str, *arguments: str) -> str:
        """Runs one command of a hospital; returns its output."""
        return self.call("party", self.folder / name, *arguments)

    def call(self, program: str, home: Path | None, *arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
        """Shows and runs one command; returns its output. Raises EngineFailed unless it ends with an allowed exit
        code.
        """
        where = [] if home is None else ["--home", str(home)]
        shown = " ".join(_short(each, self.folder) for each in (*arguments, *where))
        self._note(f"conclave-{program} {shown}")
        with subprocess.Popen(
            [sys.executable, "-m", program, *arguments, *where],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(),
        ) as command:  # fmt: skip
            out, err = self._output(command, f"conclave-{program} {shown}")
        if command.returncode not in allowed:
            said = err.strip().splitlines()[-2:]
            ended = self._ended()
            raise EngineFailed(
                f"conclave-{program} {shown} ended with exit code {command.returncode}: {' '.join(said)[-500:]}"
                + (f"; {ended}" if ended else "")
            )
        return out

    def _output(self, command: subprocess.Popen[str], shown: str) -> tuple[str, str]:
        """What a command wrote once it ended. Raises EngineFailed if a server ends meanwhile, or after ten minutes."""
        until = time.monotonic() + _STEP_S
        try:
            while True:
                try:
                    return command.communicate(timeout=_LOOK_S)
                except subprocess.TimeoutExpired:
                    ended = self._ended()
                if ended:
                    raise EngineFailed(f"{ended}, so {shown} was ended")
                if time.monotonic() > until:
                    raise EngineFailed(f"{shown} was ended after {_STEP_S:g} s; is this machine very busy?")
        finally:
            if command.poll() is None:
                command.kill()

    def _wait_until_it_listens(self, address: str) -> None:
        """Returns once a port of the coordinator is open: a hospital's first command ends where it is not. Raises
        EngineFailed if a server ends meanwhile, or after ten minutes.
        """
        host, _, port = address.rpartition(":")
        until = time.monotonic() + _STEP_S
        while True:
            try:
                with socket.create_connection((host, int(port)), timeout=_LOOK_S):
                    return
            except OSError as error:
                if time.monotonic() > until or self._ended():
                    raise EngineFailed(f"{self._ended() or 'the coordinator'} does not listen at {address}") from error
            time.sleep(_LOOK_S / 10)

    def _ended(self) -> str:
        """The servers that ended by themselves, in words; "" if all run."""
        ended = {name: process.poll() for name, process in self.processes.items()}
        return ", ".join(
            f"{name} ended with exit code {code} (its log is {self.folder / name}.log)"
            for name, code in ended.items()
            if code is not None
        )

    def start(self, name: str) -> None:
        """Starts the coordinator ("centre"), the "guardian" or a hospital's node; its log is NAME.log."""
        servers = {"centre": ("coordinator", "serve"), "guardian": ("guardian", "serve")}
        program, *command = servers.get(name, ("party", "run"))
        home = self.folder / name
        self._note(f"conclave-{program} {' '.join(command)} --home {name} &")
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", program, *command, "--home", str(home)], stderr=log, env=_environment()
            )

    def _step(self, what: str) -> None:
        """Says what is done now, and heads the commands that follow with it."""
        self.say(what)
        self._note(f"\n# {what}")

    def _note(self, line: str) -> None:
        with (self.folder / _COMMANDS).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def stop(self) -> None:
        """Ends the processes that were started."""
        end_processes(self.processes.values())


def end_processes(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Asks them all to end, and kills those that have not after 20 seconds each."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _short(text: str, folder: Path) -> str:
    if not text:
        return "''"
    return os.path.relpath(text, folder) if text.startswith(str(folder)) else text


# Every command that the demo called, in the order of their start; a path in it is below the demo's folder.
_COMMANDS: Final = "commands.txt"
# Names a folder as a demo's, whose content the next demo may delete; it is locked while one runs.
DEMO_MARK: Final = ".conclave-demo"
# What the operator's programs and the teachers import; that of the node itself is there when this runs.
_NEEDED: Final = ("jinja2", "onnx", "onnxruntime", "safetensors", "sklearn", "skl2onnx", "skops")


def run_demo(
    folder: Path, *, data_dir: Path | None, say: Say, level: str = Clear.name, votes_by: str = "record"
) -> dict[str, object]:
    """Runs the whole demo in `folder`, which must be new, empty, or an earlier demo's, which is then replaced; returns
    the figures that it shows.

    level: clear, or two_server with a guardian; votes_by: "record" or "teacher". Raises InvalidInput for a folder of
    anything else, or where a package is missing, and EngineFailed when a step fails (what it said is in the message).
    """
    _check_installed()
    data = demo_data(data_dir)
    with _own_folder(folder, say):
        started = time.monotonic()
        study = DRAFTS[votes_by](data)
        consortium = LocalConsortium(folder.resolve(), data, study, say)
        try:
            if issubclass(LEVELS[level], GuardedLevel):
                consortium.add_guardian()
            consortium.set_up()
            for name in data.hospitals:
                consortium.start(name)
            return {**consortium.finish(), "seconds": round(time.monotonic() - started, 1)}
        finally:
            consortium.stop()


def _check_installed() -> None:
    """Raises InvalidInput with the command that installs all that the demo's programs need."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"the demo runs every program, for which these packages are missing: {', '.join(missing)}; "
            + install("party", "coordinator", "sklearn")
        )


@contextmanager
def _own_folder(folder: Path, say: Say) -> Iterator[None]:
    """Makes the demo's folder, empty but for its mark, and holds it until the end; an earlier demo in it is deleted."""
    mark = folder / DEMO_MARK
    if folder.exists() and any(folder.iterdir()) and not mark.is_file():
        raise InvalidInput(f"{folder} is not empty; allowed: a new folder, an empty one, or an earlier demo's")
    busy = Refused(Code.ALREADY_RUNNING, f"another demo runs in {folder}; allowed: one in each folder")
    with alone(mark, busy):
        earlier = [path for path in folder.iterdir() if path != mark]
        if earlier:
            say(f"An earlier demo in {folder} is deleted.")
        for path in earlier:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        yield
