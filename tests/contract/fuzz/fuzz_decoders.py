"""Coverage-guided fuzzing of everything that decodes bytes or reads a file from elsewhere.

    pip install atheris
    python tests/contract/fuzz/fuzz_decoders.py -max_total_time=600 CORPUS_FOLDER

The first byte chooses the reader (readers.py), the rest is what it reads. The input that led to a finding is written to
./crash-*. Short runs of the same readers are part of the test suite (test_altered_inputs.py).
"""

import sys
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["protocols", "party", "coordinator"]):
    from protocols.errors import ConclaveError
    from tests.harness.decoders import READERS, SEEDS

NAMES = tuple(READERS)


def one(data: bytes) -> None:
    if not data:
        return
    try:
        READERS[NAMES[data[0] % len(NAMES)]](data[1:])
    except ConclaveError:
        return


def main() -> None:
    warnings.simplefilter("ignore")
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            corpus = Path(argument)
            corpus.mkdir(parents=True, exist_ok=True)
            for reader, name in enumerate(NAMES):
                for number, seed in enumerate(SEEDS.get(name, [])):
                    (corpus / f"seed-{reader}-{number}").write_bytes(bytes([reader]) + seed)
            break
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
