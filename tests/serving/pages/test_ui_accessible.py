"""Every page, for everybody: by keyboard, read out, on a phone, light and dark, and from this server alone."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import replace
from itertools import pairwise, product
from uuid import uuid4

import ledgers
import owners
import pytest
from browser import (
    DESK,
    MOST_BYTES,
    PHONE,
    SERIOUS,
    cold,
    new_page,
    no_faults,
    no_serious_findings,
    no_sideways_scroll,
    sign_in,
    violations,
)
from playwright.sync_api import expect
from small_home import SCOPES, serving, until

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_platform.outside.sources import source_of
from dpserve_platform.replay import subjects
from local.campaign import campaigns
from serving.pages.all import PAGES
from serving.pages.parts.ui import PLACES
from serving.process.tokens import new_token
from serving.process.watch import audit_runs
from training.jobs import job
from training.requests import ProfileRequest

pytestmark = [pytest.mark.server, pytest.mark.system("chromium")]

# Parts of pages, which are asked for by a page that holds them, an address that leads to another, what only a sign-in
# at a provider leads to (tests/serving/process/test_sso.py looks at it), and Swagger's page, which is another's.
PARTS = {"/ui/", "/api", "/ui/drafts/meaning", "/ui/datasets/{name}/fits", "/ui/sso", "/ui/sso/back"} | {
    f"/ui/jobs/{part}" for part in ("price", "parameters", "blocks")
}
# Every other page, at an address where there is something on it.
EXAMPLES = {
    "/ui": "/ui",
    "/ui/login": "/ui/login?refused=1&next=/ui/jobs",
    "/ui/datasets": "/ui/datasets",
    "/ui/datasets/{name}": "/ui/datasets/adult",
    "/ui/datasets/{name}/charge": "/ui/datasets/adult/charge",
    "/ui/datasets/{name}/person": "/ui/datasets/adult/person",
    "/ui/learners": "/ui/learners",
    "/ui/learners/{learner}": "/ui/learners/bayes",
    "/ui/drafts": "/ui/drafts",
    "/ui/drafts/{draft}": "/ui/drafts/{draft}",
    "/ui/jobs": "/ui/jobs",
    "/ui/jobs/new": "/ui/jobs/new?dataset=adult&learner=lazybb&epsilon=0.1",
    "/ui/jobs/{job}": "/ui/jobs/{job}",
    "/ui/schedules": "/ui/schedules",
    "/ui/campaigns": "/ui/campaigns",
    "/ui/answers/new": "/ui/answers/new?dataset=adult&epsilon=0.1&select=select+count(*)+from+adult",
    "/ui/profiles/{job}": "/ui/profiles/{profile}",
    "/ui/profiles/new": "/ui/profiles/new?dataset=adult&epsilon=0.1",
    "/ui/evaluations/new": "/ui/evaluations/new?model=adult&part=training&epsilon=0.1",
    "/ui/keys": "/ui/keys",
    "/ui/service": "/ui/service?range=15m",
    "/ui/models": "/ui/models",
    "/ui/models/{name}": "/ui/models/adult",
    "/ui/models/{name}/edit": "/ui/models/adult/edit?feature=age",
    "/ui/models/{name}/compare": "/ui/models/adult/compare?with=adult@1",
    "/ui/verify": "/ui/verify",
    "/ui/ledger": "/ui/ledger?dataset=adult&job={job}",
    "/ui/ledger/{entry}": "/ui/ledger/{job}",
    "/ui/audit": "/ui/audit",
    "/ui/tokens": "/ui/tokens",
    "/ui/grants": "/ui/grants",
    "/ui/grants/{grant}": "/ui/grants/{grant}",
    "/docs": "/docs",
    "/docs/{page:path}": "/docs/first-steps",
}
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"
# By what they are: a list may be renewed meanwhile.
MARK = f"""() => {{
  const seen = each => each.checkVisibility({{visibilityProperty: true}}) && !each.disabled && each.tabIndex >= 0;
  const first = each => each.type !== "radio" || each.checked;
  window.controls = [...document.querySelectorAll("{CONTROLS}")].filter(each => seen(each) && first(each));
  const wide = style => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const outlined = style => style.outlineStyle === "auto" || wide(style);
  window.reached = new Set();
  window.unmarked = new Set();
  const marked = each => outlined(getComputedStyle(each)) || outlined(getComputedStyle(each, "::after"));
  document.addEventListener("focusin", event => {{
    window.reached.add(event.target.outerHTML);
    if (!marked(event.target)) window.unmarked.add(event.target.outerHTML);
  }});
  document.activeElement.blur();
  return window.controls.length;
}}"""
WRONG = """<link rel="icon" href="data:,"><title>Wrong</title>
<p><font color="#999">pale</font></p><img src="data:,"><input>
<ul><p>no item</p></ul><button tabindex="3"></button><h1></h1><h4>far down</h4><a href="#x"></a>
<div role="button"><button>in another</button></div><table><tr><th></th></tr></table>"""
MISSED = "() => window.controls.map(each => each.outerHTML).filter(each => !window.reached.has(each))"
SIZES, SCHEMES = ({"width": 1400, "height": 900}, {"width": 390, "height": 844}), ("light", "dark")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = Home.open(ledgers.place(ledgers.copy(ledgers.trained(), tmp_path_factory.mktemp("ui") / "home")))
    home.ledger.set_quota("adult", "ana", ledgers.Decimal("0.5"), "a test", "steward")
    grants.add(home.ledger, [Grant("team-a", "train", "dataset", "adult")], "test")
    bayes = source_of(f"{ledgers.ROOT}/examples/naive_bayes.py:NaiveBayes")
    subjects.admit(home, replace(bayes, author="ana"), "bayes", Why("test", "was read"), 1)
    job.measure(home, ProfileRequest("adult", "0.1", columns=("age", "sex"), pairs=(("age", "sex"),)), by="test")
    with serving(home.path, workers=1) as found:
        yield found


@pytest.fixture(scope="module")
def page(browser, server):
    found = sign_in(new_page(browser, server), server, "admin")
    yield found
    found.context.close()


def brought(server):
    """A file that an admin brought, as far as its columns."""
    rows = b"age,city,smoker,born\n34,Bonn,ja,01.02.1990\n51,Kiel,nein,17.05.1973\n"
    found = server.get("/v1/drafts").json()["drafts"]
    draft = found[0] if found else server.post("/v1/drafts", {"file": "people.csv", "bytes": len(rows)}).json()
    if not found:
        part = {"content": rows, "headers": {"Content-Type": "application/octet-stream"}}
        assert server.ask("PUT", f"/v1/drafts/{draft['draft']}/rows?at=0", **part).status_code == 200
    ready = f"/v1/drafts/{draft['draft']}"
    until(lambda: server.get(ready).json()["state"] == "columns", "the columns are known")
    return draft["draft"]


def address(server, path):
    if "{draft}" in path:
        return EXAMPLES[path].replace("{draft}", brought(server))
    first, grant = server.home.ledger.jobs()[0].seq, grants.grants(server.home.ledger)[0].index
    counted = next(each.seq for each in server.home.ledger.jobs() if not each.model)
    found = EXAMPLES[path].replace("{job}", str(first)).replace("{grant}", str(grant))
    return found.replace("{profile}", str(counted))


def test_no_page_is_left_out():
    pages = {door.path for door in PAGES if door.method == "GET" and door.media == "text/html"}
    assert pages - PARTS == set(EXAMPLES)


def test_whatever_is_serious_is_found(page):
    """What is not asked for would find less, by the whole of axe on what is wrong in every way."""
    page.set_content(WRONG)
    found = {each["id"] for each in violations(page)}
    whole = page.evaluate("axe.run().then(said => said.violations)")
    assert found == {each["id"] for each in whole if each["impact"] in SERIOUS}
    assert {"color-contrast", "html-has-lang", "image-alt", "label", "list", "tabindex"} < found
    assert {each["impact"] for each in whole} == {"minor", "moderate", *SERIOUS}
    rules = page.evaluate("axe._audit.rules.map(rule => [rule.id, rule.impact])")
    assert {each["id"]: each["impact"] for each in whole}.items() <= dict(rules).items()
    with pytest.raises(AssertionError, match="image-alt"):
        no_serious_findings(page)


def unreached(page):
    """Controls that the Tab key does not come to, or comes to without a mark that is seen; looked at again where a
    script may have changed them meanwhile.
    """
    missed = []
    for _ in range(3):
        for _ in range(page.evaluate(MARK) + 5):
            page.keyboard.press("Tab")
        missed = page.evaluate(MISSED) + page.evaluate("[...window.unmarked]")
        if not missed:
            break
    return missed


def test_a_control_that_no_key_comes_to_is_found(page):
    page.set_content("<link rel='icon' href='data:,'><a href='#x'>x</a><div inert><button>y</button></div>")
    assert unreached(page) == ["<button>y</button>"]
    page.set_content("<link rel='icon' href='data:,'><a href='#x'>x</a><div><button>y</button></div>")
    assert unreached(page) == []
    page.evaluate("document.querySelector('a').style.outline = 'none'")
    assert unreached(page) == ['<a href="#x" style="outline: none;">x</a>'], "and one that it comes to unseen"


@pytest.fixture(scope="module")
def weight(page):
    return cold(page)


@pytest.mark.parametrize("path", EXAMPLES)
def test_page_is_for_everybody(page, server, path, weight):
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)
    where = address(server, path)
    weight.clear()
    assert page.goto(where).status == 200
    page.evaluate("scrollTo(0, document.body.scrollHeight), scrollTo(0, 0)")
    page.wait_for_timeout(200)  # what a script adds is looked at as well
    assert 0 < sum(weight) <= MOST_BYTES
    assert unreached(page) == []
    for size, scheme in product(SIZES, SCHEMES):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        no_serious_findings(page)
        no_sideways_scroll(page)
    page.set_viewport_size(PHONE)
    no_sideways_scroll(page)
    no_faults(page)
    assert page.title().endswith("dpserve")
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    levels = page.evaluate("() => [...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])")
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels


def test_doors_are_tried_and_help_leads_on(page, server):
    page.set_viewport_size(DESK)
    page.goto("/ui/tokens")
    page.get_by_role("link", name="Help").click()
    page.wait_for_url("**/docs/access")
    page.get_by_label("Search the documentation").fill("quota")
    page.keyboard.press("Enter")
    contents = page.get_by_role("navigation", name="Contents")
    contents.get_by_role("link", name="REST: try its doors", exact=True).click()
    page.wait_for_url("**/api")
    door = page.locator(".opblock", has=page.locator("[data-path='/v1/tokens']"))
    door.get_by_role("button").first.click()
    door.get_by_role("button", name="Try it out").click()
    door.get_by_role("button", name="Execute").click()
    door.get_by_text(f"admin-{server.port}").first.wait_for()
    no_faults(page)


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.dsse.json", "model.onnx.sigstore.json"])
def test_a_file_is_found_in_the_ledger(page, server, name):
    model = server.path / "models" / "adult" / "1"
    page.goto("/ui/ledger")
    page.get_by_text("By name, number or file").click()
    page.get_by_label("A file: a model").set_input_files(model / name)
    page.wait_for_url("**/ui/ledger?text=*")
    entries = page.locator(".entry")
    assert entries.count() >= 1
    assert "The certificate of model adult" in entries.first.inner_text()
    no_faults(page)


@pytest.mark.parametrize("scope", SCOPES)
def test_navigation_leads_where_the_token_may_go(server, scope):
    cookie = {"Accept": "text/html", "Cookie": f"dpserve={server.tokens[scope]}"}
    text = server.ask("GET", "/ui", None, headers=cookie).text
    for place in PLACES:
        allowed = scope == "admin" or scope in place.scopes
        assert (f'href="{place.path}"' in text) is allowed
        assert server.ask("GET", place.path, None, headers=cookie).status_code == (200 if allowed else 403)


def test_entry_is_checked_by_the_browser(page, server):
    page.goto(address(server, "/ui/ledger/{entry}"))
    page.locator(".ticks li").nth(2).wait_for()
    assert page.locator(".ticks .good").count() == 3
    no_faults(page)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda text: re.sub("extra .", "extra f", text), "it holds other bytes"),
        (lambda text: re.sub(r"(?m)^index \d+$", "index 0", text), "it is of another entry"),
        (lambda text: _other_line(text, 3), "it leads to another root"),
        (lambda text: _other_line(text, -1), "its signature does not verify"),
    ],
    ids=["bytes", "place", "path", "signature"],
)
def test_tampered_proof_is_shown_to_be_wrong(page, server, wrong, says):
    def tamper(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=wrong(answer.text()))

    page.route("**/proof", tamper)
    page.goto(address(server, "/ui/ledger/{entry}"))
    page.locator(".ticks .bad").wait_for()
    assert says in page.locator(".ticks .bad").inner_text()
    page.unroute("**/proof")


def _other_line(text, at):
    """One base64 digit changed, in line `at` of a proof's head or, below 0, of its signatures."""
    lines = text.rstrip("\n").split("\n")
    digit = 70 if at < 0 else 5
    digit = len(lines[at]) - 30 if at < 0 else digit
    changed = "A" if lines[at][digit] != "A" else "B"
    lines[at] = lines[at][:digit] + changed + lines[at][digit + 1 :]
    return "\n".join(lines) + "\n"


def test_kept_checkpoint_is_compared_by_the_browser(page, server, tmp_path):
    kept, later = tmp_path / "kept.txt", tmp_path / "forged.txt"
    kept.write_text(server.get("/v1/ledger/checkpoint").text)
    server.home.ledger.set_quota("adult", "ana", ledgers.Decimal("0.25"), "a test", "steward")
    assert _compared(page, kept) == ["good", "good", "good"]
    lines = kept.read_text().split("\n")
    later.write_text("\n".join([lines[0], "1", *lines[2:]]))
    assert _compared(page, later) == ["bad"]
    no_faults(page)


def _compared(page, file):
    page.goto("/ui/audit")
    page.get_by_label("The checkpoint that you kept").set_input_files(file)
    page.get_by_role("button", name="Compare").click()
    page.locator("#kept-result li.bad, #kept-result li:nth-child(3)").wait_for()
    return [each.get_attribute("class") for each in page.locator("#kept-result li").all()]


def test_history_that_was_changed_is_found_by_the_browser(page, server, tmp_path):
    """The server answers with a proof of another tree: its own signature does not help it."""
    kept = tmp_path / "kept.txt"
    kept.write_text(server.get("/v1/ledger/checkpoint").text)
    server.home.ledger.set_quota("adult", "ana", ledgers.Decimal("0.75"), "a test", "steward")
    size = int(kept.read_text().split("\n")[1])
    other = server.get(f"/v1/ledger/consistency?from={size - 1}").text
    page.route("**/v1/ledger/consistency*", lambda route: route.fulfill(body=other, content_type="application/json"))
    assert _compared(page, kept) == ["good", "good", "bad"]
    page.unroute("**/v1/ledger/consistency*")


def test_audit_that_was_asked_for_arrives_by_itself(page, server):
    page.goto("/ui/audit")
    page.get_by_text("There was none yet").wait_for()
    page.get_by_role("button", name="Audit now").click()
    page.get_by_text("An audit was asked for").wait_for()
    until(lambda: audit_runs.last_audit(server.home), "the audit")
    page.get_by_role("button", name="Audit now").wait_for()  # nobody reloads the page
    page.get_by_text("The ledger is sound").wait_for()
    no_serious_findings(page)
    no_sideways_scroll(page)
    assert page.locator(f"time[datetime='{audit_runs.last_audit(server.home)['at']}']").count() == 1


def test_token_is_made_shown_once_and_ended(page, server):
    page.goto("/ui/tokens")
    page.get_by_label("Name").fill("reader")
    page.get_by_role("checkbox", name=re.compile("audit")).check()
    page.get_by_role("button", name="Make the token").click()
    secret = page.locator("#secret").inner_text()
    no_serious_findings(page)
    no_sideways_scroll(page)
    bearer = {"Authorization": f"Bearer {secret}"}
    until(lambda: server.ask("GET", "/v1/ledger", None, headers=bearer).status_code == 200, "the token is good")
    page.get_by_role("link", name="Back to all tokens").click()
    page.locator("summary", has_text="Revoke").and_(page.get_by_label("End token reader")).click()
    page.get_by_role("button", name="End reader permanently").click()
    page.get_by_text("1 that was ended").wait_for()
    until(lambda: server.ask("GET", "/v1/ledger", None, headers=bearer).status_code == 401, "the token has ended")
    no_faults(page)


def test_a_grant_is_made_looked_at_and_revoked(page, server):
    ledger, secret = server.home.ledger, new_token(server.home, "night", [], principal="team-n")[0]
    page.set_viewport_size(DESK)
    page.goto("/ui/grants")
    page.get_by_label("To", exact=True).fill("team-n")
    page.get_by_label("May", exact=True).select_option("predict")
    page.get_by_label("On", exact=True).select_option("model")
    page.get_by_role("button", name="Grant it").click()
    expect(page.get_by_role("alert")).to_contain_text("for everything it stays empty")  # what was typed stands
    page.faults.remove("Failed to load resource: the server responded with a status of 400 (Bad Request)")
    page.get_by_label("Name", exact=True).fill("adult")
    page.get_by_role("button", name="Grant it").click()
    until(lambda: grants.grants(ledger)[-1].principal == "team-n", "it is granted")
    made = grants.grants(ledger)[-1]
    assert (made.principal, made.scope, made.on) == ("team-n", "predict", {"model": "adult"})
    until(lambda: {each["name"] for each in listed(server, secret) or ()} == {"adult"}, "its token sees that model")
    page.get_by_role("link", name=f"Grant {made.index}: what would stop with it").click()
    expect(page.locator("main")).to_contain_text("The token night could no longer predict on model adult")
    page.get_by_label("Why").fill("the night is over")
    page.get_by_role("button", name="Revoke it permanently").click()
    page.get_by_text("ended by").wait_for()
    assert ledger.log.entry(grants.grants(ledger)[-1].revoked).value["reason"] == "the night is over"
    until(lambda: listed(server, secret) is None, "its token may do nothing more")
    no_faults(page)


def test_a_steward_sets_a_quota_raises_the_total_and_downloads_the_ledger(page, server):
    """By its buttons: what they decided stands in the ledger that is downloaded."""
    page.set_viewport_size(DESK)
    page.goto("/ui/datasets/adult")
    page.get_by_role("heading", name="Set a quota").click()
    page.get_by_label("Whose").fill("ben")
    page.get_by_label("May use of the budget").fill("0.25")
    page.locator("#quota-reason").fill("for half a year")
    page.get_by_role("button", name="Set the quota").click()
    expect(page.get_by_role("row", name="ben")).to_contain_text("25 %")
    page.get_by_role("heading", name="Change the total").click()
    page.get_by_label("ε in all").fill("77.5")
    page.locator("#total-reason").fill("a second wave")
    page.get_by_role("button", name="Change it for all of its family").click()
    expect(page.get_by_text("77.5").first).to_be_visible()
    page.goto("/ui/ledger")
    with page.expect_download() as given:
        page.get_by_role("link", name="Download all of it").click()
    with zipfile.ZipFile(given.value.path()) as packed:
        entries = [json.loads(line) for line in packed.read("ledger/entries.jsonl").splitlines()]
    decided = [(each.get("analyst"), each.get("budget", {}).get("epsilon"), each["reason"]) for each in entries[-2:]]
    assert decided == [("ben", None, "for half a year"), (None, "77.5", "a second wave")]
    no_faults(page)


def test_a_release_made_elsewhere_is_charged_after_what_it_leaves_was_shown(page, server):
    page.set_viewport_size(DESK)
    page.goto("/ui/datasets/adult")
    page.get_by_role("link", name="Charge a release made elsewhere").click()
    panel, size = page.locator("#price"), server.home.ledger.log.size()
    page.get_by_label("Its cost is stated as").select_option("rho")
    page.get_by_label("That number").fill("900")
    expect(panel).to_contain_text("at most 100")
    page.get_by_label("That number").fill("0.05")
    expect(panel).to_contain_text("then it can be charged")
    page.get_by_label("What released it").fill("census table 12")
    with page.expect_response(lambda each: "published" in (each.request.post_data or each.url)):  # the last price
        page.get_by_label("Why", exact=True).fill("published in May")
    button = panel.get_by_role("button", name="Charge it to adult")
    expect(button).to_be_visible()  # typed, and no key pressed since
    expect(panel).to_contain_text("Room for one more job: up to ε")
    no_serious_findings(page)
    room = re.search(r"Room for one more job: up to ε [0-9.]+", panel.inner_text())[0]
    assert server.home.ledger.log.size() == size
    with page.expect_response(lambda each: each.request.method == "POST"):
        button.focus()  # so a field is left, and its price comes again: the button anew
    page.wait_for_function("!document.querySelector('.htmx-request')")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/datasets/adult#elsewhere")
    expect(page.get_by_role("row", name="census table 12")).to_contain_text("rho 0.05 for one record")
    expect(page.locator("main")).to_contain_text(room)
    no_faults(page)


def listed(server, secret):
    answer = server.ask("GET", "/v1/models", None, headers={"Authorization": f"Bearer {secret}"})
    return answer.json()["models"] if answer.status_code == 200 else None


def test_a_schedule_is_begun_and_ended_by_keyboard(page, server):
    """From the bar; what it asks is told before it is entered, and it is seen on a phone."""
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(DESK)
    page.goto("/ui")
    places = page.get_by_role("navigation", name="Pages").get_by_role("link")
    assert len({each.bounding_box()["y"] for each in places.all()}) == 1  # an admin's bar is one line
    page.get_by_role("navigation", name="Pages").get_by_text("More", exact=True).press("Enter")
    places.filter(has_text="Schedules").press("Enter")
    page.get_by_label("Name", exact=True).fill("weekly")
    page.get_by_label("ε of each run").fill("0.1")
    page.locator("form summary", has_text="More").press("Enter")
    page.get_by_label("Learner").fill("lazybb")
    page.get_by_label("First run").fill("2099-01-01T00:00")
    page.keyboard.press("Enter")
    page.get_by_text("Nothing is spent now").wait_for()
    no_serious_findings(page)
    page.get_by_role("button", name="Add it").press("Enter")
    page.get_by_role("rowheader", name="weekly").wait_for()
    page.set_viewport_size(PHONE)
    no_serious_findings(page)
    no_sideways_scroll(page)
    page.get_by_role("button", name="Remove weekly").press("Enter")
    page.get_by_text("No schedule yet").wait_for()
    no_faults(page)


def test_campaign_is_followed_as_owners_answer(page, server, tmp_path):
    """One that is open grows by itself; closed, it leads to what became of it."""
    survey, turns = (f"{name}-{uuid4().hex[:8]}" for name in ("survey", "turns"))  # another one where it is run again
    owners.asking(tmp_path, server.home, 5, 2, survey)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(DESK)
    page.goto("/ui")
    page.get_by_role("navigation", name="Pages").get_by_text("More", exact=True).click()
    page.locator("nav a", has_text="Campaigns").click()
    card = page.locator(f"#campaign-{survey}")
    card.get_by_text("0 of 5 owners have answered; 2 are needed, 2 more.").wait_for()
    assert card.locator("progress").get_attribute("max") == "5"
    forecast = campaigns.state(server.home, survey)["forecast"]  # drawn from the digest, and so from the name
    assert forecast["better"] != forecast["although_noise"]
    although = ", and opened although it is" if forecast["although_noise"] else ""
    assert forecast["says"] + although in card.inner_text().split("\n")
    no_serious_findings(page)
    for number in (1, 4):
        campaigns.receive(server.home, survey, campaigns.invitation(server.home, survey, number), number)
    card.get_by_text("2 of 5 owners have answered; 2 are needed.").wait_for()  # without being asked for again
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    no_serious_findings(page)
    no_sideways_scroll(page)
    campaigns.close(server.home, survey)
    card.locator(".badge.good", has_text="done").wait_for()
    card.get_by_role("link", name="closed by entry").click()
    assert "2 owners had answered" in page.locator("main").inner_text()
    owners.asking(tmp_path, server.home, 5, 4, turns, learner="local-stump", rounds="2", epsilon="1")
    campaigns.receive(server.home, turns, campaigns.invitation(server.home, turns, 0), 9)
    page.goto("/ui/campaigns")
    page.locator(f"#campaign-{turns}").get_by_text("1 of 2: 1 have answered; 2 are needed").wait_for()
    no_serious_findings(page)
    no_sideways_scroll(page)
    no_faults(page)
