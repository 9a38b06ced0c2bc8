"""UCI Heart Disease: 920 patients of four real hospitals (Janosi, Steinbrunn, Pfisterer and Detrano 1989, CC BY 4.0).

heart_disease.csv.gz holds the lines of the four published files, each after its hospital's name; heart_disease.json
says what they must hold and how each column becomes features; heart_disease.LICENCE.txt whose they are.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final  # the values of a JSON object

from protocols import reading
from protocols.errors import DataUnavailable
from protocols.study.terms import Feature
from runtime.checked_files import check_content, line_digests, read_lines

FOLDER: Final = "heart_disease"
_SHIPPED = Path(__file__).with_name("heart_disease.csv.gz")


@cache
def about() -> dict[str, Any]:
    """What heart_disease.json says: source, checksums, classes, header, columns."""
    found = reading.read_json(Path(__file__).with_name("heart_disease.json"))
    assert isinstance(found, dict)  # a file of this project
    return found


def features() -> tuple[Feature, ...]:
    """How each column becomes features."""
    return tuple(Feature(**{**each, "categories": tuple(each.get("categories", ()))}) for each in about()["columns"])


def hospital_lines(root: Path | None) -> dict[str, list[str]]:
    """The published lines of each hospital, in the order of its file: of the copy in root/heart_disease if there is
    one, else of the one that comes with the package.

    Raises DataUnavailable if a hospital's file is missing from the copy, DataCorrupt if the content is not the
    published one.
    """
    names: dict[str, str] = about()["checksums"]
    found = {name: None if root is None else _file_in(root / FOLDER, name) for name in names}
    if not any(found.values()):
        read = [line.split(",", 1) for line in read_lines(_SHIPPED)[1:]]
        lines = {name: [line for hospital, line in read if hospital == name] for name in names}
    else:
        lines = {}
        for name, path in found.items():
            if path is None:
                raise DataUnavailable(
                    f"{root} has a copy of {FOLDER} without {_plain(name)}; allowed: all of "
                    f"{', '.join(map(_plain, names))}, or none of them, where the copy of the package is used"
                )
            lines[name] = read_lines(path)
    for name, checksum in names.items():
        check_content(found[name] or _SHIPPED, line_digests(lines[name]), checksum, ordered=False)
    return lines


def cleaned(lines: list[str]) -> list[list[str]]:
    """The values of each line: codes as whole numbers, as files write 1 and 1.0; "?" where nothing was measured, which
    a cholesterol of 0 means, too.
    """
    cholesterol = about()["header"].index("chol")
    rows = [[value.removesuffix(".0") for value in line.split(",")] for line in lines]
    for row in rows:
        if row[cholesterol] == "0":
            row[cholesterol] = "?"
    return rows


def _plain(name: str) -> str:
    return f"processed.{name}.data"


def _file_in(folder: Path, name: str) -> Path | None:
    return next((path for end in ("", ".gz") if (path := folder / (_plain(name) + end)).is_file()), None)
