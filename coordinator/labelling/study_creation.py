"""Creating a study: the checks before anybody is asked to approve it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Float32
from numpy import ndarray

from coordinator.home import CoordinatorSettings
from coordinator.labelling.choosing import choice_between_batches
from coordinator.labelling.pool import check_pool, read_pool, write_pool
from coordinator.store.store import Store
from protocols.crypto.identity import certificate_from_pem, check_name, encoded_point
from protocols.errors import BudgetExceeded, InvalidInput
from protocols.plural import at_most
from protocols.private_files import private_folder
from protocols.release.sums import QUERIES_FILE
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import NO_POOL, hidden
from protocols.study.queries import pool_digest
from protocols.study.queries_file import read_query_map
from protocols.study.query_map import QueryMap
from runtime.files import folder_beside, put_in_place, write_atomically


def create_study(
    store: Store,
    settings: CoordinatorSettings,
    *,
    file: Path,
    pool_file: Path | None,
    queries_file: Path | None = None,
    today: datetime.date,
) -> DeployedStudy:
    """Checks a study and its pool and stores both; stores nothing if anything is wrong.

    What the file leaves out of the pool's shape, size and hash is filled in from the pool; where a querier asks, the
    size is the query limit. queries_file: where records
    vote; today: in UTC. Raises InvalidInput with what is wrong, BudgetExceeded if a budget cannot pay for one query.
    """
    study, pool = _with_pool(file, pool_file, keys=lambda party: signing_key(store, party))
    check_name(study.name)
    terms = study.terms
    if terms.coordinator != settings.coordinator:
        raise InvalidInput(
            f"terms.coordinator is {terms.coordinator!r}; allowed: {settings.coordinator!r}, this coordinator"
        )
    if terms.ended(today):
        raise InvalidInput(f"terms.ends is {terms.ends}, which is over; allowed: today, {today}, or later")
    _check_budgets(study)
    if pool is not None:
        _ = choice_between_batches(study, pool)  # refuses a pool, or an installation, that it cannot choose from
    queries = _queries(study, queries_file)
    if study.name in store.studies():
        raise InvalidInput(f"study {study.name!r} exists; allowed: another name")
    folder = store.home.study(study.name)
    private_folder(folder.parent)
    with folder_beside(folder) as part:
        write_atomically(part / "study.toml", write_study(study))
        if pool is not None:
            write_pool(part / "pool.npy", pool)
        if queries is not None:
            write_atomically(part / QUERIES_FILE, queries.to_bytes())
        with store.together():
            store.add_study(study)
            if (folder / "ledger.sqlite").exists():
                raise InvalidInput(f"{folder} holds a ledger that the store does not know; allowed: another name")
            # It may have been left by a creation that was interrupted before the store recorded it.
            put_in_place(part, folder, replace=True)
    return study


def read_draft(file: Path, *, keys: Callable[[str], str | None]) -> DeployedStudy:
    """A study file that may leave out what follows from the pool; those of its terms are placeholders then.

    Raises InvalidInput as read_deployed does.
    """
    return read_deployed(file, keys=keys, left_out={"input_shape": [1], "pool_size": 1, "pool_sha256": "0" * 64})


def terms_of(pool: Float32[ndarray, "queries ..."]) -> dict[str, object]:
    """What a study's terms say of its pool."""
    return {"input_shape": list(pool.shape[1:]), "pool_size": len(pool), "pool_sha256": pool_digest(pool)}


def _with_pool(
    file: Path, pool_file: Path | None, *, keys: Callable[[str], str | None]
) -> tuple[DeployedStudy, Float32[ndarray, "queries ..."] | None]:
    """The study and its public queries; None if a querier asks about its own, which nobody else sees."""
    draft = read_draft(file, keys=keys)
    level = draft.confidentiality
    if (pool_file is None) != level.hides_queries:
        raise InvalidInput(
            "a pool is missing; allowed: --pool FILE"
            if pool_file is None
            else f"--pool {pool_file} is given, but {hidden(level).querier!r} asks about records of its own; "
            "allowed: no pool"
        )
    if pool_file is None:
        return read_deployed(file, keys=keys, left_out={"pool_size": draft.query_limit, "pool_sha256": NO_POOL}), None
    pool = read_pool(pool_file, features=draft.terms.features)
    study = read_deployed(file, keys=keys, left_out=terms_of(pool))
    check_pool(pool, study)
    return study, pool


def _queries(study: DeployedStudy, file: Path | None) -> QueryMap | None:
    """The queries in which units vote; None where hospitals are given the pool."""
    if file is not None:
        return read_query_map(file, study)
    if study.votes.given != "--pool":
        raise InvalidInput("the queries are missing; allowed: --queries FILE, which `study queries` writes")
    return None


def signing_key(store: Store, party: str) -> str | None:
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
            f"the budget of {seat.party!r}, epsilon {at_most(seat.epsilon)} at delta {at_most(seat.delta)}, "
            "cannot pay for a query; allowed: a larger epsilon, more noise, or a smaller weight"
        )
