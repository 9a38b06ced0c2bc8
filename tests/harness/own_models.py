"""What a hospital might have installed: teachers with files of their own."""

import json
import os

import numpy as np


class Saved:
    """An object with files of its own."""

    def __init__(self):
        self.cut = 0.0

    def fit(self, inputs, labels):
        self.cut = float(inputs[labels == 1, 0].min() + inputs[labels == 0, 0].max()) / 2

    def predict(self, inputs):
        return (inputs[:, 0] > self.cut).astype(np.int64)

    def save(self, path):
        path.write_text(json.dumps(self.cut))

    @classmethod
    def load(cls, path):
        made = cls()
        made.cut = float(json.loads(path.read_text()))
        return made


class Crashing(Saved):
    """Dies with its process when it is asked."""

    def predict(self, inputs):
        if len(inputs) > 3:
            os._exit(17)
        return super().predict(inputs)


class Gated(Saved):
    """Answers more than three queries once for each byte that somebody puts into the FIFO `gate` beside its file."""

    def predict(self, inputs):
        if len(inputs) > 3:
            gate = os.open(self.gate, os.O_RDWR)
            os.read(gate, 1)
            os.close(gate)
        return super().predict(inputs)

    @classmethod
    def load(cls, path):
        made = super().load(path)
        made.gate = path.parent / "gate"
        return made
