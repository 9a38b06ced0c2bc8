"""Web servers on 127.0.0.1 alone, in a thread, with the standard library: for monitoring (/healthz and /metrics), and a
program's live page, which is read-only and behind a link that opens it once.

A link holds a random token. Whoever opens it gets a cookie for as long as the program runs, and the next link is made:
a link that was used, or copied from a terminal later, opens nothing. The current one is in a file that only the
program's owner reads. The name in the request's Host header must be this machine's own, or another site could reach the
page through a name that it points at 127.0.0.1 (DNS rebinding). Nothing can be changed through the page.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Generic, TypeVar
from urllib.parse import SplitResult, parse_qs, urlsplit

from protocols.errors import ConclaveError, InvalidInput
from runtime.files import write_atomically


class LoopbackHandler(BaseHTTPRequestHandler):
    """Answers requests of one loopback server, says nothing of its software, and logs nothing."""

    timeout = 5
    server_version, sys_version = "conclave", ""

    def say(self, status: int, body: str, *, kind: str, **headers: str) -> None:
        """Sends a whole answer. kind: its Content-Type; headers: others, with "_" for "-"."""
        data = body.encode()
        self.send_response(status)
        for name, value in {"Content_Type": kind, "Content_Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Logs nothing: requests have no place in the allow-list of logs."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a browser that went away: the standard library would print a traceback into the log."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it came


class LoopbackServer:
    """Serves on 127.0.0.1 until it is closed. port: the one that was opened."""

    def __init__(self, port: int, handler: type[LoopbackHandler], *, name: str) -> None:
        """port: 0 for any free one; name: of the setting. Raises InvalidInput for a port that is taken."""
        try:
            self._server = _Server(("127.0.0.1", port), handler)
        except OSError as error:
            raise InvalidInput(f"{name} {port} cannot be opened: {error.strerror}; allowed: a free one") from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


class Monitor(LoopbackServer):
    """An HTTP server on 127.0.0.1. healthy: whether the program is healthy; metrics: returns the page of metrics."""

    def __init__(self, port: int, *, healthy: Callable[[], bool], metrics: Callable[[], str]) -> None:
        """Raises InvalidInput for a port that is taken."""

        class Handler(LoopbackHandler):
            def do_GET(self) -> None:
                if self.path == "/healthz":
                    good = healthy()
                    self.say(200 if good else 503, "ok\n" if good else "unhealthy\n", kind=_EXPOSITION)
                elif self.path == "/metrics":
                    try:
                        self.say(200, metrics(), kind=_EXPOSITION)
                    except ConclaveError:
                        self.say(503, "the program's files cannot be read\n", kind=_EXPOSITION)
                else:
                    self.say(404, "allowed: /healthz, /metrics\n", kind=_EXPOSITION)

        super().__init__(port, Handler, name="metrics_port")


@dataclass(frozen=True)
class Family:
    """One metric: its name, what it means, and the labels and value of each sample. Names are constants in the code."""

    name: str
    about: str
    rows: Sequence[tuple[Mapping[str, str], float]]


def exposition(families: Iterable[Family], events: Mapping[str, int]) -> str:
    """The metrics and the counts of events, in Prometheus' text exposition format 0.0.4."""
    counted = [({"event": event}, float(count)) for event, count in sorted(events.items())]
    lines: list[str] = []
    for family in (*families, Family("conclave_events_total", "Events since this program started.", counted)):
        kind = "counter" if family.name.endswith("_total") else "gauge"
        lines += [f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {kind}"]
        lines += [f"{family.name}{_labels(labels)} {value:.17g}" for labels, value in family.rows]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        key: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"


LINK_FILE: Final = "live-page.link"
# Seconds after which a browser loads a live page again.
AGAIN_S: Final = 10
_BROWSERS: Final = 16
_HTML, _TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_SHUT: Final = {
    "Cache_Control": "no-store",
    "X_Content_Type_Options": "nosniff",
    "X_Frame_Options": "DENY",
    "Cross_Origin_Resource_Policy": "same-origin",
    "Referrer_Policy": "no-referrer",
}


class LivePage(LoopbackServer):
    """Serves one page. Use as a context manager, or close it.

    page: the HTML, made anew at each request, from any thread; link: opens the page once, and is also in `file`.
    """

    def __init__(self, port: int, *, page: Callable[[], str], file: Path) -> None:
        """port: 0 for any free one. Raises InvalidInput for a port that is taken, and StorageFailed."""
        self.file = file
        self._lock = threading.Lock()
        self._token = ""
        # The cookies of the browsers that opened it last.
        self._cookies: deque[str] = deque(maxlen=_BROWSERS)
        live = self

        class Handler(LoopbackHandler):
            def do_GET(self) -> None:
                try:
                    asked = urlsplit(self.path)
                except ValueError:  # such as http://[
                    return self._refuse(400, "this is no address; allowed: /")
                try:
                    self._answer(asked)
                except ConclaveError:
                    self._refuse(503, "the program's files cannot be read or written; its log says more")

            def _answer(self, asked: SplitResult) -> None:
                if not live._own_name(self.headers.get("Host", "")):
                    self._refuse(421, "this page is reached as 127.0.0.1 or localhost, under no other name")
                elif asked.path == "/open":
                    self._open("".join(parse_qs(asked.query).get("token", [])))
                elif asked.path != "/":
                    self._refuse(404, "allowed: /")
                elif not live._known(self.headers.get("Cookie", "")):
                    self._refuse(403, f"open the link in {LINK_FILE} in the program's folder, which works once")
                else:
                    self.say(200, page(), kind=_HTML, **_SHUT)

            def _open(self, token: str) -> None:
                cookie = live._exchanged(token)
                if cookie is None:
                    self._refuse(403, f"this link was used, or is another program's; {LINK_FILE} holds the next one")
                else:
                    kept = f"{live._cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Strict"
                    self.say(303, "", kind=_TEXT, Location="/", Set_Cookie=kept, **_SHUT)

            def _refuse(self, status: int, why: str) -> None:
                self.say(status, f"{why}\n", kind=_TEXT, **_SHUT)

            def _read_only(self) -> None:
                self.say(405, "this page can only be read\n", kind=_TEXT, Allow="GET", Connection="close", **_SHUT)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = _read_only

        super().__init__(port, Handler, name="page_port")
        # Cookies belong to a machine, not to a port: a node and a coordinator may run on the same one.
        self._cookie_name = f"conclave_{self.port}"
        try:
            self._renew()
        except ConclaveError:
            super().close()
            raise

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the port; the link opens nothing any more."""
        super().close()
        self.file.unlink(missing_ok=True)

    @property
    def link(self) -> str:
        """The link that opens the page next."""
        return f"http://127.0.0.1:{self.port}/open?token={self._token}"

    def _renew(self) -> None:
        self._token = secrets.token_urlsafe(32)
        write_atomically(self.file, f"{self.link}\n")

    def _own_name(self, host: str) -> bool:
        return host.lower() in (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def _exchanged(self, token: str) -> str | None:
        """A new cookie for the current link's token, which is then used up; None for any other token."""
        with self._lock:
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                return None
            cookie = secrets.token_urlsafe(32)
            self._cookies.append(cookie)
            self._renew()
            return cookie

    def _known(self, header: str) -> bool:
        try:
            given = SimpleCookie(header).get(self._cookie_name)
        except CookieError:
            return False
        if given is None:
            return False
        return any(hmac.compare_digest(given.value.encode(), each.encode()) for each in tuple(self._cookies))


T = TypeVar("T")


class Newest(Generic[T]):
    """Calls `make` on a thread of its own, at most one at a time, from any number of threads."""

    def __init__(self, make: Callable[[], T], *, patience_s: float) -> None:
        """patience_s: how long a caller waits for a new value, once there is one before it."""
        self._make = make
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._making: threading.Thread | None = None
        self._made: list[T] = []
        self._failed: list[BaseException] = []

    def __call__(self) -> T:
        """The newest value. Raises what `make` raised where there is none yet, or it failed just now."""
        with self._lock:
            if self._making is None or not self._making.is_alive():
                self._failed.clear()
                self._making = threading.Thread(target=self._run, name="newest", daemon=True)
                self._making.start()
            making = self._making
        making.join(self._patience_s if self._made else None)
        if self._failed:
            raise self._failed[-1]
        return self._made[-1]

    def _run(self) -> None:
        try:
            self._made = [self._make()]
        except BaseException as error:  # noqa: BLE001  # it is raised again by the thread that waits
            self._failed.append(error)
