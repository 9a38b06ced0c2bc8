"""A guardian in a process of its own that is killed at every point of a conversation, and started again."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from party.demo.demo import UNFILLED_KEY
from party.demo.demo_data import HOSPITALS, demo_data, demo_study
from protocols.errors import ChannelClosed
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.noise_pool import NoiseLaw, noise_of
from protocols.noise import LatticeNoise
from protocols.study.levels import TwoServer
from runtime.address import free_port
from tests.harness.guardians import TwoOrganisations
from tests.harness.local_consortium import ConsortiumHere

pytestmark = pytest.mark.usefixtures("forked")
START_S, TIME_S = 300.0, 600.0


class Process:
    """`conclave-guardian serve` of a home, as people start it."""

    def __init__(self, world: TwoOrganisations) -> None:
        self.log = world.folder / "guardian.log"
        self.arguments = [sys.executable, "-m", "guardian", "serve", "--home", str(world.guardian.folder)]
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(self.arguments, stderr=log, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while self.log.read_text().count('"event": "serving"') < self.starts:
            assert self.running.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, "it did not start in time"
            time.sleep(0.02)

    def kill(self) -> None:
        self.running.send_signal(signal.SIGKILL)
        self.running.wait()

    def end(self) -> int:
        self.running.terminate()
        return self.running.wait(timeout=300)


@pytest.fixture
def world(tmp_path):
    made = TwoOrganisations(tmp_path, more={"pool": 6, "batch_limit": 1})
    yield made
    made.close()


@pytest.mark.slow
def test_a_guardian_that_is_killed_at_any_message_charges_once_and_never_draws_noise_again(world):
    process, kills, deadline = Process(world), 0, time.monotonic() + TIME_S
    killed_at: set[int] = set()
    at_coordinator: dict[bytes, bytes] = {}
    at_guardian: dict[bytes, bytes] = {}

    def drawn_once() -> None:
        for digest, seed in world.seeds(world.guardians_ledger()).items():
            assert at_guardian.setdefault(digest, seed) == seed, "noise was drawn again"

    def kill_once(number: int) -> None:
        nonlocal kills
        at_coordinator.update(world.seeds(world.folder / "coordinator.sqlite"))
        drawn_once()
        if number not in killed_at:
            killed_at.add(number)
            kills += 1
            process.kill()

    world.on_message = kill_once
    try:
        while (labelling := world.label()).stop.reason == "guardian_lost":
            assert time.monotonic() < deadline, "the study did not go on"
            drawn_once()
            process.start()
        assert process.end() == 0
    finally:
        process.kill()
    assert kills >= 8
    assert labelling.refusals == {}
    study, released = world.study, []
    with Ledger(world.guardians_ledger()) as guardians:
        list(guardians.log.entries())
        assert guardians.unsettled() == []
        assert labelling.spent.tolist() == [guardians.balance(seat.party).spent for seat in study.roster]
        for number, _ in enumerate(labelling.batches):
            charged, at_both = guardians.stored(number), world.ledger.stored(number)
            labels = np.frombuffer(at_both.payload, dtype="<i8")
            assert charged.digest == at_both.digest
            np.testing.assert_array_equal(np.frombuffer(charged.payload, dtype=np.bool_), labels >= 0)
            assert guardians.settled(number) == world.ledger.settled(number)
            released.append((at_both.digest, labels))
    for number, (digest, labels) in enumerate(released):
        expected = labels_of_seeds(world, number, at_coordinator[digest], at_guardian[digest])
        np.testing.assert_array_equal(labels, expected, err_msg=f"batch {number} has other noise than was noted")


def labels_of_seeds(world: TwoOrganisations, number: int, coordinators: bytes, guardians: bytes) -> np.ndarray:
    """The labels of a batch of one query, in the clear, with the noise that follows from what both servers noted."""
    study, units = world.study, world.study.lattice.units
    total = sum(noise_of((coordinators, guardians), NoiseLaw.of(study), queries=1))
    noise = LatticeNoise(units, lambda count, sigma: total.reshape(count))
    votes = world.votes(number)
    counts = np.stack([(votes == each).sum(axis=0) for each in range(study.classes)], axis=1).astype(float)
    return study.released(counts, noise, predictions=None)[0]


class GuardedConsortium(ConsortiumHere):
    """The demo's consortium with a guardian, all of them processes that people's commands set up."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        made = json.loads(
            self.call(
                "guardian", folder / "notary", "init", "--name", "notary", "--coordinator", "centre",
                "--listen", f"127.0.0.1:{port}", "--metrics-port", "0", "--json",
            )
        )  # fmt: skip
        terms = TwoServer(
            units=64,
            abstention=False,
            guardian="notary",
            sealing_key=made["sealing_key"],
            signing_key=made["signing_key"],
            seat_keys=(UNFILLED_KEY,) * len(HOSPITALS),
        )
        data = replace(whole := demo_data(None), pool=whole.pool[:40])
        study = replace(demo_study(data).voting(batch_limit=5), confidentiality=terms, quorum=3)
        super().__init__(folder, data, study, say=lambda line: None)
        self.fingerprint, self.guardian_address = made["fingerprint"], f"127.0.0.1:{port}"
        self.typed = ["--guardian-fingerprint", made["keys_fingerprint"]]

    say = staticmethod(lambda line: None)
    folder = Path()

    def start(self, name: str) -> None:
        if name != "notary":
            return super().start(name)
        with (self.folder / "notary.log").open("ab") as log:
            arguments = ["serve", "--home", str(self.folder / "notary")]
            self.processes[name] = subprocess.Popen([sys.executable, "-m", "guardian", *arguments], stderr=log)

    def approve_at_guardian(self) -> None:
        self.call("guardian", self.folder / "notary", "approve", str(self.folder / "study.toml"), "--yes")

    def certify_guardian(self) -> None:
        notary, sent = self.folder / "notary", self.folder / "sent"
        self.coordinator(
            "guardian", "certify", str(notary / "request.pem"), "--fingerprint", self.fingerprint, "--out", str(sent)
        )
        self.call("guardian", notary, "accept", str(sent / "notary.pem"), str(sent / "authority.pem"))
        settings = self.folder / "centre" / "coordinator.toml"
        settings.write_text(settings.read_text().replace('guardian = ""', f'guardian = "{self.guardian_address}"'))


@pytest.mark.slow
def test_without_its_guardian_a_labelling_asks_nobody_and_with_it_kills_of_anybody_lose_nothing(tmp_path):
    consortium, deadline = GuardedConsortium(tmp_path), time.monotonic() + TIME_S
    try:
        consortium.set_up()
        for name in HOSPITALS:
            consortium.start(name)
        consortium.coordinator("label", "demo")
        central = tmp_path / "centre" / "studies" / "demo" / "ledger.sqlite"

        def released() -> dict[int, bytes]:
            with sqlite3.connect(f"file:{central}?mode=ro", uri=True, timeout=300) as database:
                return dict(database.execute("SELECT number, payload FROM batch WHERE settled").fetchall())

        def state() -> dict[str, object]:
            return json.loads(consortium.coordinator("status", "--json"))["studies"][0]

        while "notary" not in state()["message"]:
            assert time.monotonic() < deadline, "nobody says that the guardian is missing"
            time.sleep(0.1)
        with Ledger(central) as ledger:
            assert ledger.stored(0) is None, "a party was asked without the guardian"
        consortium.start("notary")
        seen: dict[int, bytes] = {}
        for victim in ("notary", "centre", "notary", HOSPITALS[0], "notary"):
            before = len(released())
            while len(released()) <= before and state()["state"] != "finished":
                assert time.monotonic() < deadline, "the study did not go on"
                time.sleep(0.02)
            for number, payload in released().items():
                assert seen.setdefault(number, payload) == payload, "released otherwise"
            consortium.processes[victim].kill()
            consortium.processes[victim].wait()
            consortium.start(victim)
        figures = consortium.finish()
    finally:
        consortium.stop()
    for number, payload in released().items():
        assert seen.setdefault(number, payload) == payload, "released otherwise"
    assert figures["labels_released"] > 0
    with Ledger(central) as at_centre, Ledger(tmp_path / "notary" / "studies" / "demo" / "ledger.sqlite") as at_notary:
        assert at_notary.unsettled() == []
        charged = at_centre.balances()
        assert {name: each.settled for name, each in at_notary.balances().items()} == {
            name: each.settled for name, each in charged.items()
        }
    for name in HOSPITALS:
        (path,) = (tmp_path / name / "studies").glob("*/ledger*.sqlite")
        with Ledger(path) as ledger:
            assert charged[name].settled <= ledger.balance(name).spent <= ledger.balance(name).cap


@pytest.mark.slow
def test_sigterm_ends_a_guardian_in_a_conversation_and_its_return_goes_on(world):
    process = Process(world)

    def terminate(number: int) -> None:
        if number == 3 and process.starts == 1:
            process.running.terminate()
            process.running.wait(timeout=300)

    world.on_message = terminate
    try:
        assert world.label().stop.reason == "guardian_lost"
        assert process.running.returncode == 0
        process.start()
        assert world.label().stop.reason in ("pool_exhausted", "budget_exhausted")
    finally:
        process.kill()
    assert '"event": "served"' in process.log.read_text()


@pytest.mark.slow
def test_a_second_process_of_one_home_is_refused(world):
    process = Process(world)
    try:
        second = subprocess.run(process.arguments, capture_output=True, text=True, timeout=START_S)
        assert second.returncode == 4
        assert "error [already_serving]" in second.stderr
    finally:
        process.kill()
    with pytest.raises(ChannelClosed):
        world.check()
