"""The weights of the six parties of every study that is audited as it runs, apart from it: for the flags."""

import numpy as np

# Odd multiples of a lattice unit, so that a vote shows in the lowest bit.
WEIGHTS = np.array([63, 65, 129, 33, 97, 191]) / 64
