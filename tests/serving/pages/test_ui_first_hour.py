"""From an empty home on: the link to sign in with, the sample data, and what a newcomer does in a browser alone."""

from __future__ import annotations

import json
import logging
import re
from urllib.parse import quote

import pytest
from browser import COUNTED, chromium, new_page, no_faults, no_serious_findings, no_sideways_scroll, predict_file
from in_process import BASE
from loans import BANKS
from pages_in_process import HTML, pages_at, words
from playwright.sync_api import expect
from small_home import serving, until

from accountant.home import Home
from accountant.home.notes import Note, note_of, notes, write_note
from dpserve_verify.errors import InputError
from serving.cli.server import new_home
from serving.process import first_sign_in
from serving.process.watch import logs
from training.datasets.drafts import sample, steps

ROWS = 1200
CLICKS, INPUTS = 8, 5  # from an empty home to a certified and evaluated model of a bank's own file
LINES = 10  # of the columns, in the one box, that people know more of than the file shows


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(tmp_path / "home"))
    new_home()
    (tmp_path / "home" / "run").mkdir()
    with pages_at(tmp_path / "home") as found:
        yield found


def follow(site, code):
    """What the login's script sends of a link."""
    headers = {**HTML, "Origin": BASE, "Content-Type": "application/x-www-form-urlencoded"}
    return site.ask("POST", "/ui/login", headers, content=f"code={code}&next=/ui".encode())


def printed(site, capsys, host="127.0.0.1"):
    capsys.readouterr()
    first_sign_in.print_link(site.home.path, "http://127.0.0.1:3000", host)
    return re.findall(r"/ui/login#([\w-]{43})$", capsys.readouterr().err.strip())


def test_the_first_link_signs_in_once_and_not_for_long(site, capsys, monkeypatch):
    (old,), (code,) = printed(site, capsys), printed(site, capsys)
    file = site.home.path / "run" / "sign-in"
    assert file.stat().st_mode & 0o077 == 0
    assert code not in file.read_text()
    for wrong in (old, code[:-1], "x"):
        answer = follow(site, wrong)
        assert (answer.headers["location"], "set-cookie" in answer.headers) == (
            "/ui/login?refused=link&next=/ui",
            False,
        )
    answer = follow(site, code)
    assert answer.headers["location"] == "/ui"
    assert (site.home.path / "first-token").read_text().strip() in answer.headers["set-cookie"]
    assert follow(site, code).headers["location"].startswith("/ui/login?refused=link")

    (late,) = printed(site, capsys)
    now = first_sign_in.time.time()
    monkeypatch.setattr(first_sign_in.time, "time", lambda: now + first_sign_in.LINK_SECONDS + 1)
    assert follow(site, late).headers["location"].startswith("/ui/login?refused=link")


def test_no_link_is_printed_where_a_store_of_logs_may_keep_it_or_nobody_needs_it(site, capsys):
    assert printed(site, capsys, "0.0.0.0") == []
    (code,) = printed(site, capsys)
    (site.home.path / "first-token").unlink()
    assert printed(site, capsys) == []
    assert follow(site, code).headers["location"].startswith("/ui/login?refused=link"), "the old one is good no more"


def test_the_link_is_a_line_of_the_log_where_lines_are_read_by_programs(site, capsys, monkeypatch):
    monkeypatch.setenv("DPSERVE_LOG_FORMAT", "json")
    handlers = logging.getLogger().handlers[:]
    try:
        logs.set_up()
        capsys.readouterr()
        first_sign_in.print_link(site.home.path, "http://127.0.0.1:3000", "127.0.0.1")
    finally:
        logging.getLogger().handlers = handlers
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"/ui/login#[\w-]{43}$", json.loads(line)["message"])


def test_sample_data_is_registered_by_one_button_and_marked(site):
    for path in ("/ui", "/ui/datasets"):
        assert 'action="/ui/drafts/sample"' in site.page(path).text
    address = site.send("/ui/drafts/sample").headers["location"]
    steps.work(site.home.path)
    assert "registered as adult" in words(site.page(address))
    dataset = Home.open({"DPSERVE_HOME": str(site.home.path)}).ledger.dataset("adult")
    assert (str(dataset.budget.epsilon), str(dataset.holdout)) == ("3", "0.2")
    assert note_of(site.home.path, "dataset", "adult") == Note(sample.WORDS, ("sample",))
    assert re.search(r"adult sample ", words(site.page("/ui/datasets")))
    shown = words(site.page("/ui/datasets/adult"))
    assert "income target categorical <=50K, >50K" in shown
    assert "age feature numeric 17 to 90" in shown
    asks = re.search("Like: (select .*? group by [a-z_]+)", words(site.page("/ui/answers/new?dataset=adult")))[1]
    assert asks == "select income, count(*), avg(age) from adult group by income"
    priced = site.page(f"/ui/answers/new?dataset=adult&epsilon=0.1&select={quote(asks)}")
    assert "counts right within" in words(priced), "the example is one that the dataset answers"
    again = site.send("/ui/drafts/sample").headers["location"]
    steps.work(site.home.path)
    assert "adult" in words(site.page(again))
    assert "That was not done" in words(site.page(again))


def test_notes_are_words_for_people_and_checked(tmp_path):
    write_note(tmp_path, "model", "m", Note.of(" for the board ", ["board", " 2026 ", "board", ""]))
    write_note(tmp_path, "dataset", "d", Note.of("", ["a"]))
    assert notes(tmp_path, "model") == {"m": Note("for the board", ("board", "2026"))}
    write_note(tmp_path, "model", "m", Note())
    assert notes(tmp_path, "model") == {}
    assert notes(tmp_path, "dataset") == {"d": Note("", ("a",))}
    for text, tags in (("x" * 2001, ()), ("\x00", ()), ("", ["x" * 41]), ("", ["<b>"]), ("", map(str, range(13)))):
        with pytest.raises(InputError):
            Note.of(text, tags)
    (tmp_path / "notes.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        notes(tmp_path, "model")


@pytest.mark.server
@pytest.mark.system("chromium")
@pytest.mark.parametrize("bank", BANKS.values(), ids=BANKS)
def test_from_an_empty_home_to_an_evaluated_model_in_a_browser_alone(tmp_path, monkeypatch, bank):
    """A file as a bank's export gives it: nothing of it is changed outside, nothing is typed into a terminal. What the
    file shows is filled in, what is permanent is asked once, and the next month's file goes in as the first is written.
    """
    file, home, name = bank.make(tmp_path / bank.file, ROWS), tmp_path / "home", bank.file.partition(".")[0]
    monkeypatch.setenv("DPSERVE_HOME", str(home))
    new_home()  # as `dpserve serve` does first
    with serving(home, workers=1) as server, chromium() as browser:
        page = new_page(browser, server)
        page.add_init_script(COUNTED)
        link = until(lambda: re.search(r"http://\S+/ui/login#[\w-]+", server.log.read_text()), "the link")[0]
        page.goto(link)
        page.wait_for_url("**/ui")
        page.get_by_label("File of rows").set_input_files(file)
        page.get_by_role("button", name="Upload").click()
        page.get_by_text("All columns in one box").click()
        expect(page.locator("summary", has_text="How the file is read")).to_contain_text(bank.read)
        box = page.get_by_label("A line for each column")
        proposed = dict(line.split(":", 1) for line in box.input_value().splitlines())
        assert {column for column in proposed if proposed[column] == " ignore"} == bank.ignored
        shown = page.locator("table.columns").inner_text()
        assert [words for words in bank.cells if words not in shown] == []
        assert 2 <= len(bank.public.keys() & proposed.keys()) == len(bank.public) <= LINES
        box.fill("\n".join(f"{column}: {bank.public.get(column, said.strip())}" for column, said in proposed.items()))
        page.get_by_label("Number of rows, approximately").fill(str(ROWS))
        page.get_by_role("button", name="Check every row by these lines").click()
        expect(page.get_by_text("every row fits")).to_be_visible()

        assert page.get_by_label("One person is named by").count() == 1, "it is asked once"
        first = page.locator("#unit option").nth(1)
        assert first.inner_text() == f"the column {bank.client}, which may name people"
        page.get_by_label("One person is named by").select_option(bank.client)
        page.get_by_label("Rows of one person").fill("2")
        page.get_by_role("button", name="As most say: ε 3, δ 1e-6, a fifth kept aside").click()
        expect(page.locator("#means")).to_contain_text("times in 100")
        page.get_by_role("button", name="Register it, permanently").click()
        page.get_by_role("link", name="To the first job").click()
        page.get_by_role("button", name="Train (ε 0.3) and evaluate (ε 1)").click()
        page.get_by_role("link", name="See the model").click()
        expect(page.get_by_role("heading", name=f"{name}@1")).to_be_visible()
        counted = page.evaluate("JSON.parse(sessionStorage.counted)")
        assert (len(counted["click"]), len(counted["change"])) == (CLICKS, INPUTS), counted
        until(lambda: "ROC curve" in page.request.get(page.url).text(), "the evaluation is entered, and drawn")
        page.reload()
        expect(page.locator("svg[aria-label^='ROC curve']")).to_be_visible()
        page.goto("/ui/datasets/" + name)
        columns = page.get_by_label("Columns", exact=True).locator("tbody tr").all_inner_texts()
        assert {each.partition("\t")[0] for each in columns} == {*bank.columns} - bank.ignored | {bank.client}
        page.go_back()
        no_sideways_scroll(page)
        no_serious_findings(page)

        month = bank.make(tmp_path / f"next.{bank.file.partition('.')[2]}", 300, seed=12)
        page.get_by_role("heading", name="Predict a file").click()
        text, said = predict_file(page, month)
        assert said.startswith("Predicted"), said
        assert len(text.splitlines()) == 301
        no_faults(page)
        page.goto(f"/ui/datasets/{name}")  # the same as its next block
        page.get_by_text("Append rows", exact=True).first.click()
        page.get_by_label("File of rows").set_input_files(month)
        page.get_by_role("button", name="Upload").click()
        expect(page.get_by_role("heading", name=f"Append these rows to {name}")).to_be_visible()
        page.get_by_label("Approximate number of rows").fill("300")
        page.get_by_role("button", name="Append them, permanently").click()
        expect(page.get_by_text("appended", exact=True)).to_be_visible()
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_text("2 blocks, each with the whole total")).to_be_visible()
        no_serious_findings(page)
        no_faults(page)
        trail = (home / "logs" / "access.jsonl").read_text() + (home / "ledger.db").read_bytes().decode("latin-1")
        assert link.rpartition("#")[2] not in trail
