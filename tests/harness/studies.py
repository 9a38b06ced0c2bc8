"""Small studies that tests share."""

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.budgets.accountant import accountant
from protocols.budgets.individualization import weights
from protocols.budgets.planned import Planned
from protocols.crypto.identity import encoded_point
from protocols.mechanisms import MECHANISMS, ONE_VOTE, ConfidentGNMax, make_mechanism
from protocols.study.deployed import DeployedStudy, deployed
from protocols.study.levels import Clear, Confidentiality
from protocols.study.queries import pool_digest
from protocols.study.study import Seat, Study
from protocols.study.terms import Terms
from protocols.study.units import votes_per_unit
from protocols.study.votes import TeacherVotes
from protocols.votes import LATTICE

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
# Of a study, where no test waits for it: only a test that hangs meets it.
DEADLINE_S = 600.0


CLEAR = Clear()


def make_study(
    epsilon: list[float],
    *,
    delta: float = 1e-5,
    rule: str = "uniform",
    mechanism: str | None = None,
    sigma: float | None = 40.0,
    sigma_threshold: float | None = 150.0,
    threshold: float | None = 200.0,
    unit: str = "record",
    view: str = "label",
    account: str = "label_only",
    classes: int = 10,
    teachers: int = 1,
    queries: int = 1000,
    batch_limit: int | None = None,
    stop: str = "first-exhausted",
    questions: str = "given",
    quorum: int = 1,
    participation: str = "all",
    rates: list[float] | None = None,
    confidentiality: Confidentiality = CLEAR,
    keys: Sequence[ec.EllipticCurvePrivateKey] = (),
    **more: float | None,
) -> Study:
    """A study of one party per epsilon; everything that a product function has no default for is said here.

    keys: of the seats, where the level names some; mechanism: None for Confident-GNMax, or Thresholded GNMax where
    there is a guardian; sigma_threshold: of mechanisms that have one.
    """
    if keys:
        confidentiality = replace(confidentiality, seat_keys=seat_keys(keys))
    if confidentiality.signs:
        confidentiality = replace(confidentiality, seat_keys=confidentiality.seat_keys[: len(epsilon)])
    budgets = np.array(epsilon, dtype=float)
    mechanism = mechanism or ("confident_gnmax" if confidentiality.takes(ConfidentGNMax) else "thresholded_gnmax")
    noise = {"sigma": sigma, "sigma_threshold": sigma_threshold, "threshold": threshold, **more}
    if "sigma_threshold" not in MECHANISMS[mechanism].parameters():
        del noise["sigma_threshold"]
    made = make_mechanism(mechanism, **noise, view=view)
    planned = Planned(
        accountant=accountant(account),
        mechanism=made,
        epsilon=budgets,
        delta=np.full(len(budgets), delta),
        sensitivity_per_weight=votes_per_unit(unit, teachers=teachers),
        delta_squared=ONE_VOTE,
        sigma=made.label_sigma,
        view=view,
        classes=classes,
        query_limit=queries,
        answer_rate=1.0,
    )
    weight = weights(rule, planned, units=confidentiality.units or LATTICE)
    return Study(
        name="test",
        classes=classes,
        votes=TeacherVotes(
            mechanism=made,
            view=view,
            teachers=teachers,
            query_limit=queries,
            batch_limit=batch_limit or queries,
            answer_rate=1.0,
            stop=stop,
            questions=questions,
            participation_name=participation,
        ),
        unit=unit,
        accountant_name=account,
        quorum=quorum,
        confidentiality=confidentiality,
        roster=tuple(
            Seat(party=f"p{i}", epsilon=e, delta=delta, weight=float(w), rate=r)
            for i, (e, w, r) in enumerate(zip(epsilon, weight, rates or [1.0] * len(epsilon), strict=True))
        ),
    )


def changed(study: Study, **terms) -> Study:
    """The study with these terms changed, of its own or of its votes, by their names."""
    own = {name: terms.pop(name) for name in list(terms) if name in study.__dataclass_fields__}
    return replace(study, votes=replace(study.votes, **terms), **own)


def seat_keys(keys: Sequence[ec.EllipticCurvePrivateKey]) -> tuple[str, ...]:
    """What a study names for the seats that sign with these keys."""
    return tuple(encoded_point(key.public_key()) for key in keys)


def make_votes(
    parties: int, queries: int, *, classes: int = 10, accuracy: float = 0.8, teachers: int = 1, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Votes i16[parties, teachers, queries] that are right with probability `accuracy`, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, queries)
    shape = (parties, teachers, queries)
    wrong = (truth + rng.integers(1, classes, shape)) % classes
    return np.where(rng.random(shape) < accuracy, truth, wrong).astype(np.int16), truth


def deployed_study(
    parties: int = 3,
    *,
    epsilon: float = 12.0,
    name: str = "test",
    features: int = 4,
    pool: int = 60,
    deadline_s: float = DEADLINE_S,
    **more,
) -> DeployedStudy:
    """A study with terms; its pool is `pool_of` it."""
    defaults = {
        "sigma": 6.0,
        "sigma_threshold": 12.0,
        "threshold": -2.0,
        "classes": 2,
        "queries": pool,
        "batch_limit": 20,
    }
    base = make_study([epsilon] * parties, **(defaults | more))
    terms = Terms(
        task="tell left from right",
        class_names=("left", "right", "neither")[: base.classes],
        label="side",
        input_shape=(features,),
        pool_size=pool,
        pool_sha256=pool_digest(pool_of(pool, features)),
        deadline_s=deadline_s,
        coordinator="centre",
        ends="2999-12-31",
    )
    roster = tuple(replace(seat, party=f"hospital-{number}") for number, seat in enumerate(base.roster))
    return deployed(replace(base, name=name, roster=roster), terms)


def pool_of(pool: int, features: int) -> np.ndarray:
    """Public queries."""
    return np.random.default_rng(7).standard_normal((pool, features)).astype(np.float32)


def voter(name: str, teachers: int = 1) -> Callable:
    """Teachers that look at the first feature, and err as their name has it."""
    salt = hashlib.sha256(name.encode()).digest()[0] / 2560

    def vote(batch):
        return np.tile((batch.inputs[:, 0] > salt).astype(np.int64), (teachers, 1))

    return vote


def one_stream(noise):
    """The noise of a level where it does not matter who voted: all batches draw from one stream, in order."""
    return lambda voting: noise
