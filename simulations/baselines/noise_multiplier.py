"""How much noise training needs for an epsilon: privacy loss distributions of the sampled Gaussian mechanism.

The only file that imports dp-accounting.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution

from protocols.errors import InvalidInput

_RELATIVE_TOLERANCE: Final = 1e-3
_LARGEST: Final = 2.0**20


def epsilon_of(noise_multiplier: float, *, rate: float, steps: int, delta: float) -> float:
    """Epsilon at this delta of `steps` sums, each of a Poisson sample at this rate, with Gaussian noise on each.

    noise_multiplier: the noise's standard deviation over the largest length of what one unit adds to a sum.
    Neighbours replace one unit by any other. The adversary sees every noisy sum, and not who was sampled. An upper
    bound: Koskela et al. 2020 and Doroshenko et al. 2022 (connecting the dots), as dp-accounting computes them, of
    the pair that Zhu et al. 2022, Theorem 11, names for sampling and replacement.
    """
    # One step's loss is about 2 rate / noise_multiplier: a finer grid than a hundredth of it changes nothing.
    interval = min(1e-3, max(1e-5, 2 * rate / noise_multiplier / 100))
    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=rate,
        value_discretization_interval=interval,
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE,
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))


@lru_cache(maxsize=256)
def noise_multiplier_for(epsilon: float, *, rate: float, steps: int, delta: float) -> float:
    """The least noise multiplier whose epsilon is at most `epsilon`, up to a relative 0.001 above.

    See epsilon_of. Raises InvalidInput where no noise multiplier up to a million does.
    """
    low = high = 1.0
    while epsilon_of(high, rate=rate, steps=steps, delta=delta) > epsilon:
        low, high = high, 2 * high
        if high > _LARGEST:
            raise InvalidInput(f"epsilon is {epsilon} at delta {delta}; allowed: what some noise affords")
    while low > 1 / _LARGEST and epsilon_of(low, rate=rate, steps=steps, delta=delta) <= epsilon:
        low, high = low / 2, low
    while high > low * (1 + _RELATIVE_TOLERANCE):
        middle = (low * high) ** 0.5
        if epsilon_of(middle, rate=rate, steps=steps, delta=delta) <= epsilon:
            high = middle
        else:
            low = middle
    return high
