"""What a hospital might have installed: teachers with files of their own."""

import json
import os

import numpy as np


class Saved:
    """An object with files of its own. loaded: whether it is from a file, as in the teachers' process."""

    def __init__(self):
        self.cut, self.loaded = 0.0, False

    def fit(self, inputs, labels):
        self.cut = float(inputs[labels == 1, 0].min() + inputs[labels == 0, 0].max()) / 2

    def predict(self, inputs):
        return (inputs[:, 0] > self.cut).astype(np.int64)

    def save(self, path):
        path.write_text(json.dumps(self.cut))

    @classmethod
    def load(cls, path):
        made = cls()
        made.cut, made.loaded = float(json.loads(path.read_text())), True
        return made


class Crashing(Saved):
    """Dies with the teachers' process when it is asked."""

    def predict(self, inputs):
        if self.loaded and len(inputs) > 3:
            os._exit(17)
        return super().predict(inputs)


class Gated(Saved):
    """Answers more than three queries once for each byte that somebody puts into the FIFO `gate` beside its file."""

    def predict(self, inputs):
        if self.loaded and len(inputs) > 3:
            gate = os.open(self.gate, os.O_RDWR)
            os.read(gate, 1)
            os.close(gate)
        return super().predict(inputs)

    @classmethod
    def load(cls, path):
        made = super().load(path)
        made.gate = path.parent / "gate"
        return made
