"""From an empty home on: the link to sign in with, the sample data, and what a newcomer does in a browser alone."""

from __future__ import annotations

import re

import pytest
from in_process import BASE
from pages_in_process import HTML, pages_at, words

from accountant.home import Home
from accountant.home.notes import Note, note_of, notes, write_note
from dpserve_verify.errors import InputError
from serving.cli.server import new_home
from serving.process import first_sign_in
from training.datasets.drafts import sample, steps


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
