"""The quality of a hospital's records as one HTML page for its own people: rows, figures, and words to map."""

from __future__ import annotations

from party.data.quality import Problem, Quality
from party.voting.suitability import Suitability
from protocols.plural import counted
from runtime.page import cards, document, facts, lines, table, text, verdict


def quality_page(place: str, study: str, quality: Quality | None, fit: Suitability | None) -> str:
    """The page. place: the source, as settings show it; quality: None where the source is no table; fit: None where the
    records cannot be read yet."""
    ready = fit is not None and fit.can_train
    says = fit.verdict if fit is not None else "NOT READY: the records cannot be read by the study's terms yet."
    points = [("What to do.", f"conclave-party approve {study}" if ready else f"conclave-party data map {study}")]
    if quality is not None and quality.problems:
        points.insert(0, (f"{len(quality.problems)} to settle.", "Each is below, with the rows that it is in."))
    body = [verdict(says, points, tone="good" if ready else "warn")]
    if fit is not None:
        body += [cards(_figures(fit)), "<section><h2>Records</h2>", lines(fit.lines()), "</section>"]
    if quality is not None:
        if quality.problems:
            rows = [(_named(each), each.found, _rows(each), each.todo) for each in quality.problems]
            head = ("Column", "What is wrong", "Rows", "How to settle it")
            body += ["<section><h2>Problems</h2>", table("Problems", head, rows, words=(1, 3)), "</section>"]
        if quality.proposals:
            proposed = [
                (each.what, each.column, each.own, each.study or "nothing", each.rows) for each in quality.proposals
            ]
            head_of = ("What", "Column", "Yours", "The study's", "Rows")
            body += ["<section><h2>Proposed</h2>", table("Proposals", head_of, proposed, words=(1, 2, 3)), "</section>"]
        if quality.columns:
            found = [(each.column, each.own, each.missing, each.unusable, each.encoded) for each in quality.columns]
            columns = ("Column", "Yours", "Missing", "Unusable", "As numbers")
            caption = f"Columns of {counted(quality.rows, 'record')}"
            body += ["<section><h2>Columns</h2>", table(caption, columns, found, words=(1, 4)), "</section>"]
    body += ["<section><h2>Where from</h2>", facts([("Source", place), ("Study", study)]), "</section>"]
    footer = f"<p>{text('For this hospital alone. Rows are counted from 1, without the header.')}</p>"
    return document(title="Quality of the records", kind="data check", body="\n".join(body), footer=footer)


def _figures(fit: Suitability) -> list[tuple[str, str | None, str]]:
    left = f"{fit.left_out} are left out" if fit.left_out else "all are used"
    fewest = min((min(each.sizes) for each in fit.seats), default=0)
    under = "a teacher" if fit.unit is None else f"{fit.unit}s that vote"
    patients = None if fit.patients is None else str(fit.patients)
    return [
        ("Records", str(fit.records), left),
        ("Patients", patients, f"{fit.several} with several records"),
        ("Fewest records" if fit.unit is None else "Votes", str(fewest), under),
    ]


def _named(problem: Problem) -> str:
    return problem.column if problem.own in ("", problem.column) else f"{problem.column} ({problem.own})".strip()


def _rows(problem: Problem) -> str:
    if not problem.count:
        return ""
    named = ", ".join(map(str, problem.rows)) + ", ..." * (problem.count > len(problem.rows))
    return f"{problem.count}: {named}"
