"""A membership report in words: rows of a table, and what was found in one sentence."""

from __future__ import annotations

from typing import Final

from simulations.membership.report import AttackResult, MembershipReport
from simulations.membership.statistics import LEVEL, Estimate
from simulations.results.text import count, power_of_ten

ATTACKS: Final = {
    "loss": "loss threshold",
    "modified_entropy_by_class": "modified entropy, threshold by class",
}
MODELS: Final = {
    "released": "released student",
    "no_private_data": "control: student of public data only",
    "non_private": "control: private data without privacy",
}
Row = tuple[str, str, str]


def finding(report: MembershipReport) -> str:
    """What the attacks show, in a sentence or two that claim no more than the intervals do.

    Something is found where an area is above 1/2, or an advantage above 0, by its whole interval; with two attacks that
    happens by chance in up to one run of ten.
    """
    if not _finds(report.released):
        words = "The attacks do not tell members from non-members; that is no proof that no attack can."
        if report.non_private and not _finds(report.non_private):
            words += " They find none in the model without privacy either: they are too weak here to show anything."
        return words
    words = "The attacks tell private records from test records"
    if not report.beyond_shift:
        return f"{words}; no control was measured to show whether that is leakage or due to how the parts were chosen."
    if any(beyond.area.low > 0 or beyond.advantage.low > 0 for beyond in report.beyond_shift):
        return f"{words}, and more than on a student that has seen no private data."
    return (
        f"{words}, but not detectably more than on a student that has seen no private data: this shows no "
        "leakage, only "
        "that the parts differ."
    )


def _finds(results: tuple[AttackResult, ...]) -> bool:
    return any(result.area.low > 0.5 or result.advantage.low > 0 for result in results)


def rows(report: MembershipReport) -> list[Row]:
    """The figures and their ceilings: name, value, and its 95 % interval or reference value."""
    lines: list[Row] = []
    for name, called in MODELS.items():
        for result in getattr(report, name):
            lines += _attack_rows(f"{called}; {ATTACKS[result.attack]}", result)
    for beyond in report.beyond_shift:
        words = f"released student minus student of public data only; {ATTACKS[beyond.attack]}"
        lines.append((f"{words}: AUC", *_signed(beyond.area)))
        lines.append((f"{words}: advantage", *_signed(beyond.advantage)))
    lines.append(("released student; loss threshold: AUC with membership permuted", *_figures(report.permuted)))
    for group in report.groups:
        low, high = f"{group.epsilon_low:.3g}", f"{group.epsilon_high:.3g}"
        words = f"ε = {low}" if low == high else f"ε from {low} to {high}"
        value, interval = _figures(group.area)
        lines.append((f"AUC, {count(group.members)} members of {words} (at most {group.ceiling:.3f})", value, interval))
    for words, ceiling in (
        ("every unit", report.least_protected),
        ("the unit with the lowest ceiling", report.most_protected),
    ):
        about = f"ε = {ceiling.epsilon:.3g}, δ = {power_of_ten(ceiling.delta)}"
        lines.append((f"ceiling for {words}: AUC", f"{ceiling.area:.3f}", about))
        lines.append((f"ceiling for {words}: advantage", f"{ceiling.advantage:.3f}", about))
        for rate, at_most in zip(report.released[0].rates, ceiling.rates, strict=True):
            lines.append((f"ceiling for {words}: TPR at FPR {_percent(rate.wanted)}", _percent(at_most), about))
    return lines


def _attack_rows(words: str, result: AttackResult) -> list[Row]:
    lines = [
        (f"{words}: AUC", *_figures(result.area)),
        (f"{words}: advantage", *_signed(result.advantage)),
    ]
    for rate in result.rates:
        found, false = rate.true_positive_rate, rate.false_positive_rate
        name = f"{words}: TPR at FPR {_percent(rate.wanted)}"
        if false.value == 0:
            # Too few non-members for one false positive: only this upper bound of the threshold's rate is known.
            name += f" (no false positive among {count(result.non_members)}; FPR up to {_percent(false.high)})"
        lines.append((name, _percent(found.value), f"{_percent(found.low)} to {_percent(found.high)}"))
    return lines


def _figures(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.3f}", f"{estimate.low:.3f} to {estimate.high:.3f}, {100 * LEVEL:.0f}\N{NO-BREAK SPACE}%"


def _signed(estimate: Estimate) -> tuple[str, str]:
    interval = f"{estimate.low:+.3f} to {estimate.high:+.3f}, {100 * LEVEL:.0f}\N{NO-BREAK SPACE}%"
    return f"{estimate.value:+.3f}", interval


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"
