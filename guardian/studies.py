"""The studies that a guardian approved: how one is approved, and each one's ledger, opened when asked for.

Each study has a folder with its terms and its ledger, created in one step.
"""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass
from typing import Any  # the values of a JSON object

import numpy as np

from guardian.home import GuardianHome
from protocols.claims.who_sees import guardian_sees, not_covered_by_guardian
from protocols.crypto.fingerprints import phrase
from protocols.crypto.identity import check_name
from protocols.crypto.randomness import RandomSource
from protocols.errors import ConclaveError, InvalidInput, Refused
from protocols.ledger.ledger import Ledger
from protocols.levels.guardian import Guardian
from protocols.plural import at_most
from protocols.private_files import private_folder
from protocols.refusals.code import Code
from protocols.study.chosen import CHOSEN, GIVEN
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import guarded
from protocols.study.protection import protection_of
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.wire.guardian.greeting import GuardedStudy, check_terms_apart
from runtime.files import folder_beside, put_in_place, write_atomically


def approve_study(home: GuardianHome, study: DeployedStudy, *, today: datetime.date, source: RandomSource) -> bool:
    """Checks and stores a study, with a new ledger; returns whether it is new. Stores nothing if anything is wrong.

    today: in UTC. Raises as check_study does, InvalidInput for a name that has other terms here, StorageFailed.
    """
    check_study(home, study, today=today)
    folder = home.studies / study.name
    if folder.exists():
        if read_deployed(folder / "study.toml").digest != study.digest:
            raise InvalidInput(f"{folder} holds other terms under the name {study.name!r}; allowed: another name")
        return False
    private_folder(home.studies)
    with folder_beside(folder) as part:
        write_atomically(part / "study.toml", write_study(study))
        with Ledger(part / "ledger.sqlite") as ledger:
            _guardian(home, study, ledger, source)
        put_in_place(part, folder)
    return True


def check_study(home: GuardianHome, study: DeployedStudy, *, today: datetime.date) -> Terms:
    """The terms of a study that this guardian may serve in. today: in UTC.

    Raises InvalidInput for another level; Refused: "other_coordinator", "study_ended",
    "wrong_guardian", "same_organisation"; BudgetExceeded if a budget cannot pay for one query.
    """
    settings, terms = home.settings(), study.terms
    check_name(study.name)
    named = guarded(study.confidentiality)
    if terms.coordinator != settings.coordinator:
        raise Refused(Code.OTHER_COORDINATOR, f"{terms.coordinator!r} asks; allowed: {settings.coordinator!r}")
    if terms.ended(today):
        raise Refused(Code.STUDY_ENDED, f"the study ended on {terms.ends}; allowed: one that still runs")
    own = {"guardian": settings.name, **home.public_keys()}
    for key, value in own.items():
        if getattr(named, key) != value:
            raise Refused(
                Code.WRONG_GUARDIAN, f"{key} is {getattr(named, key)!r}; allowed: {value!r}, which is this home's"
            )
    check_terms_apart(study)
    _ = study.budgets
    return terms


def describe(study: DeployedStudy, terms: Terms) -> list[str]:
    """Lines of text: what is asked, what this guardian does and sees, what may be spent, what is not covered."""
    budgets, said = study.budgets, _WORDS[type(study.votes)]
    answers = budgets.affordable(np.zeros(len(study.roster), np.int64), limit=study.query_limit)
    enough = "answers if every query is answered" if budgets.settles else "queries, answered or not"
    seats = [
        f"  {seat.party}: epsilon {at_most(budgets.epsilon_guaranteed[at])} at delta {at_most(seat.delta)}, weight "
        f"{seat.weight:g} "
        + (f"per vote; enough for {answers[at]} {enough}" if said.enough else "per vote, all of it for the one sum")
        for at, seat in enumerate(study.roster)
    ]
    level, about = study.confidentiality, protection_of(study)
    asks, kind = study.who_asks, "hidden" if level.hides_queries else "public"
    return [
        f"Study        {study.name}, digest {study.digest.hex()}",
        f"Task         {terms.task}",
        f"Who asks     {asks}; {len(study.roster)} seats take part, {study.quorum} needed for each batch",
        f"Asked        {study.queries_to_ask} {kind} queries, in batches of up to {study.batch_limit}, until "
        f"{terms.ends}" + ("" if study.votes.questions == GIVEN else f"; {CHOSEN}"),
        f"Your part    {said.part.format(sigma=f'{study.gaussian.sigma:g}')}",
        f"You will see {guardian_sees(about)}",
        "",
        f"What each seat may spend, at most (unit {study.unit}; view {study.view}); your ledger refuses more:",
        *seats,
        "",
        "Not covered:",
        *(f"  - {line}" for line in not_covered_by_guardian(about)),
        "  - Without your keys and ledger the study cannot continue: back the home up, and never run two copies of it.",
        "",
        "Read the fingerprint of your keys out to each hospital by telephone; they type it when they approve. Whoever",
        "replaces your keys in their file replaces you.",
        f"fingerprint of your keys {guarded(level).fingerprint}",
        f"in words                 {phrase(guarded(level).fingerprint)}",
    ]


@dataclass(frozen=True)
class _Words:
    """What a guardian does in a study of one kind of votes. enough: whether a budget pays for a number of queries."""

    part: str
    enough: bool


_WORDS: dict[type[Votes], _Words] = {
    TeacherVotes: _Words(
        "hold the second share of each vote, check the votes, add your own noise (sigma {sigma} votes on each class), "
        "and sign which queries were answered",
        enough=True,
    ),
    UnitSums: _Words(
        "hold the second share of the sum of each hospital's records' votes, add your own noise (sigma {sigma} votes "
        "on each sum), open the noisy sum of all hospitals with the other server, once, and sign it",
        enough=False,
    ),
}


class ApprovedStudies:
    """The studies of a home. Methods may be called from several threads; later approvals are found too."""

    def __init__(self, home: GuardianHome, *, source: RandomSource) -> None:
        """source: the guardian's randomness; must be the operating system's where real labels are released."""
        self._home = home
        self._source = source
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[GuardedStudy, Ledger]] = {}
        # Who asks in the study of a folder, by the time at which its file was written.
        self._asking: dict[str, tuple[int, str]] = {}

    def asks(self, name: str) -> bool:
        """Whether an approved study names this party, or coordinator, as the one that asks.

        A file is read once, so that it costs little to turn others away. Raises InvalidInput as listed does.
        """
        with self._lock:
            for file in self._home.studies.glob("[!.]*/study.toml"):
                written, folder = file.stat().st_mtime_ns, file.parent.name
                if self._asking.get(folder, (0, ""))[0] != written:
                    self._asking[folder] = written, read_deployed(file).who_asks
            return any(name == who for _, who in self._asking.values())

    def find(self, digest: bytes) -> GuardedStudy:
        """The study with this digest. Raises Refused("unknown_study"), StorageFailed, InvalidInput."""
        with self._lock:
            if digest not in self._open:
                for study in self.listed():
                    if study.digest == digest:
                        ledger = Ledger(self._home.studies / study.name / "ledger.sqlite")
                        guardian = _guardian(self._home, study, ledger, self._source)
                        self._open[digest] = (GuardedStudy(study, guardian, threading.Lock()), ledger)
            if digest not in self._open:
                raise Refused(Code.UNKNOWN_STUDY, f"study {digest.hex()[:16]} is not approved by this guardian")
            return self._open[digest][0]

    def listed(self) -> list[DeployedStudy]:
        """All approved studies, by name. Raises InvalidInput for a file that is no longer a study."""
        files = sorted(self._home.studies.glob("[!.]*/study.toml"))
        return [read_deployed(file) for file in files]

    def close(self) -> None:
        """Closes the ledgers."""
        with self._lock:
            for _, ledger in self._open.values():
                ledger.close()
            self._open.clear()


def study_figures(home: GuardianHome, study: DeployedStudy) -> dict[str, Any]:
    """A study's figures, from its ledger. Raises StorageFailed."""
    with Ledger(home.studies / study.name / "ledger.sqlite") as ledger:
        balances, number, asked, answered, open_batches = ledger.balances(), 0, 0, 0, 0
        while (stored := ledger.stored(number)) is not None:
            asked += stored.queries
            answered += int(np.frombuffer(stored.payload, dtype=np.bool_).sum()) if stored.settled else 0
            open_batches += not stored.settled
            number += 1
    spent = np.array([balances[seat.party].spent for seat in study.roster], np.int64)
    used, guaranteed = study.budgets.epsilon_of(spent), study.budgets.epsilon_guaranteed
    left = study.budgets.affordable(spent, limit=study.query_limit)
    return {
        "study": study.name,
        "digest": study.digest.hex(),
        "ends": study.terms.ends,
        "batches": number,
        "unsettled": open_batches,
        "asked": asked,
        "answered": answered,
        "pool": study.queries_to_ask,
        "seats": [
            {
                "seat": seat.party,
                "answers_left": int(left[at]),
                "epsilon_used": float(used[at]),
                "epsilon_guaranteed": float(guaranteed[at]),
                "delta": seat.delta,
            }
            for at, seat in enumerate(study.roster)
        ],
    }


def _guardian(home: GuardianHome, study: DeployedStudy, ledger: Ledger, source: RandomSource) -> Guardian:
    """The guardian of a study; closes the ledger if it belongs to another study."""
    try:
        return Guardian(
            study, ledger=ledger, sealing_key=home.sealing_key(), signing_key=home.signing_key(), source=source
        )
    except ConclaveError:
        ledger.close()
        raise
