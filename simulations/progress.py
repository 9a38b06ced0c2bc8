"""Progress of long stages: one line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# Seconds between two plain lines of one stage.
_EVERY_S = 5.0


class Reporter:
    """Reports stages on a stream (standard error unless told otherwise); silent when `quiet`."""

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._said: set[str] = set()
        self._shown: ProgressStage | None = None
        self._stream = stream or sys.stderr

    @cached_property
    def console(self) -> Console:
        """Where a line is rewritten."""
        from rich.console import Console

        return Console(file=self._stream)

    def say(self, text: str) -> None:
        """Prints one plain line."""
        if not self._quiet:
            print(text, file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        """Prints one plain line once, whether or not `quiet`: a warning is no progress."""
        if (line := f"warning: {text}") not in self._said:
            print(line, file=self._stream, flush=True)
        self._said.add(line)

    @contextmanager
    def stage(self, title: str) -> Iterator[ProgressStage]:
        """Reports one stage: yields an object whose update(done, total) shows done/total, rate and time left."""
        started = time.monotonic()
        stage = ProgressStage(self, title, started)
        try:
            yield stage
        finally:
            stage.close()
        # Reached only when the stage did not raise. A sweep has the same short stages over and over.
        said, seconds = f"{title}: {stage.result or 'done'}", time.monotonic() - started
        if seconds >= _EVERY_S or said not in self._said:
            self.say(f"{said} ({seconds:.1f} s)")
        self._said.add(said)

    @contextmanager
    def stages(self) -> Iterator[Callable[[str, int, int], None]]:
        """Reports several stages: yields update(title, done, total), which opens a new stage for each new title."""
        with ExitStack() as stack:
            current: dict[str, ProgressStage] = {}

            def update(title: str, done: int, total: int) -> None:
                if title not in current:
                    stack.close()
                    current.clear()
                    current[title] = stack.enter_context(self.stage(title))
                current[title].update(done, total)

            yield update

    def show(self, stage: ProgressStage) -> None:
        """Gives the terminal's line to a stage: a stage within another takes it over until the other goes on."""
        if self._shown is not None and self._shown is not stage:
            self._shown.close()
        self._shown = stage

    @property
    def live(self) -> bool:
        """Whether the stream is a terminal, on which a line can be rewritten."""
        return not self._quiet and self.console.is_terminal


class ProgressStage:
    """Progress of one stage; `result` becomes its closing line."""

    def __init__(self, reporter: Reporter, title: str, started: float) -> None:
        self.result = ""
        self._reporter = reporter
        self._title = title
        self._started = started
        self._last = started
        self._bar: Progress | None = None

    def update(self, done: int, total: int, *, kept: int = 0, doing: str = "") -> None:
        """Shows that `done` of `total` items are finished, of which `kept` took no time, and which one is at work."""
        now = time.monotonic()
        rate = (done - kept) / max(now - self._started, 1e-9)
        if self._reporter.live:
            self._show_bar(done, total, f"{rate:.1f}/s", doing)
        elif now - self._last >= _EVERY_S and done < total:
            self._last = now
            left = f", {(total - done) / rate:.0f} s left" if rate > 0 else ""
            self._reporter.say(f"{self._title}: {done}/{total}, {rate:.1f}/s{left}{doing and f'; now {doing}'}")

    def close(self) -> None:
        """Removes the line from the terminal."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show_bar(self, done: int, total: int, rate: str, doing: str) -> None:
        self._reporter.show(self)
        if self._bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=self._reporter.console,
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(self._title, total=total, completed=done, rate=rate)
        shown = f"{self._title}{doing and f', {doing}'}"
        self._bar.update(self._bar.task_ids[0], description=shown, completed=done, total=total, rate=rate)
