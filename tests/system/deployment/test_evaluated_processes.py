"""The four hospitals of heart_disease, as processes, from approval to a release that says how good its student is."""

import json
import sys
from dataclasses import replace
from subprocess import Popen

import pytest

from party.demo.demo_data import demo_data, record_draft
from protocols.features.scored_model import ScoredModel
from protocols.ledger.ledger import Ledger
from protocols.levels.simulated import seat_keys
from protocols.study.levels import SecureSum
from protocols.sums.judging import Evaluation, usual_score_bins
from tests.harness.clocks import wait_until
from tests.harness.local_consortium import ConsortiumHere

SHARE, EPSILON = 0.3, 8.0
# A node that adds a million votes to one entry of its sum.
CHEATING = """
from protocols.levels.two_server import ballot
honest = ballot.share_sum
def any_vector(cells, **how):
    share, guardians = honest(cells, **how)
    share.numbers[0] = (int(share.numbers[0]) + 2**20) % (2**31 - 1)
    return share, guardians
ballot.share_sum = any_vector
from party.__main__ import main
main()
"""


class Judging(ConsortiumHere):
    """`study create` fills in the keys of the seats once the hospitals have certificates."""

    def _files(self):
        super()._files()
        file = self.folder / "study.toml"
        terms, seats = file.read_text().split("[[party]]", 1)
        lines = seats.splitlines(keepends=True)
        seats = "".join(line for line in lines if not line.startswith("signing_key = "))
        file.write_text(f"{terms}[[party]]{seats}")


def consortium_of(folder, level, *, residuals=False):
    data = demo_data(None)
    study = record_draft(data)
    bins = usual_score_bins(SHARE * study.votes.population)
    judges = Evaluation.of(share=SHARE, key=bytes(32), bins=bins, classes=2, threshold=0.5)
    held = {name: len(rows) for name, rows in data.rows.items()}
    seats = (replace(seat, epsilon=EPSILON, population=held[seat.party]) for seat in study.roster)
    study = replace(study, roster=tuple(seats))
    study = study.voting(evaluation=None if residuals else judges, residuals=residuals)
    if level == "secure_sum":
        keys = seat_keys(len(study.roster))
        study = replace(study, confidentiality=SecureSum(units=2**16, colluders=0, seat_keys=keys))
    made = Judging(folder, data, study, say=lambda line: None)
    if level == "two_server":
        made.add_guardian()
    return made


def spent_of(consortium):
    """What each hospital's ledger holds, in its own words."""
    shown = [json.loads(consortium.party(name, "budget", "show", "--json")) for name in consortium.data.hospitals]
    return [seat["epsilon_used"] for each in shown for seat in each["seats"]]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["clear", "secure_sum", "two_server"])
def test_four_hospitals_judge_the_student_that_they_taught_and_nobody_pays_twice(tmp_path, level, forked):
    consortium = consortium_of(tmp_path, level)
    data, servers = consortium.data, ["centre", *consortium.data.hospitals]
    try:
        consortium.set_up()
        for name in data.hospitals:
            consortium.start(name)
        said = consortium.coordinator("label", "demo", "--wait")
        assert ("distance" in said) == (level == "clear")  # only there is a sum seen
        after_votes = spent_of(consortium)
        assert after_votes == pytest.approx([EPSILON] * 4, rel=1e-3)
        consortium.kill("centre")
        consortium.coordinator("train", "demo", "--student", "logistic_regression")
        # Asked, and stopped at once on both sides: whatever was reached, the same question gets the same answer.
        consortium.coordinator("evaluate", "demo")
        consortium.kill(*servers)
        consortium.coordinator("evaluate", "demo", "--wait")
        consortium.kill(*servers)
        again = consortium.coordinator("evaluate", "demo", "--wait")
        assert "finished" in again
        assert spent_of(consortium) == after_votes
        home = tmp_path / "centre" / "studies" / "demo"
        release = consortium.verified_release("--require", "accuracy>=0.4")
        said = json.loads((release / "evaluation.json").read_text())
        assert len(said["counted"]) == 4
        assert len(said["hospitals"]) <= (4 if level == "clear" else 0)
        # As the judges' own records say, without noise: within the interval (of 18 such, one may not be).
        model = ScoredModel.from_bytes((home / "asked_about.model").read_bytes())
        low, high = said["figures"]["accuracy"][1:]
        given = model.probabilities(data.test_inputs, classes=2)
        of_test = float((given.argmax(axis=1) == data.test_labels).mean())
        assert low - 0.15 <= of_test <= high + 0.15
        assert high - low < 0.4
        assert not [path for name in data.hospitals for path in (tmp_path / name / "studies").glob("*/judges-*")]
        # Another student is not asked about.
        consortium.coordinator("train", "demo", "--student", "random_forest")
        refused = consortium.call(
            "coordinator", tmp_path / "centre", "evaluate", "demo", "--wait", allowed=tuple(range(1, 12))
        )
        assert refused == ""
    finally:
        consortium.stop()


@pytest.mark.slow
def test_a_hospital_that_adds_any_vector_is_refused_and_the_study_of_the_others_ends(tmp_path, forked):
    study = replace(record_draft(demo_data(None)), quorum=3)
    consortium = Judging(tmp_path, demo_data(None), study, say=lambda line: None)
    consortium.add_guardian()
    cheat, *honest = reversed(list(consortium.data.hospitals))
    try:
        consortium.set_up()
        for name in honest:
            consortium.start(name)
        with (tmp_path / f"{cheat}.log").open("ab") as log:
            command = [sys.executable, "-c", CHEATING, "run", "--home", str(tmp_path / cheat)]
            consortium.processes[cheat] = Popen(command, stderr=log)
        consortium.coordinator("label", "demo", "--wait")
        consortium.kill("centre", "guardian")
        homes = {name: next((tmp_path / name).rglob("ledger.sqlite")) for name in ("centre", "guardian")}
        for path in homes.values():
            with Ledger(path) as ledger:
                assert ledger.stored(0).settled
                assert {seat: bool(amount) for seat, amount in ledger.settled(0).items()} == {
                    name: name != cheat for name in consortium.data.hospitals
                }
                refused = [entry.fields["parties"] for entry in ledger.log.entries() if entry.event == "votes_refused"]
                assert refused == [cheat]
        own = next((tmp_path / cheat / "studies").rglob("ledger*.sqlite"))

        def told():
            with Ledger(own) as ledger:
                return ("votes_not_counted", "bad_votes") in [
                    (entry.event, entry.fields.get("code")) for entry in ledger.log.entries()
                ]

        wait_until(told, timeout_s=120)
        consortium.coordinator("train", "demo", "--student", "logistic_regression")
    finally:
        consortium.stop()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["clear", "secure_sum", "two_server"])
def test_four_hospitals_are_asked_twice_by_one_labelling_and_pay_once(tmp_path, level, forked):
    consortium = consortium_of(tmp_path, level, residuals=True)
    data = consortium.data
    try:
        consortium.set_up()
        for name in data.hospitals:
            consortium.start(name)
        consortium.coordinator("label", "demo")
        consortium.kill("centre", *data.hospitals)
        consortium.coordinator("label", "demo", "--wait")
        assert spent_of(consortium) == pytest.approx([EPSILON] * 4, rel=1e-3)
        consortium.coordinator("train", "demo", "--student", "scores")
        release = consortium.verified_release()
        assert len(json.loads((release / "residuals.json").read_text())["counted"]) == 4
        assert not [path for name in data.hospitals for path in (tmp_path / name / "studies").glob("*/judges-*")]
    finally:
        consortium.stop()
