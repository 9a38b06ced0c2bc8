"""Protection: what the sentences about a study depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocols.errors import InvalidInput

LEVEL_NAMES: Final = ("clear", "secure_sum", "two_server", "hidden_queries")


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What the sentences about a study depend on.

    asks: who asks and adds votes up: the coordinator, or with hidden queries the hospital that asks; guardian: "" for
    none; colluders: of secure_sum; secret: whether votes enter by coins that only their party sees; pooled: whether
    records of all parties are pooled, so that one may be learned by several teachers (a simulation of upsampling);
    records: whether records vote, each once, and no teachers; settles: whether a query that is not answered costs less,
    so that outcomes lower charges; counts_epsilon: where teachers vote and a guardian is there, the largest epsilon of
    a seat whose queries are all charged as noisy counts, of which a server that departs from the protocol may see more
    than labels. Raises InvalidInput for a level, unit or view of which nothing is said here.
    """

    level: str
    unit: str
    view: str
    adjacency: str
    asks: str
    guardian: str = ""
    colluders: int = 0
    secret: bool = False
    pooled: bool = False
    records: bool = False
    settles: bool = True
    counts_epsilon: float = 0.0

    def __post_init__(self) -> None:
        known: dict[str, tuple[str, ...]] = {
            "level": LEVEL_NAMES,
            "unit": ("record", "patient", "party") if self.records else ("record", "party"),
            "view": ("histogram",) if self.records else ("label", "histogram"),
        }
        for name, allowed in known.items():
            if getattr(self, name) not in allowed:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}")

    @property
    def guarded(self) -> bool:
        """Whether a guardian holds the second share of each vote."""
        return self.level in ("two_server", "hidden_queries")

    @property
    def hides_queries(self) -> bool:
        """Whether only the hospital that asks sees the queries."""
        return self.level == "hidden_queries"

    @property
    def unit_in_words(self) -> str:
        """Whose data one epsilon protects."""
        if self.records:
            if self.unit == "record":
                return "one record of one party, which votes once in the whole study"
            whose = "all records of one patient at one party" if self.unit == "patient" else "all data of one party"
            return f"{whose}, which together have at most one vote, once in the whole study"
        if self.unit == "party":
            return "all data of one party, which move the votes of all of its teachers"
        if self.pooled:
            return "one record, which may be learned by several teachers, and moves the votes of all of them"
        return "one record of one party, which lies with one teacher and moves one vote"

    @property
    def view_in_words(self) -> str:
        """What the adversary sees, from whom an epsilon protects."""
        if self.view == "label":
            return "the released labels, which queries got none, and everything made from them"
        if self.records:
            return "the noisy sums of all records' votes, and everything made from them"
        return "the noisy counts of votes behind each label, and everything made from them"

    @property
    def figures(self) -> str:
        """What an epsilon refers to, in the terms of the literature."""
        return f"unit {self.unit}, adjacency {self.adjacency}, view {self.view}"
