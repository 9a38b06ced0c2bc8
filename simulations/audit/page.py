"""report.html of an audit: one self-contained page, the verdict first."""

from __future__ import annotations

from matplotlib.figure import Figure

from protocols.plural import at_most
from runtime.page import document, facts, lines, table, verdict
from simulations.audit.audit import AuditResult
from simulations.audit.record_votes.audit import RecordAuditResult
from simulations.audit.tables import audit_sentences, audit_tables
from simulations.plots.style import Drawing, inline_svg

_SHOWS = (
    "An audit refutes: a lower bound above the claim, or another law than is stated, is a fault of the code or of the "
    "proof. That nothing was found proves no guarantee; the claims rest on theorems."
)


def audit_page(audit: AuditResult | RecordAuditResult, figure: Figure) -> str:
    """The page as HTML. figure: what audit_figure gives for this audit."""
    settings, tables = audit.settings, audit_tables(audit)
    lines_in_all = sum(len(each.rows) for each in tables)
    failed = sum(row[-1] == "FAILED" for each in tables for row in each.rows)
    if audit.failed:
        says = f"FAILED: {audit.failure}, in {failed} of {lines_in_all} lines."
    else:
        says = "Nothing was refuted: no lower bound passes its claim, and everything released has the stated law."
    points = [
        ("What was compared:", f"{audit.subject} on neighbouring votes, {settings.trials:,} trials on each side."),
        ("What that shows:", _SHOWS),
    ]
    if settings.broken is not None:
        points.insert(0, ("Broken on purpose:", f"{settings.broken}. An audit that works fails here."))
    caption = "Lower bound (line), exact epsilon of the worst pair (tick) and claim (diamond)."
    drawing = Drawing("audit", caption, f"{caption} {lines_in_all} lines; the tables below say the same.", figure)
    shown = [f"<figure>{inline_svg(drawing)}<figcaption>{caption}</figcaption></figure>"] if audit.findings else []
    seed = "the operating system's" if settings.noise == "system" else str(settings.seed)
    known = [
        ("trials on each side", f"{settings.trials:,}"),
        ("delta", at_most(settings.delta)),
        ("confidence of all lines together", f"{settings.confidence:g}"),
        ("noise", settings.noise),
        ("seed", seed),
    ]
    body = [
        verdict(says, points, tone="warn" if audit.failed else "good"),
        *shown,
        "<h2>Line by line</h2>",
        *(table(each.title, each.columns, each.rows, words=(0,)) for each in tables),
        "<h2>On what it rests</h2>",
        lines(audit_sentences(audit)),
        facts(known),
    ]
    return document(title=f"Audit: {audit.subject}", kind="audit of mechanisms", body="\n".join(body))
