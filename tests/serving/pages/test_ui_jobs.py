"""Pages of datasets and jobs, in a real browser on a real server: the price before it is sent, then live progress."""

from __future__ import annotations

import re

import pytest
from browser import as_new, no_serious_findings, no_sideways_scroll, signed_in
from playwright.sync_api import expect
from small_home import adult_home, serving, until

from training.jobs.job import submit
from training.requests import JobRequest

pytestmark = [pytest.mark.server, pytest.mark.system("chromium")]
SCOPE, FORM = "train", "/ui/jobs/new?dataset=adult&learner=lazybb"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(adult_home(tmp_path_factory.mktemp("ui"), 1).path, workers=1) as found:
        yield found


def price(page):
    return page.locator("#price")


def test_a_job_is_priced_then_sent_then_followed_to_its_model(page, server):
    before = len(server.jobs())  # not what they say: one that an earlier test sent may go on meanwhile
    page.goto("/ui")
    page.get_by_role("link", name="New job").first.click()
    page.get_by_label("ε, the price").fill("0.3")
    expect(price(page)).to_contain_text("fits")
    expect(price(page)).to_contain_text("of the budget used. Room for one more job: up to ε")
    expect(price(page)).to_contain_text("few rows for this epsilon, 14 features")  # no learner was named
    assert len(server.jobs()) == before  # a price spends nothing
    no_serious_findings(page)
    page.get_by_role("button", name="Train (ε 0.3)").click()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    expect(page.locator(".badge").first).to_have_text("done")  # nobody reloads the page
    expect(page.locator("#done")).to_have_text(str(server.jobs()[0]["rounds"]))
    expect(page.get_by_text("Certificate signed and entered")).to_be_visible()
    expect(page.get_by_role("link", name="See the model")).to_be_visible()


def test_on_a_phone_the_price_is_seen_without_scrolling(page):
    page.goto("/ui/jobs/new?dataset=adult")
    desk = page.viewport_size
    page.set_viewport_size({"width": 390, "height": 844})
    for epsilon, says in (("0.01", "fits"), ("90", "does not fit")):
        page.get_by_label("ε, the price").fill(epsilon)
        bar = page.locator(".price-bar")
        expect(bar).to_contain_text(says)
        expect(bar).to_be_in_viewport(ratio=1)
        assert page.evaluate("scrollY") == 0
        no_sideways_scroll(page)
    page.set_viewport_size(desk)
    expect(page.locator(".price-bar")).to_be_hidden()


def test_a_price_that_does_not_fit_says_what_would(page, server):
    page.goto("/ui/jobs/new?dataset=adult&learner=forest&epsilon=1.5")
    before = len(server.jobs())
    expect(price(page)).to_contain_text("does not fit")
    assert page.get_by_role("button", name=re.compile("^Train \\(")).count() == 0
    page.get_by_role("button", name="Use ε").click()
    expect(price(page).locator(".badge")).to_have_text("fits")
    assert float(page.get_by_label("ε, the price").input_value()) < 1.5
    assert len(server.jobs()) == before


def test_what_was_typed_after_the_price_came_is_priced_before_it_can_be_sent(page):
    page.goto(f"{FORM}&epsilon=0.05")
    submit = page.get_by_role("button", name=re.compile("^Train \\("))
    expect(submit).to_be_enabled()
    held = []
    page.route("**/ui/jobs/price?*", lambda route: held.append(route))  # the answer that would allow it again
    for key in ("End", "Backspace", "4"):
        page.get_by_label("ε, the price").press(key)
    expect(submit).to_be_disabled()
    while not any("epsilon=0.04" in each.request.url for each in held):
        page.wait_for_timeout(50)
    held[-1].continue_()
    page.unroute("**/ui/jobs/price?*")
    expect(submit).to_have_text("Train (ε 0.04)")
    expect(submit).to_be_enabled()


def test_a_slider_goes_through_the_ladder_of_epsilons_and_says_what_each_gives(page):
    """By the keyboard: what is typed follows it, and so does the price: worth, what it takes, months that are left."""
    page.goto(f"{FORM}&epsilon=0.5")
    slider, typed = page.get_by_role("slider", name="ε, slider"), page.get_by_label("ε, the price")
    assert slider.get_attribute("aria-valuetext") == "ε 0.5"
    months = []
    for epsilon in ("0.2", "0.1"):
        slider.press("ArrowLeft")
        assert typed.input_value() == epsilon
        expect(page.get_by_role("button", name=f"Train (ε {epsilon})")).to_be_enabled()
        expect(price(page)).to_contain_text("AUROC 0.")
        expect(price(page)).to_contain_text("% used after it")
        months.append(int(re.search(r"with one a month, (\d+) months", price(page).inner_text())[1]))
    assert 0 < months[0] < months[1]
    typed.fill("0.15")
    assert slider.get_attribute("aria-valuetext") == "ε 0.2"
    expect(page.get_by_role("button", name="Train (ε 0.15)")).to_be_enabled()  # it is what was typed
    no_serious_findings(page)


def test_a_button_that_is_held_down_for_long_still_sends(page):
    """The field is left as the button is pressed; a price that came until it is let go would replace the button."""
    page.goto("/ui/jobs/new?dataset=adult&learner=lazybb")
    page.get_by_label("ε, the price").fill("0.011")
    submit = page.get_by_role("button", name="Train (ε 0.011)")
    submit.hover()
    page.mouse.down()
    page.wait_for_timeout(500)  # any price asked for now would be there
    page.mouse.up()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"), timeout=30_000)


def test_what_was_priced_and_is_typed_again_can_be_sent_and_enter_asks_anew(page):
    page.goto("/ui/jobs/new?dataset=adult&learner=lazybb")
    field = page.get_by_label("ε, the price")
    field.fill("0.012")
    submit = page.get_by_role("button", name="Train (ε 0.012)")
    expect(submit).to_be_enabled()
    field.press("End")
    field.press("5")
    field.press("Backspace")
    expect(submit).to_be_enabled()
    with page.expect_response(re.compile("/ui/jobs/price")):
        field.press("Enter")
    field.fill("0.0125")
    with page.expect_response(re.compile("/ui/jobs/price")):
        field.press("Enter")
    expect(page.get_by_role("button", name="Train (ε 0.0125)")).to_be_enabled()


def test_a_price_that_failed_is_asked_for_again(page):
    page.goto("/ui/jobs/new?dataset=adult&learner=lazybb")
    page.route("**/ui/jobs/price?*", lambda route: route.abort())
    with page.expect_event("console", lambda said: "htmx:sendError" in said.text):
        page.get_by_label("ε, the price").fill("0.013")
    page.unroute("**/ui/jobs/price?*")
    page.get_by_label("ε, the price").blur()
    expect(page.get_by_role("button", name="Train (ε 0.013)")).to_be_enabled()
    page.faults.clear()  # the one that was made to fail


def test_a_form_says_what_hinders_it_and_goes_on(page, server):
    """The server is away, signed this browser out elsewhere, or is slow: nothing that was typed is lost, nothing is
    sent twice, and a price that could not be asked for comes by itself.
    """
    before, notice = len(server.jobs()), page.locator("#away")
    page.goto(f"{FORM}&epsilon=0.011")
    button = page.get_by_role("button", name=re.compile(r"^Train \("))
    expect(button).to_be_enabled()
    expect(notice).to_be_hidden()
    page.context.set_offline(True)
    page.get_by_label("ε, the price").fill("0.012")
    expect(notice).to_contain_text("The server does not answer. What you typed is still here; it is asked again.")
    assert page.locator("#price[data-old]").count() == 1, "the old price does not look like that of what is typed"
    no_serious_findings(page)
    page.context.set_offline(False)
    expect(page.get_by_role("button", name="Train (ε 0.012)")).to_be_enabled()
    expect(notice).to_be_hidden()
    assert page.locator("[data-old]").count() == 0
    page.context.set_offline(True)
    button.click()
    expect(notice).to_contain_text("Nothing was sent, and what you typed is still here; press once more.")
    page.context.set_offline(False)

    signed_in_by = page.context.cookies()
    page.context.clear_cookies()
    page.get_by_label("ε, the price").fill("0.013")
    expect(notice).to_contain_text("You were signed out elsewhere.")
    expect(page.get_by_role("heading", name="New job")).to_be_visible()
    button.click(force=True)
    assert len(server.jobs()) == before
    page.context.add_cookies(signed_in_by)
    page.get_by_label("ε, the price").press("Enter")
    expect(page.get_by_role("button", name="Train (ε 0.013)")).to_be_enabled()
    expect(notice).to_be_hidden()

    page.route("**/ui/", lambda route: (page.wait_for_timeout(4000), route.continue_()))
    button.click()
    expect(notice).to_contain_text("The server is slow; this goes on.")
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    page.unroute("**/ui/")
    assert len(server.jobs()) == before + 1
    page.faults.clear()  # what was made to fail


def test_the_parameters_follow_the_learner_and_several_values_are_private_tuning(page):
    page.goto(f"{FORM}&epsilon=0.2")
    page.get_by_label("Learner").select_option("forest")
    expect(page.get_by_text("Parameters of forest")).to_be_visible()
    page.get_by_text("Parameters of forest").click()
    page.get_by_label("trees").fill("3, 5")
    page.get_by_label("trees").press("Enter")
    expect(price(page)).to_contain_text("tried privately")
    page.get_by_label("trees").fill("none")
    expect(price(page)).to_contain_text("cannot be priced")


def test_without_scripts_the_form_still_shows_its_price_and_sends_it_once(browser, server):
    page = signed_in(browser, server, "train", FORM, java_script_enabled=False)
    page.get_by_label("ε, the price").fill("0.02")
    page.get_by_role("button", name="Show the price").click()
    page.get_by_role("button", name="Train (ε 0.02)").click()
    page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    count = len(server.jobs())
    page.go_back()
    page.get_by_role("button", name="Train (ε 0.02)").click()
    assert len(server.jobs()) == count  # the same form, the same job
    page.context.close()


def test_a_dataset_tells_its_budget_its_history_and_what_would_fit(page, server):
    for model in ("adult", "other"):
        asked = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 3}, "model": model}
        number = server.post("/v1/jobs", asked, scope="train").json()["job"]
        until(lambda number=number: server.get(f"/v1/jobs/{number}").json()["state"] == "issued", "there is a history")
    page.goto("/ui/datasets")
    page.get_by_role("link", name="adult").click()
    expect(page.get_by_role("img", name=re.compile(r"% used"))).to_be_visible()
    expect(page.get_by_text("more jobs").first).to_be_visible()
    expect(page.locator(".chart .line")).to_be_visible()
    expect(page.get_by_role("region", name="Which models used it").get_by_role("row", name="adult")).to_be_visible()
    expect(page.get_by_text("At this rate, used up")).to_have_count(0)  # a rate of minutes says nothing of days


def test_a_job_that_waits_for_its_rows_says_so(page, server):
    """Held by this process, so that no worker takes it meanwhile."""
    job = submit(server.home, JobRequest("adult", "lazybb", "0.01"), by=f"token:train-{server.port}", queued=False)
    server.home.ledger.leave_waiting(job.seq, "rows")
    page.goto(f"/ui/jobs/{job.seq}")
    expect(page.get_by_text("A worker cannot read the dataset's rows where it runs")).to_be_visible()


def test_on_a_phone_the_places_are_in_a_menu_and_nothing_is_wider_than_the_screen(page, server):
    as_new(page, server, "train", dark=True, phone=True)
    for path in ("/ui", "/ui/datasets/adult", f"{FORM}&epsilon=0.1"):
        page.goto(path)
        no_sideways_scroll(page)
    no_serious_findings(page)
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Jobs").click()
    page.wait_for_url("**/ui/jobs")
    no_sideways_scroll(page)


def test_the_theme_is_chosen_by_a_button_and_kept(page):
    button = page.get_by_role("button", name="Theme")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    page.goto("/ui/jobs")
    assert page.evaluate(paper) != light


def test_a_wrong_token_stays_outside_and_signing_out_ends_it(page, server):
    as_new(page, server)
    page.goto("/ui/jobs")
    page.get_by_label("Token").fill("dps_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not good")
    page.get_by_label("Token").fill(server.tokens["audit"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.goto("/ui/jobs")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
