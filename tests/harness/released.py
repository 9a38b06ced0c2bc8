"""A labelled study as a hub would leave it: real parties and coordinator in one process, with signed evidence."""

import base64
import datetime
import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from coordinator.in_process import InProcessTransport
from coordinator.release.evidence import evidence_in
from coordinator.release.folder import contents, read_object, read_released, student_figures
from coordinator.release.release import make_release
from coordinator.release.verify import verify_release
from coordinator.store.store import LabelledStudy
from party.party import Party
from protocols.crypto.identity import new_key
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.clear import ClearAggregation
from protocols.noise import lattice_noise, simulated
from protocols.release.manifest import MANIFEST_FILE, MODEL_SIGNATURE_FILE, SIGNATURE_FILE, sha256_of, write_manifest
from protocols.release.model_signature import write_model_signature
from protocols.study.queries import no_inputs
from protocols.study.study import party_of
from protocols.wire.frames import Answer, Ask, sign_frame
from protocols.wire.messages import Outcome, Settled, encode
from tests.harness import deployed_records
from tests.harness.certifying import Certifying
from tests.harness.seeded import seeded_source
from tests.harness.studies import deployed_study, pool_of

POOL = pool_of(36, 4)
small_study = partial(deployed_study, name="left-or-right", epsilon=5.0, pool=len(POOL), batch_limit=12)


def release_of(labelled, out, *, by, **more):
    """A release with a coordinator's key and certificate; of what is not given there is nothing."""
    given = dict(trained=None, earlier=[], own=[], keep=None, named=[], unproven=[])
    given = given | {"now": datetime.datetime.now(datetime.UTC)} | more
    return make_release(labelled, out=out, key=by.key, certificate=by.certificate, authority=by.authority, **given)


# The files of a release, sorted.
FILES = [
    "authority.pem",
    "coordinator.pem",
    "evidence/audit.jsonl",
    "evidence/frames.jsonl",
    "evidence/ledger.json",
    "labels.csv",
    "manifest.json",
    "manifest.sig",
    "model.sig",
    "model_card.md",
    "privacy.de.html",
    "privacy.html",
    "privacy.json",
    "report.html",
    "sbom.cdx.json",
    "study.toml",
]


def labelled_study(study, ledger, pool, labelling):
    """What a release is made of, as the coordinator's store has it."""
    return LabelledStudy(
        study=study,
        ledger=ledger,
        pool=pool,
        labels=labelling.labels,
        reinforced=labelling.reinforced,
        batches=tuple(labelling.batches),
        stop=labelling.stop.reason,
        left_out=dict.fromkeys(range(len(labelling.batches) + 1), labelling.refusals),
        differences=labelling.ledger_differences,
        cells=labelling.cells,
    )


@dataclass
class Consortium(Certifying):
    """Keys and certificates, and the ledgers of the studies that were labelled."""

    folder: Path
    ledgers: dict = field(default_factory=dict)

    def __post_init__(self):
        self.make_authority()
        self.key = new_key()
        self.certificate = self.certify(self.key, "centre", role="coordinator")
        self.keys = {}
        self.certificates = {}

    def label(
        self,
        study,
        *,
        absent=lambda requests: frozenset(),
        settles=True,
        tell=lambda seat, outcome: outcome,
        train=None,
        choose=None,
        aggregation=None,
        ballots=None,
        between=None,
        queries=None,
        judge=None,
    ):
        """Labels the pool and keeps evidence as a hub does. tell: the outcome that the coordinator tells a seat.

        queries: in which records vote, those of tests.harness.deployed_records; ballots(name, ledger): of another level
        than clear; between(coordinator): comes before a second attempt; judge(labelled): the model that judges score.
        """
        folder = self.folder / f"{study.name}-{os.urandom(4).hex()}"
        folder.mkdir()
        pool = POOL if queries is None else deployed_records.POOL
        files = folder / "ledger.sqlite", folder / "pool.npy"
        np.save(files[1], pool)
        if queries is not None:
            deployed_records.write_queries(folder, queries)
        ledgers = {seat.party: Ledger(":memory:") for seat in study.roster}
        self.ledgers[study.name] = ledgers
        parties = {
            name: self._party(name, study, ledger, settles, ballots, queries) for name, ledger in ledgers.items()
        }
        within = InProcessTransport({name: party.handle for name, party in parties.items()}, absent=absent)
        with Ledger(files[0]) as ledger:

            def exchange(requests):
                told = {
                    seat: tell(seat, each) if isinstance(each, Outcome) else each for seat, each in requests.items()
                }
                replies = within(told)
                for seat, reply in replies.items():
                    if isinstance(told[seat], Outcome) and isinstance(reply, Settled):
                        self.keep(ledger, ledgers[seat], seat, told[seat], reply)
                return replies

            noise = simulated(np.random.default_rng(1))
            if study.lattice is not None:
                noise = lattice_noise(seeded_source(1), units=study.units)
            level = aggregation or ClearAggregation(noise)
            coordinator = Coordinator(study, ledger=ledger, aggregation=level, exchange=exchange, run=b"run")
            rows = np.repeat(pool, study.votes.asks.rows, axis=0)
            asked = rows if queries is None else no_inputs(study.votes.queries)
            labelling = coordinator.label(asked, train=train, choose=choose)
            if between is not None:
                between(coordinator)
                labelling = coordinator.label(asked, train=train, choose=choose)
            if judge is not None:
                coordinator.ask_again(judge(labelled_study(study, *files, labelling)))
        return labelled_study(study, *files, labelling)

    def _party(self, name, study, ledger, settles, ballots, queries):
        if name not in self.keys:
            self.keys[name] = new_key()
            self.certificates[name] = self.certify(self.keys[name], party_of(name))

        told = study.labelled.told  # by as many of the first features

        def models(batch):
            return np.tile((batch.inputs[:, :told].T > 0).astype(np.int64), (study.votes.voters, 1))

        def vote(batch):
            return study.votes.asks.voted(batch, models)

        if queries is not None:
            vote = deployed_records.record_voter(study, queries, name)
        secret = study.secret_coins
        source = seeded_source(3) if secret else None
        ballot = None if ballots is None else ballots(name, ledger)
        return Party(name, study=study, ledger=ledger, voter=vote, coins_from=source, settles=settles, ballot=ballot)

    def keep(self, ledger, own, seat, outcome, settled):
        """One outcome and its receipt, sealed and kept."""
        number = ledger.number_of(outcome.batch_digest)
        nonce = os.urandom(16)
        ask = Ask(nonce, 1, nonce, outcome.study, seat, ledger.log.head(), ledger.log.peer(seat), encode(outcome))
        answer = Answer(nonce, 1, outcome.study, seat, own.log.head(), ask.own, encode(settled))
        signed = sign_frame(answer, key=self.keys[seat], certificate=self.certificates[seat])
        ledger.log.remember(seat, answer.own, proof=signed)
        ledger.log.keep(number, seat, "outcome", sign_frame(ask, key=self.key, certificate=self.certificate))
        ledger.log.keep(number, seat, "settled", signed)

    def release(self, labelled, out, **more):
        return release_of(labelled, out, by=self, **more)

    def remake(self, folder):
        """What a coordinator does that forges with care: all files as they follow from study, labels, evidence,
        statement and the files of the student, and then its own signature."""
        released, evidence = read_released(folder), evidence_in(folder)
        stated, figures = read_object(folder / "privacy.json"), student_figures(folder)
        if figures is not None:
            figures["files"] = {name: sha256_of(folder / name) for name in figures["files"] if (folder / name).exists()}
        given = {"queries": None, "signatures": None, "coordinator": self.certificate, "authority": self.authority}
        for name, content in contents(released, evidence, stated, figures, **given).items():
            (folder / name).write_bytes(content)
        self.sign_again(folder)

    def sign_again(self, folder, *, name=None):
        """What a coordinator does that forges: the folder as it is now, with its own signature. name: of the model, as
        it was if it is None."""
        created = datetime.datetime.fromisoformat(json.loads((folder / MANIFEST_FILE).read_text())["created"])
        study = bytes.fromhex(json.loads((folder / MANIFEST_FILE).read_text())["study"])
        payload = json.loads((folder / MODEL_SIGNATURE_FILE).read_text())["dsseEnvelope"]["payload"]
        named = name or json.loads(base64.b64decode(payload))["subject"][0]["name"]
        for each in (MANIFEST_FILE, SIGNATURE_FILE, MODEL_SIGNATURE_FILE):
            (folder / each).unlink()
        write_manifest(folder, study=study, created=created, key=self.key)
        write_model_signature(folder, name=named, key=self.key, certificate=self.certificate)


def failed(folder: Path, authority: Path | None = None, pool: Path | None = None) -> dict[str, str]:
    """The checks of verification that a release does not pass, with what each of them says."""
    checks = verify_release(folder, authority, pool=pool)
    return {check.name: check.message for check in checks if check.passed is False}
