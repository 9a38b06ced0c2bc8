"""Studies as they run, held against the exact law of what they release: parties, ballots, servers, and all noise.

Each line is one mechanism at one level of confidentiality: party objects with ledgers, the level's own ballots and
servers in this process, and a coordinator (`live_labelling`). What a party or server does wrong with votes, weights,
shares of noise or seeds changes the law of the labels; at a level that shows the noisy sums their noise is tested, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from party.party import Voter
from protocols.crypto.randomness import simulation_rng
from protocols.mechanisms import Mechanism
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.votes import ABSTAIN
from simulations.audit.agreement.agreement import Agreement, agreement
from simulations.audit.agreement.evidence import Evidence
from simulations.audit.agreement.outcomes import Answers, answers_evidence
from simulations.audit.agreement.seen_noise import seen_noise_evidence
from simulations.audit.as_run.breaks import broken_code
from simulations.audit.as_run.studies import (
    Asked,
    AuditedRun,
    SeenGNMax,
    asked_votes,
    audited_mechanism,
    audited_study,
    stated_counts,
    stated_laws,
    stated_noise,
)
from simulations.stages.label import live_labelling


@dataclass(frozen=True)
class AuditedStudy:
    """One line: a mechanism at a level as it runs, and what was found. queries: how many were asked."""

    run: AuditedRun
    mechanism: str
    queries: int
    law: Agreement

    @property
    def failed(self) -> bool:
        """Whether what was released does not have the stated law."""
        return self.law.failed

    def to_json(self) -> dict[str, object]:
        """The line as JSON values."""
        return {
            "level": self.run.level,
            "seen": self.run.words,
            "mechanism": self.mechanism,
            "queries": self.queries,
            "law": self.law.to_json(),
            "verdict": "FAILED" if self.failed else "passed",
        }


def audit_run(
    run: AuditedRun, kind: type[Mechanism], *, trials: int, alpha: float, seed: int, broken: str | None
) -> AuditedStudy:
    """Runs one line. trials: of the audit; broken: a name of RUN_BREAKS or None. Raises InvalidInput."""
    asked = asked_votes(seed=seed)
    period = asked.votes.shape[1]
    repeats = max(40, round(run.share * trials / period))
    mechanism = audited_mechanism(kind, run)
    study = audited_study(mechanism, run, queries=repeats * period)
    laws = stated_laws(study, asked)
    with broken_code(broken):
        labels = live_labelling(study, _voters(asked), queries=repeats * period, seed=seed).labels
    outcomes = np.where(labels == ABSTAIN, laws.shape[1] - 1, labels).reshape(repeats, period)
    found = answers_evidence(Answers(outcomes, laws, asked.kinds))
    if isinstance(study.mechanism, SeenGNMax):
        found += _opened_noise(study, study.mechanism, asked, seed=seed)
    return AuditedStudy(run, kind.name, repeats * period, agreement(found, alpha=alpha))


def _voters(asked: Asked) -> Callable[[int], Voter]:
    def voter(position: int) -> Voter:
        def vote(batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
            return asked.votes[position][None, batch.ids % asked.votes.shape[1]]

        return vote

    return voter


def _opened_noise(study: Study, mechanism: SeenGNMax, asked: Asked, *, seed: int) -> list[Evidence]:
    """Of the noisy sums that were opened: their noise, spread evenly between the distribution function's steps."""
    period, noise = asked.votes.shape[1], stated_noise(study, study.gaussian.sigma)
    opened: Float64[ndarray, "queries classes"] = np.concatenate(mechanism.seen)
    drawn = opened.reshape(-1, period, opened.shape[1]) - stated_counts(asked)
    values = np.rint(drawn * study.units).astype(np.int64)
    spread = simulation_rng(seed, "audit spread").random(values.shape)
    below, upto = noise.at_most(values - 1), noise.at_most(values)
    uniform = below + spread * (upto - below)
    return [each.named(f"opened sums: {each.family}") for each in seen_noise_evidence(uniform, rounding=1e-9)]
