"""Two processes of the other interpreter over loopback, with certificates of an authority of their own."""

import datetime
import ipaddress
import os
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VARIABLE = "CONCLAVE_SPU_PYTHON"
ROLES = ("asking", "answering")
PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "spu"

needs_spu = pytest.mark.skipif(
    not os.environ.get(VARIABLE),
    reason=f"{VARIABLE} is not set: the interpreter with spu 0.9.5 (an environment of its own)",
)


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def certificates(folder):
    """An authority and one certificate for each role, as PEM files."""
    now, authority = datetime.datetime.now(datetime.UTC), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    for name in ("authority", *ROLES):
        key = authority if name == "authority" else ec.generate_private_key(ec.SECP256R1())
        subject = issuer if name == "authority" else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .sign(authority, hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{name}.key").write_bytes(pem)


def run_both(folder, program, files, *more):
    """Both parties' output files as dicts; files: arrays by role."""
    certificates(folder)
    addresses = {role: free_address() for role in ROLES}
    running = []
    for role in ROLES:
        np.savez(folder / f"{role}-in.npz", **files[role])
        command = [
            os.environ[VARIABLE], str(PROGRAMS / program), "--role", role,
            "--authority", str(folder / "authority.pem"), "--certificate", str(folder / f"{role}.pem"),
            "--key", str(folder / f"{role}.key"), "--input", str(folder / f"{role}-in.npz"),
            "--output", str(folder / f"{role}-out.npz"),
            *(word for each in ROLES for word in (f"--{each}", addresses[each])), "--limit-s", "200", *more,
        ]  # fmt: skip
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = []
    try:
        said = [process.communicate(timeout=240)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)[-3000:]
    return {role: dict(np.load(folder / f"{role}-out.npz")) for role in ROLES}
