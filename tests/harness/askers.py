"""A consortium on loopback in which a hospital asks: a hub that relays, nodes with private models, and a guardian."""

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from coordinator.connection.relaying import note_told, relayed_outcome
from guardian.port import GuardianPort
from party.asking.asking import AskingLine
from party.home import PartyHome
from party.party import Party
from protocols.crypto.identity import encoded_point, key_to_pem, new_key, to_pem
from protocols.crypto.randomness import system_source
from protocols.labelling.guardian import Guardian
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.dealing import precision_of
from protocols.levels.hidden_queries.inference.model import Dense, Model, ReLU, quantise
from protocols.levels.table import Means, ballot_of
from protocols.study.deployed import DeployedStudy, deployed
from protocols.study.levels import NO_POOL, HiddenQueries
from protocols.study.study import Study
from protocols.study.terms import Terms
from protocols.wire.guardian import GuardedStudy
from runtime.address import free_port
from tests.harness.consortium import Consortium
from tests.harness.homes import FEATURES, make_member
from tests.harness.levels import SEALING_KEY, SIGNING_KEY
from tests.harness.studies import DEADLINE_S, make_study

KEYS = {f"hospital-{number}": new_key() for number in range(3)}
ASKER_KEY = new_key()


def asked_study(
    *, querier: str = "asker", name: str = "heart", deadline_s: float = DEADLINE_S, epsilon: float = 45.0, **more
) -> DeployedStudy:
    """A study in which `querier` asks three parties about tables; nine of ten labels are right."""
    level = HiddenQueries(
        units=64,
        guardian="notary",
        sealing_key=SEALING_KEY.public_key().public_bytes_raw().hex(),
        signing_key=SIGNING_KEY.public_key().public_bytes_raw().hex(),
        querier=querier,
        querier_key=encoded_point(ASKER_KEY.public_key()),
        input_bound=8.0,
        seat_keys=(),
    )
    given = {"mechanism": "gnmax", "sigma": 1.2, "sigma_threshold": None, "threshold": None, "classes": 2}
    given |= {"queries": 20, "batch_limit": 10, "quorum": 2, "confidentiality": level, "keys": list(KEYS.values())}
    base = make_study([epsilon] * 3, **(given | more))
    terms = Terms(
        task="tell left from right",
        class_names=("left", "right"),
        label="side",
        input_shape=(4,),
        features=FEATURES,
        pool_size=20,
        pool_sha256=NO_POOL,
        deadline_s=deadline_s,
        coordinator="centre",
        ends="2999-12-31",
    )
    roster = tuple(replace(seat, party=party) for seat, party in zip(base.roster, KEYS, strict=True))
    return deployed(replace(base, name=name, roster=roster), terms)


def model_of(study: Study, party: str):
    """A model that looks at the first feature: linear, or with a hidden layer."""
    side = np.array([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    if party == "hospital-1":
        layers = (Dense(side, np.zeros(2)), ReLU(), Dense(np.eye(2), np.zeros(2)))
    else:
        layers = (Dense(side, np.zeros(2)),)
    return quantise(Model((4,), layers), precision_of(study))


def queries(count: int = 20) -> np.ndarray:
    """Tables' rows whose first feature says the class, clearly."""
    values = np.random.default_rng(5).uniform(-4, 4, (count, 4)).astype(np.float32)
    values[:, 0] += np.sign(values[:, 0])
    return values


class AskedConsortium(Consortium):
    """Use as a context manager; `guardian` is the address of the guardian's port."""

    def __enter__(self):
        self.keys |= KEYS
        super().__enter__()
        self.guardian_ledger = Ledger(self.folder / "guardian.sqlite")
        self.start_guardian(f"127.0.0.1:{free_port()}")
        self.asker_key = ASKER_KEY
        return self

    def __exit__(self, *error):
        self.port.stop()
        self.guardian_ledger.close()
        super().__exit__(*error)

    def start_guardian(self, listen, name="notary"):
        key, busy = new_key(), threading.Lock()
        guardian = Guardian(
            self.study,
            ledger=self.guardian_ledger,
            sealing_key=SEALING_KEY,
            signing_key=SIGNING_KEY,
            source=system_source,
        )
        self.port = GuardianPort(
            key=key,
            certificate=self.certify(key, name, role="guardian"),
            authority=self.authority,
            denied=lambda identity: self.denied.get(identity.name),
            find=lambda digest: GuardedStudy(self.study, guardian, busy),
            asks=lambda name: name == self.study.who_asks,
            on_event=lambda event, fields: self.events.append((event, fields)),
        )
        self.port.start(listen)
        self.guardian = listen

    def open_study(self) -> None:
        """Opens the study at the hub, which relays what the querying party asks."""
        self.ledger.bind(study=self.study.digest, run=b"")
        self.hub.open_study(
            self.study,
            self.ledger,
            outcome_for=partial(relayed_outcome, self.ledger),
            on_told=partial(note_told, self.ledger, self.study),
        )

    def add_node(self, name, **how):
        self.certificates.setdefault(name, self.certify(self.keys[name], name))
        ledger = self.ledgers[name] = Ledger(self.folder / f"{name}.sqlite")
        means = Means(key=lambda: self.keys[name], load=lambda: model_of(self.study, name))
        ballot = ballot_of(self.study, name, ledger=ledger, source=system_source, means=means)
        self.parties[name] = Party(name, study=self.study, ledger=ledger, voter=_never, coins_from=None, ballot=ballot)
        return self.parties[name]

    def line(self, *, name="asker", key=None) -> AskingLine:
        """The querying party's way to the others."""
        key = key or self.asker_key
        certificate = self.certify(key, name)
        return AskingLine(
            hub=self.address, guardian=self.guardian, key=key, certificate=certificate, authority=self.authority
        )


def _never(batch):
    raise AssertionError("no teacher may be asked about queries that are hidden")


def asker_home(folder: Path, consortium: Consortium) -> PartyHome:
    """A home of the asker, with the key that its study names."""
    home = make_member(folder, consortium, party="asker", teacher="logistic_regression")
    home.key.write_bytes(key_to_pem(ASKER_KEY))
    home.certificate.write_bytes(to_pem(consortium.certify(ASKER_KEY, "asker")))
    return home
