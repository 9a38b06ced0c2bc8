"""How often teachers of few records are right about a public pool, by what they learn from.

Teachers of so many records, drawn from the private part, of two kinds: logistic regression, and label spreading, which
learns from the pool, too. Their mean accuracy over the pool; nothing is private here, and no noise is added.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from coordinator.queries.features import features_for
from party.teachers import teacher_kind
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest

_KINDS = ("logistic_regression", "label_spreading")


def main() -> None:
    """Prints a line for each number of records and each feature map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--sizes", help="private,public,test records [the data set's own]")
    parser.add_argument("--features", nargs="+", default=["raw", "hog+standard", "hog+pca:64"])
    parser.add_argument("--records", type=int, nargs="+", default=[20, 60])
    parser.add_argument("--teachers", type=int, default=8)
    asked = parser.parse_args()
    names = ("private_size", "public_size", "test_size")
    sizes = dict(zip(names, map(int, asked.sizes.split(",")), strict=True)) if asked.sizes else {}
    data = datasets.load(asked.dataset, DatasetRequest(seed=0, data_dir=asked.data_dir, **sizes))
    print(f"{asked.dataset}, {asked.teachers} teachers of each kind", *_KINDS, sep="; ")
    for named in asked.features:
        features = features_for(data.public_inputs, named, columns=data.columns, seed=0)
        records, pool = features(data.private_inputs), features(data.public_inputs)
        for count in asked.records:
            rng = np.random.default_rng(1)
            drawn = [rng.permutation(len(records))[:count] for _ in range(asked.teachers)]
            right = []
            for name in _KINDS:
                kind = teacher_kind(name, device="cpu").with_pool(pool)
                shards = [(records[rows], data.private_labels[rows]) for rows in drawn]
                teachers = kind.fit(shards, classes=data.classes, seeds=[0] * len(shards))
                right.append(np.mean([(each.predict(pool) == data.public_labels).mean() for each in teachers]))
            print(f"{named}, {count} records each", *(f"{each:.3f}" for each in right), sep="; ", flush=True)


if __name__ == "__main__":
    main()
