"""FeatureMap: from a record as its hospital holds it to the features that queries are compared by.

A chain of public stages, fixed by the study and in its digest. It is made from constants and from public data only, and
depends on no other private record, so a record's contribution depends on its own data alone.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from protocols.array_files import array_names_in, parse_arrays
from protocols.errors import DataCorrupt, InvalidInput
from protocols.features.deskew import Deskew
from protocols.features.encoder import Encoder
from protocols.features.hog import Hog
from protocols.features.linear import Linear
from protocols.features.stage import Stage

KINDS: Final[Mapping[int, type[Stage]]] = {kind.number: kind for kind in (Linear, Deskew, Hog, Encoder)}
# The bytes of a file of features, at most; an encoder is the largest part.
FEATURES_BYTES: Final = 2**29
_MOST_STAGES, _MOST_SIDE = 8, 2**24
