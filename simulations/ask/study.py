"""The study of `ask`: level two_server, label view, integer noise from both servers; and what its budgets cover.

The querying party takes the coordinator's place, with the guardian. The terms are the same for every querying party, so
one study, and one cap per party, covers what all of them ask together.
"""

from __future__ import annotations

import hashlib

import numpy as np

from protocols.budgets.accountant import accountant
from protocols.budgets.individualization import weights
from protocols.budgets.planned import Planned
from protocols.crypto.randomness import simulation_rng
from protocols.mechanisms import MECHANISMS
from protocols.noise import LatticeNoise, lattice_noise
from protocols.study.levels import TwoServer, guarded
from protocols.study.stop import check_stop
from protocols.study.study import Seat, Study, votes_per_unit
from simulations.ask.mechanisms import SHARES
from simulations.ask.settings import AskSettings
from simulations.setup.budgets import Budgets
from simulations.setup.experiment import experiment_budgets
from simulations.setup.levels import seat_keys


def ask_study(settings: AskSettings, *, classes: int) -> tuple[Budgets, Study]:
    """Every party's budget and the study that all querying parties ask under.

    Raises InvalidInput, before anything is trained or shared, for settings that do not go together, that would overflow
    the ring, or a budget that affords nothing.
    """
    budgets = experiment_budgets(settings.common)
    parties, units = settings.parties, settings.units
    kind = MECHANISMS[settings.mechanism]
    taken = kind.parameters(view="label")
    given = {name: getattr(settings, name) for name in SHARES}
    noise: dict[str, int | float | None] = {
        name: SHARES[name] * parties if name in taken and value is None else value for name, value in given.items()
    }
    confidentiality = TwoServer(
        units=units,
        abstention=False,
        guardian="guardian",
        sealing_key=_stand_in("sealing"),
        signing_key=_stand_in("signing"),
        seat_keys=seat_keys(parties),
    )
    charging = accountant("label_only")
    mechanism = kind.build(view="label", given=noise)
    planned = Planned(
        accountant=charging,
        mechanism=mechanism,
        epsilon=budgets.epsilon,
        delta=budgets.delta,
        sensitivity_per_weight=votes_per_unit(settings.unit, teachers=1),
        sigma=mechanism.label_sigma,
        view="label",
        classes=classes,
        # Weights only: integer noise needs no delta set aside for float64, so none is reserved here.
        query_limit=0,
        answer_rate=settings.answer_rate,
    )
    weight = weights(settings.weights, planned, units=units)
    if (threshold := mechanism.needed(second_round=False)) is not None:
        # On the lattice, as the circuit tests it.
        noise["threshold"] = float(np.floor(threshold * units) / units)
    queries = settings.queriers * settings.unlabelled
    rows = zip(budgets.names, budgets.epsilon.tolist(), budgets.delta.tolist(), weight.tolist(), strict=True)
    study = Study(
        name=f"ask-{settings.dataset}-{parties}",
        classes=classes,
        mechanism=kind.build(view="label", given=noise),
        unit=settings.unit,
        view="label",
        accountant_name=charging.name,
        teachers=1,
        query_limit=queries,
        batch_limit=settings.turn,
        answer_rate=settings.answer_rate,
        stop=check_stop(settings.stop),
        quorum=settings.quorum,
        participation_name="all",
        confidentiality=confidentiality,
        roster=tuple(Seat(party=p, epsilon=e, delta=d, weight=w, rate=1.0) for p, e, d, w in rows),
    )
    return budgets, study


def noise_of_both(study: Study, *, seed: int) -> LatticeNoise:
    """The sum of the noise of querying party and guardian, each the study's full noise; it is seeded and protects
    nobody.
    """
    units = guarded(study.confidentiality).units
    one, other = (lattice_noise(simulation_rng(seed, f"noise {who}").bytes, units=units) for who in ("one", "other"))
    return LatticeNoise(units, lambda count, sigma: one.draw(count, sigma) + other.draw(count, sigma))


def _stand_in(purpose: str) -> str:
    """A stand-in for a key of the guardian, which a simulation does not have."""
    return hashlib.sha256(f"simulated guardian, {purpose}".encode()).hexdigest()
