"""Settings of audits from one flat set of terms."""

from dataclasses import fields
from typing import Any

from simulations.audit.settings import AuditSettings
from simulations.audit.teacher_votes import AuditedMechanisms
from simulations.audit.unit_sums import AuditedUnitSums


def of_mechanisms(**terms: Any) -> AuditSettings:
    """An audit of mechanisms."""
    return _settings(AuditedMechanisms, terms)


def of_sums(**terms: Any) -> AuditSettings:
    """An audit of unit sums."""
    return _settings(AuditedUnitSums, terms)


def _settings(kind: Any, terms: dict[str, Any]) -> AuditSettings:
    own = {each.name for each in fields(kind)}
    kept = {name: value for name, value in terms.items() if name not in own}
    return AuditSettings(of=kind(**{name: value for name, value in terms.items() if name in own}), **kept)
