"""A consortium in which `clinic` asks: all members are processes on loopback, set up by the real commands."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from coordinator.commands.group import run_command as run_coordinator
from guardian.commands import run_command as run_guardian
from party.commands.group import run_command as run_party
from party.demo.demo import end_processes
from party.home import PartyHome
from protocols.crypto.identity import certificate_from_pem, encoded_point
from protocols.mechanisms import GNMax
from protocols.study.deployed import DeployedStudy
from protocols.study.file import write_study
from protocols.study.levels import NO_POOL, HiddenQueries
from protocols.study.study import Seat
from protocols.study.terms import Feature, Terms
from protocols.study.votes import TeacherVotes

ASKER, CLASSES, START_S = "clinic", ("low", "middle", "high"), 60.0
# What so few parties need for labels that are mostly right; SIGMA is for up to 20 queries.
EPSILON, SIGMA = 45.0, 1.2
SERVERS = {"centre": ("coordinator", "serve"), "notary": ("guardian", "serve")}


class AskedProcesses:
    """A consortium in which `clinic` asks, set up by people's commands; `start` makes the processes."""

    def __init__(
        self,
        folder: Path,
        *,
        parties: int = 3,
        queries: int = 20,
        batch: int = 10,
        features: int = 10,
        teacher: str = "logistic_regression",
        deadline_s: float = 30.0,
        quorum: int = 2,
    ) -> None:
        self.folder, self.features = folder, features
        self.names = [f"h{number}" for number in range(parties)]
        self.hub, self.enrolling, self.guardian = (f"127.0.0.1:{_free_port()}" for _ in range(3))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.starts: Counter[str] = Counter()
        self._set_up_servers()
        for number, name in enumerate([*self.names, ASKER]):
            _table(folder / f"{name}.csv", rows=30 if name == ASKER else 400, seed=number, features=features)
        _table(folder / "new.csv", rows=queries, seed=99, features=features, labelled=False)
        _table(folder / "kept.csv", rows=500, seed=98, features=features)
        self.study_file = folder / "centre" / "studies" / "asked" / "study.toml"
        try:
            self.start("centre")
            for name in [*self.names, ASKER]:
                self._admit(name, teacher)
            self._agree(self._study(queries, batch, deadline_s, quorum))
        except BaseException:
            self.stop()
            raise

    def _set_up_servers(self) -> None:
        self.operator(
            "init", "--consortium", "benchmark", "--coordinator", "centre", "--address", self.hub, "--listen", self.hub,
            "--enrol-address", self.enrolling, "--enrol-listen", self.enrolling, "--metrics-port", "0",
        )  # fmt: skip
        made = self.notary(
            "init", "--name", "notary", "--coordinator", "centre", "--listen", self.guardian, "--metrics-port", "0",
            "--json",
        )  # fmt: skip
        self.keys = json.loads(made)
        sent, request = str(self.folder / "sent"), str(self.folder / "notary" / "request.pem")
        self.operator("guardian", "certify", request, "--fingerprint", self.keys["fingerprint"], "--out", sent)
        self.notary("accept", f"{sent}/notary.pem", f"{sent}/authority.pem")
        settings = self.folder / "centre" / "coordinator.toml"
        text = settings.read_text(encoding="utf-8")
        settings.write_text(text.replace('guardian = ""', f'guardian = "{self.guardian}"'), encoding="utf-8")

    def _agree(self, study: DeployedStudy) -> None:
        """The study is created; guardian and parties approve it, and the parties train."""
        draft = self.folder / "draft.toml"
        draft.write_text(write_study(study), encoding="utf-8")
        self.operator("study", "create", str(draft))
        self.notary("approve", str(self.study_file), "--yes")
        for name in self.names:
            typed = ("--guardian-fingerprint", self.keys["keys_fingerprint"])
            self.party(name, "approve", str(self.study_file), "--yes", *typed)
            self.party(name, "train", "asked")

    def _study(self, queries: int, batch: int, deadline_s: float, quorum: int) -> DeployedStudy:
        terms = Terms(
            task="benchmark",
            class_names=CLASSES,
            label="grade",
            input_shape=(self.features,),
            features=tuple(
                Feature(column=f"f{number}", kind="numeric", centre=0.0, scale=1.0) for number in range(self.features)
            ),
            pool_size=queries,
            pool_sha256=NO_POOL,
            deadline_s=deadline_s,
            coordinator="centre",
            ends="2999-12-31",
        )
        keys = {name: self.keys[name] for name in ("sealing_key", "signing_key")}
        return DeployedStudy(
            name="asked",
            classes=len(CLASSES),
            votes=TeacherVotes(
                mechanism=GNMax(sigma=SIGMA * max(1.0, queries / 20) ** 0.5),
                view="label",
                teachers=1,
                query_limit=queries,
                batch_limit=batch,
                answer_rate=1.0,
                stop="first-exhausted",
                participation_name="all",
            ),
            unit="record",
            accountant_name="label_only",
            quorum=quorum,
            confidentiality=HiddenQueries(
                units=64,
                guardian="notary",
                querier=ASKER,
                querier_key=self._key(ASKER),
                input_bound=8.0,
                seat_keys=tuple(map(self._key, self.names)),
                **keys,
            ),
            roster=tuple(Seat(party=name, epsilon=EPSILON, delta=1e-5, weight=1.0, rate=1.0) for name in self.names),
            terms=terms,
        )

    def _key(self, name: str) -> str:
        certificate = certificate_from_pem(PartyHome(self.folder / name).certificate.read_bytes())
        key = certificate.public_key()
        assert isinstance(key, EllipticCurvePublicKey)
        return encoded_point(key)

    def _admit(self, name: str, teacher: str) -> None:
        """From an invitation to a certificate."""
        invitation = str(self.folder / f"{name}.toml")
        self.operator("invite", name, "--out", invitation)
        said = self.party(
            name, "init", invitation, "--data", str(self.folder / f"{name}.csv"), "--loader", "csv", "--data-name",
            name, "--patient", "", "--teacher", teacher, "--unit", "record", "--epsilon", str(EPSILON), "--delta",
            "1e-5", "--settle",
        )  # fmt: skip
        self.party(name, "enrol", code=4)
        words = next(line.split()[-1] for line in said.splitlines() if line.startswith("in words "))
        self.operator("approve", name, "--fingerprint", words)
        self.party(name, "enrol")

    def operator(self, *arguments: str) -> str:
        """One command of the operator; what it prints."""
        return called(run_coordinator, [*arguments, "--home", str(self.folder / "centre")])

    def notary(self, *arguments: str) -> str:
        """One command of the guardian's administrator."""
        return called(run_guardian, [*arguments, "--home", str(self.folder / "notary")])

    def party(self, name: str, *arguments: str, code: int = 0) -> str:
        """One command of a hospital."""
        return called(run_party, [*arguments, "--home", str(self.folder / name)], code)

    def start(self, name: str) -> None:
        """Starts the operator ("centre"), the guardian ("notary") or a hospital, and waits until its log says so."""
        program, *words = SERVERS.get(name, ("party", "run"))
        log = self.folder / f"{name}.log"
        with log.open("ab") as file:
            command = [sys.executable, "-m", program, *words, "--home", str(self.folder / name)]
            self.processes[name] = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
        self.starts[name] += 1
        deadline, sign = time.monotonic() + START_S, '"serving"' if name in SERVERS else '"connected"'
        while log.read_text(encoding="utf-8").count(sign) < self.starts[name]:
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.02)

    def start_all(self) -> None:
        """Whoever does not run yet."""
        for name in ("centre", "notary", *self.names):
            if name not in self.processes:
                self.start(name)

    def stop(self) -> None:
        """Ends what was started, by its own process."""
        end_processes(self.processes.values())
        self.processes.clear()

    def words(self, *more: str, guardian: str = "") -> list[str]:
        """The arguments of `ask`, which asks about all records and trains a model."""
        files = {"--queries": "new.csv", "--out": "labels.csv", "--test": "kept.csv", "--home": ASKER}
        given = [word for flag, name in files.items() for word in (flag, str(self.folder / name))]
        guardian = guardian or self.guardian
        return ["ask", str(self.study_file), *given, "--guardian", guardian, "--model", "logistic_regression", *more]


def called(command: Callable[[list[str]], int], arguments: list[str], code: int = 0) -> str:
    """What a command prints. Raises SystemExit unless it ends with `code`."""
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        found = command(arguments)
    if found != code:
        raise SystemExit(f"{' '.join(arguments)} ended with {found}: {said.getvalue()[-2000:]}")
    return printed.getvalue()


def _table(path: Path, *, rows: int, seed: int, features: int, labelled: bool = True) -> None:
    """Records of three grades, of which the classes overlap a little."""
    rng = np.random.default_rng(seed)
    grades = rng.integers(0, len(CLASSES), rows)
    centres = np.random.default_rng(1).normal(0, 0.7, (len(CLASSES), features))
    values = np.clip(centres[grades] + rng.normal(0, 1, (rows, features)), -7, 7)
    header = [f"f{number}" for number in range(features)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "grade"] if labelled else header)
        for row, grade in zip(values.tolist(), grades.tolist(), strict=True):
            writer.writerow([*row, CLASSES[grade]] if labelled else row)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
