"""Servers that deviate where labels are computed: changed copies of the real program, and ends that change messages."""

import importlib.util
import sys

import numpy as np

from protocols.crypto.garbling import Garbler
from protocols.levels.two_server import noisy_argmax as real
from protocols.levels.two_server.noisy_argmax import Evaluated


def garbling(garbler):
    """A copy of the real program's module that garbles with this class of gates."""
    name = f"attacking_{garbler.__name__}"
    spec = importlib.util.spec_from_file_location(name, real.__file__)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Garbler = garbler
    return module


class OtherGates(Garbler):
    """Garbles another circuit: every seventh AND is a NAND."""

    count = 0

    def conjunction(self, left, right):
        self.count += 1
        result = super().conjunction(left, right)
        return result if self.count % 7 else self.negation(result)


class FlippedOutputs(Garbler):
    """Garbles a circuit in which the bits of every label are flipped where a query passed: its last gates are NANDs."""

    # Bits of a label, and queries: the only gates of this shape are those of the bits under the pass bit.
    outputs = (2, 4)

    def conjunction(self, left, right):
        result = super().conjunction(left, right)
        last = left.shape[:2] == self.outputs and right.shape[0] == self.outputs[1]
        return self.negation(result) if last else result


class SelectiveFailure(Garbler):
    """Garbles with a wrong label for one value of one input bit of the first query: selective failure.

    The first gates have the negated lowest bits of the coordinator's numbers on the left, of the guardian's on the
    right. The label of one of the first is wrong: whoever has it gets a wrong label out of the gate.
    """

    wire = 0
    count = 0

    def _both(self, wires, shape, tweaks):
        of_zero, difference = super()._both(wires, shape, tweaks)
        if self.count == self.wire:
            difference[0, 0, 0] ^= np.uint64(2)
        self.count += 1
        return of_zero, difference


class SelectiveFailureOfTheGuardian(SelectiveFailure):
    """The same, of the guardian's bit."""

    wire = 1


class Claiming(Evaluated):
    """What a server holds that claims other labels than its evaluation gave."""

    def secret(self, outputs, *, garbled):
        claimed = outputs.copy()
        claimed[0] ^= True
        return super().secret(claimed, garbled=garbled)


def claiming(evaluates):
    """A server that claims other labels than it decodes."""

    def claims(channel, inputs, *, source):
        held = evaluates(channel, inputs, source=source)
        return Claiming(held.context, held.active, held.zeros, held.offset, held.mask, held.seed, held.bound)

    return claims


class Changing:
    """An end that flips one bit, of octet `at`, in one of the messages of `size` bytes that it sends.

    number: how many of them it leaves as they are before.
    """

    def __init__(self, end, size, *, number=0, at=0):
        self.end, self.size, self.left, self.at = end, size, number, at
        self.recv, self.close = end.recv, end.close

    def send(self, data):
        if len(data) == self.size:
            if self.left == 0:
                octets = bytearray(data)
                octets[self.at] ^= 1
                data = bytes(octets)
            self.left -= 1
        self.end.send(data)
