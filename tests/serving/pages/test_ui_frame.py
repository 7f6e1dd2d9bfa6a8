"""The frame of the pages: templates, static files, forms, who sees what. No socket, no browser; the doors are real."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime

import pytest
from in_process import BASE
from pages_in_process import pages_at, words
from small_home import write_files

from accountant.home import Home
from dpserve_verify.errors import InputError, VerificationError
from dpserve_verify.privacy.budget import Budget, Relation
from serving.app import DOORS as DOCUMENTED
from serving.http import headers
from serving.pages.all import PAGES
from serving.pages.job_form import Form
from serving.pages.parts import burndown_chart, static_files, ui
from serving.rest.openapi import openapi
from training.datasets.datasets import register

LATER = ("Grants", "Schedules", "Campaigns", "Service")
PAGE = {"Accept": "text/html"}
FORM = {"Origin": BASE, **PAGE}
EVIL = "<script>alert(1)</script>"
IDENTIFIERS = (  # names of formats: nobody asks for them
    *("http://www.w3.org/", "https://in-toto.io/Statement/", "https://dpserve/", "https://vega.github.io/schema/"),
)
TEMPLATES = sorted((static_files.FOLDER.parent / "templates").glob("*.html"))
SCRIPTS = [path for path in static_files.FOLDER.glob("*.*") if path.suffix in (".js", ".css", ".svg")]


@pytest.fixture
def empty(_empty):
    _empty.look()  # as a worker does twice a second; a home that nobody looks at is not answered for
    return _empty


@pytest.fixture
def site(_site):
    _site.look()
    return _site


@pytest.fixture(scope="module")
def _empty(tmp_path_factory):
    home = tmp_path_factory.mktemp("empty") / "home"
    Home.init({"DPSERVE_HOME": str(home)})
    with pages_at(home) as found:
        yield found


@pytest.fixture(scope="module")
def _site(tmp_path_factory):
    """With a dataset, and nobody who works: what is submitted waits."""
    folder = tmp_path_factory.mktemp("pages")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    budget = Budget.of("1", "0.000001")
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", budget, Relation.ADD_REMOVE, None)
    with pages_at(folder / "home") as found:
        yield found


# Files


def copied(tmp_path):
    return shutil.copytree(static_files.FOLDER, tmp_path / "static")


def test_every_vendored_file_is_pinned_and_named_with_its_version():
    about = (static_files.FOLDER / "vendor/README.md").read_text("utf-8")
    for name in static_files.files():
        if name.startswith("vendor/") and name.endswith(".js"):
            assert f"`{name.removeprefix('vendor/')}`" in about
            assert name.removesuffix(".js").removesuffix(".min") + ".LICENSE" in static_files.files()


@pytest.mark.parametrize("harm", ["changed", "absent", "added"])
def test_a_vendored_file_that_is_not_the_pinned_one_is_not_served(tmp_path, harm):
    folder = copied(tmp_path)
    static_files.files(folder)
    static_files.files.cache_clear()
    file = folder / "vendor" / "htmx.min.js"
    if harm == "changed":
        file.write_bytes(file.read_bytes() + b" ")
    elif harm == "absent":
        file.unlink()
    else:
        (folder / "vendor" / "more.js").write_text("")
    with pytest.raises(VerificationError, match="more.js" if harm == "added" else "htmx.min.js"):
        static_files.files(folder)


def test_static_files_are_open_kept_for_ever_under_their_digest_and_packed(empty):
    path = static_files.address("dpserve.css")
    found = empty.ask("GET", path, {"Accept-Encoding": "gzip"})
    assert (found.status_code, found.headers["content-encoding"]) == (200, "gzip")
    assert "immutable" in found.headers["cache-control"]
    assert found.text == (static_files.FOLDER / "dpserve.css").read_text("utf-8")
    again = empty.ask("GET", path, {"If-None-Match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "immutable" not in empty.ask("GET", "/ui/static/dpserve.css?v=other").headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["nothing.js", "../ui.py", "..%2fui.py", "%2e%2e/%2e%2e/pyproject.toml", "/etc/passwd", "vendor", ""]
)
def test_no_path_leads_out_of_the_static_files(empty, path):
    assert empty.ask("GET", f"/ui/static/{path}").status_code in (303, 401, 404)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_need_nothing_that_the_policy_forbids(path):
    """No inline style, script or handler, and no address outside."""
    text = path.read_text("utf-8")
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|https?://|\|\s*safe", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_our_scripts_and_styles_name_no_address_outside(path):
    found = re.findall(r"https?://[^\s\"'`]+", path.read_text("utf-8"))
    assert [each for each in found if not each.startswith(IDENTIFIERS)] == []


# Who sees what


def test_pages_are_no_part_of_the_documented_interface():
    documented = openapi(DOCUMENTED)["paths"]
    assert not [path for path in documented if path.startswith("/ui")]
    assert all(door.path.split("/")[1] in headers.PAGES for door in PAGES)


def test_every_page_needs_a_token_but_the_way_in(empty):
    open_doors = {"/ui/login", "/ui/logout", "/ui/static/{path:path}"}
    open_doors |= {"/ui/sso", "/ui/sso/back", "/ui/sso/logout", "/ui/sso/provider"}
    for door in PAGES:
        assert bool(door.scopes) == (door.path not in open_doors), door.path
        if door.scopes and door.method == "GET" and "{" not in door.path:
            answer = empty.ask("GET", door.path, PAGE)
            assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/ui/login")
            assert empty.ask("GET", door.path).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scope", "sees"),
    [
        ("predict", ["Models", "|", "Grants"]),
        ("train", ["Datasets", "Jobs", "Models", "|", "Grants", "Schedules", "Campaigns"]),
        ("audit", ["Datasets", "Jobs", "Models", "Ledger", "Audit", "|", *LATER]),
        ("admin", ["Datasets", "Jobs", "Models", "Ledger", "Audit", "Tokens", "|", *LATER, "Keys"]),
    ],
)
def test_the_navigation_shows_where_the_token_may_go(empty, scope, sees):
    text = empty.page("/ui", scope).text
    menu = text.partition('<nav aria-label="Pages">')[2].partition("</nav>")[0]
    shown = re.findall(r">(\w+)</a>|<summary>(More)</summary>", menu)
    assert ["|" if more else place for place, more in shown] == sees  # what stands behind it is under "More"
    for path in re.findall(r'href="([^"]+)"', menu):
        assert empty.page(path, scope).status_code == 200, path


def test_a_page_for_another_scope_says_so_as_a_page(empty):
    answer = empty.page("/ui/jobs", "predict")
    assert answer.status_code == 403
    assert "Not with this token" in answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert empty.bear(empty.secrets["predict"], "GET", "/ui/jobs").json()["error"]["code"] == "forbidden"


def test_what_people_type_leads_to_the_pages(empty):
    assert empty.page("/ui/", "predict").headers["location"] == "/ui"
    answer = empty.ask("GET", "/", PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?next=/ui")


def test_what_is_nowhere_is_a_page_too(empty):
    for path in ("/ui/nothing", "/ui/jobs/999", "/ui/jobs/x", "/ui/datasets/nobody"):
        answer = empty.page(path, "train")
        assert (answer.status_code, "There is no such page" in answer.text) == (404, True), path


def test_pages_are_kept_by_nobody(empty):
    assert empty.page("/ui", "train").headers["cache-control"] == "no-store"


def test_a_page_is_packed_and_the_answer_to_a_form_is_not(empty):
    """What an answer to a form says, a token that was made say, is never packed beside words of somebody else."""
    cookie = f"dpserve={empty.secrets['admin']}"
    packed, plain = (
        empty.ask("GET", "/ui", {**PAGE, "Cookie": cookie, "Accept-Encoding": coding})
        for coding in ("gzip", "identity")
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert packed.text == plain.text, "its words are the same"
    made = empty.send("/ui/tokens", name="packed", scopes="predict")
    assert "content-encoding" not in made.headers


# Nothing there yet


@pytest.mark.parametrize("path", ["/ui", "/ui/datasets", "/ui/jobs", "/ui/jobs/new"])
def test_an_empty_home_says_what_to_do_next(empty, path):
    assert "Upload a file" in words(empty.page(path, "admin"))
    assert re.search("steward’s token uploads|A job needs", words(empty.page(path, "train")))


def test_what_somebody_typed_stays_text(site):
    for path in (
        f"/ui/datasets?q={EVIL}",
        f"/ui/jobs/new?dataset=adult&learner=lazybb&epsilon={EVIL}",
        f"/ui/nothing{EVIL}",
    ):
        assert EVIL not in site.page(path, "train").text
    assert EVIL not in site.send("/ui/jobs/new", "train", epsilon=EVIL, **{"p.rounds": EVIL}, learner="lazybb").text


# Forms


@pytest.mark.parametrize(
    "raw", [b"a=1&a=2", b"c=1", b"a", b"a=%ff", b"a=\xff", b"&".join(b"a%d=1" % at for at in range(300))]
)
def test_a_form_that_is_not_ours_is_refused(empty, raw):
    headers = {**FORM, "Content-Type": "application/x-www-form-urlencoded"}
    assert empty.ask("POST", "/ui/login", headers, content=raw).status_code == 400


def test_a_form_must_come_as_one(empty):
    assert empty.ask("POST", "/ui/login", {**FORM, "Content-Type": "text/plain"}, content=b"a=1").status_code == 415
    long = b"token=" + b"x" * (ui.FORM_BYTES + 1)
    headers = {**FORM, "Content-Type": "application/x-www-form-urlencoded"}
    assert empty.ask("POST", "/ui/login", headers, content=long).status_code == 413


def test_the_form_of_a_job_is_the_body_of_a_job():
    typed = {
        "dataset": "adult",
        "learner": "forest",
        "epsilon": " 0.5 ",
        "delta": "",
        "p.trees": "3, 5",
        "p.depth": "4",
        "several": "on",
    }
    form = Form.of(typed.items())
    assert form.body == {
        "dataset": "adult",
        "learner": "forest",
        "epsilon": "0.5",
        "parameters": {"depth": "4"},
        "tuning": {"grid": {"trees": ["3", "5"]}},
    }
    assert form.digest == Form.of([*typed.items(), ("priced", "x"), ("idempotency_key", "y")]).digest
    assert form.digest != Form.of({**typed, "epsilon": "0.6"}.items()).digest
    for wrong in ([("other", "1")], [("epsilon", "1"), ("epsilon", "2")]):
        with pytest.raises(InputError):
            Form.of(wrong)


ASKED = {"dataset": "adult", "learner": "forest", "epsilon": "0.1"}


def test_only_what_was_priced_is_sent_and_only_once(site):
    home, count = site.home, len(site.home.ledger.jobs())
    digest = Form.of(ASKED.items()).digest
    for priced in ("", "x", digest.upper()):
        answer = site.send("/ui/jobs/new", "train", **ASKED, priced=priced, idempotency_key="one")
        assert (answer.status_code, "was not submitted" in answer.text) == (409, True)
    other = site.send("/ui/jobs/new", "train", **{**ASKED, "epsilon": "0.2"}, priced=digest, idempotency_key="one")
    assert other.status_code == 409
    assert len(home.ledger.jobs()) == count
    first = site.send("/ui/jobs/new", "train", **ASKED, priced=digest, idempotency_key="one")
    again = site.send("/ui/jobs/new", "train", **ASKED, priced=digest, idempotency_key="one")
    assert first.status_code == again.status_code == 303
    assert first.headers["location"] == again.headers["location"]
    assert len(home.ledger.jobs()) == count + 1
    changed = {**ASKED, "epsilon": "0.11"}
    reused = site.send(
        "/ui/jobs/new", "train", **changed, priced=Form.of(changed.items()).digest, idempotency_key="one"
    )
    assert (reused.status_code, "sent before" in reused.text, 'value="one"' in reused.text) == (409, True, False)


def test_a_job_that_does_not_fit_is_not_sent(site):
    asked = {**ASKED, "epsilon": "9"}
    answer = site.send("/ui/jobs/new", "train", **asked, priced=Form.of(asked.items()).digest, idempotency_key="two")
    assert answer.status_code == 403
    assert "does not fit" in answer.text


def test_a_job_that_waits_can_be_given_back_and_then_not_again(site):
    asked = {**ASKED, "epsilon": "0.05"}
    sent = site.send("/ui/jobs/new", "train", **asked, priced=Form.of(asked.items()).digest, idempotency_key="three")
    path = sent.headers["location"]
    assert "Cancel and give the budget back" in site.page(path, "train").text
    assert "Cancel" not in site.page(path, "audit").text
    assert site.send(f"{path}/cancel", "audit").status_code == 403
    assert site.send(f"{path}/cancel", "train").headers["location"] == path
    assert "given back" in site.page(path, "train").text
    assert site.send(f"{path}/cancel", "train").status_code == 409
    listed = site.page("/ui/jobs?state=released", "train").text
    assert f'href="{path}"' in listed


def test_pages_of_datasets_tell_the_budget_in_words(site):
    for path in ("/ui", "/ui/datasets", "/ui/datasets/adult"):
        assert re.search(r"[\d.]+ % (used|of the budget used)", site.page(path, "train").text), path
    text = re.sub(r"<[^>]*>", "", site.page("/ui/datasets/adult", "train").text)
    assert len(re.findall(r"[\d.]+ % (?:of the budget )?used", text)) == 1  # its page says a thing once
    fits = site.page("/ui/datasets/adult/fits", "train").text
    assert "lazybb" in fits
    assert "more job" in fits


# Words and lines


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("0", "0"), ("3", "3"), ("0.50", "0.5"), ("1.188225", "1.188"), ("0.0000005", "5 × 10⁻⁷"), ("1E-7", "10⁻⁷"),
        ("1234.5", "1,234"), ("0.00012346", "0.0001235"), ("100", "100"),
    ],
)  # fmt: skip
def test_figures_are_short_and_exact_enough(value, says):
    assert ui.figure(value) == says


@pytest.mark.parametrize(
    ("share", "says"),
    [
        (0, "0 %"),
        (0.0001, "less than 0.1 %"),
        (0.042, "4.2 %"),
        (0.5, "50 %"),
        (0.999, "more than 99 %"),
        ("1.000000", "100 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(share, says):
    assert ui.percent(share) == says


def test_a_burn_down_is_a_staircase_that_ends_today():
    points = [("2026-11-01T00:00:00Z", 1.0), ("2026-11-06T00:00:00Z", 0.75), ("2026-11-11T00:00:00Z", 0.0)]
    found = burndown_chart.staircase(points, datetime(2026, 11, 21, tzinfo=UTC))
    assert found.line == "M0,0H250V250H500V1000H1000"
    assert found.area == found.line + "V1000H0Z"
    assert found.times == ("1 Nov", "7 Nov", "14 Nov", "21 Nov")


def test_a_dataset_of_this_very_second_has_a_line_too():
    found = burndown_chart.staircase([("2026-11-01T00:00:00Z", 1.0)], datetime(2026, 11, 1, tzinfo=UTC))
    assert found.line == "M0,0H1000"
