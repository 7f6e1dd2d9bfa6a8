"""A real Chromium over a real server's pages: what the tests of pages have in common."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Download, Page, expect, sync_playwright
from small_home import Server

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
FLAGS = ["--no-sandbox", "--disable-background-networking"]
REPLACED = ("htmx:afterRequest, [object HTMLDivElement]", "htmx:sendAbort, [object HTMLDivElement]")
SERIOUS = {"serious", "critical"}
# What a rule of axe finds weighs as much as the rule says: those that say less are not asked. Nobody reads selectors.
FINDINGS = """async serious => {
  const less = axe._audit.rules.filter(rule => rule.impact && !serious.includes(rule.impact));
  const rules = Object.fromEntries(less.map(rule => [rule.id, {enabled: false}]));
  return (await axe.run({resultTypes: ["violations"], selectors: false, rules})).violations;
}"""
# Counts each click of a link, a button or what unfolds, and each field that is filled, chosen or ticked, once a page.
COUNTED = """for (const kind of ["click", "change"]) addEventListener(kind, ({target}) => {
  if (kind === "click" && !target.closest("a, button, summary")) return;
  const counted = JSON.parse(sessionStorage.counted ?? '{"click": [], "change": []}'), what = target.name || target.id;
  const one = kind === "click" ? counted.click.length : `${location.pathname} ${what}`;
  if (!counted[kind].includes(one)) counted[kind].push(one);
  sessionStorage.counted = JSON.stringify(counted);
}, true);"""
MOST_BYTES = 150_000  # of a page with all that it loads, in a browser that kept nothing
PATIENCE = 120_000  # ms: a way out and not a claim, however busy the machine is

expect.set_options(timeout=PATIENCE)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Browser, server: Server, dark: bool = False, phone: bool = False, **more: Any) -> Page:
    """An empty page of a browser that nobody signed in with. Its `faults` are what went wrong in it since."""
    context = browser.new_context(
        base_url=f"http://127.0.0.1:{server.port}",
        viewport=PHONE if phone else DESK,
        color_scheme="dark" if dark else "light",
        **more,
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: _note_foreign(page, server, asked.url))
    return page


def _note_foreign(page: Page, server: Server, url: str) -> None:
    if not url.startswith((f"http://127.0.0.1:{server.port}/", "data:", "blob:")):
        page.faults.append(f"asks {url}")


def sign_in(page: Page, server: Server, scope: str = "admin", path: str = "/ui") -> Page:
    """Through the form, as a person does."""
    page.goto(path)
    page.get_by_label("Token").fill(server.tokens[scope])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"**{path}")
    return page


def cold(page: Page) -> list[int]:
    """From now on this page keeps nothing of what it loads; what comes is listed, in bytes on the wire."""
    weight, session = list[int](), page.context.new_cdp_session(page)
    session.on("Network.loadingFinished", lambda ended: weight.append(int(ended["encodedDataLength"])))
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    return weight


def as_new(page: Page, server: Server, scope: str | None = None, dark: bool = False, phone: bool = False) -> Page:
    """The page as of a browser that nobody used before, or that whoever has this scope signed in with: another context
    takes a second of a processor.
    """
    page.context.clear_cookies()
    page.goto("/ui/login")
    page.evaluate("localStorage.clear(), sessionStorage.clear()")
    page.set_viewport_size(PHONE if phone else DESK)
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.faults.clear()
    if scope is not None:
        page.context.add_cookies(
            [{"name": "dpserve", "value": server.tokens[scope], "url": f"http://127.0.0.1:{server.port}/"}]
        )
    return page


def signed_in(browser: Browser, server: Server, scope: str = "admin", path: str = "/ui", **more: Any) -> Page:
    return sign_in(new_page(browser, server, **more), server, scope, path)


def predict_file(page: Page, path: Path) -> tuple[str, str]:
    """Predict a file on a model's page; return what is given back, "" where nothing is, and the words beside it. Asked
    again where a busy server says so.
    """
    page.get_by_label("File of records").set_input_files(path)
    button, given = page.get_by_role("button", name="Predict", exact=True), list[Download]()
    page.once("download", lambda download: given.append(download))
    for _ in range(20):
        button.click()
        expect(button).to_be_enabled()
        told = page.locator("form.batch .told").inner_text()
        if "once more" not in told and "ask again" not in told:
            break
    if not told.startswith("Predicted"):
        return "", told
    while not given:
        page.wait_for_timeout(50)
    assert given[0].suggested_filename == f"{path.name.split('.')[0]}.predicted.csv"
    return given[0].path().read_text("utf-8"), told


def no_serious_findings(page: Page) -> None:
    """axe-core finds nothing that keeps somebody out."""
    found = [each for each in violations(page) if each["impact"] in SERIOUS]
    assert not found, [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]


def violations(page: Page) -> list[dict[str, Any]]:
    """What axe-core finds, by the rules that can find what is serious."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(FINDINGS, sorted(SERIOUS))


def no_sideways_scroll(page: Page) -> None:
    wide = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    names = page.evaluate(f"{wide}.slice(0, 5).map(e => e.outerHTML.slice(0, 120))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), names


def no_faults(page: Page) -> None:
    """Nothing was refused by the policy, failed in a script, or was asked of another address. A question that a newer
    one replaced before it was answered (hx-sync) is none: htmx says so in two lines.
    """
    replaced = page.faults.count(REPLACED[1])
    for line in REPLACED * replaced:
        page.faults.remove(line)
    assert not page.faults, page.faults
