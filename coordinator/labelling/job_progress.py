"""What a labelling has released so far, as status shows it while its job runs."""

from __future__ import annotations

import numpy as np

from coordinator.store.rows import Job
from coordinator.store.store import Store
from protocols.ledger.ledger import Ledger
from protocols.votes import ABSTAIN


class JobProgress:
    """Counts what a labelling releases, and records each increase with the job."""

    def __init__(self, store: Store, ledger: Ledger, job: Job) -> None:
        self._store = store
        self._ledger = ledger
        self._job = store.job(job.study) or job
        self._batches = 0
        self._answered = 0
        self.moved = False

    def on_batch(self, asked: int, _: int) -> None:
        """Records one more released batch."""
        stored = self._ledger.stored(self._batches)
        assert stored is not None  # it was released
        self._answered += int((np.frombuffer(stored.payload, dtype="<i8") != ABSTAIN).sum())
        self._batches += 1
        if asked > self._job.asked:
            self.moved = True
            self._store.advance_job(self._job.number, batches=self._batches, asked=asked, answered=self._answered)
