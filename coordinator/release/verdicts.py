"""The first thing on each page of a release: what it means for its reader, made from the statement alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # values of a statement

from protocols.claims import strength
from protocols.plural import counted
from runtime.page import verdict


def privacy_verdict(statement: Mapping[str, Any]) -> str:
    """Who is protected, from whom and how strongly, who is not, and what is left to decide, as HTML."""
    short = statement["in_short"]
    points = [(f"{name}:", words) for name, words in short["points"].items()]
    return verdict(short["verdict"], points, tone="warn")


def report_verdict(statement: Mapping[str, Any]) -> str:
    """What was released, and how strong the guarantee behind it is, as HTML."""
    queries, worst = statement["queries"], max(statement["seats"], key=lambda seat: seat["guarantee"]["epsilon"])
    if statement["records"] is None:
        says = f"{counted(queries['answered'], 'label')} of {queries['pool']} public records are released."
    else:
        says = f"Noisy sums of all records' votes in {queries['answered']} public questions are released."
    guarantee = worst["guarantee"]
    return verdict(
        says,
        [
            ("It ended because", f"{queries['stop_in_words']}."),
            (
                "Patients' protection:",
                f"{strength(guarantee['epsilon'], guarantee['delta'])} Who is protected from whom, and who is not, is "
                "in privacy.html.",
            ),
        ],
    )
