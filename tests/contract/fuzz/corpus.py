"""The corpus: inputs of every reader (tests/harness/decoders.py) that reach lines which no other input reaches.

    python -m tests.contract.fuzz.corpus --seconds 5

alters known inputs for so long a reader, keeps what reaches new lines, and writes corpus/READER.txt: one input a line,
in hexadecimal. test_corpus.py replays them. Atheris (fuzz_decoders.py) can begin with them: `--export FOLDER` writes
each input to a file of its own, behind the byte that chooses its reader.
"""

import argparse
import random
import re
import sys
import time
import warnings
from pathlib import Path
from types import FrameType

from protocols.errors import ConclaveError
from tests.contract.fuzz.test_altered_inputs import altered
from tests.harness.decoders import READERS, SEEDS

FOLDER = Path(__file__).parent / "corpus"
ROOMS = tuple(str(Path(__file__).parents[3] / room) for room in ("protocols", "party", "coordinator", "guardian"))
# Of one reader's file: inputs, and the bytes of each.
MOST, LARGEST = 12, 1500
Lines = frozenset[tuple[str, int]]


def file_of(name: str) -> Path:
    """Where a reader's inputs are."""
    return FOLDER / (re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") + ".txt")


def corpus(name: str) -> list[bytes]:
    """The inputs of a reader; none if there is no file."""
    path = file_of(name)
    return [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []


def lines_of(name: str, data: bytes) -> Lines:
    """The lines of the project that reading reaches, whether it ends well or is refused."""
    reached: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: object):
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        reached.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        READERS[name](data)
    except ConclaveError:
        pass
    finally:
        sys.settrace(None)
    return frozenset(reached)


def grown(name: str, seconds: float, draw: random.Random) -> list[bytes]:
    """Inputs that reach new lines each: of the corpus as it is, the reader's own seeds, and what is made of them."""
    kept: list[bytes] = []
    seen: set[tuple[str, int]] = set()

    def offer(data: bytes) -> None:
        if len(data) <= LARGEST and len(kept) < MOST and (new := lines_of(name, data) - seen):
            seen.update(new)
            kept.append(data)

    known = [each for each in SEEDS.get(name, [b""])]
    for each in (*corpus(name), *known):
        offer(each)
    until = time.monotonic() + seconds
    while time.monotonic() < until and len(kept) < MOST:
        offer(altered(draw.choice([*known, *kept]), draw))
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--export", type=Path, help="write the corpus for Atheris, and stop")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.export:
        given.export.mkdir(parents=True, exist_ok=True)
        for reader, name in enumerate(READERS):
            for number, data in enumerate(corpus(name)):
                (given.export / f"corpus-{reader}-{number}").write_bytes(bytes([reader]) + data)
        return
    FOLDER.mkdir(exist_ok=True)
    for name in READERS:
        made = grown(name, given.seconds, random.Random(f"{given.seed} {name}"))
        file_of(name).write_text("".join(f"{each.hex() or '00'}\n" for each in made))
        print(f"{name}: {len(made)}")


if __name__ == "__main__":
    main()
