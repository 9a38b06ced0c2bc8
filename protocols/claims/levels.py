"""What the sentences about a study say of its level of confidentiality."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


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
