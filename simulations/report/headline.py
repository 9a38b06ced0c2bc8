"""The verdict of a run's report: what being together brought, on the same test records, and what it cost."""

from __future__ import annotations

from math import isnan

from protocols.claims.strength import Figure, strength
from protocols.plural import at_most
from protocols.study.study import ADJACENCY, Study
from runtime.page import Tone, verdict
from simulations.pipeline import RunResult
from simulations.results.files import Summary
from simulations.results.text import not_measured, pays_most_words, percent

# By how much a student of record votes is far behind pooled data; how many clusters are then named, and the fewest
# records of the pool in each.
_FAR, _CLUSTERS, _EACH = 0.03, 50, 6


def run_verdict(result: RunResult, figures: Summary) -> str:
    """The verdict as HTML."""
    said = [compared(result, figures), *(doubt for doubt, _ in doubts(figures))]
    return verdict(" ".join(said), _points(result, figures), tone=_tone(figures))


def compared(result: RunResult, figures: Summary) -> str:
    """In one sentence: a model that one party makes alone, the student, and one of all data pooled; or the model of who
    asks, before and after. Where none was measured, why."""
    if (asker := figures["asker"]) is not None:
        return f"Who asks alone {percent(asker['before'])}, with the labels {percent(asker['after'])}, on test records."
    alone, together, pooled = (figures["baselines"]["single_party_accuracy_mean"], figures["student_accuracy"],
                               figures["baselines"]["non_private_student_accuracy"])  # fmt: skip
    said = [
        f"{name} {percent(value)}"
        for name, value in (
            ("one party alone", alone),
            ("together", together),
            ("pooled without privacy", pooled),
        )
        if value is not None
    ]
    if together is None:
        said.append(f"together not measured: {not_measured(result, 'student')}")
    words = ", ".join(said)
    same = ", on the same test records" if len(said) > 1 and together is not None else ""
    return f"{words[0].upper()}{words[1:]}{same}."


def doubts(figures: Summary) -> list[tuple[str, bool]]:
    """Sentences of the verdict on what makes its figures doubtful, poor labels and a student better than the ceiling,
    and whether each may be released."""
    found = [(f"Doubtful: {warning}.", True) for warning in figures["warnings"]]
    cost = figures["baselines"]["cost"]
    if cost is not None and cost["cost_high"] < 0:
        said = (
            f"Doubtful: the student is {-100 * cost['cost']:.1f} points better than the best model of pooled data that "
            f"was tried, more than the choice of test records explains (95 %: {-100 * cost['cost_high']:.1f} to "
            f"{-100 * cost['cost_low']:.1f}): it is no ceiling here."
        )
        found.append((said, False))
    return found


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


def _points(result: RunResult, figures: Summary) -> list[tuple[str, str]]:
    alone, together = figures["baselines"]["single_party_accuracy_mean"], figures["student_accuracy"]
    points: list[tuple[str, str]] = []
    if alone is not None and together is not None:
        measured = figures["baselines"]
        gain = f"{measured['single_parties_that_gain']} of {measured['single_parties_measured']} parties gain."
        points.append(("Was it worth it?", f"{_worth(figures, together - alone)} {gain}"))
        if (majority := measured["majority_class_accuracy"]) is not None and together <= majority:
            points.append(
                (
                    "Is it any use?",
                    f"No: always naming the most frequent class is right for {percent(majority)} of the same records.",
                )
            )
    if (most := figures["baselines"]["pays_most"]) is not None:
        points.append(("Who pays most for privacy?", f"{pays_most_words(most, seeds=len(figures['seeds']))}."))
    worst = _worst(result.study)
    points.append(
        (
            f"What it cost: ε of at most {at_most(worst.epsilon)}.",
            f"{strength(worst)} For one {figures['unit']} of the least protected party, {ADJACENCY}, "
            f"against whoever sees the {'labels' if figures['view'] == 'label' else 'noisy counts'}.",
        )
    )
    if alone is not None or figures["baselines"]["non_private_student_accuracy"] is not None:
        points.append(
            (
                "Not for release:",
                "the accuracies alone and pooled, and who pays most. They are computed from private records, and no "
                "budget pays for them.",
            )
        )
    return points


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
