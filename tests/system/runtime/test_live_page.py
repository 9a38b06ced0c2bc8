"""The live page over HTTP: one link, one browser, one name, and nothing that changes anything."""

import http.client
import stat

import pytest

from protocols.errors import StorageFailed
from runtime.loopback import LivePage


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    made = ["<!DOCTYPE html><p>nothing needs you"]

    def page():
        if not made:
            raise StorageFailed("ledger: disk I/O error in /home/secret")
        return made[0]

    with LivePage(0, page=page, file=tmp_path_factory.mktemp("home") / "live-page.link") as opened:
        opened.made = made
        yield opened


def ask(live, path, *, method="GET", host=None, cookie=None):
    """Status, headers and body of one request."""
    line = http.client.HTTPConnection("127.0.0.1", live.port, timeout=300)
    headers = {"Host": host or f"127.0.0.1:{live.port}"} | ({"Cookie": cookie} if cookie else {})
    line.request(method, path, headers=headers)
    reply = line.getresponse()
    body = reply.read().decode()
    line.close()
    return reply.status, reply.headers, body


def opened(live):
    """The cookie of a browser that opens the current link."""
    status, headers, _ = ask(live, live.link.split(str(live.port), 1)[1])
    assert (status, headers["Location"]) == (303, "/")
    return headers["Set-Cookie"]


def test_the_link_opens_the_page_once_and_its_cookie_goes_on_opening_it(live):
    link = live.link
    kept = opened(live)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(kept.split("; "))
    for _ in range(2):
        status, headers, body = ask(live, "/", cookie=kept.split(";")[0])
        assert (status, body) == (200, live.made[0])
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    status, _, body = ask(live, link.split(str(live.port), 1)[1])
    assert status == 403
    assert "live-page.link" in body
    assert live.link != link


def test_the_next_link_is_in_a_file_that_only_its_owner_reads(live):
    opened(live)
    assert live.file.read_text().strip() == live.link
    assert stat.S_IMODE(live.file.stat().st_mode) == 0o600


@pytest.mark.parametrize("cookie", [None, "conclave_{port}=guessed", "conclave_1=x", "conclave_{port}", ";;=\x7f"])
def test_without_the_cookie_nothing_is_shown(live, cookie):
    status, _, body = ask(live, "/", cookie=cookie and cookie.format(port=live.port))
    assert status == 403
    assert "nothing needs you" not in body


@pytest.mark.parametrize("token", ["", "?token=", "?token=x", "?token=%00%ff", "?token=x&token=y"])
def test_another_token_opens_nothing(live, token):
    status, headers, _ = ask(live, f"/open{token}")
    assert (status, headers["Set-Cookie"]) == (403, None)


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"]
)
def test_a_name_that_somebody_points_at_this_machine_reaches_nothing(live, host):
    kept = opened(live).split(";")[0]
    for path in ("/", live.link.split(str(live.port), 1)[1]):
        status, headers, _ = ask(live, path, host=host.format(port=live.port), cookie=kept)
        assert (status, headers["Set-Cookie"]) == (421, None)
    assert ask(live, "/", host=f"localhost:{live.port}", cookie=kept)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_no_method_changes_anything(live, method):
    status, headers, _ = ask(live, "/", method=method, cookie=opened(live).split(";")[0])
    assert (status, headers["Allow"]) == (405, "GET")


def test_no_other_path_is_served_and_a_file_that_cannot_be_read_is_said_without_its_name(live):
    kept = opened(live).split(";")[0]
    assert ask(live, "/etc/passwd", cookie=kept)[0] == 404
    held, live.made[:] = live.made[:], []
    try:
        status, _, body = ask(live, "/", cookie=kept)
    finally:
        live.made[:] = held
    assert status == 503
    assert "secret" not in body


@pytest.mark.parametrize("path", ["http://[", "http://[::1", "http://[x]/open?token=y"])
def test_what_is_no_address_is_answered_and_leaves_no_traceback(live, path, capfd):
    assert ask(live, path, cookie=opened(live).split(";")[0])[0] == 400
    assert capfd.readouterr().err == ""


def test_only_the_browsers_that_opened_it_last_are_known_and_a_closed_page_leaves_no_link(tmp_path):
    with LivePage(0, page=str, file=tmp_path / "link") as live:
        first = opened(live).split(";")[0]
        assert ask(live, "/", cookie=first)[0] == 200
        for _ in range(16):
            last = opened(live).split(";")[0]
        assert ask(live, "/", cookie=first)[0] == 403
        assert ask(live, "/", cookie=last)[0] == 200
    assert not (tmp_path / "link").exists()
