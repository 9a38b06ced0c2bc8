"""What an epsilon covers, and what it does not: for a release, an approval and a report."""

from __future__ import annotations

from typing import Final

from protocols.claims.protection import Protection
from protocols.claims.strength import Figure, strength
from protocols.claims.who_sees import not_protected_from
from protocols.errors import InvalidInput
from protocols.plural import at_most

SEVERAL: Final = (
    "A patient known to several hospitals moves the votes of all of them; no single hospital's epsilon covers that "
    "patient."
)
# Of a patient known to up to `hospitals` of them: what the figures are for; where a record is the unit; where
# hospitals say at how many.
UP_TO: Final = (
    "A patient may be known to up to {hospitals} of the hospitals: every figure is for the patient, with what all of "
    "these "
    "hold, and is one guarantee. Nothing enforces that {hospitals} are enough: a patient known to more is protected "
    "less."
)
EACH_HAS_ONE: Final = "The protected unit is a record, so this is for a patient with one record at each of them."
DECLARED: Final = (
    "This trusts each hospital to say truly at how many of them a patient is known, as nobody can check it: a patient "
    "whom it calls known to one alone moves the whole of a vote there."
)
SEVERAL_COST: Final = (
    "The loss has to be computed anew at the sum of these hospitals' weights, and grows with the square of that sum: "
    "for k hospitals of equal weight about k² times the spend of one, not k times."
)
SEVERAL_FIGURES: Final = (
    f"{SEVERAL} Each figure bounds the worst choice of so many hospitals, whoever took part, was absent or stopped "
    "early, from the hospitals' caps alone; for the unit 'record', the patient has one record at each of them. "
    "Where a figure is missing, delta is smaller than the reserve for rounded noise (for float64 noise, at an epsilon "
    "of about 15 or more): nothing is guaranteed."
)
EARLIER: Final = (
    "The figures hold for one unit (named with them, the smallest of these releases' units) whose data were in all of "
    "these releases under the same hospital name; for the unit 'record', a patient has one record at each hospital. It "
    "is assumed that every release of the consortium that used these data is listed, that each one's figures hold, and "
    "that no budget was chosen by looking at private data. Epsilons add up, or Renyi divergences at one common order, "
    "whichever is less; deltas add up."
)
COUNTED_LIFETIME: Final = (
    "This study's queries are counted and composed exactly, which holds for the study alone: with other studies it is "
    "added up in Renyi differential privacy, so it may take more of a lifetime cap than its own epsilon."
)
COUNTED_SPEND: Final = (
    "A seat's epsilon is that of its counted queries, composed exactly. Its order and spend are only for composing "
    "this release with others: alone they may convert to a larger epsilon."
)
CONVERTED_SPEND: Final = "A seat's epsilon follows from its order and spend."
WHOLE_PATIENT: Final = (
    "data.patient is set: all records of a patient here lie with one teacher and move one vote, so the figure covers "
    "the patient as a whole."
)
POPULATION: Final = (
    "What the labels reveal about a person because it is true of the population: differential privacy bounds "
    "what one person's data add, not what is true of everybody."
)
OWN_RECORDS: Final = (
    "Records of the hospital that asks are protected by private inference, as long as no two of it, a hospital that "
    "answers and the guardian collude: no epsilon covers them."
)
SIMULATED: Final = (
    "The noise of a simulation comes from a NumPy generator with a known seed. It protects nobody; a real study draws "
    "cryptographic noise."
)
_SECRET: Final = (
    "Anyone who learns which votes entered a query: figures of secret participation rely on coins that only the "
    "hospital sees."
)
_OF_A_RELEASE: Final = (
    "What a hospital does outside this study: other uses of the same data, models of its own, its own logs.",
    "Releases of other consortia or queriers on the same data. Each hospital's node counts them against one lifetime "
    "cap, which this statement does not know.",
    "Whether labels or student are right: a guarantee of privacy says nothing about accuracy or clinical fitness.",
    "Side channels: how long a hospital took to answer, and when, is seen by the coordinator and the network; the "
    "audit log in this release shows when each batch was asked and settled.",
    "Absences: that a hospital was absent or refused is public, and is assumed not to depend on its patients' data.",
)


def often_asked(residuals: bool) -> str:
    """How often units that vote are asked; residuals: whether there is a second sum, of those."""
    return "twice, the second time about what the first showed, for one charge" if residuals else "once"


def several(study: Protection) -> str:
    """What an epsilon means for a patient known to several hospitals."""
    if study.hospitals == 1:
        return SEVERAL
    said = UP_TO.format(hospitals=study.hospitals)
    if study.unit == "record":
        said += f" {EACH_HAS_ONE}"
    return f"{said} {DECLARED}" if study.declared else said


def publishable(study: Protection) -> str:
    """Why the guaranteed figures of a release may be published, and what they rest on."""
    rests = (
        "what the released labels cost: a node that settles believes the coordinator's signed outcomes, which `verify` "
        "compares with the labels."
        if study.settles
        else "each batch that it answered: what a batch costs depends on no outcome, so no node has to believe one."
    )
    return (
        "The guaranteed figures follow from budgets and noise that were fixed before the first query, not from votes: "
        f"they are safe to publish. They hold if each node charged {rests} The budget used is an operator's reading of "
        "the ledger, not an epsilon."
    )


def charged(study: Protection) -> str:
    """When a query is charged, and whether what was answered changes that."""
    return study.said.settled if study.settles else study.said.charged


def not_covered_by_release(study: Protection) -> list[str]:
    """What the figures of a release do not cover."""
    lines = [_sentence(not_protected_from(study)), *_OF_A_RELEASE, POPULATION]
    if study.unit == "record":
        lines.append(study.said.several_records)
    return [*lines, *([_SECRET] if study.secret else []), *study.at.public]


def not_covered_by_approval(study: Protection, *, patient_named: bool) -> list[str]:
    """What a hospital is told before it approves. patient_named: whether its settings name the patient's column."""
    more = " The release's statement says how much it may cost them." if study.hospitals == 1 else ""
    lines = [_sentence(not_protected_from(study)), several(study) + more]
    lines.append("Other releases about these data that do not go through this node.")
    lines += study.at.elsewhere
    if study.unit == "record" and (unnamed := study.said.unnamed[patient_named]):
        lines.append(unnamed)
    if study.unit != "party":
        lines.append(POPULATION)
    return lines + ([_SECRET] if study.secret else [])


def used_once(study: Protection, figure: Figure, *, voted: bool = True) -> str:
    """What the epsilon of a study in which records vote means for one unit of a seat.

    voted: whether the seat did not stay away. Raises InvalidInput where teachers vote.
    """
    if not study.said.once:
        raise InvalidInput("teachers vote in the study; allowed: one in which records do, each once")
    if not voted:
        return "Nothing that was released depends on data of this seat: it has no vote in the released sums."
    whose = {"record": "Each record's data are", "patient": "Each patient's data are", "party": "All data are"}
    where = f" at up to {study.hospitals} hospitals together" if study.hospitals > 1 else ""
    used, made = ("twice, in two noisy sums", "them") if study.residuals else ("once, in one noisy sum", "that sum")
    return (
        f"{whose[study.unit]} used {used}, and this costs at most epsilon "
        f"{at_most(figure.epsilon)} at delta {at_most(figure.delta)}{where}, for ever: whatever is made of {made} "
        "later (labels, students, a choice between them) costs nothing more."
    )


def promise(study: Protection, figure: Figure) -> str:
    """What a figure promises a unit, against whom, in two sentences."""
    return f"The unit is {study.unit_in_words}. Of anyone who sees {study.view_in_words}: {strength(figure)}"


def caveats(study: Protection) -> list[tuple[str, str]]:
    """Against whom an epsilon in a report holds, and what it covers: headings, each with its sentences."""
    against = (
        (
            "It holds against whoever sees the labels",
            "and abstentions: the public, the querying hospital, the student's users. It does not hold against "
            "somebody who sees noisy counts or votes.",
        )
        if study.view == "label"
        else (
            "It holds against whoever sees the noisy counts",
            "and so against whoever sees only the labels. It does not hold against somebody who sees the votes.",
        )
    )
    return [
        against,
        ("It does not protect from", not_protected_from(study)),
        (f"It protects {study.unit_in_words}.", _more_of_unit(study)),
        (
            "A patient known to several hospitals is covered by no single hospital's ε.",
            f"Their data moves the votes of all those hospitals. {SEVERAL_COST}",
        )
        if study.hospitals == 1
        else ("A patient known to several hospitals.", several(study)),
    ]


def _more_of_unit(study: Protection) -> str:
    """What else an epsilon of this unit covers, or does not."""
    if study.unit == "party":
        return "So it protects every record and every person of that hospital alone."
    if study.unit == "patient":
        return "So it protects all records of that patient there. A whole hospital's data is not what it protects."
    return study.said.more_of_record[study.pooled]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
