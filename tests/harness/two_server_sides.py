"""Both servers in one process: each side in a thread, an in-memory channel between them."""

import queue
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np

from protocols.crypto.channel import pair
from protocols.crypto.field import P, from_integers, minus, plus, times
from protocols.errors import ChannelClosed
from protocols.ledger.ledger import Ledger
from protocols.levels.two_server.agreement import coordinator_opens, guardian_opens
from protocols.levels.two_server.batch_notes import BatchNotes, OpenedBatches
from protocols.levels.two_server.circuit_inputs import Bound, circuit_inputs
from protocols.levels.two_server.noisy_argmax import coordinator_evaluates, guardian_evaluates
from tests.harness.seeded import seeded_source


def centred(elements):
    """The integers from -(p-1)/2 to (p-1)/2 that elements of the field stand for."""
    values = elements.astype(np.int64)
    return np.where(values > P // 2, values - P, values)


class Unbuffered:
    """An end of a channel of which a send returns only when the other side has taken the message."""

    def __init__(self, outgoing, incoming):
        self._outgoing, self._incoming = outgoing, incoming

    def send(self, data):
        taken = Event()
        self._outgoing.put((bytes(data), taken))
        if not taken.wait(timeout=300.0):
            raise ChannelClosed("the other side took nothing")

    def recv(self, limit):
        try:
            data, taken = self._incoming.get(timeout=300.0)
        except queue.Empty:
            raise ChannelClosed("the other side sent nothing") from None
        taken.set()
        assert len(data) <= limit
        return data

    def close(self):
        pass


def unbuffered_pair():
    there, back = queue.Queue(), queue.Queue()
    return Unbuffered(there, back), Unbuffered(back, there)


class Transcribed:
    """An end of a channel that keeps what was sent."""

    def __init__(self, end):
        self.end, self.sent = end, []
        self.recv, self.close = end.recv, end.close

    def send(self, data):
        self.sent.append(bytes(data))
        self.end.send(data)


def converse(coordinator, guardian, *, channels=None):
    """(the coordinator's result, the guardian's); an error of either, which closes its channel, is raised."""
    ends = channels or pair(wait_s=300.0)

    def run(side, end):
        try:
            return side(end)
        finally:
            end.close()

    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(run, side, end) for side, end in zip((coordinator, guardian), ends, strict=True)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    # A channel that the other side's error closed is not the cause.
    for error in sorted(errors, key=lambda error: isinstance(error, ChannelClosed)):
        raise error
    return futures[0].result(), futures[1].result()


def split(counts, rng):
    """Uniform shares of integers."""
    masks = rng.integers(0, P, counts.shape).astype(np.uint32)
    return minus(from_integers(counts), masks), masks


def notes_of_a_batch():
    """Of a ledger that is not kept."""
    ledger, other = Ledger(":memory:"), "the other server"
    return BatchNotes(ledger, b"request", 0, other, OpenedBatches(ledger, b"study", other=other))


# What a dealer would deal: the same alphas on both sides, and keys that both know, as honest servers do not look.
ALPHAS = np.array([[123_456_789, 987_654_321], [1_357_913_579, 246_802_468]], dtype=np.uint32)


def dealt(share, noise, *, leads):
    """A server's share of the counts with its noise, bound to it; it holds macs under the first alphas if it leads."""
    numbers = plus(share, from_integers(noise))
    held, kept = (
        np.random.default_rng(at).integers(0, P, (2, *share.shape)).astype(np.uint32) for at in (leads, not leads)
    )
    own, others = (ALPHAS[int(at)] for at in (leads, not leads))
    return Bound(numbers, minus(held, times(own[:, None, None], numbers)), others, kept)


def inputs_of(share, *, noise, leads, threshold, total_units, masked=False):
    """A server's inputs."""
    bound = dealt(share, noise, leads=leads)
    return circuit_inputs(bound, leads=leads, threshold=threshold, total_units=total_units, masked=masked)


def coordinator_side(channel, share, *, source, notes=None, evaluates=coordinator_evaluates, **numbers):
    """What the coordinator opens."""
    inputs = inputs_of(share, leads=True, **numbers)
    return coordinator_opens(
        channel,
        inputs.sizes,
        notes=notes or notes_of_a_batch(),
        evaluate=lambda: evaluates(channel, inputs, source=source),
    )


def guardian_side(channel, share, *, source, notes=None, evaluates=guardian_evaluates, **numbers):
    """What the guardian opens."""
    inputs = inputs_of(share, leads=False, **numbers)
    return guardian_opens(
        channel,
        inputs.sizes,
        notes=notes or notes_of_a_batch(),
        evaluate=lambda: evaluates(channel, inputs, source=source),
    )


def labels_of(counts, noise, threshold, *, total_units, seed=0, channels=None):
    """The labels that both servers get; noise: the two servers', on the first axis."""
    coordinators, guardians = split(counts, np.random.default_rng(seed))
    opened, known = converse(
        lambda channel: coordinator_side(
            channel, coordinators, noise=noise[0], threshold=threshold, total_units=total_units,
            source=seeded_source(seed, 1),
        ),
        lambda channel: guardian_side(
            channel, guardians, noise=noise[1], threshold=threshold, total_units=total_units,
            source=seeded_source(seed, 2),
        ),
        channels=channels,
    )  # fmt: skip
    return opened.labels, known.signed
