"""Students of a handful of hard labels of two overlapping classes: how many are right, and how many name one class.

    python benchmarks/students_few_labels.py mlp mixmatch vat

Rows of 20 features, normal around one centre for each class, 600 in each of five seeds: 300 are the pool, 300 the test
part, of each class nearly half. Labels are right: two of each class, or one of the first and five of the second.
"""

from __future__ import annotations

import sys

import numpy as np

from coordinator.students import student_kind
from coordinator.students.student import one_hot

SEEDS = 5


def main() -> None:
    """A line for each kind of student and each set of labels."""
    for kind in sys.argv[1:]:
        for counts in ((2, 2), (1, 5)):
            right, largest = np.transpose([_one(kind, counts, seed) for seed in range(SEEDS)])
            print(f"{kind:20} {counts[0]} + {counts[1]} labels: right {right.mean():.3f} ({right.min():.2f} to "
                  f"{right.max():.2f}), name one class: {(largest >= 0.99).sum()} of {SEEDS}", flush=True)  # fmt: skip


def _one(kind: str, counts: tuple[int, int], seed: int) -> tuple[float, float]:
    """The share of the test part that one student has right, and that of the class that it names most."""
    generator = np.random.default_rng(seed)
    classes = generator.permutation(np.arange(600) % 2)
    centres = generator.standard_normal((2, 20))
    centres *= 2 / np.linalg.norm(centres, axis=1, keepdims=True)
    rows = (centres[classes] + 0.7 * generator.standard_normal((600, 20))).astype(np.float32)
    known = np.concatenate([np.flatnonzero(classes[:300] == each)[: counts[each]] for each in range(2)])
    student = student_kind(kind, device="cpu").fit(
        rows[known], one_hot(classes[known], 2), unlabelled=np.delete(rows[:300], known, axis=0), classes=2, seed=seed
    )
    predicted = student.predict(rows[300:])
    return float((predicted == classes[300:]).mean()), float(np.bincount(predicted).max() / len(predicted))


if __name__ == "__main__":
    main()
