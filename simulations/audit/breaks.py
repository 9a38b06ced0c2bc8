"""What an audit can run in place of the honest code: a mechanism, the levels, or a study, broken in one place.

The breaks themselves are parts that other distributions register: no program of Conclave's comes with broken code.
`pip install ./benchmarks` in a clone adds some, and an audit must detect each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar  # Any: functions of any signature are replaced

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from protocols.errors import InvalidInput
from protocols.mechanisms import Mechanism
from protocols.noise import LatticeNoise, Noise, StandardNormal
from protocols.plugins import Parts

if TYPE_CHECKING:  # the names of breaks stand in --help, which loads no keys' library
    from protocols.study.study import Study
    from protocols.sums.blocks import Blocks

Counts = Float64[ndarray, "..."]
Function = Callable[..., Any]
# Features, labels and units of one party's records, as simulations.stages.record_votes takes them.
Holding = tuple[Float32[ndarray, "records features"], Int64[ndarray, " records"], Int64[ndarray, " records"]]
Sums = list[Int64[ndarray, "queries classes"]]
Draws = Float64[ndarray, "trials cells"] | Int64[ndarray, "trials cells"]
# Each party's sum, of a study, of what is asked and of what each party holds.
Contribute = Callable[["Study", "Blocks", Sequence[Holding]], Sums]


@dataclass(frozen=True)
class Break:
    """What is done to the mechanism, to its noise and to the counts before the real release."""

    meaning: str
    mechanism: Callable[[Mechanism], Mechanism] = lambda mechanism: mechanism
    noise: Callable[[StandardNormal], StandardNormal] = lambda noise: noise
    counts: Callable[[Counts], Counts] = lambda counts: counts


@dataclass(frozen=True)
class RunBreak:
    """meaning: what is wrong; level: where; places: module:name of what is replaced; wrong: from the right function."""

    meaning: str
    level: str
    places: tuple[str, ...]
    wrong: Callable[[Function], Function]


@dataclass(frozen=True)
class SumBreak:
    """What is done to the contributions, to the study that is run and to the noise of each trial's cells.

    of: the kind of sums whose parties send something else; contribute: what they send, None for what they should;
    releases: how often the batch is released with fresh noise,
    for a charge of once.
    """

    meaning: str
    of: str | None = None
    contribute: Contribute | None = None
    run: Callable[[Study], Study] = lambda study: study
    noise: Callable[[Draws], Draws] = lambda draws: draws
    releases: int = 1


@dataclass(frozen=True)
class FindingBreak:
    """What is done to a teacher's vote on several findings.

    of: the way that is broken, None for all; counted: the mechanism by which a vote is counted; votes: the counts of
    one vote; mechanism, noise: as of a Break; charged_once: whether a query is charged as one row.
    """

    meaning: str
    of: str | None = None
    counted: Callable[[Mechanism], Mechanism] = lambda mechanism: mechanism
    votes: Callable[[Counts], Counts] = lambda counts: counts
    mechanism: Callable[[Mechanism], Mechanism] = lambda mechanism: mechanism
    noise: Callable[[StandardNormal], StandardNormal] = lambda noise: noise
    charged_once: bool = False


AnyBreak = Break | RunBreak | SumBreak | FindingBreak
HONEST, HONEST_SUMS = Break("nothing is broken"), SumBreak("nothing is broken")
B = TypeVar("B", Break, RunBreak, SumBreak, FindingBreak)


def _check(name: str, loaded: object) -> Mapping[str, AnyBreak]:
    if not (isinstance(loaded, dict) and all(isinstance(one, AnyBreak) for one in loaded.values())):
        raise InvalidInput("it is no dict of breaks by name; allowed: Break, RunBreak, SumBreak or FindingBreak each")
    return loaded


BREAKS: Final[Parts[Mapping[str, AnyBreak]]] = Parts("table of breaks", {}, group="conclave.breaks", check=_check)


def breaks_of(kind: type[B]) -> dict[str, B]:
    """The breaks of that kind which are installed, by name."""
    return {name: one for table in BREAKS.loadable().values() for name, one in table.items() if isinstance(one, kind)}


def scaled_noise(factor: float) -> Callable[[Mechanism], Mechanism]:
    """The mechanism with each noise scale times a factor."""

    def mechanism_of(mechanism: Mechanism) -> Mechanism:
        noise = {name: each for name, each in mechanism.parameters(view="label").items() if each.role == "noise"}
        scaled = {name: each.wider(mechanism.values[name], factor) for name, each in noise.items()}
        return type(mechanism).build(view="label", given={**mechanism.values, **scaled})

    return mechanism_of


@contextmanager
def swapped(module: object, function: str, wrong: Callable[[Function], Function]) -> Iterator[None]:
    """A function of the running code is another in this block. wrong: from the right one."""
    right = getattr(module, function)
    setattr(module, function, wrong(right))
    try:
        yield
    finally:
        setattr(module, function, right)


@contextmanager
def broken_code(broken: RunBreak | None) -> Iterator[None]:
    """The running code is broken in this block. None: it is not."""
    with ExitStack() as held:
        if broken is None:
            yield
            return
        for place in broken.places:
            module, _, function = place.partition(":")
            held.enter_context(swapped(import_module(module), function, broken.wrong))
        yield


def broken_noise(noise: Noise, broken: SumBreak, *, cells: int) -> Noise:
    """The same source, changed by the break trial by trial; cells: of one trial."""
    if isinstance(noise, LatticeNoise):
        drawn = noise.draw

        def draw(count: int, sigma: float) -> Int64[ndarray, " count"]:
            return np.ascontiguousarray(broken.noise(drawn(count, sigma).reshape(-1, cells)).ravel())

        return LatticeNoise(noise.units, draw)
    normal = noise

    def standard(shape: tuple[int, ...]) -> Float64[ndarray, "..."]:
        return broken.noise(normal(shape).reshape(-1, cells)).reshape(shape)

    return standard
