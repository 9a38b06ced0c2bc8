"""A hospital approves a study in which its records vote: what it is told, what is counted, what is refused first."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

from coordinator.labelling.study_creation import plan_count
from party.budget.policy import Policy
from party.budget.spending import what_was_spent
from party.commands.group import run_command
from party.data import load_records
from party.data.records import Records
from party.doctor import _studies
from party.home import PartyHome
from party.lifetime import LifetimeCap, study_cost
from party.voting.answering import Answering
from party.voting.contribution import count_votes_of, read_contribution
from party.voting.judges import judges_of, runs_for
from protocols.errors import InvalidInput
from protocols.features.onnx_model import OnnxModel
from protocols.features.scored_model import ScoredModel
from protocols.study.count_cells import count_cells
from protocols.study.levels import Clear
from protocols.study.queries import QueryBatch, no_inputs
from protocols.sums.contributions import contribution_sum, said, squared_norms
from protocols.sums.judging import judged
from protocols.sums.residuals import FirstScores, residual_sum
from protocols.wire.messages import Outcome, Refusal, Settled, VoteReply, VoteRequest
from runtime.exits import Exit
from tests.harness.certifying import Certifying
from tests.harness.deployed_records import HOSPITALS, draft, record_study_of, with_sum_queries, write_queries
from tests.harness.homes import make_member, study_file, write_records
from tests.harness.refusals import refuses

SEAT = HOSPITALS[0]


class Place:
    """A member's home, and the commands that it runs. The records are of 30 patients, two each."""

    def __init__(self, folder, authority=None, **how):
        if authority is None:
            authority = Certifying()
            authority.make_authority()
        authority.address, authority.enrol_port = "127.0.0.1:1", 2
        self.folder = folder
        self.home: PartyHome = make_member(folder / "a", authority, unit=how.get("unit", "record"))
        self.study, self.queries = record_study_of(**how)
        self.file = study_file(folder, self.study)
        self.sent = write_queries(folder, self.queries)

    def run(self, *arguments):
        return run_command([*arguments, "--home", str(self.home.path)])

    def approve(self, *more, file=None, queries=None):
        return self.run("approve", str(file or self.file), "--queries", str(queries or self.sent), "--yes", *more)

    def counted(self):
        settings = self.home.settings()
        with Policy(settings.policy) as policy:
            records = load_records(settings.data, self.study.terms)
            return count_votes_of(records, self.study, self.queries, SEAT, known=policy.known)

    def approvals(self):
        with Policy(self.home.settings().policy) as policy:
            return policy.own_approvals(self.home)

    def answering(self, policy):
        log = []
        made = Answering(
            self.home, self.home.settings(), policy, party=SEAT, on_event=lambda event, fields: log.append(event)
        )
        return made, log

    def request(self):
        count = self.study.query_limit
        return VoteRequest(self.study.digest, bytes(16), QueryBatch(0, np.arange(count), no_inputs(count)))

    def ask(self, seat=SEAT):
        """What a seat replies when it is asked."""
        with Policy(self.home.settings().policy) as policy, self.answering(policy)[0] as answering:
            (asked,) = [each for each in answering.seats() if (each.study, each.party.name) == (self.study, seat)]
            return asked.answer(lambda: asked.party.handle(self.request()))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_approving_warns_of_noise_that_hides_the_votes(tmp_path, capsys):
    assert Place(tmp_path, epsilon=0.02).approve() == 0
    assert "Warning a query holds about 75 votes, and the noise on each of its sums" in " ".join(
        capsys.readouterr().out.split()
    )


def test_approving_says_that_each_record_is_used_once_and_counts_the_votes(place, capsys):
    assert place.approve() == 0
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines() if not line.startswith("next: ")) <= 80
    assert "Asked        once, 8 public queries together" in shown
    words = " ".join(shown.split())
    assert "each record votes with its own label in 4 of the queries" in words
    assert "Each record's data are used once, in one noisy sum, and this costs at most epsilon 2" in words
    assert "at delta 1e-05" in words
    assert "for ever" in words
    assert "seat hospital-0: 60 records of 60 records vote" in words
    assert "next: conclave-party run" in words
    records = load_records(place.home.settings().data, place.study.terms)
    spoken = said(place.queries, records.inputs, records.labels, classes=2)
    expected = contribution_sum(place.queries, spoken, None, weight_units=1024, classes=2)
    file = place.home.contribution(place.study.digest, SEAT)
    np.testing.assert_array_equal(read_contribution(file, place.study)[0], expected)
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("unit", ["record", "patient"])
def test_approving_graded_votes_says_so_and_keeps_sums_of_units_of_bounded_norm(tmp_path, capsys, unit):
    place = Place(tmp_path, unit=unit, kind="graded")
    assert place.queries.signed
    capsys.readouterr()
    assert place.approve() == 0
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines() if not line.startswith("next: ")) <= 80
    words = " ".join(shown.split())
    assert f"Each {unit}'s data are used once, in one noisy sum, and this costs at most epsilon 2" in words
    assert f"{place.queries.rows} public features together" in words
    records = load_records(place.home.settings().data, place.study.terms)
    units = records.units if unit == "patient" else None
    spoken = said(place.queries, records.inputs, records.labels, classes=2)
    expected = contribution_sum(place.queries, spoken, units, weight_units=1024, classes=2)
    kept = read_contribution(place.home.contribution(place.study.digest, SEAT), place.study)[0]
    np.testing.assert_array_equal(kept, expected)
    assert kept.min() < 0
    assert squared_norms(kept.reshape(1, -1))[0] <= ((30 if unit == "patient" else 60) * 1024) ** 2


def test_a_declared_overlap_halves_what_a_shared_patient_says_and_needs_the_hospitals_word(tmp_path):
    place = Place(tmp_path, unit="patient")
    place.study = place.study.voting(hospitals_per_patient=2, overlap="declared")
    with refuses(InvalidInput, "data.hospitals"):
        place.counted()
    records = load_records(place.home.settings().data, place.study.terms)
    for shared in (1, 2):
        known_at = np.full(60, shared)
        with Policy(place.home.settings().policy) as policy:
            (given,) = count_votes_of(
                replace(records, known_at=known_at), place.study, place.queries, SEAT, known=policy.known
            )
        spoken = said(place.queries, records.inputs, records.labels, classes=2)
        alone = contribution_sum(place.queries, spoken, records.units, weight_units=1024 // shared, classes=2)
        assert np.array_equal(given.sums, alone)
    # Known to three by one of its records: no charge covers that, so the patient says nothing.
    beyond = np.where(np.arange(60) == 5, 3, 2)
    with Policy(place.home.settings().policy) as policy:
        (given,) = count_votes_of(
            replace(records, known_at=beyond), place.study, place.queries, SEAT, known=policy.known
        )
    kept = records.units != records.units[5]
    alone = contribution_sum(place.queries, spoken[kept], records.units[kept], weight_units=512, classes=2)
    assert np.array_equal(given.sums, alone)
    assert given.units == 29


@pytest.mark.parametrize("unit", ["patient", "record"])
def test_approving_says_one_guarantee_for_a_patient_of_several_hospitals(tmp_path, capsys, unit):
    place = Place(tmp_path, unit=unit)
    file = study_file(tmp_path, place.study.voting(hospitals_per_patient=2))
    place.approve(file=file)
    words = " ".join(capsys.readouterr().out.split())
    assert "at up to 2 hospitals together, for ever" in words
    assert "A patient may be known to up to 2 of the hospitals" in words
    assert ("one record at each of them" in words) == (unit == "record")
    assert "with data at any" not in words


def test_a_count_is_approved_with_its_study_file_alone_and_keeps_each_patient_once_in_each_column(tmp_path, capsys):
    place = Place(tmp_path, unit="patient")
    study = plan_count(draft(unit="patient", level=Clear(units=2**16)).voting(purpose="counts"))
    file = study_file(tmp_path, study)
    assert place.approve(file=file) == Exit.INVALID_INPUT
    assert "study.toml alone" in capsys.readouterr().err
    assert place.run("approve", str(file), "--yes") == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "once, how many patients have which values of f0, f1, f2, f3, by side" in words
    assert "the counts of each hospital by itself, and of all together" in words
    kept = read_contribution(place.home.contribution(study.digest, SEAT), study)[0] / study.votes.counted(study)
    columns = [name for name, _ in count_cells(study.terms).rows]
    for column in set(columns):
        assert kept[[name == column for name in columns]].sum() == pytest.approx(30, abs=0.01)


def test_all_records_of_a_patient_weigh_as_much_as_one(tmp_path, capsys):
    place = Place(tmp_path, unit="patient")
    assert place.approve() == 0
    said = capsys.readouterr().out
    assert "Each patient's data are used once" in said
    assert "60 records of 30 patients vote" in said
    (counted,) = place.counted()
    # 30 units of norm at most 1024, each with up to eight entries of 1024 / sqrt(8).
    assert 0 < counted.sums.sum() <= 30 * 1024 * np.sqrt(8)
    assert counted.units == 30
    with Policy(place.home.settings().policy) as policy:
        (use,) = policy.lifetime_uses()
        assert use.unit == "patient"


@pytest.mark.parametrize("cap", ["record", "patient"])
def test_a_study_that_protects_patients_is_refused_where_none_is_named(tmp_path, capsys, cap):
    place = Place(tmp_path, unit="patient")
    text = place.home.settings_file.read_text().replace('patient = "patient"', 'patient = ""')
    place.home.settings_file.write_text(text.replace("[lifetime.patient]", f"[lifetime.{cap}]"))
    for command in (place.approve, lambda: place.run("data", "check", str(place.file))):
        assert command() == 3
        assert "data.patient is ''" in capsys.readouterr().err
    assert not place.home.study_folder(place.study.digest).exists()


def test_an_approved_node_answers_once_with_what_was_counted_and_repeats_it(place, capsys):
    place.approve()
    file = place.home.contribution(place.study.digest, SEAT)
    kept, _ = read_contribution(file, place.study)
    with Policy(place.home.settings().policy) as policy:
        answering, _ = place.answering(policy)
        with answering:
            (seat,) = answering.seats()
            answering.warm([seat])
            reply = seat.answer(lambda: seat.party.handle(place.request()))
            assert isinstance(reply, VoteReply)
            np.testing.assert_array_equal(reply.votes, kept)
            spent = seat.ledger.balance(SEAT).spent
            assert spent == place.study.budgets.amount(1, 1)[0]
            # From now on only the ledger holds them, and other records change nothing of what was sent.
            assert not file.exists()
            write_records(place.folder / "a" / "records.csv", seed=9)
            capsys.readouterr()
            assert place.approve() == 0
            assert "already approved, and was asked: its votes are not counted again" in capsys.readouterr().out
            assert not file.exists()
            (hop,) = _studies(place.home, policy, what_was_spent(place.home, policy), "ward")
            assert (hop.ok, hop.found) == (True, "approved until 2999-12-31, its records have voted")
            again = seat.party.handle(place.request())
            np.testing.assert_array_equal(again.votes, reply.votes)
            outcome = Outcome(place.study.digest, place.request().digest, np.ones(8, dtype=bool))
            assert seat.party.handle(outcome) == Settled(place.request().digest, spent)
            assert seat.ledger.balance(SEAT).spent == spent
            second = replace(place.request(), batch=QueryBatch(1, np.arange(8), no_inputs(8)))
            assert isinstance(seat.party.handle(second), Refusal)
            assert seat.ledger.balance(SEAT).spent == spent


def test_votes_are_kept_for_an_approved_study_only_and_not_after_it_was_withdrawn(place, capsys):
    settings = place.home.settings_file
    settings.write_text(settings.read_text().replace("epsilon = 12.0", "epsilon = 2.5"))
    place.approve()
    kept = place.home.contribution(place.study.digest, SEAT)
    assert kept.exists()
    second = replace(place.study, name="second")
    assert place.approve(file=study_file(place.folder, second, "second.toml")) == Exit.BUDGET
    assert "lifetime_cap" in capsys.readouterr().err
    assert not place.home.contribution(second.digest, SEAT).exists()
    write_records(place.folder / "a" / "records.csv", seed=9)
    before = kept.read_bytes()
    assert place.approve() == 0
    assert kept.read_bytes() != before, "until it is asked, approving again counts anew"
    assert place.run("withdraw", "test", "--yes") == 0
    assert not kept.exists()


@pytest.mark.parametrize(("named", "unit"), [("patient", "record"), ("", "record"), ("patient", "patient")])
def test_a_cap_of_a_record_is_said_to_be_one_of_a_record_where_it_was_one_of_a_patient(tmp_path, capsys, named, unit):
    place = Place(tmp_path, unit=unit)
    text = place.home.settings_file.read_text()
    place.home.settings_file.write_text(text.replace('patient = "patient"', f'patient = "{named}"'))
    assert place.approve() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "this study fits" in said
    assert ("here for one record: as data.patient is set" in said) == ((named, unit) == ("patient", "record"))


def test_a_node_whose_votes_are_gone_refuses_without_a_charge_and_the_doctor_says_what_to_do(place):
    place.approve()
    with Policy(place.home.settings().policy) as policy:
        assert [hop.found for hop in _studies(place.home, policy, what_was_spent(place.home, policy), "ward")] == [
            "approved until 2999-12-31, its records' votes are counted"
        ]
        for content in (None, b"x" * 100):
            file = place.home.contribution(place.study.digest, SEAT)
            file.unlink() if content is None else file.write_bytes(content)
            (hop,) = _studies(place.home, policy, what_was_spent(place.home, policy), "ward")
            assert not hop.ok
            assert "approve STUDY.toml --queries FILE" in hop.todo
            answering, log = place.answering(policy)
            with answering:
                (seat,) = answering.seats()
                reply = seat.party.handle(place.request())
                assert reply.code == "no_record_votes"
                assert str(file) not in reply.reason
                assert seat.ledger.balance(SEAT).spent == 0
            assert "record_votes_failed" in log


def changed_row(place, text):
    path = place.folder / "a" / "records.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], text, *lines[2:]]) + "\n")


def one_unit(place):
    path = place.folder / "a" / "records.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:2]) + "\n")


def no_patient_column(place):
    text = place.home.settings_file.read_text()
    place.home.settings_file.write_text(text.replace('patient = "patient"', 'patient = "person"'))


def other_queries(place):
    place.file.write_text(place.file.read_text().replace(place.queries.digest, "0" * 64))


def no_queries(place):
    place.sent.write_bytes(b"nothing")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda place: changed_row(place, "p0,1,2,3,4,up"), "'a text of 2 characters'; allowed: left, right"),
        (lambda place: changed_row(place, "p0,1,2,x,4,left"), "'a text of 1 characters'; allowed: a finite number"),
        (one_unit, "1 protected unit (record); allowed: at least 2"),
        (no_patient_column, "person"),
        (other_queries, "allowed: that of the study"),
        (no_queries, "is not"),
        (
            lambda place: place.file.write_text(place.file.read_text().replace("population = 300", "population = 59")),
            "60 protected units (records); allowed: at most the study's population, 59",
        ),
    ],
    ids=["label", "feature", "one unit", "patient column", "digest", "no file of queries", "population"],
)
def test_what_is_wrong_is_said_before_anything_is_approved(place, capsys, spoil, words):
    spoil(place)
    assert place.approve() != 0
    assert words in capsys.readouterr().err
    assert place.approvals() == []
    assert not place.home.study_folder(place.study.digest).exists()


def test_the_queries_go_with_record_votes_and_the_pool_with_teachers(place, capsys):
    for arguments, words in (
        ([], "--queries is missing"),
        (["--queries", str(place.sent), "--pool", str(place.sent)], "--pool"),
    ):
        assert place.run("approve", str(place.file), "--yes", *arguments) == 3
        assert words in capsys.readouterr().err
    assert place.approve() == 0
    assert place.run("train", "test") == 3
    assert "so it has no teachers" in capsys.readouterr().err


def test_data_check_counts_the_units_that_would_vote(place, capsys):
    assert place.run("data", "check", str(place.file)) == 0
    assert "seat hospital-0: 60 records vote, each once" in capsys.readouterr().out


def test_budget_show_says_that_the_study_costs_once(place, capsys):
    place.approve()
    capsys.readouterr()
    assert place.run("budget", "show") == 0
    assert "test, hospital-0: not asked yet, and then once" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("unit", "cap", "bounded"),
    [
        ("record", "record", True),
        ("record", "patient", False),
        ("record", "party", False),
        ("patient", "record", True),
        ("patient", "patient", True),
        ("patient", "party", False),
    ],
)
def test_a_lifetime_cap_counts_a_study_only_where_its_unit_is_bounded(unit, cap, bounded):
    study, _ = record_study_of(unit=unit)
    if not bounded:
        with refuses(InvalidInput, cap, unit):
            study_cost(study, SEAT, unit=cap, spent=None, told_apart=False)
        return
    cost = study_cost(study, SEAT, unit=cap, spent=None, told_apart=False)
    assert cost.at(float(study.budgets.order[0])) == study.budgets.cap[0]


def test_studies_add_up_to_the_lifetime_cap_and_the_one_that_passes_it_is_refused(place):
    caps = {"record": LifetimeCap(3.0, 1e-5)}
    with Policy(":memory:") as policy:
        fits = []
        for number in range(4):
            study = replace(with_sum_queries(place.study, number), name=f"study-{number}")
            (each,) = policy.forecast(study, party=SEAT, data_set="d", caps=caps, told_apart=False)
            fits.append(each.fits)
            if each.fits:
                home = SimpleNamespace(identity="0" * 32, path=place.folder)
                policy.approve(study, party=SEAT, data_set="d", caps=caps, home=home, told_apart=False)
        assert fits == [True, True, False, False]


@pytest.mark.parametrize("asked", [False, True])
def test_budget_show_says_of_a_withdrawn_study_whether_it_was_asked(place, capsys, asked):
    assert place.approve() == 0
    if asked:
        assert isinstance(place.ask(), VoteReply)
    assert place.run("withdraw", "test", "--yes") == 0
    capsys.readouterr()
    assert place.run("budget", "show") == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("test, ")]
    assert ("asked once" in line) == asked
    assert "withdrawn" in line


class JudgingPlace(Place):
    """A member of a study with a second batch, and a model that its judges may be asked about."""

    def __init__(self, folder, **how):
        super().__init__(folder, kind="graded", level=Clear(units=2**16), **({"share": 0.4} | how))
        inputs = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32)
        fitted = LogisticRegression().fit(inputs, inputs[:, 0] > 0)
        content = to_onnx(fitted, inputs[:1], options={"zipmap": False}).SerializeToString()
        self.model = ScoredModel(content, (0, 1), None).to_bytes()

    def request(self):
        count = self.study.queries_to_ask
        return VoteRequest(self.study.digest, bytes(16), QueryBatch(0, np.arange(count), no_inputs(count)))

    def judging(self, model=None):
        ids = np.arange(self.study.queries_to_ask, self.study.query_limit)
        batch = QueryBatch(1, ids, no_inputs(len(ids)), model or self.model)
        return VoteRequest(self.study.digest, bytes(16), batch)

    def asked(self, *requests):
        """The reply to the last of some requests."""
        with Policy(self.home.settings().policy) as policy, self.answering(policy)[0] as answering:
            (seat,) = answering.seats()
            return [seat.answer(lambda each=each: seat.party.handle(each)) for each in requests][-1]

    @property
    def kept(self):
        return self.home.judges(self.study.digest, SEAT)


@pytest.mark.parametrize("unit", ["record", "patient"])
def test_listed_units_judge_once_and_do_not_vote_whatever_the_data_say_later(tmp_path, capsys, unit):
    place = JudgingPlace(tmp_path, unit=unit)
    assert place.approve() == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(each in shown for each in ("60 records of", f"40 of 100 {unit}s", "costs nothing more"))
    records = load_records(place.home.settings().data, place.study.terms)
    units = records.units if unit == "patient" else records.rows
    ids = records.patients if unit == "patient" else [str(row) for row in range(60)]
    judges = place.study.votes.evaluation.judges(ids)
    assert 0 < judges.sum() < 60
    weight = round(place.study.roster[0].weight * place.study.units)
    spoken = said(place.queries, records.inputs[~judges], records.labels[~judges], classes=2)
    voted = None if unit == "record" else units[~judges]
    votes = contribution_sum(place.queries, spoken, voted, weight_units=weight, classes=2)
    write_records(place.folder / "a" / "records.csv", seed=9)
    reply = place.asked(place.request())
    np.testing.assert_array_equal(reply.votes, votes)
    reply = place.asked(place.judging())
    given = ScoredModel.from_bytes(place.model).probabilities(records.inputs[judges], classes=2)
    of = None if unit == "record" else units[judges]
    terms = place.study.votes.evaluation
    expected = judged(terms, given, records.labels[judges], of, weight_units=weight, signed=True)
    np.testing.assert_array_equal(reply.votes, expected)
    assert not place.kept.exists()
    # Asked again it repeats the stored reply; about another model it answers nothing.
    np.testing.assert_array_equal(place.asked(place.judging()).votes, expected)
    assert place.asked(place.judging(place.model + b" ")).code == "batch_reused"


@pytest.mark.parametrize("unit", ["record", "patient"])
def test_units_are_asked_twice_as_they_were_approved_and_then_nothing_is_kept(tmp_path, capsys, unit):
    place = JudgingPlace(tmp_path, share=None, residuals=True, unit=unit)
    assert place.approve() == 0
    assert "Asked twice" in " ".join(capsys.readouterr().out.split())
    records = load_records(place.home.settings().data, place.study.terms)
    weight = round(place.study.roster[0].weight * place.study.units)
    spoken = said(place.queries, records.inputs, records.labels, classes=2)
    first = FirstScores.of(np.random.default_rng(1).normal(size=(place.queries.rows, 2)))
    expected = residual_sum(first, spoken, None if unit == "record" else records.units, weight_units=weight)
    assert place.asked(place.judging(first.to_bytes())).code == "unknown_batch"
    write_records(place.folder / "a" / "records.csv", seed=9)
    assert place.asked(place.request(), place.judging(b"no scores")).code == "no_record_votes"
    assert place.run("home", "move", str(tmp_path / "m"), "--yes") == 0  # goes on, though nothing is counted again
    place.home = PartyHome(tmp_path / "there")
    assert place.run("home", "restore", str(tmp_path / "m")) == 0
    np.testing.assert_array_equal(place.asked(place.judging(first.to_bytes())).votes, expected)
    assert not place.kept.exists()
    assert place.asked(place.judging(FirstScores.of(first.of_one * 2).to_bytes())).code == "batch_reused"


def test_judges_answer_after_votes_alone_and_not_from_another_approval_than_the_votes(tmp_path):
    place = JudgingPlace(tmp_path)
    place.approve()
    first = place.kept.read_bytes()
    assert place.asked(place.judging()).code == "unknown_batch"
    write_records(place.folder / "a" / "records.csv", seed=9)
    place.approve()
    second, votes = place.kept.read_bytes(), place.home.contribution(place.study.digest, SEAT)
    assert first != second
    # Votes of one approval and judges of another, as parts of a backup: neither is used.
    newer = votes.read_bytes()
    place.kept.write_bytes(first)
    reply = place.asked(place.request())
    assert not isinstance(reply, Refusal)
    assert place.asked(place.judging()).code == "no_record_votes"
    place.kept.write_bytes(second)
    votes.write_bytes(newer)
    assert not isinstance(place.asked(place.judging()), Refusal)
    assert place.approve() == 0
    assert not place.kept.exists()


def test_a_model_that_cannot_run_is_refused_and_the_judges_stay(tmp_path):
    place = JudgingPlace(tmp_path)
    place.approve()
    place.asked(place.request())
    for wrong in (b"no model", ScoredModel(b"no onnx", (0, 1), None).to_bytes()):
        assert place.asked(place.judging(wrong)).code == "no_record_votes"
    assert place.kept.exists()
    assert not isinstance(place.asked(place.judging()), Refusal)


def test_a_withdrawn_study_keeps_no_judges(tmp_path):
    place = JudgingPlace(tmp_path)
    place.approve()
    assert place.kept.stat().st_mode & 0o077 == 0
    assert place.run("withdraw", place.study.name, "--yes") == 0
    assert not place.kept.exists()


def test_where_equal_records_are_one_no_role_depends_on_which_others_are_equal(tmp_path):
    place = JudgingPlace(tmp_path)
    assert place.approve() == 0
    inputs, labels = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32), np.zeros(40, np.int64)
    with Policy(place.home.settings().policy) as policy:

        def roles(records):
            return judges_of(records, place.study, records.rows, policy.known)[0]

        before = roles(Records(inputs, labels, equal_are_one=True))
        for other in range(1, 40):
            # The first record is replaced by one that equals another, which then is counted where the first stands.
            changed = np.concatenate([inputs[other : other + 1], inputs[1:]])
            np.testing.assert_array_equal(roles(Records(changed, labels, equal_are_one=True))[1:], before[1:])


def test_a_model_is_run_as_often_however_many_judge(tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr(OnnxModel, "first_output", lambda self, x, **how: runs.append(len(x)) or np.full((1, 2), 0.5))
    for name in ("some", "other"):
        (tmp_path / name).mkdir()
        place = JudgingPlace(tmp_path / name)
        assert place.approve() == 0
        place.asked(place.request(), place.judging())
    assert len(runs) % 2 == 0
    assert runs[: len(runs) // 2] == runs[len(runs) // 2 :]
    assert len(runs) // 2 == 1 + runs_for(np.arange(60), 0.4)


def test_a_node_that_was_stopped_between_its_list_and_its_votes_approves_again_and_votes(tmp_path):
    place = JudgingPlace(tmp_path)
    assert place.approve() == 0
    with Policy(place.home.settings().policy) as policy:
        policy.known.list_judges(place.study.digest, SEAT, bytes(16), np.arange(3))
    assert place.asked(place.request()).code == "no_record_votes"
    assert place.approve() == 0
    assert isinstance(place.asked(place.request()), VoteReply)
    # From now on the list stands.
    with Policy(place.home.settings().policy) as policy, refuses(InvalidInput, "votes"):
        policy.known.list_judges(place.study.digest, SEAT, bytes(16), np.arange(3))
