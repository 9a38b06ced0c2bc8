"""conclave-guardian as people run it: words, exit codes, JSON, and the whole way from init to serve."""

import io
import json
import tomllib

import pytest

from coordinator.commands.group import run_command as run_coordinator
from guardian.commands import run_command
from guardian.home import GuardianHome
from protocols.crypto.identity import phrase
from protocols.study.file import write_study
from runtime.key_files import locked
from tests.harness.guardians import guarded_study
from tests.harness.operators import make_home

COMMANDS = ("init", "accept", "show", "approve", "deny", "serve", "status", "passphrase")
INIT = ("init", "--name", "notary", "--coordinator", "centre", "--listen", "127.0.0.1:0", "--metrics-port", "0")


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Runs a command on the homes of this test; (exit code, standard output, standard error)."""
    monkeypatch.setenv("CONCLAVE_COORDINATOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CONCLAVE_GUARDIAN_HOME", str(tmp_path / "guardian"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        words = [str(each) for each in arguments]
        code = run_coordinator(["guardian", *words]) if words[0] == "certify" else run_command(words)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def certified(run, tmp_path):
    """A guardian with its certificate, and its coordinator's home."""
    make_home(tmp_path)
    fingerprint = json.loads(run(*INIT, "--json")[1])["fingerprint"]
    assert run("certify", "guardian/request.pem", "--fingerprint", fingerprint, "--out", "sent")[0] == 0
    assert run("accept", "sent/notary.pem", "sent/authority.pem")[0] == 0
    return GuardianHome(tmp_path / "guardian")


def study_file(home, path, **more):
    study = guarded_study(sealing=home.sealing_key(), signing=home.signing_key(), **more)
    path.write_text(write_study(study))
    return study


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "Example" in out
    assert "Exit codes" in out
    assert f"  {command} " in run("--help")[1]


def test_a_guardian_goes_from_nothing_to_an_approved_study(run, tmp_path):
    make_home(tmp_path)
    code, out, _ = run(*INIT)
    assert code == 0
    fingerprint = next(line.split()[1] for line in out.splitlines() if line.startswith("fingerprint "))
    assert "request.pem to the operator of 'centre'" in out
    code, _, err = run("status")
    assert code == 3
    assert "guardian accept" in err
    code, _, err = run("certify", "guardian/request.pem", "--fingerprint", "0" * 64)
    assert code == 4
    assert err.startswith("error [fingerprint_mismatch]: ")
    words = phrase(fingerprint)
    assert words in out
    assert not any(each in err for each in (fingerprint, words))
    code, out, _ = run("certify", "guardian/request.pem", "--fingerprint", words, "--out", "sent", "--json")
    assert code == 0
    sent = json.loads(out)
    assert sent["guardian"] == "notary"
    code, out, _ = run("accept", sent["certificate"], sent["authority"], "--json")
    assert code == 0
    assert json.loads(out) == {"guardian": "notary", "serial": sent["serial"], "not_after_s": sent["not_after_s"]}
    home = GuardianHome(tmp_path / "guardian")
    lines = tomllib.loads(run("show")[1])
    assert lines == {"guardian": "notary", **home.public_keys()}
    assert json.loads(run("show", "--json")[1]) == lines | {
        "keys_fingerprint": home.keys_fingerprint(),
        "keys_words": phrase(home.keys_fingerprint()),
    }
    assert f"# to read out to each hospital: {home.keys_fingerprint()}" in run("show")[1]
    assert f"# or in words: {phrase(home.keys_fingerprint())}" in run("show")[1]
    study = study_file(home, tmp_path / "study.toml")
    code, out, err = run("approve", "study.toml", "--yes", "--json")
    assert code == 0
    assert json.loads(out) == {"study": "test", "digest": study.digest.hex(), "new": True}
    assert "You will see which seats answered" in err
    assert "was already approved" in run("approve", "study.toml", "--yes")[1]
    status = json.loads(run("status", "--json")[1])
    assert (status["guardian"], status["coordinator"]) == ("notary", "centre")
    assert [(each["study"], each["batches"]) for each in status["studies"]] == [("test", 0)]
    assert "study test: 0 of 60 queries asked in 0 batches" in run("status")[1]


@pytest.mark.parametrize(("typed", "code"), [("n\n", 4), ("", 130)])
def test_a_study_that_is_not_confirmed_is_not_approved(run, certified, tmp_path, monkeypatch, typed, code):
    study_file(certified, tmp_path / "study.toml")
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert run("approve", "study.toml")[0] == code
    assert json.loads(run("status", "--json")[1])["studies"] == []


def test_a_study_of_another_guardian_is_refused_in_one_line(run, certified, tmp_path):
    study_file(certified, tmp_path / "study.toml", guardian="another")
    code, _, err = run("approve", "study.toml", "--yes")
    assert code == 4
    assert err.splitlines()[0].startswith("error [wrong_guardian]: guardian is 'another'")


def test_the_certificate_of_the_coordinator_is_none_of_a_guardian(run, certified):
    code, _, err = run("accept", "home/certificate.pem", "home/authority.pem")
    assert code == 4
    assert "error [wrong_role]" in err
    code, _, err = run("init", "--name", "centre", "--coordinator", "centre", "--home", "other")
    assert code == 4
    assert "error [same_organisation]" in err
    assert "next: let another organisation be the guardian" in err


def test_a_denied_key_is_kept(run, certified):
    assert json.loads(run("deny", "ab" * 32, "--json")[1])["denied"].startswith("AB:AB:")
    assert "denied from now on: CD:CD:" in run("deny", "cd" * 32)[1]
    assert len(certified.denied()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["init", "--name", "a b", "--coordinator", "centre"], 3, "is not allowed"),
        (["init", "--name", "notary"], 2, "Missing option"),
        (["init", "--name", "notary", "--coordinator", "centre", "--listen", "x"], 3, "allowed: HOST:PORT"),
        (["show"], 3, "guardian init"),
        (["serve"], 3, "guardian init"),
        (["deny", "ab"], 3, "guardian init"),
        (["certify", "nothing.pem", "--fingerprint", "0"], 3, "conclave-coordinator init"),
        (["accept", "nothing.pem", "nothing.pem"], 3, "nothing.pem does not exist"),
    ],
)
def test_wrong_use_has_its_exit_code_and_says_what_is_allowed(run, arguments, code, said):
    found, _, err = run(*arguments)
    assert found == code
    assert said in err


def test_a_file_that_is_far_too_large_is_not_read(run, certified, tmp_path):
    (tmp_path / "large.pem").write_bytes(bytes(2**20 + 1))
    code, _, err = run("accept", "large.pem", "sent/authority.pem")
    assert code == 3
    assert "allowed: at most 1048576" in err


def test_both_servers_keys_get_a_passphrase_and_lose_it_again(certified, run, monkeypatch):
    monkeypatch.setenv("CONCLAVE_PASSPHRASE", "correct horse")
    keys = [certified.key_file, certified.sealing_file, certified.signing_file]
    keys += [certified.folder.parent / "home" / name for name in ("key.pem", "authority-key.pem")]
    shown = run("show")[1]
    for more, shut in (((), True), (("--remove",), False)):
        assert run("passphrase", *more)[0] == 0
        assert run_coordinator(["passphrase", *more]) == 0
        assert [locked(each.read_bytes()) for each in keys] == [shut] * 5
        assert run("show")[1].endswith(shown)
    certified.key()
