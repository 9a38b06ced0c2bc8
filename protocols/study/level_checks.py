"""Whether a study fits its level of confidentiality: view, weights, who may leave, and what a ring must hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from protocols.crypto.counting_ring import MAX_CLASSES, check_ring
from protocols.crypto.masked_ring import MOST_CELLS
from protocols.crypto.masked_ring import check_ring as check_sums
from protocols.crypto.masking_graph import graph_parameters
from protocols.errors import InvalidInput

# The pool digest of a study with hidden queries.
NO_POOL = "0" * 64

if TYPE_CHECKING:  # a study checks itself here
    from protocols.study.study import Study

# Shares of one batch that a coordinator keeps and submits as one message.
_MOST_HELD = 240 * 2**20


def check_level(study: Study) -> None:
    """Raises InvalidInput unless the study fits the level: view, noise, weights and ring."""
    terms = study.confidentiality
    level, units = terms.level, terms.units
    view = {"secure_sum": "histogram", "two_server": "label"}.get(level, study.view)
    if study.view != view:
        raise InvalidInput(f"view is {study.view!r}; allowed: {view!r}, which is what is seen at level {level!r}")
    if terms.colluders is not None and terms.colluders >= study.quorum:
        raise InvalidInput(
            f"confidentiality: colluders is {terms.colluders}; allowed: below the quorum of {study.quorum}, as only "
            "the noise of the others protects anyone"
        )
    if units is None:
        return
    if study.pooled_teachers is not None:
        raise InvalidInput(f"level {level!r} with units hides votes of parties; allowed without pooled_teachers")
    weights = study.weights * units
    if not (weights == np.rint(weights)).all():
        raise InvalidInput(
            f"weights span [{study.weights.min()}, {study.weights.max()}]; allowed: multiples of 1/{units} votes, "
            "the units of this level"
        )
    names = {seat.party.partition("/")[0] for seat in study.roster}
    names |= set() if study.terms is None else {study.terms.coordinator}
    if terms.guardian in names:
        raise InvalidInput(
            f"confidentiality: guardian is {terms.guardian!r}, the coordinator or a party of the study; allowed: "
            "another organisation, as both shares of a vote together are the vote"
        )
    _ = study.mechanism  # refuses one that has no integer noise
    if level == "two_server":
        _check_servers(study, units)
    if terms.querier is not None:
        _check_querier(study, terms.querier)
    if level == "secure_sum":
        _check_sum(study)


def _check_sum(study: Study) -> None:
    """Raises InvalidInput unless parties may leave and collude as the study says, and the sum fits a ring."""
    if study.stop != "first-exhausted":
        raise InvalidInput(
            f"stop is {study.stop!r}; allowed at level 'secure_sum': first-exhausted, as every party of "
            "the roster masks every batch"
        )
    _check_keys(study)
    grouped = [seat.party for seat in study.roster if "/" in seat.party]
    if grouped:
        raise InvalidInput(
            f"seat {grouped[0]!r} is a privacy group; allowed at level 'secure_sum': one seat a party: colluders are "
            "counted in parties"
        )
    cells = study.batch_limit * study.classes
    if cells > MOST_CELLS:
        raise InvalidInput(
            f"batch_limit x classes is {cells}; allowed at level 'secure_sum': at most {MOST_CELLS} counts in a batch"
        )
    colluders, dropouts, lattice = study.confidentiality.colluders, len(study.roster) - study.quorum, study.lattice
    assert colluders is not None
    assert lattice is not None
    assert study.sigma is not None
    graph_parameters(parties=len(study.roster), dropouts=dropouts, colluders=colluders)
    noise = study.sigma * lattice.units * (len(study.roster) / lattice.shares) ** 0.5
    with _named(study):
        check_sums(total_units=study.total_units, noise_sigma_units=noise, cells=study.query_limit * study.classes)


def _check_keys(study: Study) -> None:
    """Raises InvalidInput unless every seat names a key to sign with, which at secure_sum is its own alone."""
    owners: dict[tuple[int, int], str] = {}
    for seat in study.roster:
        try:
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes.fromhex(seat.signing_key or ""))
        except ValueError:
            raise InvalidInput(
                f"signing_key of {seat.party!r} is {str(seat.signing_key)[:80]!r}; allowed at level 'secure_sum', and "
                "with a querier: a compressed point of P-256 in hexadecimal, as `study create` fills it in"
            ) from None
        point = key.public_numbers()
        owner = owners.setdefault((point.x, point.y), seat.party)
        if owner != seat.party and study.confidentiality.level == "secure_sum":
            raise InvalidInput(
                f"signing_key of {seat.party!r} is that of {owner!r} too; allowed at level 'secure_sum': a key for "
                "each seat, for one signature must not count twice"
            )


def _check_querier(study: Study, querier: str) -> None:
    """Raises InvalidInput unless queries can be hidden: from parties with one private model, which all take part."""
    terms = study.terms
    for what, value, allowed in (
        ("teachers", study.teachers, 1),
        ("participation_name", study.participation_name, "all"),
        ("confidentiality: abstention", study.confidentiality.abstention, False),
        ("round_one", study.round_one, None),
        ("terms: pool_sha256", NO_POOL if terms is None else terms.pool_sha256, NO_POOL),
    ):
        if value != allowed:
            raise InvalidInput(f"{what} is {value!r}; allowed with a querier: {allowed!r}")
    taken = {seat.party.partition("/")[0] for seat in study.roster} | {study.confidentiality.guardian}
    if querier in taken | {None if terms is None else terms.coordinator}:
        raise InvalidInput(
            f"confidentiality: querier is {querier!r}, which is a party of the roster, the guardian or the "
            "coordinator; allowed: another organisation"
        )
    _check_keys(study)


def _check_servers(study: Study, units: int) -> None:
    """Raises InvalidInput unless the two servers' ring holds every count of the study, with noise."""
    terms = study.confidentiality
    if study.participation_name == "secret" and not terms.abstention:
        raise InvalidInput(
            "confidentiality: abstention is false with participation 'secret'; allowed: true, as a refused abstention "
            "would show the coin"
        )
    if study.classes > MAX_CLASSES:
        raise InvalidInput(f"classes is {study.classes}; allowed at level 'two_server': at most {MAX_CLASSES}")
    held = len(study.roster) * study.teachers * study.batch_limit * (study.classes + 3) * 4
    if held > _MOST_HELD:
        raise InvalidInput(
            f"one batch of all parties has {held / 2**20:.0f} MiB of shares; allowed: at most {_MOST_HELD / 2**20:.0f} "
            "MiB, with a smaller batch_limit"
        )
    assert terms.sealing_key is not None  # the level needs it
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(terms.sealing_key)))
    except ValueError:
        raise InvalidInput(
            "confidentiality: sealing_key is no usable X25519 key; allowed: the guardian's own"
        ) from None
    mechanism = study.mechanism
    thresholds = [study.threshold_units(second_round=second) for second in (False, True)]
    assert study.sigma is not None  # the noise of every mechanism on a lattice
    with _named(study):
        check_ring(
            total_units=study.total_units,
            threshold_units=max((each for each in thresholds if each is not None), key=abs, default=None),
            # Predictions may add up to 1.001 (check_predictions).
            most_offset_units=ceil(1.001 * study.nominal_weight * units) if mechanism.interactive else 0,
            label_sigma_units=study.sigma * units,
            threshold_sigma_units=None if study.sigma_threshold is None else study.sigma_threshold * units,
            classes=study.classes,
            queries=study.query_limit,
        )


@contextmanager
def _named(study: Study) -> Iterator[None]:
    """What a ring refuses, in the words of the study's file."""
    try:
        yield
    except InvalidInput as error:
        terms = {"sigma": study.sigma, "sigma_threshold": study.sigma_threshold, "threshold": study.threshold}
        named = ", ".join(f"{name} = {value:g}" for name, value in terms.items() if value is not None)
        raise InvalidInput(
            f"{named}, with units = {study.confidentiality.units} and all weights together {study.largest_weight:g} "
            f"votes, do not fit the arithmetic of level {study.confidentiality.level!r}; allowed: fewer units or less "
            f"noise: {error}"
        ) from None
