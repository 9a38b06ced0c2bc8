"""Which figures of a run are not for release, and how they are marked wherever else they stand."""

from __future__ import annotations

from typing import Final

# Computed from votes, teachers or records, not from released labels: no budget pays for it.
NOT_FOR_RELEASE: Final = (
    "teacher_accuracy_mean",
    "plurality_accuracy",
    "baselines.non_private_student_accuracy",
    "baselines.single_party_accuracy_mean",
    "baselines.single_party_accuracy_best",
    "baselines.single_parties_that_gain",
    "baselines.calibration_error",
    "baselines.brier",
    "baselines.cost_by_group",
    "baselines.pays_most",
    "baselines.minimum_budget_uniform.answered",
    "baselines.minimum_budget_uniform.label_accuracy",
    "baselines.minimum_budget_uniform.student_accuracy",
)
# Put before such a figure outside the private folder.
MARK: Final = "not for release: "


def not_for_release(name: str) -> bool:
    """Whether a figure of summary.json, by its dotted name, is one of these or part of one."""
    return any(f"{name}.".startswith(f"{each}.") for each in NOT_FOR_RELEASE)
