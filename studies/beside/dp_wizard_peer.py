"""DP Wizard beside the lines of docs/reference/claims.md: its page in a real browser, and the script that it writes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from studies.beside.trials import find_port, name_versions, note, note_absences, wait_for

FLAGS = ["--no-sandbox", "--disable-background-networking"]


def walk_through(page: Any, url: str) -> None:
    """Do what its page asks for: a file, a histogram of a column at epsilon 1, the script."""
    page.goto(url)
    page.locator("#max_rows").fill("1000")
    page.locator("#contributions").fill("1")
    page.get_by_label("Choose Private Data").set_input_files("people.csv")
    page.get_by_role("button", name="Define Analysis").click()
    said = page.get_by_text(re.compile(r"\(Epsilon\): [\d.]+")).first.inner_text()
    note("price", "the tab Define Analysis", " ".join(said.split()))
    page.locator(".selectize-input").nth(0).click()
    page.get_by_text(": score").first.click()
    page.get_by_label("Lower").fill("0")
    page.get_by_label("Upper").fill("10")
    error = page.get_by_text(re.compile("confidence interval is")).first.inner_text()
    note("price", "the same: what can be expected", " ".join(error.split())[:120])
    page.get_by_role("button", name="Download Results").click()
    with page.expect_download(timeout=120_000) as download:
        page.get_by_text("Script (.py)").first.click()
    download.value.save_as("release.py")
    note("export", "the download Script (.py)", f"{len(Path('release.py').read_text().splitlines())} lines of Python")


def main() -> None:
    from playwright.sync_api import sync_playwright

    name_versions("dp_wizard", "opendp", "shiny")
    Path("people.csv").write_text("score\n" + "".join(f"{i % 10}.5\n" for i in range(1000)))
    port = find_port()
    program = str(Path(sys.executable).with_name("dp-wizard"))
    server = subprocess.Popen([program, "--port", str(port), "--no_browser"], stdout=sys.stderr)
    try:
        wait_for(f"http://127.0.0.1:{port}/")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.set_default_timeout(60_000)
            try:
                walk_through(page, f"http://127.0.0.1:{port}/")
            finally:
                page.screenshot(path="last.png", full_page=True)
                browser.close()
    finally:
        server.terminate()
        server.wait()
    codes = [
        subprocess.run([sys.executable, "release.py", "--csv", "people.csv"], stdout=sys.stderr).returncode
        for _ in range(2)
    ]
    note("limit", "python release.py --csv people.csv, twice", f"exit codes {codes}: released twice, nothing adds up")
    note_absences(
        "dp_wizard",
        {
            "list": "ledger|audit.log",
            "derived": "certificate|attestation|in-toto",
            "worth": "held.out|test_size",
            "attack": "canary|canaries|membership inference",
            "cover": "conformal",
            "person": "data subject|article 15",
            "again": "transparency log|merkle",
            "elsewhere": "transparency log|merkle",
            "agents": "model context protocol|\\bmcp\\b",
            "sso": "openid.connect|oidc|oauth",
            "grpc": "grpc",
        },
    )


if __name__ == "__main__":
    main()
