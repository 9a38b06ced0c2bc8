"""Protection: what the sentences about a study depend on."""

from __future__ import annotations

from dataclasses import dataclass

from protocols.claims.levels import LEVEL_WORDS, LevelWords
from protocols.claims.votes import VOTES, VoteWords
from protocols.errors import InvalidInput
from protocols.plural import at_most, counted


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What the sentences about a study depend on.

    asks: who asks and adds votes up: the coordinator, or with hidden queries the hospital that asks; guardian: "" for
    none; colluders: of secure_sum; secret: whether votes enter by coins that only their party sees; pooled: whether
    records of all parties are pooled, so that one may be learned by several teachers (a simulation of upsampling);
    votes: what votes, "teacher" or "record"; settles: whether a query that is not answered costs less, so that outcomes
    lower charges; counts_epsilon: where teachers vote and a guardian is there, the largest epsilon of
    a seat whose queries are all charged as noisy counts, of which a server that departs from the protocol may see more
    than labels; hospitals: at how many a unit may be known, as each is charged; declared: whether hospitals say of each
    unit at how many it is, and divide it among them; judges: whether some units do not vote, but judge the model;
    residuals: whether all are asked once more, how far the first sum's scores are from their labels.
    Raises InvalidInput for a level, unit or view of which nothing is said here.
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
    votes: str = "teacher"
    settles: bool = True
    counts_epsilon: float = 0.0
    hospitals: int = 1
    declared: bool = False
    judges: bool = False
    residuals: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("level", LEVEL_WORDS), ("unit", self.said.units), ("view", self.said.views)):
            if getattr(self, name) not in allowed:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}")

    @property
    def at(self) -> LevelWords:
        """What is said of the level."""
        return LEVEL_WORDS[self.level]

    @property
    def said(self) -> VoteWords:
        """What is said of what votes."""
        return VOTES[self.votes]

    def filled(self, text: str, **more: object) -> str:
        """A sentence about the level, with the study's names and figures in it, and what is said of what votes."""
        said = {name: text.format(epsilon=at_most(self.counts_epsilon)) for name, text in self.said.sentences.items()}
        return text.format(
            asks=self.asks,
            Asks=self.asks[:1].upper() + self.asks[1:],
            guardian=self.guardian,
            figures=self.figures,
            hospitals=counted(self.colluders, "hospital"),
            **said,
            **more,
        )

    @property
    def guarded(self) -> bool:
        """Whether a guardian holds the second share of each vote."""
        return self.at.guarded

    @property
    def unit_in_words(self) -> str:
        """Whose data one epsilon protects."""
        return (self.said.of_pooled if self.pooled and self.unit == "record" else "") or self.said.units[self.unit]

    @property
    def view_in_words(self) -> str:
        """What the adversary sees, from whom an epsilon protects."""
        return self.said.views[self.view]

    @property
    def figures(self) -> str:
        """What an epsilon refers to, in the terms of the literature."""
        return f"unit {self.unit}, adjacency {self.adjacency}, view {self.view}"
