"""Repetition at any distance, and faults of any period, in a whole run.

Repetition: the autocorrelation of a whole run, at every lag at once, by the fast Fourier transform.

Noise that is drawn from a short period, or used again in a later batch, repeats itself somewhere. Nobody needs to guess
where: with independent scores of mean 0 and variance 1 each sum of products at a lag is a sum of uncorrelated terms.
"""

from __future__ import annotations

import numpy as np
import scipy
from jaxtyping import Float64
from numpy import ndarray

from simulations.audit.agreement.evidence import Evidence

# Lags of fewer products than this are left out: the normal approximation needs many.
_LEAST_PRODUCTS = 3000
# Taken off the significance, for the error of the normal approximation far in the tail.
_MARGIN = 10.0


def repeated_at_a_distance(scores: Float64[ndarray, " run"], *, live: float = 1.0) -> Evidence:
    """Evidence that scores at some lag are correlated. scores: independent, mean 0, variance 1 or, where nothing is
    scored, 0; live: the share that is scored.

    Each p-value is a normal tail, times 10 for the approximation; scores should be bounded by about 3.
    """
    size = len(scores)
    lags = np.arange(1, size)
    products = (size - lags) * live * live
    kept = products >= _LEAST_PRODUCTS
    family = "repetition at any distance"
    if not kept.any():
        return Evidence(family, 1.0, 0, 0, "")
    length = scipy.fft.next_fast_len(2 * size, real=True)
    spectrum = scipy.fft.rfft(scores, length)
    sums = scipy.fft.irfft((spectrum * spectrum.conj()).real, length)[1:size]
    scored = (scores != 0).astype(np.float64)
    if live < 1:
        spectrum = scipy.fft.rfft(scored, length)
        products = np.rint(scipy.fft.irfft((spectrum * spectrum.conj()).real, length)[1:size])
        kept &= products >= _LEAST_PRODUCTS
        if not kept.any():
            return Evidence(family, 1.0, 0, 0, "")
    z = np.abs(sums[kept]) / np.sqrt(products[kept])
    worst = int(z.argmax())
    cells = int(kept.sum())
    p = min(1.0, 2 * float(scipy.special.ndtr(-z[worst])) * cells * _MARGIN)
    return Evidence(family, p, cells, size, f"lag {int(lags[kept][worst])}")


def periodic_fault(scores: Float64[ndarray, " run"], *, period: int) -> Evidence:
    """Evidence that the mean of scores goes up and down with some period: a query in so many has another law.

    scores: independent, mean 0, of variances that recur every `period` scores, bounded by about 3. Under the stated law
    a squared Fourier coefficient over the sum of variances is exponential, but where twice its frequency is one of the
    variances' own; those are left out, as places in a batch are tested by themselves. p-values are times 10 for the
    normal approximation.
    """
    family = "fault of any period"
    size = len(scores) - len(scores) % period
    scores = scores[:size]
    variance = float((scores**2).sum())
    if size < _LEAST_PRODUCTS or variance < _LEAST_PRODUCTS:
        return Evidence(family, 1.0, 0, 0, "")
    frequency = np.arange(1, (size + 1) // 2)
    power = np.abs(scipy.fft.rfft(scores)[frequency]) ** 2 / variance
    kept = 2 * frequency * period % size != 0
    worst = int(np.where(kept, power, -1.0).argmax())
    cells = int(kept.sum())
    p = min(1.0, float(np.exp(-power[worst])) * cells * _MARGIN)
    return Evidence(family, p, cells, size, f"period {size / int(frequency[worst]):.1f}")
