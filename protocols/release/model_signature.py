"""The signature of a release that stock tools verify: OpenSSF Model Signing 1.0, with the coordinator's certificate.

It is a Sigstore bundle (v0.3) with a DSSE envelope around an in-toto statement, whose predicate lists every file of the
folder with its SHA-256 (https://github.com/sigstore/model-transparency; DSSE:
https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md). There is no transparency log: who signed follows
from the chain up to the consortium's own authority.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # values of JSON

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from protocols.crypto.identity import Identity, sign
from protocols.errors import DataCorrupt, DataUnavailable
from protocols.reading import JSON_BYTES, parse_json, read_bytes
from protocols.release.manifest import MODEL_SIGNATURE_FILE, sha256_of, signed_paths

_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT, _PREDICATE = "https://in-toto.io/Statement/v1", "https://model_signing/signature/v1.0"
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def write_model_signature(
    folder: Path, *, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    """Signs all other files of the folder, the manifest too, so it comes last. name: the model's."""
    payload = _payload(name, _digests(folder))
    signature = sign(key, _encoded(payload))
    (folder / MODEL_SIGNATURE_FILE).write_bytes(_bundle(payload, signature, certificate))


def _payload(name: str, digests: Mapping[str, str]) -> bytes:
    return json.dumps(_statement(name, digests), sort_keys=True).encode()


def _bundle(payload: bytes, signature: bytes, certificate: x509.Certificate) -> bytes:
    bundle = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {
            "x509CertificateChain": {"certificates": [{"rawBytes": _text(certificate.public_bytes(Encoding.DER))}]},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": _text(payload),
            "payloadType": _PAYLOAD,
            "signatures": [{"sig": _text(signature), "keyid": ""}],
        },
    }
    return (json.dumps(bundle, indent=1) + "\n").encode()


def check_model_signature(folder: Path, coordinator: Identity) -> tuple[str, int]:
    """The model's name, and the number of files that it covers. Raises DataCorrupt unless these are all of the folder,
    unchanged, and the file is as it is written, and Refused("bad_signature") unless the coordinator signed them with
    the certificate in the folder."""
    try:
        content = read_bytes(folder / MODEL_SIGNATURE_FILE, most=JSON_BYTES)
        envelope = parse_json(content, where=MODEL_SIGNATURE_FILE)["dsseEnvelope"]
        payload = base64.b64decode(envelope["payload"], validate=True)
        signature = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
        name = str(parse_json(payload, where=MODEL_SIGNATURE_FILE)["subject"][0]["name"])
    except (DataUnavailable, DataCorrupt, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise DataCorrupt(
            f"{MODEL_SIGNATURE_FILE} cannot be read: {type(error).__name__}: {str(error)[:200]}"
        ) from None
    digests = _digests(folder)
    if payload != _payload(name, digests):
        raise DataCorrupt(f"{MODEL_SIGNATURE_FILE} does not name the files of this folder with their hashes")
    if content != _bundle(payload, signature, coordinator.certificate):
        raise DataCorrupt(f"{MODEL_SIGNATURE_FILE} differs from what a release with the coordinator's certificate has")
    coordinator.verify(signature, _encoded(payload))
    return name, len(digests)


def _statement(name: str, digests: Mapping[str, str]) -> dict[str, Any]:
    """The in-toto statement: the subject's digest is that of all files' digests, in the order of the list."""
    root = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests.values())).hexdigest()
    return {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": root}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [MODEL_SIGNATURE_FILE],
            },
            "resources": [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in digests.items()],
        },
    }


def _digests(folder: Path) -> dict[str, str]:
    return {name: sha256_of(folder / name) for name in signed_paths(folder)}


def _encoded(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    return b"DSSEv1 %d %s %d " % (len(_PAYLOAD), _PAYLOAD.encode(), len(payload)) + payload


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
