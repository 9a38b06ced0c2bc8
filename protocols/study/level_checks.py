"""Checks that a study fits a level of confidentiality: view, weights, drop-outs, and what a ring must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import sqrt

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from protocols.crypto.discrete_gaussian import LARGEST_SIGMA, lattice_sigma
from protocols.crypto.masks import graph_parameters
from protocols.crypto.rings import MAX_CLASSES, MOST_CELLS, check_counting_ring, check_ring, check_sum_field
from protocols.errors import InvalidInput
from protocols.mechanisms import ThresholdedGNMax
from protocols.study.any_study import AnyStudy
from protocols.study.votes import TeacherVotes, UnitSums, Votes, teacher_votes, unit_sums

# Shares of one batch that a coordinator keeps and submits as one message.
_MOST_HELD = 240 * 2**20


def check_view_seen(study: AnyStudy, level: str, view: str) -> None:
    """Raises InvalidInput unless the study accounts for what is seen at the level."""
    if study.view != view:
        raise InvalidInput(f"view is {study.view!r}; allowed: {view!r}, which is what is seen at level {level!r}")


def check_weights(study: AnyStudy, level: str, units: int) -> None:
    """Raises InvalidInput unless votes and noise of the study are whole numbers of the level's units."""
    if study.votes.pooled:
        raise InvalidInput(f"level {level!r} with units conceals votes of parties; allowed without pooled_teachers")
    weights = study.weights * units
    if not (weights == np.rint(weights)).all():
        raise InvalidInput(
            f"weights span [{study.weights.min()}, {study.weights.max()}]; allowed: multiples of 1/{units} votes, "
            "the units of this level"
        )
    _ = study.gaussian  # refuses a mechanism without integer noise


def check_one_histogram(study: AnyStudy, level: str) -> None:
    """Raises InvalidInput unless what one query releases is a function of one noisy histogram.

    A server may shift the counts by numbers of its choice, unnoticed until its inputs are checked. A noisy histogram of
    shifted counts costs what one of the counts does. A threshold test with noise of its own does not: that noise is one
    number for all classes, so refusals would tell the difference of two counts without noise.
    """
    if not study.mechanism.decides_on_one_histogram():
        raise InvalidInput(
            f"mechanism is {study.mechanism.name!r}; allowed at level {level!r}: {ThresholdedGNMax.name}, or another "
            "whose outcome is a function of one noisy histogram: a server that shifts its share of the counts could "
            "learn the difference of two counts from any other, without noise"
        )


def check_apart(fault: str, name: str, others: Iterable[str]) -> None:
    """Raises InvalidInput with `fault` if the organisation `name` is among the others. others: names of seats or
    organisations."""
    if name in {each.partition("/")[0] for each in others}:
        raise InvalidInput(f"confidentiality: {fault}")


def check_seat_keys(study: AnyStudy, level: str, keys: tuple[str, ...], *, distinct: bool) -> None:
    """Raises InvalidInput unless every seat has a key to sign with. distinct: whether no two seats may share one."""
    if len(keys) != len(study.seats):
        raise InvalidInput(f"{len(keys)} keys of seats; allowed at level {level!r}: one for each of {len(study.seats)}")
    owners: dict[tuple[int, int], str] = {}
    for seat, key in zip(study.seats, keys, strict=True):
        owner = owners.setdefault(_point(key, f"signing_key of {seat!r}", level), seat)
        if distinct and owner != seat:
            raise InvalidInput(
                f"signing_key of {seat!r} is that of {owner!r} too; allowed at level {level!r}: a key for each seat, "
                "for one signature must not count twice"
            )


def check_querier_key(key: str, level: str, seat_keys: tuple[str, ...]) -> None:
    """Raises InvalidInput unless the querier has a key to sign with, which is no seat's: one must not pass for the
    other."""
    point = _point(key, "confidentiality: querier_key", level)
    if point in {_point(each, "signing_key", level) for each in seat_keys}:
        raise InvalidInput(
            f"confidentiality: querier_key is that of a seat; allowed at level {level!r}: a key of the querier's own"
        )


def _point(key: str, what: str, level: str) -> tuple[int, int]:
    """The point that a key in a study is. what: how an error names it. Raises InvalidInput."""
    try:
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes.fromhex(key)).public_numbers()
    except ValueError:
        raise InvalidInput(
            f"{what} is {key[:80]!r}; allowed at level {level!r}: a compressed point of P-256 in hexadecimal, as "
            "`study create` fills it in"
        ) from None
    return point.x, point.y


def check_sum(study: AnyStudy, level: str, *, units: int, colluders: int) -> None:
    """Raises InvalidInput unless drop-outs and colluders are within the level's limits, and the sum fits a ring."""
    if study.votes.stop != "first-exhausted":
        raise InvalidInput(
            f"stop is {study.votes.stop!r}; allowed at level {level!r}: first-exhausted, as every party of the roster "
            "masks every batch"
        )
    grouped = [seat for seat in study.seats if "/" in seat]
    if grouped:
        raise InvalidInput(
            f"seat {grouped[0]!r} is a privacy group; allowed at level {level!r}: one seat per party: colluders are "
            "counted in parties"
        )
    cells = study.batch_limit * study.classes
    if cells > MOST_CELLS:
        raise InvalidInput(
            f"a batch has {cells} counts; allowed at level {level!r}: at most {MOST_CELLS} counts in a batch"
        )
    parties = len(study.seats)
    graph_parameters(parties=parties, dropouts=parties - study.quorum, colluders=colluders)
    noise = study.gaussian.sigma * units * (parties / (study.quorum - colluders)) ** 0.5
    with _named(study, level, units):
        check_ring(
            total_units=study.total_units(units), noise_sigma_units=noise, cells=study.query_limit * study.classes
        )


def check_servers(study: AnyStudy, level: str, *, units: int, abstains: bool, sealing_key: str) -> None:
    """Raises InvalidInput unless the two servers can hold every share, and their ring every count, with noise."""
    _check_sealing_key(sealing_key)
    _SHARED[type(study.votes)](study, level, units, abstains)


def _check_unit_sums(study: AnyStudy, level: str, units: int, abstains: bool) -> None:
    """Both servers' noise is in the sum: two discrete Gaussians of variance sigma^2 leave the field no more often than
    one of 2 sigma^2 is bounded to (rings.py)."""
    votes = unit_sums(study)
    with _named(study, level, units):
        check_sum_field(
            total_units=votes.total_units(study.weights, units=units),
            noise_sigma_units=sqrt(2) * study.gaussian.sigma * units,
            cells=study.query_limit * study.classes,
        )
    words = sum(max(each.layout.size for each in votes.proofs(study, seat).values()) for seat in study.seats)
    _check_held(study, words=words)


def _check_teacher_votes(study: AnyStudy, level: str, units: int, abstains: bool) -> None:
    votes = teacher_votes(study)
    if votes.secret_coins and not abstains:
        raise InvalidInput(
            "confidentiality: abstention is false with participation 'secret'; allowed: true, as a refused abstention "
            "would show the coin"
        )
    if study.classes > MAX_CLASSES:
        raise InvalidInput(f"classes is {study.classes}; allowed at level {level!r}: at most {MAX_CLASSES}")
    words = votes.teachers * votes.batch_limit * _shared_words(study.classes)
    _check_held(study, words=len(study.seats) * words)
    with _named(study, level, units):
        check_counting_ring(
            total_units=study.total_units(units),
            threshold_units=study.threshold_units(units),
            sigma_units=study.gaussian.sigma * units,
            classes=study.classes,
            queries=study.query_limit,
        )
        if (sigma := float(lattice_sigma(study.gaussian.sigma, units=units))) > LARGEST_SIGMA:
            raise InvalidInput(f"sigma = {sigma:g} units; allowed: at most {LARGEST_SIGMA}, for which draws are tabled")


def shared_queries(voters: int, classes: int) -> int:
    """How many queries a batch may have, if all of so many voters share their votes between two servers."""
    return _MOST_HELD // (4 * voters * _shared_words(classes))


def _shared_words(classes: int) -> int:
    """Words of a share of a vote: the vector, for each of three repetitions its product with a key, and a constant,
    and four masks under keys."""
    return 4 * classes + 7


def _check_held(study: AnyStudy, *, words: int) -> None:
    """Raises InvalidInput unless the shares of one batch of all parties fit one message. words: of four bytes."""
    held = 4 * words
    if held > _MOST_HELD:
        raise InvalidInput(
            f"one batch of all parties has {held / 2**20:.0f} MiB of shares; allowed: at most {_MOST_HELD / 2**20:.0f} "
            f"MiB, with {study.votes.smaller}"
        )


def _check_sealing_key(key: str) -> None:
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(key)))
    except ValueError:
        raise InvalidInput(
            "confidentiality: sealing_key is no usable X25519 key; allowed: the guardian's own"
        ) from None


@contextmanager
def _named(study: AnyStudy, level: str, units: int) -> Iterator[None]:
    """Rephrases what a ring refuses in terms of the study's file."""
    try:
        yield
    except InvalidInput as error:
        named = ", ".join(f"{name} = {value:g}" for name, value in study.mechanism.values.items())
        raise InvalidInput(
            f"{named}, with units = {units} and all weights together {study.total_units(units) / units:g} votes, do "
            f"not fit the arithmetic of level {level!r}; allowed: fewer units or less noise: {error}"
        ) from None


# What two servers must be able to hold of each kind of votes.
_SHARED: dict[type[Votes], Callable[[AnyStudy, str, int, bool], None]] = {
    TeacherVotes: _check_teacher_votes,
    UnitSums: _check_unit_sums,
}
