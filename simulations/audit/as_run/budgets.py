"""A study that its budgets end: how many queries it answers, held against a count that uses none of the filter's code.

The price of a query is the exact divergence of its worst pair, found by search, and the cap is the conversion's formula
or an equation solved for mu. Parties, ledgers, the filter and the coordinator are the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import scipy

from party.party import Voter
from protocols.mechanisms import GNMax, View
from protocols.study.study import Seat, Study
from protocols.study.votes import TeacherVotes
from simulations.audit.as_run.breaks import broken_code
from simulations.setup.levels import simulated_level
from simulations.stages.label import live_labelling

_EPSILONS, _DELTA, _SIGMA = (1.0, 1.5, 2.0), 1e-5, 80.0
# How much more than the independent count rounding may afford, as a share.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class AuditedBudget:
    """One accountant: the queries that the study answered, and the most that its poorest party affords."""

    mechanism: str
    accountant: str
    view: View
    asked: int
    most: int

    @property
    def failed(self) -> bool:
        """Whether more was answered than the budget affords."""
        return self.asked > self.most

    def to_json(self) -> dict[str, object]:
        """The line as JSON values."""
        verdict = "FAILED" if self.failed else "passed"
        return {"mechanism": self.mechanism, "accountant": self.accountant, "view": self.view, "asked": self.asked,
                "most": self.most, "verdict": verdict}  # fmt: skip


def audit_budgets(views: tuple[View, ...], *, seed: int, broken: str | None) -> tuple[AuditedBudget, ...]:
    """Runs a study under each accountant whose price can be counted exactly: two classes, GNMax, batches of one query.

    views: that are audited; broken: a name of RUN_BREAKS or None. Raises InvalidInput.
    """
    found = []
    audited: tuple[tuple[str, View], ...] = (
        ("gaussian_dp", "histogram"), ("gaussian", "histogram"), ("label_only", "label")
    )  # fmt: skip
    for name, view in [each for each in audited if each[1] in views]:
        with broken_code(broken):
            study = _study(name, view)
            limit = study.query_limit
            asked = int((live_labelling(study, _voter, queries=limit, seed=seed).batch_of >= 0).sum())
        found.append(AuditedBudget(GNMax.name, name, view, asked, _most(name, float(study.budgets.order[0]))))
    return tuple(found)


def _voter(position: int) -> Voter:
    return lambda batch: np.full((1, len(batch.ids)), position % 2, dtype=np.int64)


def _study(accountant: str, view: View) -> Study:
    return Study(
        name="audit of budgets", classes=2, unit="record", accountant_name=accountant, quorum=len(_EPSILONS),
        votes=TeacherVotes(
            mechanism=GNMax(sigma=_SIGMA), view=view, teachers=1, query_limit=400, batch_limit=1, answer_rate=1.0,
            stop="first-exhausted", participation_name="all",
        ),
        confidentiality=simulated_level("clear", units=None, colluders=None, seats=len(_EPSILONS)),
        roster=tuple(
            Seat(party=f"party {at}", epsilon=epsilon, delta=_DELTA, weight=1.0, rate=1.0)
            for at, epsilon in enumerate(_EPSILONS)
        ),
    )  # fmt: skip


def _most(accountant: str, order: float) -> int:
    """The queries that the least budget affords; order: the filter's, any of which would be valid."""
    epsilon, d = _EPSILONS[0], 1 / _SIGMA
    if accountant == "gaussian_dp":

        def excess(mu: float) -> float:
            lost = np.exp(epsilon + scipy.special.log_ndtr(-epsilon / mu - mu / 2))
            return float(scipy.special.ndtr(-epsilon / mu + mu / 2) - lost) - _DELTA

        return int(scipy.optimize.brentq(excess, 1e-3, 20.0, xtol=1e-14) ** 2 / (2 * d * d) * (1 + _ROUNDING))
    # Canonne, Kamath, Steinke 2020, Prop. 12, solved for the spend.
    cap = epsilon - log((order - 1) / order) + (log(_DELTA) + log(order)) / (order - 1)
    price = order * d * d if accountant == "gaussian" else _bit_divergence(order, sqrt(2) * d)
    return int(cap / price * (1 + _ROUNDING))


def _bit_divergence(order: float, shift: float) -> float:
    """The largest Renyi divergence of "above zero" when a normal variable moves by `shift`, over where it stands."""
    at = np.linspace(-6, 6, 200_001)
    laws = [np.stack([scipy.special.log_ndtr(each), scipy.special.log_ndtr(-each)]) for each in (at, at + shift)]
    each = [
        scipy.special.logsumexp(order * p + (1 - order) * q, axis=0).max() / (order - 1)
        for p, q in (laws, laws[::-1])
    ]
    return float(max(each))
