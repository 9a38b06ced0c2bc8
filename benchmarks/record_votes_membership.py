"""The membership game where records vote: what attackers find of one replaced record, and the ceiling of its epsilon.

    python benchmarks/record_votes_membership.py --data-dir DATA --epsilons 0.5,1,8 [--record-queries columns]
        [--residuals]

heart_disease with its four hospitals. The attacker knows every record of every party but one, which is either the
target or another record: what replace-one neighbours are. The target is a record of the hospital with the fewest: of a
few pairs drawn at random, the one whose replacement moves the sums furthest. Where votes are graded the other record
may also be the target itself with another label, which moves them nearly as far as anything. Each run is the real path:
contributions of all parties, a study with fresh noise, soft labels of the pool, a student. Two attackers score it: one
reads the released sums, by the statistic that is most powerful for them (linear in the cells, Neyman & Pearson; of a
second sum, once the first one says what it is about); one asks the student for the target's probability (Yeom et al.
2018). The control publishes the sums without noise; it must be flagged, and nothing else may be.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from sklearn.exceptions import ConvergenceWarning

from coordinator.labelling.soft_labels import SoftLabels
from coordinator.queries.choice import COLUMNS, GRADED, QueryChoice, make_queries
from coordinator.students import SCORES, student_kind
from coordinator.students.scores import ScoresStudent
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import Labelling, SecondSum
from protocols.labelling.replay import replay
from protocols.labelling.stored_votes import RecordSums
from protocols.levels.level import BatchNoise
from protocols.levels.simulated import drawn_noise
from protocols.research.private import Private
from protocols.study.levels import Clear
from protocols.study.record_study import ANY_SIGNED, RecordVotesPlan, record_study
from protocols.study.released_noise import noise_of_mean
from protocols.study.study import Study
from protocols.study.votes import unit_sums
from protocols.sums.blocks import Blocks
from protocols.sums.residuals import FirstScores
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from simulations.membership.attack import ceiling_of, loss
from simulations.membership.report import AttackCeiling, Estimate, RateAt, advantage, area, best_threshold, rates
from simulations.setup.partition import BySite, partition
from simulations.stages.record_cells import Contribution, RecordCells
from simulations.stages.record_votes import cells_of_holdings, soft_pool_labels

Holding = tuple[Float32[ndarray, "records ..."], Int64[ndarray, " records"], Int64[ndarray, " records"] | None]
Scores = Float64[ndarray, " runs"]

# Halves of this many runs suffice to learn a threshold and to measure an area.
_FEWEST_RUNS = 8


@dataclass(frozen=True, eq=False)
class Game:
    """The study, its public queries and pool, all parties' records, and what is replaced.

    seat, position: of the target among its party's records; other_input, other_label: the record in its place.
    """

    study: Study
    queries: Blocks
    pool: Float32[ndarray, "pool ..."] = field(repr=False)
    holdings: Sequence[Holding] = field(repr=False)
    seat: int
    position: int
    other_input: Float32[ndarray, "..."] = field(repr=False)
    other_label: int

    @property
    def target(self) -> tuple[Float32[ndarray, "1 ..."], Int64[ndarray, " 1"]]:
        """The target's features and label."""
        inputs, labels, _ = self.holdings[self.seat]
        return inputs[self.position][None], labels[[self.position]]

    @property
    def squared_move(self) -> float:
        """How far the parties' first sums move in L2, squared, as a share of what the party's weight allows them."""
        before, after = (np.sum(self.said(replaced=each).sums(self.study), axis=0) for each in (False, True))
        weight, votes = round(self.study.roster[self.seat].weight * self.study.units), unit_sums(self.study)
        return float(np.square((before - after) / weight).sum()) * (1 + votes.residuals) / votes.delta_squared

    def said(self, *, replaced: bool) -> RecordCells:
        """What every party's records say, with the target or with the other record."""
        if not replaced:
            return cells_of_holdings(self.study, self.queries, self.holdings)
        inputs, labels, patients = self.holdings[self.seat]
        inputs, labels = inputs.copy(), labels.copy()
        inputs[self.position], labels[self.position] = self.other_input, self.other_label
        holdings = list(self.holdings)
        holdings[self.seat] = (inputs, labels, patients)
        return cells_of_holdings(self.study, self.queries, holdings)

    def soft(self, labelling: Labelling, first: FirstScores | None = None) -> SoftLabels:
        """The pool's soft labels of what was released; first: what the second sum was about."""
        population = unit_sums(self.study).population
        return soft_pool_labels(self.study, labelling, self.queries, self.pool, records=population, first=first)


@dataclass(frozen=True)
class GameResult:
    """What one attacker found in so many runs of either kind, and the ceiling that the claimed epsilon gives.

    advantage: of a threshold learned from half of the runs, on the other half.
    """

    attacker: str
    runs: int
    area: Estimate
    rates: tuple[RateAt, ...]
    advantage: Estimate
    ceiling: AttackCeiling

    @property
    def flagged(self) -> bool:
        """Whether what was found is above the ceiling by more than chance (intervals at 95 %)."""
        return self.area.low > self.ceiling.area or self.advantage.low > self.ceiling.advantage


def play(
    game: Game, *, runs: int, student: str, student_runs: int, seed: int, noise: bool
) -> Private[list[GameResult]]:
    """What both attackers find. noise: False publishes the sums as they are, the control without privacy.

    runs: of either kind, for the attacker of the sums; student_runs: the first of them, in which a student is trained;
    0 for none. Raises InvalidInput.
    """
    for name, value, least in (("runs", runs, _FEWEST_RUNS), ("student_runs", student_runs, 0)):
        if not (value >= least and (value <= runs) and (value == 0 or value >= _FEWEST_RUNS)):
            raise InvalidInput(f"{name} is {value}; allowed: {least} to {runs}, and at least {_FEWEST_RUNS} if any")
    sides = [game.said(replaced=replaced) for replaced in (False, True)]
    sums = [each.sums(game.study) for each in sides]
    totals = [np.sum(each, axis=0) for each in sums]
    by_sums: list[list[float]] = [[], []]
    by_student: list[list[float]] = [[], []]
    for run in range(runs):
        for side in range(2):
            drawn = _derived(seed, run, side)
            source = drawn_noise(game.study, seed=drawn)
            labelling = _released(game.study, sums[side], source, noise=noise)
            told, first = _towards(labelling.cells, *totals), None
            if unit_sums(game.study).residuals:
                first = FirstScores.of(game.soft(labelling).scores.coefficients)
                again = [np.sum(each.residuals(game.study, first), axis=0) for each in sides]
                everybody = np.full(len(game.study.roster), True)
                _, cells = game.study.released(again[side] / game.study.units, source(everybody), predictions=None)
                labelling = replace(labelling, again=SecondSum(cells if noise else again[side], everybody))
                told += _towards(labelling.again.cells, *again)
            by_sums[side].append(told)
            if run < student_runs:
                soft = game.soft(labelling, first)
                by_student[side].append(_student_score(game, soft, student=student, seed=drawn))
    ceiling = ceiling_of(
        game.study.budgets.epsilon_guaranteed[game.seat], np.float64(game.study.roster[game.seat].delta)
    )
    found = [_result("the released sums", by_sums, ceiling)]
    if student_runs:
        found.append(_result(f"the student, {student}", by_student, ceiling))
    return Private(found)


def _derived(seed: int, run: int, side: int) -> int:
    return int(simulation_rng(seed, "membership game", run, side).integers(2**31))


def _released(study: Study, sums: Sequence[Contribution], source: BatchNoise, *, noise: bool) -> Labelling:
    made = replay(study, RecordSums(study.classes, sums), noise=source, presence=None).labelling
    return made if noise else replace(made, cells=np.sum(sums, axis=0))


def _towards(cells: ndarray, before: ndarray, after: ndarray) -> float:
    """In proportion to the log-likelihood ratio of both sides, as all cells have the same noise."""
    return float(((cells - (before + after) / 2) * (before - after)).sum())


def _student_score(game: Game, soft: SoftLabels, *, student: str, seed: int) -> float:
    """The logarithm of the student's odds of the target's label."""
    inputs, label = game.target
    if student == SCORES:
        made = ScoresStudent.of(game.queries, soft.scores)
        return float(loss(made.predict_proba(game.queries.features(inputs)).astype(np.float64), label)[0])
    trained = student_kind(student).fit(
        game.pool,
        soft.probabilities.astype(np.float32),
        unlabelled=game.pool[:0],
        classes=game.study.classes,
        seed=seed,
    )
    return float(loss(trained.predict_proba(inputs).astype(np.float64), label)[0])


def _result(attacker: str, scores: list[list[float]], ceiling: AttackCeiling) -> GameResult:
    inside, outside = (np.array(each) for each in scores)
    half = len(inside) // 2
    threshold = best_threshold(inside[:half], outside[:half])
    return GameResult(
        attacker,
        len(inside),
        area(inside, outside),
        rates(inside, outside),
        advantage(inside[half:], outside[half:], threshold=threshold),
        ceiling,
    )


_DELTA = 1e-5
_CANDIDATES = 20


def main() -> None:
    """One table per epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--epsilons", default="0.5,1,8")
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--student-runs", type=int, default=200)
    parser.add_argument("--record-queries", choices=(GRADED, COLUMNS), default=GRADED)
    parser.add_argument("--residuals", action="store_true", help="units are asked twice")
    parser.add_argument("--student", help="[scores of graded votes, else logistic_regression]")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    student = asked.student or (SCORES if asked.record_queries == GRADED else "logistic_regression")
    for epsilon in (float(each) for each in asked.epsilons.split(",")):
        game = _game(asked, epsilon)
        print(f"\n{game.squared_move:.3f} of the squared move that is charged, in the first sum")
        print(f"heart_disease, epsilon {epsilon:g} at delta {_DELTA:g}, unit record, replace-one")
        for what, noise, runs in (("private", True, asked.runs), ("control", False, 2 * asked.student_runs)):
            found = play(
                game, runs=runs, student=student, student_runs=asked.student_runs, seed=asked.seed, noise=noise
            )
            for one in found.for_research():
                print(
                    f"  {what}, {one.attacker:30} {one.runs:5} runs: area {one.area.value:.3f} [{one.area.low:.3f}, "
                    f"{one.area.high:.3f}] of {one.ceiling.area:.3f}; advantage {one.advantage.value:.3f} "
                    f"[{one.advantage.low:.3f}, {one.advantage.high:.3f}] of {one.ceiling.advantage:.3f}"
                    + ("; FLAGGED" if one.flagged else "")
                )


def _game(asked: argparse.Namespace, epsilon: float) -> Game:
    data = datasets.load("heart_disease", DatasetRequest(data_dir=asked.data_dir, seed=asked.seed))
    rows = partition(data, parties=None, scheme=BySite(), seed=asked.seed)
    population, seats, graded = len(data.private_labels), len(rows), asked.record_queries == GRADED

    def study_of(queries: Blocks) -> Study:
        plan = RecordVotesPlan(
            name="membership",
            classes=data.classes,
            unit="record",
            population=population,
            queries=queries,
            rule="exhaustive",
            level=Clear(),
            quorum=seats,
            residuals=asked.residuals,
        )
        return record_study(plan, names=data.site_names, epsilon=np.full(seats, epsilon), delta=np.full(seats, _DELTA))

    queries = make_queries(
        data.public_inputs,
        data.columns,
        QueryChoice(kind=asked.record_queries),
        population=population,
        classes=data.classes,
        noise=noise_of_mean(study_of(ANY_SIGNED)) if graded else None,
    )
    study = study_of(queries)
    holdings = [(data.private_inputs[each], data.private_labels[each], None) for each in rows]
    seat = int(np.argmin([len(each) for each in rows]))
    drawn = np.random.default_rng(asked.seed).choice(len(rows[seat]), size=(_CANDIDATES, 2))
    games = [
        Game(
            study,
            queries,
            data.public_inputs,
            holdings,
            seat=seat,
            position=int(target),
            other_input=holdings[seat][0][other],
            other_label=int(holdings[seat][1][other]),
        )
        for target, other in drawn
    ]
    if graded:
        inputs, labels, _ = holdings[seat]
        games += [
            replace(each, other_input=inputs[each.position], other_label=int(1 - labels[each.position]))
            for each in games
        ]
    return max(games, key=lambda game: game.squared_move)


if __name__ == "__main__":
    main()
