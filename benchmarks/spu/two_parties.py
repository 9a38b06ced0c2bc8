# mypy: ignore-errors
# Written for another interpreter (Python 3.11, numpy < 2, spu 0.9.5), which this project's type checker does not see.
"""One of two parties of an SPU computation by Cheetah (Huang, Lu, Hong, Ding 2022), with TLS on; never imported by us.

Cheetah needs no dealer and is secure against a semi-honest party. It is named explicitly, since the library's default
for two parties takes its correlated randomness from a trusted first party, which is for debugging.

TLS 1.3 with certificates of the given authority encrypts what is sent and says to whom. The library's server also takes
plain text on its port, so nobody but the other party may reach that port (a firewall): a stranger could not read, but
could disturb. Parties that do not get through to each other wait until --limit-s ends them.
"""

from __future__ import annotations

import argparse
import os
import threading
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
import spu
from spu.utils import frontend

ROLES = ("asking", "answering")
libspu = spu.libspu


def arguments(description: str) -> argparse.ArgumentParser:
    """The flags of every program: who this is, how both are reached, keys, and the files of numbers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--role", required=True, choices=ROLES)
    for role in ROLES:
        parser.add_argument(f"--{role}", required=True, metavar="HOST:PORT")
    for name in ("authority", "certificate", "key"):
        parser.add_argument(f"--{name}", required=True, metavar="FILE", help="PEM")
    parser.add_argument("--input", required=True, metavar="FILE", help="npz with this party's private numbers")
    parser.add_argument("--output", required=True, metavar="FILE", help="npz that is written")
    parser.add_argument("--repeats", type=int, default=1, help="runs; more than one for timing")
    parser.add_argument("--limit-s", type=float, default=600.0, help="ends the program, without output, after so long")
    return parser


def configuration() -> libspu.RuntimeConfig:
    """Cheetah over Z_2^64, values that one party holds kept as such until they are used."""
    config = libspu.RuntimeConfig(protocol=libspu.ProtocolKind.CHEETAH, field=libspu.FieldType.FM64)
    config.fxp_fraction_bits = 16
    config.experimental_enable_colocated_optimization = True
    return config


class Party:
    """This process's end of the computation."""

    def __init__(self, options: argparse.Namespace) -> None:
        # The library waits for a peer that TLS refuses, out of reach of exceptions and signals.
        limit = threading.Timer(options.limit_s, os._exit, (1,))
        limit.daemon = True
        limit.start()
        self.rank = ROLES.index(options.role)
        self.config = configuration()
        self.link = libspu.link.create_brpc(self._description(options), self.rank)
        self.runtime = spu.Runtime(self.link, self.config)
        self.io = spu.Io(len(ROLES), self.config)

    @staticmethod
    def _description(options: argparse.Namespace) -> libspu.link.Desc:
        description = libspu.link.Desc()
        for role in ROLES:
            description.add_party(role, getattr(options, role))
        description.recv_timeout_ms = 120_000
        description.connect_retry_times, description.connect_retry_interval_ms = 40, 500
        description.enable_ssl = True
        for ends in (description.client_ssl_opts, description.server_ssl_opts):
            ends.cert.certificate_path, ends.cert.private_key_path = options.certificate, options.key
            ends.verify.ca_file_path, ends.verify.verify_depth = options.authority, 2
        return description

    def run(self, function, inputs: dict[str, tuple[str, np.ndarray]]) -> tuple[np.ndarray, ...]:
        """This party's additive shares, modulo 2^64, of the integers that `function` gives.

        inputs: for each argument its owner's role and its value, of which the other party needs dtype and shape only.
        """
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            function,
            [jax.ShapeDtypeStruct(value.shape, value.dtype) for _, value in inputs.values()],
            {},
            list(inputs),
            [libspu.Visibility.VIS_SECRET] * len(inputs),
            lambda flat: [f"output-{number}" for number in range(len(flat))],
        )
        for name, (owner, value) in inputs.items():
            rank = ROLES.index(owner)
            own = value if rank == self.rank else np.zeros_like(value)
            # Given with its owner, a value is the owner's alone: the other party's part is empty.
            share = self.io.make_shares(own, libspu.Visibility.VIS_SECRET, rank)[self.rank]
            self.runtime.set_var(name, share)
        self.runtime.run(executable)
        return tuple(self._share(name) for name in executable.output_names)

    def _share(self, name: str) -> np.ndarray:
        found = self.runtime.get_var(name)
        meta = libspu.ValueMeta()
        meta.ParseFromString(found.meta)
        if "AShr" not in meta.storage_type:
            raise SystemExit(f"{name} is shared as {meta.storage_type}; expected additive shares")
        parts = []
        for each in found.share_chunks:
            chunk = libspu.ValueChunk()
            chunk.ParseFromString(each)
            parts.append((chunk.chunk_offset, chunk.content))
        content = b"".join(part for _, part in sorted(parts))
        return np.frombuffer(content, dtype="<u8").reshape(list(meta.shape.dims))


def timed(party: Party, function, inputs, repeats: int) -> tuple[tuple[np.ndarray, ...], list[float]]:
    """The last run's shares, and the seconds of each run."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        shares = party.run(function, inputs)
        seconds.append(time.perf_counter() - start)
    return shares, seconds
