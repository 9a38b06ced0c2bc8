"""Teachers trained again with one record replaced by another, and the votes they then cast.

Everything but that record stays the same: its place in the shard, the seed, the kind. So a vote that changes was
changed by the record; as a check, each teacher is first trained again on its own shard.

Leave-one-out retraining: what PATE's labels cost a TYPICAL record, beside the worst case.

For each party, records are drawn; each is replaced by another draw, the teacher that learned it is trained again with
the same seed, and its votes on the queries that were asked are recomputed. The Renyi divergence between what was
released before and after is exact (benchmarks/label_law.py), and nothing where no vote moved.

One pair is one composition. Given the pair, the votes on all queries are fixed and their noise is independent, so the
divergence of the run is the sum over its queries, and x = l sum_q D_{l+1}(q) is one sample of one call: Theorem 4 of
Triastcyn & Faltings 2020 with T = 1. Their Theorem 1 sets T to the number of steps because it estimates each step on
its own and must combine them by Hoelder's inequality; with whole pairs available that would only be looser.

Unit: one record. Adjacency: replace-one, by a record of the named population. View: the study's. Not a bound and not a
guarantee, private itself: docs/explanation/mathematics.md, section 10.5, and benchmarks/typical-case.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64, Int64, Integer
from numpy import ndarray

from benchmarks.bayesian import BayesianCurve, bayesian_cost, bounded_cost, check_confidence
from benchmarks.label_law import log_answered, pair_rdp
from party.teachers import teacher_kind
from party.teachers.teacher import TeacherKind
from protocols.bounds.label_only import ORDERS
from protocols.budgets.accountant import accountant
from protocols.crypto.randomness import simulation_rng
from protocols.errors import InvalidInput
from protocols.labelling.stored_votes import CastVotes
from protocols.mechanisms import GaussianMechanism, Sensitivity, check_view
from protocols.research.private import Private
from protocols.study.study import Study
from protocols.votes import ABSTAIN
from simulations.datasets.dataset import Dataset
from simulations.stages.asked_votes import AskedVotes
from simulations.stages.cast import teacher_seed
from simulations.stages.label import SeedResult

Population = Literal["federation", "party"]
POPULATIONS: tuple[Population, ...] = get_args(Population)
Votes = Integer[ndarray, "parties teachers queries"]
Shards = list[list[Int64[ndarray, " records"]]]

# The share of votes that may differ because batched matrix products round differently.
_ROUNDING = 0.01


@dataclass(frozen=True)
class Draw:
    """One record replaced: its teacher, its place in the teacher's shard, and the replacement."""

    teacher: int
    place: int
    instead: int


def draw(shards: Shards, party: int, count: int, population: Population, seed: int) -> list[Draw]:
    """`count` independent draws: a record of the party, uniformly, and the one that replaces it.

    population "federation": any record of another party; "party": any other record of the same one, which is then held
    twice. A function of the arguments alone.
    """
    rng = simulation_rng(seed, "retraining", party)
    own = shards[party]
    sizes = np.cumsum([len(shard) for shard in own])
    held = np.concatenate(own)
    others = held
    if population == "federation":
        others = np.setdiff1d(np.concatenate([shard for of_party in shards for shard in of_party]), held)
    draws = []
    for position in rng.integers(sizes[-1], size=count):
        teacher = int(np.searchsorted(sizes, position, side="right"))
        place = int(position - (sizes[teacher - 1] if teacher else 0))
        # Any of the party's own records except the replaced one.
        pool = others if population == "federation" else np.delete(held, position)
        draws.append(Draw(teacher, place, int(pool[rng.integers(len(pool))])))
    return draws


def retrain(
    kind: TeacherKind,
    dataset: Dataset,
    shards: Shards,
    party: int,
    draws: list[Draw],
    votes: Votes,
    asked: Int64[ndarray, " queries"],
    *,
    seed: int,
    on_done: Callable[[int], None],
) -> Integer[ndarray, "draws queries"]:
    """The votes on the asked queries of the teacher of each draw, trained again with the other record in place.

    votes: those that were cast, on all queries; seed: that of `cast_votes`; on_done(retrainings done). Raises
    InvalidInput if a teacher that is trained again on its own shard votes differently than before; stacked on a GPU,
    whose rounding differs, only if more than a hundredth of its votes change: those count as moved, which costs more.
    """
    teachers = sorted({each.teacher for each in draws})
    changed = []
    for each in draws:
        records = shards[party][each.teacher].copy()
        records[each.place] = each.instead
        changed.append(records)
    # First the unchanged teachers: trained again they must vote as before, or a moved vote would mean nothing.
    work = [(k, shards[party][k]) for k in teachers]
    work += [(each.teacher, records) for each, records in zip(draws, changed, strict=True)]
    queries = dataset.public_inputs[asked]
    step = len(work) if kind.stacks else 1
    cast = []
    for start in range(0, len(work), step):
        part = work[start : start + step]
        trained = kind.fit(
            [
                (np.asarray(dataset.private_inputs[records], dtype=np.float32), dataset.private_labels[records])
                for _, records in part
            ],
            classes=dataset.classes,
            seeds=[teacher_seed(seed, party, k) for k, _ in part],
        )
        cast += [one.predict(queries) for one in trained]
        on_done(max(0, len(cast) - len(teachers)))
    for k, again in zip(teachers, cast[: len(teachers)], strict=True):
        differ = int((again != votes[party, k, asked]).sum())
        if differ > (_ROUNDING * len(asked) if kind.stacks else 0):
            raise InvalidInput(
                f"teacher {k} of party {party}, trained again on its own shard, casts {differ} of {len(asked)} votes "
                "differently; allowed: votes of the same data, shards, kind, seed and device"
            )
    return np.stack(cast[len(teachers) :])


_POWERS = ORDERS - 1
# Numbers held at a time, of the moved votes' histograms and divergences.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class PartyRetraining:
    """One party's typical case beside its worst case. Everything but the budgets depends on private data.

    epsilon_guaranteed: of the cap, worst case, publishable; epsilon_typical: Theorem 4's estimate for a record drawn
    like the others, at `power`; epsilon_proved: what the same retrainings prove about it with that confidence, without
    assuming anything of the distribution, never above what is guaranteed for every record; top_share: the part of the
    estimated mean of e^x - 1 at `power` that rests on the one most expensive pair (1/retrainings at least; 1: on it
    alone; 0 where no vote moved); moved_share: of retrainings that moved any vote; moved_mean, moved_max: votes moved,
    of the queries asked.
    """

    party: str
    epsilon_budget: float
    delta: float
    epsilon_guaranteed: float
    epsilon_typical: float
    epsilon_proved: float
    power: float
    top_share: float
    retrainings: int
    moved_share: float
    moved_mean: float
    moved_max: int


@dataclass(frozen=True)
class Retraining:
    """The rows of the analysed parties, and the settings."""

    rows: tuple[PartyRetraining, ...]
    confidence: float
    population: Population
    asked: int
    statement: str = (
        "Bayesian typical-case estimate (Triastcyn & Faltings 2020), unit record, replace-one by a record of the "
        "population; no bound, no guarantee, private"
    )


def retraining(
    study: Study,
    dataset: Dataset,
    shards: Shards,
    votes: Votes,
    result: SeedResult,
    *,
    teacher: str,
    seed: int,
    parties: Sequence[int] | None,
    retrainings: int,
    confidence: float,
    population: Population,
    predictions: Float64[ndarray, "queries classes"] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Private[Retraining]:
    """The typical-case epsilon of each party of `parties` (positions in the roster; None: all).

    study, dataset, shards, votes, teacher, seed: as they were for `cast_votes`; result: of `label_seed`; retrainings:
    >= 2 a party; confidence: in (0, 1), 1 - confidence below every delta; population: where the other record is
    drawn: "federation" (any record of another party) or "party" (another record of the same one); predictions: of the
    student between the rounds of an interactive mechanism. on_progress(retrainings done, in all). Depends on the
    arguments alone. Raises InvalidInput before anything is trained, and where a teacher that is trained again on its
    own shard votes differently than before.
    """
    chosen = list(range(len(study.roster))) if parties is None else [int(party) for party in parties]
    _check(study, dataset, shards, votes, chosen, retrainings, confidence, population, predictions)
    kind = teacher_kind(teacher).with_pool(dataset.public_inputs)
    asked = AskedVotes(study, CastVotes(study.classes, votes), result, predictions)
    if len(asked.positions) == 0:
        raise InvalidInput("no query was asked, so no record cost anything; allowed: at least one query")
    worst = _worst_case(asked)
    rows: Private[tuple[PartyRetraining, ...]] = Private(())
    for number, party in enumerate(chosen):
        draws = draw(shards, party, retrainings, population, seed)
        told = _progress(on_progress, number * retrainings, len(chosen) * retrainings)
        cast = retrain(kind, dataset, shards, party, draws, votes, asked.positions, seed=seed, on_done=told)
        row = _row(asked, votes[party], party, draws, cast, worst[party], confidence)
        rows = rows.join(row.map(lambda one: (one,)), lambda some, one: some + one)
    return rows.map(lambda every: Retraining(every, confidence, population, len(asked.positions)))


def _divergence(
    asked: AskedVotes, query: Int64[ndarray, " rows"], after: Float64[ndarray, "rows classes"]
) -> Private[Float64[ndarray, "directions=2 rows orders"]]:
    """Divergence of each changed histogram from the actual one, both directions, in the study's view."""
    study, before = asked.study, asked.counts[query]
    mechanism = study.gaussian
    if study.view == "histogram":
        # Two Gaussians of equal covariance (Mironov 2017, Prop. 7); everything else follows from what is seen.
        squared = ((before - after) ** 2).sum(axis=1)
        both = ORDERS * squared[None, :, None] / (2 * mechanism.sigma**2)
        return Private(np.tile(both, (2, 1, 1)))
    bits: list[Float64[ndarray, "rows 2"] | None] = [None, None]
    decision = mechanism.decision(second_round=False)
    if decision.sigma_threshold is not None:
        tested = [(counts - asked.offsets[query]).max(axis=1) - asked.thresholds[query] for counts in (before, after)]
        bits = [log_answered(g, sigma_threshold=decision.sigma_threshold, threshold=0.0) for g in tested]
    return pair_rdp(
        before,
        after,
        ORDERS,
        sigma=decision.sigma,
        answered_before=bits[0],
        answered_after=bits[1],
        floor=decision.threshold if decision.one_draw else None,
    )


def _row(
    asked: AskedVotes,
    votes: Integer[ndarray, "teachers queries"],
    party: int,
    draws: list[Draw],
    cast: Integer[ndarray, "draws queries"],
    worst: Float64[ndarray, " powers"],
    confidence: float,
) -> Private[PartyRetraining]:
    study = asked.study
    old = votes[[each.teacher for each in draws]][:, asked.positions]
    moved = (old != cast) & asked.entering[party]
    owner, query = np.nonzero(moved)
    weight = study.weights[party]
    total: Private[Float64[ndarray, "directions=2 draws orders"]] = Private(np.zeros((2, len(draws), len(ORDERS))))
    step = max(1, _CHUNK // (2 * study.classes + 2 * len(ORDERS)))
    for start in range(0, len(owner), step):
        part = slice(start, start + step)
        row, after = np.arange(len(owner[part])), asked.counts[query[part]].copy()
        for before_or_after, sign in ((old, -weight), (cast, weight)):
            label = before_or_after[owner[part], query[part]]
            np.add.at(after, (row[label != ABSTAIN], label[label != ABSTAIN]), sign)
        total = total.join(_divergence(asked, query[part], after), _adder(owner[part]))
    x = total.map(lambda both: _POWERS * both.max(axis=0))
    budgets, seat = study.budgets, study.roster[party]
    delta, votes_moved = float(budgets.delta[party]), moved.sum(axis=1)
    guaranteed = float(budgets.epsilon_guaranteed[party])
    typical = bayesian_cost(x, _POWERS, total=1, confidence=confidence)
    proved = bounded_cost(int((votes_moved > 0).sum()), len(draws), worst, _POWERS, confidence=confidence)

    def beside(typical: BayesianCurve, proved: BayesianCurve) -> PartyRetraining:
        epsilon, power = typical.to_epsilon(delta=delta)
        return PartyRetraining(
            party=seat.party,
            epsilon_budget=seat.epsilon,
            delta=delta,
            epsilon_guaranteed=guaranteed,
            epsilon_typical=epsilon,
            epsilon_proved=min(proved.to_epsilon(delta=delta)[0], guaranteed),
            power=power,
            top_share=float(typical.top_shares[typical.powers == power][0]),
            retrainings=len(draws),
            moved_share=float((votes_moved > 0).mean()),
            moved_mean=float(votes_moved.mean()),
            moved_max=int(votes_moved.max()),
        )

    return typical.join(proved, beside)


def _adder(
    owner: Int64[ndarray, " rows"],
) -> Callable[[Float64[ndarray, "2 draws orders"], Float64[ndarray, "2 rows orders"]], Float64[ndarray, "2 d o"]]:
    """Adds each row's divergence to that of its draw."""

    def add(total: Float64[ndarray, "..."], rows: Float64[ndarray, "..."]) -> Float64[ndarray, "..."]:
        np.add.at(total.swapaxes(0, 1), owner, rows.swapaxes(0, 1))
        return total

    return add


def _worst_case(asked: AskedVotes) -> Float64[ndarray, "parties powers"]:
    """l times the worst-case RDP of order l + 1, for one record of each party, of bit and label of its queries."""
    study = asked.study
    view = check_view(study.view)
    # Both are Renyi accountants, as exact Gaussian DP has no orders.
    account = accountant("label_only" if view == "label" else "gaussian")
    moved = Sensitivity.always(study.weights, delta_squared=study.votes.delta_squared)
    cost = account.query_cost(study.mechanism, moved, view=view, classes=study.classes)
    return _POWERS * asked.entering.sum(axis=1)[:, None] * (cost.ask + cost.answer)


def _progress(on_progress: Callable[[int, int], None] | None, before: int, total: int) -> Callable[[int], None]:
    return lambda done: None if on_progress is None else on_progress(before + done, total)


def _check(
    study: Study,
    dataset: Dataset,
    shards: Shards,
    votes: Votes,
    chosen: list[int],
    retrainings: int,
    confidence: float,
    population: Population,
    predictions: Float64[ndarray, "queries classes"] | None,
) -> None:
    if study.votes.pooled:
        raise InvalidInput("upsampling teaches a record to several teachers; allowed: teachers of parties")
    if study.secret_coins:
        raise InvalidInput("participation is 'secret', whose coins hide the votes; allowed: all, periodic")
    if study.unit != "record":
        raise InvalidInput(f"unit is {study.unit!r}; allowed: 'record', of which one at a time is replaced")
    if not isinstance(study.mechanism, GaussianMechanism):
        raise InvalidInput(f"mechanism is {study.mechanism.name!r}; allowed: those with Gaussian noise")
    if retrainings < 2:
        raise InvalidInput(f"retrainings is {retrainings}; allowed: 2 or more, so that they have a spread")
    if population not in POPULATIONS:
        raise InvalidInput(f"population is {population!r}; allowed: {', '.join(POPULATIONS)}")
    check_confidence(confidence)
    wanted = (len(study.roster), study.votes.voters)
    if votes.shape[:2] != wanted or any(len(of_party) != study.votes.voters for of_party in shards):
        raise InvalidInput(f"votes of shape {votes.shape}; allowed: {wanted} parties and teachers, as many shards")
    if len(shards) != len(study.roster):
        raise InvalidInput(f"shards of {len(shards)} parties; allowed: {len(study.roster)}")
    if votes.shape[2] != len(dataset.public_inputs):
        raise InvalidInput(f"votes on {votes.shape[2]} queries; allowed: the {len(dataset.public_inputs)} of the pool")
    if not chosen or len(set(chosen)) < len(chosen) or not 0 <= min(chosen) <= max(chosen) < len(study.roster):
        raise InvalidInput(f"parties are {chosen}; allowed: distinct positions from 0 to {len(study.roster) - 1}")
    if population == "federation" and len(shards) < 2:
        raise InvalidInput("population is 'federation' and there is one party; allowed: 2 parties or more")
    small = [party for party in chosen if sum(len(shard) for shard in shards[party]) < 2]
    if population == "party" and small:
        raise InvalidInput(f"party {small[0]} has one record; allowed with population 'party': 2 or more")
    if study.mechanism.interactive and predictions is None:
        raise InvalidInput("predictions are missing; an interactive mechanism needs the student's of its second round")
    least = float(study.budgets.delta[chosen].min())
    if not 1 - confidence < least:
        raise InvalidInput(
            f"confidence is {confidence!r}; allowed: above {1 - least!r}, so that 1 - confidence stays below the "
            "smallest delta"
        )
