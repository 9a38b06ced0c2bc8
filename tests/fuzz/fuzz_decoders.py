"""Coverage-guided fuzzing of everything that decodes bytes or reads a file from elsewhere.

    pip install atheris
    python tests/fuzz/fuzz_decoders.py -max_total_time=600 CORPUS_FOLDER

The first byte chooses the reader, the rest is what it reads. A reader may return, or raise an error of
protocols.errors; anything else is a finding, and the input that led to it is written to ./crash-*. Short runs of the
same readers, by hypothesis, are part of the test suite.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["protocols", "party", "coordinator"]):
    import numpy as np

    import party.data.csv_file
    import party.data.npz
    import party.data.parquet  # noqa: F401
    from coordinator.pool import read_pool
    from coordinator.release.folder import read_json
    from coordinator.release.labels import read_labels
    from party.data import load_records
    from party.party import Party
    from party.settings import DataSettings, read_invitation, read_settings
    from protocols import wire_pb2
    from protocols.accounting.ledger import Ledger
    from protocols.aggregation.guardian import Submission
    from protocols.aggregation.summed_ballot import SummedBallot
    from protocols.channel import pair
    from protocols.enrolment import decode_enrol, decode_enrolled
    from protocols.errors import ConclaveError
    from protocols.frames import _decode, unseal
    from protocols.identity import certificate_from_pem, key_from_pem, new_authority, new_key, request_from_pem
    from protocols.inference.announced import read_announced
    from protocols.messages import StepRequest, decode, decode_arrays
    from protocols.randomness import seeded_source
    from protocols.study_file import read_study
    from protocols.terms import Feature, Terms
    from tests.contracts.levels import SEAT_KEYS, GuardianHere, lattice_study, secure_sum, two_server

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
AUTHORITY = new_authority(new_key(), name="fuzz", now=NOW, days=99)
FOLDER = Path(tempfile.mkdtemp())
TABLE = Terms(
    task="fuzz", class_names=("no", "yes"), label="label", input_shape=(4,), pool_size=1, pool_sha256="0" * 64,
    deadline_s=1.0, coordinator="centre", ends="2999-12-31",
    features=(
        Feature(column="age", kind="numeric", centre=50.0, scale=10.0, log=True, may_miss=True),
        Feature(column="sex", kind="categorical", categories=("f", "m")),
    ),
)  # fmt: skip
ARRAYS = Terms(
    task="fuzz", class_names=("no", "yes"), label="label", input_shape=(2,), pool_size=1, pool_sha256="0" * 64,
    deadline_s=1.0, coordinator="centre", ends="2999-12-31",
)  # fmt: skip


def written(data: bytes, name: str) -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def records(data: bytes, loader: str, terms: Terms) -> None:
    path = written(data, f"records.{loader}")
    load_records(DataSettings(name="fuzz", path=path, loader=loader, patient=""), terms)


SUMS = lattice_study(secure_sum(), classes=2)
SUMMED = Party(
    "p0", study=SUMS, ledger=(SUMMED_LEDGER := Ledger(":memory:")), coins_from=None,
    voter=lambda batch: np.zeros((1, len(batch.ids)), dtype=np.int64),
    ballot=SummedBallot(SUMS, "p0", ledger=SUMMED_LEDGER, key=SEAT_KEYS[0], source=seeded_source(1)),
)  # fmt: skip
SHARES = lattice_study(two_server(), classes=2)
GUARDIAN = GuardianHere(SHARES, Ledger(":memory:"), seeded_source(2)).guardian


def step(data: bytes) -> None:
    """One step of a masked sum with any arrays: the first byte says which."""
    names = ("sum_keys", "sum_shares", "sum_agree", "sum_open")
    name = names[data[0] % 4] if data else names[0]
    SUMMED.handle(StepRequest(SUMS.digest, bytes(32), name, decode_arrays(data[1:])))


def conversation(data: bytes) -> None:
    """A guardian that is sent one message."""
    here, there = pair(wait_s=0.001)
    here.send(data)
    GUARDIAN.serve(there)


READERS = (
    decode,
    decode_arrays,
    step,
    SUMMED.handle_bytes,
    conversation,
    lambda data: Submission.read(decode_arrays(data)),
    lambda data: read_announced(data.decode("utf-8", errors="replace")),
    lambda data: unseal(data, authority=AUTHORITY, now=NOW, role="party"),
    _decode,
    decode_enrol,
    decode_enrolled,
    certificate_from_pem,
    request_from_pem,
    key_from_pem,
    lambda data: read_study(written(data, "study.toml")),
    lambda data: read_settings(written(data, "node.toml")),
    lambda data: read_invitation(written(data, "invitation.toml")),
    lambda data: records(data, "csv", TABLE),
    lambda data: records(data, "npz", ARRAYS),
    lambda data: records(data, "parquet", TABLE),
    lambda data: read_pool(written(data, "pool.npy")),
    lambda data: read_pool(written(data, "pool.npz")),
    lambda data: read_pool(written(data, "pool.csv"), features=TABLE.features),
    lambda data: read_json(written(data, "privacy.json")),
    lambda data: (written(data, "labels.csv"), read_labels(FOLDER, classes=2)),
)


def one(data: bytes) -> None:
    if not data:
        return
    try:
        READERS[data[0] % len(READERS)](data[1:])
    except ConclaveError:
        return


def seeds() -> list[bytes]:
    """A valid input for most readers, so that fuzzing starts behind the first check."""
    import io

    import numpy as np

    from protocols.audit_log import EMPTY
    from protocols.frames import Answer, Ask, Hello, Standing, _encode
    from protocols.messages import Outcome, Refusal, Settled, VoteReply, VoteRequest, encode
    from protocols.queries import QueryBatch

    digest = b"d" * 32
    batch = QueryBatch(1, np.arange(2), np.zeros((2, 3), np.float32))
    messages = [
        VoteRequest(digest, b"run", batch),
        VoteReply(digest, np.zeros((1, 2), np.int64)),
        Outcome(digest, digest, np.array([True, False])),
        Settled(digest, 7),
        Refusal("code", "reason"),
    ]
    found = [b"\x00" + encode(message) for message in messages]
    nonce = b"n" * 16
    for frame in (
        Hello((1,), "software", nonce, (Standing(digest, "h", EMPTY, EMPTY, (digest,)),)),
        Ask(nonce, 1, nonce, digest, "h", EMPTY, EMPTY, b"envelope"),
        Answer(nonce, 1, digest, "h", EMPTY, EMPTY, b"envelope"),
    ):
        body = _encode(frame)
        found.append(b"\x02" + body)
        found.append(b"\x01" + wire_pb2.Signed(body=body, signature=b"s", certificate=b"c").SerializeToString())
    for number, array in ((14, np.zeros((2, 2), np.float32)),):
        buffer = io.BytesIO()
        np.save(buffer, array)
        found.append(bytes([number]) + buffer.getvalue())
    for number, arrays in ((12, {"inputs": np.zeros((2, 2), np.float32), "labels": np.array([0, 1])}),
                           (15, {"inputs": np.zeros((2, 2), np.float32)})):  # fmt: skip
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        found.append(bytes([number]) + buffer.getvalue())
    table = b"age,sex,label\n40,f,no\n,m,yes\n"
    found += [b"\x0b" + table, b"\x10" + table, b"\x12query,status,label\n0,answered,1\n"]
    study = Path(__file__).parent.parent / "vectors" / "study.toml"
    if study.exists():
        found.append(b"\x08" + study.read_bytes())
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            corpus = Path(argument)
            corpus.mkdir(parents=True, exist_ok=True)
            for number, seed in enumerate(seeds()):
                (corpus / f"seed-{number}").write_bytes(seed)
            break
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
