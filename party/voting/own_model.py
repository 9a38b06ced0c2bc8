"""What a hospital's own model reaches alone: cross-validated, or on records that were kept back. Nothing leaves."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from party.data.names import places
from party.data.records import Records
from party.data.shards import deal, key_of
from party.teachers.teacher import TeacherKind
from protocols.errors import InvalidInput

FOLDS: Final = 5


def predicted_unseen(records: Records, kind: TeacherKind, *, seed: int, classes: int) -> Int64[ndarray, " used"]:
    """The class that a model predicts for each used record, trained on the other parts of a division in FOLDS parts.

    kind: of the model; seed: from which parts and training derive.
    All records of a patient are in one part; with fewer patients than FOLDS there are as many parts as patients.
    Raises InvalidInput for a kind that is not trained here, and for fewer than two patients.
    """
    used = records.usable
    units = records.units[used]
    inputs, labels = records.inputs[used], records.labels[used]
    held = len(np.unique(units))
    if held < 2:
        raise InvalidInput(f"{held} patient; allowed: two or more, to score a model on those that it did not see")
    order = places(units.tolist(), len(units))
    parts = deal(order, order, teachers=min(FOLDS, held), key=key_of(seed, "folds"))
    predicted = np.empty(len(labels), np.int64)
    for part in range(int(parts.max()) + 1):
        seen, own = parts != part, int.from_bytes(key_of(seed, "score", str(part))[:7], "big")
        (model,) = kind.fit([(inputs[seen], labels[seen])], classes=classes, seeds=[own])
        predicted[~seen] = model.predict(inputs[~seen])
    return predicted


def predicted_kept_back(
    records: Records, kept: Records, kind: TeacherKind, *, seed: int, classes: int
) -> Int64[ndarray, " used"]:
    """The class that a model of all used records predicts for each used record that was kept back.

    Raises InvalidInput for a kind that is not trained here.
    """
    used, own = records.usable, int.from_bytes(key_of(seed, "score", "all")[:7], "big")
    (model,) = kind.fit([(records.inputs[used], records.labels[used])], classes=classes, seeds=[own])
    return model.predict(kept.inputs[kept.usable])
