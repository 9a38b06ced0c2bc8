"""A release whose student judges have scored: its figures, the gate, and what a verifier finds of any part of it."""

import csv
import json
import shutil

import numpy as np
import pytest

from coordinator.labelling.training import train_student
from coordinator.release.evaluation import check_required, keep_model
from coordinator.release.export import model_for_judges
from coordinator.release.verify import verify_release
from party.commands.group import run_command
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.scored_model import ScoredModel
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.aggregation import SharedAggregation
from protocols.levels.two_server.ballot import SharedBallot
from protocols.refusals.code import Code
from tests.harness.deployed_records import HOSPITALS, POOL, judged_by, record_study_of, records_of
from tests.harness.homes import make_member, study_file, write_records
from tests.harness.levels import SEAT_KEYS, GuardianHere, two_server
from tests.harness.refusals import refused_for, refuses
from tests.harness.released import Consortium, failed
from tests.harness.seeded import seeded_source


class Evaluated:
    """A consortium, a student that its judges scored, and the release of it."""

    def __init__(self, folder, level):
        self.consortium = Consortium(folder)
        guarded = two_server(units=2**16, seats=3) if level == "two_server" else None
        more = {} if guarded is None else {"level": guarded}
        self.study, queries = record_study_of("graded", epsilon=50.0, share=0.4, **more)
        self.models = []
        how = {}
        if guarded is not None:
            here = GuardianHere(self.study, Ledger(":memory:"), seeded_source(1))
            how = {
                "aggregation": SharedAggregation(here.dial, source=seeded_source(2)),
                "ballots": lambda name, ledger: SharedBallot(
                    self.study,
                    name,
                    key=SEAT_KEYS[self.study.seats[name]],
                    source=seeded_source(3, self.study.seats[name]),
                ),
            }
        self.labelled = self.consortium.label(self.study, queries=queries, judge=self.train, **how)
        self.folder = self.release(folder / "release")

    def train(self, labelled):
        self.trained = train_student(labelled, POOL, kind="logistic_regression", seed=0, device="cpu")
        self.model = model_for_judges(self.trained, POOL)
        return self.model

    def release(self, out, **more):
        return self.consortium.release(self.labelled, out, trained=self.trained, model=self.model, **more)


@pytest.fixture(scope="module", params=["clear", "two_server"])
def evaluated(request, tmp_path_factory):
    return Evaluated(tmp_path_factory.mktemp(request.param), request.param)


def test_the_figures_are_those_of_the_judges_within_their_noise_and_stand_on_every_page(evaluated):
    said = json.loads((evaluated.folder / "evaluation.json").read_text())
    exact = np.sum([judged_by(evaluated.study, evaluated.model, seat) for seat in HOSPITALS], axis=0)
    named = exact[:2]
    value, low, high = said["figures"]["accuracy"]
    right = np.trace(named) / named.sum()
    assert low <= right <= high
    assert high - low < 0.3
    assert value == pytest.approx(right, abs=0.1)
    shown = f"{100 * value:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    assert f"accuracy: {shown}" in (evaluated.folder / "model_card.md").read_text()
    report = (evaluated.folder / "report.html").read_text().replace("\xa0%", " %")
    assert f'>accuracy</th><td data-name="value">{shown}</td>' in report
    assert "not measured" not in (evaluated.folder / "sbom.cdx.json").read_text()
    privacy = (evaluated.folder / "privacy.html").read_text()
    assert all(each in privacy for each in ("its judges say", "of its judges until"))
    checks = {each.name: each for each in verify_release(evaluated.folder, None, pool=evaluated.labelled.pool)}
    assert [name for name, each in checks.items() if not each.passed] == ["authority"]
    assert checks["judges"].message == "judges of 3 seats judged this very student, once"
    without = {each.name: each for each in verify_release(evaluated.folder, None)}
    assert without["judges"].passed is None


def test_a_hospital_sees_how_good_it_is_and_gets_probabilities_that_judges_calibrated(evaluated, tmp_path, capsys):
    evaluated.consortium.address, evaluated.consortium.enrol_port = "127.0.0.1:1", 2
    home = ["--home", str(make_member(tmp_path / "a", evaluated.consortium).path)]
    table, out = write_records(tmp_path / "own.csv", rows=40), tmp_path / "predicted.csv"
    assert run_command(["predict", str(evaluated.folder), "--records", str(table), "--out", str(out), *home]) == 0
    said, terms = json.loads((evaluated.folder / "evaluation.json").read_text()), evaluated.study.votes.evaluation
    value, low, high = (100 * each for each in said["figures"]["accuracy"])
    told = f"judged right in {value:.1f} % (95 %: {low:.1f} to {high:.1f})"
    assert told in " ".join(capsys.readouterr().out.split())
    inputs = np.loadtxt(table, np.float32, delimiter=",", skiprows=1, usecols=range(1, 5))
    given = ScoredModel.from_bytes(evaluated.model).probabilities(inputs, classes=2)[:, 1]
    for chance, row in zip(given, csv.DictReader(out.read_text().splitlines()), strict=True):
        meant = said["calibrated"][sum(chance >= edge for edge in terms.edges)]
        expected = ("right", meant) if chance >= 0.5 else ("left", 1 - meant)
        assert (row["predicted"], float(row["probability"])) == (expected[0], pytest.approx(expected[1], abs=1e-4))
    score = ["data", "score", str(study_file(tmp_path, evaluated.study)), "--release", str(evaluated.folder)]
    assert run_command([*score, *home]) == 0
    assert told in " ".join(capsys.readouterr().out.split())


def test_no_page_and_no_file_tells_how_many_units_judged_or_voted(evaluated):
    # A file's hash may hold any digits: only what is said in words and numbers is looked at.
    judges = sum(len(records_of(seat)[1]) for seat in HOSPITALS)
    ids = evaluated.study.votes.evaluation.judges([str(row) for row in range(60)])
    for count in (int(ids.sum()), 3 * int(ids.sum()), judges - 3 * int(ids.sum())):
        for name in ("report.html", "model_card.md", "privacy.json"):
            text = (evaluated.folder / name).read_text()
            assert f"{count} judges" not in text
            assert f"{count} units" not in text
            assert f"{count} records vote" not in text


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("a figure", "pages"),
        ("a sum", "guardian's signatures"),
        ("the pool", "judges"),
        ("a seat", "judges"),
        ("the run", "judges"),
        ("another model", "judges"),
        ("left out", "judges"),
    ],
)
def test_tampering_with_any_part_is_found(evaluated, tmp_path, what, named):
    copy = shutil.copytree(evaluated.folder, tmp_path / "copy")
    file = copy / "evaluation.json"
    values = json.loads(file.read_text())
    if what == "a figure":
        values["figures"]["accuracy"][0] = 0.9999
    if what == "a sum":
        values["sums"][0][0] += 10**6
    if what == "the pool":
        values["pool"]["means"][0] = 0.5
    if what == "a seat":
        values["counted"] = values["counted"][:2]
    if what == "the run":
        values["run"] = "00"
    file.write_text(json.dumps(values, indent=2) + "\n")
    if what == "another model":
        student = copy / "student.onnx"
        student.write_bytes(student.read_bytes() + b"\x32\x00")  # an empty field: the model does the same
    if what == "left out":
        file.unlink()
    # A coordinator that forges with care makes all pages again; that of a figure leaves them as they were.
    (evaluated.consortium.sign_again if what == "a figure" else evaluated.consortium.remake)(copy)
    found = failed(copy, pool=evaluated.labelled.pool)
    # Where no guardian signs the sums, whoever adds them up may say any: that is the level's trust, as for votes.
    expected = {named} if what != "a sum" or evaluated.study.confidentiality.second_server else set()
    assert expected <= set(found)
    assert bool(expected) == bool(found)


def test_a_release_is_refused_unless_every_figure_is_surely_as_good_as_is_required(evaluated, tmp_path):
    figures = json.loads((evaluated.folder / "evaluation.json").read_text())["figures"]
    low = figures["accuracy"][1]
    assert evaluated.release(tmp_path / "good", required=[f"accuracy>={low - 0.01:.3f}"]).is_dir()
    with refused_for(Code.NOT_GOOD_ENOUGH) as refused:
        evaluated.release(tmp_path / "bad", required=[f"accuracy >= {low + 0.01:.3f}"])
    assert f"{low:.3f} to" in str(refused.value)
    assert not (tmp_path / "bad").exists()
    check_required(["auroc of right>=0.0", "brier<=2", "specificity>=0"], figures, ("left", "right"))
    for wrong in ("accuracy", "precision>=0.5", "auroc of left>=0.5", "auroc of up>=0.5", "accuracy of left>=.5"):
        with refuses(InvalidInput, "--require"):
            check_required([wrong], figures, ("left", "right"))
    with refused_for("not_good_enough"):
        check_required(["accuracy>=0.5"], None, ("left", "right"))


def test_one_model_is_judged_and_no_other_is_released_as_it(evaluated, tmp_path):
    keep_model(tmp_path / "judged.model", evaluated.model, POOL, classes=2)
    keep_model(tmp_path / "judged.model", model_for_judges(evaluated.trained, POOL), POOL, classes=2)
    assert (tmp_path / "judged.model").read_bytes() == evaluated.model
    other = train_student(evaluated.labelled, POOL, kind="random_forest", seed=0, device="cpu")
    with refused_for("batch_reused"):
        keep_model(tmp_path / "judged.model", model_for_judges(other, POOL), POOL, classes=2)
    with pytest.raises(InvalidInput, match="judges scored another student"):
        evaluated.consortium.release(evaluated.labelled, tmp_path / "other", trained=other, model=evaluated.model)


def test_bytes_that_are_no_model_are_refused_whatever_they_are(evaluated):
    whole = evaluated.model
    rng = np.random.default_rng(1)
    wrong = [b"", whole[:7], whole[:-1], whole + b"\0", bytes(24), rng.bytes(200)]
    wrong += [whole[:at] + rng.bytes(8) + whole[at + 8 :] for at in (0, len(whole) - 20)]
    for data in wrong:
        with pytest.raises((DataCorrupt, InvalidInput)):
            ScoredModel.from_bytes(data).probabilities(POOL[:2], classes=2)
