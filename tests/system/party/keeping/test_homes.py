"""A hospital's home that is moved, backed up, restored, or has lost something: it works again, and nothing is given
back that cannot be proved."""

import io
import json
import re
import shutil
from dataclasses import replace

import pytest

from party import keeping
from party.budget.policy import Policy
from party.budget.spending import spending
from party.commands.group import run_command
from party.home import PartyHome
from party.keeping import repair
from party.live import Recent, last_audit, needs_of, node_state
from party.voting import training
from party.voting.answering import Answering
from protocols.errors import StorageFailed
from protocols.ledger.ledger import Ledger
from runtime.exits import Exit
from tests.harness.answering import SEAT, answered, copied
from tests.harness.certifying import Certifying
from tests.harness.homes import make_member, study_file, tabled, write_invitation
from tests.harness.refusals import refused_for, refuses
from tests.harness.studies import deployed_study

STUDY = replace(
    tabled(deployed_study(1, mechanism="thresholded_gnmax", sigma_threshold=None, sigma=60.0, teachers=2)), quorum=1
)
OTHER = replace(STUDY, name="other")
# Fits beside the first.
SMALL = replace(STUDY, name="small", roster=(replace(STUDY.roster[0], epsilon=2.0),))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A home that approved a study and answered one batch; and its authority."""
    folder, authority = tmp_path_factory.mktemp("original"), Certifying()
    authority.make_authority()
    authority.address, authority.enrol_port = "127.0.0.1:1", 2
    home = make_member(folder / "a", authority, settle="", epsilon=20.0)
    at = ["--home", str(home.path)]
    assert run_command(["approve", str(study_file(folder, STUDY)), "--yes", *at]) == 0
    assert run_command(["train", "test", *at]) == 0
    spent(home, [0])
    return home, authority


@pytest.fixture
def home(original, tmp_path):
    """The same home in a folder of its own: as if it had been moved there."""
    shutil.copytree(original[0].path, tmp_path / "home")
    return PartyHome(tmp_path / "home")


def spent(home, numbers):
    with Policy(home.settings().policy) as policy:
        return answered((home, home.settings(), STUDY, policy), numbers)


def answers(home):
    """The seats that the home would answer for. Raises what it is told instead."""
    with (
        Policy(home.settings().policy) as policy,
        Answering(home, home.settings(), policy, party=SEAT, on_event=lambda event, fields: None) as answering,
    ):
        return [seat.party.name for seat in answering.seats()]


def use(home):
    with Policy(home.settings().policy) as policy:
        (found,) = [each for each in policy.lifetime_uses() if each.data_set == "ward"]
        return found


def call(*arguments, home):
    return run_command([*map(str, arguments), "--home", str(home.path)])


def refusal(capsys):
    return capsys.readouterr().err.split("error [")[1].split("]")[0]


def approve(study, home, folder, *more):
    return call("approve", study_file(folder, study, f"{study.name}.toml"), "--yes", *more, home=home)


def lose(path, lost, *, older):
    """Deletes or damages a database, or puts an older copy in its place."""
    if lost == "damaged":
        path.write_bytes(b"no database at all" * 1000)
    elif lost == "older" and older is not None:
        copied(older, path)
    else:
        path.unlink()


def works_for_other_patients(home, folder):
    """Whether the home refuses the same people under another name, and can approve a study for others."""
    text = home.settings_file.read_text()
    home.settings_file.write_text(text.replace('name = "ward"', 'name = "ward-two"'))
    if approve(OTHER, home, folder) != Exit.BUDGET:
        return False
    records, others = home.settings().data.source.path, folder / "others.csv"
    others.write_text(records.read_text().replace("\np", "\nq"))
    lines = home.settings_file.read_text().splitlines()
    lines = [f'path = "{others}"' if line.startswith("path = ") else line for line in lines]
    home.settings_file.write_text("\n".join(lines) + "\n")
    stated = approve(OTHER, home, folder, "--other-people", "ward") == 0
    return stated and call("train", "other", home=home) == 0 and answers(home) == [SEAT]


def test_a_move_forfeits_nothing_and_retires_the_home_that_it_leaves(original, home, tmp_path, capsys):
    before = use(original[0])
    assert (use(home), answers(home)) == (before, [SEAT])  # a folder that is moved by hand goes on, too
    assert call("home", "move", tmp_path / "m.conclave", "--yes", home=home) == 0
    assert "is not encrypted" in capsys.readouterr().err
    assert call("budget", "show", home=home) == Exit.REFUSED
    assert refusal(capsys) == "home_moved"
    with refused_for("home_moved"), home.running():  # whatever began before it was retired ends there, too
        pass
    with refused_for("home_moved"), Policy(home.path / "policy.sqlite") as policy:
        policy.withdraw(STUDY, data_set="ward", home=home)
    shutil.copy(tmp_path / "m.conclave", tmp_path / "copy.conclave")
    there, again = PartyHome(tmp_path / "there"), PartyHome(tmp_path / "again")
    assert call("home", "restore", tmp_path / "m.conclave", home=there) == 0
    assert "nothing is forfeited" in capsys.readouterr().out
    assert use(there) == before
    assert call("train", "test", home=there) == 0
    assert answers(there) == [SEAT]
    assert call("home", "restore", tmp_path / "m.conclave", home=again) == Exit.INVALID_INPUT
    # A copy of the file makes a second home; the coordinator countersigns the log of whichever answers first.
    assert call("home", "restore", tmp_path / "copy.conclave", home=again) == 0
    with (
        Ledger(there.ledger(STUDY.digest, SEAT)) as first,
        Ledger(again.ledger(STUDY.digest, SEAT)) as second,
        Ledger(":memory:") as coordinator,
    ):
        coordinator.log.remember(SEAT, first.log.head(), proof=b"")
        with refused_for("peer_rolled_back"):
            coordinator.log.check_newer(SEAT, second.log.head())
        with refused_for("ledger_rolled_back"):
            second.log.check_known(coordinator.log.peer(SEAT), by="coordinator")


@pytest.mark.parametrize(("kind", "cut"), [("backup", "repair"), ("move", "_mark_arrival")])
def test_a_home_whose_restore_was_cut_short_answers_nothing_until_it_is_restored_again(
    home, tmp_path, capsys, monkeypatch, kind, cut
):
    file, there = tmp_path / "b.conclave", PartyHome(tmp_path / "there")
    assert call("home", kind, file, *(["--yes"] if kind == "move" else []), home=home) == 0

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keeping, cut, killed)
        assert call("home", "restore", file, "--yes", home=there) == Exit.INTERRUPTED
    for command in (["budget", "show"], ["run"], ["home", "repair", "--yes"]):
        capsys.readouterr()
        assert call(*command, home=there) == Exit.REFUSED
        assert refusal(capsys) == "home_unfinished"
    shutil.rmtree(there.path)
    file.with_name("b.conclave.restored").rename(file)
    assert call("home", "restore", file, "--yes", home=there) == 0
    assert use(there).share == 1.0 if kind == "backup" else answers(there) == [SEAT]


def test_a_backup_that_is_restored_gives_nothing_back_and_works_for_other_patients(home, tmp_path, capsys, monkeypatch):
    assert call("home", "backup", tmp_path / "b.conclave", home=home) == 0
    spent(home, [1, 2])
    there = PartyHome(tmp_path / "there")
    # It says first what will be forfeited; whoever declines can restore the file later.
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert call("home", "restore", tmp_path / "b.conclave", home=there) == Exit.REFUSED
    asked = capsys.readouterr().err
    assert "study test: it ends here; its whole cap counts as spent" in asked
    assert "lifetime cap of ward, unit record: epsilon 20 at delta 1e-05 is charged in full" in asked
    assert not there.path.exists()
    assert call("home", "restore", tmp_path / "b.conclave", "--yes", home=there) == 0
    said = capsys.readouterr().out
    assert "study test: it ends at this node; its whole cap counts as spent" in said
    assert "epsilon 20 at delta 1e-05 is charged in full" in said
    assert use(there).share == 1.0
    assert answers(there) == []
    assert call("budget", "show", home=there) == 0
    shown = capsys.readouterr().out
    cap, used = re.search(r"whole cap counts as spent\); budget used: epsilon at most (\S+) of (\S+)", shown).groups()
    assert cap == used
    assert approve(STUDY, there, tmp_path) == Exit.REFUSED
    assert refusal(capsys) == "withdrawn"
    assert call("train", "test", home=there) == Exit.REFUSED
    assert refusal(capsys) == "withdrawn"
    assert approve(OTHER, there, tmp_path) == Exit.BUDGET
    assert refusal(capsys) == "lifetime_forfeited"
    assert call("withdraw", "test", "--yes", home=there) == 0
    assert use(there).share == 1.0
    assert works_for_other_patients(there, tmp_path)


def test_a_move_that_is_cut_short_leaves_one_home(home, tmp_path, monkeypatch):
    write, file = keeping.write_archive, tmp_path / "m.conclave"

    def full(*given, **how):
        assert home.moved.exists(), "retired before there is an archive"
        write(*given, **how)  # it has its name, and its folder is not flushed
        raise StorageFailed("cannot write; free space")

    monkeypatch.setattr("party.keeping.write_archive", full)
    assert call("home", "move", file, "--yes", home=home) == Exit.STORAGE
    assert not file.exists()
    assert call("budget", "show", home=home) == 0


def test_a_moved_home_whose_policy_lay_elsewhere_is_not_restored_without_it(apart, tmp_path, capsys):
    elsewhere = apart.settings().policy
    assert call("home", "move", tmp_path / "m.conclave", "--yes", home=apart) == 0
    kept = elsewhere.rename(tmp_path / "another machine's")
    assert call("home", "restore", tmp_path / "m.conclave", home=PartyHome(tmp_path / "there")) != 0
    assert f"{elsewhere} does not exist" in capsys.readouterr().err
    assert not elsewhere.exists()
    kept.rename(elsewhere)
    (tmp_path / "m.conclave.restored").rename(tmp_path / "m.conclave")
    there = PartyHome(tmp_path / "again")
    assert call("home", "restore", tmp_path / "m.conclave", home=there) == 0
    assert 0 < use(there).share < 1.0


@pytest.mark.parametrize("lost", ["deleted", "damaged", "older"])
def test_a_ledger_that_is_lost_ends_its_study_and_all_it_ever_reserved_is_charged(home, tmp_path, capsys, lost):
    ledger = home.ledger(STUDY.digest, SEAT)
    lose(ledger, lost, older=None)
    if lost == "older":
        Ledger(ledger).close()
    if lost == "damaged":
        with refuses(StorageFailed, "conclave-party home repair"):
            answers(home)
    else:
        assert answers(home) == []
    assert call("home", "repair", "--yes", home=home) == 0
    assert "all that it ever reserved is charged" in capsys.readouterr().out
    assert 0 < use(home).share < 0.5
    assert not home.teachers(STUDY.digest, SEAT).exists()
    assert approve(OTHER, home, tmp_path) == 0
    assert call("home", "repair", "--yes", home=home) == 0
    assert "nothing is lost here" in capsys.readouterr().out


@pytest.mark.parametrize("lost", ["deleted", "damaged", "older"])
def test_a_policy_that_is_lost_ends_all_studies_and_charges_the_caps_in_full(
    original, home, tmp_path, capsys, monkeypatch, lost
):
    if lost == "older":
        spent(home, [1])
    lose(home.settings().policy, lost, older=original[0].settings().policy)
    if lost != "damaged":
        with refused_for("policy_rolled_back"):
            answers(home)
        assert call("budget", "show", home=home) == Exit.REFUSED
        assert refusal(capsys) == "policy_rolled_back"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert call("home", "repair", home=home) == Exit.REFUSED
    assert "charge its lifetime caps in full" in capsys.readouterr().err
    assert call("home", "repair", "--yes", home=home) == 0
    assert "policy.sqlite was lost, or is an older copy" in capsys.readouterr().out
    assert use(home).share == 1.0
    assert call("budget", "show", "--json", home=home) == 0
    (seat,) = json.loads(capsys.readouterr().out)["seats"]
    assert seat["epsilon_used"] == seat["epsilon_cap"]
    assert answers(home) == []
    assert approve(STUDY, home, tmp_path) == Exit.REFUSED
    assert refusal(capsys) == "withdrawn"
    assert works_for_other_patients(home, tmp_path)


def test_a_key_that_is_lost_is_one_message_and_a_new_one_keeps_budgets(original, home, tmp_path, capsys):
    before = use(home)
    home.key.unlink()
    assert call("run", home=home) == Exit.INVALID_INPUT
    assert f"conclave-party init --home {home.path} INVITATION.toml --new-key" in capsys.readouterr().err
    assert call("init", write_invitation(tmp_path / "i.toml", original[1]), "--new-key", home=home) == 0
    assert home.open_key()
    assert use(home) == before
    assert answers(home) == [SEAT]


def test_a_lost_home_id_is_written_anew_as_the_policy_knows_it(home, capsys):
    known = home.identity
    (home.path / "home.id").unlink()
    assert answers(home) == []
    assert call("home", "repair", "--yes", home=home) == 0
    assert "home.id was lost" in capsys.readouterr().out
    assert home.identity == known
    assert answers(home) == [SEAT]


@pytest.mark.parametrize("trains", [False, True])
def test_a_withdrawal_deletes_the_teachers_and_keeps_the_evidence(home, monkeypatch, capsys, trains):
    def withdraw(*given):
        assert call("withdraw", "test", "--yes", home=home) == 0
        return write(*given) if given else None

    write = training.write_teachers
    monkeypatch.setattr(training, "write_teachers", withdraw)
    if trains:  # teachers are ready after it
        home.forget_teachers(STUDY.digest, SEAT)
        assert call("train", "test", home=home) == Exit.REFUSED
    else:
        assert home.teachers(STUDY.digest, SEAT).exists()
        withdraw()
    assert not home.teachers(STUDY.digest, SEAT).exists()
    assert home.ledger(STUDY.digest, SEAT).exists()
    assert "teachers were deleted" in capsys.readouterr().out


def test_a_sealed_backup_opens_with_its_passphrase_alone(home, tmp_path, capsys, monkeypatch):
    file, there = tmp_path / "b.conclave", PartyHome(tmp_path / "there")
    monkeypatch.setenv("CONCLAVE_PASSPHRASE", "correct horse")
    assert call("home", "backup", file, "--encrypt", home=home) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE KEY" not in file.read_bytes()
    monkeypatch.setenv("CONCLAVE_PASSPHRASE", "wrong")
    assert call("home", "restore", file, home=there) == Exit.REFUSED
    assert refusal(capsys) == "key_locked"
    assert not there.path.exists()
    monkeypatch.delenv("CONCLAVE_PASSPHRASE")
    (tmp_path / "secret").write_text("correct horse\n")
    monkeypatch.setenv("CONCLAVE_PASSPHRASE_COMMAND", f"cat {tmp_path / 'secret'}")
    assert call("home", "restore", file, "--yes", home=there) == 0


def shown(home, capsys, *command):
    """What a command says as JSON, the code of the error that it ends with, and its exit code."""
    capsys.readouterr()
    code = call(*command, "--json", home=home)
    out, err = capsys.readouterr()
    return json.loads(out), err.split("error [")[1].split("]")[0] if "error [" in err else "", code


def page(home):
    """What the live page shows of the seats, and what needs a person."""
    with Policy(home.settings().policy) as policy:
        answering = Answering(home, home.settings(), policy, party=SEAT, on_event=lambda *_: None)
        state = node_state(home, home.invitation(), policy, answering.seats, Recent())
        for seat, _ in answering._open.values():
            seat.ledger.close()
        return state.seats, needs_of(state)


@pytest.mark.parametrize(
    ("lost", "said"),
    [("deleted", "ledger_rolled_back"), ("older", "ledger_rolled_back"), ("damaged", "storage_failed")],
)
def test_where_a_ledger_is_gone_or_old_every_command_names_the_same_upper_bound(
    original, home, tmp_path, capsys, lost, said
):
    real = spending(STUDY, SEAT, spent(home, [1])).epsilon_used
    lose(home.ledger(STUDY.digest, SEAT), lost, older=original[0].ledger(STUDY.digest, SEAT))
    found, code, exit_code = shown(home, capsys, "budget", "show")
    (row,) = found["seats"]
    assert (row["bound"], row["answers_left"], code) == ("at most", 0, said)
    assert exit_code == (Exit.STORAGE if lost == "damaged" else Exit.REFUSED)
    assert row["epsilon_cap"] > row["epsilon_used"] >= real
    assert call("budget", "show", home=home) == exit_code
    assert f"at most {row['epsilon_used']:.2g}"[:10] in capsys.readouterr().out
    checked, _, exit_code = shown(home, capsys, "verify")
    assert exit_code == Exit.VERIFICATION
    assert {each["code"] for each in checked["findings"]} == {said}
    assert [(each["bound"], each["epsilon_used"]) for each in checked["seats"]] == [("at most", row["epsilon_used"])]
    assert not last_audit(home).holds
    (seat,), needs = page(home)
    assert (seat.bound, seat.left, seat.reserved) == ("at most", 0, row["epsilon_used"])
    assert any("conclave-party home repair" in each for each in needs)
    for command in (["approve", study_file(tmp_path, STUDY), "--yes"], ["train", "test"]):
        capsys.readouterr()
        assert call(*command, home=home) in (Exit.REFUSED, Exit.STORAGE)
        out, err = capsys.readouterr()
        assert f"error [{said}]" in err
        assert "conclave-party run" not in out + err


def test_the_ledger_of_a_study_that_was_approved_and_never_asked_is_missed_too(home, tmp_path, capsys):
    assert approve(SMALL, home, tmp_path) == 0
    home.ledger(SMALL.digest, SEAT).unlink()
    assert answers(home) == [SEAT]  # of the first study
    assert approve(SMALL, home, tmp_path) == Exit.REFUSED
    assert refusal(capsys) == "ledger_rolled_back"
    found, code, _ = shown(home, capsys, "budget", "show")
    rows = {each["study"]: each for each in found["seats"]}
    assert (rows["small"]["bound"], rows["small"]["epsilon_used"], code) == ("at most", 0.0, "ledger_rolled_back")
    assert (rows["test"]["bound"], call("verify", "small", home=home)) == ("exactly", Exit.VERIFICATION)


@pytest.mark.parametrize("lost", ["deleted", "older"])
def test_where_the_policy_is_gone_or_old_only_a_lower_bound_is_known(original, home, tmp_path, capsys, lost):
    real = spending(STUDY, SEAT, spent(home, [1])).epsilon_used
    lose(home.settings().policy, lost, older=original[0].settings().policy)
    found, code, exit_code = shown(home, capsys, "budget", "show")
    (row,) = found["seats"]
    assert (row["bound"], row["answers_left"], code, exit_code) == ("at least", 0, "policy_rolled_back", Exit.REFUSED)
    assert row["epsilon_used"] == pytest.approx(real)
    assert {each["bound"] for each in found["lifetime"]} == ({"at least"} if lost == "older" else set())
    checked, _, exit_code = shown(home, capsys, "verify")
    assert exit_code == Exit.VERIFICATION
    assert {each["code"] for each in checked["findings"]} == {"policy_rolled_back"}
    assert [each["bound"] for each in checked["seats"]] == ["at least"]
    # Nor does `approve` show what would be left of a cap that is not known.
    assert approve(replace(STUDY, name="third"), home, tmp_path) == Exit.REFUSED
    out, err = capsys.readouterr()
    assert ("error [policy_rolled_back]" in err, "is reserved" in out) == (True, False)


def test_a_whole_home_is_exact_everywhere(home, capsys):
    real = spending(STUDY, SEAT, spent(home, [1])).epsilon_used
    found, code, exit_code = shown(home, capsys, "budget", "show")
    assert [(each["bound"], each["epsilon_used"]) for each in found["seats"]] == [("exactly", pytest.approx(real))]
    assert ({each["bound"] for each in found["lifetime"]}, code, exit_code) == ({"exactly"}, "", 0)
    (seat,), needs = page(home)
    assert (seat.bound, seat.reserved, needs) == ("exactly", pytest.approx(real), [])
    assert shown(home, capsys, "verify")[0]["findings"] == []


@pytest.fixture
def apart(home, tmp_path):
    """The home as the how-to recommends it: its policy lies on another disk."""
    elsewhere = tmp_path / "another disk" / "policy.sqlite"
    elsewhere.parent.mkdir(mode=0o700)
    home.settings().policy.rename(elsewhere)
    text = home.settings_file.read_text()
    home.settings_file.write_text(text.replace('policy = "policy.sqlite"', f'policy = "{elsewhere}"'))
    return home


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_backup_is_restored_beside_a_policy_that_knows_of_a_later_study(
    apart, tmp_path, capsys, monkeypatch, asked, cut
):
    alone = use(apart).reserved
    file, there = tmp_path / "b.conclave", PartyHome(tmp_path / "there")
    assert call("home", "backup", file, home=apart) == 0
    spent(apart, [1])
    assert approve(SMALL, apart, tmp_path) == 0
    both = use(apart).reserved
    assert call("train", "small", home=apart) == 0
    if asked:
        with Policy(apart.settings().policy) as policy:
            answered((apart, apart.settings(), SMALL, policy), [0])
    shutil.rmtree(apart.path)
    if cut:  # after the policy was changed

        def killed(*arguments, **more):
            repair(*arguments, **more)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(keeping, "repair", killed)
            assert call("home", "restore", file, "--yes", home=there) == Exit.INTERRUPTED
        shutil.rmtree(there.path)
        file.with_name("b.conclave.restored").rename(file)
    assert call("home", "restore", file, "--yes", home=there) == 0
    assert not there.restoring.exists()
    left = use(there).reserved
    assert 0 < left - (both - alone if asked else 0) < alone
    assert answers(there) == []
    found, code, exit_code = shown(there, capsys, "budget", "show")
    assert [(each["study"], each["bound"], each["withdrawn"]) for each in found["seats"]] == [("test", "at most", True)]
    assert (found["lost"], code, exit_code) == ([{"study": "small", "withdrawn": True}], "", 0)
    assert approve(SMALL, there, tmp_path) == Exit.REFUSED
    assert refusal(capsys) == "withdrawn"
    assert call("home", "repair", "--yes", home=there) == 0
    assert "nothing is lost here" in capsys.readouterr().out
    assert approve(replace(STUDY, name="third"), there, tmp_path) == 0


def test_a_damaged_policy_outside_the_home_is_set_aside_where_it_lies(apart, tmp_path):
    file, there, policy = tmp_path / "b.conclave", PartyHome(tmp_path / "there"), apart.settings().policy
    assert call("home", "backup", file, home=apart) == 0
    policy.write_bytes(b"no database at all" * 1000)
    assert call("home", "restore", file, "--yes", home=there) == 0
    assert use(there).share == 1.0
    assert [each.name for each in policy.parent.glob("forfeited/*/policy.sqlite")] == ["policy.sqlite"]
    assert works_for_other_patients(there, tmp_path)


@pytest.mark.parametrize("lost", ["deleted", "damaged"])
def test_a_study_whose_file_is_lost_is_named_and_ends_when_the_home_is_mended(home, tmp_path, capsys, lost):
    assert approve(SMALL, home, tmp_path) == 0
    file = home.study_folder(SMALL.digest) / "study.toml"
    file.unlink() if lost == "deleted" else file.write_text("name = ")
    found, code, exit_code = shown(home, capsys, "budget", "show")
    assert found["lost"] == [{"study": "small", "withdrawn": False}]
    assert (code, exit_code) == ("storage_failed", Exit.STORAGE)
    assert shown(home, capsys, "verify")[2] == Exit.VERIFICATION
    assert call("home", "backup", tmp_path / "b.conclave", home=home) == 0
    assert call("home", "restore", tmp_path / "b.conclave", "--yes", home=PartyHome(tmp_path / "there")) == 0
    assert call("home", "repair", "--yes", home=home) == 0
    assert answers(home) == [SEAT]
    assert shown(home, capsys, "budget", "show")[1:] == ("", 0)


def test_a_study_whose_file_is_lost_goes_on_where_it_is_approved_again(home, tmp_path):
    home.study_folder(STUDY.digest).joinpath("study.toml").unlink()
    assert answers(home) == []
    assert approve(STUDY, home, tmp_path) == 0
    assert answers(home) == [SEAT]
