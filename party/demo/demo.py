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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any  # figures of several kinds

import numpy as np

from party.demo.demo_data import HOSPITALS, DemoData, demo_data
from protocols.errors import EngineFailed, InvalidInput
from protocols.mechanisms import ConfidentGNMax
from protocols.study.deployed import DeployedStudy
from protocols.study.file import write_study
from protocols.study.levels import LEVELS, Clear, GuardedLevel, TwoServer
from protocols.study.queries import pool_digest
from protocols.study.study import Seat
from protocols.study.terms import Terms

TEACHERS, EPSILON, DELTA = 12, 8.0, 1e-5
_SIGMA, _SIGMA_THRESHOLD, _THRESHOLD = 6.0, 10.0, 28.0
_STEP_S = 600.0

# One of the examples in `conclave-simulate plan --help`.
PLAN_OF_MANY = "conclave-simulate plan --optimise --parties 250 --classes 10 --budgets 2 --accuracy 0.85"
_SEEN = {
    Clear.name: ", or votes hidden from the coordinator: here it sees every vote, with --confidentiality "
    "two_server it sees none.",
    TwoServer.name: ". No server sees a vote, as long as coordinator and guardian do not collude; each adds noise of "
    "its own, so labels are noisier than with votes in the clear.",
}

Say = Callable[[str], None]


def run_demo(folder: Path, *, data_dir: Path | None, say: Say, level: str = Clear.name) -> dict[str, object]:
    """Runs the whole demo in `folder`, which must be new or empty; returns the figures that it shows.

    level: clear, or two_server with a guardian. Raises InvalidInput for a folder that is not empty, EngineFailed when a
    step fails (its output is in the message).
    """
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty; allowed: a new folder, or an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    data = demo_data(data_dir)
    consortium = LocalConsortium(folder.resolve(), data, demo_study(data), say)
    try:
        if issubclass(LEVELS[level], GuardedLevel):
            consortium.add_guardian()
        consortium.set_up()
        for name in HOSPITALS:
            consortium.start(name)
        return {**consortium.finish(), "seconds": round(time.monotonic() - started, 1)}
    finally:
        consortium.stop()


def demo_study(data: DemoData, *, unit: str = "record") -> DeployedStudy:
    """The study of the demo; its noise is chosen for 4 x TEACHERS votes and EPSILON per record."""
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
    return DeployedStudy(
        name="demo",
        classes=2,
        mechanism=ConfidentGNMax(sigma=_SIGMA, sigma_threshold=_SIGMA_THRESHOLD, threshold=_THRESHOLD),
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
        confidentiality=Clear(),
        roster=tuple(Seat(party=name, epsilon=EPSILON, delta=DELTA, weight=1.0, rate=1.0) for name in HOSPITALS),
        terms=terms,
    )


def labels_for_whole_hospitals(data: DemoData) -> int:
    """The number of labels that the same budgets would afford if all of a hospital's data were the unit."""
    try:
        budgets = demo_study(data, unit="party").budgets
    except InvalidInput:  # the budgets do not afford one query
        return 0
    return int(budgets.affordable(np.zeros(len(HOSPITALS), dtype=np.int64), limit=len(data.pool)).min())


def in_words(figures: Mapping[str, Any]) -> str:
    """The figures in words, and what they do not mean."""
    accuracy = figures["student_accuracy"]
    several = figures["epsilon_of_a_patient_at_all_hospitals"]
    everywhere = "no epsilon that can be given at that delta" if several is None else f"epsilon {several:.1f}"
    judged = "not measured: onnxruntime is not installed" if accuracy is None else f"{accuracy:.3f}"
    return (
        f"Data: {figures['data']}.\n"
        f"{figures['hospitals']} hospitals with {figures['teachers_per_hospital']} teachers each; records "
        + ", ".join(f"{name} {count}" for name, count in figures["records"].items())
        + f".\nGuaranteed: epsilon {figures['epsilon']:g} at delta {figures['delta']:g} for one {figures['unit']} "
        "(replaced by another), against anyone who sees the released labels and all that is made of them. A patient "
        f"with a record at every hospital has {everywhere}.\n"
        f"{figures['labels_released']} labels released of {figures['asked']} queries asked.\n"
        f"Student's accuracy on {figures['test_records']} public test records: {judged}; always guessing the "
        "commonest class: "
        f"{figures['commonest_class']:.3f}.\n"
        f"It took {figures['seconds']} s.\n\n"
        "What four hospitals cannot achieve: a guarantee for a whole hospital "
        f"({figures['labels_if_a_whole_hospital_were_the_unit']} labels at this budget), a small epsilon with many "
        f"labels (noise hides one vote among few){_SEEN[figures['confidentiality']]} "
        "Epsilon 8 per record is weak; it is chosen so that a demo with four hospitals has labels to show. With 250 "
        f"parties more labels cost a fraction: {PLAN_OF_MANY}"
    )


class LocalConsortium:
    """A coordinator and four hospitals on this machine: their folder, their processes, and the demo's steps."""

    def __init__(self, folder: Path, data: DemoData, study: DeployedStudy, say: Say) -> None:
        self.folder, self.data, self.study, self.say = folder, data, study, say
        self.guardian_address, self.guardian_fingerprint = "", ""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def add_guardian(self) -> None:
        """Creates a guardian's keys, which the study then names."""
        self.say("Another organisation creates a guardian's keys; the study names them.")
        self.guardian_address = f"127.0.0.1:{_free_port()}"
        made = json.loads(
            self.guardian(
                "init", "--name", "guardian", "--coordinator", "centre", "--listen", self.guardian_address,
                "--metrics-port", "0", "--json",
            )
        )  # fmt: skip
        self.guardian_fingerprint = made["fingerprint"]
        terms = TwoServer(
            units=64,
            abstention=False,
            guardian="guardian",
            sealing_key=made["sealing_key"],
            signing_key=made["signing_key"],
        )
        self.study = replace(self.study, confidentiality=terms)

    def set_up(self) -> None:
        """Sets up the consortium and the study; every hospital joins, approves and trains."""
        self._files()
        address, enrol = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
        self.say("The operator sets up the consortium and the study.")
        self.coordinator(
            "init", "--consortium", "demo", "--coordinator", "centre", "--address", address, "--enrol-address", enrol,
            "--listen", address, "--enrol-listen", enrol, "--metrics-port", "0",
        )  # fmt: skip
        if self.guardian_address:
            self._admit_guardian()
        self.coordinator("study", "create", str(self.folder / "study.toml"), "--pool", str(self.folder / "pool.npy"))
        self.start("centre")
        self.say("Each hospital creates a key, is approved by its fingerprint, approves the study and trains teachers.")
        for name in HOSPITALS:
            self.coordinator("invite", name, "--out", str(self.folder / f"{name}.invitation.toml"))
        with ThreadPoolExecutor(max_workers=2) as pairs:
            list(pairs.map(self._join, HOSPITALS))

    def finish(self) -> dict[str, object]:
        """Labels the pool, trains the student, releases and verifies; returns the figures."""
        self.say("The pool is labelled, a student trained, and the release signed and verified.")
        self.coordinator("label", "demo", "--wait")
        self.coordinator("train", "demo", "--student", "random_forest")
        release = self.folder / "release"
        self.coordinator("release", "demo", "--out", str(release))
        self.call("coordinator", None, "verify", str(release))
        spent = {name: self._budget(name) for name in HOSPITALS}
        for name in HOSPITALS:
            self.party(name, "audit", "verify", "--release", str(release))
        return self._figures(release, spent)

    def _admit_guardian(self) -> None:
        sent, study = self.folder / "sent", str(self.folder / "study.toml")
        request = str(self.folder / "guardian" / "request.pem")
        fingerprint = self.guardian_fingerprint
        self.coordinator("guardian", "certify", request, "--fingerprint", fingerprint, "--out", str(sent))
        self.guardian("accept", str(sent / "guardian.pem"), str(sent / "authority.pem"))
        self.guardian("approve", study, "--yes")
        settings = self.folder / "centre" / "coordinator.toml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace('guardian = ""', f'guardian = "{self.guardian_address}"'), encoding="utf-8")
        self.start("guardian")

    def _join(self, name: str) -> None:
        self.party(
            name, "init", str(self.folder / f"{name}.invitation.toml"), "--data", str(self.folder / f"{name}.csv"),
            "--loader", "csv", "--data-name", name, "--patient", "", "--teacher", "logistic_regression", "--unit",
            "record", "--epsilon", str(EPSILON), "--delta", str(DELTA), "--settle",
        )  # fmt: skip
        self.call("party", self.folder / name, "enrol", allowed=(0, 4))
        asked = json.loads(self.coordinator("requests", "--json"))
        fingerprint = next(each["fingerprint"] for each in asked if each["party"] == name)
        self.coordinator("approve", name, "--fingerprint", fingerprint)
        self.party(name, "enrol")
        self.party(name, "approve", str(self.folder / "study.toml"), "--pool", str(self.folder / "pool.npy"), "--yes")
        self.party(name, "train", "demo")
        self.party(name, "doctor")

    def _files(self) -> None:
        (self.folder / "study.toml").write_text(write_study(self.study), encoding="utf-8")
        np.save(self.folder / "pool.npy", self.data.pool)
        for name, rows in self.data.rows.items():
            with (self.folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([self.data.header, *rows])

    def _budget(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.party(name, "budget", "show", "--json"))
        return found

    def _figures(self, release: Path, spent: dict[str, dict[str, object]]) -> dict[str, object]:
        statement = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
        several = statement["several_hospitals"]["any"]
        return {
            "data": self.data.source,
            "hospitals": len(HOSPITALS),
            "teachers_per_hospital": TEACHERS,
            "records": {name: len(rows) for name, rows in self.data.rows.items()},
            "unit": self.study.unit,
            "view": self.study.view,
            "confidentiality": self.study.confidentiality.name,
            "epsilon": EPSILON,
            "delta": DELTA,
            "epsilon_of_a_patient_at_all_hospitals": several[-1]["guarantee"]["epsilon"],
            "asked": statement["queries"]["asked"],
            "labels_released": statement["queries"]["answered"],
            "test_records": len(self.data.test_labels),
            "student_accuracy": self._accuracy(release),
            "commonest_class": float(np.bincount(self.data.test_labels).max() / len(self.data.test_labels)),
            "labels_if_a_whole_hospital_were_the_unit": labels_for_whole_hospitals(self.data),
            "budgets": spent,
            "release": str(release),
        }

    def _accuracy(self, release: Path) -> float | None:
        """The accuracy of the released student, run as anyone could; None if onnxruntime is not installed."""
        try:
            import onnxruntime
        except ModuleNotFoundError:
            return None
        session = onnxruntime.InferenceSession(release / "student.onnx", providers=["CPUExecutionProvider"])
        (labels, *_) = session.run(None, {session.get_inputs()[0].name: self.data.test_inputs})
        predicted = labels.argmax(axis=1) if labels.ndim == 2 else labels
        return float((predicted == self.data.test_labels).mean())

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
                f"conclave-{program} {shown} ended with exit code {done.returncode}: {done.stderr.strip()[-2000:]}"
            )
        return done.stdout

    def start(self, name: str) -> None:
        """Starts the coordinator ("centre"), the "guardian" or a hospital's node; its log is NAME.log."""
        servers = {"centre": ("coordinator", "serve"), "guardian": ("guardian", "serve")}
        program, *command = servers.get(name, ("party", "run"))
        home = self.folder / name
        self.say(f"  $ conclave-{program} {' '.join(command)} --home {name} &")
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", program, *command, "--home", str(home)], stderr=log, env=_environment()
            )

    def stop(self) -> None:
        """Ends the processes that were started."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
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
