"""A cap belongs to people: a new name for a data set makes no new cap, and a patient speaks in one seat of a study."""

import csv
import sqlite3
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest

from party.budget.known_units import KnownUnits
from party.budget.policy import Policy
from party.data import load_records
from party.lifetime import LifetimeCap, _seat_nano, epsilon_reached, position_of, study_cost
from party.voting.contribution import read_contribution
from protocols.study.queries import QueryBatch, no_inputs
from protocols.wire.messages import VoteReply, VoteRequest
from runtime.exits import Exit
from tests.contract.party.voting.test_approving_record_votes import Place
from tests.harness.deployed_records import HOSPITALS
from tests.harness.homes import FEATURES, study_file, write_records
from tests.harness.refusals import refused_for
from tests.harness.studies import deployed_study

SEAT = HOSPITALS[0]


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    assert made.approve() == 0
    return made


def second(place):
    return study_file(place.folder, replace(place.study, name="second"), "second.toml")


def edit(place, *pairs):
    text = place.home.settings_file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    place.home.settings_file.write_text(text)


def rows_of(place):
    with (place.folder / "a" / "records.csv").open(newline="") as file:
        return list(csv.reader(file))


def write(place, rows):
    with (place.folder / "a" / "records.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.mark.parametrize("name", ["Ward", "ward\u00a0", " WARD", "wa\u200brd", "\uff57ard"])
def test_a_name_that_is_written_differently_is_the_same_data_set(place, name):
    edit(place, ('name = "ward"', f'name = "{name}"'))
    assert place.approve(file=second(place)) == 0
    with Policy(place.home.settings().policy) as policy:
        (use,) = policy.lifetime_uses()
        assert use.data_set == "ward"
        assert len(policy.own_approvals(place.home)) == 2


@pytest.mark.parametrize("known", [1, 2, 30])
def test_known_patients_make_no_second_cap_under_a_new_name(place, capsys, known):
    """Of 30 patients, two are 5 % or more; one is not."""
    rows = rows_of(place)
    write(place, [rows[0]] + [[n if int(n[1:]) < known else f"x{n}", *rest] for n, *rest in rows[1:]])
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    code = place.approve(file=second(place))
    assert code == (0 if known == 1 else Exit.BUDGET)
    assert ("known_records" in capsys.readouterr().err) == (known > 1)
    assert len(place.approvals()) == (2 if known == 1 else 1)


def test_who_knows_better_says_so_and_it_is_recorded(place):
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    assert place.approve("--other-people", "Ward", file=second(place)) == 0
    with Policy(place.home.settings().policy) as policy:
        said = [entry for entry in policy.log.entries() if "other_people" in str(entry)]
        assert len(said) == 1
        assert {each.data_set for each in policy.lifetime_uses()} == {"ward", "ward-2"}


@pytest.mark.parametrize("kept", [60, 30, 2])
def test_rows_without_names_are_refused_if_all_are_known_and_asked_about_from_5_percent(tmp_path, capsys, kept):
    place = Place(tmp_path)
    edit(place, ('patient = "patient"', 'patient = ""'))
    assert place.approve() == 0
    before = rows_of(place)
    write_records(place.folder / "a" / "records.csv", seed=9)
    write(place, before[: kept + 1] + rows_of(place)[kept + 1 :])
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    with Policy(place.home.settings().policy) as policy:
        data = place.home.settings().data
        units = policy.known.digests(data, load_records(data, place.study.terms))
        if kept == 60:
            with refused_for("known_records"):
                policy.known.check("ward-2", units, other_people=())
        else:
            assert policy.known.check("ward-2", units, other_people=()) == ({"ward": 30} if kept == 30 else {})
    assert place.approve(file=second(place)) == (0 if kept == 2 else Exit.BUDGET), "nobody can be asked with --yes"


@pytest.mark.parametrize("named", ["patient", "visit"])
def test_rows_are_asked_about_where_patients_have_names_that_the_other_cap_does_not_know(tmp_path, capsys, named):
    """Its data set had no names, or those of another column; one row of 60 is another now."""
    place = Place(tmp_path)
    rows = rows_of(place)
    write(place, [[*rows[0], "visit"]] + [[*row, f"v{at}"] for at, row in enumerate(rows[1:])])
    edit(place, ('patient = "patient"', f'patient = "{"visit" if named == "patient" else ""}"'))
    assert place.approve() == 0
    rows = rows_of(place)
    write(place, [*rows[:-1], [rows[-1][0], "9", *rows[-1][2:]]])
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    now = 'patient = "visit"' if named == "patient" else 'patient = ""'
    edit(place, (f"{now}\n", f'patient = "{named}"\n'))
    assert place.approve(file=second(place)) == Exit.BUDGET
    assert "known_records" in capsys.readouterr().err
    assert place.approve("--other-people", "ward", file=second(place)) == 0


def test_that_people_are_others_is_said_of_the_records_at_that_time(place):
    before = rows_of(place)
    write(place, [before[0]] + [[f"x{name}", *rest] for name, *rest in before[1:]])
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    assert place.approve("--other-people", "ward", file=second(place)) == 0
    third = study_file(place.folder, replace(place.study, name="third"), "third.toml")
    assert place.approve(file=third) == 0
    write(place, before)
    fourth = study_file(place.folder, replace(place.study, name="fourth"), "fourth.toml")
    assert place.approve(file=fourth) == Exit.BUDGET
    assert place.approve("--other-people", "ward", file=fourth) == 0


def answers(place, monkeypatch, *said, file=None):
    """What approve ends with, and how many questions it asked, for a person who types the answers."""
    typed = StringIO("".join(f"{each}\n" for each in said))
    monkeypatch.setattr("sys.stdin", typed)
    code = place.run("approve", str(file or place.file), "--queries", str(place.sent))
    return code, typed.getvalue()[: typed.tell()].count("\n")


@pytest.mark.parametrize("alike", ["names", "rows"])
def test_approve_asks_whether_units_that_look_alike_are_different_ones(tmp_path, monkeypatch, alike):
    place = Place(tmp_path, unit="patient" if alike == "names" else "record")
    rows = rows_of(place)
    if alike == "names":
        write(place, [rows[0]] + [[row[0].upper() if at % 2 else row[0], *row[1:]] for at, row in enumerate(rows[1:])])
    else:
        edit(place, ('patient = "patient"', 'patient = ""'))
        write(place, [rows[0], *rows[1:31], *rows[1:31]])
    assert answers(place, monkeypatch, "n", "y") == (Exit.INVALID_INPUT, 1)
    assert answers(place, monkeypatch, "y", "n") == (Exit.REFUSED, 2)
    assert answers(place, monkeypatch, "y") == (Exit.INTERRUPTED, 1)
    assert place.approvals() == []
    assert answers(place, monkeypatch, "y", "y") == (0, 2)
    assert len(place.approvals()) == 1


def test_approve_asks_whose_rows_another_cap_counts_and_records_the_answer(tmp_path, monkeypatch):
    place = Place(tmp_path)
    edit(place, ('patient = "patient"', 'patient = ""'))
    assert answers(place, monkeypatch, "y") == (0, 1)
    rows = rows_of(place)
    write(place, [*rows[:-1], [rows[-1][0], "9", *rows[-1][2:]]])
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    assert answers(place, monkeypatch, "n", "y", file=second(place)) == (Exit.BUDGET, 1)
    assert len(place.approvals()) == 1
    assert answers(place, monkeypatch, "y", "n", file=second(place)) == (Exit.REFUSED, 2)
    assert answers(place, monkeypatch, "y", "y", file=second(place)) == (0, 2)
    with Policy(place.home.settings().policy) as policy:
        said = [entry for entry in policy.log.entries() if "other_people" in str(entry)]
        assert len(said) == 1
    third = study_file(place.folder, replace(place.study, name="third"), "third.toml")
    assert answers(place, monkeypatch, "y", file=third) == (0, 1), "it was said of these rows"


def test_other_numbers_of_classes_make_no_second_cap_for_the_same_arrays(tmp_path, capsys):
    place = Place(tmp_path)
    rows = np.array(rows_of(place)[1:])
    np.savez(tmp_path / "records.npz", inputs=rows[:, 1:5].astype(np.float32), labels=rows[:, 5])
    edit(place, ("records.csv", "records.npz"), ('"csv"', '"npz"'), ('patient = "patient"', 'patient = ""'))
    (tmp_path / "records.npz").rename(tmp_path / "a" / "records.npz")
    assert place.approve() == 0
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    names = place.study.terms.class_names
    place.study = replace(place.study, terms=replace(place.study.terms, class_names=names[::-1]))
    assert place.approve(file=second(place)) == Exit.BUDGET
    assert "known_records" in capsys.readouterr().err


def test_leaving_the_names_out_under_a_new_name_makes_no_second_cap(place):
    edit(place, ('name = "ward"', 'name = "ward-2"'), ('patient = "patient"', 'patient = ""'))
    assert place.approve(file=second(place)) == Exit.BUDGET


def test_a_cap_whose_people_are_not_kept_is_compared_with_nobody_and_a_person_must_say(place):
    assert place.run("budget", "erase", "ward", "--yes") != 0, "its study still runs"
    assert place.run("withdraw", "test", "--yes") == 0
    assert place.run("budget", "erase", "WARD", "--yes") == 0
    with sqlite3.connect(place.home.settings().policy) as database:
        assert database.execute("SELECT count(*) FROM known").fetchone() == (0,)
    with Policy(place.home.settings().policy) as policy:
        (use,) = policy.lifetime_uses()
        assert use.forfeited
    write_records(place.folder / "a" / "records.csv", seed=9)
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    assert place.approve(file=second(place)) == Exit.BUDGET
    assert place.approve("--other-people", "ward", file=second(place)) == 0


def test_digests_have_a_key_that_all_homes_of_the_policy_share(tmp_path):
    made = []
    for name in ("one", "one", "other"):
        with Policy(tmp_path / name) as policy:
            made.append(policy.known.of_names(["7", "007", "7.0", "８", "8"]).tolist())
    assert made[0] == made[1]
    assert made[0] != made[2]
    assert len(set(made[0])) == 2


def grouped(tmp_path, *, named):
    """A hospital with two privacy groups, of 30 records (15 patients) each."""
    place = Place(tmp_path)
    seats = [
        replace(place.study.roster[0], party=f"{SEAT}/{group}", epsilon=epsilon, weight=weight)
        for group, epsilon, weight in (("low", 1.0, 546 / 1024), ("high", 2.0, 1.0))
    ]
    place.study = replace(place.study, roster=(*seats, *place.study.roster[1:]))
    place.file = study_file(tmp_path, place.study)
    edit(place, ('patient = "patient"', f'patient = "{"patient" if named else ""}"\ngroup = "budget"'))
    rows = rows_of(place)
    write(place, [[*rows[0], "budget"]] + [[*row, "low" if at < 30 else "high"] for at, row in enumerate(rows[1:])])
    assert place.approve() == 0
    return place


def regroup(place):
    """Ten patients of the low group are in the high one of a later export."""
    rows = rows_of(place)
    write(place, [rows[0]] + [[*row[:-1], "high" if at >= 10 else "low"] for at, row in enumerate(rows[1:])])


def ask(place, policy, group):
    with place.answering(policy)[0] as answering:
        (seat,) = [each for each in answering.seats() if each.party.name == f"{SEAT}/{group}"]
        count = place.study.query_limit
        request = VoteRequest(place.study.digest, bytes(16), QueryBatch(0, np.arange(count), no_inputs(count)))
        return seat.answer(lambda: seat.party.handle(request))


def kept(place, group):
    return read_contribution(place.home.contribution(place.study.digest, f"{SEAT}/{group}"), place.study)


def test_a_patient_who_moved_to_another_group_does_not_vote_again(tmp_path):
    place = grouped(tmp_path, named=True)
    before = kept(place, "high")
    with Policy(place.home.settings().policy) as policy:
        assert isinstance(ask(place, policy, "low"), VoteReply)
        regroup(place)
        assert place.approve() == 0
        after = kept(place, "high")
        np.testing.assert_array_equal(after[0], before[0])
        np.testing.assert_array_equal(after[1], before[1])
        assert isinstance(ask(place, policy, "high"), VoteReply)


def rename(place):
    """A later export gives every patient another code."""
    rows = rows_of(place)
    write(place, [rows[0]] + [[f"new-{name}", *rest] for name, *rest in rows[1:]])


def test_patients_with_new_codes_do_not_vote_again_in_another_group(tmp_path):
    place = grouped(tmp_path, named=True)
    with Policy(place.home.settings().policy) as policy:
        assert isinstance(ask(place, policy, "low"), VoteReply)
    before = kept(place, "high")
    rename(place)
    regroup(place)
    assert place.approve() == Exit.INVALID_INPUT
    np.testing.assert_array_equal(kept(place, "high")[1], before[1])


def test_votes_that_were_counted_before_a_patient_spoke_elsewhere_are_refused_without_a_charge(tmp_path):
    place = grouped(tmp_path, named=True)
    old = place.home.contribution(place.study.digest, f"{SEAT}/low").read_bytes()
    regroup(place)
    assert place.approve() == 0
    # As if the count before and the one after had crossed: ten patients are in both.
    place.home.contribution(place.study.digest, f"{SEAT}/low").write_bytes(old)
    with Policy(place.home.settings().policy) as policy:
        assert isinstance(ask(place, policy, "low"), VoteReply)
        assert ask(place, policy, "high").code == "no_record_votes"
        assert place.approve() == 0
        assert isinstance(ask(place, policy, "high"), VoteReply)


def test_where_units_have_no_names_the_seats_are_charged_together(tmp_path):
    place = grouped(tmp_path, named=False)
    mus = [epsilon_mu(place, seat) for seat in ("low", "high")]
    with Policy(place.home.settings().policy) as policy:
        (use,) = policy.lifetime_uses()
        charged = study_cost(place.study, SEAT, unit="record", spent=None, told_apart=False)
        assert use.reserved == charged.at(use.currency)
    # One query, Gaussian noise, both seats: the records that moved have the summed sensitivity, so the summed mu.
    reached = epsilon_reached(charged.at(float("nan")), float("nan"), delta=1e-5, noise_distance=charged.noise_distance)
    exact = epsilon_reached(int(sum(mus) ** 2 * 1e9), float("nan"), delta=1e-5, noise_distance=charged.noise_distance)
    assert exact <= reached <= exact * 1.01
    assert reached == pytest.approx(3.16, abs=0.1)
    apart = study_cost(place.study, SEAT, unit="record", spent=None, told_apart=True)
    assert apart.nano[position_of(float("nan"))] < charged.nano[position_of(float("nan"))]


def epsilon_mu(place, group):
    nano = _seat_nano(place.study, f"{SEAT}/{group}", unit="record", spent=None)
    return float(np.sqrt(nano[position_of(float("nan"))] / 1e9))


def test_the_names_that_told_patients_apart_cannot_be_left_out_later(tmp_path, capsys):
    place = grouped(tmp_path, named=True)
    edit(place, ('patient = "patient"', 'patient = ""'))
    assert place.approve() == Exit.INVALID_INPUT


def test_a_unit_speaks_in_one_seat_and_may_say_it_again():
    with Policy(":memory:") as policy:
        known: KnownUnits = policy.known
        people = known.of_names(["a", "b", "c"])
        known.speak(b"study", "x/low", people[:2])
        known.speak(b"study", "x/low", people[:2])
        with refused_for("spoke_elsewhere"):
            known.speak(b"study", "x/high", people[1:])
        assert known.spoken_elsewhere(b"study", "x/low", people).tolist() == [False] * 3
        known.speak(b"another", "x/high", people)


def test_a_cap_for_another_unit_is_added_and_counts_the_earlier_studies(tmp_path, capsys):
    place = Place(tmp_path, unit="patient")
    assert place.approve() == 0
    edit(place, ("\n[lifetime.patient]", "\n[lifetime.record]\nepsilon = 12.0\ndelta = 1e-5\n\n[lifetime.patient]"))
    with Policy(place.home.settings().policy) as policy:
        caps = place.home.settings().lifetime
        later = replace(place.study, name="second")
        policy.approve(later, party=SEAT, data_set="ward", caps=caps, home=place.home, told_apart=True)
        uses = {each.unit: each for each in policy.lifetime_uses()}
        cost = study_cost(place.study, SEAT, unit="record", spent=None, told_apart=True)
        assert uses["record"].reserved == 2 * cost.at(uses["record"].currency)
        caps = {"patient": LifetimeCap(12.0, 1e-5)}
        with refused_for("lifetime_cap_changed"):
            policy.forecast(replace(later, name="third"), party=SEAT, data_set="ward", caps=caps, told_apart=False)


def of_teachers(groups):
    made = deployed_study(1, mechanism="thresholded_gnmax", sigma_threshold=None)
    terms = replace(made.terms, features=FEATURES, class_names=("left", "right"))
    seats = [replace(made.roster[0], party=f"{SEAT}{group}") for group in groups]
    votes = replace(made.votes, teachers=2)
    return replace(made, terms=terms, votes=votes, classes=2, roster=tuple(seats), quorum=1)


def test_training_again_after_patients_changed_groups_is_refused(tmp_path):
    study = of_teachers(["/low", "/high"])
    place = Place(tmp_path)
    place.study, place.file = study, study_file(tmp_path, study)
    edit(place, ('patient = "patient"', 'patient = "patient"\ngroup = "budget"'))
    rows = rows_of(place)
    write(place, [[*rows[0], "budget"]] + [[*row, "low" if at < 30 else "high"] for at, row in enumerate(rows[1:])])
    assert place.run("approve", str(place.file), "--yes") == 0
    assert place.run("train", study.name) == 0
    assert place.run("train", study.name) == 0
    regroup(place)
    assert place.run("train", study.name) == Exit.BUDGET
    rename(place)
    assert place.run("train", study.name) == Exit.INVALID_INPUT


def test_who_knows_better_may_say_so_once_a_study_of_teachers_is_approved(place):
    """Another ward numbers its patients alike, and they are more than when the study was approved."""
    before, study = rows_of(place), replace(of_teachers([""]), name="taught")
    file = str(study_file(place.folder, study))
    write(place, [before[0]] + [[f"x{name}", *rest] for name, *rest in before[1:]])
    edit(place, ('name = "ward"', 'name = "ward-2"'))
    assert place.run("approve", file, "--yes") == 0
    write(place, before)
    assert place.run("train", study.name) == Exit.BUDGET
    assert place.run("approve", file, "--yes", "--other-people", "ward") == 0
    assert place.run("train", study.name) == 0


def alike(place, *, write_as):
    """The second record of each patient has another spelling of the name."""
    rows = rows_of(place)
    write(place, [rows[0]] + [[write_as(row[0]) if at % 2 else row[0], *row[1:]] for at, row in enumerate(rows[1:])])


@pytest.mark.parametrize(
    ("rule", "write_as"),
    [
        ("folded", str.upper),
        ("folded", lambda name: f"{name[0]} {name[1:]}"),
        ("folded", lambda name: f"{name}\u200b"),
        ("number", lambda name: f"00{name[1:]}"),
    ],
)
def test_names_that_look_alike_are_asked_about_and_vote_once_by_the_mappings_rule(tmp_path, rule, write_as):
    place = Place(tmp_path, unit="patient")
    if rule == "number":
        rows = rows_of(place)
        write(place, [rows[0]] + [[row[0][1:], *row[1:]] for row in rows[1:]])
        alike(place, write_as=lambda name: f"00{name}.0")
    else:
        alike(place, write_as=write_as)
    assert place.run("data", "check", str(place.file)) == Exit.INVALID_INPUT
    assert place.approve() == Exit.INVALID_INPUT
    assert place.approvals() == []
    (as_written,) = place.counted()
    assert as_written.units == 60
    assert place.run("data", "map", str(place.file), "--names", rule) == 0
    (once,) = place.counted()
    assert (once.records, once.units) == (60, 30)
    assert place.run("data", "check", str(place.file)) == 0
    assert place.approve() == 0


def test_equal_rows_vote_once_where_the_mapping_says_so(tmp_path):
    place = Place(tmp_path)
    edit(place, ('patient = "patient"', 'patient = ""'))
    rows = rows_of(place)
    write(place, [rows[0]] + [row for row in rows[1:31] for _ in range(3)])
    (thrice,) = place.counted()
    assert thrice.units == 90
    assert place.run("data", "map", str(place.file), "--equal-rows", "one") == 0
    (once,) = place.counted()
    assert once.units == 30
    write(place, rows[:31])
    (alone,) = place.counted()
    assert abs(once.sums - alone.sums).max() <= 30, "a unit of three equal records weighs as one, but for rounding"


def test_no_to_a_proposed_mapping_writes_nothing(tmp_path, monkeypatch):
    place = Place(tmp_path)
    rows = rows_of(place)
    write(place, [rows[0]] + [[*row[:-1], row[-1].upper()] for row in rows[1:]])
    monkeypatch.setattr("click.confirm", lambda *args, **more: False)
    assert place.run("data", "map", str(place.file)) != 0
    assert not place.home.mapping_file().exists()


def test_a_cells_value_is_on_no_error_line_of_approve(tmp_path, capsys):
    place = Place(tmp_path)
    rows = rows_of(place)
    for column, word in ((1, "HIV-positive"), (5, "Smith")):
        write(place, [rows[0], [word if at == column else cell for at, cell in enumerate(rows[1])], *rows[2:]])
        assert place.approve() != 0
        shown = capsys.readouterr()
        assert word not in shown.out + shown.err
