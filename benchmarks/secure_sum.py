"""Secure sums: what a party and the server compute and send, with neighbours and on the full graph, in one run.

    python benchmarks/secure_sum.py [--parties 250] [--cells 10000] [--dropouts 25] [--colluders 25]

Drop-outs leave before their masked votes, which costs the server most. Signatures are ECDSA over P-256, as identities
have; their share of the time is shown apart. Times are of the processor, one thread: a party's is the mean over all
parties, the server's that of one sum.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from protocols.aggregation.secure_sum import graph, party
from protocols.aggregation.secure_sum.context import Context
from protocols.aggregation.secure_sum.coordinator import (
    collect_keys,
    collect_masked,
    collect_shares,
    collect_signatures,
)
from protocols.aggregation.secure_sum.opening import open_sum

STEPS = ("keys", "shares", "mask", "agree", "unmask")
_ECDSA = ec.ECDSA(hashes.SHA256())


@dataclass
class Clock:
    """Seconds and bytes by step, and the seconds in signatures."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    signatures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STEPS, 0))
    received: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STEPS, 0))


class Bench:
    """One sum of `cells` zeros and ones."""

    def __init__(self, context: Context) -> None:
        self.context, self.party, self.server = context, Clock(), Clock()
        self.keys = [ec.generate_private_key(ec.SECP256R1()) for _ in context.members]
        self.publics = {name: key.public_key() for name, key in zip(context.members, self.keys, strict=True)}
        self.secrets = [hashlib.sha256(name.encode()).digest() for name in context.members]
        self.values = np.random.default_rng(0).integers(0, 64, (context.parties, context.cells))
        self.notes: list[dict[str, bytes]] = [{} for _ in context.members]
        self.clock, self.step = self.party, STEPS[0]

    def verify(self, name: str, message: bytes, signature: bytes) -> bool:
        start = time.thread_time()
        try:
            self.publics[name].verify(signature, message, _ECDSA)
        except InvalidSignature:
            return False
        finally:
            self.clock.signatures[self.step] += time.thread_time() - start
        return True

    def sign(self, index: int):
        def signed(message: bytes) -> bytes:
            start = time.thread_time()
            signature = self.keys[index].sign(message, _ECDSA)
            self.clock.signatures[self.step] += time.thread_time() - start
            return signature

        return signed

    def answer(self, index, request):
        own, notes = (self.secrets[index], self.context, index), self.notes[index]
        if self.step == "keys":
            return party.advertise(*own, sign=self.sign(index))
        if self.step == "shares":
            return party.share(*own, request, verify=self.verify)
        if self.step == "mask":
            notes["masked"] = party.masking_note(self.context, index, request)
            return party.mask(*own, request, self.values[index], noted=notes["masked"])
        if self.step == "agree":
            notes["noted"] = party.survivors_note(self.context, index, request)
            return party.agree(self.context, index, request, **notes, sign=self.sign(index))
        return party.unmask(*own, request, **notes, verify=self.verify)

    def ask(self, step, asked, request):
        self.step, replies = step, {}
        for index in np.flatnonzero(asked).tolist():
            start, self.clock = time.thread_time(), self.server
            arrays = request(index)
            middle, self.clock = time.thread_time(), self.party
            replies[index] = self.answer(index, arrays)
            end = time.thread_time()
            self.server.seconds[step] += middle - start
            self.party.seconds[step] += (end - middle) / asked.sum()
            self.party.sent[step] = sum(array.nbytes for array in replies[index])
            self.party.received[step] = sum(array.nbytes for array in arrays)
        self.party.signatures[step] /= asked.sum()
        return replies

    def collect(self, step, function, *arguments, **named):
        self.clock, start = self.server, time.thread_time()
        collected = function(*arguments, **named)
        self.server.seconds[step] += time.thread_time() - start
        return collected

    def run(self, absent) -> None:
        verify, everyone = self.verify, np.ones(self.context.parties, dtype=bool)
        replies = self.ask("keys", everyone, lambda index: ())
        keys = self.collect("keys", collect_keys, self.context, replies, verify=verify)
        shared = self.collect("shares", collect_shares, keys, self.ask("shares", keys.present, keys.request))
        replies = {
            index: reply
            for index, reply in self.ask("mask", shared.present, shared.request).items()
            if index not in absent
        }
        masked = self.collect("mask", collect_masked, shared, replies)
        replies = self.ask("agree", masked.present, lambda index: masked.request)
        agreed = self.collect("agree", collect_signatures, masked, replies, verify=verify)
        replies = self.ask("unmask", agreed.present, agreed.request)
        opened = self.collect("unmask", open_sum, agreed, replies)
        np.testing.assert_array_equal(opened.sums, np.delete(self.values, list(absent), axis=0).sum(axis=0))


def show(title: str, bench: Bench) -> None:
    context = bench.context
    print(
        f"\n{title}: {context.parties} parties x {context.cells:,} cells, {context.dropouts} drop-outs; "
        f"{context.graph.degree} neighbours, threshold {context.threshold}, quorum {context.quorum}"
    )
    print(
        f"{'step':8}{'party ms':>10}{'signatures':>12}{'sent':>10}{'received':>10}{'server ms':>11}{'signatures':>12}"
    )
    totals = np.zeros(6)
    for step in STEPS:
        row = np.array([
            1e3 * bench.party.seconds[step], 1e3 * bench.party.signatures[step], bench.party.sent[step],
            bench.party.received[step], 1e3 * bench.server.seconds[step], 1e3 * bench.server.signatures[step],
        ])  # fmt: skip
        totals += row
        print(f"{step:8}{row[0]:10.2f}{row[1]:12.2f}{row[2]:10,.0f}{row[3]:10,.0f}{row[4]:11.1f}{row[5]:12.1f}")
    print(
        f"{'all':8}{totals[0]:10.2f}{totals[1]:12.2f}{totals[2]:10,.0f}{totals[3]:10,.0f}{totals[4]:11.1f}"
        f"{totals[5]:12.1f}"
    )


def main() -> None:
    """Prints a table for the k-connected graph, and one for the full graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"parties": 250, "cells": 10_000, "dropouts": 25, "colluders": 25}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    sizes = parser.parse_args()
    for title in ("neighbours", "full graph"):
        context = Context(
            study=bytes(32), run=b"", batch=bytes(32), cells=sizes.cells, bits=32, dropouts=sizes.dropouts,
            colluders=sizes.colluders, members=tuple(f"hospital-{index}" for index in range(sizes.parties)),
        )  # fmt: skip
        if title == "full graph":
            degree = sizes.parties - 1
            # Cached properties of a frozen value: what a full graph would have given.
            context.__dict__["graph"] = graph.Graph(sizes.parties, degree, context.digest)
            context.__dict__["threshold"] = degree - sizes.dropouts
        bench = Bench(context)
        bench.run(range(sizes.dropouts))
        show(title, bench)


if __name__ == "__main__":
    main()
