import json
import shlex
import shutil

import numpy as np
import pytest

from coordinator.commands.group import run_command
from coordinator.home import CoordinatorHome
from coordinator.in_process import InProcessTransport
from coordinator.labelling.training import keep_student, train_student
from coordinator.release.verify import verify_release
from coordinator.store.store import Store, ledger_path
from party.party import Party
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import simulated
from runtime.exits import Exit
from tests.harness.operators import add_study, make_home
from tests.harness.studies import pool_of, voter


def label(made, folder, **how):
    """A study in a home that is labelled, with its pool. No node is there to sign a receipt."""
    study = add_study(made, folder, **how)
    pool = pool_of(study.terms.pool_size, study.terms.input_shape[0])
    parties = {
        seat.party: Party(seat.party, study=study, ledger=Ledger(":memory:"), voter=voter(seat.party), coins_from=None)
        for seat in study.roster
    }
    with Store(made) as store:
        with Ledger(ledger_path(made, study.name)) as ledger:
            coordinator = Coordinator(
                study,
                ledger=ledger,
                aggregation=ClearAggregation(simulated(np.random.default_rng(1))),
                exchange=InProcessTransport({name: party.handle for name, party in parties.items()}),
                run=b"run",
            )
            labelling = coordinator.label(pool)
        job = store.ask_job(study.name, student=None)
        store.start_job(job.number)
        store.end_job(job.number, "finished", "", labelling)
        return store.labelled(study.name), pool


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A home with a study that is labelled, and a student that was trained."""
    folder = tmp_path_factory.mktemp("trained")
    made = make_home(folder)
    labelled, pool = label(made, folder)
    student = train_student(labelled, pool, kind="random_forest", seed=0, device="cpu")
    keep_student(made.study(labelled.study.name) / "student", labelled, student)
    return made


@pytest.fixture
def home(trained, tmp_path):
    """A copy of that home, to be written to."""
    return CoordinatorHome(shutil.copytree(trained.folder, tmp_path / "home"))


UNPROVEN = [part for number in range(3) for part in ("--unproven", f"hospital-{number}")]


def test_charges_without_receipts_are_released_only_where_it_is_stated(home, tmp_path, capsys):
    out = tmp_path / "release"
    arguments = ["release", "test", "--home", str(home.folder), "--out", str(out), "--labels-only"]
    assert run_command([*arguments, *UNPROVEN[2:]]) == 4
    said = capsys.readouterr().err
    assert "error [unproven_charges]: hospital-0 (batches 0, 1, 2): no signed receipt" in said
    assert "--unproven SEAT" in said
    assert not out.exists()
    assert run_command([*arguments, *UNPROVEN]) == 0
    assert run_command(["verify", str(out)]) == Exit.PARTLY
    said = capsys.readouterr()
    assert "NOT CHECKED  receipts cover every charge" in said.err
    assert "receipts cover every charge" in said.out.splitlines()[-1]
    assert "conclave-party verify" in said.err
    # Without the consortium's certificate nobody knows who signed it, and the last line does not say "verified".
    assert "NOT CHECKED  authority: " in said.err
    assert said.out.splitlines()[-1].startswith("NOT VERIFIED: the folder agrees with itself")
    assert run_command(["verify", str(out), "--json"]) == Exit.PARTLY
    assert json.loads(capsys.readouterr().out)["verified"] is False


def test_the_second_release_of_a_home_names_the_first_by_itself(home, tmp_path, capsys):
    label(home, tmp_path, name="second")
    arguments = ["--home", str(home.folder), "--labels-only", *UNPROVEN]
    for name, before in (("test", []), ("second", ["test"])):
        assert run_command(["release", name, "--out", str(tmp_path / name), *arguments]) == 0
        earlier = json.loads((tmp_path / name / "privacy.json").read_text())["earlier_releases"]
        assert [each["name"] for each in earlier["releases"]] == before
        capsys.readouterr()
        assert run_command(["verify", str(tmp_path / name), "--json"]) == Exit.PARTLY
        checks = {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
        assert all(each in checks["statement"]["message"] for each in before)
    one, both = (json.loads((tmp_path / name / "privacy.json").read_text()) for name in ("test", "second"))
    shown = max(each["epsilon"] for each in both["earlier_releases"]["parties"])
    assert shown > max(each["guarantee"]["epsilon"] for each in one["seats"])


def test_a_study_is_released_and_verified_by_command(home, tmp_path, capsys):
    out = tmp_path / "release"
    arguments = ["release", "test", "--home", str(home.folder), "--out", str(out)]
    arguments += ["--patient-of", "hospital-0,hospital-1", *UNPROVEN]
    assert run_command(arguments) == 0
    pasted = capsys.readouterr().out.splitlines()[-1].removeprefix("next: conclave-coordinator ")
    # The charges that no receipt covers are all that it does not check: the pasted command names authority and pool.
    assert run_command(shlex.split(pasted)) == Exit.PARTLY
    said = capsys.readouterr().out
    assert said.splitlines()[-1].startswith("verified except receipts cover every charge:")
    assert said.count("holds") == len(verify_release(out, None, pool=home.study("test") / "pool.npy")) - 1
    assert (out / "student.onnx").exists()
    # What later releases name it by.
    (kept,) = home.released("test").iterdir()
    assert (kept / "privacy.json").read_bytes() == (out / "privacy.json").read_bytes()
    assert run_command(arguments) == 3


def test_a_changed_release_fails_with_exit_code_8_and_says_what_to_do(home, tmp_path, capsys):
    out = tmp_path / "release"
    command = ["release", "test", "--home", str(home.folder), "--out", str(out), "--labels-only", "--json", *UNPROVEN]
    assert run_command(command) == 0
    assert json.loads(capsys.readouterr().out)["student"] is False
    (out / "labels.csv").write_text("query,label,status,reinforced\n")
    assert run_command(["verify", str(out)]) == 8
    said = capsys.readouterr().err
    wanted = "labels.csv was changed", "error [verification_failed]", "next: do not use the release"
    assert [each for each in wanted if each not in said] == []
    assert run_command(["verify", str(out), "--json"]) == 8
    figures = json.loads(capsys.readouterr().out)
    assert figures["verified"] is False
    assert {check["name"] for check in figures["checks"] if not check["passed"]} >= {"files", "charges"}
    (out / "manifest.json").unlink()
    assert run_command(["verify", str(out.rename(tmp_path / "a\x9b31m"))]) == 8
    assert "\x9b" not in capsys.readouterr().err


def test_what_is_missing_is_named(home, tmp_path, capsys):
    assert run_command(["release", "nothing", "--home", str(home.folder), "--out", str(tmp_path / "a")]) == 3
    assert run_command(["verify", str(tmp_path / "absent")]) == 2
    capsys.readouterr()
    add_study(home, tmp_path, name="later")
    assert run_command(["release", "later", "--home", str(home.folder), "--out", str(tmp_path / "c")]) == 3
    wanted = f"is not labelled; run conclave-coordinator label --home {home.folder} later\nnext: do what the message"
    assert wanted in capsys.readouterr().err
    (home.study("test") / "student" / "student.json").unlink()
    assert run_command(["release", "test", "--home", str(home.folder), "--out", str(tmp_path / "b")]) == 3
    assert "train" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
