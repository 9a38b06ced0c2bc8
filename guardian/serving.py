"""guardian serve: runs one guardian's port, studies and metrics until it is stopped."""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any  # the values of a JSON object

from guardian.home import ApprovedStudies, GuardianHome, study_figures
from guardian.port import GuardianPort
from protocols.crypto.identity import Identity
from protocols.crypto.randomness import system_source
from protocols.errors import DataCorrupt, Refused
from protocols.private_files import tighten
from protocols.refusals.code import Code
from runtime.files import alone, serving_alone
from runtime.logs import Log
from runtime.loopback import Family, Monitor, exposition

_LOOK_S = 0.5
_HEALTHY_S = 10.0
_DAY_S = 86_400.0


def serve_guardian(home: GuardianHome, *, listen: str | None, stop: threading.Event, log: Log) -> None:
    """Serves until `stop` is set; a newly accepted certificate is used at once, on the same port.

    listen: HOST:PORT instead of the setting. Raises Refused("already_serving") and as GuardianHome.identity does,
    InvalidInput for a port that is taken.
    """
    settings = home.settings()
    address, looked = listen or settings.listen, time.monotonic()
    with alone(home.lock_file, serving_alone(home.lock_file)), ExitStack() as opened:
        tighten(home.folder)
        studies = ApprovedStudies(home, source=system_source)
        opened.callback(studies.close)
        studies.listed()
        metrics_port = 0
        if settings.metrics_port:
            monitor = Monitor(
                settings.metrics_port,
                healthy=lambda: time.monotonic() - looked < _HEALTHY_S and not stop.is_set(),
                metrics=lambda: exposition(_families(guardian_status(home)), dict(log.counts)),
            )
            opened.callback(monitor.close)
            metrics_port = monitor.port
        while not stop.is_set():
            own = home.identity(now=datetime.datetime.now(datetime.UTC))
            port = GuardianPort(
                key=home.key(),
                certificate=own.certificate,
                authority=home.authority(),
                denied=lambda identity: _denied(home, identity),
                find=studies.find,
                asks=studies.asks,
                on_event=log,
            )
            number = port.start(address)
            # Once a free port was chosen, keep it.
            address = f"{address.rpartition(':')[0]}:{number}"
            log(
                "serving",
                {"process": os.getpid(), "port": number, "metrics_port": metrics_port, "serial": str(own.serial)},
            )
            try:
                while not stop.wait(_LOOK_S) and home.certificate() == own.certificate:
                    looked = time.monotonic()
            finally:
                port.stop()
    log("served", {"process": os.getpid()})


def guardian_status(home: GuardianHome) -> dict[str, Any]:
    """Everything that `guardian status` shows, also after the certificate has expired. Raises DataUnavailable before
    `accept`, and as study_figures does."""
    studies = ApprovedStudies(home, source=system_source)
    settings, now = home.settings(), datetime.datetime.now(datetime.UTC)
    return {
        "guardian": settings.name,
        "coordinator": settings.coordinator,
        "days_left": (home.certificate().not_valid_after_utc - now).total_seconds() / _DAY_S,
        "studies": [study_figures(home, study) for study in studies.listed()],
    }


def _denied(home: GuardianHome, identity: Identity) -> str | None:
    try:
        return "this key is on the guardian's list" if home.denies(identity.fingerprint) else None
    except DataCorrupt as error:
        raise Refused(Code.DATA_CORRUPT, str(error)) from None


def _families(status: Mapping[str, Any]) -> list[Family]:
    """The figures of a status as metrics."""
    ends = "Days until the guardian's certificate expires."
    made = [Family("conclave_guardian_certificate_days_left", ends, [({}, status["days_left"])])]
    for key, text in (
        ("batches", "Batches that were submitted."),
        ("unsettled", "Batches that were submitted but have no outcome."),
        ("asked", "Queries asked."),
        ("answered", "Queries answered."),
    ):
        rows = [({"study": each["study"]}, each[key]) for each in status["studies"]]
        made.append(Family(f"conclave_guardian_study_{key}", text, rows))
    return made
