"""What every engine of the table must do, asked of each through the small parties of echo_host.

Starting an engine takes up to ten seconds, so one run per engine (`carried`, which carries studies too) makes most of
the observations, and the tests look at them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from protocols.errors import BudgetExceeded, ConclaveError, DataUnavailable, EngineFailed, InvalidInput, Refused
from simulations.engines import ENGINES, open_engine
from simulations.engines.engine import ONE_THREAD, Exchange, HostSpec
from tests.harness.carried_studies import ALL
from tests.harness.echo_observed import ECHO, PARTIES


@pytest.fixture
def seen(carried: dict[str, Any]) -> dict[str, Any]:
    """The observations on each engine."""
    echo: dict[str, Any] = carried["echo"]
    return echo


def test_every_party_asked_is_answered(seen: dict[str, Any]) -> None:
    assert seen["one"] == {"party-7": b"good day party-7 x"}
    assert seen["three"] == {p: f"good day {p} y".encode() for p in ("party-9", "party-2", "party-0")}
    assert seen["fifty"] == {p: f"good day {p} z".encode() for p in PARTIES}
    assert seen["none"] == {}


def test_a_party_without_an_answer_has_none(seen: dict[str, Any]) -> None:
    assert seen["silent"] == {"party-1": None, "party-2": b"good day party-2 x"}


def test_progress_counts_every_reply_once(seen: dict[str, Any]) -> None:
    assert seen["progress"] == [(done, 50) for done in range(1, 51)]


def test_twenty_megabytes_go_both_ways(seen: dict[str, Any]) -> None:
    assert seen["large reply"]["party-4"] == b"abcdefghij" * 2_000_000
    assert seen["large request"]["party-4"] == b"20000005"


def test_an_empty_request_is_a_request(seen: dict[str, Any]) -> None:
    assert seen["empty"] == {"party-4": b"good day party-4 "}


def test_parties_are_spread_over_the_workers_and_none_is_in_this_process(seen: dict[str, Any]) -> None:
    processes = set(seen["processes"].values())
    assert len(processes) == 2
    assert str(os.getpid()).encode() not in processes


@pytest.mark.parametrize("name", sorted(ONE_THREAD))
def test_a_worker_is_kept_to_one_thread(seen: dict[str, Any], name: str) -> None:
    found, wanted = seen[name]
    assert found == wanted


@pytest.mark.parametrize(
    ("order", "error_class", "message"),
    [
        ("refuse", Refused, "not_approved: party-3 has not approved this study"),
        ("refuse-specially", Refused, "special: party-3 refuses"),
        ("overspend", BudgetExceeded, "party-3: 3 asked; allowed: 2"),
        ("invalid", InvalidInput, "party-3: sigma is -1; allowed: > 0"),
        ("as:party-5", EngineFailed, "a host replied twice for party 'party-5'"),
        ("as:nobody", EngineFailed, "a host replied for party 'nobody', which was not asked"),
    ],
)
def test_an_error_of_a_host_keeps_its_type_and_message(
    seen: dict[str, Any], order: str, error_class: type[ConclaveError], message: str
) -> None:
    assert type(seen[order]) is error_class
    assert str(seen[order]) == message
    if error_class is Refused:
        assert seen[order].code == message.split(":")[0]


@pytest.mark.parametrize("order", ["refuse", "overspend", "as:nobody"])
def test_an_exchange_after_a_caught_error_has_its_own_replies_only(seen: dict[str, Any], order: str) -> None:
    assert seen[f"after {order}"] == {p: f"good day {p} again".encode() for p in PARTIES[:5]}


def test_a_request_for_a_stranger_is_refused(seen: dict[str, Any]) -> None:
    assert type(seen["stranger"]) is InvalidInput
    assert str(seen["stranger"]) == f"requests names party 'nobody'; allowed: the {len(ALL)} parties of this run"


def test_engines_reply_alike(carried_of: Callable[[str], dict[str, Any]]) -> None:
    first, *others = (carried_of(engine)["echo"] for engine in ENGINES)
    assert others
    for other in others:
        for key in ("one", "three", "fifty", "silent", "large reply", "large request", "progress"):
            assert other[key] == first[key]


@pytest.mark.slow
def test_a_bug_in_a_host_is_shown_with_its_traceback_and_nothing_is_printed(seen: dict[str, Any]) -> None:
    assert "KeyError: 'a bug in the host'" in seen["bug"]
    assert "echo_host.py" in seen["bug"]  # the traceback
    assert "\x1b" not in seen["bug"]
    assert seen["printed"] == ["", ""]  # what was to be said is in the error


@pytest.mark.slow
def test_a_worker_that_dies_fails_the_exchange_and_leaves_no_process(seen: dict[str, Any]) -> None:
    assert "died" in seen["death"]
    assert_gone(seen["left"])


@pytest.mark.slow
def test_what_flower_and_its_hosts_say_is_in_its_log(carried_of: Callable[[str], dict[str, Any]]) -> None:
    log = carried_of("flower")["echo"]["log"]
    assert "run_simulation" in log
    assert "a bug in the host" in log


@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_second_run_starts_afresh_and_a_host_that_does_not_open_says_why(engine: str) -> None:
    def body(exchange: Exchange) -> list[str]:
        messages = []
        for _ in range(2):
            with pytest.raises(DataUnavailable) as caught:
                exchange({"party-0": b"x"})
            messages.append(str(caught.value))
        return messages

    messages = open_engine(engine, workers=1).run(HostSpec("tests.harness.echo_host:open_nothing"), ["party-0"], body)
    assert messages == ["no data here; see the manual"] * 2


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize(
    ("parties", "message"),
    [
        ([], "parties is empty; allowed: 1 or more names"),
        (["a", "b", "a"], "parties holds 'a' 2 times; allowed: distinct names"),
        ([""], "parties holds an empty name; allowed: names of 1 or more characters"),
    ],
)
def test_parties_must_have_distinct_names(engine: str, parties: list[str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_engine(engine, workers=1).run(ECHO, parties, lambda exchange: None)
    assert str(caught.value) == message


# A caller without a `__main__` guard; its workers are kept busy for five minutes.
LINGERING_CALLER = """
import sys
sys.path[:0] = {path!r}
from simulations.engines import open_engine
from simulations.engines.engine import HostSpec
def body(exchange):
    exchange({{"a": {order!r}, "b": {order!r}}})
try:
    open_engine({engine!r}, workers=2).run(HostSpec("tests.harness.echo_host:open_host"), ["a", "b"], body)
except KeyboardInterrupt:
    print("interrupted")
"""


@contextmanager
def lingering(engine: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], set[psutil.Process]]]:
    """A caller whose two workers are at work, with all the processes under it."""
    order = b"linger:" + str(folder / "at-work").encode()
    source = LINGERING_CALLER.format(path=sys.path, order=order, engine=engine)
    command = [sys.executable, "-c", source]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as caller:
        try:
            deadline = time.monotonic() + 300
            while len(list(folder.glob("at-work.*"))) < 2:
                assert caller.poll() is None, caller.stdout.read() if caller.stdout else ""
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield caller, set(psutil.Process(caller.pid).children(recursive=True))
        finally:
            caller.kill()


def assert_gone(processes: set[psutil.Process]) -> None:
    """Fails if one of them still runs after 30 seconds; a zombie has ended."""
    deadline = time.monotonic() + 300
    while running := [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < deadline, running
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_ctrl_c_ends_a_busy_run_at_once_and_leaves_no_process(engine: str, tmp_path: Path) -> None:
    with lingering(engine, tmp_path) as (caller, below):
        os.killpg(caller.pid, signal.SIGINT)  # as a terminal does: to the whole process group
        output, _ = caller.communicate(timeout=300)
        assert output == "interrupted\n"
        assert caller.returncode == 0
        assert len(below) >= 2
        assert_gone(below)


@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_workers_of_a_caller_that_is_killed_end_too(engine: str, tmp_path: Path) -> None:
    with lingering(engine, tmp_path) as (caller, below):
        agents = {p for p in below if " ".join(p.cmdline()).startswith(("ray::Dashboard", "ray::RuntimeEnv"))}
        caller.kill()
        caller.communicate(timeout=300)
        at_work = {int(file.read_text()) for file in tmp_path.glob("at-work.*")}
        assert at_work <= {process.pid for process in below}
        # Ray's agents hold no party and end by themselves, after trying for a minute to report to Ray.
        assert_gone({process for process in below if process not in agents})
