"""How a coordinator reaches a study's guardian: one stream per conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from protocols.crypto.channel import Channel
from protocols.crypto.identity import Identity
from protocols.study.deployed import DeployedStudy
from protocols.wire.guardian import GuardianLine as GuardianLine
from protocols.wire.guardian import conversation
from runtime.guardian_carrier import carry_to_guardian


def check_guardian(study: DeployedStudy, line: GuardianLine) -> Identity:
    """The identity of the study's guardian, once it has confirmed that it approved this very study; asks nothing else.

    Raises as `conversation` does.
    """
    with conversation(study, line, carry_to_guardian, purpose="check") as (_, guardian):
        return guardian


@contextmanager
def dial(study: DeployedStudy, line: GuardianLine) -> Iterator[Channel]:
    """A channel to the study's guardian for one batch. Raises as `conversation` does; ChannelClosed for "busy"."""
    with conversation(study, line, carry_to_guardian, purpose="batch") as (stream, _):
        yield stream
