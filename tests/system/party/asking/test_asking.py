"""A hospital asks over real gRPC on loopback: hub, nodes, guardian; and the command, with labels, report and errors."""

from __future__ import annotations

import csv
import json
import threading
from dataclasses import replace

import numpy as np
import pytest

import party.asking.asking
from coordinator.connection.relayed_budgets import at_most
from party.asking.asking import Relayed, ask, reserved
from party.budget.policy import Policy
from party.commands.ask import check_complete
from party.commands.group import run_command
from party.connection.dialling import RelayLine
from party.home import PartyHome
from party.lifetime import LifetimeCap
from protocols.crypto.identity import new_key
from protocols.errors import InvalidInput, Refused, Unreachable
from protocols.labelling.coordinator import Labelling
from protocols.labelling.schedule import Stop
from protocols.ledger.ledger import Ledger
from protocols.study.file import write_study
from protocols.votes import NOT_ASKED
from protocols.wire.messages import Outcome, Refusal, StepReply, StepRequest
from tests.harness.askers import AskedConsortium, asked_study
from tests.harness.clocks import wait_until
from tests.harness.homes import make_member, write_records
from tests.harness.pages import OUTPUTS, keys, names_of, section

STUDY = asked_study()
COUNT = np.array([4], dtype=np.int64)


def queries(count=20):
    """Tables' rows whose first feature says the class, clearly."""
    values = np.random.default_rng(5).uniform(-4, 4, (count, 4)).astype(np.float32)
    values[:, 0] += np.sign(values[:, 0])
    return values


@pytest.fixture
def consortium(tmp_path):
    with AskedConsortium(STUDY, tmp_path) as made:
        made.start_all()
        yield made


def test_labels_come_back_to_the_asker_and_every_ledger_says_the_same(consortium, tmp_path):
    asked = queries()
    own = tmp_path / "asked.sqlite"
    got = ask(STUDY, asked, consortium.line(), ledger=own, on_batch=lambda *_: None)
    assert got.stop.reason == "pool_exhausted"
    assert not got.refusals
    assert not got.ledger_differences
    # Of 20 labels that are right with probability 0.89 or more, 12 are but for once in 50,000 runs.
    assert (got.labels == (asked[:, 0] > 0)).sum() >= 12
    spent = got.spent.tolist()
    assert [consortium.ledgers[seat.party].balance(seat.party).spent for seat in STUDY.roster] == spent
    assert [consortium.guardian_ledger.balance(seat.party).spent for seat in STUDY.roster] == spent
    # The operator, who has no ledger of it, knows as much from what passed.
    known, queries_asked, batches = at_most(consortium.ledger, STUDY)
    assert (known.tolist(), queries_asked, batches) == (spent, 20, len(got.batches))
    # Evidence: requests and outcomes at each node, receipts at the operator and at the asker.
    batches = len(got.batches)
    for name, ledger in consortium.ledgers.items():
        kinds = [kind for _, _, kind, _ in ledger.log.evidence()]
        assert kinds.count("request") == kinds.count("outcome") == batches, name
    assert sum(kind == "settled" for _, _, kind, _ in consortium.ledger.log.evidence()) == 3 * batches
    with Ledger(own) as ledger:
        assert sum(kind == "settled" for _, _, kind, _ in ledger.log.evidence()) == 3 * batches
    # Asked again, the labels are those that were stored.
    again = ask(STUDY, asked, consortium.line(), ledger=own, on_batch=lambda *_: None)
    np.testing.assert_array_equal(again.labels, got.labels)
    assert again.spent.tolist() == spent


def test_an_absent_node_is_named_settles_nothing_more_and_the_rest_goes_on(consortium, tmp_path):
    consortium.stop_node("hospital-2")
    consortium.unawaited.add("hospital-2")
    study = consortium.study
    got = ask(study, queries(10), consortium.line(), ledger=tmp_path / "a.sqlite", on_batch=lambda *_: None)
    assert got.refusals == {"hospital-2": "absent"}
    assert (got.labels >= 0).all()
    assert consortium.ledgers["hospital-2"].balance("hospital-2").spent == 0


@pytest.fixture
def relayed(monkeypatch):
    """What was relayed to parties."""
    seen, real = [], Relayed.__call__

    def noted(self, requests):
        seen.append(dict(requests))
        return real(self, requests)

    monkeypatch.setattr(Relayed, "__call__", noted)
    return seen


def test_a_guardian_that_is_absent_or_not_the_studys_is_found_before_anything_is_asked_or_kept(
    consortium, tmp_path, relayed
):
    own, line = tmp_path / "a.sqlite", consortium.line()
    with pytest.raises(Refused) as refused:
        ask(STUDY, queries(10), replace(line, guardian=consortium.address), ledger=own, on_batch=lambda *_: None)
    assert refused.value.code == "wrong_role"
    consortium.port.stop()
    with pytest.raises(Unreachable, match=f"the guardian at {line.guardian} does not answer.*nothing was asked"):
        ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    consortium.start_guardian(line.guardian, name="another-notary")
    with pytest.raises(Refused) as refused:
        ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert refused.value.code == "wrong_guardian"
    assert not own.exists()
    assert not relayed
    # Nothing was pinned either: other records may be asked about.
    consortium.port.stop()
    consortium.start_guardian(line.guardian)
    got = ask(STUDY, queries(10)[::-1], line, ledger=own, on_batch=lambda *_: None)
    assert (got.labels >= 0).all()


def test_a_guardian_that_leaves_costs_nothing_and_asking_again_goes_on(consortium, tmp_path, relayed):
    own, line = tmp_path / "a.sqlite", consortium.line()
    got = ask(STUDY, queries(8), line, ledger=own, on_batch=lambda *_: consortium.port.stop())
    assert got.stop.reason == "pool_exhausted"
    passed_before = len(relayed)
    again = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert again.stop.reason == "guardian_lost"
    assert again.labels.tolist() == [*got.labels.tolist(), NOT_ASKED, NOT_ASKED]
    assert again.spent.tolist() == got.spent.tolist()
    assert len(relayed) == passed_before
    # What was labelled needs no guardian to be read.
    assert ask(STUDY, queries(8), line, ledger=own, on_batch=lambda *_: None).stop.reason == "pool_exhausted"
    consortium.start_guardian(line.guardian)
    got = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert (got.labels >= 0).all()


def test_a_guardian_that_goes_between_the_check_and_the_batch_leaves_a_reservation(consortium, tmp_path, monkeypatch):
    own, line = tmp_path / "a.sqlite", consortium.line()
    with monkeypatch.context() as leaving:
        leaving.setattr(party.asking.asking, "check_same_queries", lambda *_: consortium.port.stop())
        got = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert reserved(STUDY, own).tolist() == got.spent.tolist()
    assert got.spent.all()
    assert got.stop.reason == "guardian_lost"
    assert all(ledger.balance(name).spent == 0 for name, ledger in consortium.ledgers.items())
    consortium.start_guardian(line.guardian)
    got = ask(STUDY, queries(10), line, ledger=own, on_batch=lambda *_: None)
    assert (got.labels >= 0).all()


def passed(consortium, line, seat="hospital-0", study=STUDY, request=None, folder=None):
    """What comes back for one step of a party."""
    step = request or StepRequest(study.digest, bytes(32), "architecture", (COUNT,))
    with (
        Ledger(":memory:") as own,
        RelayLine(address=line.hub, key=line.key, certificate=line.certificate, authority=line.authority) as relay,
    ):
        return Relayed(study, line, own, relay)({seat: step})[seat]


def test_the_relay_serves_the_querier_of_the_study_alone(consortium):
    assert isinstance(passed(consortium, consortium.line()), StepReply)
    with pytest.raises(Refused) as refused:
        passed(consortium, consortium.line(name="hospital-0", key=new_key()))
    assert refused.value.code == "not_querier"
    consortium.denied["asker"] = "it left"
    with pytest.raises(Refused) as refused:
        passed(consortium, consortium.line())
    assert refused.value.code == "revoked"


def test_the_relay_refuses_other_studies_seats_and_replies_that_come_as_requests(consortium):
    line = consortium.line()
    for changes, code in (
        ({"study": asked_study(name="other")}, "unknown_study"),
        ({"seat": "hospital-9"}, "wrong_seat"),
        ({"request": StepReply(bytes(32), "architecture", ())}, "malformed"),
        ({"request": StepRequest(bytes(32), bytes(32), "architecture", (COUNT,))}, "malformed"),
    ):
        with pytest.raises(Refused) as refused:
            passed(consortium, line, **changes)
        assert refused.value.code == code


def test_a_party_refuses_what_it_would_refuse_from_its_operator(consortium):
    many = StepRequest(STUDY.digest, bytes(32), "architecture", (np.array([9], dtype=np.int64),))
    reply = passed(consortium, consortium.line(), request=many)
    assert isinstance(reply, Refusal)
    assert reply.code == "batch_too_large"


def test_one_that_was_away_is_told_when_it_is_back_and_its_receipt_is_kept_once(consortium, tmp_path, monkeypatch):
    real = Relayed.__call__

    def away(self, requests):
        if isinstance(next(iter(requests.values())), Outcome) and "hospital-2" in consortium.threads:
            consortium.stop_node("hospital-2")
            consortium.unawaited.add("hospital-2")
        return real(self, requests)

    monkeypatch.setattr(Relayed, "__call__", away)
    own = tmp_path / "a.sqlite"
    got = ask(STUDY, queries(8), consortium.line(), ledger=own, on_batch=lambda *_: None)
    # Nobody told it: its reservation stands, and is what was due.
    assert consortium.ledgers["hospital-2"].balance("hospital-2").reserved == got.spent[2] > 0
    assert at_most(consortium.ledger, STUDY)[0][2] == consortium.ledgers["hospital-2"].balance("hospital-2").spent
    digest = consortium.ledgers["hospital-2"].stored(0).digest
    assert consortium.ledger.noted(digest, "relayed_settled hospital-2") is None
    assert len(consortium.ledger.log.evidence()) == 4
    for _ in range(2):
        consortium.start_node("hospital-2")
        wait_until(lambda: consortium.ledger.noted(digest, "relayed_settled hospital-2") is not None)
        assert consortium.ledgers["hospital-2"].balance("hospital-2").spent == got.spent[2]
        assert len(consortium.ledger.log.evidence()) == 6
        consortium.stop_node("hospital-2")


class SilentRelay:
    """A party's answer that never comes, until the line is closed."""

    def __init__(self):
        self.closed = threading.Event()
        self.close = self.closed.set

    def passed(self, frame, *, timeout_s):
        self.closed.wait(timeout=300)


def test_ctrl_c_while_requests_are_being_sent_waits_for_no_answer(consortium):
    class Interrupted(dict):
        def __iter__(self):
            yield "hospital-0"
            raise KeyboardInterrupt

    relay = SilentRelay()
    step = StepRequest(STUDY.digest, bytes(32), "architecture", (COUNT,))
    with Ledger(":memory:") as own, pytest.raises(KeyboardInterrupt):
        Relayed(STUDY, consortium.line(), own, relay)(Interrupted({"hospital-0": step}))
    assert relay.closed.is_set()


def test_without_the_operator_the_command_says_so(consortium, tmp_path):
    line = consortium.line()
    consortium.hub.stop()
    with pytest.raises(Unreachable):
        ask(STUDY, queries(5), line, ledger=tmp_path / "a.sqlite", on_batch=lambda *_: None)
    consortium.start_hub("other.sqlite")


@pytest.fixture
def place(consortium, tmp_path):
    """(home of the asker, study file, queries file, test file, consortium)."""
    home = make_member(tmp_path / "asker", consortium, party="asker", teacher="logistic_regression")
    file = tmp_path / "study.toml"
    file.write_text(write_study(STUDY))
    table = tmp_path / "new.csv"
    with table.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["f3", "f2", "f1", "f0"])
        writer.writerows(row[::-1].tolist() for row in queries(20))
    return home, file, table, write_records(tmp_path / "test.csv", seed=9)


def read(out):
    """The rows of a table of labels."""
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def assert_nothing_spent_and_some_reserved(out):
    parties = json.loads(out.with_suffix(".report.json").read_text())["parties"]
    assert {each["epsilon_used"] for each in parties} == {0}
    (reserved,) = {each["epsilon_reserved"] for each in parties}
    assert 0 < reserved <= 45
    said = f"have spent epsilon 0 of the 45 that they allow in this study, at delta 1e-05; at most {reserved:.3g} more"
    for ending in ("md", "html"):
        assert said in out.with_suffix(f".report.{ending}").read_text()


def command(place, consortium, *more, study=None):
    home, file, table, _ = place
    words = ["ask", str(study or file), "--queries", str(table), "--guardian", consortium.guardian]
    return run_command([*words, "--home", str(home.path), *more])


def test_the_command_writes_labels_and_a_report_for_their_owner_alone(place, consortium, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    test = str(place[3])
    code = command(place, consortium, "--out", str(out), "--model", "logistic_regression", "--test", test, "--json")
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    rows = read(out)
    assert [row["row"] for row in rows] == [str(number) for number in range(1, 21)]
    right = [
        row["label"] == ("right" if query[0] > 0 else "left") for row, query in zip(rows, queries(20), strict=True)
    ]
    assert np.mean(right) > 0.7
    assert {row["state"] for row in rows} == {"answered"}
    report = json.loads((tmp_path / "labels.report.json").read_text())
    assert report == printed
    described = names_of(section(OUTPUTS, "labels.report.json")) - {"improvement"}
    # Names of classes and of parties are the study's.
    assert keys(report | {"classes": None, "left_out": None}) == described
    assert {*rows[0]} == names_of(section(OUTPUTS, "labels.csv"))
    written = {path.name for path in tmp_path.glob("labels.*")}
    assert written == names_of(section(OUTPUTS, "What a hospital asked"))
    assert report["answered"] == report["asked"] == report["queries"] == 20
    assert sum(report["classes"].values()) == 20
    assert report["improvement"]["answered"] == 20
    assert 0.5 < report["improvement"]["accuracy_before"] <= 1
    assert all(0 < each["epsilon_used"] <= each["epsilon_cap"] for each in report["parties"])
    assert {each["epsilon_reserved"] for each in report["parties"]} == {0}
    assert "before" in (tmp_path / "labels.report.md").read_text()
    assert "before" in (tmp_path / "labels.report.html").read_text()
    for name in ("labels.csv", "labels.report.json", "labels.report.md", "labels.report.html"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    # By its name now, and nothing is charged again.
    assert command(place, consortium, "--out", str(out), "--json", study="heart") == 0
    assert json.loads(capsys.readouterr().out)["parties"] == report["parties"]


def test_the_command_names_what_is_wrong(place, consortium, tmp_path, capsys):
    home, _, table, _ = place
    other = tmp_path / "other.toml"
    other.write_text(write_study(asked_study(querier="somebody-else", name="other")))
    assert command(place, consortium, study=other) == 4
    assert "error [not_querier]" in capsys.readouterr().err
    assert command(place, consortium, "--model", "mlp") == 2
    assert "--model and --test together" in capsys.readouterr().err
    many = tmp_path / "many.npy"
    np.save(many, queries(21))
    for more, message in (
        (("--out", str(table)), "would overwrite --queries"),
        (("--out", str(tmp_path / "nowhere" / "labels.csv")), "allowed: a file in a folder that exists"),
        (("--model", "oracle", "--test", str(place[3])), "--model is 'oracle'; allowed: cnn"),
        (("--model", "mlp", "--test", str(tmp_path / "nothing.csv")), "--test"),
        (("--queries", str(many)), f"--queries {many} has 21 records; allowed: at most 20"),
        (("--queries", str(tmp_path / "nothing.csv")), "--queries"),
    ):
        assert command(place, consortium, *more) == 3
        said = capsys.readouterr().err
        assert message in said
        assert "are asked about" not in said
        assert "node.toml" not in said
    own = home.settings().data.path
    assert command(place, consortium, "--out", str(own)) == 3
    assert f"would overwrite the records of node.toml {own}" in capsys.readouterr().err
    assert command(place, consortium, study="centre/nowhere/study.toml") == 3
    assert "error [data_unavailable]: centre/nowhere/study.toml does not exist" in capsys.readouterr().err
    assert all(ledger.balance(name).spent == 0 for name, ledger in consortium.ledgers.items())
    table.write_text("f0,f1,f2,f3\n1,2,3,99\n")
    assert command(place, consortium) == 3
    assert "1 of 1 queries have values outside the allowed -8 to 8" in capsys.readouterr().err
    table.write_text("f0,f1,f2\n1,2,3\n")
    assert command(place, consortium) == 3
    assert "column 'f3' occurs 0 times" in capsys.readouterr().err
    PartyHome(home.path).certificate.unlink()
    assert command(place, consortium) == 4
    assert "error [not_enrolled]" in capsys.readouterr().err


def test_too_few_parties_stop_the_command_which_goes_on_later(place, consortium, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    for name in ("hospital-1", "hospital-2"):
        consortium.stop_node(name)
        consortium.unawaited.add(name)
    assert command(place, consortium, "--out", str(out)) == 4
    said = capsys.readouterr().err
    assert "error [quorum_lost]: too few parties answered: hospital-1, hospital-2 did not answer\n" in said
    assert {row["state"] for row in read(out)} == {"not_asked"}
    assert_nothing_spent_and_some_reserved(out)
    consortium.unawaited.remove("hospital-1")
    consortium.start_node("hospital-1")
    consortium.hub.wait_for(frozenset({"hospital-0", "hospital-1"}), timeout_s=300)
    assert command(place, consortium, "--out", str(out)) == 0
    assert {row["state"] for row in read(out)} == {"answered"}


def test_without_the_guardian_the_command_says_where_it_looked_and_goes_on_later(place, consortium, tmp_path, capsys):
    out = tmp_path / "labels.csv"
    assert command(place, consortium, "--out", str(out), "--guardian", consortium.address) == 4
    said = capsys.readouterr().err
    assert "error [wrong_role]" in said
    assert "next: correct the address" in said
    consortium.port.stop()
    assert command(place, consortium, "--out", str(out)) == 7
    said = capsys.readouterr().err
    assert f"error [unreachable]: the guardian at {consortium.guardian} does not answer" in said
    assert "nothing was asked" in said
    assert not out.exists()
    consortium.start_guardian(consortium.guardian)
    assert command(place, consortium, "--out", str(out)) == 0
    assert {row["state"] for row in read(out)} == {"answered"}


def test_who_refuses_is_told_from_who_did_not_come():
    refusals = {"hospital-2": "absent", "hospital-0": "unknown_study", "hospital-1": "absent"}
    stop = Stop("quorum_lost", np.zeros(3, dtype=bool))
    given = Labelling(np.full(2, NOT_ASKED), [], stop, np.zeros(3, dtype=np.int64), refusals=refusals)
    with pytest.raises(Refused, match=r"hospital-1, hospital-2 did not answer; hospital-0 \(unknown_study\) refused$"):
        check_complete(given, "127.0.0.1:7003")


def test_a_guardian_that_leaves_is_said_to_be_gone_and_its_batch_to_be_reserved(
    place, consortium, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "labels.csv"
    with monkeypatch.context() as leaving:
        leaving.setattr(party.asking.asking, "check_same_queries", lambda *_: consortium.port.stop())
        assert command(place, consortium, "--out", str(out)) == 7
    said = capsys.readouterr()
    assert f"error [unreachable]: the guardian at {consortium.guardian} does not answer" in said.err
    assert "run the same command to continue" in said.err
    assert {row["state"] for row in read(out)} == {"not_asked"}
    assert_nothing_spent_and_some_reserved(out)
    assert "have spent epsilon 0 of the 45" in said.out
    consortium.start_guardian(consortium.guardian)
    assert command(place, consortium, "--out", str(out)) == 0
    assert {row["state"] for row in read(out)} == {"answered"}


def test_studies_of_two_askers_cannot_together_pass_a_data_sets_lifetime_cap(tmp_path):
    caps = {"record": LifetimeCap(12.0, 1e-5)}
    with Policy(":memory:") as policy:
        for querier in ("asker", "another-asker"):
            study = asked_study(querier=querier, name=f"of-{querier}", sigma=20.0, epsilon=5.0)
            policy.approve(study, party="hospital-0", data_set="ward", caps=caps, home=PartyHome(tmp_path))
        third = asked_study(querier="a-third", name="of-a-third", sigma=20.0, epsilon=9.0)
        with pytest.raises(Refused, match="lifetime_cap"):
            policy.approve(third, party="hospital-0", data_set="ward", caps=caps, home=PartyHome(tmp_path))


def test_more_queries_than_the_terms_allow_are_refused(consortium, tmp_path):
    with pytest.raises(InvalidInput, match="21 queries; allowed: at most 20"):
        ask(STUDY, queries(21), consortium.line(), ledger=tmp_path / "a.sqlite", on_batch=lambda *_: None)
