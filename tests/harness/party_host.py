"""Party objects in an engine's workers: the protocol itself over worker processes or Flower.

The votes come from a file (the teachers' votes, cast before, or the sums of records' contributions), the ledgers lie in
the folder, one a party, so that a party is the same whichever worker its message lands in. One run may serve several
studies, each in a folder of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Int64, Integer
from numpy import ndarray

from party.party import Party, Voter
from protocols.array_files import read_array
from protocols.crypto.identity import PEM_BYTES, key_to_pem, private_key_from_pem
from protocols.crypto.randomness import system_source
from protocols.errors import MalformedMessage
from protocols.ledger.ledger import Ledger
from protocols.levels.level import Ballot
from protocols.levels.simulated import simulated_ballot
from protocols.levels.table import Means, ballot_of
from protocols.reading import read_bytes
from protocols.study.file import read_study, write_study
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.wire.messages import (
    ConcealedVotes,
    Outcome,
    Refusal,
    Reply,
    Request,
    Settled,
    StepReply,
    StepRequest,
    VoteReply,
    VoteRequest,
    decode,
    encode,
)
from runtime.files import write_atomically
from simulations.engines.engine import Exchange, HostSpec

# Of the noise and the shares of parties whose records vote.
SEED = 4


class PartyHost:
    """Hosts the parties of studies whose votes were cast before."""

    def __init__(self, folder: Path) -> None:
        self._studies = {study.digest: study for study in map(read_study, folder.glob("*/study.toml"))}
        self._folder = folder

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Each party handles its message on its own ledger of the study that is asked about."""
        for name, data in requests.items():
            request = decode(data)
            assert isinstance(request, VoteRequest | StepRequest | Outcome)
            # A study that nobody knows is refused by a party of any other.
            study = self._studies.get(request.study) or next(iter(self._studies.values()))
            folder, seat = self._folder / study.digest.hex(), study.seats[name]
            # By seat: the name of a privacy group is no file name.
            with Ledger(folder / "ledgers" / f"{seat}.sqlite") as ledger:
                secret = study.secret_coins
                party = Party(
                    name,
                    study=study,
                    ledger=ledger,
                    voter=_voter(study, seat, read_array(folder / "votes.npy", mapped=True)),
                    coins_from=system_source if secret else None,
                    ballot=_ballot(folder, study, seat, ledger),
                )
                yield name, encode(party.handle(request))


def _ballot(folder: Path, study: Study, seat: int, ledger: Ledger) -> Ballot:
    """Of known keys and noise where records vote: so its noise is that of the same study in one process."""
    if study.votes.once:
        return simulated_ballot(study, seat, ledger=ledger, seed=SEED)
    means = Means(key=lambda: private_key_from_pem(read_bytes(folder / "keys" / f"{seat}.pem", most=PEM_BYTES)))
    return ballot_of(study, study.roster[seat].party, ledger=ledger, source=system_source, means=means)


def _voter(study: Study, seat: int, votes: ndarray) -> Voter:
    def vote(batch: QueryBatch) -> Int64[ndarray, "..."]:
        return (votes[seat] if study.votes.once else votes[seat][:, batch.ids]).astype(np.int64)

    return vote


def open_host(*, folder: str) -> PartyHost:
    """The factory that engines call in a worker."""
    return PartyHost(Path(folder))


def party_host(
    folder: Path,
    study: Study,
    votes: Integer[ndarray, "parties ..."],
    *,
    keys: Sequence[ec.EllipticCurvePrivateKey] = (),
) -> HostSpec:
    """Writes what the workers need into `folder`, beside other studies, and says how to open it.

    votes: of teachers, [parties, teachers, queries], or the sums of records, [parties, queries, classes]; keys: of the
    seats in order of the roster, for levels of teachers other than `clear`.
    """
    own = folder / study.digest.hex()
    (own / "ledgers").mkdir(parents=True)
    write_atomically(own / "study.toml", write_study(study))
    np.save(own / "votes.npy", votes, allow_pickle=False)
    for position, key in enumerate(keys):
        (own / "keys").mkdir(exist_ok=True)
        write_atomically(own / "keys" / f"{position}.pem", key_to_pem(key).decode())
    return HostSpec("tests.harness.party_host:open_host", {"folder": str(folder)})


class EngineTransport:
    """A protocols.wire.messages.Transport over an engine's exchange: messages cross processes as bytes."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        replies = self._exchange({party: encode(request) for party, request in requests.items()})
        return {party: None if data is None else _reply(data) for party, data in replies.items()}


def _reply(data: bytes) -> Reply:
    message = decode(data)
    if isinstance(message, VoteReply | ConcealedVotes | StepReply | Settled | Refusal):
        return message
    raise MalformedMessage("a request came as a reply; allowed: a reply")
