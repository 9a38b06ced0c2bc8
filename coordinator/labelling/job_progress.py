"""What a labelling has released so far, as status shows it while its job runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.store.rows import Job
from coordinator.store.store import Store


class JobProgress:
    """Counts what a labelling releases, and records each increase with the job. noting: what to say of it, in words."""

    def __init__(self, store: Store, job: Job, *, noting: Callable[[], str]) -> None:
        self._store = store
        self._noting = noting
        self._job = store.job(job.study) or job
        self.moved = False

    def on_batch(self, batches: Sequence[tuple[int, int]]) -> None:
        """Records what is released so far: size and answered queries of each batch."""
        asked, answered = (sum(column) for column in zip(*batches, strict=True))
        if asked > self._job.asked:
            self.moved = True
            self._store.advance_job(
                self._job.number, batches=len(batches), asked=asked, answered=answered, message=self._noting()
            )
