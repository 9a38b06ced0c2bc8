"""The demo: one coordinator and four hospitals as real processes on this machine, from nothing to a verified release.

It calls the two programs as people would, one after the other, and shows every command. Nothing leaves the machine:
all processes talk over loopback, with mutual TLS.
"""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from party.demo_data import HOSPITALS, DemoData, demo_data
from protocols.errors import EngineFailed, InvalidInput
from protocols.queries import pool_digest
from protocols.study import Seat, Study
from protocols.study_file import write_study
from protocols.terms import Terms

TEACHERS, EPSILON, DELTA = 12, 8.0, 1e-5
_SIGMA, _SIGMA_THRESHOLD, _THRESHOLD = 6.0, 10.0, 28.0
_STEP_S = 120.0

Say = Callable[[str], None]


def run_demo(folder: Path, *, data_dir: Path | None, say: Say) -> dict[str, object]:
    """Runs it all in `folder`, which must be new or empty; returns the figures that it shows.

    Raises InvalidInput for a folder that is not empty, EngineFailed when a step fails (its output is in the message).
    """
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty; allowed: a new folder, or an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    demo = _Demo(folder.resolve(), demo_data(data_dir), say)
    try:
        return {**demo.run(), "seconds": round(time.monotonic() - started, 1)}
    finally:
        demo.stop()


def demo_study(data: DemoData, *, unit: str = "record") -> Study:
    """The study of the demo: its noise is chosen for 4 x TEACHERS votes at EPSILON for a record."""
    terms = Terms(
        task=data.task,
        class_names=data.class_names,
        label=data.label,
        input_shape=data.pool.shape[1:],
        pool_size=len(data.pool),
        pool_sha256=pool_digest(data.pool),
        deadline_s=30.0,
        coordinator="centre",
        ends="2999-12-31",
        features=data.features,
    )
    return Study(
        name="demo",
        classes=2,
        mechanism_name="confident_gnmax",
        sigma=_SIGMA,
        sigma_threshold=_SIGMA_THRESHOLD,
        threshold=_THRESHOLD,
        unit=unit,
        view="label",
        accountant_name="label_only",
        teachers=TEACHERS,
        query_limit=len(data.pool),
        batch_limit=50,
        answer_rate=0.7,
        stop="first-exhausted",
        quorum=4,
        participation_name="all",
        roster=tuple(Seat(party=name, epsilon=EPSILON, delta=DELTA, weight=1.0, rate=1.0) for name in HOSPITALS),
        terms=terms,
    )


class _Demo:
    """The folder, the processes that run, and the steps."""

    def __init__(self, folder: Path, data: DemoData, say: Say) -> None:
        self.folder, self.data, self.say = folder, data, say
        self.study = demo_study(data)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.port = _free_port()

    def run(self) -> dict[str, object]:
        """All steps; returns the figures."""
        self._files()
        study, pool = str(self.folder / "study.toml"), str(self.folder / "pool.npy")
        address, enrol = f"127.0.0.1:{self.port}", f"127.0.0.1:{_free_port()}"
        self.say("The operator sets up the consortium and the study.")
        self._coordinator(
            "init", "--consortium", "demo", "--coordinator", "centre", "--address", address, "--enrol-address", enrol,
            "--listen", address, "--enrol-listen", enrol, "--metrics-port", "0",
        )  # fmt: skip
        self._coordinator("study", "create", study, "--pool", pool)
        self._start("coordinator", self.folder / "centre", "serve")
        self.say("Each hospital makes a key, is approved by its fingerprint, approves the study and trains teachers.")
        for name in HOSPITALS:
            self._coordinator("invite", name, "--out", str(self.folder / f"{name}.invitation.toml"))
        with ThreadPoolExecutor(max_workers=2) as pairs:
            list(pairs.map(self._join, HOSPITALS))
        for name in HOSPITALS:
            self._start("party", self.folder / name, "run")
        self.say("The pool is labelled, a student trained, and the release signed and verified.")
        self._coordinator("label", "demo", "--wait")
        self._coordinator("train", "demo", "--student", "random_forest")
        release = self.folder / "release"
        self._coordinator("release", "demo", "--out", str(release))
        self._call("coordinator", None, "verify", str(release))
        spent = {name: self._budget(name) for name in HOSPITALS}
        for name in HOSPITALS:
            self._party(name, "audit", "verify", "--release", str(release))
        return self._figures(release, spent)

    def _join(self, name: str) -> None:
        home = self.folder / name
        self._party(
            name, "init", str(self.folder / f"{name}.invitation.toml"), "--data", str(self.folder / f"{name}.csv"),
            "--loader", "csv", "--data-name", name, "--patient", "", "--teacher", "logistic_regression", "--unit",
            "record", "--epsilon", str(EPSILON), "--delta", str(DELTA), "--settle",
        )  # fmt: skip
        self._call("party", home, "enrol", allowed=(0, 4))
        asked = json.loads(self._coordinator("requests", "--json"))
        fingerprint = next(each["fingerprint"] for each in asked if each["party"] == name)
        self._coordinator("approve", name, "--fingerprint", fingerprint)
        self._party(name, "enrol")
        self._party(name, "approve", str(self.folder / "study.toml"), "--yes")
        self._party(name, "train", "demo")
        self._party(name, "doctor")

    def _files(self) -> None:
        (self.folder / "study.toml").write_text(write_study(self.study), encoding="utf-8")
        np.save(self.folder / "pool.npy", self.data.pool)
        for name, rows in self.data.rows.items():
            with (self.folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([self.data.header, *rows])

    def _budget(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self._party(name, "budget", "show", "--json"))
        return found

    def _figures(self, release: Path, spent: dict[str, dict[str, object]]) -> dict[str, object]:
        statement = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
        return {
            "data": self.data.source,
            "hospitals": len(HOSPITALS),
            "teachers_per_hospital": TEACHERS,
            "records": {name: len(rows) for name, rows in self.data.rows.items()},
            "unit": self.study.unit,
            "epsilon": EPSILON,
            "delta": DELTA,
            "statement": statement,
            "spent": spent,
            "student_accuracy": self._accuracy(release),
            "release": str(release),
        }

    def _accuracy(self, release: Path) -> float | None:
        """Of the released student, as anybody would run it; None where onnxruntime is not installed."""
        try:
            import onnxruntime
        except ModuleNotFoundError:
            return None
        session = onnxruntime.InferenceSession(release / "student.onnx", providers=["CPUExecutionProvider"])
        (labels, *_) = session.run(None, {session.get_inputs()[0].name: self.data.test_inputs})
        predicted = labels.argmax(axis=1) if labels.ndim == 2 else labels
        return float((predicted == self.data.test_labels).mean())

    def _coordinator(self, *arguments: str) -> str:
        return self._call("coordinator", self.folder / "centre", *arguments)

    def _party(self, name: str, *arguments: str) -> str:
        return self._call("party", self.folder / name, *arguments)

    def _call(self, program: str, home: Path | None, *arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
        """One command, shown first; its output. Raises EngineFailed unless it ends with an allowed code."""
        where = [] if home is None else ["--home", str(home)]
        shown = " ".join(_short(each, self.folder) for each in (*arguments, *where))
        self.say(f"  $ conclave-{program} {shown}")
        done = subprocess.run(
            [sys.executable, "-m", program, *arguments, *where],
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            env=_environment(),
        )
        if done.returncode not in allowed:
            raise EngineFailed(
                f"conclave-{program} {shown} ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
            )
        return done.stdout

    def _start(self, program: str, home: Path, command: str) -> None:
        self.say(f"  $ conclave-{program} {command} --home {_short(str(home), self.folder)} &")
        with (self.folder / f"{home.name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", program, command, "--home", str(home)], stderr=log, env=_environment()
                )
            )

    def stop(self) -> None:
        """Ends what was started, by its own process."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
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


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
