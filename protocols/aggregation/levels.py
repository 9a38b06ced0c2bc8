"""The levels of confidentiality by name: the party's side and the coordinator's. Adding one: a file and two lines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from protocols.aggregation.aggregation import Aggregation
from protocols.aggregation.clear import Clear
from protocols.aggregation.two_servers import lattice_noise
from protocols.channel import Channel
from protocols.noise import cryptographic
from protocols.randomness import RandomSource
from protocols.study import Study

# Opens a channel to the study's guardian for one batch.
Dial = Callable[[], AbstractContextManager[Channel]]


def aggregation_of(study: Study, *, source: RandomSource, dial: Dial | None) -> Aggregation:
    """The coordinator's side of the study's level, with all noise from `source`, which must be the operating system's.

    dial: for `two_server`. Raises InvalidInput if it is missing.
    """
    match study.confidentiality.level:
        case _:
            if study.lattice is None:
                return Clear(cryptographic(source))
            return Clear(lattice_noise(source, units=study.lattice.units))
