"""A study in which a querying party asks, with private models of several kinds and a guardian, in one process."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from coordinator.in_process import InProcessTransport
from party.party import Party
from protocols.crypto.identity import encoded_point
from protocols.labelling.coordinator import Coordinator
from protocols.ledger.ledger import Ledger
from protocols.levels.hidden_queries.ballot import ARCHITECTURE
from protocols.levels.hidden_queries.dealing import precision_of
from protocols.levels.hidden_queries.inference.model import AveragePool, Convolution, Dense, Model, ReLU, quantise
from protocols.levels.hidden_queries.querier import PrivateQueries
from protocols.levels.hidden_queries.sealing import Beginning, Computation
from protocols.levels.table import Means, ballot_of
from protocols.study.levels import HiddenQueries
from protocols.wire.messages import StepRequest
from tests.harness.levels import SEAT_KEYS, lattice_study, two_server
from tests.harness.seeded import seeded_source
from tests.harness.studies import seat_keys

SIDE, CLASSES, QUERIES = 6, 3, 16
QUERIER_KEY = ec.derive_private_key(2000, ec.SECP256R1())


def hidden_study(*, seats=6, **more):
    """A study that `asker` asks in; seats: 6 at most."""
    servers = two_server()
    level = HiddenQueries(
        units=servers.units,
        guardian=servers.guardian,
        sealing_key=servers.sealing_key,
        signing_key=servers.signing_key,
        querier="asker",
        querier_key=encoded_point(QUERIER_KEY.public_key()),
        input_bound=1.0,
        seat_keys=seat_keys(SEAT_KEYS[:seats]),
    )
    return lattice_study(
        level,
        seats=seats,
        **({"classes": CLASSES, "queries": 40, "batch_limit": 8, "sigma": 4.0, "threshold": 4.0} | more),
    )


def private_models(study):
    """One model a seat: linear, MLPs and small CNNs, quantised as the study says."""
    rng = np.random.default_rng(11)
    truth = rng.normal(size=(CLASSES, SIDE**2))

    def dense(outputs, inputs, weights=None):
        noise = rng.normal(size=(outputs, inputs))
        return Dense((noise if weights is None else weights + 0.8 * noise) / np.sqrt(inputs), rng.normal(size=outputs))

    def linear():
        return Model((SIDE, SIDE), (dense(CLASSES, SIDE**2, truth),))

    def mlp():
        return Model((SIDE, SIDE), (dense(5, SIDE**2), ReLU(), dense(CLASSES, 5)))

    def cnn():
        kernels = Convolution(rng.normal(size=(2, 1, 3, 3)) / 3, rng.normal(size=2) / 9, padding="same")
        return Model((SIDE, SIDE), (kernels, ReLU(), AveragePool(2), dense(CLASSES, 2 * (SIDE // 2) ** 2)))

    makers = [linear, linear, mlp, linear, cnn, linear]
    return {seat.party: quantise(make(), precision_of(study)) for seat, make in zip(study.roster, makers, strict=False)}


def linear_models(study):
    """One linear model a seat: the fastest computations."""
    made = list(private_models(study).values())
    return {seat.party: made[0] for seat in study.roster}


def hidden_queries(count=QUERIES):
    """Records that nobody but the querying party may see."""
    return np.random.default_rng(12).uniform(-1, 1, (count, SIDE, SIDE)).astype(np.float32)


class PrivateParties:
    """All parties of a study, in one process. refuses: by seat, a code with which it admits no batch."""

    def __init__(self, study, models=None, ledgers=None) -> None:
        self.study = study
        self.models = models or private_models(study)
        self.ledgers = ledgers or {seat.party: Ledger(":memory:") for seat in study.roster}
        self.admitted: list[tuple[str, int]] = []
        self.parties = {seat.party: self.opened(seat.party) for seat in study.roster}
        self.handlers = {name: self._handler(name) for name in self.parties}

    def opened(self, name, key=0):
        """A party, opened as after a start of its node."""
        position = self.study.seats[name]
        means = Means(
            key=lambda: SEAT_KEYS[position],
            load=lambda: self.models[name],
            admit=lambda batch: self.admitted.append((name, batch.number)),
        )
        source = seeded_source(7, position, key)
        ledger = self.ledgers[name]
        ballot = ballot_of(self.study, name, ledger=ledger, source=source, means=means)
        return Party(name, study=self.study, ledger=ledger, voter=_never, coins_from=None, ballot=ballot)

    def _handler(self, name):
        return lambda request: self.parties[name].handle(request)

    def exchange(self, **how):
        return InProcessTransport(self.handlers, **how)

    def spent(self):
        return [self.ledgers[seat.party].balance(seat.party).spent for seat in self.study.roster]


def begun(study, request, seat, *, queries=8, key=QUERIER_KEY, nonce=0):
    """The querying party's first step with a seat, and what it keeps of it."""
    beginning = Beginning(Computation(study, request, seat, queries), key=key, source=seeded_source(50, nonce))
    return StepRequest(study.digest, request, ARCHITECTURE, beginning.arrays()), beginning


def _never(batch):
    raise AssertionError("no teacher may be asked about queries that are hidden")


def asking(study, guardian, ledger, exchange, queries=None, key=6):
    """(coordinator in the querying party's hands, what it labels)."""
    queries = hidden_queries() if queries is None else queries
    aggregation = PrivateQueries(study, queries, guardian.dial, key=QUERIER_KEY, source=seeded_source(key))
    coordinator = Coordinator(study, ledger=ledger, aggregation=aggregation, exchange=exchange, run=b"contract")
    return coordinator, aggregation.positions
