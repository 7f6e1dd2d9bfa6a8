"""Every door with every scope, for what is its own, what was granted and what is another's: as the reference says."""

from __future__ import annotations

import ledgers
import pytest
from in_process import Site
from ledgers import place, registration, request, reserve

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.access.tokens import SCOPES
from accountant.home import Home
from serving.app import DOORS
from serving.http.routes import Door, open_paths
from serving.pages.all import PAGES
from serving.pages.home import error_page
from serving.process.tokens import new_token

EVERY = tuple(door for door in (*DOORS, *PAGES) if door.scopes)
MINE, OTHERS = "adult", "bank"  # a dataset and a model of either name
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A token of each scope on everything, and one of each on what is called adult; a job of each of them on both
    datasets, and of somebody else.
    """
    folder = tmp_path_factory.mktemp("matrix")
    home = Home.open(place(ledgers.copy(ledgers.trained(), folder / "home")))
    home.ledger.register(registration(OTHERS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home.path))
        found = Site(home, (*DOORS, *PAGES))
        found.app.state.error_page = error_page
        found.jobs = {dataset: over(home, dataset, "somebody") for dataset in (MINE, OTHERS)}
        found.wide, found.narrow, found.own = {}, {}, {}
        for scope in SCOPES:
            found.wide[scope], _ = new_token(home, f"wide-{scope}", [scope])
            found.narrow[scope], _ = new_token(home, f"narrow-{scope}", [], principal=scope)
            found.own[scope] = over(home, OTHERS, scope)
            on = (("dataset", MINE), ("model", MINE))
            grants.add(home.ledger, [Grant(scope, scope, kind, name) for kind, name in on], "test")
        found.look()
        yield found


def over(home: Home, dataset: str, by: str) -> int:
    """The number of a job that was given back, so that what streams it ends."""
    seq = reserve(home.ledger, request(dataset, epsilon="0.1"), ledgers.plan(count=2), by=by).seq
    home.ledger.release(seq)
    return seq


def looked(site: Site) -> Site:
    """Looks at the home again, where a slow machine took longer than its state may be relied upon."""
    if site.app.state.serving.problem:
        site.look()
    return site


PRICED = (
    "/ui/jobs/new",
    "/ui/evaluations/new",
    "/ui/profiles/new",
    "/ui/answers/new",
)  # their first page names no dataset


def refused(site: Site, secret: str, door: Door, name: str, job: int) -> bool:
    """Whether the door says that there is no grant for it. Any other answer has come past that."""
    path = door.path.replace("{job}", str(job)).replace("{name}", name)
    for part, value in (
        ("{version}", "1"),
        ("{file}", "card.md"),
        ("{entry}", "0"),
        ("{grant}", "0"),
        ("{draft}", "0"),
    ):
        path = path.replace(part, value)
    more = {}
    if door.method == "POST" and path.startswith("/ui"):
        asked = {"dataset": name, "epsilon": "0.1", "priced": "x"}
        fields = asked if path in PRICED else {"dataset": name} if path == "/ui/schedules" else {}
        more = {"content": "&".join(f"{key}={value}" for key, value in fields.items()), "headers": FORM}
    elif door.method == "POST":
        bodies = {
            "/predict": {"model": name, "records": []},
            "/explain": {"model": name, "records": []},
            "/v1/jobs": {"dataset": name, "learner": "none", "epsilon": "0.1"},
            "/v1/evaluations": {"model": name, "dataset": name, "epsilon": "0.1"},
            "/v1/profiles": {"dataset": name, "epsilon": "0.1"},
            "/v1/answers": {"dataset": name, "select": "select count(*) from a", "epsilon": "0.1"},
            "/v1/plans/answers": {"dataset": name, "select": "select count(*) from a", "epsilon": "0.1"},
            "/v1/plans/evaluations": {"model": name, "dataset": name, "epsilon": "0.1"},
            "/v1/plans/profiles": {"dataset": name, "epsilon": "0.1"},
            f"/v1/campaigns/{name}/give-up": {"reason": "x"},
            f"/v1/models/{name}/edits": {"edits": [], "dry_run": True},
            "/v1/schedules": {"name": "weekly", "dataset": name, "learner": "none", "epsilon": "0.1"},
            "/v1/plans": {"dataset": name, "learner": "none", "epsilon": "0.1"},
        }
        more = {"json": bodies.get(path, {"inputs": []} if path.endswith("infer") else {})}
    looked(site)
    answer = site.bear(secret, door.method, path, **more)
    assert answer.status_code < 500 or answer.status_code == 503, answer.text
    return answer.status_code == 403 and b'"code":"forbidden"' in answer.content


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES)
def test_every_door_does_as_the_table_says(site, scope):
    for door in EVERY:
        reach, named = door.reach(scope), door.thing in ("model", "dataset", "named", "job")
        what = f"{door.method} {door.path}: {scope}"
        wide, narrow = site.wide[scope], site.narrow[scope]
        if door.thing == "job":
            granted, others, own = site.jobs[MINE], site.jobs[OTHERS], site.own[scope]
            assert refused(site, wide, door, MINE, others) is (reach in ("no", "own", "own, granted")), what
            assert refused(site, narrow, door, MINE, granted) is (reach in ("no", "own")), what
            assert refused(site, narrow, door, MINE, own) is (not reach.startswith("own") and scope != "admin"), what
            assert refused(site, narrow, door, MINE, others), what
            continue
        assert refused(site, wide, door, MINE, 1) is (reach == "no"), what
        partly = reach in ("granted", "own", "own, granted", "yes") or (reach == "all" and door.thing != "everything")
        assert refused(site, narrow, door, MINE, 1) is not partly, what
        without = (*PRICED, "/ui/jobs/price", "/ui/jobs/parameters", "/ui/jobs/blocks", "/v1/evaluations/{job}")
        without += ("/v1/answers/{job}", "/v1/profiles/{job}", "/v1/profiles/{job}/synthetic", "/ui/profiles/{job}")
        without += tuple(f"/v1/campaigns/{{name}}/{act}" for act in ("next", "close", "give-up"))  # tests/local/owner
        asks = named and door.path not in without
        if asks or (door.method == "POST" and door.path in PRICED):
            assert refused(site, narrow, door, OTHERS, 1), what


def test_a_schedule_begins_from_no_model_that_the_caller_may_not_see(site):
    """From the page as over REST, and where it is only previewed: a job of it would begin from somebody's model."""
    typed = {"name": "weekly", "dataset": MINE, "learner": "lazybb", "epsilon": "0.1", "public": OTHERS}
    content, narrow = "&".join(f"{name}={value}" for name, value in typed.items()), looked(site).narrow["train"]
    answers = [
        site.bear(narrow, "POST", "/ui/schedules", content=content, headers=FORM),
        site.bear(narrow, "GET", f"/ui/schedules?{content}"),
        site.bear(narrow, "POST", "/v1/schedules", json=typed),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert all("model bank" in answer.text for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES)
def test_lists_show_what_is_granted_and_no_other_name(site, scope):
    narrow, wide = looked(site).narrow[scope], site.wide[scope]
    for path in ("/v1/datasets", "/v1/families", "/ui/datasets", "/ui"):
        answer = site.bear(narrow, "GET", path)
        if path != "/ui" or scope not in ("train", "evaluate", "admin"):  # there stand jobs of their own on it
            assert OTHERS not in answer.text, path
        if answer.status_code == 200 and path != "/ui":
            assert MINE in answer.text, path
            assert OTHERS in site.bear(wide, "GET", path).text, path
    assert {line["name"] for line in looked(site).bear(narrow, "GET", "/v1/models").json()["models"]} == {MINE}
    if scope in ("train", "evaluate", "audit", "steward", "admin"):
        listed = {line["job"] for line in site.bear(narrow, "GET", "/v1/jobs?limit=200").json()["jobs"]}
        assert (site.jobs[MINE] in listed) is (scope != "evaluate")
        assert site.jobs[OTHERS] not in listed
        assert (site.own[scope] in listed) is (scope in ("train", "evaluate", "admin"))


def test_one_of_nothing_sees_nothing(site):
    secret, _ = new_token(site.home, "nobody", [], principal="nobody")
    site.look()
    for door in EVERY:
        assert refused(site, secret, door, MINE, site.jobs[MINE]), door.path


@pytest.mark.parametrize("scope", ["train", "evaluate", "audit", "steward"])
def test_what_may_not_be_seen_is_as_what_there_is_not(site, scope):
    """Whoever asks for names would learn by the difference which of them there are."""
    paths = (
        "/v1/jobs?dataset={}",
        "/ui/jobs?dataset={}",
        "/v1/datasets/{}",
        "/v1/models/{}",
        "/v1/datasets/{}/profiles",
    )
    for path in paths:
        answers = [looked(site).bear(site.narrow[scope], "GET", path.format(name)) for name in (OTHERS, "n-ne")]
        same = {(answer.status_code, answer.text.replace(OTHERS, "n-ne")) for answer in answers}
        assert len(same) == 1 or "/jobs" in path, (path, same)  # there are jobs of their own among them
        assert len({answer.status_code for answer in answers}) == 1, path


def test_who_trains_on_one_and_predicts_everything_sees_what_the_grant_names(site):
    secret, _ = new_token(site.home, "both", ["predict"], principal="both")
    grants.add(site.home.ledger, [Grant("both", "train", "dataset", MINE)], "test")
    site.look()
    listed = {line["job"] for line in site.bear(secret, "GET", "/v1/jobs?limit=200").json()["jobs"]}
    assert site.jobs[MINE] in listed
    assert site.jobs[OTHERS] not in listed


def test_pages_offer_what_the_grants_allow(site):
    def page(secret: str, path: str) -> str:
        return looked(site).bear(secret, "GET", path, headers={"Accept": "text/html"}).text

    train, promote, audit = (site.narrow[scope] for scope in ("train", "promote", "audit"))
    assert 'href="/ui/jobs/new?dataset=adult"' in page(train, "/ui/datasets/adult")
    assert "/ui/jobs/new" not in page(audit, "/ui/datasets/adult")
    assert 'href="/ui/ledger"' not in page(audit, "/ui")  # it takes audit on everything
    assert 'href="/ui/ledger"' in page(site.wide["audit"], "/ui")
    assert "/ui/models/adult/place" in page(promote, "/ui/models/adult")
    assert "/ui/models/adult/place" not in page(train, "/ui/models/adult")
    assert f'value="{OTHERS}"' not in page(train, "/ui/jobs/new")


CAMPAIGN = "/v1/campaigns/{name}"
OPEN = {
    "/livez", "/readyz", "/v2/health/live", "/v2/health/ready", "/ui/login", "/ui/logout", "/ui/static/{path:path}",
    "/ui/sso", "/ui/sso/back", "/ui/sso/logout", "/ui/sso/provider",
    CAMPAIGN, *(f"{CAMPAIGN}/{word}" for word in ("reports", "shares", "collect", "held", "digest", "sum")),
    *(f"{CAMPAIGN}/rounds/{word}" for word in ("shares", "answers", "begin", "collect", "sum")),
}  # fmt: skip


def test_these_doors_and_no_others_need_no_token(site):
    """By their whole paths: what only begins, or ends, as one of them needs a token as everything else does."""
    assert {door.path for door in (*DOORS, *PAGES) if not door.scopes} == OPEN
    is_open = open_paths(site.app).fullmatch
    for path in OPEN:
        real = path.replace("{name}", "survey").replace("{path:path}", "app.css")
        assert is_open(real)
        assert is_open(f"{real}\n") is None or path == CAMPAIGN  # what a name may hold is its door's to say
        assert not is_open(f"/x{real}")
        assert is_open(f"{real}/more") is None or path.startswith("/ui/static/")
    for door in EVERY:
        real = door.path.replace("{name}", "survey").replace("{job}", "1")
        assert is_open(real) is None or door.path == CAMPAIGN
    for path in ("/v1/campaigns", "/v1/campaigns/", "/v1/campaigns/a/b", "/v1/campaigns/a/next", "/ui", "/", ""):
        assert is_open(path) is None
