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
from protocols.reading import parse_json, read_json
from protocols.release.manifest import MODEL_SIGNATURE_FILE, sha256_of, signed_paths

_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT, _PREDICATE = "https://in-toto.io/Statement/v1", "https://model_signing/signature/v1.0"
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def write_model_signature(
    folder: Path, *, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    """Signs all other files of the folder, the manifest too, so it comes last. name: the model's."""
    payload = json.dumps(_statement(name, _digests(folder)), sort_keys=True).encode()
    bundle = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {
            "x509CertificateChain": {"certificates": [{"rawBytes": _text(certificate.public_bytes(Encoding.DER))}]},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": _text(payload),
            "payloadType": _PAYLOAD,
            "signatures": [{"sig": _text(sign(key, _encoded(payload))), "keyid": ""}],
        },
    }
    (folder / MODEL_SIGNATURE_FILE).write_text(json.dumps(bundle, indent=1) + "\n", encoding="utf-8")


def check_model_signature(folder: Path, coordinator: Identity) -> int:
    """The number of files that it covers. Raises DataCorrupt unless these are all of the folder, unchanged, and
    Refused("bad_signature") unless the coordinator signed them with the certificate in the folder."""
    try:
        bundle = read_json(folder / MODEL_SIGNATURE_FILE)
        material, envelope = bundle["verificationMaterial"], bundle["dsseEnvelope"]
        shown = base64.b64decode(material["x509CertificateChain"]["certificates"][0]["rawBytes"], validate=True)
        payload = base64.b64decode(envelope["payload"], validate=True)
        signature = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
        kinds = (bundle["mediaType"], envelope["payloadType"])
    except (DataUnavailable, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise DataCorrupt(
            f"{MODEL_SIGNATURE_FILE} cannot be read: {type(error).__name__}: {str(error)[:200]}"
        ) from None
    if kinds != (_BUNDLE, _PAYLOAD):
        raise DataCorrupt(f"{MODEL_SIGNATURE_FILE} is {kinds!r:.200}; allowed: {_BUNDLE}, {_PAYLOAD}")
    if shown != coordinator.certificate.public_bytes(Encoding.DER):
        raise DataCorrupt(f"{MODEL_SIGNATURE_FILE} shows another certificate than the release")
    coordinator.verify(signature, _encoded(payload))
    stated = parse_json(payload, where=MODEL_SIGNATURE_FILE)
    digests = _digests(folder)
    made = _statement(_name(stated), digests)
    if stated != made:
        raise DataCorrupt(f"{MODEL_SIGNATURE_FILE} does not name the files of this folder with their hashes")
    return len(digests)


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


def _name(statement: object) -> str:
    try:
        return str(statement["subject"][0]["name"])  # type: ignore[index]  # of parsed JSON: whatever is not one is an error
    except (KeyError, IndexError, TypeError):
        raise DataCorrupt(f"{MODEL_SIGNATURE_FILE} has no subject") from None


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
