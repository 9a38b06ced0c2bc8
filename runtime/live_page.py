"""A program's live page: read-only, on loopback, behind a link that opens it once.

A link holds a random token. Whoever opens it gets a cookie for as long as the program runs, and the next link is made:
a link that was used, or copied from a terminal later, opens nothing. The current one is in a file that only the
program's owner reads. The name in the request's Host header must be this machine's own, or another site could reach the
page through a name that it points at 127.0.0.1 (DNS rebinding). Nothing can be changed through the page.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import deque
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from protocols.errors import ConclaveError
from runtime.files import write_atomically
from runtime.loopback import LoopbackHandler, LoopbackServer

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
