"""Which kind of student suits released labels: by how many there are, or by cross-validation on them; neither costs
budget.

Released labels are noisy, and the held-out ones as wrong as the others: agreement with them ranks kinds, and is not how
often a student is right. Its maximum over kinds is also a little too high.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.students import SCORES, STUDENTS, student_kind, usual_table_student
from coordinator.students.student import Student, is_image
from protocols.errors import InvalidInput
from protocols.features.feature_map import FeatureMap
from protocols.study.votes import TeacherVotes, UnitSums, Votes

AUTO: Final = "auto"
USUAL: Final = "usual"
# Labels of images, and of table rows, that are many: docs/how-to/choose-a-student.md.
MANY_OF_IMAGES: Final = 2000
MANY_OF_ROWS: Final = 500
# Of images of smaller sides, and of few with colour, a network finds too little: graded votes' own scores are better.
NETWORK_SIDE: Final = 16
FOLDS: Final = 3
SIMPLEST: Final = "logistic_regression"
# Kinds that a release can contain, the simpler first, which wins a tie; each with the packages that it needs.
_FOR_IMAGES: Final = {"logistic_regression": "sklearn", "cnn": "torch", "propagation": "torch sklearn"}
_FOR_ROWS: Final = {
    "logistic_regression": "sklearn",
    "random_forest": "sklearn",
    "gradient_boosting": "sklearn",
    "mlp": "torch",
}


@dataclass(frozen=True)
class KindScore:
    """agreement: the share of the weight of held-out labels that students of this kind predict, in [0, 1]; deviation:
    its standard deviation over the folds. Both are None for a kind of which a package is not installed."""

    kind: str
    agreement: float | None
    deviation: float | None


@dataclass(frozen=True)
class Choice:
    """The kind with the largest agreement, and the scores of all that were compared: none where labels were too few,
    and the kind is SIMPLEST. why: of a kind that was not compared with others, the reason, else empty."""

    kind: str
    scores: tuple[KindScore, ...]
    why: str = ""

    @property
    def lines(self) -> list[str]:
        """What a terminal shows: a line for each kind that was compared, and what the figures are."""
        if not self.scores:
            return [f"fewer than {FOLDS} labels cannot compare kinds of students: {self.kind}, the simplest, was taken"]
        shown = [
            f"  {score.kind:20} "
            + (
                "not installed"
                if score.agreement is None
                else f"{100 * score.agreement:.1f} ± {100 * (score.deviation or 0.0):.1f} %"
            )
            for score in self.scores
        ]
        return [*shown, f"above: agreement with {FOLDS} folds of held-out labels, which are as noisy as all of them"]


@dataclass(frozen=True, kw_only=True)
class ToLearn:
    """What a usual student follows from, all of it public.

    side: the shorter side of images in pixels, 0 for rows; labels: how many of the pool have one; where records vote,
    units: how many protected units there are; graded: whether with graded features; colour: whether images have it.
    """

    side: int
    labels: int
    units: int = 0
    graded: bool = False
    colour: bool = False

    @classmethod
    def of(cls, inputs: Float32[ndarray, "pool ..."], *, labels: int, units: int = 0, graded: bool = False) -> ToLearn:
        """Of these inputs."""
        side = min(inputs.shape[1:3]) if is_image(inputs.shape[1:]) else 0
        return cls(side=side, labels=labels, units=units, graded=graded, colour=side > 0 and inputs.ndim == 4)


def usual_student(votes: type[Votes], given: ToLearn) -> Choice:
    """The usual kind, as measured on public data (docs/how-to/choose-a-student.md)."""
    return _USUAL[votes](given)


def _of_labels(given: ToLearn) -> Choice:
    """Of hard labels. A network or boosted trees need many. With fewer, those of images spread over the pool, and those
    of rows have a linear model.
    """
    image = given.side > 0
    many = MANY_OF_IMAGES if image else MANY_OF_ROWS
    few_kind, many_kind = ("label_spreading", "cnn") if image else ("logistic_regression", "gradient_boosting")
    number = f"fewer than {many}" if given.labels < many else f"{many} or more"
    kind = few_kind if given.labels < many else many_kind
    return Choice(kind, (), f"usual for {'images' if image else 'table rows'} with {number} labels")


def _of_sums(given: ToLearn) -> Choice:
    """Of soft labels of the whole pool, or the scores that graded votes give."""
    if not given.graded:
        return Choice("cnn" if given.side else usual_table_student(given.units), (), "usual for votes in cells")
    few_colour = given.colour and given.labels < MANY_OF_IMAGES
    if given.side < NETWORK_SIDE or few_colour or find_spec("torch") is None:
        return Choice(SCORES, (), "usual for graded votes of rows, and of small or few colour images")
    return Choice("cnn", (), "usual for graded votes of images")


_USUAL: Final[Mapping[type[Votes], Callable[[ToLearn], Choice]]] = {TeacherVotes: _of_labels, UnitSums: _of_sums}


def choose_student(
    inputs: Float32[ndarray, "answered ..."],
    targets: Float32[ndarray, "answered classes"],
    *,
    unlabelled: Float32[ndarray, "rest ..."],
    seed: int,
    device: str,
    linear: FeatureMap | None = None,
) -> Choice:
    """The kind to train on these labels (see StudentKind.fit), the same for the same arguments on the same machine.

    linear: what the linear kind sees of an input; None: the input.

    Each label is held out in one of FOLDS folds, in which every class has nearly its share; its input is then one
    without a label. Raises InvalidInput for fewer than FOLDS labels, and where no kind is installed.
    """
    if len(inputs) < FOLDS:
        raise InvalidInput(f"{len(inputs)} labels were released; allowed for student {AUTO!r}: at least {FOLDS}")
    image = is_image(inputs.shape[1:])
    kinds = {**(_FOR_IMAGES if image else _FOR_ROWS), **_added(image=image, device=device)}
    fold = folds(targets.argmax(axis=1), seed)
    scores = []
    for kind, packages in kinds.items():
        if any(find_spec(package) is None for package in packages.split()):
            scores.append(KindScore(kind, None, None))
            continue
        seen, rest = (inputs, unlabelled) if kind != SIMPLEST or linear is None else map(linear, (inputs, unlabelled))
        found = [
            _agreement(kind, seen, targets, fold == each, unlabelled=rest, seed=seed, device=device)
            for each in range(FOLDS)
        ]
        if np.isnan(found).any():
            continue
        scores.append(KindScore(kind, float(np.mean(found)), float(np.std(found, ddof=1))))
    compared = [score for score in scores if score.agreement is not None]
    if not compared:
        raise InvalidInput(f"no student is installed; allowed for student {AUTO!r}: some of {', '.join(kinds)}")
    return Choice(max(compared, key=lambda score: score.agreement or 0.0).kind, tuple(scores))


def chosen_together(choices: Sequence[Choice]) -> Choice:
    """One kind for several findings, each compared: that with the largest mean agreement."""
    scores = []
    for at, first in enumerate(choices[0].scores):
        found = [choice.scores[at] for choice in choices]
        values = [each.agreement for each in found if each.agreement is not None]
        spread = [each.deviation for each in found if each.deviation is not None]
        mean = (float(np.mean(values)), float(np.mean(spread))) if values else (None, None)
        scores.append(KindScore(first.kind, *mean))
    return Choice(max(scores, key=lambda score: score.agreement or 0.0).kind, tuple(scores))


def _added(*, image: bool, device: str) -> dict[str, str]:
    """The kinds of other distributions that can learn from such inputs; a broken one, or of a missing package, is left
    out. They come last, so that a kind of Conclave wins a tie."""
    found = {}
    for name in STUDENTS.added:
        try:
            if image or not student_kind(name, device=device).needs_images:
                found[name] = ""
        except InvalidInput:
            continue
    return found


def _device(kind: str, device: str) -> str:
    """Of the kinds above those without torch know the CPU alone."""
    packages = (_FOR_IMAGES | _FOR_ROWS).get(kind)
    return device if packages is None or "torch" in packages else "cpu"


def folds(labels: Int64[ndarray, " answered"], seed: int) -> Int64[ndarray, " answered"]:
    """The fold of each label, in [0, FOLDS): shuffled, sorted by class and dealt in turn."""
    shuffled = np.random.default_rng([seed, *b"choice"]).permutation(len(labels))
    fold = np.empty(len(labels), np.int64)
    fold[shuffled[np.argsort(labels[shuffled], kind="stable")]] = np.arange(len(labels)) % FOLDS
    return fold


def _agreement(
    kind: str,
    inputs: Float32[ndarray, "answered ..."],
    targets: Float32[ndarray, "answered classes"],
    held: ndarray,
    *,
    unlabelled: Float32[ndarray, "rest ..."],
    seed: int,
    device: str,
) -> float:
    """The share of the weight of held-out labels on the predicted classes. bool [answered]: `held`.

    NaN for an added kind that no release can contain.
    """
    student = student_kind(kind, device=_device(kind, device)).fit(
        inputs[~held],
        targets[~held],
        unlabelled=np.concatenate([unlabelled, inputs[held]]),
        classes=targets.shape[1],
        seed=seed,
    )
    if kind in STUDENTS.added and not student.exporter:
        return float("nan")
    predicted = student.predict(inputs[held])
    return float(np.take_along_axis(targets[held], predicted[:, None], axis=1).sum() / targets[held].sum())


@dataclass(frozen=True, eq=False)
class Trained:
    """A student and what it learned from. agreement: share of its labels that it predicts; choice: how its kind was
    chosen, None if it was named; features: what it sees of a record, None for the record itself."""

    student: Student
    kind: str
    seed: int
    device: str
    labels: int
    reinforced: int
    unlabelled: int
    agreement: float
    choice: Choice | None = None
    features: FeatureMap | None = None
