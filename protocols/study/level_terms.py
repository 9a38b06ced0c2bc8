"""Who may see a vote: the level of confidentiality that a study names, and what the level needs.

- clear: the coordinator sees votes and adds the noise; it is trusted with both.
- secure_sum: the coordinator sees the noisy histogram only; each party adds its share of the noise (Bonawitz et al.
  2017). Semi-honest coordinator, fewer colluding parties than the terms say.
- two_server: votes are shared between the coordinator and a guardian, another organisation; each adds the full noise,
  and a garbled circuit gives the label. Both semi-honest, and not colluding.
- two_server with a querier: a hospital outside the roster asks about records of its own, which nobody else sees. It is
  the first server, and models answer under the guardian's randomness (protocols/levels/hidden_queries/querier.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from protocols.crypto.identity import check_name
from protocols.errors import InvalidInput
from protocols.ranges import check
from protocols.votes import LATTICE

LEVELS = ("clear", "secure_sum", "two_server")
# What each level needs besides its name; `units` is optional where votes are clear, _OPTIONAL at two_server.
_NEEDS = {
    "clear": (),
    "secure_sum": ("units", "colluders"),
    "two_server": ("units", "abstention", "guardian", "sealing_key", "signing_key"),
}
_OPTIONAL = ("querier", "input_bound")


@dataclass(frozen=True, kw_only=True)
class Confidentiality:
    """The level and its terms.

    level: one of LEVELS; units: lattice units a vote, a power of two from 2 to 2**20: weights, threshold and noise are
    whole numbers of them (None, for `clear` alone: real-valued noise); colluders: parties that may collude with the
    coordinator, >= 0; abstention: whether a vote may be for no class at all, which nobody then sees; guardian: the
    name in the guardian's certificate; sealing_key, signing_key: its public keys, X25519 and Ed25519, in hexadecimal;
    querier: the party that asks about hidden records of its own, None where queries are public; input_bound: with a
    querier, no value of a query is larger in size.
    Raises InvalidInput, with the value and the allowed range.
    """

    level: str
    units: int | None = None
    colluders: int | None = None
    abstention: bool | None = None
    guardian: str | None = None
    sealing_key: str | None = None
    signing_key: str | None = None
    querier: str | None = None
    input_bound: float | None = None

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InvalidInput(f"confidentiality: level is {self.level!r}; allowed: {', '.join(LEVELS)}")
        for field in fields(self):
            value, needed = getattr(self, field.name), field.name in _NEEDS[self.level]
            if field.name in _OPTIONAL and self.level == "two_server":
                continue
            if needed and value is None:
                raise InvalidInput(f"confidentiality: {field.name} is missing; level {self.level!r} needs it")
            if value is not None and not needed and field.name not in ("level", "units"):
                raise InvalidInput(
                    f"confidentiality: {field.name} is {value!r}; level {self.level!r} has no use for it: leave it out"
                )
        units = self.units
        if units is not None and (check("study", "confidentiality.units", units) & (units - 1)) != 0:
            raise InvalidInput(f"confidentiality: units is {units}; allowed: a power of two from 2 to {LATTICE}")
        if self.colluders is not None:
            check("study", "confidentiality.colluders", self.colluders)
        if self.guardian is not None:
            check_name(self.guardian)
        if (self.querier is None) != (self.input_bound is None):
            raise InvalidInput("confidentiality: querier and input_bound go together: give both or none")
        if self.querier is not None:
            check_name(self.querier)
        if self.input_bound is not None and not 0 < self.input_bound <= 2**20:
            raise InvalidInput(f"confidentiality: input_bound is {self.input_bound}; allowed: above 0, at most 2**20")
        for name in ("sealing_key", "signing_key"):
            key = getattr(self, name)
            if key is not None and not re.fullmatch("[0-9a-f]{64}", key):
                raise InvalidInput(f"confidentiality: {name} is {key[:80]!r}; allowed: 64 hexadecimal digits")

    @property
    def signs(self) -> bool:
        """Whether parties sign steps with the keys that the roster names."""
        return self.level == "secure_sum" or self.querier is not None


CLEAR = Confidentiality(level="clear")
