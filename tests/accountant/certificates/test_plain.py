"""The page in plain words: every number on it follows from the certificate, and nothing unverified gets onto it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledgers import plan
from offices import Office, dataset

from accountant.ledger.families.records import Unit
from dpserve_verify.certificates.certificate import Certificate, verify
from dpserve_verify.certificates.chances import belief, best_guess, factor
from dpserve_verify.certificates.plain_words import GROWTH_IN_SHORT, plain
from dpserve_verify.certificates.written_page import IN_FULL, WIDTH, Page, Section, to_html, to_markdown, to_text
from dpserve_verify.log.cosignature import Cosignature
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import PureDp
from dpserve_verify.privacy.filter import Filter, price_from_json
from serving.cli.app import run

pytestmark = pytest.mark.home("trained", folder=True)

HALF = {"what": plan(PureDp(Decimal("0.05")), 10), "about": dataset(budget=Budget.of("3")), "delta": "0"}


def certificate(**options) -> Certificate:
    made = Office()
    filed = made.issue(**options)
    return verify(filed.envelope, filed.proof, filed.onnx, made.trust)


def words(page: Page) -> str:
    return " ".join(text for section in page.sections for text in (*section.paragraphs, *section.items))


# ---- the numbers


def test_epsilon_one_half():
    text = words(plain(certificate(**HALF)))
    assert "(0.5, 0)-differential privacy" in text
    assert "at most e^0.5 = 1.6488 times what it would have been with any one record added or removed. " in text
    assert "answers right at most 62.25 times in 100 (chance alone: 50)" in text
    assert "a chance of 10 in 100 into at most 15.49 in 100; 1 in 100 into at most 1.64 in 100" in text
    assert math.exp(0.5) == pytest.approx(1.6487, abs=1e-4)
    assert math.exp(0.5) / (1 + math.exp(0.5)) == pytest.approx(0.62246, abs=1e-5)
    assert 0.1 * math.exp(0.5) / (0.9 + 0.1 * math.exp(0.5)) == pytest.approx(0.15483, abs=1e-5)


def test_delta_is_on_top():
    found = certificate()
    text = words(plain(found))
    assert f"= {factor(found.epsilon)} times" in text
    assert ", and 1e-6 (1 in 1,000,000) on top." in text
    assert "With a probability of 1e-6 this may fail." in text
    assert f"right at most {best_guess(found.epsilon, found.delta)} times" in text


EPSILON = st.decimals("0.000001", "100", places=6)
DELTA = st.sampled_from([Decimal(0), Decimal("0.000001"), Decimal("0.01")])


@given(epsilon=EPSILON, delta=DELTA)
def test_numbers_are_the_formulas_rounded_up(epsilon, delta):
    e = math.exp(epsilon)
    exact = 100 * (e + float(delta)) / (e + 1)
    assert exact - 1e-9 <= best_guess(epsilon, delta) <= min(100, exact + 0.0101)
    assert e * (1 - 1e-12) <= factor(epsilon) <= e * (1 + 1.001e-4)
    for prior in (Decimal("0.1"), Decimal("0.01")):
        exact = 100 * float(prior) * e / (1 - float(prior) + float(prior) * e)
        assert exact - 1e-9 <= belief(epsilon, prior) <= min(100, exact + 0.0101)


@given(epsilon=st.decimals("0.01", "5", places=2), delta=DELTA)
def test_the_best_guess_is_reached_and_not_exceeded(epsilon, delta):
    """Randomized response that gives itself away with chance delta is (epsilon, delta)-DP, and a guess by it is right
    that often: the bound is neither too low nor needlessly high."""
    honest = (1 - float(delta)) * math.exp(epsilon) / (1 + math.exp(epsilon)) + float(delta)
    assert honest * 100 <= best_guess(epsilon, delta) <= honest * 100 + 0.0101


# ---- the words


def test_who_is_protected():
    text = words(plain(certificate()))
    assert "one record of the dataset adult. The promise compares the data with and without any one record" in text
    unit = Unit("person", "customer", 3)
    text = words(plain(certificate(about=dataset(Relation.REPLACE_ONE, unit))))
    assert "Used are the first 3 records of each value of customer, in file order, and no others." in text
    assert "any one person as it is and replaced by any other" in text
    assert "How many there are is public (1000 records)." in text
    assert "with any one person replaced" in text
    assert "which of two things a given person says" in text


@pytest.mark.parametrize("apart", ["0", "0.0000009"])
def test_what_was_spent_and_what_is_left(apart):
    total = Budget.of("3", "0.000001", apart)
    found = certificate(about=dataset(families=2, budget=total))
    stated, design = found.statement["predicate"]["dataset"], Filter.design(total)
    text = words(plain(found))
    assert f"This model took 25 noisy answers from the data, together epsilon {found.epsilon} at delta 1e-6." in text
    for each in stated["families"]:
        after = each["after"]
        assert f"Family {each['family']}: total epsilon 3 at delta 1e-6; " in text
        share = design.share(price_from_json(after, design.orders))
        assert 0 < share < 0.1
        assert f"was written, {100 * share:.1f} % of the budget used." in text


def test_how_it_was_checked():
    found = certificate()
    text = words(plain(found))
    for part in (
        found.sha256,
        found.issuers[0],
        found.log,
        "Entry 1 of the ledger example.org/ledger",
        "tree of 3 entries",
    ):
        assert part in text
    assert "No witness was asked" in text
    assert found.form.claim.conversion in text


def test_all_that_is_not_covered_is_said():
    found = certificate()
    text = words(plain(found)).lower()
    assert all(each.lower() in text for each in found.form.not_covered)
    assert len(found.form.not_covered) >= 5


def test_no_hype():
    text = to_text(plain(certificate())).lower()
    assert not re.search(
        r"anonym|guarantee|completely|fully|unbreakable|military|safe\b|secure\b|state.of.the.art", text
    )


# ---- the first page


def first_words(page: Page) -> list[str]:
    return to_text(page).partition(f"\n{IN_FULL}\n")[0].replace("=", "").replace("-\n", "\n").split()


SEEN = tuple(Cosignature(name, 1_700_000_000) for name in ("university", "auditor", "regulator"))


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"about": dataset(Relation.REPLACE_ONE, Unit("person", "customer", 3))},
        {"about": dataset(Relation.ADD_REMOVE, Unit("person", "customer", 3))},
        {"about": dataset(families=2, budget=Budget.of("3", "0.000001", "0.0000009"))},
        HALF,
    ],
)
def test_the_first_page_says_all_in_three_hundred_words(about):
    found = certificate(**about)
    own = GROWTH_IN_SHORT[found.growth]
    longest = max(len(text.split()) for text in GROWTH_IN_SHORT.values()) + 30  # of other parts, edits, another's word
    for each in (found, replace(found, witnesses=SEEN)):
        page = plain(
            each, ("The dataset has grown since.",), f"dpserve_verify-0.3.0-py3-none-any.whl, sha256 {64 * 'a'}"
        )
        words = first_words(page)
        assert len(words) - len(own.split()) + longest <= 300
        text = " ".join(words)
        assert f"({each.epsilon}, " in text
        guess = best_guess(*each.headline)
        assert f"At most {guess} of 100 such guesses are right" in text
        assert f"a lie {100 - guess} times in 100" in text
        assert "What came since it was issued stands first on the next page." in text
        assert f"sha256 {64 * 'a'}" in text
        assert ("seen" if each.witnesses else "no witness was asked") in text.replace("Others saw", "seen")
        assert not re.search(r"epsilon|sensitivity|Rényi|noise|neighbour|adjacen", text)


def test_the_comparison_is_the_promise_itself():
    """An answer that is a lie so many times in 100 is as good to guess by as the worst that the promise admits."""
    for epsilon, delta in ((Decimal("0.2"), Decimal("1e-9")), (Decimal(1), Decimal("0.01")), (Decimal(5), Decimal(0))):
        worst = (math.exp(epsilon) + float(delta)) / (math.exp(epsilon) + 1)
        assert 0 <= float(best_guess(epsilon, delta)) / 100 - worst <= 0.000101


# ---- the forms


def test_text_fits_a_terminal():
    text = to_text(plain(certificate()))
    assert max(map(len, text.splitlines())) <= WIDTH == 80
    assert text.endswith("\n")
    assert text.splitlines()[0] == "Privacy certificate of the model adult"


NASTY = Page(
    "# <b>x</b>", (Section("a|b", ("<script>alert(1)</script>", "*bold* [link](x) \x1b[31m\u202e"), ("`code`",)),)
)


def test_names_stay_names_in_every_form():
    assert "\x1b" not in to_text(NASTY)
    assert "\u202e" not in to_text(NASTY)
    markdown = to_markdown(NASTY)
    assert "&lt;script&gt;" in markdown
    assert r"\*bold\* \[link\](x)" in markdown
    assert "\x1b" not in markdown
    page = to_html(NASTY)
    assert "<script>" not in page
    assert "&lt;b&gt;" in page


def test_html_is_one_page_that_loads_nothing():
    seen: list[tuple[str, list]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, attrs))

    page = to_html(plain(certificate()))
    Reader().feed(page)
    assert {tag for tag, _ in seen} == {"html", "meta", "title", "style", "h1", "h2", "p", "ul", "li"}
    assert {name for _, attrs in seen for name, _ in attrs} == {"lang", "charset", "class"}
    assert "url(" not in page


def test_every_form_says_the_same():
    page = plain(certificate())
    plainest = re.sub(r"[\s-]", "", to_text(page))
    for text in (text for section in page.sections for text in (*section.paragraphs, *section.items)):
        assert re.sub(r"[\s-]", "", text) in plainest
        assert text in to_html(page).replace("&#x27;", "'").replace("&quot;", '"').replace("&gt;", ">").replace(
            "&lt;", "<"
        )


# ---- the command


def test_command_prints_the_page(home, capsys):
    assert run(["model", "show", "adult@1", "--certificate"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Privacy certificate of the model adult\n")
    assert "-differential privacy" in out
    assert err == ""
    assert run(["verify", str(home / "models" / "adult" / "1"), "--certificate"]) == 0
    assert capsys.readouterr().out == out
    assert run(["model", "show", "adult@1", "--certificate", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [section["title"] for section in body["page"]][:2] == ["Who is protected", "What is promised"]
    assert body["model"] == "adult"
    assert run(["verify", str(home / "models" / "adult" / "1"), "--certificate", "--json"]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert verified == {"ok": True, "problems": [], **body}


@pytest.mark.parametrize(
    ("name", "start"), [("a.html", "<!doctype html>"), ("a.md", "# Privacy"), ("a.txt", "Privacy")]
)
def test_command_writes_the_page(home, tmp_path, capsys, name, start):
    assert run(["model", "show", "adult", "--certificate", "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text().startswith(start)
    assert capsys.readouterr().out == f"written to {tmp_path / name}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--certificate", "--registry"],
        ["--out", "x.html"],
        ["--certificate", "--out", "x.pdf"],
        ["--certificate", "--out", "/nowhere/x.md"],
        ["--registry", "--out", "x.json"],
    ],
)
def test_wrong_use_is_exit_code_2(home, tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert run(["model", "show", "adult", *arguments]) == 2
    assert not list(tmp_path.glob("x.*"))


@pytest.mark.parametrize(
    "file", ["model.onnx", "model.onnx.dsse.json", "model.onnx.tlog-proof", "model.onnx.sigstore.json"]
)
@pytest.mark.parametrize("what", ["--certificate", "--registry"])
def test_a_bundle_that_does_not_verify_says_nothing_but_so(home, capsys, tmp_path, file, what):
    path = home / "models" / "adult" / "2" / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    assert run(["model", "show", "adult@2", what, "--out", str(tmp_path / "x.md")]) in (2, 4)  # 2: .md is no record
    assert run(["model", "show", "adult@2", what]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dpserve: ")
    assert not (tmp_path / "x.md").exists()


def test_a_policy_on_the_command_line(home, capsys, tmp_path):
    place = str(home / "models" / "adult" / "1")
    policy = tmp_path / "policy.json"
    for value, code in (
        ({"largest_epsilon": "0.5"}, 0),
        ({"largest_epsilon": "0.4"}, 4),
        ({"relations": ["replace-one"]}, 4),
    ):
        policy.write_text(json.dumps(value))
        assert run(["verify", place, "--policy", str(policy)]) == code
    policy.write_text('{"largest_epsilon": "0.5"}')
    assert run(["verify", place, "--policy", str(policy), "--largest-epsilon", "0.4"]) == 4
    assert run(["verify", place, "--policy", str(policy), "--largest-epsilon", "9"]) == 0
    policy.write_text('{"largest_epsilon": "0.1"}')
    assert run(["verify", place, "--policy", str(policy), "--largest-epsilon", "9"]) == 4  # never wider than the file
    policy.write_text('{"epsilon": "9"}')
    assert run(["verify", place, "--policy", str(policy)]) == 2
    capsys.readouterr()
