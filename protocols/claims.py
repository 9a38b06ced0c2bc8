"""Every sentence about who is protected, from whom, by what, and what is not covered: each is written only here.

Pages, terminal output and the text before an approval combine them for their readers. They depend on the study
(`Protection`), so none claims more than its level, unit, view and participation give. The mathematics behind them is in
docs/explanation/mathematics.md, and what attackers can do in docs/explanation/threat-model.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final

from protocols.errors import InvalidInput

LEVELS: Final = ("clear", "secure_sum", "two_server", "hidden_queries")


@dataclass(frozen=True, kw_only=True)
class Protection:
    """What the sentences about a study depend on.

    asks: who asks and adds votes up: the coordinator, or with hidden queries the hospital that asks; guardian: "" for
    none; colluders: of secure_sum; secret: whether votes enter by coins that only their party sees; pooled: whether
    records of all parties are pooled, so that one may be learned by several teachers (a simulation of upsampling).
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

    def __post_init__(self) -> None:
        known = {"level": LEVELS, "unit": ("record", "party"), "view": ("label", "histogram")}
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
        return "the noisy counts of votes behind each label, and everything made from them"

    @property
    def figures(self) -> str:
        """What an epsilon refers to, in the terms of the literature."""
        return f"unit {self.unit}, adjacency {self.adjacency}, view {self.view}"


PUBLISHABLE: Final = (
    "The guaranteed figures follow from budgets and noise that were fixed before the first query, not from votes: they "
    "are safe to publish. They hold if each node charged what the released labels cost: a node that settles believes "
    "the coordinator's signed outcomes, which `verify` compares with the labels. The budget used is an operator's "
    "reading of the ledger, not an epsilon."
)
SEVERAL: Final = (
    "A patient known to several hospitals moves the votes of all of them; no single hospital's epsilon covers that "
    "patient."
)
SEVERAL_COST: Final = (
    "The loss has to be computed anew at the sum of these parties' weights, and grows with the square of that sum: for "
    "k hospitals of equal weight about k² times the spend of one, not k times."
)
SEVERAL_FIGURES: Final = (
    f"{SEVERAL} Each figure bounds the worst choice of so many hospitals, whoever took part, was absent or stopped "
    "early, from the hospitals' caps alone; for the unit 'record', the patient has one record at each of them. "
    "Where a figure is missing, delta is smaller than the reserve for rounded noise (for float64 noise, at an epsilon "
    "of about 15 or more): nothing is guaranteed."
)
EARLIER: Final = (
    "The figures hold for a patient whose data were in all of these releases under the same party name. It is "
    "assumed that every release of the consortium that used these data is listed, that each one's figures hold, and "
    "that no budget was chosen by looking at private data. Epsilons add up, or Renyi divergences at one common order, "
    "whichever is less; deltas add up."
)
SEVERAL_RECORDS: Final = (
    "A patient with several records at one hospital is covered as a whole only where that hospital names the patient's "
    "column (`data.patient`), as then all of them lie with one teacher; elsewhere only each record on its own is "
    "covered."
)
POPULATION: Final = (
    "What the labels reveal about a person because it is true of the population: differential privacy bounds "
    "what one person's data add, not what is true of everybody."
)
OWN_RECORDS: Final = (
    "Records of the hospital that asks are protected by private inference, as long as no two of it, a hospital that "
    "answers and the guardian collude: no epsilon covers them."
)
OWN_TRAINING: Final = (
    "Nothing: training on its own labelled records is not differentially private, and no epsilon covers them."
)
ANY_VOTES: Final = "The same cap: the bound holds for any votes of the others, known or not."
ONE_SERVER: Final = (
    "The same cap, computationally: it is accounted with the noise of one server, and the votes are secret-shared."
)
SIMULATED: Final = (
    "The noise of a simulation comes from a NumPy generator with a known seed. It protects nobody; a real study draws "
    "cryptographic noise."
)
_SECRET: Final = (
    "Anyone who learns which votes entered a query: figures of secret participation rely on coins that only the party "
    "sees."
)
_PUBLIC_QUERIES: Final = "The public queries: every party knows them, and nothing protects the people they are about."
_OF_A_RELEASE: Final = (
    "What a hospital does outside this study: other uses of the same data, its teachers' files, its own logs.",
    "Releases of other consortia or queriers on the same data. Each hospital's node counts them against one lifetime "
    "cap, which this statement does not know.",
    "Whether labels or student are right: a guarantee of privacy is none of accuracy or fitness for clinical use.",
    "Side channels: how long a party took to answer, and when, is seen by the coordinator and the network; the audit "
    "log in this release shows when each batch was asked and settled.",
    "Absences: that a party was absent or refused is public, and is assumed not to depend on its patients' data.",
)


def not_protected_from(study: Protection) -> str:
    """Who can see votes, or more than the figures allow, at the study's level."""
    asks = study.asks
    match study.level:
        case "clear":
            return (
                f"{asks}: it sees every vote in the clear, draws the noise, and is trusted with both. These figures "
                "protect nobody from its operator, or from anyone who breaks into it."
            )
        case "secure_sum":
            return (
                f"{asks} together with more than {study.colluders} parties: what they know together about votes and "
                "noise weakens or undoes these figures. A party can add any vector to the sum: nothing limits it to "
                "one vote."
            )
        case _:
            more = (
                f" Nor is a hospital's model protected from the guardian together with {asks} or with the operator."
                if study.hides_queries
                else ""
            )
            return (
                f"{asks} and the guardian together: if they collude they see every vote.{more} A server that departs "
                "from the protocol can flip labels, and learn more of the counts than labels show, a bit for each "
                "attempt. Against one server alone the figures are computational."
            )


def who_sees_votes(study: Protection) -> str:
    """Who sees a vote and who adds the noise, in one sentence."""
    match study.level:
        case "clear":
            return f"{study.asks} sees every vote, draws the noise, and is trusted with both"
        case "secure_sum":
            return (
                f"{study.asks} sees noisy sums of all votes and no vote, as long as at most {study.colluders} parties "
                "collude with it; each party adds some of the noise"
            )
        case _:
            return f"nobody sees a vote, unless {study.asks} and the guardian {study.guardian} collude; each adds noise"


def not_covered_by_release(study: Protection) -> list[str]:
    """What the figures of a release do not cover."""
    lines = [_sentence(not_protected_from(study)), *_OF_A_RELEASE, POPULATION]
    lines += [SEVERAL_RECORDS] if study.unit == "record" else []
    lines += [_SECRET] if study.secret else []
    lines += [_PUBLIC_QUERIES] if not study.hides_queries else []
    return lines


def who_saw_what(study: Protection, *, coordinator: str) -> list[dict[str, str]]:
    """Who saw what in a study of public queries, and what protects the hospitals' data from them.

    coordinator: its name. Raises InvalidInput for a study of hidden queries, which has no release.
    """
    if study.hides_queries:
        raise InvalidInput("level is 'hidden_queries'; allowed: one of public queries, as no other has a release")
    return [
        *_servers(study, coordinator),
        _saw(
            "each hospital",
            "the public queries, which of them were answered, and its own votes. Not the votes of others.",
            "as the public, for the data of the other hospitals",
        ),
        _saw(
            "the public, and whoever holds this release",
            "the released labels, which queries were refused, the student trained on them, and this folder.",
            f"the epsilons below; {study.figures}",
        ),
        _saw("the network between them", "encrypted traffic: sizes and times", "mutual TLS"),
    ]


def _servers(study: Protection, coordinator: str) -> list[dict[str, str]]:
    who, public = f"the coordinator, {coordinator}", f"as the public; {study.figures}"
    absent = "which party was absent or refused; sizes of ledgers."
    if study.level == "clear":
        saw = f"every party's votes on every query it answered, in the clear; {absent} No record and no teacher."
        return [_saw(who, saw, "none by differential privacy: it is trusted, by contract")]
    if study.level == "secure_sum":
        saw = f"for each query the noisy histogram of all votes together; {absent} No vote of a single party."
        return [_saw(who, saw, f"{public}, if at most {study.colluders} hospitals collude with it")]
    shares = "Of every vote one of two shares, which alone says nothing."
    return [
        _saw(
            who,
            f"labels, which queries were refused, {absent} {shares}",
            f"{public}; computational, if it does not collude with the guardian",
        ),
        _saw(
            f"the guardian, {study.guardian}",
            "which parties took part, which queries were refused. Of every vote the other share, and no label.",
            f"{public}; computational, if it does not collude with the coordinator",
        ),
    ]


def _saw(who: str, saw: str, protection: str) -> dict[str, str]:
    return {"who": who, "saw": saw, "protection": protection}


def not_covered_by_approval(study: Protection, *, patient_named: bool) -> list[str]:
    """What a hospital is told before it approves. patient_named: whether its settings name the patient's column."""
    lines = [_sentence(not_protected_from(study)), f"{SEVERAL} The release's statement says how much it may cost them."]
    lines.append("Other releases about these data that do not go through this node.")
    if study.hides_queries:
        lines.append("Queries of other hospitals, in studies of their own: all count against the cap above.")
    if study.unit == "record":
        if not patient_named:
            lines.append(f"data.patient is not set. {SEVERAL_RECORDS}")
        lines.append(POPULATION)
    return lines + ([_SECRET] if study.secret else [])


def guardian_sees(study: Protection) -> str:
    """What a guardian that approves a study will see. Raises InvalidInput for a level without a guardian."""
    if not study.guarded:
        raise InvalidInput(f"level is {study.level!r}; allowed: two_server, hidden_queries, which have a guardian")
    return (
        "which seats answered, whose votes were malformed, and which queries were answered; no vote, no count and no "
        "label"
    )


def not_covered_by_guardian(study: Protection) -> list[str]:
    """What a guardian is told before it approves a study."""
    return [
        f"If you and {study.asks} combine what you hold, votes are in the clear; nobody else prevents that.",
        "A server that departs from the protocol can spoil labels, or learn a bit of a vote for each attempt.",
    ]


def promise(study: Protection, epsilon: float) -> str:
    """What an epsilon promises a unit, as a bound on a guess (Wasserman and Zhou 2010, at prior odds of one)."""
    sure = 100 / (1 + exp(-epsilon))
    bound = (
        "may come to know which it is: so large an epsilon promises next to nothing"
        if sure > 99
        else f"can become at most {sure:.0f} % sure which it is, except with probability delta"
    )
    return (
        f"The unit is {study.unit_in_words}. Anyone who sees {study.view_in_words}, and thought two values of it "
        "equally "
        f"likely, {bound}"
    )


def caveats(study: Protection) -> list[tuple[str, str]]:
    """Against whom an epsilon in a report holds, and what it covers: headings, each with its sentences."""
    against = (
        (
            "It holds against whoever sees the labels",
            "and abstentions: the public, the querying party, the student's users. It does not hold against somebody "
            "who sees noisy counts or votes.",
        )
        if study.view == "label"
        else (
            "It holds against whoever sees the noisy counts",
            "and so against whoever sees only the labels. It does not hold against somebody who sees the votes.",
        )
    )
    more = (
        "A person with several records is covered where all of them lie with one teacher, which casts one vote; a "
        "whole party's data is not what this ε protects."
        if study.unit == "record" and not study.pooled
        else "A person with several records, or a whole party's data, is not what this ε protects."
        if study.unit == "record"
        else "So it protects every record and every person of that party alone."
    )
    return [
        against,
        ("It does not protect from", not_protected_from(study)),
        (f"It protects {study.unit_in_words}.", more),
        (
            "A patient known to several hospitals is covered by no single party's ε.",
            f"Their data moves the votes of all those hospitals. {SEVERAL_COST}",
        ),
    ]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
