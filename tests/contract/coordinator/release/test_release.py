"""What a release holds, and that it is whole or absent."""

import datetime
import json
import re
import shutil
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from coordinator.labelling.training import train_student
from coordinator.release.evidence import collect
from coordinator.release.verify import verify_release
from party.audit import unnamed_before
from protocols.errors import DataCorrupt, InvalidInput, Refused, StorageFailed
from protocols.ledger.ledger import Ledger
from protocols.release.labels import labels_csv, read_labels
from protocols.study.file import read_study
from protocols.votes import ABSTAIN, NOT_ASKED
from protocols.wire.frames import Answer, read_frame, sign_frame
from protocols.wire.messages import Outcome, Settled, VoteReply, decode, encode
from tests.harness.consortium import Consortium as Deployed
from tests.harness.refusals import refused_for, refuses
from tests.harness.released import POOL, Consortium, labelled_study, release_of, small_study
from tests.harness.studies import deployed_study


def statement_of(folder):
    return json.loads((folder / "privacy.json").read_text())


def test_labels_and_study_are_those_that_were_labelled(signed):
    _, labelled, folder = signed
    labels, reinforced = read_labels(folder, classes=2)
    np.testing.assert_array_equal(labels, labelled.labels)
    assert (reinforced == ABSTAIN).all()
    assert read_study(folder / "study.toml") == labelled.study
    assert {ABSTAIN, 0, 1} <= set(labels.tolist())


def test_every_state_of_a_query_is_read_back(tmp_path):
    labels = np.array([0, ABSTAIN, 2, NOT_ASKED, ABSTAIN])
    reinforced = np.array([ABSTAIN, 1, ABSTAIN, ABSTAIN, ABSTAIN])
    (tmp_path / "labels.csv").write_text(labels_csv(labels, reinforced))
    back = read_labels(tmp_path, classes=3)
    np.testing.assert_array_equal(back[0], labels)
    np.testing.assert_array_equal(back[1], reinforced)
    with refuses(DataCorrupt, "class"):
        read_labels(tmp_path, classes=2)


def test_the_statement_says_all_that_section_5_asks_for(signed):
    _, labelled, folder = signed
    made, study = statement_of(folder), labelled.study
    assert [made["protected"][each] for each in ("unit", "adjacency", "view")] == ["record", "replace-one", "label"]
    assert made["mechanism"]["name"] == "confident_gnmax"
    assert made["mechanism"]["parameters"] == {"sigma": 6.0, "sigma_threshold": 12.0, "threshold": -2.0}
    assert [made["accounting"][each] for each in ("method", "publishable")] == ["worst_case_label_only", True]
    asked, answered = made["queries"]["asked"], made["queries"]["answered"]
    assert (asked, answered) == ((labelled.labels != NOT_ASKED).sum(), (labelled.labels >= 0).sum())
    assert made["queries"]["refused"] == asked - answered
    for position, seat in enumerate(made["seats"]):
        assert seat["guarantee"]["epsilon"] == study.budgets.epsilon_guaranteed[position]
        assert seat["guarantee"]["epsilon"] <= seat["epsilon_agreed"]
        assert seat["budget_used_reading"] <= seat["guarantee"]["epsilon"]
        assert seat["weight"] == study.roster[position].weight
    known = [row["guarantee"]["epsilon"] for row in made["several_hospitals"]["any"]]
    assert known[0] == pytest.approx(made["seats"][0]["guarantee"]["epsilon"], rel=1e-6)
    assert known[1] > known[0]
    assert all(made[part] for part in ("who_saw_what", "not_covered", "how_to_verify"))
    assert "votes" in made["who_saw_what"][0]["saw"]


def test_pages_are_of_one_piece_and_run_nothing(signed):
    for name in ("privacy.html", "report.html"):
        page = (signed[2] / name).read_text()
        assert "default-src 'none'" in page
        assert "<script" not in page
        assert "src=" not in page.replace("default-src", "").replace("img-src", "").replace("style-src", "")
    report = (signed[2] / "report.html").read_text()
    assert report.count('style="--share: ') == 1 + len(signed[1].batches)  # all used as much
    assert "hospital-1" in report


def test_no_frame_in_a_release_carries_votes(signed):
    consortium, labelled, folder = signed
    for kept in collect(labelled.ledger, study=labelled.study.digest).kept:
        role = "coordinator" if kept.kind == "outcome" else "party"
        now = datetime.datetime.now(datetime.UTC)
        frame, _ = read_frame(kept.signed, authority=consortium.authority, now=now, role=role)
        assert isinstance(decode(frame.envelope), Outcome if kept.kind == "outcome" else Settled)
    votes = encode(VoteReply(bytes(32), np.zeros((1, len(POOL)), dtype=np.int64)))
    assert votes[:8] not in b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("vote", [0, -5])  # the second is out of range: it does not decode
def test_a_frame_with_votes_among_the_evidence_ends_the_release(signed, tmp_path, vote):
    consortium = signed[0]
    labelled = consortium.label(small_study(name="leaky"))
    with Ledger(labelled.ledger) as ledger:
        rows = {(number, seat, kind): frame for number, seat, kind, frame in ledger.log.evidence()}
        now = datetime.datetime.now(datetime.UTC)
        receipt, _ = read_frame(rows[0, "hospital-0", "settled"], authority=consortium.authority, now=now, role="party")
        votes = encode(VoteReply(bytes(32), np.full((1, 3), vote, dtype=np.int64)))
        leak = Answer(receipt.nonce, 1, receipt.study, receipt.seat, receipt.own, receipt.seen, votes)
        signed_leak = sign_frame(
            leak, key=consortium.keys["hospital-0"], certificate=consortium.certificates["hospital-0"]
        )
        ledger.log._database.execute(
            "UPDATE evidence SET signed = ? WHERE number = 0 AND name = 'hospital-0' AND kind = 'settled'",
            (signed_leak,),
        )
    with pytest.raises(DataCorrupt, match="must not be published"):
        consortium.release(labelled, tmp_path / "leak")
    assert list(tmp_path.iterdir()) == []


def test_absences_are_stated_and_the_release_verifies(signed, tmp_path):
    consortium, rounds = signed[0], []

    def away(requests):
        first = next(iter(requests.values()))
        rounds.append(first)
        return frozenset({"hospital-2"}) if len(rounds) == 1 else frozenset()

    labelled = consortium.label(small_study(name="away", quorum=2), absent=away)
    made = statement_of(consortium.release(labelled, tmp_path / "away"))
    # It was also left out, by the harness, of later batches; in these it voted.
    assert made["during_the_study"]["left_out"] == {"hospital-2": [{"batch": 0, "why": "absent"}]}
    assert made["stated_by_the_coordinator"]["left_out"] == {"hospital-2": {"0": "absent"}}
    assert made["seats"][2]["budget_used_share"] < made["seats"][0]["budget_used_share"]


def test_an_outcome_that_did_not_arrive_is_a_missing_receipt(signed, tmp_path):
    consortium = signed[0]

    def away(requests):
        return frozenset({"hospital-0"}) if isinstance(next(iter(requests.values())), Outcome) else frozenset()

    labelled = consortium.label(small_study(name="lost"), absent=away)
    with refuses(Refused, "hospital-0", 0, 1, 3) as refused:
        consortium.release(labelled, tmp_path / "lost")
    assert refused.value.code == "unproven_charges"
    for needless in (["hospital-0", "hospital-1"], ["hospital-0", "nobody"]):
        with refuses(InvalidInput, "hospital-0"):
            consortium.release(labelled, tmp_path / "lost", unproven=needless)
    assert not (tmp_path / "lost").exists()
    folder = consortium.release(labelled, tmp_path / "lost", unproven=["hospital-0"])
    made = statement_of(folder)
    events = made["during_the_study"]
    assert set(events["receipts_missing"]) == {"hospital-0"}
    assert events["charges_unproven"] == {"hospital-0": [0, 1, 3]}
    assert made["stated_by_the_coordinator"]["unproven"] == ["hospital-0"]
    assert [seat["ledger"]["batches_unproven"] for seat in made["seats"]] == [3, 0, 0]
    assert "hospital-0: batches 0, 1, 3" in (folder / "privacy.html").read_text()
    checks = {check.name: check for check in verify_release(folder, None)}
    assert all(check.passed is not False for check in checks.values())
    assert "hospital-0" in checks["receipts"].message
    assert "unproven: hospital-0 (batches 0, 1, 3)" in checks["receipts cover every charge"].message
    assert "conclave-party verify" in checks["receipts cover every charge"].next_step


def test_a_receipt_covers_the_batches_before_it_whose_receipts_are_lost(signed, tmp_path):
    consortium, outcomes = signed[0], []

    def away(requests):
        if isinstance(next(iter(requests.values())), Outcome):
            outcomes.append(requests)
            return frozenset({"hospital-0"}) if len(outcomes) < 3 else frozenset()
        return frozenset()

    labelled = consortium.label(small_study(name="late"), absent=away)
    made = statement_of(consortium.release(labelled, tmp_path / "late"))
    assert made["during_the_study"]["receipts_missing"] == {"hospital-0": 2}
    assert made["during_the_study"]["charges_unproven"] == {}


def test_a_study_that_lost_its_quorum_says_what_was_charged_and_never_released(signed, tmp_path):
    consortium, rounds = signed[0], []

    def away(requests):
        rounds.append(requests)
        return frozenset(requests) if len(rounds) == 3 else frozenset()

    labelled = consortium.label(small_study(name="stopped", quorum=3), absent=away)
    assert labelled.stop == "quorum_lost"
    made = statement_of(consortium.release(labelled, tmp_path / "stopped"))
    assert made["during_the_study"]["batches_reserved_and_never_released"] == [1]
    assert made["queries"]["not_asked"] > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": "party", "teachers": 3, "epsilon": 8.0},
        {"mechanism": "gnmax", "sigma_threshold": None, "threshold": None, "account": "gaussian_dp"},
        {
            "mechanism": "lnmax", "sigma": None, "sigma_threshold": None, "threshold": None, "gamma": 0.2,
            "account": "laplace",
        },
        {"stop": "drop-exhausted", "participation": "periodic", "rates": [1.0, 0.5, 0.5], "epsilon": 3.0},
        {"classes": 3, "account": "gaussian"},
        {"mechanism": "thresholded_gnmax", "sigma_threshold": None, "threshold": 1.0, "account": "exact_composition"},
        {"participation": "secret", "rates": [0.5] * 3},
    ],
)  # fmt: skip
def test_other_studies_release_and_verify(signed, tmp_path, changes):
    consortium = signed[0]
    labelled = consortium.label(small_study(name="other", **changes))
    assert (labelled.labels >= 0).any()
    folder = consortium.release(labelled, tmp_path / "other", named=[["hospital-0", "hospital-2"]])
    assert [check for check in verify_release(folder, None) if check.passed is False] == []
    made = statement_of(folder)
    assert made["several_hospitals"]["named"][0]["hospitals"] == ["hospital-0", "hospital-2"]
    gone = {seat: each[-1]["why"] for seat, each in made["during_the_study"]["left_out"].items()}
    used_up = ["hospital-0", "hospital-1"] if labelled.study.votes.stop == "drop-exhausted" else []
    assert gone == dict.fromkeys(used_up, "budget_used_up")


def test_labels_that_an_interactive_study_reinforced_are_marked_as_the_students(signed, tmp_path):
    study = small_study(
        name="interactive", mechanism="interactive_gnmax", interactive_threshold=1.0, reinforce_confidence=0.9,
        round_one=12,
    )  # fmt: skip
    sure = np.where(POOL[:, :1] > 0, [[0.02, 0.98]], [[0.98, 0.02]])
    labelled = signed[0].label(study, train=lambda labels: sure)
    reinforced = int((labelled.reinforced >= 0).sum())
    assert reinforced > 0
    folder = signed[0].release(labelled, tmp_path / "interactive")
    assert statement_of(folder)["queries"]["reinforced_by_student"] == reinforced
    np.testing.assert_array_equal(read_labels(folder, classes=2)[1], labelled.reinforced)


def test_earlier_releases_are_composed_and_their_signatures_kept(signed, tmp_path):
    consortium, _, first = signed
    second = consortium.release(consortium.label(small_study(name="second")), tmp_path / "second", earlier=[first])
    third = consortium.release(
        consortium.label(small_study(name="third")), tmp_path / "third", earlier=[first / "privacy.json", second]
    )
    before = statement_of(third)["earlier_releases"]
    assert [each["name"] for each in before["releases"]] == ["left-or-right", "second"]
    row, single = before["parties"][0], statement_of(first)["seats"][0]["guarantee"]["epsilon"]
    assert (row["releases"], row["delta"]) == (3, pytest.approx(3e-5))
    assert single < row["epsilon"] < 3 * single
    assert [check for check in verify_release(third, None) if check.passed is False] == []
    forged = third / "evidence/earlier/001/privacy.json"
    forged.write_text(forged.read_text().replace('"epsilon": 4.99', '"epsilon": 1.99'))
    consortium.sign_again(third)
    failed = {check.name: check.message for check in verify_release(third, None) if check.passed is False}
    assert "was changed since the release was signed" in failed["statement"]


def test_a_coordinator_names_its_own_earlier_releases_of_the_same_hospitals_and_the_top_counts_them(signed, tmp_path):
    consortium, labelled, _ = signed
    kept = {name: tmp_path / "home" / name for name in ("first", "second", "again")}
    first = consortium.release(labelled, tmp_path / "first", keep=kept["first"])
    second = consortium.release(
        consortium.label(small_study(name="second-3")), tmp_path / "second", own=[kept["first"]], keep=kept["second"]
    )
    made, alone = statement_of(second), statement_of(first)
    assert [each["name"] for each in made["earlier_releases"]["releases"]] == ["left-or-right"]
    both = max(each["epsilon"] for each in made["earlier_releases"]["parties"])
    assert both > max(seat["guarantee"]["epsilon"] for seat in alone["seats"])
    shown = f"{np.ceil(1000 * both) / 1000:g}"
    assert shown in made["in_short"]["points"]["How strong"]
    assert "left-or-right" in made["in_short"]["verdict"]
    assert "left-or-right" in {check.name: check.message for check in verify_release(second, None)}["statement"]
    card = (second / "model_card.md").read_text()
    assert float(re.search(r"up to ([0-9.]+)", card)[1]) >= both
    assert both > float(re.search(r"up to ([0-9.]+)", (first / "model_card.md").read_text())[1])
    # Released once more, it names the other one and not itself; what is given besides, or kept twice, is named once.
    twice = [*list(kept.values())[:2], shutil.copytree(kept["second"], tmp_path / "copy")]
    for given in ([second], []):
        again = consortium.release(labelled, tmp_path / f"again-{len(given)}", own=twice, earlier=given)
        assert [each["name"] for each in statement_of(again)["earlier_releases"]["releases"]] == ["second-3"]


def test_a_node_finds_the_studies_it_voted_in_that_a_release_does_not_name(signed, tmp_path):
    consortium, labelled, first = signed
    other = consortium.label(small_study(name="second-4"))
    second = consortium.release(other, tmp_path / "second")
    assert unnamed_before(second, [other.study, labelled.study]) == ["left-or-right"]
    third = consortium.release(other, tmp_path / "third", earlier=[first])
    assert unnamed_before(third, [other.study, labelled.study]) == []
    (second / "privacy.json").write_bytes((third / "privacy.json").read_bytes())
    with pytest.raises(DataCorrupt):
        unnamed_before(second, [labelled.study])


def test_an_earlier_release_that_names_one_before_it_needs_that_one_too(signed, tmp_path):
    consortium, _, first = signed
    second = consortium.release(consortium.label(small_study(name="second-2")), tmp_path / "second", earlier=[first])
    third = consortium.label(small_study(name="third-2"))
    with refuses(InvalidInput, "second-2"):
        consortium.release(third, tmp_path / "third", earlier=[second])
    with refuses(InvalidInput, "twice"):
        consortium.release(third, tmp_path / "third", earlier=[first, first])


def test_an_earlier_release_of_another_consortium_or_one_that_was_changed_is_refused(signed, copy, tmp_path):
    other = Consortium(tmp_path)
    labelled = other.label(small_study(name="elsewhere"))
    with refused_for("wrong_authority"):
        other.release(labelled, tmp_path / "new", earlier=[signed[2]])
    (copy / "report.html").write_text("nothing")
    with pytest.raises(DataCorrupt, match="does not verify"):
        signed[0].release(signed[0].label(small_study(name="next")), tmp_path / "next", earlier=[copy])


@pytest.mark.parametrize("named", [[["hospital-9"]], [[]], [["hospital-0", "hospital-0"]]])
def test_hospitals_that_are_named_must_be_on_the_roster(signed, tmp_path, named):
    consortium, labelled, _ = signed
    with refuses(InvalidInput, "allowed"):
        consortium.release(labelled, tmp_path / "named", named=named)
    assert list(tmp_path.iterdir()) == []


def test_a_release_is_whole_never_overwritten_and_only_its_coordinator_may_make_it(signed, tmp_path, monkeypatch):
    consortium, labelled, folder = signed
    monkeypatch.setattr("coordinator.release.release.put_in_place", Mock(side_effect=OSError(28, "full")))
    with pytest.raises(StorageFailed):
        consortium.release(labelled, tmp_path / "release", keep=tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []
    with refuses(InvalidInput, "exists"):
        consortium.release(labelled, folder)
    stranger = Consortium(tmp_path)
    stranger.authority, stranger.authority_key = consortium.authority, consortium.authority_key
    stranger.certificate = stranger.certify(stranger.key, "elsewhere", role="coordinator")
    with refuses(InvalidInput, "centre"):
        stranger.release(labelled, tmp_path / "stranger")


def test_a_pool_that_is_not_the_studys_ends_the_release(signed, tmp_path):
    consortium, labelled, _ = signed
    trained = train_student(labelled, POOL, kind="random_forest", seed=1, device="cpu")
    other = shutil.copytree(labelled.pool.parent, tmp_path / "other")
    np.save(other / "pool.npy", POOL + 1)
    with refuses(DataCorrupt, "pool"):
        consortium.release(replace(labelled, pool=other / "pool.npy"), tmp_path / "out", trained=trained)
    assert not (tmp_path / "out").exists()


def test_what_a_real_hub_kept_over_mutual_tls_verifies(tmp_path):
    study = deployed_study(3)
    (tmp_path / "deployed").mkdir()
    with Deployed(study, tmp_path / "deployed") as deployed:
        deployed.start_all()
        labelling = deployed.label()
        ledger = tmp_path / "deployed" / "coordinator.sqlite"
        labelled = labelled_study(study, ledger, tmp_path / "none.npy", labelling)
        folder = release_of(labelled, tmp_path / "release", by=deployed)
    assert [check for check in verify_release(folder, None) if check.passed is False] == []
    assert (made := statement_of(folder))["during_the_study"]["receipts_missing"] == {}
    assert all(seat["ledger"]["difference"] == 0 for seat in made["seats"])


def test_pages_group_equal_guarantees_name_hospitals_as_people_do_and_link_each_other(tmp_path):
    consortium, study = Consortium(tmp_path), small_study(8)
    first, *others, last = study.roster
    named = (replace(first, display_name="Klinikum <München>"), *others, replace(last, epsilon=2 * last.epsilon))
    named = replace(study, roster=named, terms=replace(study.terms, task="tell <!-- left from right"))
    folder = consortium.release(consortium.label(named), tmp_path / "release")
    assert not [each for each in folder.glob("*.[hm]*") if "<!-- " in each.read_text()]  # it would hide what follows
    shown = f"Klinikum &lt;München&gt; ({first.party})"
    pages = [(folder / name).read_text() for name in ("report.html", "privacy.html", "privacy.de.html")]
    cover, statement, german = pages
    assert f"7: {shown}, " in cover
    assert " and 1 more</th>" in cover
    assert f"7: {shown}, {', '.join(each.party for each in others)}</th>" in statement
    assert '<html lang="de">' in german
    linked = [each for page in pages for each in re.findall(r'href="([^"]+)"', page)]
    assert [each for each in linked if not (folder / each).exists()] == []
    assert not [each for each in verify_release(folder, None) if each.passed is False]
    (folder / "privacy.de.html").write_text(german.replace("<h1>", "<h1>Starker "))
    consortium.sign_again(folder)
    assert [each.name for each in verify_release(folder, None) if each.passed is False] == ["pages"]
