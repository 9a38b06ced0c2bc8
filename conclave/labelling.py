"""Labels from your own votes and budgets: what a study would release, and what each party would spend."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from numpy.typing import ArrayLike

from conclave.arguments import budgets_of, check_unmasked, check_whole, frame, warn_of_delta
from protocols.budgets.planned import Budgets
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.labelling.replay import check_fit, check_replayed, replay_seed
from protocols.labelling.stored_votes import StoredVotes, VoteCounts, check_labels, stored_votes, transposed
from protocols.levels.simulated import simulated_level
from protocols.study.plan import make_plan, must_afford
from protocols.study.settings import read_setting
from protocols.study.study import Study
from protocols.study.teacher_study import Dropout, TeacherTerms, TeacherVotesPlan, teacher_study, teacher_terms

if TYPE_CHECKING:
    import pandas as pd

# A budget that any study affords, to check what does not depend on budgets.
_AMPLE = 4.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels:
    """What a study released of votes, and what each party spent on it. Arrays over parties are in the votes' order.

    labels: a class, ABSTAIN (asked, no label given) or NOT_ASKED, one per query; parties: their names; epsilon and
    delta: their budgets; weight: of each party's vote; epsilon_guaranteed: what may be published, the cap at the order
    that was fixed beforehand; epsilon_spent: an operator's reading of the ledger, no guarantee; share_of_budget: in [0,
    1], of the cap; stop: why the study ended; accuracy: share of labels that are true, None where the truth is not
    known; study: its terms; spent: what ledgers hold, billionths of RDP (or of mu squared), or queries where their
    number was planned.
    """

    labels: Int64[ndarray, " queries"] = field(repr=False)
    parties: tuple[str, ...] = field(repr=False)
    epsilon: Float64[ndarray, " parties"]
    delta: Float64[ndarray, " parties"]
    weight: Float64[ndarray, " parties"]
    epsilon_guaranteed: Float64[ndarray, " parties"]
    epsilon_spent: Float64[ndarray, " parties"]
    share_of_budget: Float64[ndarray, " parties"]
    spent: Int64[ndarray, " parties"] = field(repr=False)
    stop: str
    accuracy: float | None
    seed: int
    study: Study = field(repr=False)

    @property
    def answered(self) -> Int64[ndarray, " answered"]:
        """Positions of the queries that got a label."""
        return np.flatnonzero(self.labels >= 0)

    @property
    def asked(self) -> int:
        """How many queries were asked."""
        return int((self.labels >= -1).sum())

    def to_pandas(self) -> pd.DataFrame:
        """One row per party: its budget, its weight, what may be published and what was spent.

        >>> import conclave, numpy as np
        >>> votes = np.random.default_rng(0).integers(2, size=(50, 30))
        >>> result = conclave.label(votes, epsilon=2.0, delta=1e-5, unit="record", view="label")
        >>> list(result.to_pandas().columns)[:4]
        ['party', 'epsilon', 'delta', 'weight']
        """
        names = "epsilon delta weight epsilon_guaranteed epsilon_spent share_of_budget".split()
        return frame({"party": self.parties, **{name: getattr(self, name) for name in names}})


@dataclass(frozen=True, eq=False)
class Replay:
    """The same votes under many budgets: one result per budget and seed, None where a budget affords no query.

    budgets: as they were given; notes: why there is no result, "" where there is one.
    """

    budgets: tuple[ArrayLike, ...]
    seeds: tuple[int, ...]
    results: tuple[Labels | None, ...]
    notes: tuple[str, ...]

    def to_pandas(self) -> pd.DataFrame:
        """One row per result: budget (its mean over parties), seed, queries asked and answered, accuracy, largest
        epsilon that may be published."""
        given = [float(np.mean(np.asarray(budget, dtype=np.float64))) for budget in self.budgets]
        return frame(
            {
                "epsilon_mean": np.repeat(given, len(self.seeds)),
                "seed": self.seeds * len(self.budgets),
                "asked": [0 if one is None else one.asked for one in self.results],
                "answered": [0 if one is None else len(one.answered) for one in self.results],
                "accuracy": [None if one is None else one.accuracy for one in self.results],
                "epsilon_guaranteed_max": [
                    None if one is None else float(one.epsilon_guaranteed.max()) for one in self.results
                ],
                "note": self.notes,
            }
        )


def label(
    votes: ArrayLike,
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    unit: str,
    view: str,
    classes: int | None = None,
    truth: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    dropout: float = 0.0,
    **settings: object,
) -> Labels:
    """The labels that votes give under every party's own budget, and what each party spends on them.

    The same code as `conclave-simulate run --votes`, bit for bit: noise comes from `seed`, so the labels protect
    nobody who can guess it.

    votes: integers, class ids [parties, queries] or [parties, teachers, queries], -1 for an abstention; or floats, the
    votes for each class [queries, classes], each row with the same sum (then all parties weigh alike). epsilon > 0 and
    delta in (0, 1): a number, or one per party. unit: "record", or "party" for all of a party's data; view: what is
    seen, "label" or "histogram". classes: by default what the votes show; truth: the true labels, for `accuracy` alone;
    names: of the parties, by default party-0 and so on; dropout: in [0, 1), the share of batches that a party misses.
    settings: any of `conclave-simulate run` that comes after the votes: mechanism, its noise (sigma=..., in votes),
    accountant (one that charges), weights, individualization, stop, quorum, answer_rate, confidentiality, units,
    colluders. A setting without effect is refused.

    Warns of votes that may be transposed, and of a delta above 1 over the number of parties. Raises InvalidInput, with
    the value and the allowed range, and BudgetExceeded where a budget affords no query.

    >>> import conclave, numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.integers(3, size=200)
    >>> votes = np.where(rng.random((100, 200)) < 0.8, truth, rng.integers(3, size=(100, 200)))
    >>> epsilon = np.repeat([1.0, 2.0], 50)
    >>> result = conclave.label(votes, epsilon=epsilon, delta=1e-5, unit="record", view="label", truth=truth)
    >>> len(result.answered), round(result.accuracy, 3), result.stop
    (67, 0.985, 'budget_exhausted')
    >>> result.epsilon_spent[[0, -1]].round(2)
    array([1.  , 1.99])
    """
    check_whole("seed", seed, least=0)
    dropout = read_setting("dropout", dropout, Dropout)
    stored, parties, known = _checked(votes, classes=classes, truth=truth)
    terms = _terms(stored, unit=unit, view=view, settings=settings)
    given = budgets_of(epsilon, delta, parties=parties, names=names)
    study = _affording(terms, stored, given, drops=dropout > 0)
    warn_of_delta(given, unit)
    return _labels(study, stored, truth=known, seed=seed, dropout=dropout)


def replay(
    votes: ArrayLike,
    *,
    budgets: Sequence[ArrayLike],
    delta: ArrayLike,
    unit: str,
    view: str,
    classes: int | None = None,
    truth: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    dropout: float = 0.0,
    **settings: object,
) -> Replay:
    """The same votes under each of many budgets, counted once; some milliseconds per budget.

    budgets: epsilons, each a number for all parties or one per party; everything else as `label`. A budget that affords
    no query has no result, and a note that says why. Raises InvalidInput for votes or settings out of range.

    >>> import conclave, numpy as np
    >>> rng = np.random.default_rng(1)
    >>> truth = rng.integers(3, size=200)
    >>> votes = np.where(rng.random((100, 200)) < 0.8, truth, rng.integers(3, size=(100, 200)))
    >>> many = conclave.replay(votes, budgets=[0.01, 1.0, 4.0], delta=1e-5, unit="record", view="label", truth=truth)
    >>> many.to_pandas()[["epsilon_mean", "answered"]].to_numpy().tolist()
    [[0.01, 0.0], [1.0, 32.0], [4.0, 197.0]]
    """
    if not isinstance(budgets, Sequence | ndarray):
        raise InvalidInput(f"budgets is {budgets!r}; allowed: a list of epsilons")
    budgets, seeds = tuple(budgets), tuple(seeds)
    for seed in seeds:
        check_whole("seed", seed, least=0)
    dropout = read_setting("dropout", dropout, Dropout)
    stored, parties, known = _checked(votes, classes=classes, truth=truth)
    terms = _terms(stored, unit=unit, view=view, settings=settings)
    each = [budgets_of(epsilon, delta, parties=parties, names=names) for epsilon in budgets]
    results: list[Labels | None] = []
    notes: list[str] = []
    # What is wrong under an ample budget is wrong under every one; what only a budget makes wrong becomes its note.
    ample = budgets_of(_AMPLE, delta, parties=parties, names=names)
    _ = _study(terms, stored, ample, drops=dropout > 0).budgets
    warn_of_delta(ample, unit)
    for one in each:
        try:
            study = _affording(terms, stored, one, drops=dropout > 0)
        except (BudgetExceeded, InvalidInput) as error:
            results += [None] * len(seeds)
            notes += [str(error)] * len(seeds)
            continue
        results += [_labels(study, stored, truth=known, seed=seed, dropout=dropout) for seed in seeds]
        notes += [""] * len(seeds)
    return Replay(budgets, seeds, tuple(results), tuple(notes))


def _checked(
    votes: ArrayLike, *, classes: int | None, truth: ArrayLike | None
) -> tuple[StoredVotes, int, Int64[ndarray, " queries"] | None]:
    for called, value in (("votes", votes), ("truth", truth)):
        check_unmasked(called, value)
    if classes is not None:
        check_whole("classes", classes, least=2)
        classes = int(classes)
    try:
        array = np.asarray(votes)
    except ValueError:
        raise InvalidInput("votes have rows of unequal length; allowed: one row per party, equally long") from None
    kind = "counts" if np.issubdtype(array.dtype, np.floating) else "ids"
    stored, parties = stored_votes(array, kind=kind, classes=classes, called="votes")
    if (doubt := transposed(stored)) is not None:
        warnings.warn(doubt, stacklevel=3)
    if truth is None:
        return stored, parties, None
    known = np.asarray(truth)
    if known.ndim == 1 and len(known) > stored.queries:
        raise InvalidInput(
            f"truth has {len(known)} labels for {stored.queries} queries; allowed: one each (votes are [parties, "
            f"queries], here {list(array.shape)}: are they transposed?)"
        )
    return stored, parties, check_labels(known, queries=stored.queries, classes=stored.classes, called="truth")


def _terms(stored: StoredVotes, *, unit: str, view: str, settings: dict[str, object]) -> TeacherTerms:
    terms = teacher_terms(**settings, unit=unit, view=view)
    check_replayed(terms.individualization, terms.mechanism)
    uniform = terms.weights is None and isinstance(stored, VoteCounts)
    return replace(terms, weights="uniform") if uniform else terms


def _affording(terms: TeacherTerms, stored: StoredVotes, budgets: Budgets, *, drops: bool) -> Study:
    study = _study(terms, stored, budgets, drops=drops)
    must_afford(make_plan(study))
    return study


def _study(terms: TeacherTerms, stored: StoredVotes, budgets: Budgets, *, drops: bool) -> Study:
    seats, bound = len(budgets.names), terms.input_bound or 1.0
    level = simulated_level(
        terms.confidentiality, units=terms.units, colluders=terms.colluders, seats=seats, input_bound=bound
    )
    plan = TeacherVotesPlan(
        name=f"votes-{seats}", terms=terms, level=level, classes=stored.classes, queries=stored.queries,
        teachers=stored.teachers,
    )  # fmt: skip
    study = teacher_study(plan, budgets)
    check_fit(study, stored, drops=drops)
    return study


def _labels(
    study: Study, stored: StoredVotes, *, truth: Int64[ndarray, " queries"] | None, seed: int, dropout: float
) -> Labels:
    labelling = replay_seed(study, stored, seed=seed, dropout=dropout).labelling
    filters, spent, answered = study.budgets, labelling.spent, labelling.labels >= 0
    known = truth is not None and answered.any()
    return Labels(
        labels=labelling.labels,
        parties=tuple(study.seats),
        epsilon=np.array([seat.epsilon for seat in study.roster]),
        delta=np.array([seat.delta for seat in study.roster]),
        weight=study.weights,
        epsilon_guaranteed=filters.epsilon_guaranteed,
        epsilon_spent=filters.epsilon_of(spent),
        share_of_budget=filters.share(spent),
        spent=spent,
        stop=labelling.stop.reason,
        accuracy=float((labelling.labels == truth)[answered].mean()) if known else None,
        seed=seed,
        study=study,
    )
