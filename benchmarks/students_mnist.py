"""Accuracy of students of the PATE 2018 MNIST votes at epsilon 1.97, kind by kind.

    CONCLAVE_DATA=... python benchmarks/students_mnist.py vat mean_teacher

Confident-GNMax, T = 200, sigma1 = 150, sigma2 = 40, delta 1e-5, uniform weights; one seed of noise and student. The
pool is MNIST's first 9,000 test images, the test part the last 1,000.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from coordinator.students import student_kind
from simulations.setup.experiment import experiment, experiment_budgets, make_study
from simulations.stages.label import label_seed
from simulations.stages.votes_file import read_labels, read_votes

POOL = 9000


def main() -> None:
    if "CONCLAVE_DATA" not in os.environ:
        print("not measured: CONCLAVE_DATA is not set")
        return
    data = Path(os.environ["CONCLAVE_DATA"])
    stored, parties = read_votes(
        data / "pate_votes/pate2018/mnist_250_teachers.npy", kind=None, classes=None, parties=250
    )
    settings = experiment(
        parties=parties,
        budgets="1.97",
        weights="uniform",
        threshold=200.0,
        mechanism="confident_gnmax",
        sigma_threshold=150.0,
        sigma=40.0,
    )
    study = make_study(settings, experiment_budgets(settings), classes=10, queries=stored.queries)
    truth = read_labels(f"{data / 'mnist/mnist.npz'}:y_test", queries=stored.queries, classes=10)
    labelled = label_seed(study, stored, seed=0, dropout=0.0, truth=truth)
    positions, targets = labelled.training_set(10)
    print(f"{len(positions)} labels, accuracy {labelled.label_accuracy:.4f}")
    with np.load(data / "mnist/mnist.npz") as archive:
        images, classes = archive["x_test"].astype(np.float32) / 255, archive["y_test"].astype(np.int64)
    rest = np.setdiff1d(np.arange(POOL), positions)
    for kind in sys.argv[1:]:
        start = time.process_time()
        student = student_kind(kind, device="cpu").fit(
            images[positions], targets, unlabelled=images[rest], classes=10, seed=0
        )
        seconds = time.process_time() - start
        accuracy = (student.predict(images[POOL:]) == classes[POOL:]).mean()
        print(f"{kind:20} {accuracy:.3f} in {seconds:.1f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
