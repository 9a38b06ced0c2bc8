"""What carrying messages costs on each engine, side by side: 250 parties that do next to nothing.

    python benchmarks/engines.py [--parties 250] [--exchanges 20] [--workers N]

Prints one line of JSON per engine and one with the ratios. For each engine: importing it, starting it (from
the call of run to the first complete exchange), one exchange (median, least, most), stopping it, and the
largest memory of its whole process tree (proportional set size: shared pages count once). Takes a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulations.engines import ENGINES, open_engine
from simulations.engines.engine import Exchange, HostSpec


class TreeMemory:
    """Samples the memory of this process and all below it every 0.2 s; `largest_mib` afterwards."""

    def __init__(self) -> None:
        self.largest_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.2):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:  # it ended between the listing and the question
                    continue
            self.largest_mib = max(self.largest_mib, total / 2**20)


def measure(name: str, *, parties: int, exchanges: int, workers: int | None) -> dict[str, float | str]:
    """Times in seconds of one run with `exchanges` exchanges after the first."""
    roster = [f"party-{i}" for i in range(parties)]
    requests = dict.fromkeys(roster, b"x")
    durations: list[float] = []
    memory = TreeMemory()
    begin = time.perf_counter()
    engine = open_engine(name, workers=workers)
    imported = time.perf_counter()

    def body(exchange: Exchange) -> tuple[float, float]:
        replies = exchange(requests)
        assert len(replies) == parties
        assert all(reply is not None for reply in replies.values())
        first = time.perf_counter()
        for _ in range(exchanges):
            start = time.perf_counter()
            exchange(requests)
            durations.append(time.perf_counter() - start)
        return first, time.perf_counter()

    first, last = engine.run(HostSpec("engine_host:open_host"), roster, body)
    stopped = time.perf_counter()
    memory.stop()
    return {
        "engine": name,
        "import_s": round(imported - begin, 3),
        "start_s": round(first - imported, 3),
        "exchange_s_median": round(statistics.median(durations), 4),
        "exchange_s_least": round(min(durations), 4),
        "exchange_s_most": round(max(durations), 4),
        "stop_s": round(stopped - last, 3),
        "peak_tree_mib": round(memory.largest_mib),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of an exchange on each engine")
    parser.add_argument("--parties", type=int, default=250)
    parser.add_argument("--exchanges", type=int, default=20)
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    results = {}
    for name in sorted(ENGINES, reverse=True):  # in_process first: what Flower imports would count against it
        results[name] = measure(name, parties=options.parties, exchanges=options.exchanges, workers=options.workers)
        print(json.dumps(results[name]), flush=True)
    local = results["in_process"]
    ratios = {
        f"{name}_to_in_process": {
            key: round(float(result[key]) / float(local[key]), 1)
            for key in ("start_s", "exchange_s_median", "peak_tree_mib")
        }
        for name, result in results.items()
        if name != "in_process"
    }
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
