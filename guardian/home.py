"""A guardian's folder: its keys and certificate, its settings, and the studies that it approved, each with its ledger.

A guardian is a different organisation from the coordinator. Its private keys stay here: it sends a certificate request
and public keys, and gets a certificate back.
"""

from __future__ import annotations

import datetime
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any  # the values of a JSON object

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from protocols.claims.who_sees import guardian_sees, not_covered_by_guardian
from protocols.crypto.identity import (
    Identity,
    certificate_from_pem,
    certificate_request,
    check_name,
    fingerprint,
    identify,
    key_to_pem,
    keys_fingerprint,
    new_key,
    normal_fingerprint,
    phrase,
    to_pem,
)
from protocols.crypto.randomness import RandomSource
from protocols.errors import ConclaveError, DataCorrupt, DataUnavailable, InvalidInput, Refused, StorageFailed
from protocols.labelling.guardian import Guardian
from protocols.ledger.ledger import Ledger
from protocols.plural import at_most
from protocols.private_files import private_folder
from protocols.reading import read_text
from protocols.refusals.code import Code
from protocols.study.chosen import CHOSEN, GIVEN
from protocols.study.deployed import DeployedStudy
from protocols.study.file import read_deployed, write_study
from protocols.study.levels import guarded
from protocols.study.protection import protection_of
from protocols.study.terms import Terms
from protocols.study.votes import TeacherVotes, UnitSums, Votes
from protocols.wire.guardian import GuardedStudy, check_terms_apart
from runtime.address import check_address
from runtime.files import folder_beside, put_in_place, read, write_atomically
from runtime.key_files import read_key, read_key_of
from runtime.settings import read_toml_settings, write_settings

_DENIED_BYTES = 2**20

_COMMENTS = {
    "name": "Name in this guardian's certificate; studies name it in [confidentiality].",
    "coordinator": "Name in the certificate of the one coordinator that may converse with this guardian.",
    "listen": "Where that coordinator dials in (mutual TLS), HOST:PORT.",
    "metrics_port": "Port on 127.0.0.1 of /healthz and /metrics; 0 for none.",
}


@dataclass(frozen=True, kw_only=True)
class GuardianSettings:
    """What guardian.toml says. Raises InvalidInput, with the value and the allowed range."""

    name: str
    coordinator: str
    listen: str
    metrics_port: int

    def __post_init__(self) -> None:
        check_name(self.name)
        check_name(self.coordinator)
        check_address("listen", self.listen, listens=True)
        if not 0 <= self.metrics_port <= 65_535:
            raise InvalidInput(f"metrics_port is {self.metrics_port}; allowed: 0 to 65535")
        if self.name == self.coordinator:
            raise Refused(
                Code.SAME_ORGANISATION, f"guardian and coordinator are both {self.name!r}; allowed: two organisations"
            )


class GuardianHome:
    """The folder of one guardian."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self.settings_file = self.folder / "guardian.toml"
        self.key_file = self.folder / "key.pem"
        self.request_file = self.folder / "request.pem"
        self.certificate_file = self.folder / "certificate.pem"
        self.authority_file = self.folder / "authority.pem"
        self.sealing_file = self.folder / "sealing.pem"
        self.signing_file = self.folder / "signing.pem"
        self.denied_file = self.folder / "denied"
        self.lock_file = self.folder / "serve.lock"
        self.studies = self.folder / "studies"

    def settings(self) -> GuardianSettings:
        """Reads guardian.toml. Raises DataUnavailable before init, InvalidInput for a wrong key or value."""
        return read_toml_settings(self.settings_file, GuardianSettings, role="guardian")

    def key(self) -> ec.EllipticCurvePrivateKey:
        """The key of the certificate."""
        return read_key(self.key_file)

    def sealing_key(self) -> X25519PrivateKey:
        """The key to which parties seal their shares."""
        return read_key_of(X25519PrivateKey, self.sealing_file)  # type: ignore[type-abstract]  # what a key is an instance of

    def signing_key(self) -> Ed25519PrivateKey:
        """The key that signs which queries were answered."""
        return read_key_of(Ed25519PrivateKey, self.signing_file)  # type: ignore[type-abstract]  # what a key is an instance of

    def public_keys(self) -> dict[str, str]:
        """sealing_key and signing_key of a study's [confidentiality]."""
        return {
            "sealing_key": self.sealing_key().public_key().public_bytes_raw().hex(),
            "signing_key": self.signing_key().public_key().public_bytes_raw().hex(),
        }

    def keys_fingerprint(self) -> str:
        """Of both public keys, to read out by telephone to each hospital."""
        keys = (self.sealing_key().public_key(), self.signing_key().public_key())
        return keys_fingerprint(*(key.public_bytes_raw() for key in keys))

    def authority(self) -> x509.Certificate:
        """The consortium's certificate. Raises DataUnavailable before `accept`."""
        self._check_accepted()
        return certificate_from_pem(read(self.authority_file))

    def certificate(self) -> x509.Certificate:
        """The guardian's certificate, unchecked. Raises DataUnavailable before `accept`."""
        self._check_accepted()
        return certificate_from_pem(read(self.certificate_file))

    def identity(self, *, now: datetime.datetime) -> Identity:
        """This guardian's identity by its certificate. now: UTC.

        Raises DataUnavailable before `accept`; Refused: "wrong_authority", "certificate_expired", "wrong_role",
        and "bad_certificate" for one with another name or key.
        """
        return check_certificate(self, self.certificate(), self.authority(), now=now)

    def deny(self, key_fingerprint: str) -> str:
        """Denies every certificate of this key from now on; returns the fingerprint as stored."""
        denied = normal_fingerprint(key_fingerprint)
        write_atomically(self.denied_file, "".join(f"{each}\n" for each in sorted({*self.denied(), denied})))
        return denied

    def denied(self) -> frozenset[str]:
        """The fingerprints of the denied keys, in digits or in words. Raises DataCorrupt; nobody is served then."""
        try:
            lines = read_text(self.denied_file, most=_DENIED_BYTES).split()
            return frozenset(normal_fingerprint(line) for line in lines)
        except DataUnavailable:
            return frozenset()
        except ValueError as error:
            raise DataCorrupt(f"{self.denied_file} is not a list of fingerprints: {error}") from None

    def denies(self, key_fingerprint: str) -> bool:
        """Whether the key of this fingerprint, in digits, is denied. Raises DataCorrupt; nobody is served then."""
        return not self.denied().isdisjoint((key_fingerprint, phrase(key_fingerprint)))

    def _check_accepted(self) -> None:
        if not self.certificate_file.exists() or not self.authority_file.exists():
            raise DataUnavailable(
                f"{self.folder} holds no certificate; send request.pem to the coordinator's operator, then run "
                "conclave-guardian accept"
            )


def create_guardian(home: GuardianHome, settings: GuardianSettings) -> str:
    """Creates keys and a certificate request in a new home; returns the fingerprint to read out by telephone.

    Raises InvalidInput if the home holds a guardian. guardian.toml is written last: a home without it is left from an
    interrupted init, which may be run again.
    """
    if home.settings_file.exists():
        raise InvalidInput(f"{home.folder} already holds a guardian; allowed: another --home")
    key = new_key()
    write_atomically(home.key_file, key_to_pem(key))
    write_atomically(home.sealing_file, key_to_pem(X25519PrivateKey.generate()))
    write_atomically(home.signing_file, key_to_pem(Ed25519PrivateKey.generate()))
    write_atomically(home.request_file, to_pem(certificate_request(key, name=settings.name)))
    title = "Settings of a Conclave guardian. Read when `conclave-guardian serve` starts."
    write_atomically(home.settings_file, write_settings(asdict(settings), title=title, about=_COMMENTS))
    return fingerprint(key.public_key())


def accept_certificate(
    home: GuardianHome, certificate_pem: bytes, authority_pem: bytes, *, now: datetime.datetime
) -> Identity:
    """Checks and stores what the coordinator's operator sent back. now: UTC.

    Raises InvalidInput for anything but a certificate, Refused as GuardianHome.identity does, and "other_authority" for
    a consortium other than the one accepted before.
    """
    authority = certificate_from_pem(authority_pem)
    identity = check_certificate(home, certificate_from_pem(certificate_pem), authority, now=now)
    if home.authority_file.exists() and certificate_from_pem(read(home.authority_file)) != authority:
        raise Refused(
            Code.OTHER_AUTHORITY,
            f"{home.authority_file} is another consortium's; allowed: the one that was accepted, or another --home",
        )
    write_atomically(home.authority_file, to_pem(authority))
    write_atomically(home.certificate_file, to_pem(identity.certificate))
    return identity


def check_certificate(
    home: GuardianHome, certificate: x509.Certificate, authority: x509.Certificate, *, now: datetime.datetime
) -> Identity:
    """The identity in the certificate; raises as GuardianHome.identity does."""
    identity = identify(certificate, authority=authority, now=now, role="guardian")
    name = home.settings().name
    if identity.name != name or identity.fingerprint != fingerprint(home.key().public_key()):
        raise Refused(
            Code.BAD_CERTIFICATE,
            f"the certificate is for {identity.name!r} and the key {identity.fingerprint}; allowed: {name!r} and the "
            "key of this home",
        )
    return identity


def approve_study(home: GuardianHome, study: DeployedStudy, *, today: datetime.date, source: RandomSource) -> bool:
    """Checks and stores a study, with a new ledger; returns whether it is new. Stores nothing if anything is wrong.

    today: in UTC. Raises as check_study does, InvalidInput for a name that has other terms here, StorageFailed, also
    where the ledger of an approved one was lost.
    """
    check_study(home, study, today=today)
    folder = home.studies / study.name
    if folder.exists():
        if read_deployed(folder / "study.toml").digest != study.digest:
            raise InvalidInput(f"{folder} holds other terms under the name {study.name!r}; allowed: another name")
        _kept_ledger(home, study).close()
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
    asks, kind = study.who_asks, "hidden" if level.asked_by else "public"
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
        "Read the fingerprint of your keys out to each hospital by telephone; they type it when they approve.",
        "Otherwise a coordinator could put other keys into their file, and see every vote.",
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
                        ledger = _kept_ledger(self._home, study)
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
    with _kept_ledger(home, study) as ledger:
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


def _kept_ledger(home: GuardianHome, study: DeployedStudy) -> Ledger:
    """The ledger of an approved study, which approving made. Raises StorageFailed, also where it was lost: with a new
    one a coordinator that kept what it was sent could have batches opened again, under fresh noise and uncharged."""
    path = home.studies / study.name / "ledger.sqlite"
    if path.exists():
        ledger = Ledger(path)
        if ledger.balances():
            return ledger
        ledger.close()
    raise StorageFailed(f"{path} is lost or empty; put its newest copy back, as the study cannot go on without it")


def _guardian(home: GuardianHome, study: DeployedStudy, ledger: Ledger, source: RandomSource) -> Guardian:
    """The guardian of a study; closes the ledger if it belongs to another study."""
    try:
        return Guardian(
            study, ledger=ledger, sealing_key=home.sealing_key(), signing_key=home.signing_key(), source=source
        )
    except ConclaveError:
        ledger.close()
        raise
