"""The bill of materials of a release, in CycloneDX 1.6: the student, what it learned from, and what made it.

https://cyclonedx.org/docs/1.6/json/. The software is what was loaded when the release was written, which only the
coordinator can say: it is among the facts that it states.
"""

from __future__ import annotations

import hashlib
import sys
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any  # values of JSON

from protocols.installing import DISTRIBUTION

FORMAT = "1.6"


def bill_of_materials(
    statement: Mapping[str, Any], student: Mapping[str, Any] | None, released: Mapping[str, str]
) -> dict[str, Any]:
    """The document. statement: of the release; student: figures of the student, None where none was trained; released:
    the files of labels, or of sums and what is made of them, by name.
    """
    study = statement["study"]
    parts = [_library(*each) for each in sorted(statement["stated_by_the_coordinator"]["libraries"].items())]
    data = [_data(name, content, statement) for name, content in released.items()]
    model = [] if student is None else [_model(study, student, list(released))]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, study['digest'] + statement['created'])}",
        "version": 1,
        "metadata": {
            "timestamp": statement["created"],
            "component": {"type": "data", "bom-ref": "release", "name": study["name"], "version": study["digest"][:16]},
            "supplier": {"name": study["coordinator"]},
        },
        "components": [*model, *data, *parts],
        "dependencies": [
            {"ref": "release", "dependsOn": [each["bom-ref"] for each in [*model, *data]]},
            *({"ref": each["bom-ref"], "dependsOn": list(released)} for each in model),
        ],
    }


def libraries() -> dict[str, str]:
    """The distributions of which a module is loaded, this one among them, with their versions."""
    from importlib.metadata import version  # slow to import

    providers = _providers()
    names = {name for module in list(sys.modules) for name in providers.get(module, ())}
    return {name.lower().replace("_", "-"): version(name) for name in sorted({*names, DISTRIBUTION})}


def _model(study: Mapping[str, Any], student: Mapping[str, Any], data: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "machine-learning-model",
        "bom-ref": "student",
        "name": f"{study['name']} student",
        "version": study["digest"][:16],
        "description": study["task"],
        "modelCard": {
            "modelParameters": {
                "task": "classification",
                "architectureFamily": student["kind"],
                "datasets": [{"ref": name} for name in data],
                "inputs": [{"format": f"float32 {student['input_shape']}"}],
                "outputs": [{"format": "class and probabilities"}],
            },
            "considerations": {
                "technicalLimitations": [
                    "Its accuracy was not measured on private data; it is no medical device. See model_card.md."
                ]
            },
        },
    }


def _data(name: str, content: str, statement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "data",
        "bom-ref": name,
        "name": name,
        "version": statement["study"]["digest"][:16],
        "description": f"{statement['queries']['answered']} noisy labels, or sums, are released. "
        "privacy.json says how the hospitals' data behind them are protected.",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content.encode()).hexdigest()}],
    }


def _library(name: str, version: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }


@cache
def _providers() -> Mapping[str, list[str]]:
    """The distributions by the packages that they bring."""
    from importlib.metadata import packages_distributions

    return packages_distributions()
