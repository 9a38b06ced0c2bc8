"""Soft labels of a pool from the noisy sums of a study, and made again by whoever verifies them.

Post-processing of what was released: it costs nothing. A pool record lies in one query of each partition (Blocks).
Its label is modelled as multinomial, with an effect of each of its queries: ln p(class c | x) = b_c + sum_q t_qc +
const. The effects are those under which the pool gives the released cells best, each cell weighed by its noise, with a
normal prior around no effect. So what stands no higher than the noise moves nothing, and a cell that no pool record
lies in is left out.

Where features are graded, the scores of all classes are linear in them (protocols/sums/fit.py).

Where every partition looks at all features, records that are close have the same label: label spreading (Zhou et al.
2004), with the cells in the place of single labels. The labels F of the pool minimise

    sum_q | cell_q / total_q - mean of F over the pool records of q |^2 / variance_q  +  SMOOTHNESS * tr(F' L F)

where L is the normalised Laplacian of the graph of nearest neighbours (their Eq. 4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any  # figures of JSON

import numpy as np
import scipy
from jaxtyping import Bool, Float32, Float64, Int64
from numpy import ndarray

from coordinator.queries.neighbours import laplacian, solved
from protocols.errors import InvalidInput
from protocols.labelling.coordinator import SecondSum
from protocols.release.sums import LabelsOfPool
from protocols.study.deployed import DeployedStudy
from protocols.study.findings import STATES, Labelled, OneLabel, SeveralFindings
from protocols.study.released_noise import noise_in
from protocols.study.study import Study
from protocols.study.terms import Feature, differences
from protocols.study.votes import unit_sums
from protocols.sums.blocks import NORM_STEPS, TARGET_STEPS, Blocks
from protocols.sums.choice import block_of_rows
from protocols.sums.fit import Neighbours, PublicMoment, Residuals, Scores, fit, overall
from protocols.sums.pool import PoolComparison, compare_pool, spoken, unlike_words
from protocols.sums.residuals import FirstScores

# Prior variance of the effects of all of a record's queries together, in ln of probabilities.
_PRIOR_VARIANCE = 1.0
# Of how often each class occurs at all.
_CLASS_VARIANCE = 4.0
# Of a record's probability of a class among the pool records of a query; their mean is known only so well.
_SPREAD_IN_QUERY = 0.05
# How much the private records may differ from the pool in the share of a query, as a standard deviation of it.
_SHARE_SPREAD = 0.1
# Pool records that are looked at while fitting, at most: more do not change the shares by as much as their spread.
_MOST_FITTED = 4000
_MOST_STEPS = 300


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """The probability of each class for each record of the pool, and how far each query stands above its noise.

    reliability: in [0, 1], the share of a query's information that is not the prior's: tot^2/4 over itself plus noise;
    scores, compared: of graded features alone, the linear scores, and the pool beside the units' records; findings: the
    soft labels of each, absent and present; probabilities are then that each is present. Empty for one label.
    """

    probabilities: Float64[ndarray, "pool classes"] = field(repr=False)
    reliability: Float64[ndarray, " queries"] = field(repr=False)
    scores: Scores | None = field(default=None, repr=False)
    compared: PoolComparison | None = field(default=None, repr=False)
    findings: tuple[SoftLabels, ...] = field(default=(), repr=False)

    @property
    def each(self) -> tuple[SoftLabels, ...]:
        """The soft labels of each finding, or the one label's."""
        return self.findings or (self,)

    def accuracy(self, truth: Int64[ndarray, "pool *findings"]) -> float:
        """How often the likeliest class, or whether a finding is there, is right, of the labels that are known."""
        told = np.stack([each.probabilities.argmax(axis=1) for each in self.each], axis=1)
        wanted = truth.reshape(told.shape)
        return float((told == wanted)[wanted >= 0].mean())


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Released sums, divided by what one record adds to a cell, so that they count records.

    records: the public number of protected units; sigma: the standard deviation of each cell's noise, in the same unit;
    records_spread: that of the number of records, where it is not known. Raises InvalidInput where a value is out of
    range.
    """

    cells: Float64[ndarray, "rows columns"] = field(repr=False)
    records: float | int
    sigma: float | int
    records_spread: float = 0.0

    def __post_init__(self) -> None:
        finite = np.isfinite(self.cells).all() and np.isfinite(self.sigma)
        if not (finite and self.sigma >= 0 and self.records >= 1):
            raise InvalidInput(
                f"cells with noise {self.sigma} of {self.records} records; allowed: finite sums and noise >= 0, of at "
                "least 1 record"
            )

    @property
    def mean(self) -> Float64[ndarray, "rows columns"]:
        """Of each record."""
        return self.cells / self.records

    @property
    def noise(self) -> float:
        """The variance of the noise in `mean`."""
        return (self.sigma / self.records) ** 2

    def centred(
        self, used: Int64[ndarray, " used"], share: Float64[ndarray, " used"]
    ) -> tuple[Float64[ndarray, "used classes"], Float64[ndarray, " used"]]:
        """Some queries' cells with the total that is likeliest, given the noisy one and the share that the pool has of
        the query; and these totals."""
        cells, expected = self.cells[used], self.records * share
        classes = cells.shape[1]
        noisy, noise = cells.sum(axis=1), classes * self.sigma**2
        spread = (_SHARE_SPREAD * expected) ** 2 + (self.records_spread / self.records * expected) ** 2 + expected
        totals = np.maximum((noisy * spread + expected * noise) / (noise + spread), 0.0)
        return cells - ((noisy - totals) / classes)[:, None], totals


def soft_labels(sums: NoisySums, members: Int64[ndarray, "pool votes"]) -> SoftLabels:
    """Soft labels of a pool. members: the queries that each pool record lies in (nearest first).

    Raises InvalidInput where the pool lies in other queries.
    """
    _check_members(sums, members)
    sigma, queries = sums.sigma, len(sums.cells)
    fitted = members[:: -(-len(members) // _MOST_FITTED)]
    share = np.bincount(fitted.ravel(), minlength=queries) / len(fitted)
    used = np.flatnonzero(share)
    place = np.full(queries, -1)
    place[used] = np.arange(len(used))
    cells, totals = sums.centred(used, share[used])
    variance = sigma**2 + totals / 4 + 1 + totals**2 * _SPREAD_IN_QUERY / (share[used] * len(fitted))
    precision = np.full(len(used) + 1, members.shape[1] / _PRIOR_VARIANCE)
    precision[-1] = 1 / _CLASS_VARIANCE
    effects = _fit(indicator(place[fitted], len(used)), cells, totals, variance, precision)
    inside = place[members]
    # A pool record in a query that no fitted one lies in has no effect of it.
    each = np.where((inside >= 0)[..., None], effects[:-1][inside], 0.0).sum(axis=1)
    reliability = np.zeros(queries)
    reliability[used] = totals**2 / (totals**2 + 4 * variance)
    return SoftLabels(scipy.special.softmax(each + effects[-1], axis=1), reliability)


def _check_members(sums: NoisySums, members: Int64[ndarray, "pool votes"]) -> None:
    if members.min() < 0 or members.max() >= len(sums.cells):
        raise InvalidInput(
            f"the pool lies in queries {members.min()} to {members.max()}; allowed: 0 to {len(sums.cells) - 1}"
        )


def indicator(places: Int64[ndarray, "pool votes"], used: int) -> scipy.sparse.csr_matrix:
    """[pool, used]: 1 where a pool record lies in a query."""
    rows, votes = places.shape
    return scipy.sparse.csr_matrix(
        (np.ones(rows * votes), (np.repeat(np.arange(rows), votes), places.ravel())), shape=(rows, used)
    )


def _fit(
    inside: scipy.sparse.csr_matrix,
    sums: Float64[ndarray, "used classes"],
    totals: Float64[ndarray, " used"],
    variance: Float64[ndarray, " used"],
    precision: Float64[ndarray, " effects"],
) -> Float64[ndarray, "effects classes"]:
    """Effects of the queries, and of none (the last row): the maximum of the posterior."""
    used, classes = sums.shape
    mean = scipy.sparse.diags(1.0 / np.asarray(inside.sum(axis=0)).ravel()) @ inside.T
    weight = 1.0 / variance[:, None]

    def loss(flat: Float64[ndarray, " parameters"]) -> tuple[float, Float64[ndarray, " parameters"]]:
        effects = flat.reshape(used + 1, classes)
        chances = scipy.special.softmax(inside @ effects[:-1] + effects[-1], axis=1)
        rest = sums - totals[:, None] * (mean @ chances)
        value = (rest * rest * weight).sum() / 2 + (precision[:, None] * effects**2).sum() / 2
        pull = mean.T @ (-rest * weight * totals[:, None])
        slope = chances * (pull - (pull * chances).sum(axis=1, keepdims=True))
        gradient = np.concatenate([inside.T @ slope, slope.sum(axis=0)[None]]) + precision[:, None] * effects
        return float(value), gradient.ravel()

    found = scipy.optimize.minimize(
        loss, np.zeros((used + 1) * classes), jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS}
    )
    effects: Float64[ndarray, "effects classes"] = found.x.reshape(used + 1, classes)
    return effects


# Chosen on training images of MNIST and Fashion-MNIST, for 200 to 1,600 queries at epsilon 0.5 and 1: within 0.4 points
# of the best of 1 to 100 and of 5 to 20 neighbours for each (docs/how-to/choose-features.md).
_SMOOTHNESS = 10.0
_NEIGHBOURS = 10
# Of a cell's mean label, for what the pool's records in it differ from the private ones'.
_SPREAD_OF_MEAN = 0.05
# A multinomial share's variance, p (1 - p), about.
_SHARE_VARIANCE = 0.1
# Of the pool's mean label around how often each class occurs, before anything is seen.
_MEAN_VARIANCE = 0.25
# Of each class in a soft label, times how often it occurs: none is impossible.
_LEAST = 1e-4
_TOLERANCE, _MOST_SOLVER_STEPS = 1e-4, 500
# Of all records, those that know a finding, at the least.
_FEWEST_HEARD = 0.02
# How far a record's own score may lie from its neighbours', where scores are graded: of the graph's prior.
_ALONE = 0.02


def soft_labels_of(
    queries: Blocks, pool: Float32[ndarray, "pool ..."], sums: NoisySums, residuals: Residuals | None = None
) -> SoftLabels:
    """Soft labels of a pool: propagated where every partition looks at all features, and so says which records are
    close; else soft_labels. residuals: the second sum, of graded features. Raises InvalidInput as soft_labels, and
    without scikit-learn.
    """
    features = queries.features(pool)
    if not queries.plain:
        return graded_labels(queries, features, sums, residuals)
    members = queries.cells(features)
    if is_propagated(queries, len(pool)):
        return propagated_labels(sums, members, features)
    return soft_labels(sums, members)


def graded_labels(
    queries: Blocks, features: Float32[ndarray, "pool features"], sums: NoisySums, residuals: Residuals | None = None
) -> SoftLabels:
    """Soft labels of a pool from sums of graded features, by scores that are linear in them and by what near records of
    the pool have in common; a pool that is unlike the units' records is weighted to match them. Where the number of
    records is not known, the constant rows of phi tell it as far as noise lets them. reliability: of each row of phi,
    the share of its sums' squares that is not the noise's. Raises InvalidInput without scikit-learn.
    """
    phi, of = queries.phi(features) / NORM_STEPS, block_of_rows(queries)
    records, mean, noise = sums.records, sums.mean, sums.noise
    targets = queries.targets(mean.shape[1]) / TARGET_STEPS
    compared = _compared(phi, of, sums, targets=targets)
    if sums.records_spread > 0 and (of < 0).any():
        seen, entry = overall(mean[of < 0], targets=targets, noise=noise)
        share, _ = spoken(seen, phi[:, of < 0].mean(axis=0), noise=entry, spread=sums.records_spread / records)
        records, mean, noise = records * share, mean / share, noise / share**2
    moment = PublicMoment.of_pool(phi, of, compared.weights)
    near = _neighbours(features, phi, moment.weights)
    scores = fit(mean, moment, targets=targets, noise=noise, units=records, neighbours=near, residuals=residuals)
    return SoftLabels(scores.of_pool(phi), _reliability(sums), scores, compared)


def _neighbours(
    features: Float32[ndarray, "pool features"], phi: Float64[ndarray, "pool rows"], weights: Float64[ndarray, " pool"]
) -> Neighbours | None:
    """What near records of the pool have in common; None for one record."""
    if len(phi) < 2:
        return None
    weighed = phi * weights[:, None]
    return Neighbours(phi, weighed, _near(_Weighed.of(features, weighed)))


def _reliability(sums: NoisySums) -> Float64[ndarray, " rows"]:
    squares, variance = (sums.cells**2).mean(axis=1), sums.sigma**2
    return np.maximum(0.0, 1 - variance / np.maximum(squares, variance)) if variance else np.ones(len(squares))


def soft_findings_of(queries: Blocks, pool: Float32[ndarray, "pool ..."], sums: NoisySums) -> SoftLabels:
    """Soft labels of several findings, each found by itself from its own columns of the sum, as one label is. Raises
    InvalidInput as soft_labels_of.

    Of graded features a finding has one column, the sum of +-phi/sqrt(findings) over the records that know it. Where
    some do not, its mean is P(known) (2 p - 1): probabilities are drawn towards even, and their order stays, if what is
    known does not depend on the record. Cells count the records that know a finding.
    """
    features = queries.features(pool)
    if queries.plain:
        cells, votes = sums.cells.reshape(len(sums.cells), -1, len(STATES)), queries.filled
        found = []
        for at in range(cells.shape[1]):
            heard = float(np.clip(cells[:, at].sum() / votes, _FEWEST_HEARD * sums.records, sums.records))
            unsure = min(sums.sigma * cells[:, at].size ** 0.5 / votes, sums.records)
            spread = float(np.hypot(sums.records_spread, unsure))
            found.append(soft_labels_of(queries, pool, NoisySums(cells[:, at], heard, sums.sigma, spread)))
    else:
        phi = queries.phi(features) / NORM_STEPS
        moment = PublicMoment.of_pool(phi, block_of_rows(queries))
        near, code = _neighbours(features, phi, moment.weights), np.array([[-1.0], [1.0]]) / sums.cells.shape[1] ** 0.5
        about = {"targets": code, "noise": sums.noise, "units": sums.records, "neighbours": near}
        fits = [fit(mean, moment, **about) for mean in sums.mean.T[:, :, None]]
        found = [SoftLabels(of.of_pool(phi), _reliability(sums), of) for of in fits]
    present = np.stack([each.probabilities[:, 1] for each in found], axis=1)
    return SoftLabels(present, np.mean([each.reliability for each in found], axis=0), findings=tuple(found))


@dataclass(frozen=True)
class _Weighed:
    """Features of a pool and its weighted phi, compared by their digest."""

    digest: bytes = field(repr=False)
    features: Float32[ndarray, "pool features"] = field(repr=False, compare=False)
    phi: Float64[ndarray, "pool rows"] = field(repr=False, compare=False)

    @staticmethod
    def of(features: Float32[ndarray, "pool features"], phi: Float64[ndarray, "pool rows"]) -> _Weighed:
        digest = hashlib.sha256(f"{features.shape} {phi.shape} ".encode())
        for each in (features, phi):
            digest.update(each.tobytes())
        return _Weighed(digest.digest(), features, phi)


@lru_cache(maxsize=1)  # other seeds and rehearsals of one study have the same pool
def _near(pool: _Weighed) -> Float64[ndarray, "pool rows"]:
    """phi, spread over the graph of the pool's nearest neighbours."""
    graph = laplacian(pool.features, neighbours=_NEIGHBOURS) + _ALONE * scipy.sparse.identity(len(pool.phi))
    return solved(graph.tocsr(), pool.phi, precision=_TOLERANCE, steps=_MOST_SOLVER_STEPS)


def _compared(
    phi: Float64[ndarray, "pool rows"],
    of: Int64[ndarray, " rows"],
    sums: NoisySums,
    *,
    targets: Float64[ndarray, "classes columns"],
) -> PoolComparison:
    """The pool beside the units' records; of: as of choice.block_of_rows."""
    seen, entry = overall(sums.mean, targets=targets, noise=sums.noise)
    return compare_pool(seen, phi, noise=entry, units=sums.records, constant=of < 0)


def pool_beside(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: Blocks,
    pool: Float32[ndarray, "pool ..."],
    *,
    charged: Mapping[str, int],
) -> PoolComparison | None:
    """The pool of a study beside the units' records; None where votes are in cells alone, or of several findings, as
    the sum of phi is not released then. Arguments as soft_labels_of_study; it needs no scikit-learn."""
    if queries.plain or study.labelled.names:
        return None
    return _compared(
        queries.phi(queries.features(pool)) / NORM_STEPS,
        block_of_rows(queries),
        _turnout(study, charged).scaled(study, cells),
        targets=queries.targets(study.classes) / TARGET_STEPS,
    )


def pool_facts(compared: PoolComparison | None, pool: Float32[ndarray, "pool ..."]) -> dict[str, Any] | None:
    """What a release says of its pool beside the units' records, rounded: how often chance leaves so much, and in which
    features, by how much, and by how many standard deviations they differ; None where votes are in cells alone."""
    if compared is None:
        return None
    found = compared.columns(pool.reshape(len(pool), -1).astype(np.float64)) if compared.unlike else []
    return {
        "p_value": float(f"{compared.p_value:.3g}"),
        "differs": [[at, *(float(f"{each:.3g}") for each in rest)] for at, *rest in found],
    }


def pool_words(facts: Mapping[str, Any] | None, columns: Sequence[Feature]) -> str:
    """These facts for a person; "" unless the pool is unlike the records. columns: of the pool, if they are known."""
    return "" if facts is None else unlike_words(facts["p_value"], differences(columns, facts["differs"]))


def members_of(queries: Blocks, pool: Float32[ndarray, "pool ..."]) -> Int64[ndarray, "pool votes"]:
    """The cells that each record of a pool lies in; none where features are graded."""
    return queries.cells(queries.features(pool)) if queries.plain else np.zeros((len(pool), 0), dtype=np.int64)


def is_propagated(queries: Blocks, pool: int) -> bool:
    """Whether soft labels of a pool of so many records are propagated, and so follow from the pool's values too."""
    return pool > 1 and queries.plain and queries.whole


def propagated_labels(
    sums: NoisySums, members: Int64[ndarray, "pool votes"], features: Float32[ndarray, "pool features"]
) -> SoftLabels:
    """Soft labels of a pool of at least 2 records. features: what neighbours are found by; members: as in soft_labels.

    Raises InvalidInput as there, and without scikit-learn.
    """
    _check_members(sums, members)
    sigma, queries = sums.sigma, len(sums.cells)
    inside = indicator(members, queries)
    held = np.asarray(inside.sum(axis=0)).ravel()
    used = np.flatnonzero(held)
    cells, totals = sums.centred(used, held[used] / len(members))
    totals = np.maximum(totals, 1.0)
    variance = (sigma**2 + totals * _SHARE_VARIANCE + 1) / totals**2 + _SPREAD_OF_MEAN / held[used]
    mean = scipy.sparse.diags(1 / held[used]) @ inside[:, used].T
    weighed = mean.T @ scipy.sparse.diags(1 / variance)
    # Noise of their sums counts as much as records that say nothing.
    overall = np.maximum(sums.cells.sum(axis=0), 0.0) + sigma * queries**0.5 + 1
    frequencies, prior = overall / overall.sum(), 1 / (_MEAN_VARIANCE * len(members))
    smooth = _SMOOTHNESS * laplacian(features, neighbours=_NEIGHBOURS) + prior * scipy.sparse.identity(len(members))
    system = (weighed @ mean + smooth).tocsr()
    wanted = weighed @ (cells / totals[:, None]) + prior * frequencies
    found = solved(system, wanted, precision=_TOLERANCE, steps=_MOST_STEPS)
    shares = np.maximum(found, 0.0) + _LEAST * frequencies
    reliability = np.zeros(queries)
    reliability[used] = totals**2 / (totals**2 + 4 * (sigma**2 + totals / 4 + 1))
    return SoftLabels(shares / shares.sum(axis=1, keepdims=True), reliability)


@dataclass(frozen=True)
class Turnout:
    """What to expect of the sums of the seats that voted.

    entry: what a record adds to a cell, in votes, at their mean weight; of graded features, the length of what it adds;
    records: how many they have, if all seats have as many; records_spread: how far that may be off, as a standard
    deviation: those that did not vote may have had none or many; sigma: of the noise in a cell, in records.
    """

    entry: float
    records: float
    records_spread: float
    sigma: float

    def scaled(self, study: Study, cells: Int64[ndarray, "queries classes"]) -> NoisySums:
        """Sums in lattice units as numbers of records."""
        return NoisySums(cells / study.units / self.entry, self.records, self.sigma, self.records_spread)


def turnout(study: Study, voted: Bool[ndarray, " seats"], *, population: float | int) -> Turnout:
    """What to expect of the sums of these seats. population: records of all seats together; that judges are some of
    them is counted by their nominal share."""
    present, sums = float(voted.mean()), unit_sums(study)
    votes = sums.expected / sums.population
    entry = float(study.weights[voted].mean() / np.sqrt(1 if sums.signed else sums.votes * study.labelled.told))
    return Turnout(
        entry=entry,
        records=max(1.0, population * votes * present),
        records_spread=float(np.hypot(population * votes * (1 - present), np.sqrt(population * votes * (1 - votes)))),
        sigma=noise_in(study, voted=int(voted.sum())) / entry,
    )


def who_voted(study: Study, charged: Mapping[str, int]) -> Bool[ndarray, " seats"]:
    """The seats that were charged for the batch of record votes, in nano-units; all seats if none was."""
    paid = np.array([charged.get(seat, 0) > 0 for seat in study.seats])
    return paid if paid.any() else np.full(len(paid), True)


def soft_labels_of_study(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: Blocks,
    pool: Float32[ndarray, "pool ..."],
    *,
    charged: Mapping[str, int],
    again: AskedAgain | None = None,
) -> SoftLabels:
    """What the sums of a study say of a pool. cells: the released sums, in lattice units; charged: what each seat
    settled for them; again: the second sum, of residuals.

    Raises InvalidInput as soft_labels_of.
    """
    return labels_of_sums(study, _turnout(study, charged), cells, queries, pool, again)


@dataclass(frozen=True, eq=False)
class AskedAgain:
    """The second sum of a study with residuals. first: the scores that hospitals were sent; counted: of the roster,
    whose residuals are in it; cells: the noisy sum, in lattice units."""

    first: FirstScores
    counted: Bool[ndarray, " seats"] = field(repr=False)
    cells: Int64[ndarray, "rows classes"] = field(repr=False)

    def beside(self, study: Study, phi: Int64[ndarray, "pool rows"]) -> Residuals:
        """As a fit takes it. phi: of the pool, in steps."""
        of = turnout(study, self.counted, population=unit_sums(study).population)
        sums = of.scaled(study, self.cells)
        every = (np.full(len(phi), each) for each in range(study.classes))
        psi = np.stack([self.first.psi(phi, labels) for labels in every], axis=1) / TARGET_STEPS
        return Residuals(sums.mean, sums.noise, sums.records, psi)


# What is made of a released sum, by what records are labelled with.
_MADE: Mapping[type[Labelled], Callable[..., SoftLabels]] = {
    OneLabel: soft_labels_of,
    SeveralFindings: soft_findings_of,
}


def asked_again(first: FirstScores | None, again: SecondSum | None) -> AskedAgain | None:
    """The second sum of residuals of these scores; None where there is none."""
    if first is None or again is None or again.cells is None:
        return None
    return AskedAgain(first, again.counted, again.cells)


def labels_of_sums(
    study: Study,
    of: Turnout,
    cells: Int64[ndarray, "queries classes"],
    queries: Blocks,
    pool: Float32[ndarray, "pool ..."],
    again: AskedAgain | None = None,
) -> SoftLabels:
    """What sums of seats that voted so say of a pool. cells: in lattice units. Raises InvalidInput as
    soft_labels_of."""
    more = () if again is None else (again.beside(study, queries.phi(queries.features(pool))),)
    return _MADE[type(study.labelled)](queries, pool, of.scaled(study, cells), *more)


def pool_labels(queries: Blocks, pool: Float32[ndarray, "pool ..."], soft: SoftLabels) -> LabelsOfPool:
    """The soft labels of a pool as a release has them."""
    return LabelsOfPool(members_of(queries, pool), soft.probabilities)


def labels_again(
    study: DeployedStudy,
    cells: Int64[ndarray, "queries classes"],
    queries: Blocks,
    members: Int64[ndarray, "pool votes"],
    *,
    charged: Mapping[str, int],
) -> Float64[ndarray, "pool classes"] | None:
    """The probabilities from sums and memberships alone; None where the pool's own values count too (propagation)."""
    if not queries.plain or study.labelled.names or is_propagated(queries, len(members)):
        return None
    return soft_labels(_turnout(study, charged).scaled(study, cells), members).probabilities


def _turnout(study: DeployedStudy, charged: Mapping[str, int]) -> Turnout:
    return turnout(study, who_voted(study, charged), population=unit_sums(study).population)
