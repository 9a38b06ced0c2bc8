"""Scores of every class from one noisy sum of graded votes: a softmax regression by its moments, with a prior.

The sum over n units of psi(y) x phi(x), over n, is Z = B M + noise, where B phi(x) is the mean of psi(y) at x and M the
second moment of phi, which the public pool has about the same: a regression on perturbed sufficient statistics (Vu &
Slavkovic 2009; Foulds et al. 2016), in which M costs no budget. How much to shrink, which AdaSSP pays budget for (Wang
2018), follows from the sum itself: each block of phi has a prior variance, found by expectation maximisation (Dempster
et al. 1977; for noisy sums, Bernstein & Sheldon 2019). Sums of phi by class are what DP-MERF releases (Harder et al.
2021).

Least squares say how strong the prior is. What is released is a softmax regression under it: for one, the sum of
psi(y) x phi(x) is sufficient, given the records' phi (McCullagh & Nelder 1989, section 4.3), and the pool's phi stand
in for those. A prior makes scores too small, so that probabilities are too near to each other: one factor for all of
them, by the same moments, mends that, and no class changes.

A second sum, of residuals (residuals.py), joins the moments of the softmax: given its probabilities, what a record of
the pool says is expected to be its residual for each class. Where the first sum's scores are right, the expectation is
0 on any pool, so that the pool's difference from the records hardly counts.

All of it is post-processing of what was released: it costs nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import scipy
from jaxtyping import Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput

_STEPS = 14
_FIRST_VARIANCE = 0.3
# The prior variance of a row of phi grows with this power of its variance over the pool, if that is likelier.
_EXPONENTS = (0.0, 0.5)
# Of a class's variance: what a constant may move every score by, if that is likelier than the other rows' variance.
_OF_CONSTANT = (None, 0.1)
# Of a class's variance: what a constant may move every score by, if classes alone are told; and by how much this must
# be likelier than nothing at all (in log-likelihood), or noise would be taken for unequal classes.
_OF_CLASSES, _CLEARLY = (0.1, 0.5), 2.0
# A softmax has a prior of so many times the variance of least squares', over the number of classes.
_SOFTER = 2.0
# What neighbours have in common beside least squares' scores moves those of the softmax so many times as far.
_OF_NEIGHBOURS = 2.0
# By how much scores are multiplied, and how far the logarithm of that may be from there, before anything is seen.
_CERTAINTY, _CERTAINTY_SPREAD = 2.5, 0.5
# Records of the pool that a softmax looks at, and steps of its solver, at most.
_MOST_FITTED, _MOST_STEPS = 4000, 500
# Of the mean diagonal: makes a singular system solvable.
_JITTER = 1e-10


@dataclass(frozen=True, eq=False)
class PublicMoment:
    """What the public pool says of phi: its records and their weights, of sum 1; and its second moment.

    of: the number of the prior variance of each row, -1 for a constant (choice.block_of_rows); records: how many
    records of the same weight the pool is worth, 1 / sum w^2.
    """

    phi: Float64[ndarray, "pool rows"] = field(repr=False)
    weights: Float64[ndarray, " pool"] = field(repr=False)
    second: Float64[ndarray, "rows rows"] = field(repr=False)
    of: Int64[ndarray, " rows"] = field(repr=False)
    records: float

    @classmethod
    def of_pool(
        cls,
        phi: Float64[ndarray, "pool rows"],
        of: Int64[ndarray, " rows"],
        weights: Float64[ndarray, " pool"] | None = None,
    ) -> PublicMoment:
        """The moment of a pool. weights: of its records, with the sum 1; None: all alike."""
        if weights is None:
            weights = np.full(len(phi), 1 / len(phi))
        return cls(phi, weights, (phi * weights[:, None]).T @ phi, of, float(1 / (weights**2).sum()))


@dataclass(frozen=True, eq=False)
class Neighbours:
    """phi of the pool; the same times each record's weight, of sum 1; and what the graph's prior makes of that: the
    inverse of its Laplacian times it."""

    phi: Float64[ndarray, "pool rows"] = field(repr=False)
    weighed: Float64[ndarray, "pool rows"] = field(repr=False)
    spread: Float64[ndarray, "pool rows"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Residuals:
    """The second sum. mean: over the number of units; noise: the variance of an entry of that; units: how many spoke;
    psi: what each record of the pool would say beside phi, for each class that it may have."""

    mean: Float64[ndarray, "rows classes"] = field(repr=False)
    noise: float = field(repr=False)
    units: float | int
    psi: Float64[ndarray, "pool classes columns"] = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class _Told:
    """Moments that a softmax is to have: phi of the pool, weighed, and the released mean, both over the noise's root;
    and what each record of the pool says for each class."""

    seen: Float64[ndarray, "rows pool"]
    wanted: Float64[ndarray, "rows contrasts"]
    says: Float64[ndarray, "pool classes contrasts"]


@dataclass(frozen=True, eq=False)
class Scores:
    """The score of each class is 1 / classes + phi(x) @ coefficients; its probability the softmax of classes x score.

    log_likelihood: of the released sum under least squares, up to a constant; near: the probabilities of the pool
    itself, where its neighbours count too (fit).
    """

    coefficients: Float64[ndarray, "rows classes"] = field(repr=False)
    log_likelihood: float
    near: Float64[ndarray, "pool classes"] | None = field(default=None, repr=False)

    def scores(self, phi: Float64[ndarray, "records rows"]) -> Float64[ndarray, "records classes"]:
        """The scores of each class; the largest is the class."""
        return phi @ self.coefficients + 1 / self.coefficients.shape[1]

    def probabilities(self, phi: Float64[ndarray, "records rows"]) -> Float64[ndarray, "records classes"]:
        """The probability of each class for each record."""
        return as_probabilities(self.scores(phi))

    def of_pool(self, phi: Float64[ndarray, "pool rows"]) -> Float64[ndarray, "pool classes"]:
        """The probability of each class for each record of the pool that was given to fit."""
        return self.probabilities(phi) if self.near is None else self.near


def as_probabilities(scores: Float64[ndarray, "records classes"]) -> Float64[ndarray, "records classes"]:
    """The softmax of scores times the number of classes: where a score moves a little from 1 / classes, the probability
    moves as much."""
    return np.asarray(scipy.special.softmax(scores * scores.shape[1], axis=1))


def fit(
    mean: Float64[ndarray, "rows columns"],
    moment: PublicMoment,
    *,
    targets: Float64[ndarray, "classes columns"],
    noise: float,
    units: float | int,
    neighbours: Neighbours | None = None,
    residuals: Residuals | None = None,
) -> Scores:
    """The scores under which the released mean, or the means of both sums, are likeliest, given the prior.

    mean: the noisy sum over the number of units; targets: psi of each class, of length 1; noise: the variance of an
    entry of the mean; units: the public number of units; neighbours: in the pool: then its own scores may differ from
    phi's where neighbours agree (a Gaussian field, Zhu et al. 2003), and do if that makes the mean likelier; other
    records have no neighbours, and their scores stay.
    Raises InvalidInput where a value is out of range.
    """
    if not (np.isfinite(mean).all() and np.isfinite(noise) and noise >= 0 and units >= 1 and moment.records > 0):
        raise InvalidInput(
            f"a mean of {units} units with noise of variance {noise}; allowed: finite, of at least 1 unit, noise >= 0"
        )
    code, seen = contrasts(targets)
    columns = code.shape[1]
    z, entry = mean @ seen, noise * float((seen**2).sum(axis=0).max())
    # The variance of a target's column over classes that are alike, which sampling n units leaves.
    problem = _Problem(z, moment, entry, 1 / (columns + 1) / units)
    found, mixed, softmax = _begun(_Given.of(problem, code))
    if residuals is not None:
        told = problem.residuals(residuals, problem.certainty(mixed, softmax, code) * softmax, code)
        softmax = problem.softmax(mixed, code, told)
    certainty = problem.certainty(mixed, softmax, code)
    scores = Scores(certainty * softmax @ code.T, found.log_likelihood)
    if neighbours is None:
        return scores
    wider = problem.fitted(found.prior, _covariance(neighbours.weighed.T @ neighbours.spread))
    if wider.log_likelihood <= mixed.log_likelihood:
        return scores
    near = certainty * _OF_NEIGHBOURS * wider.smoothness * neighbours.spread @ wider.weights @ code.T
    probabilities = as_probabilities(scores.scores(neighbours.phi) + near)
    return replace(scores, log_likelihood=wider.log_likelihood, near=probabilities)


@dataclass(frozen=True)
class _Given:
    """What a fit starts from, compared by its digest."""

    digest: bytes = field(repr=False)
    problem: _Problem = field(repr=False, compare=False)
    code: Float64[ndarray, "classes contrasts"] = field(repr=False, compare=False)

    @staticmethod
    def of(problem: _Problem, code: Float64[ndarray, "classes contrasts"]) -> _Given:
        moment = problem.moment
        digest = hashlib.sha256(f"{moment.phi.shape} {code.shape} {problem.entry!r} {problem.sampling!r}".encode())
        for each in (problem.z, code, moment.phi, moment.weights, moment.of):
            digest.update(np.ascontiguousarray(each).data)
        return _Given(digest.digest(), problem, code)


@lru_cache(maxsize=1)  # with a second sum a fit begins as that of the first one alone
def _begun(given: _Given) -> tuple[_Found, _Found, Float64[ndarray, "rows contrasts"]]:
    """The likeliest scores by least squares, those averaged with classes alone, and of these the softmax."""
    found = given.problem.likeliest()
    mixed = given.problem.with_classes(found)
    return found, mixed, given.problem.softmax(mixed, given.code)


def _covariance(made: Float64[ndarray, "rows rows"]) -> Float64[ndarray, "rows rows"]:
    """The covariance nearest to one that a solver made, which is as exact as its tolerance and may fall below 0."""
    values, axes = np.linalg.eigh((made + made.T) / 2)
    return (axes * np.maximum(values, 0.0)) @ axes.T


def contrasts(
    targets: Float64[ndarray, "classes columns"],
) -> tuple[Float64[ndarray, "classes contrasts"], Float64[ndarray, "columns contrasts"]]:
    """An orthonormal code of the classes' contrasts, and what brings sums of targets there.

    What all classes have in common (a constant column) tells nothing of classes, and is left out.
    """
    code, lengths, columns = np.linalg.svd(targets - targets.mean(axis=0), full_matrices=False)
    kept = len(targets) - 1
    return code[:, :kept], columns[:kept].T / lengths[:kept]


def overall(
    mean: Float64[ndarray, "rows columns"], *, targets: Float64[ndarray, "classes columns"], noise: float
) -> tuple[Float64[ndarray, " rows"], float]:
    """The noisy mean of phi itself, whatever the classes, and the variance of its noise in each row.

    Raises InvalidInput for targets that do not tell it: no sum of their columns is the same for every class.
    """
    ones = np.ones(len(targets))
    found = np.linalg.pinv(targets) @ ones
    if not np.allclose(targets @ found, ones, atol=1e-3):
        raise InvalidInput("the targets do not tell the mean of phi; allowed: one-hot ones, or with a constant column")
    return mean @ found, noise * float((found**2).sum())


@dataclass(frozen=True, eq=False)
class _Prior:
    """Of each row its share of the variance of a group of rows, which is to be found, and what is fixed beside that."""

    of: Int64[ndarray, " rows"]
    base: Float64[ndarray, " rows"]
    fixed: Float64[ndarray, " rows"]


@dataclass(frozen=True, eq=False)
class _Found:
    """variances: of each row of B, before anything was seen."""

    coefficients: Float64[ndarray, "rows contrasts"]
    variances: Float64[ndarray, " rows"]
    log_likelihood: float
    prior: _Prior
    smoothness: float
    weights: Float64[ndarray, "rows contrasts"]


@dataclass(frozen=True, eq=False)
class _Problem:
    """Z = B M + noise: entry I + (sampling + mismatch) M in each contrast."""

    z: Float64[ndarray, "rows contrasts"]
    moment: PublicMoment
    entry: float
    sampling: float

    def prior(self, exponent: float, constant: float | None) -> _Prior:
        """exponent: of each row its variance over its group's is this power of its second moment over the group's mean
        one; constant: of a constant, the variance it gives all scores over that of a class; None: the first group's,
        as of so few numbers none is found.
        """
        is_constant = self.moment.of < 0
        of, diagonal = np.maximum(self.moment.of, 0), np.diag(self.moment.second)
        rest = np.where(is_constant, 0.0, diagonal)
        mean = np.bincount(of, weights=rest) / np.maximum(np.bincount(of, weights=~is_constant), 1)
        share = np.where(mean[of] > 0, diagonal / np.where(mean[of] > 0, mean[of], 1.0), 1.0)
        base = np.where(is_constant, 1.0, np.maximum(share, _JITTER) ** exponent)
        if constant is None:
            return _Prior(of, base, np.zeros(len(of)))
        variance = constant / (self.z.shape[1] + 1) / np.maximum(diagonal, _JITTER)
        return _Prior(of, np.where(is_constant, 0.0, base), np.where(is_constant, variance, 0.0))

    def likeliest(self) -> _Found:
        """What is found under the likeliest of all priors."""
        priors = [self.prior(exponent, constant) for exponent in _EXPONENTS for constant in _OF_CONSTANT]
        return max(map(self.fitted, priors), key=lambda each: each.log_likelihood)

    def fitted(
        self, prior: _Prior, smooth: Float64[ndarray, "rows rows"] | None = None, *, steps: int = _STEPS
    ) -> _Found:
        """The posterior mean after so many steps of expectation maximisation over the prior variances.

        smooth: the covariance of the sum under the graph's prior; its own variance is found by fixed points (MacKay
        1992).
        """
        second = self.moment.second
        rows, contrasts = self.z.shape
        free = prior.base > 0
        counts = np.maximum(np.bincount(prior.of, weights=free), 1)
        variance, smoothness, mismatch = np.full(len(counts), _FIRST_VARIANCE), 0.0 if smooth is None else 0.1, 0.0
        for _ in range(steps):
            each = variance[prior.of] * prior.base + prior.fixed
            moved = second * each
            system = moved @ second + self.entry * np.eye(rows) + (self.sampling + mismatch) * second
            if smooth is not None:
                system = system + smoothness * smooth
            root = np.linalg.cholesky(system + _JITTER * np.trace(system) / rows * np.eye(rows))
            whitened = scipy.linalg.solve_triangular(root, np.concatenate([self.z, moved], axis=1), lower=True)
            z, moved = whitened[:, :contrasts], whitened[:, contrasts:]
            coefficients = moved.T @ z
            weights = scipy.linalg.solve_triangular(root.T, z)
            likelihood = -((z * z).sum() / 2 + contrasts * np.log(np.diag(root)).sum())
            used = smoothness
            spread = (coefficients**2).sum(axis=1) / contrasts + each - (moved * moved).sum(axis=0)
            variance = np.bincount(prior.of, weights=np.where(free, spread / np.where(free, prior.base, 1), 0)) / counts
            mismatch = float((coefficients * (second @ coefficients)).sum()) / contrasts / self.moment.records
            if smooth is not None:
                degrees = float(np.trace(scipy.linalg.cho_solve((root, True), smooth)))
                smoothness *= float((weights * (smooth @ weights)).sum()) / contrasts / max(degrees, _JITTER)
        return _Found(coefficients, each, float(likelihood), prior, used, weights)

    def with_classes(self, found: _Found) -> _Found:
        """What was found, averaged by likelihood with how often each class occurs and nothing else, if that is clearly
        likelier than nothing at all (Bayesian model averaging, Hoeting et al. 1999)."""
        is_constant, diagonal = self.moment.of < 0, np.maximum(np.diag(self.moment.second), _JITTER)
        nothing = self._given(np.zeros(len(diagonal)), found.prior)
        alone = [
            self._given(np.where(is_constant, share / (self.z.shape[1] + 1) / diagonal, 0.0), found.prior)
            for share in _OF_CLASSES
        ]
        if max(each.log_likelihood for each in alone) < nothing.log_likelihood + _CLEARLY:
            return found
        every = [found, *alone]
        weights = scipy.special.softmax([each.log_likelihood for each in every])
        return replace(
            found,
            coefficients=sum(weight * each.coefficients for weight, each in zip(weights, every, strict=True)),
            variances=sum(weight * each.variances for weight, each in zip(weights, every, strict=True)),
            log_likelihood=max(each.log_likelihood for each in every),
        )

    def _given(self, each: Float64[ndarray, " rows"], prior: _Prior) -> _Found:
        """The posterior mean under these variances of rows."""
        return self.fitted(_Prior(prior.of, 0 * prior.base, each), steps=2)  # of which one finds the mismatch

    def softmax(
        self, found: _Found, code: Float64[ndarray, "classes contrasts"], more: _Told | None = None
    ) -> Float64[ndarray, "rows contrasts"]:
        """The coefficients, over the number of classes, of the softmax regression whose moments over the pool are
        nearest to the released ones, by the covariance of least squares, under a prior of their variances times
        _SOFTER over the number of classes. more: moments of a second sum."""
        classes, rows = len(code), len(found.variances)
        phi, _ = self._looked_at()
        every = [self._told(self._noise(found), self.z, np.broadcast_to(code, (len(phi), *code.shape)))]
        every += [] if more is None else [more]
        # Of coefficients over this the prior is standard normal.
        scale = np.sqrt(_SOFTER * classes * found.variances)[:, None]
        phi = phi * scale.T

        def loss(flat: Float64[ndarray, " parameters"]) -> tuple[float, Float64[ndarray, " parameters"]]:
            moved = flat.reshape(rows, -1)
            chances = scipy.special.softmax(phi @ moved @ code.T, axis=1)
            value, pull = (flat * flat).sum() / 2, np.zeros_like(chances)
            for each in every:
                rest = each.seen @ np.einsum("ik,ikc->ic", chances, each.says) - each.wanted
                value += (rest * rest).sum() / 2
                pull += np.einsum("ic,ikc->ik", each.seen.T @ rest, each.says)
            slope = chances * (pull - (pull * chances).sum(axis=1, keepdims=True))
            return float(value), (phi.T @ (slope @ code)).ravel() + flat

        first = found.coefficients * classes / np.where(scale > 0, scale, np.inf)
        start = np.asarray(first.ravel(), np.float64)
        solved = scipy.optimize.minimize(
            loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS}
        )
        return np.asarray(solved.x.reshape(rows, -1) * scale / classes)

    def residuals(
        self,
        second: Residuals,
        coefficients: Float64[ndarray, "rows contrasts"],
        code: Float64[ndarray, "classes contrasts"],
    ) -> _Told:
        """The moments of a second sum, for the softmax. coefficients: of the scores that the first one gave: what the
        second says beside what these expect, by least squares, tells how much the pool is to be mistrusted."""
        phi, weights = self._looked_at()
        says, contrasts = second.psi[:: self._every] @ code, code.shape[1]
        chances = as_probabilities(phi @ coefficients @ code.T + 1 / len(code))
        z = second.mean @ code
        rest = z - (phi * weights[:, None]).T @ np.einsum("ik,ikc->ic", chances, says)
        sampling = float(weights @ (chances * (says**2).sum(axis=2)).sum(axis=1)) / contrasts / second.units
        problem = _Problem(rest, self.moment, second.noise, sampling)
        return self._told(problem._noise(problem.likeliest()), z, says)

    def _told(
        self,
        noise: Float64[ndarray, "rows rows"],
        mean: Float64[ndarray, "rows contrasts"],
        says: Float64[ndarray, "pool classes contrasts"],
    ) -> _Told:
        phi, weights = self._looked_at()
        root = np.linalg.cholesky(noise)
        seen = scipy.linalg.solve_triangular(root, (phi * weights[:, None]).T, lower=True)
        return _Told(seen, scipy.linalg.solve_triangular(root, mean, lower=True), says)

    def certainty(
        self, found: _Found, softmax: Float64[ndarray, "rows contrasts"], code: Float64[ndarray, "classes contrasts"]
    ) -> float:
        """By what these coefficients of a softmax are to be multiplied so that its probabilities are calibrated.

        The factor t is likeliest where the mean of psi(y) phi(x) along the coefficients B is what the softmax of t B
        expects over the pool. The released mean z lies along B too far, as B was fitted to its noise: in the mean by
        the trace of the noise's covariance times dB/dz (Stein 1981, Lemma 2), in which B's own softmax curves as much
        in each contrast. What noise leaves open, a prior of ln t decides.
        """
        classes = len(code)
        phi, weights = self._looked_at()
        noise, along = self._noise(found), phi @ softmax
        scores = classes * along @ code.T
        curve = classes / (classes - 1) * (1 - (scipy.special.softmax(scores, axis=1) ** 2).sum(axis=1))
        scale = np.sqrt(_SOFTER / classes * found.variances)[:, None]
        slope = scale * ((phi * (weights * curve)[:, None]).T @ phi)
        told = np.eye(len(slope)) + slope @ np.linalg.solve(noise, slope.T)
        fitted = (classes - 1) * np.trace(np.linalg.solve(told, slope * scale.T))
        wanted = float((self.z * softmax).sum()) - fitted
        variance = max(float((softmax * (noise @ softmax)).sum()), _JITTER**2)

        def loss(log_factor: float) -> float:
            chances = scipy.special.softmax(np.exp(log_factor) * scores, axis=1)
            rest = float(weights @ ((chances @ code) * along).sum(axis=1)) - wanted
            return rest**2 / variance + ((log_factor - np.log(_CERTAINTY)) / _CERTAINTY_SPREAD) ** 2

        within = np.log(_CERTAINTY) + 5 * _CERTAINTY_SPREAD * np.array([-1, 1])
        found_at = scipy.optimize.minimize_scalar(loss, bounds=within, method="bounded", options={"xatol": 1e-9})
        return float(np.exp(found_at.x))

    def _looked_at(self) -> tuple[Float64[ndarray, "pool rows"], Float64[ndarray, " pool"]]:
        """phi and weights of those records of the pool that a softmax looks at."""
        weights = self.moment.weights[:: self._every]
        return self.moment.phi[:: self._every], weights / weights.sum()

    @property
    def _every(self) -> int:
        return -(-len(self.moment.phi) // _MOST_FITTED)

    def _noise(self, found: _Found) -> Float64[ndarray, "rows rows"]:
        """The covariance of a contrast of the released mean about what was found."""
        second, contrasts = self.moment.second, self.z.shape[1]
        mismatch = float((found.coefficients * (second @ found.coefficients)).sum()) / contrasts
        noise = self.entry * np.eye(len(second)) + (self.sampling + mismatch / self.moment.records) * second
        return np.asarray(noise + _JITTER * np.trace(noise) / len(noise) * np.eye(len(noise)))
