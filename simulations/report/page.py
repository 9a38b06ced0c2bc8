"""report.html: one self-contained page that shows a colleague what was run, with which results and budgets.

It opens with the verdict: what being together brought, on the same test records, and what it cost. All numbers come
from the result and its summary. The page loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path
from typing import Any  # rows of a template

import numpy as np
from markupsafe import Markup

from coordinator.students import SCORES
from party.teachers.scores import wilson
from protocols.claims.coverage import SIMULATED, caveats
from protocols.claims.strength import Figure
from protocols.claims.who_sees import not_protected_from
from protocols.labelling.schedule import STOP_MEANINGS
from protocols.plural import at_most, counted
from protocols.study.protection import protection_of
from protocols.study.study import Study
from protocols.study.votes import TeacherVotes, UnitSums
from protocols.sums.judged import judged_rows as figure_rows
from runtime.board import Accuracy, known, notice, worth
from runtime.files import write_atomically
from runtime.page import Tone, document, text, verdict
from runtime.templates import templates
from simulations.pipeline import RunResult
from simulations.plots.style import Drawing, inline_svg
from simulations.report.private_section import attack_drawing, private_section
from simulations.results.files import Summary, environment
from simulations.results.text import (
    command,
    count,
    deltas_words,
    interval,
    judged_of,
    judged_words,
    not_measured,
    parties_words,
    pays_most_words,
    percentage,
    share_text,
    terms,
)
from simulations.setup.experiment import write_config
from simulations.stages.students import measured_parties

# By how much a student of record votes is far behind pooled data; how many clusters are then named, and the fewest
# records of the pool in each.
_FAR, _CLUSTERS, _EACH = 0.03, 50, 6
_JUDGED = "Records that did not vote judged it, which cost no further privacy."
# Below this share of what it gets right of all records, a student leaves a group behind.
_HALF = 0.5


def run_verdict(result: RunResult, figures: Summary) -> str:
    """The verdict as HTML."""
    points = [("Doubtful:", doubt.removeprefix("Doubtful: ")) for doubt, _ in doubts(figures)]
    return verdict(compared(result, figures), points, tone=_tone(figures))


def board(result: RunResult, figures: Summary) -> str:
    """What a board reads below the verdict, as HTML: was it worth it, what did it cost, who pays, one notice."""
    parts, measured = [], figures["baselines"]
    alone, together, pooled = (measured["single_party_accuracy_mean"], figures["student_accuracy"],
                               measured["non_private_student_accuracy"])  # fmt: skip
    if together is not None:
        parts += ["<h2>Was it worth it?</h2>", worth(*_rows(result, figures))]
        if alone is not None:
            parts.append(f"<p>{text(_worth(figures, together - alone))} {text(gains(figures))}.</p>")
    if figures["evaluation"] is not None:
        said = f"{_JUDGED} The student is right {judged_words(figures)}."
        parts += ["<h2>What do the hospitals' judges find?</h2>", f"<p>{text(said)}</p>"]
    least = _worst(result.study)
    seen = "labels" if figures["view"] == "label" else "noisy counts"
    against = f"Against whoever sees the {seen}, not against {not_protected_from(protection_of(result.study))}"
    whose = f"one {figures['unit']} of the least protected party"
    parts += ["<h2>What did it cost in privacy?</h2>", known(least, whose=whose, against=against)]
    if (most := measured["pays_most"]) is not None:
        pays = pays_most_words(most, seeds=len(figures["seeds"]))
        parts += ["<h2>Who pays?</h2>", f"<p>{text(pays[:1].upper() + pays[1:])}.</p>"]
    private = [
        name
        for name, value in (("parties alone", alone), ("pooled data", pooled), ("who pays", measured["pays_most"]))
        if value is not None
    ]
    held = f" What is said of {' and '.join(private)} is computed from private records." if private else ""
    parts.append(notice("Simulation; not for release as it stands.", f"{SIMULATED}{held}"))
    return "\n".join(parts)


def _rows(result: RunResult, figures: Summary) -> tuple[list[Accuracy], str]:
    """The rows of the picture, and what their bars are."""
    measured, own, together = figures["baselines"], result.baselines.alone, figures["student_accuracy"]
    rows, said = [], "How often each is right about the same test records."
    if own is not None:
        rows.append(Accuracy("a party alone", "alone", float(own.mean()), float(own.min()), float(own.max())))
        said += f" Alone: from the worst to the best of {parties_words(len(own))}."
    half, tests = figures["student_accuracy_ci95"], _tests(figures)
    if half is not None:
        ends = (max(0.0, together - half), min(1.0, together + half))
        said += f" Together: the 95 % interval over {len(figures['seeds'])} seeds of the noise."
    else:
        ends = wilson(together, figures["independent_test_records"]) if tests else (together, together)
        said += f" Together: the 95 % interval over the choice of {count(tests)} test records." if tests else ""
        said += " One seed of the noise: not repeated yet."
    rows.append(Accuracy("together, private", "together", together, *ends))
    if (pooled := measured["non_private_student_accuracy"]) is not None:
        rows.append(Accuracy("pooled, no privacy", "pooled", pooled))
    return rows, said


def compared(result: RunResult, figures: Summary) -> str:
    """In one sentence: a model that one party makes alone, the student, and one of all data pooled; or the model of who
    asks, before and after. Where none was measured, why."""
    if (asker := figures["asker"]) is not None:
        before, after = percentage(asker["before"]), percentage(asker["after"])
        return f"Who asks alone {before}, with the labels {after}, on test records."
    alone, together, pooled = (figures["baselines"]["single_party_accuracy_mean"], figures["student_accuracy"],
                               figures["baselines"]["non_private_student_accuracy"])  # fmt: skip
    gets, right = [], "of the same test records right"
    if together is not None:
        gets.append(f"Together, {parties_words(figures['parties'])} get {percentage(together)} {right}.")
    if alone is not None:
        gets.append(f"One alone gets {percentage(alone)}{'' if gets else f' {right}'}.")
    if pooled is not None:
        gets.append(f"All records pooled, without privacy, get {percentage(pooled)}{'' if gets else f' {right}'}.")
    if together is None:
        gets.append(f"Together not measured: {not_measured(result, 'student')}.")
    return " ".join(gets)


def doubts(figures: Summary) -> list[tuple[str, bool]]:
    """Sentences of the verdict on what makes its figures doubtful, poor labels and a student better than the ceiling,
    and whether each may be released."""
    found = [(f"Doubtful: {warning}.", True) for warning in figures["warnings"]]
    found += [(f"Doubtful: {said}.", True) for said in (*_no_better(figures), *_left_behind(figures))]
    cost = figures["baselines"]["cost"]
    if cost is not None and cost["cost_high"] < 0:
        said = (
            f"Doubtful: the student is {-100 * cost['cost']:.1f} points better than the best model of pooled data that "
            f"was tried, more than the choice of test records explains (95 %: {-100 * cost['cost_high']:.1f} to "
            f"{-100 * cost['cost_low']:.1f}): it is no ceiling here."
        )
        found.append((said, False))
    return found


def _no_better(figures: Summary) -> list[str]:
    """That the student may be no better than the most frequent class: by its 95 % interval over the test records."""
    together, majority = figures["student_accuracy"], figures["baselines"]["majority_class_accuracy"]
    tests = _tests(figures)
    if together is None or majority is None or not tests:
        return []
    if wilson(together, figures["independent_test_records"])[0] > majority:
        return []
    return [
        f"always naming the most frequent class gets {percentage(majority)} of the same {count(tests)} test records "
        f"right, the student {percentage(together)}"
    ]


def _tests(figures: Summary) -> int:
    """How many test records the student was measured on; 0 where it is not told."""
    return sum(row["records"] for row in figures["by_group"] or () if row["attribute"] == "class")


def _left_behind(figures: Summary) -> list[str]:
    """A group of test records, a class among them, on which the student is right less than _HALF as often as on all, by
    the whole of its interval: the worst, and how many there are."""
    together = figures["student_accuracy"]
    groups = [row for row in figures["by_group"] or () if row["accuracy_high"] < _HALF * together]
    if not groups:
        return []
    worst = min(groups, key=lambda row: row["accuracy"])
    more = f", and {counted(len(groups) - 1, 'more group')} as bad" if len(groups) > 1 else ""
    return [
        f"of {counted(worst['records'], 'test record')} of {worst['attribute']} {worst['group']} the student gets "
        f"{percentage(worst['accuracy'])} right (95 %: {percentage(worst['accuracy_low'])} to "
        f"{percentage(worst['accuracy_high'])}){more}"
    ]


def advised(figures: Summary, *, of_columns: bool) -> str | None:
    """What to try where teachers voted and the student is worse than a model that one party makes alone, and where
    records voted in cells of columns and the student is more than _FAR below one of all data pooled.

    of_columns: whether records voted in cells of single columns. Not for release: it follows from private figures.
    """
    alone, together = figures["baselines"]["single_party_accuracy_mean"], figures["student_accuracy"]
    if together is None:
        return None
    if (records := figures["record_votes"]) is not None:
        pooled, half = figures["baselines"]["non_private_student_accuracy"], figures["student_accuracy_ci95"] or 0.0
        if not of_columns or pooled is None or pooled - together <= max(_FAR, half):
            return None
        clusters = max(2, min(_CLUSTERS, records["pool_records_labelled"] // _EACH))
        return (
            f"Pooled is {100 * (pooled - together):.1f} points better. Cells of single columns do not tell apart what "
            f"several say together: try `--record-queries columns+clusters:{clusters}`, or `clusters:{clusters}` with "
            "`--partitions 4`."
        )
    if alone is None or together >= alone:
        return None
    return (
        "Together is worse than alone. `conclave-simulate plan --votes-by record`, with the same data set, parties and "
        "budgets, says whether records should vote instead of teachers."
    )


def gains(figures: Summary) -> str:
    """How many parties gain, of those that were measured."""
    measured = figures["baselines"]["single_parties_measured"]
    of = "" if measured == figures["parties"] else f" that were measured, of {count(figures['parties'])},"
    return f"{count(figures['baselines']['single_parties_that_gain'])} of {parties_words(measured)}{of} gain"


def _worst(study: Study) -> Figure:
    """The guarantee of the least protected party, with ideal noise."""
    budgets, at = study.budgets, int(study.budgets.epsilon_guaranteed.argmax())
    mu = float(budgets.spend(budgets.cap)[at]) ** 0.5 if isnan(budgets.order[at]) else None
    return Figure(float(budgets.epsilon_guaranteed[at]), study.roster[at].delta, mu)


def _worth(figures: Summary, gained: float) -> str:
    """Whether the student is better than a party alone, as far as the seeds tell."""
    half = figures["student_accuracy_ci95"]
    points = f"{100 * abs(gained):.1f} points {'better' if gained > 0 else 'worse'} than the mean party alone"
    if half is None:
        return f"{points}, with one seed: run several (--seeds) to know how much of it is chance."
    if abs(gained) <= half:
        return f"{points}, within the interval of the noise: it may be chance."
    return f"{points}, more than the noise of other seeds explains."


def _tone(figures: Summary) -> Tone:
    alone, together = figures["baselines"]["single_party_accuracy_mean"], figures["student_accuracy"]
    if alone is None or together is None:
        return "plain"
    if doubts(figures):
        return "warn"
    majority = figures["baselines"]["majority_class_accuracy"] or 0.0
    return "good" if together > max(alone, majority) else "warn"


# Rows shown on the page; the rest is in parties.csv and summary.json.
MOST_PARTIES = 300
MOST_GROUPS = 300
_GROUPS_OPEN = 16
# Rows of an attribute by which the student is told apart.
_MOST_OF_ATTRIBUTE = 20

_Row = dict[str, Any]


def write_report(result: RunResult, figures: Summary, drawn: Sequence[Drawing], out: Path) -> Path:
    """Writes out/report.html and returns its path. figures: the result of `summary`; drawn: that of `drawings`.

    Raises StorageFailed; the file is whole or absent.
    """
    path = out / "report.html"
    write_atomically(path, render_report(result, figures, drawn))
    return path


def render_report(result: RunResult, figures: Summary, drawn: Sequence[Drawing]) -> str:
    """The page as HTML."""
    pages = templates("simulations.report", autoescape=True, count=count, percent=percentage, at_most=at_most)
    groups = figures["groups"]
    private = private_section(result)
    body = pages.get_template("report.html.j2").render(
        verdict=Markup(run_verdict(result, figures)),
        board=Markup(board(result, figures)),
        lead=_lead(result, figures),
        cards=_cards(result, figures),
        terms=terms(result),
        figures=figures,
        stop=STOP_MEANINGS[figures["stop"]],
        drawings=[{"svg": Markup(inline_svg(drawing)), "caption": drawing.caption} for drawing in drawn],
        comparisons=_comparisons(result, figures),
        by_group=shown_groups(figures),
        calibration=figures["calibration"],
        judged=(found := figures["evaluation"]) and figure_rows(found, figures["class_names"], judged_of(figures)[1]),
        judges=_JUDGED,
        groups=groups[:MOST_GROUPS],
        groups_open=len(groups) <= _GROUPS_OPEN,
        groups_total=len(groups),
        spread=_spread(groups),
        parties=_parties(result),
        parties_total=figures["parties"],
        seeds=figures["seeds"],
        reserve=_reserve(result),
        private=private,
        private_drawing=_inline(attack_drawing(result)),
        simulated=SIMULATED,
        caveats=caveats(protection_of(result.study)),
        unit=figures["unit"],
        view=figures["view"],
        votes=figures["record_votes"],
        weights_max=float(result.study.weights.max()),
        stored=result.source.dataset is None,
        student_asked=result.settings.student != "none",
        simulated_truth=result.source.truth is not None,
        command=command(result.settings),
        config=write_config(result.settings, result.study),
        environment=environment(),
    )
    footer = pages.get_template("report_footer.html.j2").render(figures=figures, private=private)
    return document(title=_title(result), kind="report of a simulated study", body=body, footer=footer,
                    study=result.study.digest.hex())  # fmt: skip


def _inline(drawing: Drawing | None) -> _Row | None:
    return None if drawing is None else {"svg": Markup(inline_svg(drawing)), "caption": drawing.caption}


def _title(result: RunResult) -> str:
    settings = result.settings
    data = settings.dataset if settings.votes is None else Path(settings.votes).name
    return f"{parties_words(len(result.study.roster))}, {data}"


def _lead(result: RunResult, figures: Summary) -> str:
    means = "" if len(result.seeds) == 1 else f" Figures are means over {len(result.seeds)} seeds."
    return _LEADS[type(result.study.votes)](result, figures, parties_words(figures["parties"])) + means


def _lead_of_records(result: RunResult, figures: Summary, parties: str) -> str:
    nearest = "voted with its own label in the public queries that it is nearest to"
    how = "gave its own label to its public features" if figures["record_votes"]["graded"] else nearest
    who = f"of {parties}" if figures["evaluation"] is None else f"of {parties} that does not judge the model"
    times = "twice" if figures["record_votes"]["second_sums"] else "once"
    return (
        f"Every private record {who} {how}, {times} in the whole study. A coordinator added up the votes with "
        f"noise. What came out labels the public records, {_LEARNS.get(str(result.settings.student), _LEARNS[''])}."
    )


# What becomes of the labels, by the kind of student.
_LEARNS = {
    "": "and a student learns from these labels",
    SCORES: "and as scores that any record can be given it is the student",
    "none": "and no student was asked for",
}


def _lead_of_teachers(result: RunResult, figures: Summary, parties: str) -> str:
    did = "voted" if result.source.dataset is None else "trained teachers on their own records, which voted"
    return (
        f"{parties} {did} on public queries. A coordinator added up the votes with noise and released labels. "
        f"The study ended as {STOP_MEANINGS[figures['stop']]}."
    )


_LEADS = {TeacherVotes: _lead_of_teachers, UnitSums: _lead_of_records}


def _cards(result: RunResult, figures: Summary) -> list[_Row]:
    """The headline figures: a name, the figure, and a note."""
    seeds = len(result.seeds)
    protects = {"record": "record", "patient": "patient's records", "party": "party's data"}[figures["unit"]]
    least = min(group["epsilon_guaranteed"] for group in figures["groups"])
    most = figures["epsilon_guaranteed_max"]
    epsilon = " to ".join(dict.fromkeys((at_most(least), at_most(most))))
    votes = figures["record_votes"]
    if votes is not None:
        kind = f"{'features' if votes['graded'] else 'queries'}, each with a sum for every class"
        first = _card("Noisy sums released", count(figures["answered"]),
                      f"{kind}; noise of {votes['noise_in_votes']:.3g} votes")  # fmt: skip
    else:
        how_sure = interval(figures["answered_ci95"], seeds=seeds, points=False)
        first = _card("Labels released", count(figures["answered"]), f"of {count(figures['asked'])} asked; {how_sure}")
    right = "Labels that are right" if votes is None else "Pool labels that are right"
    published = f"the parties' caps, at δ = {deltas_words(result)}, for one {protects}"
    return [
        first,
        _accuracy_card(right, "label", result, figures),
        _accuracy_card("Student, on test data", "student", result, figures),
        _card("ε that may be published", epsilon, published),
    ]


def _card(name: str, value: str | None, under: str) -> _Row:
    return {"name": name, "value": value, "under": under}


def _accuracy_card(name: str, figure: str, result: RunResult, figures: Summary) -> _Row:
    value = figures[f"{figure}_accuracy"]
    if value is None:
        return _card(name, None, not_measured(result, figure))
    under = interval(figures[f"{figure}_accuracy_ci95"], seeds=len(result.seeds), points=True)
    return _card(name, percentage(value), under)


def _comparisons(result: RunResult, figures: Summary) -> list[_Row]:
    """This run beside its baselines: labels, accuracy of labels and of a model, and what each is."""
    baselines, measured = figures["baselines"], result.settings.baselines
    uniform = baselines["minimum_budget_uniform"]

    def cell(value: float | None, reason: str, words: Callable[[float], str] = percentage) -> str:
        return f"not measured: {not_measured(result, reason)}" if value is None else words(value)

    return [
        _compared(
            "This run", cell(figures["student_accuracy"], "student"), "yes", labels=count(figures["answered"]),
            label_accuracy=cell(figures["label_accuracy"], "label"),
        ),
        _compared(
            "Minimum budget for all", cell(uniform["student_accuracy"], "student" if measured else "uniform"),
            "yes, as a separate study; not for release beside this one",
            labels=cell(uniform["answered"], "uniform", count),
            label_accuracy=cell(uniform["label_accuracy"], "label" if measured else "uniform"),
        ),
        *_asker(figures),
        *_alone(figures, cell),
        _compared(
            "One model on all data pooled", cell(baselines["non_private_student_accuracy"], "non_private"),
            "without privacy, not for release",
        ),
    ]  # fmt: skip


def _compared(name: str, model: str, private: str, *, labels: str = "–", label_accuracy: str = "–") -> _Row:
    return {"name": name, "labels": labels, "label_accuracy": label_accuracy, "model": model, "private": private}


def _asker(figures: Summary) -> list[_Row]:
    """The model of a hospital that asks, before and after."""
    if (asker := figures["asker"]) is None:
        return []
    name, private = f"Who asks, {asker['model']} of {count(asker['own_records'])} own records", "of its own records"
    private = f"{private}, not for release"
    return [
        _compared(name, percentage(asker["before"]), private),
        _compared(f"{name} and the labels", percentage(asker["after"]), private, labels=count(figures["answered"])),
    ]


def _alone(figures: Summary, cell: Callable[[float | None, str], str]) -> list[_Row]:
    """What one party has alone; and, where teachers vote, their plurality."""
    baselines = figures["baselines"]
    measured, parties = baselines["single_parties_measured"], figures["parties"]
    of = "" if measured in (None, parties) else f", {count(measured)} of {count(parties)}"
    rows = [
        _compared(
            f"One party alone, {words}{of}", cell(baselines[f"single_party_accuracy_{key}"], "alone"),
            "shares nothing; not for release",
        )
        for words, key in (("mean", "mean"), ("the best, known only afterwards", "best"))
    ]  # fmt: skip
    if (majority := baselines["majority_class_accuracy"]) is not None:
        name = "Always the most frequent class of the test data"
        rows.append(_compared(name, percentage(majority), "uses no records of a party"))
    if figures["record_votes"] is not None:
        return rows
    name, right = "Plurality of all votes, without noise", cell(figures["plurality_accuracy"], "plurality")
    return [*rows, _compared(name, "–", "without privacy, not for release", label_accuracy=right)]


def _spread(groups: list[Summary]) -> list[_Row]:
    """Minimum, median and maximum over many budget groups, instead of a table that is too long to read."""
    names = {
        "budget": "budget ε",
        "epsilon_guaranteed": "ε that may be published",
        "weight": "weight of a vote",
        "share_of_budget_used": "share of the cap used",
        "epsilon_spent": "operator's reading of ε spent (not a guarantee)",
    }
    rows = []
    for key, words in names.items():
        values = np.repeat([group[key] for group in groups], [group["size"] for group in groups])
        form = percentage if key == "share_of_budget_used" else at_most
        quartiles = [form(float(np.quantile(values, at))) for at in (0.0, 0.25, 0.5, 0.75, 1.0)]
        rows.append({"name": words, "values": quartiles})
    return rows


def _parties(result: RunResult) -> list[_Row]:
    """The first parties of the roster, with their ledgers after the first seed."""
    study, filters = result.study, result.study.budgets
    spent = result.seeds[0].labelling.spent
    guaranteed, reading, share = filters.epsilon_guaranteed, filters.epsilon_of(spent), filters.share(spent)
    sizes = result.source.party_sizes
    accuracy = result.teacher_accuracy if not study.votes.pooled else None
    own = result.baselines.alone
    alone = {} if own is None else dict(zip(measured_parties(len(study.roster)).tolist(), own.tolist(), strict=True))
    return [
        {
            "name": study.roster[i].party,
            "records": None if sizes is None else int(sizes[i]),
            "budget": float(result.budgets.epsilon[i]),
            "delta": float(result.budgets.delta[i]),
            "guaranteed": float(guaranteed[i]),
            "weight": float(study.weights[i]),
            "share": float(share[i]),
            "reading": float(reading[i]),
            "accuracy": None if accuracy is None else float(accuracy[i].mean()),
            "alone": alone.get(i),
        }
        for i in range(min(len(study.roster), MOST_PARTIES))
    ]


def _reserve(result: RunResult) -> _Row | None:
    """The largest share of a delta that was set aside for float64 noise; None if nothing was."""
    reserve = result.budgets.delta - result.study.budgets.delta
    worst = int((reserve / result.budgets.delta).argmax())
    if reserve[worst] <= 0:
        return None
    return {"amount": at_most(reserve[worst]), "delta": at_most(result.budgets.delta[worst])}


def shown_groups(figures: Summary) -> _Row | None:
    """A table for each attribute, each with its groups, of many those that pay most; None without a student."""
    own, costs = figures["by_group"], figures["baselines"]["cost_by_group"]
    if own is None:
        return None
    rows = [{**each, **(costs[at] if costs else {})} for at, each in enumerate(own)]
    tables = []
    for attribute in dict.fromkeys(row["attribute"] for row in rows):
        of = [row for row in rows if row["attribute"] == attribute]
        if len(of) > _MOST_OF_ATTRIBUTE:
            of.sort(key=lambda row: -row["cost"] if costs else row["accuracy"])
        shown, left = [_cells(row) for row in of[:_MOST_OF_ATTRIBUTE]], len(of[_MOST_OF_ATTRIBUTE:])
        tables.append({"attribute": attribute, "rows": shown, "left": left})
    return {"tables": tables, "priced": costs is not None}


def _cells(row: _Row) -> _Row:
    def share(name: str) -> str:
        return share_text(row[name], row["records"])

    cells = {
        "group": row["group"],
        "records": row["records"],
        "accuracy": share("accuracy"),
        "interval": f"{percentage(row['accuracy_low'])} to {percentage(row['accuracy_high'])}",
        "confidence": share("confidence"),
        "brier": f"{row['brier']:.3f}",
    }
    if "cost" in row:
        low, high = 100 * row["cost_low"], 100 * row["cost_high"]
        cells |= {"pooled": share("pooled_accuracy"), "cost": f"{100 * row['cost']:+.1f} ({low:+.1f} to {high:+.1f})"}
    return cells
