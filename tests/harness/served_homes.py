"""An operator's home that serves in a thread, and hospitals whose real nodes dial it."""

import io
import json
import threading
import time

from coordinator.serving import serve
from coordinator.status import alive
from coordinator.store.store import Store
from party.connection.node import Node
from party.connection.seat import ServedSeat
from party.party import Party
from protocols.crypto.identity import certificate_from_pem
from protocols.errors import Refused
from protocols.ledger.ledger import Ledger
from runtime.logs import Log
from tests.harness.clocks import wait_until
from tests.harness.operators import enrol
from tests.harness.studies import voter


class Served:
    """serve in a thread, until the end of the with block."""

    def __init__(self, home, hub_of=None, clock=time.time_ns):
        self.home = home
        self.clock = clock
        self.hub_of = hub_of
        self.error = None

    def __enter__(self):
        self.out = io.StringIO()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        with Store(self.home) as store:
            wait_until(lambda: alive(store, now_s=time.time()) is not None or self.error is not None)
            self.serving = store.serving()
        return self

    def _run(self):
        try:
            more = {} if self.hub_of is None else {"hub_of": self.hub_of}
            clock = self.clock
            serve(self.home, stop=self.stop, log=Log(self.out), clock=clock, steady=lambda: clock() / 1e9, **more)
        except Exception as error:  # noqa: BLE001  # it is looked at by the test
            self.error = error

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def events(self):
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def count(self, event):
        return sum(each["event"] == event for each in self.events())


class Hospital:
    """A real node of one party in a thread. acts: what stands before its party, from the first session on; withdrawn:
    gives the digests of the studies that the hospital ended."""

    def __init__(self, name, home, study, folder, port, *, vote=None, acts=lambda party: party, withdrawn=tuple):
        self.withdrawn = withdrawn
        self.name, self.home, self.study, self.port = name, home, study, port
        with Store(home) as store:
            self.key, self.pem = enrol(home, store, name)
        self.ledger = Ledger(folder / f"{name}.sqlite")
        self.party = acts(Party(name, study=study, ledger=self.ledger, voter=vote or voter(name), coins_from=None))
        self.stop = threading.Event()
        self.ended = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        node = Node(
            key=self.key,
            certificate=certificate_from_pem(self.pem),
            authority=self.home.authority(),
            address=f"127.0.0.1:{self.port}",
            seats=lambda: [ServedSeat(self.study, self.party, self.ledger, anchor=lambda: None)],
            save_certificate=lambda pem: None,
            on_event=lambda event, fields: None,
            renew_days_left=0,
            withdrawn=self.withdrawn,
        )
        try:
            node.run(self.stop)
        except Refused as error:
            self.ended = error.code

    def close(self):
        self.stop.set()
        self.thread.join()
        self.ledger.close()
