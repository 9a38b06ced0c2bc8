"""Who masks with whom: a public circulant graph on a shuffled ring (Bell et al. 2020, section 3, "SecAgg+").

Each party shares masks with k neighbours instead of with everyone. Bell et al. choose k so that bad graphs are rare. We
choose k so that there are none: the circulant graph on the distances 1 to k/2 is k-connected (Harary 1962), hence with
k > dropouts + colluders, whoever drops out and whoever colludes,

- the honest survivors stay connected, so that nothing but their whole sum is free of masks;
- every party keeps k - dropouts > colluders neighbours, which is the threshold of its shares: the survivors can always
  open them, colluders alone never.

That is if all parties mask for the same sharers: whoever is told of fewer has fewer masks, so nobody opens the self
mask of a party that did not say that it masked for the same ones (levels/secure_sum/steps.py).

All failure probabilities are therefore zero, even if the coordinator chooses who drops out or tries many batches to get
a graph that it likes: there is no bad one. The shuffle, by ChaCha20 from SHA-256 of the batch's public context, only
keeps the neighbours of a party from being the same in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from protocols.crypto.masks import key_stream
from protocols.errors import InvalidInput

# As many shares as a secret has at most (shamir.py).
MOST_NEIGHBOURS = 255


def graph_parameters(*, parties: int, dropouts: int, colluders: int) -> tuple[int, int]:
    """Neighbours of a party, and how many shares open a secret; with these no failure is possible (see the module).

    dropouts: at most this many parties leave, at any step; colluders: at most this many share all they know with the
    coordinator. The graph is full where parties are few. Raises InvalidInput unless 2 dropouts + colluders <
    parties, which two survivor sets with a quorum each would otherwise satisfy (Bonawitz et al. 2017, section 6.2), at
    least two honest parties survive, and a secret has at most 255 shares.
    """
    if dropouts < 0 or colluders < 0:
        raise InvalidInput(f"dropouts = {dropouts}, colluders = {colluders}; allowed: 0 or more")
    fewest = max(2 * dropouts + colluders + 1, dropouts + colluders + 2)
    if parties < fewest:
        raise InvalidInput(
            f"{parties} parties with {dropouts} drop-outs and {colluders} colluders; allowed: at least {fewest} "
            "parties, which is 2 dropouts + colluders + 1, or dropouts + colluders + 2 if that is more"
        )
    neighbours = dropouts + colluders + 1
    neighbours += neighbours % 2
    if neighbours >= parties - 1:
        neighbours = parties - 1
    if neighbours > MOST_NEIGHBOURS:
        raise InvalidInput(
            f"{dropouts} drop-outs and {colluders} colluders of {parties} parties need {neighbours} neighbours; "
            f"allowed: at most {MOST_NEIGHBOURS}"
        )
    return neighbours, neighbours - dropouts


def survivors_quorum(*, parties: int, colluders: int) -> int:
    """How many that agree on one survivor set rule out a quorum for any other, as honest parties agree on only one."""
    return (parties + colluders) // 2 + 1


@dataclass(frozen=True)
class Graph:
    """The neighbours of every party. `seed`: 32 public bytes; `degree`: even, or parties - 1."""

    parties: int
    degree: int
    seed: bytes = field(repr=False)

    def neighbours(self, index: int) -> Int64[ndarray, " neighbours"]:
        """The parties that share masks with party `index`, in an order in which `reverse` finds the way back."""
        return self._ring[(self._places[index] + self._offsets) % self.parties]

    @cached_property
    def table(self) -> Int64[ndarray, "parties neighbours"]:
        """The neighbours of all parties."""
        return self._ring[(self._places[:, None] + self._offsets) % self.parties]

    @cached_property
    def reverse(self) -> Int64[ndarray, " neighbours"]:
        """Party i is neighbour `reverse[r]` of its neighbour r."""
        rows = {offset: row for row, offset in enumerate((self._offsets % self.parties).tolist())}
        return np.array([rows[-offset % self.parties] for offset in self._offsets.tolist()], dtype=np.int64)

    @cached_property
    def _offsets(self) -> Int64[ndarray, " neighbours"]:
        if self.degree == self.parties - 1:
            return np.arange(1, self.parties, dtype=np.int64)
        half = np.arange(1, self.degree // 2 + 1, dtype=np.int64)
        return np.concatenate([half, -half])

    @cached_property
    def _ring(self) -> Int64[ndarray, " parties"]:
        return np.argsort(key_stream(self.seed, self.parties, bits=64), kind="stable")

    @cached_property
    def _places(self) -> Int64[ndarray, " parties"]:
        return np.argsort(self._ring, kind="stable")
