"""A network that delays every byte and cuts connections at any of them, between nodes and hub with mutual TLS."""

import asyncio
import random

import numpy as np
import pytest

from tests.harness.consortium import Consortium
from tests.harness.forwarding import Forwarder
from tests.harness.studies import deployed_study
from tests.system.coordinator.connection.test_hub import in_one_process


class Proxy(Forwarder):
    """Forwards late, and cuts each connection after a random number of bytes."""

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(target)
        self._random, self.cut = random.Random(seed), 0

    async def _forward(self, reader, writer, left):
        left += [] if left else [self._random.randrange(8_000, 40_000)]
        while data := await reader.read(2048):
            await asyncio.sleep(self._random.uniform(0, 0.01))
            if left[0] <= len(data):
                writer.write(data[: left[0] // 2])
                self.cut += 1
                return
            left[0] -= len(data)
            writer.write(data)
            await writer.drain()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_connections_that_are_slow_and_cut_change_neither_labels_nor_spend(tmp_path, seed):
    study = deployed_study(2, pool=12, batch_limit=1, quorum=2)
    with Consortium(study, tmp_path) as consortium, Proxy(consortium.address, seed) as proxy:
        direct, consortium.address = consortium.address, proxy.address
        consortium.start_all()
        labelled = consortium.label()
        assert proxy.cut >= 2
        expected = in_one_process(study)
        np.testing.assert_array_equal(labelled.labels, expected.labels)
        np.testing.assert_array_equal(labelled.spent, expected.spent)
        for name, spent in zip(consortium.parties, expected.spent, strict=True):
            balance = consortium.ledgers[name].balance(name)
            assert spent <= balance.spent <= balance.cap
        consortium.address = direct
