"""A node of a study that hides its queries: training exports a private model, which answers; withdrawing ends it."""

import os
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.float_inference import float_inference
from party.budget.approval_text import approval_words, in_brief
from party.budget.policy import Policy
from party.budget.spending import withdraw
from party.budget.watermarks import remember_approval
from party.data.files import CsvFile
from party.data.records import DataSettings
from party.demo.demo_data import demo_data, demo_study
from party.home import PartyHome
from party.lifetime import LifetimeCap
from party.settings import PartySettings, TeacherSettings
from party.voting.answering import Answering
from party.voting.trained import PRIVATE_FILE, load_model
from party.voting.training import train
from protocols.claims.languages import number
from protocols.crypto.identity import key_to_pem
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.querier import PrivateQueries
from protocols.levels.hidden_queries.sealing import Beginning, Computation
from protocols.plural import at_most
from protocols.study.chosen import CHOSEN
from protocols.study.several_hospitals import each_seat
from protocols.wire.messages import Refusal, StepReply, StepRequest
from runtime.printing import folded_under
from tests.harness.answering import ended
from tests.harness.askers import ASKER_KEY, KEYS, asked_study
from tests.harness.homes import write_records
from tests.harness.levels import GuardianHere
from tests.harness.refusals import refuses
from tests.harness.seeded import seeded_source

SEAT = "hospital-0"
STUDY = asked_study(quorum=1)


def settings_of(folder, kind="logistic_regression"):
    return PartySettings(
        data=DataSettings(
            name="ward", loader="csv", source=CsvFile(write_records(folder / "r.csv")), patient="patient"
        ),
        teachers=TeacherSettings(kind=kind, seed=1),
        lifetime={"record": LifetimeCap(46.0, 1e-5)},
        settle=True,
        policy=folder / "policy.sqlite",
    )


@pytest.fixture
def place(tmp_path):
    """(home, settings, policy) of a hospital that approved and trained."""
    home, settings = PartyHome(tmp_path), settings_of(tmp_path)
    home.key.write_bytes(key_to_pem(KEYS[SEAT]))
    home.keep_study(STUDY)
    said: list[str] = []
    with Policy(settings.policy) as policy:
        train(home, settings, STUDY, SEAT, policy=policy, say=said.append)
    assert any("in fixed point the model agrees with the teacher on" in line for line in said)
    with Policy(settings.policy) as policy:
        policy.approve(STUDY, party=SEAT, data_set="ward", caps=settings.lifetime, home=home, told_apart=False)
        remember_approval(home, STUDY, SEAT, policy.log)
        yield home, settings, policy


def test_training_leaves_a_private_model_for_its_owner_alone(place):
    home, _, _ = place
    file = home.teachers(STUDY.digest, SEAT) / PRIVATE_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    sides = np.array([[3, 0, 0, 0], [-3, 0, 0, 0]], np.float32)
    assert float_inference(load_model(file), sides).tolist() == [1, 0]


def test_a_kind_that_cannot_answer_is_refused_before_anything_is_read(tmp_path):
    settings = settings_of(tmp_path, "random_forest")
    missing = replace(settings, data=replace(settings.data, source=CsvFile(tmp_path / "absent.csv")))
    with refuses(InvalidInput, "teachers.kind", "random_forest", "logistic_regression"):
        with Policy(missing.policy) as policy:
            train(PartyHome(tmp_path), missing, STUDY, SEAT, policy=policy, say=lambda text: None)


def step():
    computation = Computation(STUDY, bytes(32), SEAT, 4)
    arrays = Beginning(computation, key=ASKER_KEY, source=os.urandom).arrays()
    return StepRequest(STUDY.digest, bytes(32), "architecture", arrays)


def labelled(party, study):
    """What the one party that answers lets another hospital label."""
    queries = np.random.default_rng(1).uniform(-4, 4, (8, 4)).astype(np.float32)

    def exchange(requests):
        return {name: party.handle(request) if name == SEAT else None for name, request in requests.items()}

    with Ledger(":memory:") as guardians, Ledger(":memory:") as own:
        here = GuardianHere(study, guardians, seeded_source(5))
        aggregation = PrivateQueries(study, queries, here.dial, key=ASKER_KEY, source=seeded_source(6))
        coordinator = Coordinator(study, ledger=own, aggregation=aggregation, exchange=exchange, run=b"run")
        return coordinator.label(aggregation.positions)


def test_a_seat_answers_until_it_is_withdrawn_and_its_marks_are_kept(place):
    home, settings, policy = place
    events = []
    with Answering(home, settings, policy, party=SEAT, on_event=lambda *event: events.append(event)) as answering:
        (seat,) = answering.seats()
        got = labelled(seat.party, STUDY)
        assert got.refusals.keys() == {"hospital-1", "hospital-2"}
        assert (got.labels >= 0).all()
        spent = seat.ledger.balance(SEAT).spent
        assert spent == got.spent[0] > 0
        assert ended(home, policy, STUDY) == {SEAT: (spent, True)}
        assert answering.seats() == []


def test_a_seat_that_was_withdrawn_computes_and_gives_no_vote(place):
    home, settings, policy = place
    with Answering(home, settings, policy, party=SEAT, on_event=lambda *event: None) as answering:
        (seat,) = answering.seats()
        withdraw(home, policy, STUDY, data_set="ward", party=SEAT)
        got = labelled(seat.party, STUDY)
        assert got.refusals[SEAT] == "withdrawn"
        assert got.stop.reason == "quorum_lost"
        assert seat.ledger.balance(SEAT).spent == 0


def test_a_seat_whose_data_set_has_another_name_now_is_not_approved_and_was_not_withdrawn(place):
    home, settings, policy = place
    settings = replace(settings, data=replace(settings.data, name="ward-2"))
    with Answering(home, settings, policy, party=SEAT, on_event=lambda *event: None) as answering:
        (seat,) = answering.seats()
        assert labelled(seat.party, STUDY).refusals[SEAT] == "not_approved"
        assert seat.ledger.balance(SEAT).spent == 0


def test_a_seat_without_its_model_says_so_and_names_no_file(place):
    home, settings, policy = place
    (home.teachers(STUDY.digest, SEAT) / PRIVATE_FILE).unlink()
    events = []
    with Answering(home, settings, policy, party=SEAT, on_event=lambda *event: events.append(event)) as answering:
        (seat,) = answering.seats()
        refused = seat.party.handle(step())
    assert isinstance(refused, Refusal)
    assert refused.code == "no_teachers"
    assert str(home.path) not in refused.reason
    assert any(str(home.path) in str(event) for event in events)


def test_a_key_that_the_study_does_not_name_is_refused(place):
    home, settings, policy = place
    home.key.write_bytes(key_to_pem(KEYS["hospital-1"]))
    events = []
    with Answering(home, settings, policy, party=SEAT, on_event=lambda *event: events.append(event)) as answering:
        assert answering.seats() == []
    assert "is not the one that study" in str(events)


def test_steps_are_answered_over_and_over_and_cost_nothing(place):
    home, settings, policy = place
    with Answering(home, settings, policy, party=SEAT, on_event=lambda *event: None) as answering:
        (seat,) = answering.seats()
        assert all(isinstance(seat.party.handle(step()), StepReply) for _ in range(3))
        assert seat.ledger.balance(SEAT).spent == 0


@pytest.mark.parametrize(("study", "signs"), [(STUDY, True), (demo_study(demo_data(None)), False)])
def test_before_it_approves_a_hospital_reads_whether_its_node_signs(tmp_path, study, signs):
    lines = approval_words(study, study.roster[0].party, settings_of(tmp_path), [], pool_checked=False)
    assert ("             Your node signs with its key." in lines) == signs
    (late,) = [line for line in lines if line.startswith("If late")]
    assert f"after {study.terms.misses} late" in late
    assert (study.confidentiality.asked_by or "the operator") in late


@pytest.mark.parametrize("questions", ["given", "uncertainty"])
def test_before_it_approves_a_hospital_reads_whether_labels_choose_what_is_asked(tmp_path, questions):
    study = demo_study(demo_data(None)).voting(questions=questions)
    lines = approval_words(study, study.roster[0].party, settings_of(tmp_path), [], pool_checked=False)
    assert (f"             {CHOSEN}" in lines) == (questions == "uncertainty")


@pytest.mark.parametrize("study", [STUDY, demo_study(demo_data(None))], ids=["hidden", "clear"])
@pytest.mark.parametrize(
    ("language", "first"), [("en", "In Votes Your Unprotected"), ("de", "Kurz Stimmen Ihre Ungeschützt")]
)
def test_what_stands_at_the_prompt_fits_a_terminal_and_says_strength_votes_cap_and_who_is_not_protected(
    study, language, first
):
    brief = in_brief(study, study.roster[0].party, [], language=language)
    shown = "\n".join(folded_under(line) for line in brief)
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 80
    assert [line.split()[0] for line in brief] == first.split()
    figure = number(language, at_most(each_seat(study)[0].epsilon))
    assert f"epsilon {figure} {'at' if language == 'en' else 'bei'} " in " ".join(shown.lower().split())
