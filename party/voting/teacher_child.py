"""The teachers' process: it loads the teachers of a folder, and each votes when asked.

`python -m party.voting.teacher_child FOLDER STUDY`. In both directions a message is its length in 8 bytes, then its
bytes. The node (teacher_process.py) sends a VoteRequest, or an empty message, which asks the next teacher. A reply
starts with
a byte that gives its kind: how many teachers of how many are loaded; or one teacher's votes, or why there are none.

The process ends when its input does, even during a prediction: it never outlives its node.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Never

from protocols.errors import ConclaveError
from protocols.refusals.code import Code
from protocols.wire.messages import Message, Refusal, VoteReply, VoteRequest, decode, encode

LENGTH_BYTES: Final = 8
LOADED, SAID = b"L", b"S"
# A LOADED message holds the number of teachers loaded, and of all teachers.
COUNT_BYTES: Final = 4
NEXT: Final = b""


def framed(message: bytes) -> bytes:
    """A message, preceded by its length."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def main(arguments: list[str]) -> int:
    """Loads the teachers of a folder and votes until standard input ends; returns the exit code."""
    # Ctrl-C in a terminal reaches both processes; the node ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sink = os.dup(1)
    # Output that a hospital's own teacher prints must not mix with the messages.
    os.dup2(2, 1)
    orders: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()

    def loaded(count: int, teachers: int) -> None:
        _send(sink, LOADED + count.to_bytes(COUNT_BYTES, "big") + teachers.to_bytes(COUNT_BYTES, "big"))

    def say(message: Message) -> None:
        _send(sink, SAID + encode(message))

    from party.voting.trained import load_teachers

    try:
        teachers = load_teachers(Path(arguments[0]), study=bytes.fromhex(arguments[1]), loaded=loaded)
    except ConclaveError as error:
        say(Refusal(Code.TEACHERS_FAILED, str(error)))
        return 1
    # The node asks for a batch first, then for the next teacher's votes on it or for another batch.
    request, number = _batch(orders.get()), 0
    while True:
        try:
            votes = teachers[number].predict(request.batch.inputs)
            say(VoteReply(request.digest, votes[None]))
        except ConclaveError as error:
            say(Refusal(Code.TEACHERS_FAILED, str(error)))
        number += 1
        if (order := orders.get()) != NEXT:
            request, number = _batch(order), 0


def _batch(order: bytes) -> VoteRequest:
    request = decode(order)
    assert isinstance(request, VoteRequest)
    return request


def _read(orders: SimpleQueue[bytes]) -> Never:
    """Queues the node's requests; ends the process, whatever it is doing, when the node closes the pipe or is gone."""
    while True:
        orders.put(_exactly(int.from_bytes(_exactly(LENGTH_BYTES), "big")))


def _exactly(count: int) -> bytes:
    """Exactly `count` bytes of standard input."""
    parts: list[bytes] = []
    while count:
        part = os.read(0, min(count, 2**20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _send(sink: int, message: bytes) -> None:
    left = memoryview(framed(message))
    while left:
        left = left[os.write(sink, left) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
