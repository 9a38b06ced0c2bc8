"""Keeps the log lines of other packages off the terminal: sends them to a file, or nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from protocols.errors import StorageFailed


@contextmanager
def logged_to(log: Path | None, names: Sequence[str]) -> Iterator[None]:
    """Sends the records of the named loggers to the file `log` only (None: nowhere), until the end.

    Raises StorageFailed if the file cannot be opened; then nothing has changed.
    """
    try:
        handler = logging.NullHandler() if log is None else logging.FileHandler(log)
    except OSError as error:
        raise StorageFailed(f"the engine's log {str(log)!r} cannot be written: {error}") from error
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield
    finally:
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()
