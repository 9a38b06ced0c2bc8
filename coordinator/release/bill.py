"""The bill of materials of a release, in CycloneDX 1.6: the student, what it learned from, and what made it.

https://cyclonedx.org/docs/1.6/json/. The software is what was loaded when the release was written.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any  # values of JSON

from protocols.installing import DISTRIBUTION
from runtime.distribution import installed_version

FORMAT = "1.6"


def bill_of_materials(statement: Mapping[str, Any], student: Mapping[str, Any] | None) -> dict[str, Any]:
    """The document. statement: of the release; student: figures of the student, None where none was trained."""
    study = statement["study"]
    software = {**_loaded(), DISTRIBUTION: installed_version()}
    parts = [_library(name, version) for name, version in sorted(software.items())]
    labels = _data(study["name"], statement)
    model = [] if student is None else [_model(study, student, labels)]
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
        "components": [*model, labels, *parts],
        "dependencies": [
            {"ref": "release", "dependsOn": [each["bom-ref"] for each in [*model, labels]]},
            *({"ref": each["bom-ref"], "dependsOn": ["labels"]} for each in model),
        ],
    }


def _model(study: Mapping[str, Any], student: Mapping[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
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
                "datasets": [{"ref": labels["bom-ref"]}],
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


def _data(name: str, statement: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "data",
        "bom-ref": "labels",
        "name": f"{name} labels",
        "version": statement["study"]["digest"][:16],
        "description": f"{statement['queries']['answered']} noisy labels, or sums, are released. "
        "privacy.json says how the hospitals' data behind them are protected.",
    }


def _library(name: str, version: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }


def _loaded() -> dict[str, str]:
    """The distributions of which a module is loaded, with their versions."""
    from importlib.metadata import version  # slow to import

    providers = _providers()
    names = {name for module in list(sys.modules) for name in providers.get(module, ())}
    return {name.lower().replace("_", "-"): version(name) for name in names}


@cache
def _providers() -> Mapping[str, list[str]]:
    """The distributions by the packages that they bring."""
    from importlib.metadata import packages_distributions

    return packages_distributions()
