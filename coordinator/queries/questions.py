"""In which order teachers are asked about a public pool. A budget ends long before most pools do, so only the first
questions are answered; which they are is chosen from the public pool, or from it and the labels that were released
before, and costs nothing (post-processing, Dwork & Roth 2014, Proposition 2.1).

An order is that of the pool: a study's pool is put in order before its digest is taken, so everybody agrees on it.

coverage: facility location among nearest neighbours. A question stands for a record by exp(-d^2/r^2), if it is one of
the record's nearest, where d is their distance and r that of the last of the nearest; the next question is always the
one that adds most to how well all records are stood for by the best of their questions. The sum is submodular, so after
any number of questions this greedy order is within 1 - 1/e of the best choice of so many (Nemhauser, Wolsey & Fisher
1978); gains are looked at again only when they may be the largest (Minoux 1978). What is asked first lies where the
pool is dense, where teachers agree; outliers, which a cover of least radius would ask first, come last.

uncertainty: active learning by margin (Scheffer, Decomain & Wrobel 2001; Settles 2009, section 3.1): a record counts 1
less the difference of the two largest probabilities that a quick student of the labels so far gives it, a logistic
regression on the pool's features. A batch is those questions that stand best for the records that count (Wei, Iyer &
Bilmes 2015, "Submodularity in data subset selection and active learning"), so it is not many copies of one uncertain
record, nor outliers. Before labels of two classes are known all records count the same.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np
import scipy.sparse
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from coordinator.queries import POOL_ORDERS, parse_questions
from coordinator.queries.choice import clusters
from coordinator.queries.features import features_for, mean_and_deviation
from coordinator.queries.neighbours import nearest, reach_of_graph, sparse
from protocols.errors import InvalidInput
from protocols.installing import install
from protocols.study.chosen import GIVEN, UNCERTAINTY
from protocols.study.terms import Feature
from runtime.distribution import installed_part

# On 9,000 training images of MNIST, 20, 50 and 150 gave labels of the pool alike within 0.1 points.
_NEIGHBOURS: Final = 50


def most_covering(
    features: Float32[ndarray, "pool features"], *, number: int | None, seed: int
) -> Int64[ndarray, " pool"]:
    """Every position of the pool once. number: none; the seed changes nothing. Raises InvalidInput."""
    if number is not None:
        raise InvalidInput(f"questions is 'coverage:{number}'; allowed: coverage")
    rows = len(features)
    return Cover(features).best(np.arange(rows), rows, counts=np.ones(rows), asked=np.empty(0, np.int64))


class Cover:
    """How well each record of a pool would stand for each other one. Raises InvalidInput without scikit-learn."""

    def __init__(self, features: Float32[ndarray, "pool features"]) -> None:
        rows = len(features)
        # Of each question, whom it stands for; first of all itself.
        self._near = scipy.sparse.csr_matrix(scipy.sparse.identity(rows))
        if rows >= 2:
            distances, places = nearest(features, _NEIGHBOURS)
            weights = np.exp(-((distances / reach_of_graph(distances)[:, None]) ** 2))
            self._near = scipy.sparse.csr_matrix(sparse(weights, places).T + self._near)

    def best(
        self,
        candidates: Int64[ndarray, " candidates"],
        size: int,
        *,
        counts: Float64[ndarray, " pool"],
        asked: Int64[ndarray, " asked"],
    ) -> Int64[ndarray, " best"]:
        """Up to `size` of the candidates, in the order in which each adds most. counts: how much each record is worth,
        >= 0; asked: questions that stand for records already.
        """
        covered = np.zeros(len(counts))
        for place in asked.tolist():
            self._cover(covered, place)

        def gain(place: int) -> float:
            records, weights = self._of(place)
            return -float((counts[records] * np.maximum(weights - covered[records], 0.0)).sum())

        near = self._near
        all_gains = counts[near.indices] * np.maximum(near.data - covered[near.indices], 0.0)
        first = -np.add.reduceat(all_gains, near.indptr[:-1])  # no row is empty
        gains = list(zip(first[candidates].tolist(), candidates.tolist(), strict=True))
        heapq.heapify(gains)
        order: list[int] = []
        while gains and len(order) < size:
            _, place = heapq.heappop(gains)
            now = (gain(place), place)
            if gains and now > gains[0]:
                heapq.heappush(gains, now)
                continue
            order.append(place)
            self._cover(covered, place)
        return np.array(order, np.int64)

    def _of(self, place: int) -> tuple[Int64[ndarray, " records"], Float64[ndarray, " records"]]:
        inside = slice(self._near.indptr[place], self._near.indptr[place + 1])
        return self._near.indices[inside], self._near.data[inside]

    def _cover(self, covered: Float64[ndarray, " pool"], place: int) -> None:
        records, weights = self._of(place)
        covered[records] = np.maximum(covered[records], weights)


def centres_first(
    features: Float32[ndarray, "pool features"], *, number: int | None, seed: int
) -> Int64[ndarray, " pool"]:
    """Every position of the pool once: of each cluster the record nearest to its centre, then the others, shuffled.

    number: of clusters, at least 2 and at most the pool's different records. Raises InvalidInput, also without
    scikit-learn.
    """
    if number is None:
        raise InvalidInput("questions is 'centres'; allowed: centres:N")
    centres = clusters(features, number, drawn=int(np.random.default_rng([seed, *b"centres"]).integers(2**31)))
    distances = (centres**2).sum(axis=1) - 2 * features @ centres.T + (features**2).sum(axis=1, keepdims=True)
    sizes = np.bincount(distances.argmin(axis=1), minlength=len(centres))
    nearest = distances.argmin(axis=0)[np.argsort(-sizes, kind="stable")]
    first = nearest[np.sort(np.unique(nearest, return_index=True)[1])]
    others = np.setdiff1d(np.arange(len(features)), first)
    return np.concatenate([first, np.random.default_rng([seed, *b"others"]).permutation(others)])


# Of standardised features: the inverse of the prior's weight, as of the student logistic_regression.
_INVERSE_REGULARISATION: Final = 1.0
_MOST_ITERATIONS: Final = 200


class UncertainFirst:
    """A choice of questions between batches, see protocols/labelling/questions.py: the same for the same labels.

    features: of the pool. Raises InvalidInput without scikit-learn.
    """

    def __init__(self, features: Float32[ndarray, "pool features"]) -> None:
        self._cover = Cover(features)
        values = features.astype(np.float64)
        mean, deviation = mean_and_deviation(values, least=float(np.finfo(np.float32).tiny))
        self._rows = (values - mean) / deviation
        # A replay and the live study that is compared with it choose the same.
        self._known: dict[bytes, Int64[ndarray, " chosen"]] = {}

    def __call__(
        self, labels: Int64[ndarray, " pool"], left: Int64[ndarray, " left"], size: int
    ) -> Int64[ndarray, " chosen"]:
        """`size` of the positions in `left`, those that are worth most first."""
        key = hashlib.sha256(b"%d" % size + labels.tobytes() + left.tobytes()).digest()
        if key not in self._known:
            asked = np.setdiff1d(np.arange(len(labels)), left)
            self._known[key] = self._cover.best(left, size, counts=self.uncertainty(labels), asked=asked)
        return self._known[key]

    def uncertainty(self, labels: Int64[ndarray, " pool"]) -> Float64[ndarray, " pool"]:
        """1 less the margin of the student of these labels, in [0, 1]; 1 everywhere without labels of two classes."""
        has = np.flatnonzero(labels >= 0)
        if len(np.unique(labels[has])) < 2:
            return np.ones(len(labels))
        try:
            from sklearn.linear_model import LogisticRegression
        except ModuleNotFoundError as missing:
            raise InvalidInput(f"questions by uncertainty need scikit-learn: {install('sklearn')}") from missing
        student = LogisticRegression(C=_INVERSE_REGULARISATION, max_iter=_MOST_ITERATIONS)
        chances = np.sort(student.fit(self._rows[has], labels[has]).predict_proba(self._rows), axis=1)
        return np.asarray(1.0 - (chances[:, -1] - chances[:, -2]), np.float64)


def in_order(
    pool: Float32[ndarray, "pool ..."],
    named: str,
    *,
    columns: Sequence[Feature] = (),
    features: str = "auto",
    seed: int,
) -> Int64[ndarray, " pool"]:
    """Every position of the pool once, in the order in which it is asked about.

    named: GIVEN, or an order of POOL_ORDERS, with its number behind a colon where it has one; columns, features: see
    features_for. Raises InvalidInput for other names, and where the order does not fit the pool.
    """
    kind, number = parse_questions(named)
    if kind == GIVEN:
        return np.arange(len(pool))
    if kind == UNCERTAINTY:
        raise InvalidInput(
            f"questions is {named!r}, which is no order of a pool: they are chosen between batches, by the labels so "
            f"far; allowed: {GIVEN}, {', '.join(POOL_ORDERS)}; with a number: NAME:N"
        )
    found = features_for(pool, features, columns=columns, seed=seed)(pool)
    return np.asarray(installed_part(POOL_ORDERS, kind)(found, number=number, seed=seed), np.int64)


def by_uncertainty(
    pool: Float32[ndarray, "pool ..."], *, columns: Sequence[Feature] = (), features: str = "auto", seed: int
) -> UncertainFirst:
    """The choice of questions between batches by what a student of the labels so far is uncertain of.

    columns, features: see features_for. Raises InvalidInput where features do not fit the pool, and without
    scikit-learn.
    """
    return UncertainFirst(features_for(pool, features, columns=columns, seed=seed)(pool))
