"""The file of `plan --curve`: what the whole cap of each budget guarantees, as a curve."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from protocols.budgets.accountant import accountant
from protocols.budgets.privacy_curve import privacy_curve
from protocols.errors import InvalidInput
from protocols.study.study import ADJACENCY, Study
from runtime.files import write_atomically
from simulations.setup.experiment import VOTERS, Experiment


def check_curve(settings: Experiment, *, optimise: bool) -> None:
    """Raises InvalidInput where a plan has no curve of a study's labels."""
    if optimise or not VOTERS[settings.votes_by].curve:
        raise InvalidInput(
            "--curve is given; allowed: without --optimise and --votes-by record, for one study's labels"
        )


def write_curves(study: Study, path: Path) -> None:
    """Writes one curve per distinct budget and weight: what its whole cap guarantees. Raises StorageFailed."""
    budgets = study.budgets
    alike = np.stack([budgets.epsilon, budgets.cap.astype(np.float64), study.weights, study.rates, budgets.delta])
    _, first, sizes = np.unique(alike, axis=1, return_index=True, return_counts=True)
    distance = 0.0
    if study.view == "label" or study.lattice is not None:
        distance = study.query_limit * study.mechanism.noise_distance(
            classes=study.classes, total_weight=study.largest_weight
        )
    charged = accountant(study.accountant_name)
    content = {
        "accountant": charged.name,
        "accounting": charged.statement,
        "meaning": charged.meaning(study.mechanism),
        "unit": study.unit,
        "view": study.view,
        "adjacency": ADJACENCY,
        "mechanism": {"name": study.mechanism.name, **study.mechanism.values},
        "budgets": [
            {
                "budget": study.roster[seat].epsilon,
                "delta": study.roster[seat].delta,
                "weight": study.roster[seat].weight,
                "parties": int(parties),
                "queries": int(budgets.cap[seat]) if budgets.planned is not None else None,
                "epsilon_guaranteed": float(budgets.epsilon_guaranteed[seat]),
                "curve": privacy_curve(budgets, seat, noise_distance=distance).to_json(),
            }
            for seat, parties in zip(first.tolist(), sizes.tolist(), strict=True)
        ],
    }
    write_atomically(path, json.dumps(content) + "\n")
