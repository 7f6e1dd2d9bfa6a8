"""What people do with pages beside what they are meant to: the keyboard alone, two at one form, back, twice, too late,
too much. One server and one browser for all of it.
"""

from __future__ import annotations

import csv
import re
from decimal import Decimal

import pytest
from browser import DESK, as_new, new_page, no_serious_findings, no_sideways_scroll, predict_file, sign_in
from playwright.sync_api import expect
from small_home import adult_home, records, serving

from training.jobs import job
from training.requests import JobRequest

pytestmark = [pytest.mark.server, pytest.mark.system("chromium")]
SCOPE, FORM = "admin", "/ui/jobs/new?dataset=adult&learner=lazybb"
TABS = 60  # of one page, from its content on, at most
# Where the keyboard is: in words, and whether somebody sees it.
FOCUS = """() => {
  const found = document.activeElement, box = found.getBoundingClientRect(), style = getComputedStyle(found);
  const marked = each => each.outlineStyle !== "none" && parseFloat(each.outlineWidth) >= 2;
  const words = found.labels?.[0]?.innerText || found.getAttribute("aria-label") || found.innerText || found.tagName;
  return {words: words.trim().split("\\n")[0], body: found === document.body,
    seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    marked: marked(style) || marked(getComputedStyle(found, "::after"))};
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("people"), 3, Decimal("0.2"))
    job.train(home, JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 3}, model="known"), by="test")
    with serving(home.path, workers=1) as found:
        yield found


def tab_to(page, words):
    """Press Tab until the keyboard is at what is called so. Each place on the way is seen, marked, and another."""
    passed = []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUS)
        assert not at["body"], (words, passed)
        assert at["seen"], at
        assert at["marked"], at
        if re.fullmatch(words, at["words"]):
            return passed
        passed.append(at["words"])
    raise AssertionError((words, passed))


def skip(page):
    """The first place of each page leads past what all pages have."""
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUS)["words"] == "Skip to the content"
    page.keyboard.press("Enter")


def test_by_keyboard_alone_from_signing_in_to_a_certificate(page, server):
    as_new(page, server)
    page.goto("/ui")
    assert page.evaluate(FOCUS)["words"] == "Token", "who comes in is where they type"
    page.keyboard.type(server.tokens["admin"])
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r":\d+/ui$"))
    skip(page)
    tab_to(page, "New job")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/jobs/new*")
    skip(page)
    passed = tab_to(page, "ε, the price")
    assert passed[:2] == ["Jobs", "Dataset"], "from above to below"
    page.keyboard.type("0.3")
    expect(page.get_by_role("button", name="Train (ε 0.3)")).to_be_enabled()
    tab_to(page, r"Train \(ε 0.3\)")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    expect(page.get_by_role("link", name="See the model")).to_be_visible()
    skip(page)
    tab_to(page, "See the model")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/models/*")
    skip(page)
    tab_to(page, "Certificate in words")
    page.keyboard.press("Enter")
    expect(page.locator("#certificate details details").first).to_be_visible()  # unfolded by the link
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('certificate').contains(document.activeElement)"), "goes on there"
    tab_to(page, "Who vouches for it.*|.*")
    page.keyboard.press("Enter")
    expect(page.locator("#certificate details details[open] p").first).to_be_visible()


def test_a_job_is_sent_once_by_a_double_click_and_after_going_back(page, server):
    before = len(server.jobs())
    page.goto(f"{FORM}&epsilon=0.02")
    page.get_by_role("button", name="Train (ε 0.02)").dblclick()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    sent = page.url
    assert len(server.jobs()) == before + 1
    page.go_back()
    again = page.get_by_role("button", name="Train (ε 0.02)")
    again.click()
    expect(page.locator("#away")).to_contain_text("This was sent before you came back")
    assert len(server.jobs()) == before + 1, "nothing is charged again"
    again.click()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    assert (page.url != sent, len(server.jobs())) == (True, before + 2), "who presses once more means it"


def test_of_two_at_one_budget_the_second_sees_what_is_left(page, server, browser):
    """Both see that 2 fits, and it fits once."""
    other = sign_in(new_page(browser, server), server, "admin")
    for each in (page, other):
        each.goto(f"{FORM}&epsilon=2")
        expect(each.get_by_role("button", name="Train (ε 2)")).to_be_enabled()
        each.get_by_label("Name of the model").fill("big")
        expect(each.get_by_role("button", name="Train (ε 2)")).to_be_enabled()
    page.get_by_role("button", name="Train (ε 2)").click()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    before = len(server.jobs())
    other.get_by_role("button", name="Train (ε 2)").click()
    expect(other.locator("#price .badge")).to_have_text("does not fit")
    assert other.get_by_label("Name of the model").input_value() == "big", "what was typed stands there"
    other.get_by_role("button", name="Use ε").click()
    expect(other.get_by_role("button", name=re.compile("^Train"))).to_be_enabled()
    assert len(server.jobs()) == before
    no_serious_findings(other)
    other.context.close()


def say(page, column, role="", public=""):
    if role:
        page.get_by_label(f"Role of {column}", exact=True).select_option(role)
    if public:
        page.get_by_label(f"Public range or values of {column}", exact=True).fill(public)


def test_of_two_at_one_draft_nobody_registers_what_the_other_said_unseen(page, server, browser, tmp_path):
    """Two windows on one file: what changed meanwhile is told, what was typed stands, and the form goes on."""
    file = tmp_path / "wards.csv"
    file.write_text(
        "age,ward,ill\n" + "".join(f"{20 + at % 70},{'ab'[at % 2]},{'ny'[at % 3 == 0]}\n" for at in range(200))
    )
    page.goto("/ui/drafts")
    page.get_by_label("File of rows").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url(re.compile("/ui/drafts/[0-9a-f]{32}$"))
    say(page, "age", public="0 .. 120")
    say(page, "ward", public="a, b")
    say(page, "ill", "target", "n, y")
    page.get_by_label("Approximate number of rows", exact=True).fill("200")
    page.get_by_role("button", name="Check every row", exact=True).click()
    expect(page.get_by_role("button", name="Register it, permanently")).to_be_visible()
    other = sign_in(new_page(browser, server), server, "admin")
    other.goto(page.url)
    other.get_by_label("Name of the dataset").fill("wards")
    other.get_by_label("One person is named by", exact=True).select_option("record")
    other.get_by_role("button", name="As most say").click()
    page.locator("summary", has_text=re.compile("^Columns$")).click()
    say(page, "ward", "ignore")
    page.get_by_role("button", name="Check every row", exact=True).click()
    expect(page.get_by_text("every row fits")).to_be_visible()

    sends = other.get_by_role("button", name="Register it, permanently")
    sends.click()
    expect(other.get_by_role("alert")).to_contain_text("changed in another window since you saw it. Nothing was done")
    assert [each["name"] for each in server.get("/v1/datasets").json()["datasets"]] == ["adult"]
    assert other.get_by_label("Name of the dataset").input_value() == "wards", "what was typed stands there"
    assert other.get_by_label("Role of ward", exact=True).input_value() == "ignore", "and what the other said"
    no_serious_findings(other)
    assert {"409" in each for each in other.faults} == {True}
    sends.click()
    expect(other.get_by_role("link", name="wards", exact=True)).to_be_visible()
    page.get_by_role("button", name="Register it, permanently").evaluate("each => each.form.noValidate = true")
    page.get_by_role("button", name="Register it, permanently").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert len(server.get("/v1/datasets").json()["datasets"]) == 2, "it is registered once"
    other.context.close()
    page.faults.clear()  # the refusal


def test_an_expired_link_says_so_and_the_form_leads_on(page, server):
    as_new(page, server)
    page.goto(f"/ui/login?next=/ui/jobs#{'x' * 43}")
    expect(page.get_by_role("alert")).to_contain_text("This link was used, or is older than a quarter of an hour")
    page.get_by_label("Token").fill(server.tokens["admin"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/jobs")


def test_answers_that_cover_are_paid_for_read_and_predicted(page, server, tmp_path):
    """From a model's page by one evaluation to a file of predictions, as the door gives them."""
    page.goto("/ui/models/known")
    assert page.locator("#batch-cover").count() == 0, "nothing was counted yet"
    page.get_by_role("link", name="Measure it").click()
    page.get_by_text("More", exact=True).last.click()
    page.get_by_label("How often answers hold the truth").check()
    page.get_by_label("ε, the price").fill("2")
    expect(page.locator("#price")).to_contain_text("--cover")
    page.get_by_role("button", name="Measure (ε 2)").click()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    expect(page.get_by_text("Statement signed and entered")).to_be_visible()
    file = page.get_by_role("link", name="Ask for it with a file")
    expect(file).to_have_attribute("href", "/ui/models/known%401#batch")  # the form stands on the model's page
    page.goto("/ui/models/known")
    page.get_by_role("heading", name="What it is worth").click()
    page.get_by_role("heading", name="How answers cover, on what was kept aside of adult").wait_for()
    expect(page.locator("#worth")).to_contain_text("each class whose chance is at least least chance 90")
    no_serious_findings(page)
    page.locator("#worth").get_by_role("link", name="Ask for it with a file").click()
    rows = records(30)
    with (tmp_path / "some.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    page.get_by_label("Beside each prediction").select_option("what holds the truth in 90 of 100")
    found = list(csv.DictReader(predict_file(page, tmp_path / "some.csv")[0].splitlines()))
    answer = server.post("/predict?cover=.9", {"model": "known", "records": rows}).json()["cover"]
    shown = [[name.removeprefix("in_") for name, value in line.items() if name.startswith("in_") and value == "true"]
             for line in found]  # fmt: skip
    assert shown == answer["sets"]
    assert 30 < sum(map(len, shown)) <= 60, "both classes where the model is not sure"
    whatif = page.locator("#whatif")
    truth = re.compile(r"Holds the truth in 90 of 100: (<=50K|>50K)( or >50K)?\.")
    expect(whatif.locator(".cover")).to_have_text(truth)
    page.get_by_label("Beside each prediction").select_option("nothing more")
    assert "in_" not in predict_file(page, tmp_path / "some.csv")[0].partition("\n")[0]
    page.goto("/ui/tokens")
    page.get_by_text("Connect an agent").click()
    expect(page.locator("#agent pre")).to_contain_text(f'"DPSERVE_URL": "http://127.0.0.1:{server.port}"')


def test_a_dataset_is_seen_in_three_screens(page):
    """After all that was done to it above, with every price that comes by itself."""
    for name in ("adult", "wards"):
        page.goto(f"/ui/datasets/{name}")
        expect(page.locator("#fit + *")).not_to_contain_text("this takes a moment")
        assert page.evaluate("document.documentElement.scrollHeight") <= 3 * DESK["height"], name
    no_serious_findings(page)


def test_a_file_of_two_gigabytes_is_refused_at_once_with_what_to_do(page, server, tmp_path):
    """By its size, before a byte of it is read: sparse, as no disk of a test holds it."""
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate((2 << 30) + 1)
    page.goto("/ui/drafts")
    sent = []
    page.on("request", lambda asked: sent.append(asked.method))
    page.get_by_label("File of rows").set_input_files(large)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#upload-says")).to_contain_text("a larger one is registered by path")
    assert sent.count("POST") == 1, "it was announced"
    assert "PUT" not in sent, "and none of it was sent"
    assert page.get_by_role("button", name="Upload").is_enabled()
    page.goto("/ui/models/known")
    page.get_by_text("Predict a file").click()
    page.get_by_label("File of records").set_input_files(large)
    page.get_by_role("button", name="Predict", exact=True).click()
    expect(page.locator("form.batch .told")).to_contain_text("A larger one: dpserve predict")
    page.faults.clear()  # the browser notes the refusal


def test_what_is_typed_on_a_phone_when_the_sign_in_ended_is_kept(page, server):
    as_new(page, server, "admin", phone=True)
    page.goto(f"{FORM}&epsilon=0.01")
    page.get_by_label("Name of the model").fill("on-the-way")
    expect(page.get_by_role("button", name="Train (ε 0.01)")).to_be_enabled()
    page.context.clear_cookies()
    page.get_by_role("button", name="Train (ε 0.01)").click()
    expect(page.locator("#away")).to_contain_text("You were signed out elsewhere")
    expect(page.locator("#away")).to_be_in_viewport()
    assert page.get_by_label("Name of the model").input_value() == "on-the-way"
    no_sideways_scroll(page)
    page.faults.clear()  # what was refused
