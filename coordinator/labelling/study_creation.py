"""Creating a study: the checks before anybody is asked to approve it, and the commented template of its file."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32
from numpy import ndarray

from coordinator.home import CoordinatorSettings
from coordinator.labelling.pool import check_pool, read_pool, write_pool
from coordinator.store.store import Store
from protocols.crypto.identity import certificate_from_pem, check_name, encoded_point
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.private_files import private_folder
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import hidden
from protocols.study.terms import Terms
from runtime.files import folder_beside, put_in_place, write_atomically


def create_study(
    store: Store, settings: CoordinatorSettings, *, file: Path, pool_file: Path | None, today: datetime.date
) -> DeployedStudy:
    """Checks a study and its pool and stores both; stores nothing if anything is wrong.

    today: in UTC. Raises InvalidInput with what is wrong, BudgetExceeded if a budget cannot pay for one query.
    """
    study = read_deployed(file, keys=lambda party: _signing_key(store, party))
    check_name(study.name)
    terms = study.terms
    if terms.coordinator != settings.coordinator:
        raise InvalidInput(
            f"terms.coordinator is {terms.coordinator!r}; allowed: {settings.coordinator!r}, this coordinator"
        )
    if terms.ended(today):
        raise InvalidInput(f"terms.ends is {terms.ends}, which is over; allowed: today, {today}, or later")
    _check_budgets(study)
    pool = _pool(study, terms, pool_file)
    if study.name in store.studies():
        raise InvalidInput(f"study {study.name!r} exists; allowed: another name")
    folder = store.home.study(study.name)
    private_folder(folder.parent)
    with folder_beside(folder) as part:
        write_atomically(part / "study.toml", write_study(study))
        if pool is not None:
            write_pool(part / "pool.npy", pool)
        with store.together():
            store.add_study(study)
            if (folder / "ledger.sqlite").exists():
                raise InvalidInput(f"{folder} holds a ledger that the store does not know; allowed: another name")
            # It may have been left by a creation that was interrupted before the store recorded it.
            put_in_place(part, folder, replace=True)
    return study


def _pool(study: DeployedStudy, terms: Terms, pool_file: Path | None) -> Float32[ndarray, "queries ..."] | None:
    """The public queries; None if a querier asks about its own, which nobody else sees."""
    level = study.confidentiality
    if (pool_file is None) != level.hides_queries:
        raise InvalidInput(
            "a pool is missing; allowed: --pool FILE"
            if pool_file is None
            else f"--pool {pool_file} is given, but {hidden(level).querier!r} asks about records of its own; "
            "allowed: no pool"
        )
    if pool_file is None:
        return None
    pool = read_pool(pool_file, features=terms.features)
    check_pool(pool, study)
    return pool


def _signing_key(store: Store, party: str) -> str | None:
    """The public key of a party's certificate, which the roster names at level secure_sum; None if it has none."""
    denied = store.members.denied()
    keys = [
        encoded_point(key)
        for issued in store.members.certificates()
        if issued.name == party
        and issued.role == "party"
        and issued.serial not in denied
        and isinstance(key := certificate_from_pem(issued.pem).public_key(), ec.EllipticCurvePublicKey)
    ]
    return keys[-1] if keys else None


def _check_budgets(study: DeployedStudy) -> None:
    """Raises BudgetExceeded, naming the seat, unless every budget can pay for one query."""
    nothing_spent = np.zeros(len(study.roster), dtype=np.int64)
    poor = study.budgets.affordable(nothing_spent, limit=1) < 1
    if poor.any():
        seat = study.roster[int(poor.argmax())]
        raise BudgetExceeded(
            f"the budget of {seat.party!r}, epsilon {seat.epsilon:g} at delta {seat.delta:g}, cannot pay for a query; "
            "allowed: a larger epsilon, more noise, or a smaller weight"
        )


TEMPLATE = """\
# A study between organisations. Every hospital reads and approves this file; its digest is in every message.
# `conclave-simulate plan --optimise` helps to choose noise and threshold for the budgets of the hospitals.
name = "heart"                       # A-Z a-z 0-9 . _ -
classes = 2

# Whose privacy: one record, or all of a party's data. What is seen: only labels, or the noisy histogram too.
unit = "record"
view = "label"
accountant_name = "label_only"       # it must be valid for the view; see conclave-simulate accountants

teachers = 10                        # of each party; each has one vote and its own part of the records
query_limit = 300                    # queries in all, at least terms.pool_size
batch_limit = 100                    # queries in one message
answer_rate = 1.0                    # public estimate, used to choose orders
stop = "first-exhausted"             # or drop-exhausted: parties without budget stop voting, the others go on
quorum = 3                           # parties that must answer each batch
participation_name = "all"           # everybody in every query

# How a label is released: confident_gnmax, gnmax, interactive_gnmax or lnmax, each with its own parameters.
[mechanism]
name = "confident_gnmax"
sigma = 8.0                          # noise of the label, a standard deviation in votes
sigma_threshold = 12.0               # noise of the threshold, votes
threshold = 26.0                     # votes that the noisy plurality must reach; other queries stay unanswered

# Who sees a vote. clear: the coordinator, which adds the noise; secure_sum and two_server hide votes from it.
[confidentiality]
level = "clear"

[terms]
task = "Tell patients with heart disease from patients without."
class_names = ["no", "yes"]          # class 0 first
label = "disease"                    # the column that holds them
input_shape = [4]                    # of one query: the features below, side by side
pool_size = 300                      # number of public queries; `study pool-digest FILE` prints these three lines
pool_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
deadline_s = 60.0                    # seconds that a party has for a batch
coordinator = "centre"               # the name in the coordinator's certificate
ends = "2099-12-31"                  # the last day (UTC) on which a node answers

# How columns become features; centre and scale are public knowledge, not computed from patients.
[[terms.feature]]
column = "age"
kind = "numeric"
centre = 54.0
scale = 9.0

[[terms.feature]]
column = "cholesterol"
kind = "numeric"
centre = 245.0
scale = 55.0
may_miss = true                      # a second feature says whether it is missing

[[terms.feature]]
column = "sex"
kind = "categorical"
categories = ["male"]

# One table per hospital. weight: of each of its votes; rate: share of the queries in which it takes part.
[[party]]
party = "hospital-a"
epsilon = 8.0
delta = 1e-5
weight = 1.0
rate = 1.0

[[party]]
party = "hospital-b"
epsilon = 8.0
delta = 1e-5
weight = 1.0
rate = 1.0

[[party]]
party = "hospital-c"
epsilon = 8.0
delta = 1e-5
weight = 1.0
rate = 1.0

[[party]]
party = "hospital-d"
epsilon = 8.0
delta = 1e-5
weight = 1.0
rate = 1.0
"""
