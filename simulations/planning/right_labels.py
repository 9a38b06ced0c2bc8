"""A warning, before any budget is spent, of labels that will mostly be wrong: from settings and public sizes alone.

The bound is that of protocols/study/right_labels.py, for the largest share of votes that can be expected to agree.
"""

from __future__ import annotations

from dataclasses import replace

from protocols.mechanisms import check_view
from protocols.study.released_noise import little_released
from protocols.study.right_labels import LEAST_RIGHT, most_right, needed_agreement
from protocols.study.study import Study
from simulations.planning.agreement import agreement_of
from simulations.planning.nearest import afforded, changed, least_factor, scaled_budgets, wider
from simulations.progress import Reporter
from simulations.results.text import command
from simulations.setup.experiment import Experiment
from simulations.stages.inputs import Inputs

# By how much noise is made smaller in search of a remedy, and how near the most is found: a part in fifty.
_LEAST_FACTOR, _NEAR = 0.02, 1.02


def warnings_of(study: Study, given: Experiment, inputs: Inputs, reporter: Reporter) -> list[str]:
    """The warnings that public terms give of a study, each printed: that it releases little, or wrong labels."""
    found = [each for each in (little_released(study), mostly_wrong(study, given, inputs)) if each]
    for each in found:
        reporter.warn(each)
    return found


def mostly_wrong(study: Study, given: Experiment, inputs: Inputs) -> str | None:
    """A warning where at most LEAST_RIGHT of the released labels can be the plurality, with a remedy; else None.

    given: the settings as somebody chose them, of which the remedy's command is made.
    """
    if study.records is not None:
        return None
    agreement = agreement_of(inputs.settings, inputs)
    right = most_right(study, agreement)
    if right >= LEAST_RIGHT:
        return None
    needed = needed_agreement(study)
    expected = f"at most {agreement:.0%} of the votes can be expected to agree"
    if agreement == 1.0:
        expected = "even where all votes agree"
    lines = [
        f"many labels will be wrong: {expected}, and with {study.mechanism.noise_words} at most {right:.0%} of the "
        "released labels are then what most votes name"
        + ("" if needed is None else f"; for {LEAST_RIGHT:.0%}, {needed:.0%} must agree"),
    ]
    return "\n".join([*lines, _remedy(study, given, inputs, agreement)])


def _remedy(study: Study, given: Experiment, inputs: Inputs, agreement: float) -> str:
    """The most noise with which enough labels can be right, and what that affords, or costs."""
    if given.individualization == "upsampling":
        return "less noise and larger budgets help"

    def enough(factor: float) -> bool:
        return most_right(_with_noise(study, inputs.settings, factor), agreement) >= LEAST_RIGHT

    low, high = _LEAST_FACTOR, 1.0
    if not enough(low):
        return "no noise helps, as the votes themselves are nearly even: let records vote (--votes-by record)"
    while high / low > _NEAR:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if enough(middle) else (low, middle)
    settings = wider(inputs.settings, study.mechanism, low)
    values = {name: settings.parameters[name] for name in settings.parameters if name != "round_one"}
    words = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())
    labels = afforded(settings, inputs)
    budgets = None
    if not labels:
        budgets = _budgets_for(settings, inputs)
        if budgets is None:
            return f"{words} would be enough, which no budgets afford that were tried; let records vote"
        settings = changed(settings, budgets=budgets)
        labels = afforded(settings, inputs)
    remedy = changed(given, **values) if budgets is None else changed(given, **values, budgets=budgets)
    said = "these budgets" if budgets is None else f"budgets {budgets}"
    return f"remedy: {words}, with which {said} afford at most {labels} labels\n  run it   {command(remedy)}"


def _with_noise(study: Study, settings: Experiment, factor: float) -> Study:
    """The same study with other noise and threshold, of which its budgets are not asked."""
    values = {**study.mechanism.values, **wider(settings, study.mechanism, factor).parameters}
    return replace(study, mechanism=type(study.mechanism).build(view=check_view(study.view), given=values))


def _budgets_for(settings: Experiment, inputs: Inputs) -> str | None:
    """The least multiple of the budgets with which a label is afforded; None where they are in a file, or none is."""

    def affords(factor: float) -> bool:
        text = scaled_budgets(settings.budgets, factor)
        return text is not None and afforded(changed(settings, budgets=text), inputs) > 0

    factor = least_factor(affords)
    return None if factor is None else scaled_budgets(settings.budgets, factor)
