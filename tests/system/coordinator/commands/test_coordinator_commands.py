"""conclave-coordinator as people run it: its words, its exit codes, its JSON."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import numpy as np
import pytest

from coordinator.__main__ import main
from coordinator.commands.group import COMMANDS, run_command
from coordinator.home import CoordinatorHome
from coordinator.labelling.study_creation import study_template
from coordinator.members import Authority
from coordinator.status import operator_page, read_status
from coordinator.store.store import Store
from protocols.crypto.identity import certificate_request, new_key, phrase, request_fingerprint, to_pem
from protocols.errors import BudgetExceeded, InvalidInput, Refused, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.wire.enrolment import Enrol
from runtime.address import free_port
from runtime.exits import show_error
from tests.harness.clocks import wait_until
from tests.harness.operators import FakeHub, add_study, make_home
from tests.harness.served_homes import Hospital, Served
from tests.harness.studies import voter

ROOT = Path(__file__).parents[4]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Runs a command on the home of this test; (exit code, standard output, standard error)."""
    monkeypatch.setenv("CONCLAVE_COORDINATOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = run_command([str(each) for each in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself_with_an_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "Example" in out or command == "study"
    assert "Exit codes" in out


def test_an_operator_goes_from_nothing_to_an_approved_party_and_takes_it_out_again(run, tmp_path, monkeypatch):
    code, out, _ = run(
        "init", "--consortium", "heart", "--coordinator", "centre", "--address", "c.example.org:7443", "--json"
    )
    assert code == 0
    settings = json.loads(out)
    assert settings["enrol_address"] == "c.example.org:7444"
    assert settings["listen"] == "0.0.0.0:7443"
    here = ("--home", "a folder")
    code, out, _ = run("init", "--consortium", "h", "--coordinator", "c", "--address", "127.0.0.1:7443", *here)
    assert code == 0
    assert "listens on  127.0.0.1:7443, and for new hospitals on 127.0.0.1:7444" in out
    assert "next: conclave-coordinator serve --home 'a folder', and conclave-coordinator invite --home" in out
    assert run("invite", "b", "c", *here)[0] == 0
    assert Path("invitation-c.toml").exists()
    assert run("invite", "b", "d", *here)[0] == 3  # of b there is a file
    assert not Path("invitation-d.toml").exists()
    code, out, _ = run("invite", "hospital-a", "--out", "inv.toml", "--json")
    assert code == 0
    assert (tmp_path / "inv.toml").stat().st_mode & 0o777 == 0o600
    invitation = tomllib.loads((tmp_path / "inv.toml").read_text())
    assert invitation["token"] not in out
    home = CoordinatorHome(tmp_path / "home")
    request = certificate_request(new_key(), name="hospital-a")
    with Store(home) as store:
        token = base64.urlsafe_b64decode(invitation["token"])
        authority = Authority(home, store, home.settings())
        authority.enrol(Enrol("hospital-a", token, to_pem(request)))
    read_out = request_fingerprint(request)
    # Nothing that the operator sees shows what `approve` asks for.
    shown = [run(command, *as_json)[1] for command in ("requests", "status") for as_json in ([], ["--json"])]
    assert all("hospital-a" in each for each in shown)
    code, _, err = run("approve", "hospital-a", "--fingerprint", "00" * 32)
    with Store(home) as store:
        page = operator_page(read_status(store, now_s=store.now_s), consortium="c", trained={}, now_s=0.0)
    assert "conclave-coordinator approve hospital-a" in page
    said = "".join((*shown, err, page)).lower()
    assert not any(each in said for each in (read_out.lower(), phrase(read_out), read_out[:11].lower()))
    assert code == 4
    assert err.startswith("error [fingerprint_mismatch]: ")
    assert "\nnext: compare again by telephone" in err
    # Without a name: of every request, what the hospital reads out is asked for. The right answer is not shown.
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert run("approve")[1] == "nothing was approved\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(phrase(read_out) + "\n"))
    code, out, err = run("approve")
    assert (code, "hospital-a reads out" in err, phrase(read_out) in err) == (0, True, False)
    assert "hospital-a has a certificate" in out
    assert run("requests")[1] == "no requests are waiting\n"
    shown = json.loads(run("status", "--json")[1])
    assert [(p["party"], p["revoked"]) for p in shown["parties"]] == [("hospital-a", None)]
    code, out, _ = run("revoke", "hospital-a", "--reason", "left", "--json")
    assert json.loads(out)["serials"] == [shown["parties"][0]["serial"]]
    assert json.loads(run("status", "--json")[1])["parties"][0]["revoked"] == "left"
    assert "left" in run("status")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["label", "heart"], 3, "error [data_unavailable]: "),
        (["status"], 3, "run conclave-coordinator init"),
        (["init", "--consortium", "a b", "--coordinator", "c", "--address", "x:1"], 3, "error [invalid_input]: "),
        (["init", "--consortium", "a", "--coordinator", "c", "--address", "x"], 3, "allowed: HOST:PORT"),
        (["init"], 2, "Missing option"),
        (["nothing"], 2, "No such command"),
        (["study", "create"], 2, "--template"),
    ],
)
def test_wrong_use_has_its_exit_code_and_says_what_is_allowed(run, arguments, code, said):
    found, _, err = run(*arguments)
    assert found == code
    assert said in err


@pytest.mark.parametrize(
    ("error", "code"),
    [(InvalidInput("x"), 3), (Refused("other", "x"), 4), (BudgetExceeded("x"), 5), (StorageFailed("x"), 6)],
)
def test_every_error_is_one_line_with_a_code_and_one_with_the_next_step(capsys, error, code):
    assert show_error(error) == code
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    assert err[0].startswith("error [")
    assert err[1].startswith("next: ")


def test_the_template_and_a_pool_make_a_study(run, tmp_path):
    make_home(tmp_path)
    assert run("study", "create", "--template") == (0, study_template("teacher"), "")
    pool = np.random.default_rng(1).standard_normal((300, 5)).astype(np.float32)
    np.save(tmp_path / "pool.npy", pool)
    (tmp_path / "s.toml").write_text(study_template("teacher"))
    code, out, _ = run("study", "create", "s.toml", "--pool", "pool.npy", "--json")
    assert code == 0
    made = json.loads(out)
    assert made["pool"] == 300
    assert min(seat["answers_left"] for seat in made["seats"]) >= 50
    assert Path(made["file"]).exists()


def test_a_labelling_is_followed_to_its_end_and_its_student_trained(run, tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.serving._LOOK_S", 0.02)
    home = make_home(tmp_path)
    study = add_study(home, tmp_path)
    code, _, err = run("label", "test")
    assert code == 0
    assert "`serve` is not running on this home" in err
    assert run("train", "test", "--student", "random_forest")[0] == 3
    with Served(home, FakeHub(study)):
        code, out, err = run("label", "test", "--wait", "--json")
        assert code == 0
        job = json.loads(out)
        assert job["state"] == "finished"
        assert run("label", "test", "--json")[1] == out
        assert run("resume", "test", "--json")[1] == out
        assert "finished" in run("status")[1]
    code, out, _ = run("train", "test", "--student", "random_forest", "--json")
    assert code == 0
    trained = json.loads(out)
    assert trained["labels"] == job["answered"]
    assert trained["labels"] + trained["unlabelled"] == 60
    assert trained["agreement"] > 0.9
    assert run("train", "test", "--student", "oracle")[0] == 3


def test_a_labelling_that_stops_has_exit_code_7_and_resume_goes_on(run, tmp_path, monkeypatch):
    monkeypatch.setattr("coordinator.serving._LOOK_S", 0.02)
    home = make_home(tmp_path, patience_s=0)
    study = add_study(home, tmp_path, quorum=3)
    hub = FakeHub(study, present={"hospital-0"})
    assert run("resume", "test")[0] == 3
    with Served(home, hub):
        code, _, err = run("label", "test", "--wait")
        assert code == 7
        assert "hospital-1, hospital-2 did not connect" in err
        assert "next: fix that, then conclave-coordinator resume test" in err
        hub.present |= {"hospital-1", "hospital-2"}
        assert run("resume", "test", "--wait")[0] == 0


def test_a_student_between_rounds_is_for_interactive_studies_alone(run, tmp_path):
    add_study(make_home(tmp_path), tmp_path)
    code, _, err = run("label", "test", "--student", "mlp")
    assert code == 3
    assert "allowed: none for confident_gnmax" in err


class Process:
    """A real serve, ended at the latest with the test."""

    def __init__(self, home):
        self.home = home
        command = [sys.executable, "-m", "coordinator", "serve", "--home", str(home.folder)]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        with Store(self.home) as store:
            wait_until(lambda: (store.serving() or FAR).process == self.process.pid or self.process.poll() is not None)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, number):
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=300)
        return self.process.returncode, err


class FAR:
    process = 0


def test_a_real_serve_ends_cleanly_is_alone_and_takes_up_after_a_kill_what_was_asked(tmp_path):
    port, enrol_port = free_port(), free_port()
    home = make_home(tmp_path, listen=f"127.0.0.1:{port}", enrol_listen=f"127.0.0.1:{enrol_port}")
    add_study(home, tmp_path)
    with Process(home) as first:
        second = subprocess.run(
            [sys.executable, "-m", "coordinator", "serve"],
            cwd=ROOT, env={**os.environ, "CONCLAVE_COORDINATOR_HOME": str(home.folder)},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert second.returncode == 4
        assert second.stderr.startswith("error [already_serving]: another serve runs on")
        with Store(home) as store:
            store.ask_job("test", student=None)
            wait_until(lambda: store.job("test").state == "running")
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
    with Process(home) as again, Store(home) as store:
        # Nobody is connected: it waits within the first batch's deadline of ten minutes, and stops long before.
        wait_until(lambda: [entry.event for entry in store.entries()].count("job_started") == 2)
        code, err = again.end(signal.SIGTERM)
        assert code == 0
        assert store.job("test").state == "running"
        events = [json.loads(line)["event"] for line in err.splitlines()]
        assert events[:2] == ["page_opened", "serving"]
        assert events[-1] == "served"
        assert "job_interrupted" in events
        assert store.serving() is None
    with Process(home) as last:
        assert last.end(signal.SIGINT)[0] == 130


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_labelling_outlives_kills_of_the_coordinator_while_hospitals_stay(tmp_path):
    port, enrol_port = free_port(), free_port()
    home = make_home(tmp_path, listen=f"127.0.0.1:{port}", enrol_listen=f"127.0.0.1:{enrol_port}")
    study = add_study(home, tmp_path, batch_limit=6, quorum=3)

    # Batches before this one are voted on; so that a kill falls within the labelling.
    allowed, changed = [0], threading.Condition()

    def allow(batches):
        with changed:
            allowed[0] = batches
            changed.notify_all()

    def vote(batch):
        with changed:
            changed.wait_for(lambda: batch.number < allowed[0], 300)
        return voter("any")(batch)

    hospitals = [Hospital(f"hospital-{n}", home, study, tmp_path, port, vote=vote) for n in range(3)]
    try:
        with Store(home) as store:
            store.ask_job("test", student=None)
            for batches in (1, 3):
                allow(batches)
                with Process(home) as killed:
                    wait_until(lambda at_least=batches: store.job("test").batches >= at_least)
                    killed.end(signal.SIGKILL)
                assert store.job("test").state == "running"
            allow(study.terms.pool_size)
            with Process(home) as last:
                wait_until(lambda: store.job("test").ended)
                assert last.end(signal.SIGTERM)[0] == 0
            job, found = store.job("test"), store.labelled("test")
            assert job.state == "finished"
            assert job.number == 1
            assert job.asked == sum(size for size, _ in found.batches)
            with Ledger(found.ledger) as ledger:
                for hospital in hospitals:
                    mine, theirs = hospital.ledger.balance(hospital.name), ledger.balance(hospital.name)
                    assert mine.spent >= theirs.spent
                    assert mine.spent <= mine.cap
    finally:
        for hospital in hospitals:
            hospital.close()


def test_the_program_ends_with_the_commands_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["conclave-coordinator", "nothing"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    capsys.readouterr()
