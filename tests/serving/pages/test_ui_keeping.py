"""What stewards, promoters and admins change from the pages, who may not, and what the ledger says of it then."""

from __future__ import annotations

import html
import re

import ledgers
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import yaml
from in_process import Site
from pages_in_process import pages_at, words
from small_home import DATA, write_files

from accountant.home import Home
from accountant.home.notes import Note, note_of
from accountant.keys import opening
from accountant.ledger.archive import archived
from dpserve_verify.privacy.budget import Budget, Relation
from serving.cli.app import run
from serving.operations import notes
from serving.operations.doors import doors
from serving.process.tokens import new_token
from serving.process.watch import audit_runs
from training.datasets.datasets import register
from training.datasets.drafts import steps
from training.datasets.drafts.drafts import Drafts
from training.jobs import job
from training.requests import JobRequest

TARGETS = {
    "income": {"classes": ["<=50K", ">50K"]},
    "race": {"classes": ["White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other"]},
    "age": {"range": [17, 90]},
}
THINGS = [("datasets", "several", "steward"), ("models", "adult", "promote")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keeping")
    files, home = write_files(folder / "files"), Home.init({"DPSERVE_HOME": str(folder / "home")})
    budget = Budget.of("9", "0.000001")
    register(home, "adult", files / "rows.parquet", files / "schema.yaml", budget, Relation.ADD_REMOVE, None)
    schema = yaml.safe_load((files / "schema.yaml").read_text())
    del schema["target"], schema["features"]["race"], schema["features"]["age"]
    (files / "several.yaml").write_text(yaml.safe_dump({**schema, "targets": TARGETS}))
    pq.write_table(pq.read_table(DATA / "adult_train.parquet").slice(9000, 900), files / "others.parquet")
    register(home, "several", files / "others.parquet", files / "several.yaml", budget, Relation.ADD_REMOVE, None)
    for _ in range(2):
        job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 4}), by="cli:ann")
    with pages_at(folder / "home") as found:
        for scope in ("steward", "promote"):
            found.secrets[scope] = new_token(found.home, f"the-{scope}", [scope])[0]
        found.look()
        yield found


@pytest.mark.parametrize(
    ("thing", "name", "scope"), [("datasets", "several", "steward"), ("models", "adult", "promote")]
)
def test_notes_and_tags_are_written_and_what_is_over_is_archived(site, thing, name, scope):
    kind, at = thing[:-1], f"/ui/{thing}/{name}"
    assert site.send(f"{at}/note", "train", text="x", tags="").status_code == 403
    assert site.send(f"{at}/note", scope, text="<b>for the\r\nboard</b>", tags="board, 2026, board").status_code == 303
    assert note_of(site.home.path, kind, name) == Note("<b>for the\nboard</b>", ("board", "2026"))
    assert "&lt;b&gt;for the" in site.page(at).text
    assert re.search(f"{name}( @1)? board 2026", words(site.page(f"/ui/{thing}")))
    assert site.send(f"{at}/note", scope, text="", tags="<").status_code == 400
    over_rest, rest = (
        f"/v1/{thing}/{name}/note",
        Site(site.home, doors(*notes.OPERATIONS)),
    )  # by the rights of the page
    note = {kind: name, "text": "<b>for the\nboard</b>", "tags": ["board", "2026"]}
    assert rest.bear(site.secrets["train"], "GET", over_rest).json() == note
    assert rest.bear(site.secrets["train"], "PUT", over_rest, json={"tags": []}).status_code == 403
    assert rest.bear(site.secrets[scope], "PUT", over_rest, json={"tags": ["old"]}).json() == note | {"tags": ["old"]}
    assert rest.bear(site.secrets[scope], "PUT", over_rest, json={"tags": ["<"]}).status_code == 400
    nothing = {"text": None, "tags": None}  # as left out
    assert rest.bear(site.secrets[scope], "PUT", over_rest, json=nothing).json() == note | {"tags": ["old"]}
    assert rest.bear(site.secrets[scope], "PUT", over_rest, json={"tags": [5]}).status_code == 400
    assert rest.bear(site.secrets["admin"], "PUT", f"/v1/{thing}/nobody/note", json={"text": "x"}).status_code == 404

    assert site.send(f"{at}/archive", "train", why="over").status_code == 403
    assert site.send(f"{at}/archive", scope, why=" ").status_code == 400
    assert name not in archived(site.home.ledger, kind)
    assert site.send(f"{at}/archive", scope, why="over").status_code == 303
    assert name in archived(site.home.ledger, kind)
    assert site.home.ledger.log.entry(site.home.ledger.log.size() - 1).value["by"] == f"token:the-{scope}"
    assert {"model": "is archived: lists leave it", "dataset": "takes no further job"}[kind] in words(site.page(at))
    assert "New job" not in words(site.page(at))
    assert f'href="{at}"' not in site.page(f"/ui/{thing}").text
    assert site.send(f"{at}/archive", scope, why="needed", ends="yes").status_code == 303
    assert f'href="{at}"' in site.page(f"/ui/{thing}").text


def test_a_registration_is_withdrawn_from_its_page_where_nothing_was_spent(site):
    at = "/ui/datasets/{}/withdraw"
    site.home.ledger.register(ledgers.registration("tryout"))
    assert site.send(at.format("tryout"), "train", reason="x").status_code == 403
    refused = site.send(at.format("adult"), "steward", reason="x")
    assert (refused.status_code, "cannot be withdrawn: " in words(refused)) == (409, True)
    assert site.send(at.format("tryout"), "steward", reason="a typo").status_code == 303
    assert "tryout" not in [each.registration.name for each in site.home.ledger.datasets()]


def test_a_certificate_is_revoked_by_an_admin_alone(site):
    for scope in ("promote", "steward", "audit"):
        assert site.send("/ui/models/adult/revoke", scope, version="2", why="wrong file").status_code == 403
    assert site.send("/ui/models/adult/revoke", version="2", why="").status_code == 400
    assert site.send("/ui/models/adult/revoke", version="../2", why="x").status_code in (400, 404)
    assert opening.revoked_certificates(site.home.ledger.log.database) == set()
    assert "Revoke it, permanently" in words(site.page("/ui/models/adult"))
    assert "Revoke it" not in words(site.page("/ui/models/adult", "promote"))
    done = site.send("/ui/models/adult/revoke", version="2", why="trained on the wrong file")
    assert done.status_code == 303
    entry = site.home.ledger.log.entry(site.home.ledger.log.size() - 1).value
    assert (entry["type"], entry["by"], entry["reason"]) == ("revoked", "token:the-admin", "trained on the wrong file")
    site.look()
    assert re.search("adult@2 revoked", words(site.page("/ui/models/adult")))


def test_keys_are_shown_put_in_force_and_revoked(site):
    assert site.page("/ui/keys", "audit").status_code == 403
    assert site.send("/ui/keys", "audit", what="rotate", role="log", why="x").status_code == 403
    rows = {row.role: row for row in opening.keys_of(site.home.ledger.log.database)}
    assert rows["log"].keyid in site.page("/ui/keys").text
    for fields in ({"what": "rotate", "role": "king"}, {"what": "burn"}, {"what": "compromised", "after": "-1"}):
        answer = site.send("/ui/keys", **{"why": "x", **fields})
        assert answer.status_code == 400
        assert "That was not done" in words(answer)
    unknown = site.send("/ui/keys", what="compromised", keyid="SHA256:none", after="0", why="x")
    assert unknown.status_code == 404
    assert len(opening.keys_of(site.home.ledger.log.database)) == 2

    assert site.send("/ui/keys", what="rotate", role="log", why="yearly").status_code == 303
    site.look()
    assert re.search("log good .* log retired", words(site.page("/ui/keys")))
    after = site.home.ledger.log.size() - 1
    sent = site.send("/ui/keys", what="compromised", keyid=rows["issuer"].keyid, after=str(after), why="laptop stolen")
    assert sent.status_code == 303
    site.look()
    assert "issuer compromised" in words(site.page("/ui/keys"))
    assert {row.keyid for row in opening.keys_of(site.home.ledger.log.database) if row.ended is None}.isdisjoint(
        {rows["log"].keyid, rows["issuer"].keyid}
    )
    stolen = {"what": "compromised", "keyid": rows["log"].keyid, "after": "0", "why": "the backup was taken"}
    assert site.send("/ui/keys", **stolen).status_code == 303
    site.look()
    shown = site.page("/ui/models/adult@1")
    assert (shown.status_code, "What it promises" in words(shown)) == (200, True), "its proof is made anew"
    assert audit_runs.audit_at(site.home.path, f"sqlite:///{site.home.path}/ledger.db")["problems"] == []


def options(text, name):
    return re.findall(r"<option[^>]*>([^<]+)", re.search(rf'<select id="{name}".*?</select>', text, re.S)[0])


def test_a_job_on_one_of_several_targets_offers_the_learners_that_fit(site):
    form = "/ui/jobs/new?dataset=several"
    assert options(site.page(form).text, "target") == ["choose", "age", "income", "race"]
    assert 'id="target"' not in site.page("/ui/jobs/new?dataset=adult").text
    offered = {each: options(site.page(f"{form}&target={each}").text, "learner") for each in ("income", "race", "age")}
    assert "forest" in offered["income"]
    assert offered["income"] != offered["race"] != offered["age"]
    unsaid = words(site.page("/ui/jobs/price", params={"dataset": "several", "learner": "auto", "epsilon": "0.9"}))
    assert "Choose a target: age, income, race." in unsaid
    for target, learners in offered.items():
        for learner in learners:
            asked = {"dataset": "several", "target": target, "learner": learner, "epsilon": "0.9", "model": "other"}
            answer = words(site.page("/ui/jobs/price", params=asked))
            assert "Train (ε 0.9" in answer, (target, learner, answer)
    again = site.page("/ui/jobs/blocks", params={"dataset": "adult", "target": "race", "learner": "ebm"}).text
    assert 'id="target"' not in again
    assert "<option selected>ebm" in again


def brought(site, rows, name="more.csv"):
    """A draft of these rows, uploaded for the dataset `several`."""
    drafts = Drafts(site.home.path)
    draft = drafts.begin("token:the-steward", name, len(rows), 1 << 20, into="several")
    drafts.append(draft, 0, rows)
    steps.work(site.home.path)
    return f"/ui/drafts/{draft.id}"


def test_rows_are_checked_by_the_datasets_schema_and_appended_as_a_block(site, tmp_path):
    table = pq.read_table(DATA / "adult_train.parquet").slice(20_000, 300)
    csv.write_csv(table.set_column(0, "age", [["old"] * 300]), tmp_path / "wrong.csv")
    wrong = words(site.page(brought(site, (tmp_path / "wrong.csv").read_bytes()), "steward"))
    assert "cannot be registered yet" in wrong
    assert re.search(r"age text 2, 3, 4, 5, 6 and 295 more", wrong)
    csv.write_csv(table, tmp_path / "more.csv")
    at = brought(site, (tmp_path / "more.csv").read_bytes())
    shown = site.page(at, "steward")
    assert "Append these rows to several" in words(shown)
    assert "A line for each column" not in words(shown), "its columns are said already"
    assert site.send(f"{at}/append", "train").status_code == 403
    left_open = site.send(f"{at}/append", "steward", each_block="yes")
    assert left_open.status_code == 422
    assert "about how many rows does the block have" in left_open.text, "it is never the schema's"
    assert site.send(f"{at}/append", "steward", each_block="yes", records="300").status_code == 303
    assert "say why" in refused(site, at)
    assert site.send(f"{at}/append", "steward", records="300").status_code == 303
    steps.work(site.home.path)
    assert "appended to several" in words(site.page(at, "steward"))
    dataset = site.home.ledger.dataset("several")
    assert (dataset.last, dataset.blocks[-1].records) == (2, 300)
    again = brought(site, (tmp_path / "more.csv").read_bytes())
    site.send(f"{again}/append", "steward", records="300")
    assert "That was not done" in refused(site, again), "these rows are a block already"


def refused(site, at):
    steps.work(site.home.path)
    return words(site.page(at, "steward"))


def test_what_is_changed_on_pages_has_the_command_that_does_the_same(site, capsys):
    """Each is one that the command line knows, with flags that it takes."""
    for path, least in (("/ui/datasets/several", 5), ("/ui/models/adult", 6), ("/ui/tokens", 2)):
        found = re.findall(r"The command that does the same</summary><pre[^>]*>([^<]*)</pre>", site.page(path).text)
        lines = [line for block in found for line in html.unescape(block).splitlines()]
        assert len(lines) >= least, (path, lines)
        for line in lines:
            program, branch, leaf, *rest = line.split()
            assert program == "dpserve"
            assert run([branch, leaf, "--help"]) == 0, line
            taken = set(re.findall(r"(--[a-z-]+)", capsys.readouterr().out))
            assert {word for word in rest if word.startswith("--")} <= taken, line
