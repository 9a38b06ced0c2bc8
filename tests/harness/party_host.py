"""Party objects in an engine's workers: the protocol itself over worker processes or Flower.

The votes come from a file (the teachers' votes, cast before), the ledgers lie in the folder, one a party, so that
a party is the same whichever worker its message lands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jaxtyping import Int64, Integer
from numpy import ndarray

from party.party import Party, Voter
from protocols.array_files import read_array
from protocols.crypto.identity import PEM_BYTES, key_from_pem, key_to_pem
from protocols.crypto.randomness import system_source
from protocols.errors import MalformedMessage
from protocols.ledger.ledger import Ledger
from protocols.levels.table import Means, ballot_of
from protocols.reading import read_bytes
from protocols.study.file import read_study, write_study
from protocols.study.queries import QueryBatch
from protocols.study.study import Study
from protocols.wire.messages import (
    HiddenVotes,
    Refusal,
    Reply,
    Request,
    Settled,
    StepReply,
    VoteReply,
    decode,
    encode,
)
from runtime.files import write_atomically
from simulations.engines.engine import Exchange, HostSpec


class PartyHost:
    """Hosts the parties of a study whose votes were cast before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._study = read_study(folder / "study.toml")
        self._votes = read_array(folder / "votes.npy", mapped=True)

    def handle(self, requests: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Each party handles its message on its own ledger."""
        for name, request in requests.items():
            # By seat: the name of a privacy group is no file name.
            with Ledger(self._folder / "ledgers" / f"{self._study.seats[name]}.sqlite") as ledger:
                secret = self._study.participation_name == "secret"
                source = system_source if secret else None
                means = Means(key=partial(self._key, name))
                ballot = ballot_of(self._study, name, ledger=ledger, source=system_source, means=means)
                party = Party(
                    name, study=self._study, ledger=ledger, voter=self._voter(name), coins_from=source, ballot=ballot
                )
                yield name, encode(party.handle(decode(request)))

    def _key(self, name: str) -> ec.EllipticCurvePrivateKey:
        return key_from_pem(read_bytes(self._folder / "keys" / f"{self._study.seats[name]}.pem", most=PEM_BYTES))

    def _voter(self, name: str) -> Voter:
        votes: Integer[ndarray, "teachers queries"] = self._votes[self._study.seats[name]]

        def vote(batch: QueryBatch) -> Int64[ndarray, "teachers queries"]:
            return votes[:, batch.ids].astype(np.int64)

        return vote


def open_host(*, folder: str) -> PartyHost:
    """The factory that engines call in a worker."""
    return PartyHost(Path(folder))


def party_host(
    folder: Path,
    study: Study,
    votes: Integer[ndarray, "parties teachers queries"],
    *,
    keys: Sequence[ec.EllipticCurvePrivateKey] = (),
) -> HostSpec:
    """Writes what the workers need into `folder` and says how to open it.

    keys: of the seats in order of the roster, for the level `secure_sum`.
    """
    write_atomically(folder / "study.toml", write_study(study))
    (folder / "ledgers").mkdir(parents=True, exist_ok=True)
    np.save(folder / "votes.npy", votes, allow_pickle=False)
    for position, key in enumerate(keys):
        (folder / "keys").mkdir(exist_ok=True)
        write_atomically(folder / "keys" / f"{position}.pem", key_to_pem(key).decode())
    return HostSpec("tests.harness.party_host:open_host", {"folder": str(folder)})


class EngineTransport:
    """A protocols.wire.transport.Transport over an engine's exchange: messages cross processes as bytes."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __call__(self, requests: Mapping[str, Request]) -> dict[str, Reply | None]:
        replies = self._exchange({party: encode(request) for party, request in requests.items()})
        return {party: None if data is None else _reply(data) for party, data in replies.items()}


def _reply(data: bytes) -> Reply:
    message = decode(data)
    if isinstance(message, VoteReply | HiddenVotes | StepReply | Settled | Refusal):
        return message
    raise MalformedMessage("a request came as a reply; allowed: a reply")
