"""The page of the audit: what the last one said, asking for another, and taking what it takes to repeat it."""

from __future__ import annotations

import io
import re
import subprocess
from html import unescape
from zipfile import ZipFile

import ledgers
import pytest
from in_process import BASE
from pages_in_process import pages_at, words

from accountant.access import tokens
from accountant.audit.export import export
from dpserve_verify.audit.exports import audit_export
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import verify_checkpoint
from serving.process.watch import audit_runs


@pytest.fixture
def pages(tmp_path):
    with pages_at(ledgers.copy(ledgers.filled(), tmp_path / "home")) as found:
        yield found


def test_before_the_first_audit_the_page_says_so(pages):
    assert "There was none yet" in words(pages.page("/ui/audit", "audit"))


def test_sound_ledger_is_said_to_be_sound(pages):
    found = audit_runs.audit_at(pages.home.path, pages.home.ledger.log.database.url)
    said = words(pages.page("/ui/audit", "audit"))
    assert "The ledger is sound" in said
    assert f"Entries {found['entries']} " in said
    assert found["root"] in said
    assert "Problems none" in said
    assert "more were written since" not in said
    tokens.create(pages.home.ledger, "late", ["audit"], ledgers.hexes("late"))
    assert "(1 more were written since)" in words(pages.page("/ui/audit", "audit"))


def test_broken_ledger_is_said_to_be_broken(pages):
    with ledgers.raw(pages.home.path) as connection:
        connection.execute("UPDATE job SET state = 'released' WHERE state = 'burned'")
    found = audit_runs.audit_at(pages.home.path, pages.home.ledger.log.database.url)
    said = words(pages.page("/ui/audit", "audit"))
    assert not found["ok"]
    assert "The ledger is NOT sound" in said
    assert " ".join(found["problems"][0].split()) in said
    assert "Do not train" in said


def test_asking_for_one_is_remembered_until_it_begins(pages):
    response = pages.send("/ui/audit", "audit")
    assert response.status_code == 303
    path = response.headers["location"]
    assert path.startswith("/ui/audit?asked=2")
    page = pages.page(path, "audit")
    assert "An audit was asked for" in words(page)
    assert 'hx-trigger="every 2s"' in page.text
    assert "Audit now" not in words(page)
    (pages.home.path / "logs" / "audit.asked").unlink()  # as an audit does when it begins
    assert "An audit was asked for" in words(pages.page(path, "audit"))
    audit_runs.audit_at(pages.home.path, pages.home.ledger.log.database.url)
    page = pages.page(path, "audit")
    assert "Audit now" in words(page)
    assert "hx-trigger" not in page.text
    assert pages.page("/ui/audit?asked=yesterday", "audit").status_code == 400


def test_checkpoint_and_keys_are_what_an_auditor_needs(pages):
    note, trust = pages.page("/ui/audit/checkpoint", "audit"), pages.page("/ui/trust.json", "audit")
    size = pages.home.ledger.log.size()
    assert note.headers["content-disposition"] == f'attachment; filename="checkpoint-{size}.txt"'
    keys = PublicKeys.from_json(trust.content)
    assert keys == pages.home.trust
    assert verify_checkpoint(note.text, keys.origin, keys.log_key_at(size)).size == size


def test_downloaded_ledger_is_what_an_auditor_takes(pages, tmp_path):
    packed = pages.page("/ui/audit/ledger.zip")
    assert packed.status_code == 200
    with ZipFile(io.BytesIO(packed.content)) as opened:
        opened.extractall(tmp_path)
    report = audit_export(tmp_path / "ledger", pages.home.trust)
    assert (report.problems, report.entries) == ((), pages.home.ledger.log.size())
    assert not list(pages.home.path.glob("export-*")), "nothing is left of it"


def test_commands_of_the_page_are_those_of_the_command_line(pages):
    from typer.testing import CliRunner

    from serving.cli.app import app

    text = pages.page("/ui/audit").text
    commands = re.findall(r"<code>dpserve (\w+ \w+)", text)
    assert commands
    for command in commands:
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


@pytest.mark.system("openssl", "jq")
def test_commands_of_other_tools_tell_a_signed_checkpoint_from_another(pages, tmp_path):
    (script,) = [unescape(each) for each in re.findall(r"<code>(sed .*?)</code>", pages.page("/ui/audit").text, re.S)]
    export(pages.home, tmp_path / "ledger")
    (tmp_path / "trust.json").write_bytes(pages.home.trust.to_json())

    def verifies():
        return subprocess.run(["sh", "-euc", script], cwd=tmp_path, capture_output=True).returncode == 0

    assert verifies()
    note = tmp_path / "ledger" / "checkpoint"
    lines = note.read_text().split("\n")
    note.write_text("\n".join([lines[0], str(int(lines[1]) - 1), *lines[2:]]))
    assert not verifies()


@pytest.mark.parametrize("scope", ["predict", "train"])
def test_audit_is_for_auditors(pages, scope):
    for path in ("/ui/audit", "/ui/audit/checkpoint"):
        assert pages.page(path, scope).status_code == 403
    assert pages.send("/ui/audit", scope).status_code == 403
    assert not audit_runs.is_asked(pages.home.path)


def test_page_of_another_site_cannot_ask(pages):
    assert pages.send("/ui/audit", origin=f"{BASE}.evil.example").status_code == 403
    assert not audit_runs.is_asked(pages.home.path)
