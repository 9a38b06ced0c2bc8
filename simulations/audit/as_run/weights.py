"""The weights of the six parties of every study that is audited as it runs, apart from it: for the flags."""

import numpy as np

WEIGHTS = np.array([1.0, 1.0, 2.0, 0.5, 1.5, 3.0])
