"""A guardian in a process of its own that is killed at every point of a conversation, and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from protocols.accounting.ledger import Ledger
from protocols.aggregation.two_servers import lattice_noise, server_noise
from protocols.errors import ChannelClosed
from protocols.noise import LatticeNoise
from protocols.stream import expanded_source
from tests.guardians import TwoOrganisations

START_S, TIME_S = 60.0, 300.0


class Process:
    """`guardian serve` of a home, as people start it."""

    def __init__(self, world: TwoOrganisations) -> None:
        self.log = world.folder / "guardian.log"
        self.arguments = [
            sys.executable,
            "-m",
            "coordinator",
            "guardian",
            "serve",
            "--home",
            str(world.guardian.folder),
        ]
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
        return self.running.wait(timeout=60)


@pytest.fixture
def world(tmp_path):
    made = TwoOrganisations(tmp_path, more={"pool": 12, "batch_limit": 1})
    yield made
    made.close()


@pytest.mark.slow
def test_a_guardian_that_is_killed_at_any_message_charges_once_and_never_draws_noise_again(world):
    process, kills, deadline = Process(world), 0, time.monotonic() + TIME_S
    killed_at: set[int] = set()
    at_coordinator: dict[bytes, bytes] = {}

    def kill_once(number: int) -> None:
        nonlocal kills
        at_coordinator.update(world.seeds(world.folder / "coordinator.sqlite"))
        if number not in killed_at:
            killed_at.add(number)
            kills += 1
            process.kill()

    world.on_message = kill_once
    at_guardian: dict[bytes, bytes] = {}
    try:
        while (labelling := world.label()).stop.reason == "guardian_lost":
            assert time.monotonic() < deadline, "the study did not go on"
            for digest, seed in world.seeds(world.guardians_ledger()).items():
                assert at_guardian.setdefault(digest, seed) == seed, "noise was drawn again"
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
    at_guardian = world.seeds(world.guardians_ledger())
    for number, (digest, labels) in enumerate(released):
        expected = labels_of_seeds(world, number, at_coordinator[digest], at_guardian[digest])
        np.testing.assert_array_equal(labels, expected, err_msg=f"batch {number} has other noise than was noted")


def labels_of_seeds(world: TwoOrganisations, number: int, coordinators: bytes, guardians: bytes) -> np.ndarray:
    """The labels of a batch of one query, in the clear, with the noise that follows from what both servers noted."""
    study, units = world.study, world.study.lattice.units
    drawn = [
        server_noise(study, lattice_noise(expanded_source(seed, label=label), units=units), queries=1)
        for seed, label in ((coordinators, "coordinator noise"), (guardians, "guardian noise"))
    ]
    total = [first + second for first, second in zip(*drawn, strict=True)]
    noise = LatticeNoise(units, lambda count, sigma: total.pop(0).reshape(count))
    votes = world.votes(number)
    counts = np.stack([(votes == each).sum(axis=0) for each in range(study.classes)], axis=1).astype(float)
    return study.release(counts, noise, predictions=None)


@pytest.mark.slow
def test_sigterm_ends_a_guardian_in_a_conversation_and_its_return_goes_on(world):
    process = Process(world)

    def terminate(number: int) -> None:
        if number == 3 and process.starts == 1:
            process.running.terminate()
            process.running.wait(timeout=60)

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
