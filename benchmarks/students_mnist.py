r"""Accuracy of students of the PATE 2018 MNIST votes at epsilon 1.97, kind by kind.

    CONCLAVE_DATA=... python benchmarks/students_mnist.py vat mean_teacher
    CONCLAVE_DATA=... python benchmarks/students_mnist.py propagation --planned 58.5,152,641 --questions coverage \
        --seeds 0-4

Delta 1e-5, uniform weights. Confident-GNMax at the paper's noise, T = 200, sigma1 = 150, sigma2 = 40, or with --planned
Thresholded GNMax under exact_composition, at the noise that this command chooses:

    conclave-simulate plan --optimise --parties 250 --classes 10 --queries 9000 --budgets 1.97 --weights uniform \
        --accuracy 0.7 --concentration 7.7 --accountant exact_composition --min-accuracy 0.9

Each seed draws 1,000 of MNIST's test images to test with, and the order of the others; questions are asked about those
of them that have votes (the first 9,000 of the file). Students learn the rest unlabelled, and are those of the last
epoch: nothing is chosen by test accuracy. Lines are means over seeds of images, noise, questions and
student, with the half-width of the 95 % interval. --rows FILE.csv keeps the row of each seed and student.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from coordinator.queries import ORDERS_HELP
from coordinator.queries.questions import in_order
from coordinator.students import student_kind
from protocols.labelling.stored_votes import VoteCounts, load_votes
from simulations.setup.experiment import experiment, experiment_budgets, make_study, parse_seeds
from simulations.stages.label import label_seed, mean_and_interval

VOTED = 9000  # images of the test set, from its first on
TEST = 1000
_OF_THE_PAPER = {"mechanism": "confident_gnmax", "threshold": 200.0, "sigma_threshold": 150.0, "sigma": 40.0}
_PLANNED = {"mechanism": "thresholded_gnmax", "accountant": "exact_composition"}


@dataclass(frozen=True, eq=False)
class Votes:
    """The published votes on the first of MNIST's test images, and all test images with their classes."""

    counts: VoteCounts
    parties: int
    images: Float32[ndarray, "images 28 28"]
    classes: Int64[ndarray, " images"]


def main() -> None:
    """A line for the labels, and one for each kind of student."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--questions", default="given", help=ORDERS_HELP)
    parser.add_argument("--planned", metavar="SIGMA,THRESHOLD,QUERIES", help="of plan's command [the paper's noise]")
    parser.add_argument("--epsilon", default="1.97")
    parser.add_argument("--seeds", default="0", help="3, 0-4 or 0,2,5-7 [0]")
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="where rows are appended [nowhere]")
    asked = parser.parse_args()
    if "CONCLAVE_DATA" not in os.environ:
        print("not measured: CONCLAVE_DATA is not set")
        return
    votes = _read(Path(os.environ["CONCLAVE_DATA"]))
    rows = []
    for seed in parse_seeds(asked.seeds):
        rows.append(_one(asked, votes, seed))
        print(f"  seed {seed}: " + ", ".join(f"{each:.4f}" for each in rows[-1]), flush=True)
        _keep(asked, seed, rows[-1])
    names = ("labels", "right", *(name for kind in asked.kinds for name in (kind, "CPU seconds")))
    for name, values in zip(names, np.array(rows).T, strict=True):
        mean, half = mean_and_interval(values)
        print(f"{name:20} {mean:.4f}" + ("" if half is None else f" +- {half:.4f}"), flush=True)


def _keep(asked: argparse.Namespace, seed: int, row: list[float]) -> None:
    """Appends a line for each student: noise, questions, seed, labels, right, student, accuracy, cpu_seconds."""
    if asked.rows is None:
        return
    labels, right, *figures = row
    with asked.rows.open("a", encoding="utf-8", newline="") as file:
        for kind, accuracy, seconds in zip(asked.kinds, figures[::2], figures[1::2], strict=True):
            setting = (asked.planned or "paper", asked.questions, seed, int(labels), f"{right:.6f}")
            csv.writer(file, lineterminator="\n").writerow((*setting, kind, f"{accuracy:.4f}", f"{seconds:.1f}"))


def _read(data: Path) -> Votes:
    stored, parties = load_votes(
        data / "pate_votes/pate2018/mnist_250_teachers.npy", kind=None, classes=None, parties=250
    )
    with np.load(data / "mnist/mnist.npz") as archive:
        images, classes = archive["x_test"].astype(np.float32) / 255, archive["y_test"].astype(np.int64)
    assert isinstance(stored, VoteCounts)  # as published
    assert stored.queries == VOTED
    return Votes(stored, parties, images, classes)


def _one(asked: argparse.Namespace, votes: Votes, seed: int) -> list[float]:
    """Labels, the share of them that is right, and of each student accuracy and CPU seconds."""
    drawn = np.random.default_rng([seed, *b"test images"]).permutation(len(votes.images))
    test, rest = drawn[:TEST], drawn[TEST:]
    voted = rest[rest < VOTED]
    order = voted[in_order(votes.images[voted], asked.questions, seed=seed)]
    noise: dict[str, object] = dict(_OF_THE_PAPER)
    if asked.planned:
        sigma, threshold, queries = map(float, asked.planned.split(","))
        noise, order = {**_PLANNED, "sigma": sigma, "threshold": threshold}, order[: int(queries)]
    settings = experiment(parties=votes.parties, budgets=asked.epsilon, weights="uniform", **noise)
    study = make_study(settings, experiment_budgets(settings), classes=10, queries=len(order))
    counts = VoteCounts(votes.counts.classes, votes.counts.counts[order])
    labelled = label_seed(study, counts, seed=seed, dropout=0.0, truth=votes.classes[order])
    positions, targets = labelled.training_set(10)
    row = [float(len(positions)), float(labelled.label_accuracy or 0.0)]
    labels = order[positions]
    unlabelled = np.setdiff1d(rest, labels)
    for kind in asked.kinds:
        start = time.process_time()
        student = student_kind(kind, device="cpu").fit(
            votes.images[labels], targets, unlabelled=votes.images[unlabelled], classes=10, seed=seed
        )
        seconds = time.process_time() - start
        row += [float((student.predict(votes.images[test]) == votes.classes[test]).mean()), seconds]
    return row


if __name__ == "__main__":
    main()
