"""The names of the breaks of record votes, and what each does, apart from the code that does it: for the flags."""

from __future__ import annotations

FAULTS: dict[str, str] = {
    "half-noise": "half of the noise that is accounted for",
    "unscaled-patients": "a patient's contribution is not scaled to norm 1",
    "whole-in-each": "weight 1 in each of two partitions",
    "rounded-up": "entries are rounded up to whole lattice units",
    "counted-twice": "each unit is counted twice",
    "every-query": "each record votes in every query, charged once",
    "fresh-noise": "the batch is asked four times with fresh noise, charged once",
    "bare-cell": "one cell has no noise",
    "one-noise": "the noise of one cell serves all",
    "noise-90": "nine tenths of the noise that is accounted for",
    "clipped": "noise ends at three standard deviations",
    "correlated-cells": "noise of neighbouring cells is correlated",
    "noise-again": "every second release has the noise of the one before",
    "rare-noiseless": "one draw in 5,000 has no noise",
    "multiples-of-2": "whole noise is even",
    "multiples-of-4": "whole noise is a multiple of 4",
    "multiples-of-8": "whole noise is a multiple of 8",
    "wrong-weight": "the weight of the party with the largest budget for all",
}
