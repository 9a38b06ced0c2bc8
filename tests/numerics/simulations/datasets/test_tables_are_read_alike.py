"""A table means the same to a hospital's node, to the coordinator's pool and to a simulation.

A thousand tables are written at random, with everything that has been read in two ways before: missing values,
categories that nobody named, infinities, logarithms of what has none, huge values, blanks, quotes and byte order marks.
All three read each of them; so does a slow reader below, which shares no code with them.
"""

import math
import random

import numpy as np
import pytest

from coordinator.labelling.study_creation import read_pool
from party.data import load_records
from party.data.files import CsvFile
from party.data.mapping import DataMapping
from party.data.records import DataSettings
from protocols.errors import DataCorrupt
from protocols.study.terms import Feature, Terms
from simulations import datasets
from simulations.datasets.dataset import DatasetRequest
from tests.harness.terms import terms_of

TABLES = 400
CLASSES = ("no", "yes, but", "NA")
_NUMBERS = (
    ["0", "1", "-1", "-2", "50", "  7 ", "1e3", "-1000", "1e300", "-1e300", "1E-320", ".5", "+3", "007", "-0.9999"]
    + ["1000000000000000000000000", "123456.789012345678", "-1.0000001"]
)  # fmt: skip
_BAD_NUMBERS = ["inf", "-Infinity", "1e999", "high", "1_000", "١", "0x10", "1,5", "--1", "1 2", "None"]
_MISSING = ["", "NA", "NaN", "nan", "?", " ", " NA "]
_CATEGORIES = ["f", "m", "?", 'say "x"', "a, b", "é"]
_UNSEEN = ["F", "x", "two\nlines", "f;m", "null", "'f'"]
FEATURES = (
    Feature(column="age", kind="numeric", centre=50.0, scale=10.0),
    Feature(column="dose, mg", kind="numeric", centre=0.5, scale=0.25, log=True, may_miss=True),
    Feature(column="tiny", kind="numeric", centre=-3.0, scale=1e-9, may_miss=True),
    Feature(column="ward", kind="categorical", categories=tuple(_CATEGORIES), may_miss=True),
    Feature(column="sex", kind="categorical", categories=("f", "m")),
)
WIDTH = 1 + 2 + 2 + len(_CATEGORIES) + 2
SCHEMA = """
label = "outcome"
classes = ["no", "yes, but", "NA"]
split = "part"
""" + "".join(
    f"[[feature]]\ncolumn = '{each.column}'\nkind = '{each.kind}'\nmay_miss = {str(each.may_miss).lower()}\n"
    + (
        f"centre = {each.centre}\nscale = {each.scale}\nlog = {str(each.log).lower()}\n"
        if each.kind == "numeric"
        else "categories = ['f', 'm', '?', 'say \"x\"', 'a, b', 'é']\n"
        if each.column == "ward"
        else "categories = ['f', 'm']\n"
    )
    for each in FEATURES
)


def terms() -> Terms:
    return terms_of(FEATURES, label="outcome", classes=CLASSES, shape=(WIDTH,))


def random_table(rng: random.Random) -> tuple[list[str], list[list[str]]]:
    """A header and rows: of the parts of a simulation, each in turn. One table in three holds a value out of place."""
    header = ["note", "part", "outcome", *(each.column for each in FEATURES)]
    rng.shuffle(header)
    parts = ["private"] * rng.randint(1, 3) + ["public"] * rng.randint(1, 3) + ["test"] * rng.randint(1, 2)
    rate = rng.choice([0, 0, 0.05])
    rows = []
    for part in parts:
        cells = {"note": rng.choice(["", "x", 'a "quoted", note', "line\nbreak"]), "part": part}
        cells["outcome"] = rng.choice(["dead", "", "?"] if rng.random() < rate else CLASSES)
        for each in FEATURES:
            numeric = each.kind == "numeric"
            good = (_NUMBERS if numeric else list(each.categories)) + _MISSING * each.may_miss
            if each.log:
                good = [text for text in good if text not in ("-1", "-2", "-1000", "-1e300", "-1.0000001")]
            odd = [*_NUMBERS, *_BAD_NUMBERS, *_MISSING] if numeric else [*_UNSEEN, *_MISSING]
            cells[each.column] = rng.choice(odd if rng.random() < rate else good)
        rows.append([cells[name] for name in header])
    return header, rows


def written(header: list[str], rows: list[list[str]], rng: random.Random) -> str:
    """CSV text: quoted where it must be and sometimes where it need not, with any end of line and a mark or none."""

    def cell(text: str) -> str:
        must = any(letter in text for letter in ',"\n\r')
        return '"' + text.replace('"', '""') + '"' if must or rng.random() < 0.2 else text

    end = rng.choice(["\n", "\r\n"])
    lines = [",".join(map(cell, row)) for row in [header, *rows]]
    if rng.random() < 0.2:
        lines.insert(rng.randint(1, len(lines)), "")
    return rng.choice(["", "\ufeff"]) + end.join(lines) + rng.choice(["", end])


def slowly(text: str) -> float | None:
    """The number that a person reads, or None."""
    plain = text.strip(" ")
    if not plain or not set(plain) <= set("0123456789+-.eE"):
        return None
    try:
        number = float(plain)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def reading(header: list[str], rows: list[list[str]]) -> tuple[list[list[float]], list[int], set[tuple[str, int]]]:
    """Inputs, labels, and where a value is out of place: value by value, as the reference says it in words."""
    inputs, labels, wrong = [], [], set()
    for number, cells in enumerate(rows, start=1):
        row: list[float] = []
        for each in FEATURES:
            text = cells[header.index(each.column)].strip(" ")
            missing = text in ("", "NA", "NaN", "nan", "?")
            if each.kind == "categorical":
                if text not in each.categories and not (missing and each.may_miss):
                    wrong.add((each.column, number))
                row += [1.0 if text == category else 0.0 for category in each.categories]
                continue
            value = slowly(text)
            if missing and each.may_miss:
                row += [0.0, 1.0]
                continue
            if value is None or missing or (each.log and value <= -1):
                wrong.add((each.column, number))
                value = 0.0
            assert each.centre is not None
            assert each.scale is not None
            scaled = ((math.log1p(value) if each.log else value) - each.centre) / each.scale
            row += [min(10.0, max(-10.0, scaled)), *([0.0] if each.may_miss else [])]
        inputs.append(row)
        label = cells[header.index("outcome")]
        labels.append(CLASSES.index(label) if label in CLASSES else -1)
        if label not in CLASSES:
            wrong.add(("outcome", number))
    return inputs, labels, wrong


@pytest.mark.parametrize("seed", range(2))
def test_a_node_a_pool_and_a_simulation_read_every_table_as_a_slow_reader_does(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "clinic.csv"
    (tmp_path / "clinic.schema.toml").write_text(SCHEMA, encoding="utf-8")
    # Pools and simulations clip a number that is far from the centre; a node does so if its mapping file says so.
    clipped = DataMapping(unusable={each.column: "clip" for each in FEATURES if each.kind == "numeric"})
    settings = DataSettings(name="clinic", loader="csv", source=CsvFile(path), mapping=clipped)
    refused = 0
    for _ in range(TABLES // 2):
        header, rows = random_table(rng)
        path.write_bytes(written(header, rows, rng).encode())
        inputs, labels, wrong = reading(header, rows)
        entries = {
            "node": lambda: load_records(settings, terms()),
            "pool": lambda: read_pool(path, features=FEATURES),
            "simulation": lambda: datasets.load(str(path), DatasetRequest(seed=0)),
        }
        found = {}
        for entry, read in entries.items():
            asked = wrong if entry != "pool" else {(column, row) for column, row in wrong if column != "outcome"}
            if not asked:
                found[entry] = read()
                continue
            with pytest.raises(DataCorrupt) as error:
                read()
            refused += 1
            assert any(f"column {column!r}, row {row}: " in str(error.value) for column, row in asked), error.value
        if "pool" in found:
            np.testing.assert_allclose(found["pool"], np.array(inputs), rtol=1e-6, atol=1e-6)
        if not wrong:
            node, dataset = found["node"], found["simulation"]
            parts = [dataset.private_inputs, dataset.public_inputs, dataset.test_inputs]
            np.testing.assert_array_equal(node.inputs, np.concatenate(parts))
            np.testing.assert_array_equal(node.inputs, found["pool"])
            np.testing.assert_array_equal(node.labels, labels)
            np.testing.assert_array_equal(
                labels, np.concatenate([dataset.private_labels, dataset.public_labels, dataset.test_labels])
            )
    assert refused > 50
