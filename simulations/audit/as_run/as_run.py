"""Studies as they run, held against the exact law of what they release: parties, ballots, servers, and all noise.

Each line is one mechanism at one level of confidentiality: party objects with ledgers, the level's own ballots and
servers in this process, and a coordinator (`live_labelling`). What a party or server does wrong with votes, weights,
shares of noise or seeds changes the law of the labels; at a level that shows the noisy sums their noise is tested, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any  # Any: a function of any signature is kept

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from party.party import Voter
from protocols import noise
from protocols.crypto.randomness import simulation_rng
from protocols.levels.two_server import noise_pool
from protocols.mechanisms import Mechanism
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.votes import ABSTAIN
from simulations.audit.agreement.agreement import Agreement, agreement
from simulations.audit.agreement.evidence import Evidence
from simulations.audit.agreement.outcomes import Answers, answers_evidence
from simulations.audit.agreement.seen_noise import low_bits_evidence, seen_noise_evidence
from simulations.audit.as_run.breaks import broken_code
from simulations.audit.as_run.lattice_law import summed_noise
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
    drawn: dict[float, list[ndarray]] = {}
    with broken_code(broken), _recorded(run, drawn):
        labels = live_labelling(study, _voters(asked), queries=repeats * period, seed=seed).labels
    outcomes = np.where(labels == ABSTAIN, laws.shape[1] - 1, labels).reshape(repeats, period)
    found = answers_evidence(Answers(outcomes, laws, asked.kinds))
    if isinstance(study.mechanism, SeenGNMax):
        found += _opened_noise(study, study.mechanism, asked, seed=seed)
    for sigma, values in drawn.items():
        integers = np.concatenate([each.ravel() for each in values])[:, None].astype(np.int64)
        evidence = low_bits_evidence(integers, summed_noise(sigma, sources=1).masses)
        found += [each.named(f"drawn integers of sigma {sigma:g}: {each.family}") for each in evidence]
    return AuditedStudy(run, kind.name, repeats * period, agreement(found, alpha=alpha))


@contextmanager
def _recorded(run: AuditedRun, drawn: dict[float, list[ndarray]]) -> Iterator[None]:
    """Keeps the integers that a level draws, by standard deviation in lattice units, where its sums are not opened."""
    if (run.level, run.units is None) not in _DRAWN:
        yield
        return
    module, name = _DRAWN[(run.level, run.units is None)]
    right = getattr(module, name)

    def keeping(*given: Any, sigma: Any, **more: Any) -> Any:
        found = right(*given, sigma=sigma, **more)
        drawn.setdefault(float(sigma), []).append(found)
        return found

    setattr(module, name, keeping)
    try:
        yield
    finally:
        setattr(module, name, right)


# What draws integers at a level, without real-valued noise.
_DRAWN = {("clear", False): (noise, "discrete_gaussian"), ("two_server", False): (noise_pool, "inverted")}


def _voters(asked: Asked) -> Callable[[int], Voter]:
    def voter(position: int) -> Voter:
        def vote(batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
            return asked.votes[position][None, batch.ids % asked.votes.shape[1]]

        return vote

    return voter


def _opened_noise(study: Study, mechanism: SeenGNMax, asked: Asked, *, seed: int) -> list[Evidence]:
    """Of the noisy sums that were opened: their noise, spread evenly between the distribution function's steps."""
    period, law = asked.votes.shape[1], stated_noise(study, study.gaussian.sigma)
    opened: Float64[ndarray, "queries classes"] = np.concatenate(mechanism.seen)
    drawn = opened.reshape(-1, period, opened.shape[1]) - stated_counts(asked)
    values = np.rint(drawn * study.units).astype(np.int64)
    spread = simulation_rng(seed, "audit spread").random(values.shape)
    below, upto = law.at_most(values - 1), law.at_most(values)
    uniform = below + spread * (upto - below)
    found = seen_noise_evidence(uniform, rounding=1e-9)
    found += low_bits_evidence(values.reshape(len(values), -1), law.masses)
    return [each.named(f"opened sums: {each.family}") for each in found]
