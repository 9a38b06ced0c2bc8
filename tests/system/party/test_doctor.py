import datetime
import socket
import threading
import time
import types

import pytest

from party.commands.group import run_command
from party.doctor import examine
from party.home import PartyHome
from protocols.crypto.identity import private_key_from_pem, to_pem
from runtime.address import free_port
from tests.harness.consortium import Consortium
from tests.harness.homes import make_member, study_file, tabled, write_invitation
from tests.harness.studies import NOW, deployed_study


@pytest.fixture
def member(tmp_path):
    with Consortium(tabled(deployed_study(1)), tmp_path) as consortium:
        yield consortium, make_member(tmp_path / "a", consortium)


def failing(home):
    """The hops that fail: name and what to do."""
    return {hop.name: hop.found for hop in examine(home, timeout_s=300) if not hop.ok}


def change(home, old, new):
    file = home.invitation_file
    file.write_text(file.read_text().replace(old, new))


def next_step(home):
    """The one step that is still to come, and what is said of it; nothing is wrong."""
    hops = list(examine(home, timeout_s=300))
    assert all(hop.ok for hop in hops)
    (waiting,) = [hop for hop in hops if hop.waits]
    return waiting.name, waiting.todo


def test_at_each_stage_it_names_the_step_that_comes_next_and_nothing_is_wrong(member, tmp_path, capsys):
    consortium, home = member
    names = [hop.name for hop in examine(home)]
    assert names == ["home", "files", "data", "DNS", "TCP", "TLS", "certificate", "session", "clock", "study"]
    assert next_step(home) == (
        "study", "run: conclave-party data check STUDY.toml, which says how to approve it"
    )  # fmt: skip
    at = ["--home", str(home.path)]
    assert run_command(["approve", str(study_file(tmp_path, consortium.study)), *at, "--yes"]) == 0
    assert next_step(home) == ("study test", "run: conclave-party train test")
    assert run_command(["train", "test", *at]) == 0
    assert next_step(home) == ("node", "run: conclave-party run")
    capsys.readouterr()
    assert run_command(["doctor", *at]) == 0
    assert "next  node         no node runs from this home" in capsys.readouterr().out
    with home.running():
        assert not any(hop.waits for hop in examine(home))


def test_a_home_that_was_just_made_is_to_be_filled_in_and_enrolled(member, tmp_path, capsys):
    consortium, _ = member
    make_member(tmp_path / "whole", consortium)
    assert "next: conclave-party enrol" in capsys.readouterr().out
    invitation = write_invitation(tmp_path / "new.toml", consortium)
    assert run_command(["init", str(invitation), "--home", str(tmp_path / "new")]) == 0
    home = PartyHome(tmp_path / "new")
    assert f"next: fill in {home.settings_file}, then conclave-party enrol" in capsys.readouterr().out
    hops = {hop.name: hop for hop in examine(home, timeout_s=300)}
    assert all(hop.ok for hop in hops.values())
    assert [name for name, hop in hops.items() if hop.waits] == ["settings", "certificate"]
    assert "fill in" in hops["settings"].todo
    assert "conclave-party enrol" in hops["certificate"].todo
    # It is asked for at the second port, which a firewall may block alone.
    closed = f"127.0.0.1:{free_port()}"
    change(home, f"127.0.0.1:{consortium.enrol_port}", closed)
    assert closed in failing(home)["TCP"]
    at = ["init", str(invitation), "--home", str(home.path)]
    assert run_command([*at, "--data-name", "ward"]) == 0  # nobody had filled it in
    assert 'name = "ward"' in home.settings_file.read_text()
    assert run_command([*at, "--data-name", "ward"]) == run_command(at) == 0
    assert run_command([*at, "--data-name", "other"]) == 3
    home.settings_file.write_text("[data")
    assert list(failing(home)) == ["settings"]
    gone = ["--data", str(tmp_path / "gone.csv"), "--home", str(tmp_path / "not-made")]
    assert run_command(["init", str(invitation), *gone]) == 3
    assert not (tmp_path / "not-made").exists()
    (tmp_path / "policy.sqlite").touch()
    caps = ["--policy", str(tmp_path / "policy.sqlite"), "--home", str(tmp_path / "next")]
    assert run_command(["init", str(invitation), *caps]) == 0
    assert str(tmp_path / "policy.sqlite") in (tmp_path / "next" / "node.toml").read_text()


def test_records_a_policy_or_a_ledger_that_is_gone_is_wrong(member, tmp_path):
    consortium, home = member
    at = ["--home", str(home.path)]
    records = home.settings().data.source.path
    aside = records.rename(tmp_path / "aside")
    assert list(failing(home)) == ["data"]
    aside.rename(records)
    assert run_command(["approve", str(study_file(tmp_path, consortium.study)), *at, "--yes"]) == 0
    ledger = home.ledger(consortium.study.digest, "hospital-0")
    kept = ledger.rename(tmp_path / "ledger")
    assert list(failing(home)) == ["study test"]
    assert "ledger_rolled_back" in failing(home)["study test"]
    kept.rename(ledger)
    assert failing(home) == {}
    home.settings().policy.unlink()
    assert list(failing(home)) == ["approvals"]


def test_a_name_that_does_not_resolve_fails_at_dns(member):
    consortium, home = member
    change(home, f'\naddress = "{consortium.address}"', '\naddress = "nowhere.invalid:7443"')
    assert list(failing(home)) == ["DNS"]


def test_a_port_on_which_nobody_listens_fails_at_tcp(member):
    consortium, home = member
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        change(home, f'\naddress = "{consortium.address}"', f'\naddress = "127.0.0.1:{port}"')
        assert list(failing(home)) == ["TCP"]


def test_a_server_that_does_not_speak_tls_fails_at_tls(member):
    consortium, home = member
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def greet():
            connection, _ = plain.accept()
            with connection:
                connection.sendall(b"220 mail\r\n")

        greeter = threading.Thread(target=greet)
        greeter.start()
        change(home, f'\naddress = "{consortium.address}"', f'\naddress = "127.0.0.1:{plain.getsockname()[1]}"')
        assert list(failing(home)) == ["TLS"]
        greeter.join()


def test_the_server_of_another_consortium_fails_at_tls(member, tmp_path):
    consortium, home = member
    (tmp_path / "other").mkdir()
    with Consortium(deployed_study(1), tmp_path / "other") as other:
        change(home, f'\naddress = "{consortium.address}"', f'\naddress = "{other.address}"')
        assert list(failing(home)) == ["TLS"]


def test_a_certificate_that_is_absent_expired_of_another_key_or_of_another_authority_fails_there(member, tmp_path):
    consortium, home = member
    key = private_key_from_pem(home.key.read_bytes())
    old = consortium.certify(key, "hospital-0", days=1, now=NOW - datetime.timedelta(days=3))
    for certificate in (old, consortium.certify(consortium.key, "hospital-0"), consortium.certify(key, "hospital-5")):
        home.certificate.write_bytes(to_pem(certificate))
        assert list(failing(home)) == ["certificate"]
    (tmp_path / "other").mkdir()
    with Consortium(deployed_study(1), tmp_path / "other") as other:
        home.certificate.write_bytes(to_pem(other.certify(key, "hospital-0")))
        found = failing(home)
    assert list(found) == ["certificate"]
    assert "wrong_authority" in found["certificate"]


def test_a_party_that_was_revoked_is_told_so(member):
    consortium, home = member
    consortium.denied["hospital-0"] = "left the consortium"
    found = failing(home)
    assert list(found) == ["session"]
    assert "revoked" in found["session"]


def test_a_clock_that_is_wrong_fails_at_the_clock(member, monkeypatch):
    _, home = member
    wrong = types.SimpleNamespace(time_ns=lambda: time.time_ns() + 120 * 10**9)
    monkeypatch.setattr("party.doctor.time", wrong)
    found = failing(home)
    assert list(found) == ["clock"]
    assert found["clock"].startswith("+1")


def test_a_running_node_is_not_disturbed(member):
    _, home = member
    with home.running():
        found = {hop.name: hop.found for hop in examine(home)}
    assert "not tried" in found["session"]
