"""Protection: what the sentences about a study depend on, and what they say of its level of confidentiality and of what
votes: teachers, or protected units once (protocols/study/votes.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from protocols.errors import InvalidInput
from protocols.plural import at_most, counted

EACH_RECORD: Final = (
    "A patient with several records is not covered as a whole: each record on its own is. The unit 'patient' covers "
    "all that a hospital has of one."
)
SEVERAL_RECORDS: Final = (
    "A patient with several records at one hospital is covered as a whole only where that hospital names the patient's "
    "column (`data.patient`), as then all of them lie with one teacher; elsewhere only each record on its own is "
    "covered."
)
_ONE_RECORD = "A person with several records, or a whole hospital's data, is not what this ε protects."


@dataclass(frozen=True, kw_only=True)
class VoteWords:
    """What differs between kinds of votes.

    once: whether each unit's data are used once; units: whose data one epsilon protects, by the unit's name; views:
    what the adversary sees; of_pooled: the unit "record" where several teachers learn one; more_of_record: what that
    unit does not cover, without and with pooled data; several_records, unnamed: the same in a release, and in an
    approval without and with the patient's column named; every, sent, most: what a party's votes are called; charged,
    settled: when a query is charged, without and with outcomes that lower it; saw_clear, saw_first, saw_second: what
    the coordinator of clear votes, and the two servers saw; learned: and what else, if they departed from the protocol,
    with `{epsilon}`; guardian_sees_label: where the labels are public; refused: what else a guardian can do; kept,
    replies, released: what stays at a hospital, in its ledger, and with the coordinator; models: what erasing a record
    leaves.
    """

    once: bool
    units: dict[str, str]
    views: dict[str, str]
    of_pooled: str = ""
    more_of_record: tuple[str, str]
    several_records: str
    unnamed: tuple[str, str]
    every: str
    sent: str
    most: str
    charged: str
    settled: str
    saw_hospital: str
    saw_public: str
    saw_clear: str
    saw_first: str
    saw_second: str
    learned: str
    guardian_sees: str
    guardian_sees_label: str
    departs: str
    refused: str
    kept: str
    replies: str
    released: str
    models: str

    @property
    def sentences(self) -> dict[str, str]:
        """Its texts by name."""
        return {name: text for name, text in vars(self).items() if isinstance(text, str)}


_ABSENT = "which hospital was absent or refused; sizes of ledgers."
_SHARES = "Of every vote one of two shares, which alone says nothing."
_LABELS = "the released labels, which queries got none, and everything made from them"
_VOTES: Final = {
    "teacher": VoteWords(
        once=False,
        units={
            "record": "one record of one hospital, which lies with one teacher and moves one vote",
            "party": "all data of one hospital, which move the votes of all of its teachers",
        },
        views={
            "label": _LABELS,
            "histogram": "the noisy counts of votes behind each label, and everything made from them",
        },
        of_pooled="one record, which may be learned by several teachers, and moves the votes of all of them",
        more_of_record=(
            "A person with several records is covered where all of them lie with one teacher, which casts one vote; a "
            "whole hospital's data is not what this ε protects.",
            _ONE_RECORD,
        ),
        several_records=SEVERAL_RECORDS,
        unnamed=(f"data.patient is not set. {SEVERAL_RECORDS}", ""),
        every="every vote",
        sent="its models' votes",
        most="one vote",
        charged="Every query costs the same, answered or not. A batch is charged for good when it is asked; no "
        "outcome, true or false, changes a charge.",
        settled="A query that is not answered costs less. A batch is charged as if all of it were answered, and once "
        "lowered by a signed outcome at nodes that settle.",
        saw_hospital="the public queries, which of them were answered, and its own votes. Not the votes of others.",
        saw_public="the released labels, which queries were refused, the student trained on them, and this folder.",
        saw_clear=f"every hospital's votes on every query that it answered; {_ABSENT} No record and no teacher.",
        saw_first=f"labels, which queries were refused, {_ABSENT} {_SHARES}",
        saw_second="labels, which hospitals took part, which queries were refused. Of every vote the other share.",
        learned="; if it departed from the protocol, it learned at most a function of the noisy counts, up to "
        "epsilon {epsilon}",
        guardian_sees="which seats answered, whose votes were malformed, which queries were answered; no vote, no "
        "count and no label",
        guardian_sees_label="which seats answered, whose votes were malformed, which queries were answered, and the "
        "labels; no vote and no count",
        departs="A server that departs from the protocol can choose its own noise in one query, unnoticed with "
        "probability 1/4 a try: in at least one query with 58 %, before its third failure ends the study. With one "
        "hospital's help it can shift the counts and so flip labels, unnoticed; alone it is noticed if it enters "
        "counts that are not those of the votes. It learns at most a function of the noisy counts, "
        "with the other server's noise: labels, refusals, and one bit per batch by whether it breaks off (three that "
        "do end the study). That costs what noisy counts cost, up to epsilon {epsilon}; the figures charge labels, "
        "which holds against servers that run the protocol.",
        refused=" It can have honest hospitals' votes refused.",
        kept="its records, the models that it trained on them until it deletes them, what it approved, its ledger with "
        "a signed log of what was asked",
        replies="its own votes",
        released="the labels",
        models=" Models trained at the hospital hold the record until they are deleted and trained again.",
    ),
    "record": VoteWords(
        once=True,
        units={
            "record": "one record of one hospital, which votes {times} in the whole study",
            "patient": "all records of one patient at one hospital, which together have at most one vote, {times} in "
            "the whole study",
            "party": "all data of one hospital, which together have at most one vote, {times} in the whole study",
        },
        views={"histogram": "the noisy sums of all records' votes, and everything made from them"},
        more_of_record=(_ONE_RECORD, _ONE_RECORD),
        several_records=EACH_RECORD,
        unnamed=(EACH_RECORD, EACH_RECORD),
        every="the sum of each hospital's records' votes",
        sent="the sum of its records' votes",
        most="one vote per record",
        charged="The one batch is charged for good when it is asked; no outcome, true or false, changes a charge.",
        settled="The one batch is charged for good when it is asked; no outcome, true or false, changes a charge.",
        saw_hospital="the public queries and its own records' votes. Not the votes of others.",
        saw_public="the noisy sums, the labels and the student made from them, and this folder.",
        saw_clear=f"the sum of each hospital's records' votes, without noise; {_ABSENT} No record.",
        saw_first=f"the noisy sum of all hospitals' votes; {_ABSENT} {_SHARES}",
        saw_second="the noisy sum of all hospitals' votes; which hospitals took part. The other share.",
        learned="",
        guardian_sees="which seats answered, and the noisy sum of all their records' votes; of no single seat",
        guardian_sees_label="which seats answered, and the noisy sum of all their records' votes; of no single seat",
        departs="A server that departs from the protocol can change the sums. A hospital proves that the number "
        "of records it declares could give its sum, or one of that length; not that the records are true.",
        refused="",
        kept="its records, its settings, what it approved, its ledger with a signed log of what was asked",
        replies="its records' summed votes",
        released="the noisy sums, the labels",
        models="",
    ),
}
# A count says the same of records, but what is made of their sums.
_COUNT: Final = replace(
    _VOTES["record"],
    units={
        "record": "one record of one hospital, which is counted once in the whole study",
        "patient": "all records of one patient at one hospital, who is counted once in the whole study",
    },
    views={"histogram": "the noisy counts, and everything made from them"},
    every="each hospital's counts",
    sent="the counts of its records",
    most="one record in each column",
    saw_hospital="which columns are counted, and its own records' counts. Not the counts of others.",
    saw_public="the noisy counts, and this folder.",
    saw_clear=f"each hospital's counts, without noise; {_ABSENT} No record.",
    saw_first=f"the noisy counts of all hospitals together; {_ABSENT} {_SHARES}",
    saw_second="the noisy counts of all hospitals together; which hospitals took part. The other share.",
    guardian_sees="which seats answered, and the noisy counts of all of them together; of no single seat",
    guardian_sees_label="which seats answered, and the noisy counts of all of them together; of no single seat",
    replies="its counts",
    released="the noisy counts",
)
VOTES: Final = {**_VOTES, "count": _COUNT}


@dataclass(frozen=True, kw_only=True)
class LevelWords:
    """What the sentences about a study say of its level; `Protection.filled` fills in names and figures.

    not_protected_from: who can see votes, or more than the figures allow; who_sees_votes: also who adds the noise;
    noise: who adds how much; servers: who saw what and what protects from them, () at a level without a release; how:
    how what leaves a hospital hides its votes; replies: how its ledger keeps them; keeps: what the coordinator keeps of
    them; within: what limits the coordinator; guarded: whether a guardian holds the second share of each vote;
    guardian_sees: what one that approves a study will see; departs: what one of two servers can do that departs from
    the protocol; custodians: who beside the hospital could find a person; asked: what hospitals vote on; public: what
    of that nothing protects; elsewhere: what else counts against a hospital's cap.
    """

    not_protected_from: str
    who_sees_votes: str
    noise: str
    servers: tuple[tuple[str, str, str], ...]
    how: str
    replies: str
    keeps: str
    within: str = ", and the coordinator, as far as said below"
    guarded: bool = False
    guardian_sees: str = ""
    departs: str = ""
    custodians: str = "The coordinator holds no records, and cannot find a person in what it has."
    asked: str = "public queries"
    public: tuple[str, ...] = (
        "The public queries: every hospital knows them, and nothing protects the people they are about.",
    )
    elsewhere: tuple[str, ...] = ()


_TOGETHER = "{asks} and the guardian together: if they collude they see {every}"
_COMPUTATIONAL = "as the public; {figures}; computational, if it does not collude with"
_OTHERWISE = (
    "By departing from the computation, either of them can make a model vote on something that is not the query: it is "
    "still one vote, and neither learns more about it."
)
_TWO_SERVER = LevelWords(
    not_protected_from=f"{_TOGETHER}. {{departs}} Against one server alone the figures are computational.",
    who_sees_votes="nobody sees a vote, unless {asks} and the guardian {guardian} collude; each adds noise",
    noise="Each of the two servers adds noise of its own, of the size stated here, also to a threshold: together "
    "{votes:.4g} votes (standard deviation) to each count. The figures count on one server's alone.",
    servers=(
        ("the coordinator, {coordinator}", "{saw_first}", f"{_COMPUTATIONAL} the guardian{{learned}}"),
        ("the guardian, {guardian}", "{saw_second}", f"{_COMPUTATIONAL} the coordinator{{learned}}"),
    ),
    how="in two shares, neither of which says anything alone",
    replies="{replies} as two shares: the coordinator's in the clear, the guardian's sealed to the guardian's key",
    keeps="It deletes its shares of votes and the seed of its noise when a batch is released.",
    guarded=True,
    guardian_sees="{guardian_sees_label}",
    departs="{departs}",
    custodians="Neither coordinator nor guardian holds records, and neither can find a person in what it has.",
)
LEVEL_WORDS: Final = {
    "clear": LevelWords(
        not_protected_from="{asks}: it sees {every} in the clear, draws the noise, and is trusted with both. These "
        "figures protect nobody from its operator, or from anyone who breaks into it.",
        who_sees_votes="{asks} sees {every}, draws the noise, and is trusted with both",
        noise="{Asks} adds all of the noise: {votes:.4g} votes (standard deviation) to each count.",
        servers=(
            (
                "the coordinator, {coordinator}",
                "{saw_clear}",
                "none by differential privacy: it is trusted, by contract",
            ),
        ),
        how="which the coordinator reads",
        replies="{replies}",
        keeps="Its software writes no hospital's votes to disk, but it sees them: that its operator keeps none rests "
        "on a contract alone.",
        within="",
    ),
    "secure_sum": LevelWords(
        not_protected_from="{asks} together with more than {hospitals}: what they know together about votes and noise "
        "weakens or undoes these figures. A hospital can add any vector to the sum: nothing limits it to {most}.",
        who_sees_votes="{asks} sees noisy sums of all votes and no vote, as long as at most {hospitals} collude with "
        "it; each hospital adds some of the noise",
        noise="Each hospital adds a part of the noise: {votes:.4g} votes (standard deviation) to each count if all "
        "vote. The figures count on the part of the honest ones alone.",
        servers=(
            (
                "the coordinator, {coordinator}",
                "for each query the noisy histogram of all votes together; which hospital was absent or refused; sizes "
                "of ledgers. No vote of a single hospital.",
                "as the public; {figures}, if at most {hospitals} collude with it",
            ),
        ),
        how="with noise and under masks, so that only the sum over all hospitals can be read",
        replies="{replies}, masked; the secrets of the masks are deleted when a batch's outcome comes",
        keeps="It deletes what belongs to a batch's masks when the batch is released.",
    ),
    "two_server": _TWO_SERVER,
    "hidden_queries": replace(
        _TWO_SERVER,
        not_protected_from=f"{_TOGETHER}, and the models that answered. {{departs}} {_OTHERWISE} Against one server "
        "alone the figures are computational.",
        servers=(),
        guardian_sees="{guardian_sees}",
        departs=f"{{departs}} {_OTHERWISE}",
        asked="queries that only the hospital that asks can read",
        public=(),
        elsewhere=("Queries of other hospitals, in studies of their own: all count against the cap above.",),
    ),
}


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
        of_pooled = self.said.of_pooled if self.pooled and self.unit == "record" else ""
        return of_pooled or self.said.units[self.unit].format(times="twice" if self.residuals else "once")

    @property
    def view_in_words(self) -> str:
        """What the adversary sees, from whom an epsilon protects."""
        return self.said.views[self.view]

    @property
    def figures(self) -> str:
        """What an epsilon refers to, in the terms of the literature."""
        return f"unit {self.unit}, adjacency {self.adjacency}, view {self.view}"
