"""The `notes` data set: short notes of emergency departments, written by a grammar; to which group does a patient go?

No file is needed. Six hospitals write in their own ways (headings, abbreviations, negations, spelling). A word alone
says little: a finding may be denied, or of another year.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int8, Int64
from numpy import ndarray

from protocols.features.texts import USUAL_VECTORS
from protocols.study.features import MISSING
from simulations.datasets.columns import encode, text
from simulations.datasets.dataset import Dataset
from simulations.datasets.notes_grammar import CLASSES, HOSPITALS, draw_mentions, write_note
from simulations.datasets.request import DatasetRequest

SIZES = {"private": 8_000, "public": 1_500, "test": 1_000}
COLUMNS = (text("note", USUAL_VECTORS),)


@dataclass(frozen=True, eq=False)
class Notes:
    """labels: indices into CLASSES; sites: into HOSPITALS; mentions: what each note says of each finding."""

    texts: list[str]
    labels: Int64[ndarray, " notes"]
    sites: Int64[ndarray, " notes"]
    mentions: Int8[ndarray, "notes findings"]


def draw_notes(count: int, *, seed: int, part: str) -> Notes:
    """Notes of the random stream of (seed, part); classes and hospitals are equally likely."""
    rng = np.random.default_rng([seed, *f"notes {part}".encode()])
    labels, sites = rng.integers(len(CLASSES), size=count), rng.integers(len(HOSPITALS), size=count)
    mentions = draw_mentions(labels, rng)
    texts = [write_note(said, HOSPITALS[site], rng) for said, site in zip(mentions, sites, strict=True)]
    return Notes(texts, labels, sites, mentions)


def load(request: DatasetRequest) -> Dataset:
    """Features f32 [N, 2048] of the notes. Each part is drawn from its own random stream, in any size."""
    asked = {"private": request.private_size, "public": request.public_size, "test": request.test_size}
    notes = {part: draw_notes(size or SIZES[part], seed=request.seed, part=part) for part, size in asked.items()}
    inputs = {
        part: encode({"note": each.texts}, COLUMNS, missing=MISSING, where=f"notes {part}")
        for part, each in notes.items()
    }
    return Dataset(
        name="notes",
        kind="table",
        class_names=CLASSES,
        private_inputs=inputs["private"],
        private_labels=notes["private"].labels,
        public_inputs=inputs["public"],
        public_labels=notes["public"].labels,
        test_inputs=inputs["test"],
        test_labels=notes["test"].labels,
        private_sites=notes["private"].sites,
        site_names=tuple(each.name for each in HOSPITALS),
        columns=COLUMNS,
        test_names={"site": np.array([each.name for each in HOSPITALS])[notes["test"].sites]},
        about=f"Notes of {len(HOSPITALS)} hospitals (sites), written by a grammar; each is a patient of its own.",
    )
