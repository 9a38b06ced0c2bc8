"""DeployedStudy: a study between organisations, with what only they fix."""

from __future__ import annotations

from dataclasses import dataclass, fields

from protocols.crypto.identity import check_name
from protocols.errors import InvalidInput
from protocols.study.study import Study, party_of
from protocols.study.terms import Terms

_LONGEST_NAME = 500


@dataclass(frozen=True, kw_only=True)
class DeployedStudy(Study):
    """A study that nodes, a coordinator and guardians run: its digest is over the terms too.

    terms: what organisations fix besides the study. A simulation has a Study, and none of it.
    Raises InvalidInput, with the value and the allowed range, where the study and the terms do not go together.
    """

    terms: Terms

    def __post_init__(self) -> None:
        super().__post_init__()
        for seat in self.roster:
            check_name(party_of(seat.party))
        self._check_display_names()
        terms = self.terms
        if len(terms.class_names) != (states := self.labelled.states):
            raise InvalidInput(f"terms name {len(terms.class_names)} classes; allowed: the study's {states}")
        if terms.findings != self.findings:
            raise InvalidInput(f"terms are of the findings {terms.findings}; allowed: the study's, {self.findings}")
        if self.view == "histogram" and self.lattice is None:
            # Nothing is set aside of delta for float64 noise in this view (protocols/budgets/filter.py).
            raise InvalidInput(
                "confidentiality: units is missing; allowed with view 'histogram': a power of two, as nothing but "
                "noise in whole units, which is drawn exactly, has the delta that this view accounts for"
            )
        self.votes.check_deployed(unit=self.unit, pool=terms.pool_size)
        self.confidentiality.check_terms(terms)

    def _check_display_names(self) -> None:
        """A party's seats have one, or none, and no two parties the same."""
        parties: dict[str, str] = {}
        for seat in self.roster:
            shown, party = seat.display_name, party_of(seat.party)
            if shown is None:
                continue
            if not (shown.strip() and shown.isprintable() and len(shown) <= _LONGEST_NAME):
                raise InvalidInput(f"display_name is {shown[:80]!r}; allowed: printable text, up to {_LONGEST_NAME} "
                                   "characters")  # fmt: skip
            if parties.setdefault(shown, party) != party:
                raise InvalidInput(f"display_name {shown[:80]!r} is of two parties; allowed: each of one")
        if len(set(parties.values())) < len(parties):
            raise InvalidInput("a party has two display names; allowed: one for all of its seats")

    @property
    def queries_to_ask(self) -> int:
        """How many queries are asked in all, if budgets last: those of the pool, or those in which records vote."""
        return self.votes.asked(self.terms.pool_size)

    @property
    def sent_shape(self) -> tuple[int, ...]:
        """The shape of what is sent of a query: (0,) where only the number of queries is."""
        return self.confidentiality.sent(self.votes.sent(self.terms.input_shape))

    @property
    def who_asks(self) -> str:
        """The name of the organisation that asks the parties and gets the labels."""
        return self.confidentiality.who_asks(self.terms.coordinator)


def deployed(study: Study, terms: Terms) -> DeployedStudy:
    """The study between organisations that fix these terms. Raises InvalidInput as DeployedStudy does."""
    return DeployedStudy(**{field.name: getattr(study, field.name) for field in fields(Study)}, terms=terms)
