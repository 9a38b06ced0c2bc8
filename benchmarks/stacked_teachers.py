"""How much faster 250 CNN teachers train stacked than looped on a CUDA device, both in one run.

    python benchmarks/stacked_teachers.py [--teachers 250] [--records 240]

Prints 'not measured: no CUDA device' and exits with 0 where there is none: on a CPU stacking a CNN is
slower than a loop. The images are random, which costs the same time as real ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from party.teachers.teacher import Shard
from party.teachers.torch_teacher import TorchKind, cnn

_CLASSES = 10


def seconds(kind: TorchKind, shards: list[Shard], *, stacked: bool) -> float:
    """Wall time of training one teacher per shard."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    kind.fit_with(shards, classes=_CLASSES, seeds=list(range(len(shards))), stacked=stacked)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Trains the teachers both ways and prints the two times and their ratio."""
    parser = argparse.ArgumentParser(description="CNN teachers, stacked against looped.")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--records", type=int, default=240)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("not measured: no CUDA device")
        return
    kind = cnn(device="cuda")
    generator = np.random.default_rng(0)
    shards: list[Shard] = [
        (
            generator.random((arguments.records, 28, 28), np.float32),
            generator.integers(0, _CLASSES, arguments.records),
        )
        for _ in range(arguments.teachers)
    ]
    for stacked in (True, False):  # the first use of a kernel compiles or tunes it
        seconds(kind, shards[:2], stacked=stacked)
    stacked_s, looped_s = (seconds(kind, shards, stacked=stacked) for stacked in (True, False))
    print(f"device    {torch.cuda.get_device_name()}")
    print(f"teachers  {arguments.teachers} cnn, {arguments.records} images of 28x28 each")
    print(f"looped    {looped_s:.2f} s")
    print(f"stacked   {stacked_s:.2f} s")
    print(f"ratio     {looped_s / stacked_s:.1f} times faster stacked")


if __name__ == "__main__":
    main()
