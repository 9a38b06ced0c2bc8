"""Label propagation, then a network (Iscen, Tolias, Avrithis & Chum 2019, "Label propagation for deep semi-supervised
learning"): labels spread over the graph of nearest neighbours of the pool, and a network learns what they became.

Spreading (Zhou et al. 2004, Eq. 4) has each label outvoted by its neighbours' where they disagree, so many wrong labels
do no harm, as long as wrong ones are not neighbours. Neighbours are found by the public features of the pool that
record votes use (HOG for images), not by those of the network, and there is one round of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy.sparse
from jaxtyping import Float32, Float64
from numpy import ndarray

from coordinator.queries.features import features_for, principal
from coordinator.queries.neighbours import laplacian, solved
from coordinator.students import torch_student
from coordinator.students.choice import FOLDS, folds
from coordinator.students.student import Released, Student, StudentKind, is_image, normalised
from protocols.features.feature_map import FeatureMap

_NEIGHBOURS: Final = 10
# 1 - alpha in Zhou et al.: the share of the pool that has a label times this, and at least so much. The more labels
# there are, the less far each has to spread. Chosen on 9,000 training images of MNIST and on 400 images of `digits`.
_KEPT, _LEAST_KEPT = 0.15, 0.01
_OTHER_SPREAD: Final = 0.9
_FEWEST_TO_CHOOSE: Final = 20  # labels
_CLEARLY: Final = 2.0  # standard deviations of a difference that is chance
_PRIOR: Final = 3.0  # labels of each class that occurs, added to how often it was released
_TOLERANCE, _MOST_STEPS = 1e-5, 1000
# Of a propagated label that says nothing, in the place of 0: each input keeps a part in the training.
_LEAST_WEIGHT: Final = 1e-3
_TINY: Final = 1e-12


@dataclass(frozen=True)
class PropagationKind(StudentKind):
    """The cnn on images, grey or with a last axis of 3 colours, the mlp on everything else."""

    images: StudentKind
    rows: StudentKind

    def learn(self, released: Released) -> Student:
        """Trains on the propagated labels of all inputs; those with an uncertain label count less (Iscen et al. 2019,
        Eq. 11)."""
        everything = np.concatenate([released.inputs, released.unlabelled])
        spread = certain(propagated(everything, released.targets, seed=released.seed))
        student = self.images if is_image(released.inputs.shape[1:]) else self.rows
        return student.learn(replace(released, inputs=everything, targets=spread, unlabelled=everything[:0]))


def propagated(
    inputs: Float32[ndarray, "inputs ..."], targets: Float32[ndarray, "answered classes"], *, seed: int
) -> Float64[ndarray, "inputs classes"]:
    """The probability of each class for each input; targets are those of the first inputs, see StudentKind.fit.

    Features and alpha are the usual ones, unless others foretell clearly more of the labels of FOLDS folds, each held
    out in turn. Slightly more would not do: queries that are typical of a pool are foretold by anything. 0 for
    classes that no target names.
    """
    given = normalised(targets).astype(np.float64)
    if len(np.unique(inputs.reshape(len(inputs), -1), axis=0)) == 1:
        return np.tile(given.sum(axis=0) / given.sum(), (len(inputs), 1))
    smooth = [laplacian(each, neighbours=_NEIGHBOURS) for each in _features(inputs)]
    usual = min(1 - _LEAST_KEPT, 1 - _KEPT * len(given) / len(inputs))
    ways = [(each, alpha) for each in smooth for alpha in (usual, _OTHER_SPREAD)]
    chosen = 0
    if len(given) >= _FEWEST_TO_CHOOSE:
        fold = folds(given.argmax(axis=1), seed)
        foretold = [_foretold(each, alpha, given, fold) for each, alpha in ways]
        for way in range(1, len(ways)):
            gains = foretold[way] - foretold[chosen]
            if gains.sum() > _CLEARLY * np.sqrt((gains**2).sum()):
                chosen = way
    return _spread(*ways[chosen], given, np.arange(len(given)))


def _features(inputs: Float32[ndarray, "inputs ..."]) -> list[Float32[ndarray, "inputs features"]]:
    """By what inputs are compared: images by gradients, which say nothing of colours, or by principal components of
    their pixels."""
    raw = FeatureMap(inputs.shape[1:])
    if not is_image(inputs.shape[1:]):
        return [raw(inputs)]
    return [features_for(inputs, "auto", seed=0)(inputs), principal(inputs, raw, None)(inputs)]


def _foretold(
    smooth: scipy.sparse.csr_matrix, alpha: float, given: Float64[ndarray, "answered classes"], fold: ndarray
) -> Float64[ndarray, " answered"]:
    """How much weight each label has on the class that the other folds' labels foretell."""
    found = np.zeros(len(given))
    for each in range(FOLDS):
        kept, held = np.flatnonzero(fold != each), np.flatnonzero(fold == each)
        found[held] = given[held, _spread(smooth, alpha, given[kept], kept)[held].argmax(axis=1)]
    return found


def _spread(
    smooth: scipy.sparse.csr_matrix, alpha: float, given: Float64[ndarray, "answered classes"], places: ndarray
) -> Float64[ndarray, "inputs classes"]:
    """(I - alpha S) F = Y with S = I - L (Zhou et al. 2004, Eq. 3), each class scaled to its share of the labels, so
    that none spreads for being in the middle (class mass normalisation: Zhu, Ghahramani & Lafferty 2003, section 4).
    i64 [answered]: `places`, of the labels among the inputs.
    """
    wanted = np.zeros((smooth.shape[0], given.shape[1]))
    wanted[places] = given
    system = ((1 - alpha) * scipy.sparse.identity(len(wanted)) + alpha * smooth).tocsr()
    named = given.any(axis=0)
    # What no label reaches may be any class, as often as it was released.
    found = np.maximum(solved(system, wanted, precision=_TOLERANCE, steps=_MOST_STEPS), 0.0) + _TINY * named
    shares = np.where(named, given.sum(axis=0) + _PRIOR, 0.0) / np.where(named, found.sum(axis=0), 1.0)
    return np.asarray(found * shares / (found * shares).sum(axis=1, keepdims=True))


def certain(probabilities: Float64[ndarray, "inputs classes"]) -> Float32[ndarray, "inputs classes"]:
    """The likeliest class of each input, with 1 - H(p)/log(classes) as its weight (Iscen et al. 2019, Eq. 11)."""
    rows, classes = probabilities.shape
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    weights = 1 + (probabilities * logs).sum(axis=1) / np.log(classes)
    targets = np.zeros((rows, classes), np.float32)
    targets[np.arange(rows), probabilities.argmax(axis=1)] = np.maximum(weights, _LEAST_WEIGHT)
    return targets


def propagation(*, device: str) -> PropagationKind:
    """Propagation, for images and for standardised table rows."""
    return PropagationKind(torch_student.cnn(device=device), torch_student.mlp(device=device))
