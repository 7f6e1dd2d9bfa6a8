"""Pages of models, in a real browser on a real server: what a model promises, its verification in the browser with
every part tampered with in turn, its pictures with their tables, and the what-if form."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import three_classes
from additive_models import CLASSES, NUMBER
from browser import (
    MOST_BYTES,
    as_new,
    cold,
    new_page,
    no_faults,
    no_serious_findings,
    no_sideways_scroll,
    predict_file,
    sign_in,
    signed_in,
)
from offices import Office
from playwright.sync_api import expect
from small_home import adult_home, dpserve, of_every_worker, records, serving, until
from workbooks import write_workbook

from accountant.access import key_life
from dpserve_verify.certificates.bundle import FILES
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import NumericFeature
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.parts.pairs import PairTerm
from models.parts.trees import Leaf, Split
from models.parts.votes import Vote
from serving.pages import models
from serving.pages.parts.shapes import inputs, picture
from training.datasets.datasets import register
from training.jobs import job
from training.requests import EvaluationRequest, JobRequest

pytestmark = [pytest.mark.server, pytest.mark.system("chromium")]
STEPS = 9
WIDE = 120
POINTS = str.maketrans(".,", ",.")
LEARNERS = {
    "adult": ("lazybb", "0", {"rounds": 12}),
    "terms": ("ebm", "1e-7", {"pairs": "age & sex"}),
    "woods": ("lazybb-tree", "0", {"rounds": 3}),
}
MANY = VotingEnsemble(
    CLASSES.features,
    "kind",
    ("a", "b", "c"),
    (Vote("above", 0, 1, 3, 0), Vote("is", 1, 0, 2, 1), Vote("is", 2, 1, 1, 2)),
    0.5,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ui-models")
    home = adult_home(folder, 20)
    for name, (learner, delta, parameters) in [("adult", LEARNERS["adult"]), *LEARNERS.items()]:
        job.train(
            home, JobRequest("adult", learner, "0.5", delta=delta, parameters=parameters, model=name), by="ui-test"
        )
    three_classes.train(home, folder)
    data, schema = write_wide(folder)
    register(home, "wide", data, schema, Budget.of(2, "1e-5"), Relation.ADD_REMOVE, None)
    job.train(home, JobRequest("wide", "lazybb", "1", parameters={"rounds": 12}), by="ui-test")
    job.train(home, JobRequest("wide", "lazybb", "0.01", parameters={"rounds": 12}, model="noise"), by="ui-test")
    for name, dataset in {"woods": "adult", "terms": "adult", "kin": "kin", "noise": "wide"}.items():
        job.measure(home, EvaluationRequest(name, dataset, "0.5", "training"), by="ui-test")
    with serving(home.path, workers=1) as found:
        yield found


def write_wide(folder):
    """As many features as pages cannot show at once; the last one decides."""
    generator = np.random.default_rng(1)
    columns = {f"lab_{n:03}": generator.integers(0, 100, 400) for n in range(WIDE)}
    columns["kind"] = np.where(columns[f"lab_{WIDE - 1:03}"] > 50, "b", "a")
    pq.write_table(pa.table(columns), folder / "wide.parquet")
    labs = {name: {"type": "numeric", "range": [0, 100]} for name in list(columns)[:-1]}
    text = {"target": {"name": "kind", "classes": ["a", "b"]}, "records": 400, "features": labs}
    (folder / "wide.yaml").write_text(json.dumps(text))
    return folder / "wide.parquet", folder / "wide.yaml"


@pytest.fixture(scope="module")
def session(browser, server):
    """One page for all that only looks."""
    return signed_in(browser, server, "predict", "/ui/models")


@pytest.fixture
def page(session):
    session.faults.clear()
    yield session
    session.unroute_all()
    no_faults(session)


@pytest.fixture
def another(page, server):
    """The same page for who signs in as somebody else; afterwards it is as it was."""
    yield page
    no_faults(page)
    as_new(page, server, "predict")


def opened(page, name, drawn=True):
    page.goto(f"/ui/models/{name}")
    if drawn:
        page.locator("#decides").scroll_into_view_if_needed()
        expect(page.locator("#plots")).to_have_attribute("aria-busy", "false")
    return page


def unfolded(page, section):
    """A section of a page that folds, which a link of the page opens too."""
    folded = page.locator(f"#{section} > details:not([open]) > summary")
    if folded.count():
        folded.click()


def verify(page):
    unfolded(page, "verify")
    page.get_by_role("button", name="Verify").click()  # it says "Verifying…" at once in place of what it said
    expect(page.locator(".verdict .notice.good, .verdict .notice.bad")).to_be_visible()
    return page.locator(".verdict h3").inner_text()


def crosses(page):
    return [each.removeprefix("step-") for each in page.locator(".checks li.bad").evaluate_all("l => l.map(e => e.id)")]


# ---- the list


def all_read(server):
    """A server that has just begun reads statements one after the other."""
    of_every_worker(lambda: all(each["certificate"] for each in server.get("/v1/models").json()["models"]), "all read")


def test_the_list_names_every_model_and_narrows_as_one_types(page, server):
    all_read(server)
    page.goto("/ui/models")
    expect(page.get_by_role("row")).to_have_count(4 + len(LEARNERS))  # kin, wide and noise, below the head
    expect(page.get_by_role("row", name=re.compile("^adult"))).to_contain_text("0.5")
    page.get_by_label("Search by name, dataset, target, learner or digest").press_sequentially("OO")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("link", name="woods")).to_be_visible()
    expect(page).to_have_url(re.compile("q=OO"))
    page.get_by_label("Search by name, dataset, target, learner or digest").fill("nothing like it")
    expect(page.get_by_text("No such model")).to_be_visible()
    page.goto("/ui/models")
    page.get_by_role("link", name="Released").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("wide: kind")  # released last
    page.get_by_label("Search by name, dataset, target, learner or digest").fill("ebm")
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("row", name=re.compile("^terms"))).to_contain_text("adult: income")
    expect(page).to_have_url(re.compile("sort=newest"))
    no_serious_findings(page)


def test_a_model_is_found_by_its_file_and_the_list_is_saved(page, server):
    model = server.path / "models" / "terms" / "1" / "model.onnx"
    all_read(server)
    page.goto("/ui/models")
    raw = base64.b64encode(model.read_bytes()).decode()
    page.evaluate(
        """raw => {
        const held = new DataTransfer(), bytes = Uint8Array.from(atob(raw), each => each.charCodeAt(0));
        held.items.add(new File([bytes], "model.onnx"));
        document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true}));
        }""",
        raw,
    )
    page.wait_for_url("**/ui/models?q=*")
    expect(page.locator("#found tbody tr")).to_have_count(1)
    expect(page.locator("#found tbody th")).to_contain_text("terms")
    digest = page.url.rpartition("q=")[2]
    assert digest == hashlib.sha256(model.read_bytes()).hexdigest()
    with page.expect_download() as given:
        page.get_by_role("link", name="CSV").click()
    (line,) = csv.DictReader(given.value.path().read_text().splitlines())
    assert (line["model"], line["learner"], line["state"]) == ("terms@1", "ebm", "champion")
    cookie = {"headers": {"Cookie": f"dpserve={server.tokens['predict']}"}, "scope": None}
    found = server.get(f"/ui/models?form=json&q={digest[:8]}&sort=newest", **cookie).json()["models"]
    assert [each["model"] for each in found] == ["terms@1"]
    assert server.get(f"/ui/models?form=json&q={digest[1:9]}", **cookie).json()["models"] == []  # begins, not holds
    assert server.get("/ui/models?form=xml", **cookie).status_code == 400


def test_models_stand_by_worth_among_those_that_compare(page, server):
    cookie = {"headers": {"Cookie": f"dpserve={server.tokens['predict']}"}, "scope": None}
    found = server.get("/ui/models?form=json&sort=worth", **cookie).json()["models"]
    names = [each["model"].partition("@")[0] for each in found]
    assert (sorted(names[:3]), names[3:]) == (["noise", "terms", "woods"], ["kin", "adult", "wide"])
    assert [each["metric"] for each in found] == [*3 * ["auroc"], "accuracy", None, None]
    assert [each["worth"] for each in found[:3]] == sorted((each["worth"] for each in found[:3]), reverse=True)
    lines = csv.DictReader(io.StringIO(server.get("/ui/models?form=csv&sort=worth", **cookie).text))
    assert [line["model"] for line in lines] == [each["model"] for each in found]
    page.goto("/ui/models")
    page.get_by_role("link", name="Worth").click()
    expect(page.locator("#found tbody th a")).to_have_text(names)
    expect(page.get_by_role("columnheader", name="Worth")).to_have_attribute("aria-sort", "other")
    expect(page.locator("#by-worth")).to_contain_text("do not compare")
    no_serious_findings(page)


def test_by_worth_each_kind_of_target_is_a_list_of_its_own():
    told = [
        ("best", "auroc", "0.9", "income"),
        ("good", "auroc", "0.75", "smoker"),
        ("most", "accuracy", "0.95", "ward"),
        ("some", "accuracy", "0.5", "ward"),
        ("near", "rmse", "900.5", "cost"),
        ("far", "rmse", "1000.0", "cost"),
        ("days", "rmse", "2.5", "stay"),  # days and money do not compare
        ("told by no count", "auroc", None, "income"),
        ("nobody measured it", None, None, "income"),
    ]
    lines = [
        {"name": name, "dataset": "d", "target": target, "worth": metric and {"metric": metric, "value": value}}
        for name, metric, value, target in told
    ]
    assert sorted(lines[-2:] + lines[-3::-1], key=models.ORDERS["worth"]) == lines


def test_the_list_has_a_line_for_each_model():
    lines = [
        {
            "model": f"m{n:04}@{v}",
            "name": f"m{n:04}",
            "version": v,
            "champion": v == 1,
            "state": "champion" if v == 1 else "candidate",
            "verified": True,
            "certificate": None,
        }
        for n in range(120)
        for v in (1, 2)
    ]
    found = models._by_name(lines)
    assert len(found) == 120
    assert {(line["version"], line["versions"], line["broken"]) for line in found} == {(1, 2, 0)}


# ---- verification in the browser


def test_every_step_passes_and_the_promise_is_read_from_what_was_signed(page, server):
    opened(page, "adult", drawn=False)
    assert verify(page) == "Verified with this server’s keys"
    expect(page.locator(".checks li.good")).to_have_count(STEPS)
    expect(page.locator(".verdict")).to_contain_text("epsilon 0.5, delta 0, for one record, neighbours by add-remove")
    expect(page.locator("#step-model")).to_contain_text(server.get("/v1/models/adult").json()["certificate"]["model"])


def test_keys_from_elsewhere(page, server):
    opened(page, "terms", drawn=False)
    unfolded(page, "verify")
    page.get_by_label("A trust.json that I got elsewhere").check()
    page.get_by_role("button", name="Verify").click()
    expect(page.locator(".verdict")).to_contain_text("Please choose a trust file first")
    page.get_by_label("Trust file").set_input_files(server.path / "trust.json")
    assert verify(page) == "Verified with your keys"
    foreign = {"name": "trust.json", "mimeType": "application/json", "buffer": Office().trust.to_json()}
    page.get_by_label("Trust file").set_input_files(foreign)
    expect(page.locator(".verdict")).to_be_empty()  # what was said was said of other keys
    assert verify(page) == "Not verified"
    assert crosses(page)[:2] == ["signature", "checkpoint"]


def flipped(base64_text: bytes) -> bytes:
    raw = base64.b64decode(base64_text)
    return base64.b64encode(raw[:20] + bytes([raw[20] ^ 1]) + raw[21:])


def within(pattern: bytes):
    """A change of one bit of the base64 that the pattern finds."""
    return lambda raw: re.sub(pattern, lambda found: found[1] + flipped(found[2]), raw, count=1)


B64 = rb"([A-Za-z0-9+/=]+)"
TAMPERED = {
    "model": ("model.onnx", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "model"),
    "statement": ("model.onnx.dsse.json", within(rb'("payload":")' + B64), "form"),
    "signature": ("model.onnx.dsse.json", within(rb'("sig":")' + B64), "signature"),
    "entry": ("model.onnx.tlog-proof", within(rb"(\nextra )" + B64), "inclusion"),
    "index": ("model.onnx.tlog-proof", lambda raw: re.sub(rb"\nindex \d+\n", b"\nindex 1\n", raw), "inclusion"),
    "root": ("model.onnx.tlog-proof", within(rb"(\n\n[^\n]+\n\d+\n)" + B64), "checkpoint"),
    "log's signature": ("model.onnx.tlog-proof", within("(\n— [^ ]+ )".encode() + B64), "checkpoint"),
    "keys": ("trust.json", lambda raw: raw.replace(b"SHA256:", b"SHA256:x", 1), "keys"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_part_that_was_tampered_with_on_its_way_gets_a_cross(page, what):
    file, change, step = TAMPERED[what]
    if not page.url.endswith("/adult@1"):
        opened(page, "adult@1", drawn=False)
    changed = []

    def tampered(route):
        raw = route.fetch().body()
        changed.append(change(raw) != raw)
        route.fulfill(body=change(raw))

    page.route(f"**/{file}", tampered)
    assert verify(page) == "Not verified"
    assert changed == [True]
    assert crosses(page)[0] == step
    page.unroute_all()
    assert verify(page) == "Verified with this server’s keys"


def test_the_certificate_of_another_model_gets_a_cross(page):
    opened(page, "adult@1", drawn=False)

    def other(route):
        route.fulfill(response=route.fetch(url=route.request.url.replace("adult@1", "woods")))

    page.route("**/adult@1/files/model.onnx", other)
    assert verify(page) == "Not verified"
    assert crosses(page) == ["model"]


def test_without_a_secure_context_the_page_says_so(browser, server):
    page = new_page(browser, server)
    page.add_init_script("Object.defineProperty(crypto, 'subtle', {value: undefined})")  # as over plain http
    sign_in(page, server, "predict", "/ui/models/adult")
    unfolded(page, "verify")
    expect(page.locator(".verdict")).to_contain_text("not opened in a secure context")
    expect(page.get_by_role("button", name="Verify")).to_be_disabled()
    no_faults(page)
    page.context.close()


def test_files_of_a_disk_are_verified_without_asking_the_server(page, server):
    page.goto("/ui/verify")
    folder = server.path / "models" / "woods" / "1"
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("The model’s files").set_input_files([folder / name for name in FILES])
    page.get_by_label("A trust.json that I got elsewhere").check()
    page.get_by_label("Trust file").set_input_files(server.path / "trust.json")
    assert verify(page) == "Verified with your keys"
    assert not [url for url in asked if url.startswith("http") and "/ui/static/" not in url]
    no_serious_findings(page)


# ---- files


def test_downloads_are_what_was_verified(server):
    packed = server.get("/ui/models/adult@1/bundle.zip", scope="predict")
    assert packed.content == server.get("/ui/models/adult@1/bundle.zip", scope="audit").content
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        assert archive.namelist() == [f"adult-1/{name}" for name in FILES]
        archive.extractall(server.path.parent / "unpacked")
    folder = server.path.parent / "unpacked" / "adult-1"
    for name in FILES:
        found = server.get(f"/ui/models/adult@1/files/{name}", scope="train")
        assert found.content == (folder / name).read_bytes()
        assert found.headers["content-disposition"] == f'attachment; filename="adult-1-{name}"'
    trust = server.path.parent / "trust.json"
    trust.write_bytes(server.get("/ui/trust.json", scope="predict").content)
    done = dpserve(server.path, "verify", str(folder), "--trust", str(trust), "--json")
    assert json.loads(done.stdout)["ok"], done.stderr


def test_there_are_no_other_files(server):
    for name in ("ensemble.pickle", "..%2f..%2ftrust.json", "model.onnx%00"):
        assert server.get(f"/ui/models/adult/files/{name}").status_code in (400, 404)
    assert server.get("/ui/models/nothing").status_code == 404
    assert server.get("/ui/models/adult@9/shapes").status_code == 404
    assert server.get("/ui/models?after=x").status_code == 400
    assert server.get("/ui/models?sort=worst").status_code == 400
    assert server.get("/ui/models/adult", scope=None).status_code in (303, 401)


# ---- pictures


def test_pictures_have_tables_with_the_same_figures(page, server):
    found = server.get("/ui/models/terms/shapes").json()
    opened(page, "terms")
    drawn = page.locator("#plots > .plot-grid .plot[data-feature] svg")
    expect(drawn).to_have_count(2)  # a row, with what matters most; the others are asked for
    page.get_by_role("button", name=f"Show {found['of'] - 2} more of {found['of']} features").click()
    expect(drawn).to_have_count(found["of"])
    first = found["features"][0]
    card = page.locator(".plot-grid .plot[data-feature]").first
    card.get_by_text(f"Figures of {first['feature']}").click()
    expect(card.get_by_role("row")).to_have_count(1 + len(first["shapes"][0]["bins"]))
    assert first["shapes"][0]["bins"][0]["error"] is not None
    own = server.get("/ui/models/terms/shapes?own=1").json()
    assert len(found["features"]) == found["next"] < found["of"], "what is not shown yet is not sent yet"
    assert [each["shapes"] for each in own["features"]] == [each["shapes"] for each in found["features"]]
    assert own["features"][-1]["drawing"] != found["features"][-1]["drawing"]
    page.get_by_label("Each on a scale of its own").check()
    expect(drawn).to_have_count(found["of"])
    expect(card.get_by_role("columnheader")).to_have_text(["Value", "Adds", "Standard error", "Records (noisy)"])
    no_serious_findings(page)


def test_more_features_are_drawn_when_they_are_asked_for(page):
    features = tuple(NumericFeature(f"f{n:02}", (0.0, 1.0)) for n in range(30))
    terms = tuple((-n - 1, 0, n + 1, 0) for n in range(30))
    wide = replace(CLASSES, features=features, terms=terms, counts=(), errors=())

    def told(route):
        after = int(route.request.url.split("=")[1])
        route.fulfill(body=json.dumps(picture(wide, after)), content_type="application/json")

    page.route("**/shapes?after=*", told)
    opened(page, "adult")
    drawn = page.locator(".plot-grid .plot[data-feature] svg")
    expect(drawn).to_have_count(2)
    page.get_by_role("button", name="Show 24 more of 30 features").click()
    expect(drawn).to_have_count(26)
    page.get_by_role("button", name="Show 4 more of 30 features").click()
    expect(drawn).to_have_count(30)
    assert len(set(page.locator(".plot-grid [data-feature] h3").all_inner_texts())) == 30


@pytest.mark.parametrize(("ensemble", "row"), [(NUMBER, 2), (MANY, 1)], ids=["number", "many classes"])
def test_every_form_of_model_is_drawn(page, ensemble, row):
    """What the server would say of it, told to the page of another model."""
    told = json.dumps(picture(ensemble))
    page.route("**/shapes?after=0", lambda route: route.fulfill(body=told, content_type="application/json"))
    opened(page, "adult")
    expect(page.locator(".plot-grid .plot[data-feature] svg")).to_have_count(row)  # what is beside votes and a key
    expect(page.get_by_role("img", name=re.compile("^What age adds"))).to_be_visible()


def test_what_two_features_add_together_is_a_map_with_its_figures(page):
    rows, columns = (feature.bins for feature in CLASSES.features[:2])
    terms = tuple(tuple((row - 1) * (column - 1) for column in range(columns)) for row in range(rows))
    pair = PairTerm((0, 1), (tuple(range(rows)), tuple(range(columns))), terms, terms, ((0.5,) * columns,) * rows)
    model = replace(CLASSES, pairs=(pair,))
    told = json.dumps(picture(model))
    page.route("**/shapes?after=0", lambda route: route.fulfill(body=told, content_type="application/json"))
    opened(page, "adult")
    name = pair.name(CLASSES.features)
    page.get_by_role("heading", name="What two features add together").click()
    card = page.locator("details").filter(has=page.locator("#together-h")).locator(".plot")
    expect(card.locator("svg")).to_have_count(1)
    expect(card.get_by_role("img", name=re.compile(f"^What {name} add together"))).to_be_visible()
    card.get_by_text(f"Figures of {name}").click()
    expect(card.get_by_role("row")).to_have_count(1 + rows * columns)
    expect(card.locator("svg path[fill]")).not_to_have_count(0)
    no_serious_findings(page)


def test_trees_show_importances_and_their_text(page):
    opened(page, "woods")
    expect(page.get_by_role("img", name=re.compile("^How much each feature matters"))).to_be_visible()
    page.get_by_text("The trees as text").click()
    expect(page.get_by_label("Trees")).to_contain_text("tree 1")
    expect(page.locator(".adds")).to_have_count(0)


@pytest.mark.parametrize("more", [{"dark": True}, {"phone": True}], ids=["dark", "phone"])
def test_the_page_is_for_everybody(another, server, more):
    page = as_new(another, server, "train", **more)
    opened(page, "adult")
    verify(page)
    no_serious_findings(page)
    no_sideways_scroll(page)
    badge = page.locator("main .badge").first  # one says as much as "not shown to be better than a constant answer"
    assert "phone" not in more or badge.evaluate("each => getComputedStyle(each).whiteSpace") == "normal"
    refusal = page.locator("#whatif").get_by_text("Asking a model needs a token with the scope predict")
    expect(refusal).to_be_visible()
    expect(page.get_by_text("asked for by ui-test")).to_be_visible()


# ---- which version answers


def test_an_admin_moves_the_champion_and_retires_a_version(another, server):
    page = as_new(another, server, "admin")
    page.goto("/ui/models/adult#versions")

    def place(version, what):
        unfolded(page, "versions")
        page.get_by_text("Change which version answers").click()
        page.locator("#place-version").select_option(version)
        page.locator("#place-what").select_option(what)
        page.locator("#place-why").fill("seen in a test")
        page.get_by_role("button", name="Write it into the ledger").click()
        expect(page.get_by_role("status").filter(has_text="Servers follow within a second")).to_be_visible()

    row = page.get_by_role("row", name=re.compile("^adult@2"))
    expect(row).to_contain_text("candidate")
    row.get_by_role("button", name="Promote, in place of adult@1").click()
    expect(page.get_by_role("status").filter(has_text="Servers follow within a second")).to_be_visible()
    until(lambda: server.get("/v1/models/adult").json()["version"] == 2, "the champion moved")
    page.goto("/ui/models/adult@1")
    expect(page.get_by_text("A candidate: it answers only who asks for adult@1")).to_be_visible()
    place("1", "make it the champion")
    until(lambda: server.get("/v1/models/adult").json()["version"] == 1, "and back")
    place("2", "serve it no more")
    until(lambda: server.get("/v1/models/adult@2").status_code == 404, "it is retired")
    page.goto("/ui/models/adult@2")
    expect(page.get_by_role("alert")).to_contain_text("was retired")
    page.faults.clear()  # of the status 404
    page.goto("/ui/models/adult")
    place("2", "serve it again")
    until(lambda: server.get("/v1/models/adult@2").status_code == 200, "it is served again")


def test_only_an_admin_may(server):
    assert server.ask("POST", "/ui/models/adult/place", "train", data={"version": "1"}).status_code == 403
    for form in ({"what": "delete"}, {"what": "promote", "version": "x", "why": "?"}, {"other": "1"}):
        assert server.ask("POST", "/ui/models/adult/place", data=form).status_code == 400


# ---- what if


def chance(page, label):
    return page.locator(".chances li").filter(has_text=re.compile(rf"^{label}")).locator("b")


def keyed(page, label, words=None):
    """A control reached by Tab alone, and what is typed into it."""
    control = page.get_by_label(label, exact=True)
    for _ in range(400):
        if control.evaluate("each => each === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(control).to_be_focused()
    if words is not None:  # a list takes the first that begins so
        control.evaluate("each => each.select?.()")
        page.keyboard.type(words)


def test_a_curve_is_edited_by_keys_and_by_hand_and_is_a_candidate_that_verifies(another, server):
    page = as_new(another, server, "admin")
    opened(page, "terms").get_by_role("button", name="more of 14 features").click()
    page.get_by_role("link", name="Edit age", exact=True).click()
    expect(page.locator(".picture .now")).to_be_visible()
    curve = server.get("/v1/models/terms/curve?feature=age").json()
    keyed(page, "What becomes of them", "n")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # Apply
    expect(page.locator(".changes li")).to_have_count(1)
    keyed(page, f"{curve['bins'][0]['values']} adds", "-1.5")
    page.keyboard.press("Enter")
    expect(page.locator(".changes li")).to_have_text([re.compile("never fall"), re.compile("add -1.5")])
    handle = page.locator(".picture .handle").last
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 30, steps=3)
    page.mouse.up()
    expect(page.locator(".changes li")).to_have_text([re.compile("never"), re.compile("-1.5"), re.compile("missing")])
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".changes li")).to_have_count(2)
    page.get_by_label("Feature").select_option("education")  # of names those that are ticked
    for name in ("Bachelors", "Masters"):
        page.get_by_label(f"Tick {name}", exact=True).check()
    expect(page.locator("#act option[value=smooth]")).to_be_disabled()
    page.get_by_label("What becomes of them").select_option("set")
    page.get_by_label("Value", exact=True).fill("0.5")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".changes li")).to_have_count(3)
    page.get_by_label("What becomes of them").select_option("clip")
    page.get_by_label("At least").fill("1")
    page.get_by_label("At most").fill("-1")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".problem")).to_contain_text("must not be above")
    expect(page.locator(".changes li")).to_have_count(3)
    page.faults.clear()  # the refusal: a line of the console, and meant
    page.get_by_label("Feature").select_option("age & sex")  # a map
    page.locator(".maps figure").last.locator(".cell").first.click()
    expect(page.locator("tbody input[type=number]").first).to_be_focused()
    page.keyboard.type("0.25")
    page.keyboard.press("Enter")
    expect(page.locator(".maps .moved")).to_have_count(1)
    page.get_by_role("button", name="Make a candidate version").click()
    expect(page.locator(".problem")).to_have_text("Say why: it stays in the model.")
    assert [each["model"] for each in server.get("/v1/models").json()["models"] if each["name"] == "terms"] == [
        "terms@1"
    ]
    keyed(page, "Why", "income does not fall with age here")
    page.keyboard.press("Enter")
    link = page.locator(".made a")
    expect(link).to_have_text("terms@2")
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#edits tbody tr")).to_have_count(4)
    expect(page.get_by_text("A candidate: it answers only who asks for")).to_be_visible()
    now = [each["adds"] for each in server.get("/v1/models/terms@2/curve?feature=age").json()["bins"]]
    assert now[0] == pytest.approx(-1.5, abs=1e-3)
    assert now[1:-1] == sorted(now[1:-1])
    assert now[-1] == curve["bins"][-1]["adds"]  # what was undone
    assert dpserve(server.path, "verify", str(server.path / "models" / "terms" / "2")).returncode == 0
    page.goto("/ui/models/kin")  # of three classes, each with a curve
    page.get_by_role("link", name="Edit a curve").click()
    page.get_by_label("Feature").select_option("sex")
    page.get_by_label("Class", exact=True).select_option("Own-child")
    expect(page.locator(".unit")).to_have_text("log odds of Own-child")
    page.get_by_label("Female adds").fill("1.25")
    page.get_by_label("Female adds").press("Enter")
    expect(page.locator(".changes li")).to_have_text("Own-child: sex, Female: add 1.25")
    page.get_by_label("Class", exact=True).select_option("Husband")  # whose curve stays as it was
    expect(page.locator("tbody .moved")).to_have_count(0)
    page.get_by_label("Class", exact=True).select_option("Own-child")
    expect(page.locator("tbody .moved")).to_have_count(1)
    page.get_by_label("Why").fill("children of either sex")
    page.get_by_role("button", name="Make a candidate version").click()
    expect(page.locator(".made a")).to_have_text("kin@2")
    page.locator(".made a").click()
    expect(page.locator("#edits tbody tr")).to_contain_text("children of either sex")
    page.goto("/ui/models/woods")
    expect(page.get_by_role("link", name="Edit a curve")).to_have_count(0)
    page.goto("/ui/models/woods/edit")
    expect(page.get_by_text("only a sum over features")).to_be_visible()
    page.faults.clear()


def test_what_if_answers_and_explains_as_the_doors_do(page, server):
    opened(page, "terms", drawn=False)
    expect(page.locator(".answer .said")).to_have_text(re.compile("50K"))
    page.get_by_label("Find a feature").fill("age")  # which noise may have put behind six others
    with page.expect_request("**/explain") as sent:
        page.get_by_role("spinbutton", name="age", exact=True).fill("23")
    record = sent.value.post_data_json["records"][0]
    assert record["age"] == 23
    answer = server.post("/predict", {"model": "terms@1", "records": [record]}).json()
    expect(page.locator(".answer .said")).to_have_text(answer["predictions"][0])
    expect(chance(page, ">50K")).to_have_text(f"{100 * answer['probabilities'][0][1]:.1f} %")
    told = server.post("/explain", {"model": "terms@1", "records": [record]}).json()
    adds = dict(zip(told["features"], told["contributions"][0], strict=True))
    shown = page.locator('.ask[data-feature="age"] output').inner_text().replace("−", "-")
    assert float(shown) == pytest.approx(adds["age"], abs=0.006)
    expect(page.locator(".answer .why")).to_contain_text("the score of >50K")


def test_what_if_sends_null_for_what_is_not_known_and_other_texts(page):
    opened(page, "woods", drawn=False)
    page.get_by_label("Find a feature").fill("age")
    with page.expect_request("**/predict") as sent:
        page.get_by_role("spinbutton", name="age", exact=True).fill("")
    assert sent.value.post_data_json["records"][0]["age"] is None
    page.get_by_label("Find a feature").fill("education")
    with page.expect_request("**/predict") as sent:
        page.get_by_label("education", exact=True).select_option("another value")
    record = sent.value.post_data_json["records"][0]
    assert record["education"] == "another value"
    assert record["sex"] == "Female"
    with page.expect_request("**/predict") as sent:
        page.get_by_role("button", name="Start again").click()
    assert sent.value.post_data_json["records"][0]["age"] is not None


def test_of_many_features_the_first_are_shown_and_the_others_found(page):
    """The page stays a page: what matters most stands first, and all the rest is one search away."""
    opened(page, "wide")
    shown = page.locator(".ask:visible")
    expect(shown).to_have_count(6)
    expect(shown.first).to_have_attribute("data-feature", f"lab_{WIDE - 1:03}")
    other = page.locator(".ask:not(:visible)").first.get_attribute("data-feature")  # noise alone says which are first
    expect(page.get_by_label(other, exact=True)).to_be_hidden()
    page.get_by_label("Find a feature").fill(other)
    expect(shown).to_have_count(1)
    with page.expect_request("**/predict") as sent:
        page.get_by_label(other, exact=True).fill("7")
    assert len(sent.value.post_data_json["records"][0]) == WIDE
    page.get_by_label("Find a feature").fill("")
    expect(shown).to_have_count(7)  # what was changed stays in view
    page.get_by_role("button", name="Start again").click()
    expect(shown).to_have_count(7)
    page.get_by_role("button", name="Show all").click()
    expect(shown).to_have_count(WIDE)
    page.get_by_role("button", name="Show the first alone").click()
    page.locator(".plot svg").last.wait_for()
    height = "document.documentElement.scrollHeight"
    until(lambda: page.evaluate(height) <= 3 * 900, "all that comes is drawn, on three screens")
    weight = cold(page)
    page.goto("/ui/models/wide#inputs")  # a link unfolds what it points at
    page.get_by_label("Find", exact=True).fill(other)
    expect(page.locator("#all-inputs tbody tr:visible")).to_have_count(1)
    no_serious_findings(page)
    for name in (
        "noise",
        "terms",
        "woods",
    ):  # that were measured: a dozen features that noise alone moves, and fourteen
        weight.clear()
        opened(page, name)
        assert sum(weight) <= MOST_BYTES, name
        expect(page.locator("#worth > details > summary")).to_contain_text("auroc")
        assert page.evaluate(height) <= 3 * 900, name  # with three pictures of what it is worth


def test_a_file_is_predicted_in_the_browser(page, server, tmp_path):
    """As the door answers for the same records, whatever else stands in the file."""
    opened(page, "adult")
    rows = records(40)
    with (tmp_path / "some.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["note", *rows[0]], delimiter=";")
        writer.writeheader()
        writer.writerows({"note": f'says "a;\nb" {at}', **row} for at, row in enumerate(rows))
    page.get_by_text("Predict a file").click()
    page.get_by_text("It is written otherwise").click()
    page.get_by_label("Columns are parted by").select_option(label="semicolon")
    page.get_by_label("Keep a column").fill("note")
    given, told = predict_file(page, tmp_path / "some.csv")
    assert told.startswith("Predicted"), told
    found = list(csv.DictReader(io.StringIO(given, newline="")))
    answer = server.post("/predict", {"model": "adult", "records": rows}).json()
    assert [line["label"] for line in found] == answer["predictions"]
    assert [line["note"] for line in found] == [f'says "a;\nb" {at}' for at in range(40)]
    kept = [{"note": f'says "a;\nb" {at}', **row} for at, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(kept), tmp_path / "some.parquet")
    assert list(csv.DictReader(io.StringIO(predict_file(page, tmp_path / "some.parquet")[0], newline=""))) == found
    page.get_by_label("Keep a column").fill("")
    with (tmp_path / "west.csv").open("w", newline="", encoding="cp1252") as file:  # as it is written in much of Europe
        writer = csv.DictWriter(file, ["größe", *rows[0]], delimiter=";")
        writer.writeheader()
        for row in rows:
            numbers = {key: f"{n:,}.0".translate(POINTS) for key, n in row.items() if isinstance(n, int)}
            writer.writerow({"größe": "ä", **row, **numbers})
    assert "not UTF-8" in predict_file(page, tmp_path / "west.csv")[1]
    page.get_by_label("Its encoding").select_option("cp1252")
    page.get_by_label("All numbers are written").select_option(label="1.234,5")
    found = list(csv.DictReader(predict_file(page, tmp_path / "west.csv")[0].splitlines()))
    assert [line["label"] for line in found] == answer["predictions"]
    page.get_by_label("Its encoding").select_option("")
    page.get_by_label("All numbers are written").select_option("")
    for name, mark, named, first, times in (
        ("a.csv", ";", "semicolon", "sep=;\n", 300), ("a.tsv", "\t", "tab", "", 1), ("b.csv", ",", "", "", 1)
    ):  # fmt: skip
        with (tmp_path / name).open("w", newline="") as file:
            file.write(first)
            writer = csv.DictWriter(file, [*rows[0]], delimiter=mark, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows * times)
        page.get_by_label("Columns are parted by").select_option(label=named or "as in the dataset")
        found = list(csv.DictReader(predict_file(page, tmp_path / name)[0].splitlines()))
        assert [line["label"] for line in found] == answer["predictions"] * times
    header, cells = ["id", *rows[0]], [[f"p{at}", *row.values()] for at, row in enumerate(rows)]
    page.get_by_label("Keep a column").fill("id")
    book = write_workbook(tmp_path / "a.xlsx", {"A": [header, *cells]})
    found = list(csv.DictReader(predict_file(page, book)[0].splitlines()))
    assert [line["label"] for line in found] == answer["predictions"]
    assert [line["id"] for line in found] == [line[0] for line in cells]
    page.get_by_label("Keep a column").fill("")
    (tmp_path / "less.csv").write_text("age\n3\n")
    assert "the model reads them" in predict_file(page, tmp_path / "less.csv")[1]
    with (tmp_path / "odd.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["note", *rows[0]], *(["two\nlines", *row.values()] for row in rows)])
    found = list(csv.DictReader(predict_file(page, tmp_path / "odd.csv")[0].splitlines()))
    assert [line["label"] for line in found] == answer["predictions"]
    with (tmp_path / "odd.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["note", *rows[0]], *([*row.values()] for row in rows)])
    assert "cells" in predict_file(page, tmp_path / "odd.csv")[1]
    page.faults[:] = [
        fault for fault in page.faults if "(Bad Request)" not in fault and "(Gateway Timeout)" not in fault
    ]
    no_faults(page)


def test_a_picture_and_the_form_move_together(page):
    opened(page, "terms")  # curves of every feature: nothing of it is drawn by chance
    page.evaluate("document.dispatchEvent(new CustomEvent('dpserve:put', {detail: {feature: 'age', value: '61'}}))")
    expect(page.get_by_role("spinbutton", name="age", exact=True)).to_have_value("61")
    expect(page.get_by_label("age, slider")).to_have_value("61")
    controls = page.locator('.ask[data-kind="categorical"] select')
    drawn = {mark.get_attribute("data-place") for mark in page.locator("#plots [data-place]").all()}
    control, name = next(
        (control, value[1:])
        for control in controls.all()
        for value in control.evaluate("(select) => [...select.options].map((option) => option.value)")
        if value.startswith("=") and value[1:] in drawn
    )
    control.select_option("")
    page.locator(f'#plots [data-place="{name}"]').first.dispatch_event("click")
    expect(control).to_have_value(
        f"={name}"
    )  # a category that is called ? is told from another value, which is sent as ?


# ---- without a browser


def test_inputs_begin_in_the_middle_of_what_is_public():
    age, work, owner, idle = inputs(CLASSES.features)
    assert (age.start, age.low, age.high, age.step) == ("28", 18.0, 65.0, 1.0)
    assert work.choices == (
        ("=Private", "Private"),
        ("=State & co", "State & co"),
        ("?", "another value"),
        ("", "not known"),
    )
    assert (owner.start, idle.start, idle.step) == ("false", "1", None)


def test_the_pictures_of_trees_are_importances_alone():
    found = picture(
        TreeEnsemble(CLASSES.features, "income", (0, 1), (Split("above", 0, 1, Leaf(1), Leaf(-1)),), 0, 1.0)
    )
    assert (found["form"], found["features"], found["importances"]) == ("trees", [], [{"feature": "age", "size": 1.0}])
    assert found["trees"] == ["age > 27.5?\n  yes: +1\n  no: -1"]


def test_a_picture_says_log_odds_and_ends_without_infinity():
    votes = VotingEnsemble(CLASSES.features, "income", (0, 1), (Vote("above", 0, 1, 4),), 0.25)
    (age,) = picture(votes)["features"]
    bins = age["shapes"][0]["bins"]
    assert [each["adds"] for each in bins] == [-1, 1, -1]
    assert [(each["low"], each["high"]) for each in bins] == [
        (None, 27.5),
        (27.5, None),
        (None, None),
    ]


# ---- last, for it breaks a model


@pytest.mark.last
def test_a_model_that_does_not_verify_is_not_shown(page, server):
    path = server.path / "models" / "woods" / "1" / "model.onnx"
    path.write_bytes(path.read_bytes() + b"\0")
    until(lambda: server.get("/ui/models/woods").status_code == 503, "the change is seen")
    page.goto("/ui/models/woods")
    expect(page.get_by_role("heading", name="Nothing is served under this name")).to_be_visible()
    expect(page.locator("#versions")).to_contain_text("does not verify")
    page.goto("/ui/models")
    expect(page.get_by_role("row", name=re.compile("^woods"))).to_contain_text("does not verify")
    assert page.faults == ["Failed to load resource: the server responded with a status of 503 (Service Unavailable)"]
    page.faults.clear()


# ---- a champion that was revoked: the last, for nothing answers to the name afterwards


@pytest.mark.last
def test_a_revoked_champion_says_that_nothing_is_served_and_what_could_be(another, server):
    page = as_new(another, server, "admin")
    page.goto("/ui/models/adult@1")
    entry = server.get("/v1/models/adult@1").json()["certificate"]["entry"]
    key_life.revoke(server.home, entry, "test", "trained on the wrong file")
    until(lambda: server.get("/v1/models/adult").status_code == 503, "nothing answers to the name")
    details = server.predict("adult").json()["error"]["details"]
    assert (details["state"], details["offer"]) == ("revoked", "adult@2")
    page.goto("/ui/models/adult")
    expect(page.get_by_role("alert")).to_contain_text("Nothing is served under this name")
    expect(page.get_by_text("dpserve model promote adult@2")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^adult@1"))).to_contain_text("revoked")
    page.faults.clear()  # of the status 503
    page.get_by_role("row", name=re.compile("^adult@2")).get_by_role("button", name="Promote").click()
    expect(page.get_by_role("status").filter(has_text="Servers follow within a second")).to_be_visible()
    until(lambda: server.get("/v1/models/adult").json().get("version") == 2, "another takes its place")
    page.faults.clear()  # of what it asked for while nothing answered
