"""A steward takes a messy table from its file to the first certified model, in a browser, in so many clicks; and what
others may see of it."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import pytest
from browser import PHONE, chromium, new_page, no_faults, no_serious_findings, no_sideways_scroll, sign_in
from known_shapes import adult
from playwright.sync_api import expect
from small_home import ROOT, serving, until
from workbooks import write_workbook

from accountant.home import Home
from dpserve_verify.privacy.budget import Budget
from serving.pages.drafts import ASKED
from serving.process.tokens import new_token
from training.datasets.drafts.drafts import Drafts
from training.datasets.drafts.public_answers import parse_public, parse_target
from training.requests.base import request_fields
from training.requests.registration import RegistrationRequest

pytestmark = [pytest.mark.server, pytest.mark.system("chromium")]
ROWS = 700
PERMANENT = ("One person is named by", "ε in all, permanently", "δ in all, permanently", "Share kept aside")
SECRET = "P0"  # how ids of patients begin
CLICKS = 27  # from an empty server to a certified model; a choice and a field that is filled count as one
COUNTED = """for (const kind of ["click", "change"]) addEventListener(kind, ({target}) => {
  if (kind === "click" && !target.closest("a, button, summary")) return;
  sessionStorage.count = 1 + Number(sessionStorage.count ?? 0);
}, true);"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The first rows of the messy table."""
    folder = tmp_path_factory.mktemp("table")
    subprocess.run(
        [sys.executable, ROOT / "examples" / "messy.py", folder / "all.csv", folder / "said.yaml"], check=True
    )
    with (folder / "all.csv").open(newline="") as found, (folder / "messy.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerows(line for _, line in zip(range(ROWS + 1), csv.reader(found), strict=False))
    return folder / "messy.csv"


@pytest.fixture(scope="module")
def server(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("register")
    Home.init({"DPSERVE_HOME": str(folder / "home")})
    with serving(folder / "home", workers=1, DPSERVE_DATA_FOLDERS=str(table.parent)) as found:
        yield found


def at(server) -> str:
    return f"http://127.0.0.1:{server.port}"


def say(page, column, role="", public=""):
    if role:
        page.get_by_label(f"Role of {column}", exact=True).select_option(role)
    if public:
        page.get_by_label(f"Public range or values of {column}", exact=True).fill(public)


def test_a_messy_table_is_registered_in_a_browser(server, table):
    server.tokens["chief"] = new_token(server.home, "chief", ["steward", "train"])[0]
    with chromium() as browser:
        page = new_page(browser, server)
        page.add_init_script(COUNTED)
        sign_in(page, server, "chief", "/ui/drafts")
        page.get_by_label("File of rows").set_input_files(table)
        page.get_by_role("button", name="Upload").press("Enter")
        page.wait_for_url(re.compile("/ui/drafts/[0-9a-f]{32}$"))
        draft = page.url.rpartition("/")[2]
        expect(page.get_by_label("Role of patient_id")).to_have_value("ignore")  # who one person is holds permanently
        expect(page.get_by_label("Role of comment")).to_have_value("ignore")
        shown = page.locator("table.columns").inner_text()
        assert "decimal either" in shown
        assert "YYYY-MM-DD or DD.MM.YYYY" in shown
        assert SECRET in shown, "the first cells of each column, to who brought them"
        words = iter(page.locator("#public-words code").all_inner_texts())  # each is an answer that is understood
        read = [parse_public(next(words), kind) for kind in ("numeric", "date", "categorical", "categorical")]
        assert [next(iter({"range", "values"} & each.keys())) for each in read] == [
            "range",
            "range",
            "values",
            "values",
        ]
        assert [sorted(parse_target(each)) for each in words] == [
            ["classes"],
            ["range"],
            ["classes", "prevalence"],
            ["classes", "missing"],
        ]

        readings = page.get_by_label("How cells of died may be read").locator("tr").all_inner_texts()
        assert [each.split() for each in readings] == [
            ["CELL", "boolean", "numeric", "categorical"],
            ["0", "no", "0", "a", "word"], ["1", "yes", "1", "a", "word"],
        ]  # fmt: skip
        for each in ("died", "stay_days", "ward", "insurance_no"):
            say(page, each, "ignore")
        say(page, "readmitted", "target", "no, maybe")
        say(page, "cost", "target", "0 .. 30000 leave-out")
        say(page, "visit_date", public="2019-01-01 .. 2024-12-31")
        say(page, "birth_date", public="1930-01-01 .. 2015-12-31")
        say(page, "sex", public="female, male")
        say(page, "lab_001 .. lab_185 (185)", public="0 .. 120")
        page.get_by_label("Approximate number of rows", exact=True).fill(str(ROWS))
        page.get_by_role("button", name="Check every row", exact=True).press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("region: say its public range or values")
        expect(page.get_by_label("Public range or values of sex")).to_have_value("female, male")
        expect(page.get_by_label("Approximate number of rows", exact=True)).to_have_value(str(ROWS))
        assert all("400" in each for each in page.faults)  # the answer that was just read
        page.faults.clear()

        say(page, "region", public="north, east, south, west")
        page.get_by_role("button", name="Check every row", exact=True).press("Enter")
        problems = page.get_by_label("Problems by column")
        expect(problems).to_contain_text("no class")
        assert re.search(r"readmitted\s+no class\s+\d+, \d+", problems.inner_text())
        no_serious_findings(page)
        say(page, "readmitted", public="no, yes")
        page.get_by_role("button", name="Check every row", exact=True).press("Enter")
        expect(page.get_by_text("every row fits")).to_be_visible()
        cells = page.get_by_label("Cells by column").inner_text()
        assert re.search(r"sex\s+100\.0 %\s+-\s+-\s+-\s+-", cells)
        assert re.search(r"cost\s+\d\d\.\d %\s+-\s+-\s+\d+\.\d %\s+-", cells)

        form = page.locator("form", has=page.get_by_label("One person is named by"))
        expect(form.locator("#people-words")).to_contain_text("patient_id: ")
        assert form.locator("#unit option").nth(1).inner_text() == "the column patient_id, which may name people"
        asked = {each: page.get_by_label(each, exact=True) for each in PERMANENT}
        for each in asked.values():  # what holds permanently has no preset, and is asked for
            expect(each).to_have_value("")
            assert each.evaluate("field => field.required && !field.validity.valid")
        page.get_by_role("button", name="Register it, permanently").press("Enter")
        assert page.url.endswith(draft), "the browser asks before anything is sent"
        assert asked["One person is named by"].evaluate("field => field === document.activeElement")
        untouched = form.evaluate("form => [...new FormData(form)].filter(([, value]) => value)")
        assert not {"unit", "epsilon", "delta", "holdout"} & {name for name, _ in untouched}
        answer = page.request.post(f"/ui/drafts/{draft}/register", form=dict(untouched), headers={"Origin": at(server)})
        assert answer.status == 422
        assert "whose is a row?" in answer.text()
        assert "epsilon in all" in answer.text()
        answer = server.post(f"/v1/drafts/{draft}/register", {"name": "messy", "unit": "record"}, scope="chief")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "answer_missing")
        assert answer.json()["error"]["details"]["answers"] == ["epsilon", "delta", "holdout"]
        assert server.get("/v1/datasets").json()["datasets"] == []

        asked["One person is named by"].select_option("patient_id")
        page.get_by_label("Rows of one person").fill("4")
        asked["ε in all, permanently"].fill("1")
        asked["δ in all, permanently"].fill("1e-6")
        expect(page.locator("#means")).to_contain_text("73.11 times in 100")
        asked["Share kept aside"].fill("none")
        page.get_by_text("Rows will be added").press("Enter")
        page.get_by_label("ε of one person over all blocks").fill("2")
        page.get_by_label("δ of one person over all blocks").fill("1e-6")
        page.set_viewport_size(PHONE)
        no_sideways_scroll(page)
        no_serious_findings(page)
        page.get_by_role("button", name="Register it, permanently").press("Enter")
        expect(page.get_by_role("link", name="messy", exact=True)).to_be_visible()
        assert "dpserve plan messy --epsilon 0.1 --target readmitted" in page.inner_text("main")
        page.get_by_role("link", name="To the first job").press("Enter")
        page.get_by_role("button", name=re.compile(r"^Train \(")).press("Enter")
        page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
        expect(page.get_by_text("Certificate signed and entered")).to_be_visible()
        wrong = 3  # two of the three checks, and the classes that are no classes
        more = 4  # a total over all blocks, which few need to say, and a form that is sent empty
        assert 15 < page.evaluate("Number(sessionStorage.count)") - wrong - more <= CLICKS
        no_faults(page)

    def served():
        """The model, once it has its place and the server has looked at it."""
        found = server.get("/v1/models").json()["models"]
        return found and found[0]["verified"] and found[0]["state"] == "champion" and found

    (model,) = until(served, "the model is champion, and verified")
    assert (model["model"], model["target"]) == ("messy@1", "readmitted")

    found = server.home.ledger.dataset("messy")
    assert (found.registration.unit.column, found.registration.unit.contributions) == ("patient_id", 4)
    assert found.registration.targets == ("readmitted", "cost")
    assert found.person is not None
    assert found.person.budget == Budget.of("2", "0.000001")
    assert not list((server.path / "drafts").rglob("*.csv")), "the file is deleted"
    assert Drafts(server.path).folder.stat().st_mode & 0o077 == 0
    told = (server.path / "logs" / "access.jsonl").read_text() + server.log.read_text()
    assert "messy.csv" not in told
    assert SECRET not in told
    assert {json.loads(line)["route"] for line in told.splitlines() if line.startswith("{")} >= {
        "/v1/drafts/{draft}/rows"
    }
    registered = server.get(f"/v1/drafts/{draft}", scope="chief").json()
    assert registered["dataset"] == "messy"
    assert not registered["cells"], "what was told of the rows is gone with them"
    assert not any(line["cells"] or line["question"] for line in registered["columns"])
    assert SECRET not in (server.path / "drafts" / draft / "draft.json").read_text()
    assert server.get(f"/v1/drafts/{draft}", scope="admin").status_code == 404  # it is another's


def test_of_a_workbook_the_sheet_is_listed_and_the_row_of_names_pointed_at(server, tmp_path):
    people = [["age", "ill"], *[[at % 90, "yes" if at % 3 else "no"] for at in range(30)]]
    sheets = {"2023": [["old", "sick"], *[[1, "no"]] * 9], "2024 <b>": [["as of", "May"], ["12", "wards"], *people]}
    path = write_workbook(tmp_path / "wards.xlsx", sheets)
    with chromium() as browser:
        page = new_page(browser, server)
        sign_in(page, server, "steward", "/ui/drafts")
        page.get_by_label("File of rows").set_input_files(path)
        page.get_by_role("button", name="Upload").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("2 sheets that hold cells: 2023, 2024 <b>")
        listed = page.get_by_label("Sheet", exact=True)
        assert listed.locator("option").all_inner_texts() == ["choose", "2023", "2024 <b>"]
        listed.select_option("2024 <b>")
        page.get_by_role("button", name="Read it so").press("Enter")
        read = page.locator("summary", has_text="How the file is read: the sheet 2024 <b>, names in row 1")
        read.press("Enter")
        first = page.get_by_label("First rows of the file").locator("tr").all_inner_texts()
        assert [each.split() for each in first[:4]] == [
            ["names", "as", "of", "May"], ["2", "12", "wards"], ["3", "age", "ill"], ["4", "0", "no"],
        ]  # fmt: skip
        no_serious_findings(page)
        page.get_by_role("button", name="The names stand in row 3").press("Enter")
        expect(page.get_by_text("the sheet 2024 <b>, names in row 3")).to_be_visible()
        say(page, "age", public="0 .. 120")
        say(page, "ill", "target", "no, yes")
        page.get_by_label("Approximate number of rows", exact=True).fill("30")
        page.get_by_role("button", name="Check every row", exact=True).press("Enter")
        expect(page.get_by_role("button", name="Register it, permanently")).to_be_visible()
        schema = page.get_by_label("Schema").input_value()
        assert "sheet: 2024 <b>" in schema
        assert "skip: 2" in schema
        draft = page.url.rpartition("/")[2]
        no_faults(page)
    assert server.ask("DELETE", f"/v1/drafts/{draft}", "steward").status_code == 200


def test_a_file_without_a_header_is_read_by_the_names_that_are_said(server, tmp_path):
    shape = adult()
    path = tmp_path / shape.file
    path.write_text(shape.text, "utf-8")
    with chromium() as browser:
        page = new_page(browser, server)
        sign_in(page, server, "steward", "/ui/drafts")
        page.get_by_label("File of rows").set_input_files(path)
        page.get_by_role("button", name="Upload").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("the first line must be a header")
        page.get_by_label("Column names, where no row has them").fill(", ".join(shape.names))
        page.get_by_label("Between cells").select_option("comma and blank")
        page.get_by_role("button", name="Read it so").press("Enter")
        say(page, "age", public="17 .. 90")
        say(page, "fnlwgt", "unit")
        say(page, "workclass", public="Private, Self-emp-not-inc, ?")
        say(page, "education", public="Bachelors, HS-grad, 11th")
        say(page, "income", "target", "<=50K, >50K")
        page.get_by_label("Approximate number of rows", exact=True).fill(str(len(shape.labels)))
        page.get_by_role("button", name="Check every row", exact=True).press("Enter")
        expect(page.get_by_role("button", name="Register it, permanently")).to_be_visible()
        draft = page.url.rpartition("/")[2]
        assert page.locator("#unit").get_attribute("type") == "hidden", "what was said is not asked again"
        assert page.locator("#unit").input_value() == "fnlwgt"
        no_serious_findings(page)
        no_faults(page)
        whole = {"name": "census", "epsilon": "1", "delta": "0.000001", "holdout": "none"}
        for unit, said in (("record", "each row is another person"), ("age", "the column age names the person")):
            refused = server.post(f"/v1/drafts/{draft}/register", {**whole, "unit": unit}, scope="steward")
            assert refused.status_code == 400
            assert f"the columns say that fnlwgt names the person, and the registration that {said}" in refused.text
        forged = page.request.post(
            f"/ui/drafts/{draft}/register", form={**whole, "unit": "record", "contributions": "1"},
            headers={"Origin": at(server)},
        )  # fmt: skip
        assert forged.status == 400
        page.locator("summary", has_text=re.compile("^Columns$")).press("Enter")
        say(page, "age", "unit")
        page.get_by_role("button", name="Check every row", exact=True).press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("one column names the person; age, fnlwgt are said to")
    listed = server.ask_again("GET", "/v1/datasets").json()["datasets"]
    assert "census" not in [each["name"] for each in listed]
    assert server.ask("DELETE", f"/v1/drafts/{draft}", "steward").status_code == 200


def test_what_is_not_taken(server, table):
    """Bounds, order, whose it is, and paths."""
    other, _ = new_token(server.home, "other", ["steward"])

    def put(draft, at, content, **more):
        return server.ask(
            "PUT", f"/v1/drafts/{draft}/rows?at={at}", "steward", content=content,
            headers={"Content-Type": "application/octet-stream", **more},
        )  # fmt: skip

    def begin(**body):
        return server.post("/v1/drafts", body, scope="steward")

    assert begin(file="a.csv", bytes=1 << 50).status_code == 400
    assert begin(file="a.csv").status_code == 400
    assert server.post("/v1/drafts", {"file": "a.csv", "bytes": 4}, scope="train").status_code == 403
    draft = begin(file="../../a b.csv", bytes=12).json()
    assert draft["file"] == "a-b.csv"
    assert put(draft["draft"], 5, b"1\n").json()["error"]["details"]["received"] == 0
    assert put(draft["draft"], 0, b"a,b\n1,2\n").json()["received"] == 8
    assert put(draft["draft"], 4, b"1,2\n" * 3).status_code == 400  # more than was announced
    until(
        lambda: server.get("/v1/drafts", scope=None, headers={"Authorization": f"Bearer {other}"}).status_code == 200,
        "",
    )
    theirs = server.get(f"/v1/drafts/{draft['draft']}", scope=None, headers={"Authorization": f"Bearer {other}"})
    assert theirs.status_code == 404
    whole = {"name": "x", "unit": "record", "epsilon": "1", "delta": "0", "holdout": "none"}
    early = server.post(f"/v1/drafts/{draft['draft']}/register", whole, scope="steward")
    assert early.status_code == 409
    assert put(draft["draft"], 8, b"3,4\n").json()["state"] == "looking"
    ready = f"/v1/drafts/{draft['draft']}"
    found = until(
        lambda: (body := server.get(ready, scope="steward").json())["state"] == "columns" and body, "looked at"
    )
    assert [line["columns"] for line in found["columns"]] == [["a"], ["b"]]
    answers = [{"columns": ["a"], "role": "feature", "public": "0 .. 9"}, {"columns": ["b"], "role": "target"}]
    assert "b: say its classes" in server.post(f"{ready}/check", {"answers": answers, "rows": 9}, scope="steward").text
    assert server.ask("DELETE", ready, "steward").status_code == 200
    assert not (server.path / "drafts" / draft["draft"]).exists()

    outside, link = server.path / "keys", table.parent / "link.csv"
    link.symlink_to(server.path / "ledger.db")
    for path in (str(outside), str(link), f"{table.parent}/../x.csv", "messy.csv", f"{table.parent}/none.csv"):
        assert begin(path=path).status_code == 400, path
    link.unlink()
    taken = begin(path=str(table)).json()
    until(lambda: server.get(f"/v1/drafts/{taken['draft']}", scope="steward").json()["state"] == "columns", "looked at")
    server.ask("DELETE", f"/v1/drafts/{taken['draft']}", "steward")
    assert table.exists(), "a file of the server is nobody's to delete here"


def test_the_form_asks_for_all_that_the_door_takes():
    """Whatever a refusal asks for can be answered in the browser too."""
    form = (ROOT / "serving" / "pages" / "templates" / "draft.html").read_text()
    fields = {field.name for field in request_fields(RegistrationRequest)} - {
        "family_name",
        "new_people",
    }  # a reason says that they are new
    assert fields <= {*ASKED}
    assert [name for name in sorted(fields) if f'name="{name}"' not in form] == []
