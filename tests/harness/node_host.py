"""A process that runs the nodes of several parties until its standard input is closed; see test_many_parties."""

import sys
import threading
from functools import partial
from pathlib import Path

from party.connection.node import Node
from party.connection.seat import ServedSeat
from party.party import Party
from protocols.crypto.identity import certificate_from_pem, private_key_from_pem
from protocols.ledger.ledger import Ledger
from protocols.study.file import read_study
from tests.harness.studies import voter


def main(folder: Path, names: list[str]) -> None:
    study, stop = read_study(folder / "study.toml"), threading.Event()
    threads, ledgers = [], []
    for name in names:
        ledgers.append(Ledger(folder / f"{name}.sqlite"))
        party = Party(name, study=study, ledger=ledgers[-1], voter=voter(name), coins_from=None)
        node = Node(
            key=private_key_from_pem((folder / f"{name}.key").read_bytes()),
            certificate=certificate_from_pem((folder / f"{name}.pem").read_bytes()),
            authority=certificate_from_pem((folder / "authority.pem").read_bytes()),
            address=(folder / "address").read_text(),
            seats=partial(list, [ServedSeat(study, party, ledgers[-1], anchor=lambda: None)]),
            save_certificate=lambda pem: None,
            on_event=lambda event, fields: None,
            renew_days_left=0,
        )
        threads.append(threading.Thread(target=node.run, args=(stop,)))
        threads[-1].start()
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    for ledger in ledgers:
        ledger.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
