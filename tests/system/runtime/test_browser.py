"""Pages in a real browser: axe finds nothing, nothing is wider than a telephone, and a long table stays off paper.

Needs chromium, which .ci/run installs. CONCLAVE_AXE may name a newer axe.min.js than that of the package
axe-core-python: that of the npm package axe-core.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from html import escape, unescape
from importlib.resources import files
from pathlib import Path

import pytest

from protocols.claims.strength import Figure
from runtime.board import Accuracy, known, notice, worth
from runtime.page import Bar, annex, cards, document, facts, strip, table, verdict
from tests.harness.released import Consortium, small_study

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine: pages were not seen by a browser")
NAMES = ("Universitätsklinikum mit einem sehr langen Namen und noch einem Zusatz dahinter", "Z" * 120)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A release's pages, and one with every part of a page."""
    folder = tmp_path_factory.mktemp("pages")
    consortium = Consortium(folder)
    release = consortium.release(consortium.label(small_study(8)), folder / "release")
    head, rows = ("hospital", *"abcdefghij"), [(name, Bar(0.5, "50 %"), *range(9)) for name in NAMES]
    long = table("All of 250", ("hospital", "epsilon"), [(f"hospital-{n}", 1) for n in range(250)])
    parts = [
        verdict("One sentence.", [("A point:", "said of it")], tone="warn"), strip([("asked", 1, 2), ("done", 2, 2)]),
        cards([("figure", "1.5", "below"), ("none", None, "")]), facts([("name", NAMES[1])]), notice("Look:", "at"),
        worth([Accuracy("alone", "alone", 0.7, 0.6, 0.8), Accuracy("pooled", "pooled", 0.9)], "What the bars are."),
        known(Figure(1.0, 1e-5), whose="one record", against="Against all."),
        "<h2>Tables</h2>", table("Wide", head, rows, words=(0,)),
        f"<details><summary>All of 250</summary>{long}</details>",
        annex("Details", "<h2>More</h2><p>Text.</p>"),
    ]  # fmt: skip
    (folder / "parts.html").write_text(document(title=NAMES[0], kind="test", body="\n".join(parts), study="ab" * 32))
    return [folder / "parts.html", *(release / f"{name}.html" for name in ("report", "privacy", "privacy.de"))]


def browse(page, *more):
    """What chromium writes to standard output, with a profile of its own and no network."""
    with tempfile.TemporaryDirectory() as profile:
        command = [BROWSER, "--headless", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-quic",
                   "--disable-sync", "--disable-background-networking", "--disable-component-update",
                   f"--user-data-dir={profile}", "--virtual-time-budget=20000", *more]  # fmt: skip
        return subprocess.run([*command, page.as_uri()], capture_output=True, check=True, timeout=120).stdout.decode()


def told(tmp_path, html, script):
    """What a script on the page finds, as JSON: it calls `tell`."""
    tell = "const tell = found => { document.body.innerHTML = '<pre id=told></pre>'; told.textContent = "
    tell += "JSON.stringify(found); };"
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    (tmp_path / "seen.html").write_text(html.replace("</body>", f"<script>{tell}{script}</script></body>"))
    seen = browse(tmp_path / "seen.html", "--dump-dom")
    return json.loads(unescape(re.search(r'<pre id="told">(.*?)</pre>', seen)[1]))


def test_nothing_is_wider_than_a_telephone(pages, tmp_path, subtests):
    for page in pages:
        with subtests.test(page.name):
            opened = page.read_text().replace("<details", "<details open")
            frame = f'<html><body><iframe width=390 height=800 srcdoc="{escape(opened)}"></iframe></body></html>'
            script = "addEventListener('load', () => tell(frames[0].document.documentElement.scrollWidth))"
            assert told(tmp_path, frame, script) <= 390


def test_axe_finds_nothing_in_the_light_or_in_the_dark(pages, tmp_path, subtests):
    newer = os.environ.get("CONCLAVE_AXE")
    library = Path(newer) if newer else files("axe_core_python") / "axe.min.js"
    axe = library.read_text(encoding="utf-8").replace("</script", r"<\/script")
    run = f"{axe};axe.run().then(found => tell(found.violations.map(each => each.id)))"
    for page in pages:
        opened = page.read_text().replace("<details", "<details open")
        for look in ("screen and (prefers-color-scheme: light)", "screen"):
            with subtests.test(f"{page.name} {look}"):
                seen = opened.replace("screen and (prefers-color-scheme: dark)", look)
                assert told(tmp_path, seen, run) == []


def test_on_paper_a_table_of_250_stays_folded_and_the_annex_is_printed(pages, tmp_path):
    browse(pages[0], f"--print-to-pdf={tmp_path / 'parts.pdf'}", "--no-pdf-header-footer")
    printed = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "parts.pdf").read_bytes()))
    # Opened, the 250 rows alone take seven pages.
    assert 2 <= printed <= 4
