"""The command line without a home: a real server is asked, and what it says is checked here."""

from __future__ import annotations

import csv
import io
import json
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import owners
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from small_home import DATA, ROOT, environment, serving, write_files

from accountant.access import grants
from accountant.home import Home
from dpserve import Client
from dpserve.errors import BadInput
from dpserve_verify.errors import InputError, ModelInvalid
from local.campaign import campaigns
from serving.cli.app import TREE, run
from serving.cli.backends import choice
from serving.cli.backends.server import connection
from serving.cli.backends.server.bundles import bundle_of
from serving.cli.tree import Branch
from serving.process.tokens import new_token

pytestmark = [pytest.mark.slow, pytest.mark.server]

LOCAL_ONLY = {"folder", "statement", "forecast", "time", "at", "by", "home"}  # where it is, who asked, and when


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    files = write_files(folder / "files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(folder / "home"))
        assert run(["init"]) == 0
        words = (
            f"--data {files / 'rows.parquet'} --schema {files / 'schema.yaml'} --epsilon 8 --delta 1e-5 --unit record"
        )
        assert run(["dataset", "register", "adult", *words.split(), "--holdout", "0.3"]) == 0
        for name in ("adult", "other"):
            trained = f"train adult --learner lazybb --set rounds=20 --epsilon 1 --model {name}"
            assert run(trained.split()) == 0
        for against in ([], ["--against", "other"]):  # a model is judged by what it is worth alone
            assert run(["evaluate", "adult", *against, "--dataset", "adult", "--epsilon", "0.1"]) == 0
    with serving(folder / "home", workers=1) as found:
        yield found


@pytest.fixture
def laptop(server, tmp_path, monkeypatch):
    """The environment of somebody who has an address, a token, and nothing else."""
    monkeypatch.delenv("DPSERVE_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DPSERVE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["admin"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(capsys):
    """Run a command: (exit code, stdout as JSON, stderr)."""

    def call(text, *more):
        capsys.readouterr()
        code = run([*text.split(), *map(str, more), "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out), err

    return call


def plain(body):
    """Without what says where it is kept and who asked when."""
    if isinstance(body, dict):
        return {key: plain(value) for key, value in body.items() if key not in LOCAL_ONLY}
    return [plain(each) for each in body] if isinstance(body, list) else body


SAME = (
    "dataset list",
    "dataset show adult",
    "plan adult --learner lazybb --epsilon 0.5",
    "plan adult --learner lazybb --epsilon 0.5 --set rounds=30 --model mine",
    "tune adult --learner lazybb --epsilon 1 --grid rounds=20,40 --plan",
    "evaluate adult --dataset adult --epsilon 0.1 --plan",
    "profile adult --epsilon 0.1 --plan --columns age --columns sex --pairs age,sex",
    "model show adult",
    "model show other --certificate",
    "model explain adult",
    "model explain adult --compare other",
    "model edit adult --feature age --show",
    "model edit adult --feature age --zero all --why x --dry-run",
    "job list",
    "job show 3",
    "grant list",
    "token list",
    "ledger audit",
    "ledger checkpoint",
)
REFUSED = (
    ("plan adult --learner lazybb --epsilon 50", 3),
    ("train adult --learner lazybb --epsilon 50", 3),
    ("plan nope --epsilon 1", 2),
    ("plan adult --learner nope --epsilon 1", 2),
    ("plan adult --learner lazybb --epsilon -1", 2),
    ("plan adult --learner lazybb --epsilon 1 --set nope=1", 2),
    ("train adult --learner lazybb --epsilon 1 --set rounds", 2),
    ("tune adult --epsilon 1", 2),
    ("model show nope", 2),
    ("job show 99", 2),
    ("job cancel 3", 2),
    ("model promote adult@1", 2),
    ("model edit adult --feature age --zero all", 2),
    ("model edit adult --feature height --zero all --why x", 2),
    ("grant revoke 99 --reason x", 2),
)


def test_both_sides_print_the_same(server, laptop, said, monkeypatch):
    asked = [said(words) for words in SAME]
    refused = [said(words) for words, _ in REFUSED]
    for name in ("DPSERVE_URL", "DPSERVE_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DPSERVE_HOME", str(server.path))
    for words, (code, body, _) in zip(SAME, asked, strict=True):
        own = said(words)
        assert (code, plain(body)) == (0, plain(own[1])), words
    for (words, wanted), (code, body, err) in zip(REFUSED, refused, strict=True):
        own, told, hint = said(words)
        assert (code, body["error"]["code"]) == (own, told["error"]["code"]) == (wanted, told["error"]["code"]), words
        if code == 3:
            assert body == told
            assert err == hint


def test_train_predict_evaluate_and_verify(server, laptop, said):
    code, body, _ = said("train adult --learner lazybb --set rounds=20 --epsilon 0.5 --evaluate 0.5 --model far")
    assert (code, body["state"], body["version_state"]) == (0, "issued", "champion")
    assert body["evaluated"]["worth"]["part"] == "holdout"
    assert "envelope" not in body["evaluated"]["worth"]  # it was verified here
    assert body["certificate"]["statement"]
    key = "train adult --learner lazybb --set rounds=20 --epsilon 0.2 --model far --idempotency-key k"
    first, again = said(key), said(key)
    assert first[1]["job"] == again[1]["job"]
    assert first[1]["version_state"] == "candidate"
    assert said(f"{key} --promote")[0] == 2  # the key stands for another request
    code, body, _ = said(f"job watch {first[1]['job']}")
    assert (code, body["state"]) == (0, "issued")
    code, body, _ = said("verify far")
    assert (code, body["ok"], body["model"]) == (0, True, "far")
    assert "were not pinned here" not in said("verify far@2")[2]
    code, body, _ = said("model export far --portable --out", laptop / "far")
    assert code == 0
    with Client(f"http://127.0.0.1:{server.port}", server.tokens["predict"]) as service:
        packed = zipfile.ZipFile(io.BytesIO(service.bundle(body["model"], portable=True)))
    folder = body["model"].replace("@", "-")
    for name in ("portable.onnx", "portable.json"):  # made here, of what was verified; the server makes the same
        assert (laptop / "far" / name).read_bytes() == packed.read(f"{folder}/{name}")
    assert server.get("/v1/models/far/bundle?portable=yes").status_code == 400
    assert said("verify", laptop / "far")[1]["ok"]
    assert any(name.startswith("worth-") for name in body["files"])
    before = len(said("job list")[1]["jobs"])
    for measured in ("evaluate far --dataset adult", "profile adult"):
        for nowhere in (laptop / "none" / "report.html", laptop / "report.pdf"):  # told before anything is charged
            code, body, _ = said(f"{measured} --epsilon 0.2 --out", nowhere)
            assert (code, body["error"]["message"].partition("=")[0]) == (2, "out")
    assert len(said("job list")[1]["jobs"]) == before
    code, body, _ = said("evaluate far --dataset adult --epsilon 0.2 --out", laptop / "worth.html")
    assert (code, body["worth"]["model"]) == (0, "far")
    assert (laptop / "worth.html").exists()
    code, body, _ = said("profile adult --epsilon 0.2 --columns age --out", laptop / "age.html")
    assert code == 0, body
    assert [each["name"] for each in body["profile"]["columns"]] == ["age"]
    job, about = body["job"], []
    for kind in ("parquet", "csv"):
        made = laptop / f"age.synthetic.{kind}"
        code, body, _ = said(f"synthesize adult --from-profile {job} --rows 40 --out", made)
        about.append({name: value for name, value in body.items() if name != "out"})
        assert (code, body["rows"], body["dataset"], made.exists()) == (0, 40, "adult", True), body
    assert about[0] == about[1]
    assert made.read_text().splitlines()[1:] == [str(age) for age in pq.read_table(made.with_suffix(".parquet"))["age"]]


def test_an_edit_from_afar_is_a_version_that_verifies(server, laptop, said):
    edit = "model edit other --feature age --zero all --why x"
    code, body, _ = said(edit)
    assert (code, body["base"], body["champion"], body["epsilon_spent"]) == (0, "other@1", False, "0")
    assert body["edits"][0]["by"].startswith("token:admin")
    assert said(f"verify {body['model']}")[1]["ok"]
    code, again, _ = said(edit)
    assert (code, again["error"]["code"], again["error"]["details"]["model"]) == (2, "wrong_state", body["model"])
    assert said(f"{edit} --by me")[0] == 2


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_predictions_are_those_of_the_home(server, laptop, said, monkeypatch, kind):
    data, out = DATA / "adult_test.parquet", laptop / f"there.{kind}"
    keep = ["--keep", "age", "--keep", "workclass"]
    code, body, _ = said("predict adult --data", data, *keep, "--out", out)
    assert (code, body["records"]) == (0, 16281)
    for name in ("DPSERVE_URL", "DPSERVE_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DPSERVE_HOME", str(server.path))
    assert said("predict adult --data", data, *keep, "--out", laptop / f"here.{kind}")[0] == 0
    if kind == "csv":
        assert out.read_bytes() == (laptop / "here.csv").read_bytes()
    else:  # in other groups of rows
        assert pq.read_table(out).equals(pq.read_table(laptop / "here.parquet"))


def test_notes_say_what_was_clipped_unknown_or_missing_here_and_there(server, laptop, said, monkeypatch):
    """In JSON, in a table's column and in a file of either side; the answers themselves stay."""
    rows = pq.read_table(DATA / "adult_test.parquet").slice(0, 3).drop_columns(["income"])
    records = [dict(each) for each in rows.to_pylist()]
    records[0] |= {"age": 120, "workclass": "Astronaut", "sex": None}
    records[1] |= {"hours_per_week": -3}
    notes = [
        [
            {"field": "age", "note": "clipped", "to": "90"},
            {"field": "workclass", "note": "unknown"},
            {"field": "sex", "note": "missing"},
        ],
        [{"field": "hours_per_week", "note": "clipped", "to": "1"}],
    ]
    with Client(f"http://127.0.0.1:{server.port}", server.tokens["predict"]) as service:
        known, noted = service.predict("adult", records), service.predict("adult", records, notes=True)
        assert "notes" not in known.raw
        assert noted.raw["notes"][:2] == notes
        assert noted.raw == known.raw | {"notes": noted.raw["notes"]}
        wanted = {"model": "adult", "records": records}
        for query, why in (({"notes": "yes"}, "must be 1"), ({"note": "1"}, "note")):
            with pytest.raises(BadInput, match=why):
                service._transport.ask("POST", "/predict", again=True, body=wanted, query=query)
        table, sink = pa.Table.from_pylist(records), pa.BufferOutputStream()
        pa.csv.write_csv(table, sink)
        raw = sink.getvalue().to_pybytes()
        told = [*csv.DictReader(service.predict_table("adult", raw, "text/csv", notes=True).decode().splitlines())]
        with pytest.raises(BadInput, match="numbers alone"):
            service.predict_table("adult", raw, "text/csv", "application/x-npy", notes=True)
    text = "age clipped to 90; workclass unknown; sex missing"
    assert [each["notes"] for each in told[:2]] == [text, "hours_per_week clipped to 1"]
    pq.write_table(table, laptop / "rows.parquet")
    words = "predict adult --notes --data", laptop / "rows.parquet", "--out"
    assert said(*words, laptop / "there.csv")[0] == 0
    for name in ("DPSERVE_URL", "DPSERVE_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DPSERVE_HOME", str(server.path))
    assert said(*words, laptop / "here.csv")[0] == 0
    assert (laptop / "there.csv").read_bytes() == (laptop / "here.csv").read_bytes()
    assert text in (laptop / "here.csv").read_text()


def test_csv_over_rest_says_what_json_says(server):
    table = pq.read_table(DATA / "adult_test.parquet").slice(0, 50).drop_columns(["income"])
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table, sink)
    with Client(f"http://127.0.0.1:{server.port}", server.tokens["predict"]) as service:
        known = service.predict("adult", table.to_pylist())
        told = service.predict_table("adult", sink.getvalue().to_pybytes(), "text/csv").decode().splitlines()
        as_json = service.predict_table("adult", sink.getvalue().to_pybytes(), "text/csv", "application/json")
    lines = list(csv.reader(told))
    assert lines[0] == ["label", "p_<=50K", "p_>50K"]
    assert [line[0] for line in lines[1:]] == list(known.labels) == json.loads(as_json)["predictions"]
    assert np.array([line[1:] for line in lines[1:]], float) == pytest.approx(np.array(known.probabilities), abs=1e-7)


def test_grants_are_made_and_ended(server, laptop, said):
    home = server.home
    new_token(home, "shop", ["predict"])
    code, body, _ = said("grant add --principal shop --scope train --dataset adult")
    (grant,) = body["grants"]
    assert (code, grant["principal"]) == (0, "token:shop")
    code, body, err = said(f"grant revoke {grant['grant']} --reason over")
    assert (code, body["stops"]["tokens"]) == (0, ["shop"])
    assert "It gave train on dataset adult to: shop" in err
    assert [each.revoked is None for each in grants.grants(home.ledger) if each.index == grant["grant"]] == [False]


def test_campaigns_are_seen_and_ended_from_afar(server, laptop, said, monkeypatch):
    """The same words as at the home; a population is founded and a campaign opened there alone."""
    home = server.home
    owners.asking(laptop, home, 12, 4, "turns", learner="local-stump", rounds="2", epsilon="0.5")
    for number in (0, 2, 4):
        campaigns.receive(home, "turns", campaigns.invitation(home, "turns", number), 3)
    far = [said(words) for words in ("campaign show", "campaign show turns")]
    assert said("campaign next turns")[:2] == (0, campaigns.state(home, "turns"))
    assert campaigns.state(home, "turns")["turn"] == 2
    assert said("campaign close turns")[0] == 5  # 3 reports; 4 were declared
    owners.asking(laptop, home, 12, 4, "stuck", epsilon="0.5")
    code, body, _ = said("campaign give-up stuck --reason late")
    assert (code, body["state"]) == (0, "burned")
    refused = [said(words)[:2] for words in ("campaign show none", "campaign give-up stuck --reason again")]
    assert [code for code, _ in refused] == [2, 2]
    assert said(f"campaign open more --population folk --epsilon 1 --owners 4 --invitations {laptop}/i")[0] == 2
    monkeypatch.delenv("DPSERVE_URL")
    monkeypatch.setenv("DPSERVE_HOME", str(server.path))
    assert [said(words)[:2] for words in ("campaign show none", "campaign give-up stuck --reason again")] == refused
    shown = said("campaign show turns")[1]
    assert far[1][1].keys() == shown.keys() == far[0][1]["campaigns"][0].keys()
    assert (far[1][1]["turn"], shown["turn"], shown["state"]) == (1, 2, "burned")


def test_who_may_not_is_told_so(server, laptop, said, monkeypatch):
    monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["predict"])
    code, body, _ = said("train adult --epsilon 1")
    assert (code, body["error"]["code"]) == (3, "forbidden")
    monkeypatch.setenv("DPSERVE_TOKEN", "dps_wrong")
    code, body, err = said("dataset list")
    assert (code, body["error"]["code"]) == (3, "unauthorized")
    assert "dpserve login" in err
    monkeypatch.delenv("DPSERVE_TOKEN")
    assert "DPSERVE_TOKEN" in said("dataset list")[2]
    monkeypatch.setenv("DPSERVE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DPSERVE_TOKEN", "x")
    monkeypatch.setattr(connection, "RETRIES", 0)
    code, body, _ = said("dataset list")
    assert (code, body["error"]["code"]) == (1, "unreachable")


def leaves(nodes=TREE, above=()):
    for name, node in nodes.items():
        if isinstance(node, Branch):
            yield from leaves(node.leaves, (*above, name))
        else:
            yield (*above, name), node


def test_what_needs_a_home_says_what_to_do_instead(laptop, said, monkeypatch):
    at_home = [(words, leaf) for words, leaf in leaves() if leaf.needs is choice.Needs.HOME]
    assert {"serve", "worker", "init"} <= {words[0] for words, _ in at_home}
    for words, leaf in at_home:
        code, body, err = said(" ".join(words))
        assert (code, body["error"]["code"]) == (2, "bad_input"), words
        assert "works where the home is" in err, words
        assert leaf.instead in err, words
    monkeypatch.setenv("DPSERVE_HOME", str(laptop / "home"))
    code, _, err = said("dataset list")
    assert code == 2
    assert "only one is meant" in err
    assert said("init")[0] == 0  # of what needs a home no server can be meant


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://dp.example.org", "anybody on the way"),
        ("http://10.0.0.7:3000", "anybody on the way"),
        ("https://me:secret@dp.example.org", "must not hold a name"),
        ("ftp://dp.example.org", "must be an address"),
        ("dp.example.org", "must be an address"),
        ("https://dp.example.org/?x=1", "must be an address"),
    ],
)
def test_a_token_is_sent_to_no_such_address(url, why):
    with pytest.raises(InputError, match=why) as refused:
        connection.check_address(url)
    assert "secret" not in refused.value.message
    for fine in ("http://127.0.0.1:3000", "http://localhost", "http://[::1]:3000", "https://dp.example.org/dp"):
        connection.check_address(fine)


def test_login_is_kept_for_its_user_alone(server, laptop, said, monkeypatch, capsys):
    for name in ("DPSERVE_URL", "DPSERVE_TOKEN"):
        monkeypatch.delenv(name)
    url, file = f"http://127.0.0.1:{server.port}", laptop / "config" / "dpserve" / "login.json"
    monkeypatch.setattr(sys, "stdin", io.StringIO("dps_wrong\n"))
    assert said(f"login {url}")[0] == 3
    assert not file.exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{server.tokens['train']}\n"))
    code, body, err = said(f"login {url}/")
    assert (code, body["url"]) == (0, url)
    assert "were not pinned here" in err
    assert server.tokens["train"] not in json.dumps(body) + err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert said("dataset list")[0] == 0
    assert said("ledger audit")[0] == 3  # of a token that may train
    monkeypatch.setenv("DPSERVE_URL", "")  # a blank variable of a script names no server
    assert said("dataset list")[0] == 0
    monkeypatch.setenv("DPSERVE_TOKEN", "dps_\u00e9")
    assert said("dataset list")[1]["error"]["message"].startswith("DPSERVE_TOKEN: token: must be what")
    monkeypatch.delenv("DPSERVE_TOKEN")
    capsys.readouterr()
    assert run([]) == 0
    assert url in capsys.readouterr().out
    kept = file.read_text()
    for damaged in ("[]", "{}", "{"):
        file.write_text(damaged)
        assert "dpserve logout removes it" in said("dataset list")[1]["error"]["message"]
    file.write_text(kept)
    file.chmod(0o644)
    assert said("dataset list")[0] == 2
    assert said("logout")[1]["was"]
    assert not file.exists()
    assert said("dataset list")[0] == 2  # there is no home here


@contextmanager
def between(server, change):
    """A server that passes on what another says, changed: `change(path, body)` gives the bytes that come back."""

    class Liar(BaseHTTPRequestHandler):
        def do_GET(self):
            headers = {"Authorization": self.headers["Authorization"]}
            answer = httpx.get(f"http://127.0.0.1:{server.port}{self.path}", headers=headers, timeout=60)
            body = change(self.path, answer.content)
            self.send_response(302 if body is None else answer.status_code)
            if body is None:
                self.send_header("Location", f"http://127.0.0.1:{server.port}{self.path}")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_address[1]}"
        found.shutdown()


def in_bundle(raw, name, change):
    """The zip file with one of its files changed."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(changed, "w") as new:
        for each in old.namelist():
            content = old.read(each)
            new.writestr(each, change(content) if each.endswith(name) else content)
    return changed.getvalue()


def test_a_zip_file_that_cannot_be_read_is_no_model():
    """Encrypted, of an unknown method, cut within, or with a broken file: words, never another error."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/card.md", "words " * 1000)
    raw = whole.getvalue()
    data, entry = raw.index(b"card.md") + len(b"card.md"), raw.index(b"PK\1\2")
    changes = {6: b"\1", entry + 8: b"\1", 8: b"\x63", entry + 10: b"\x63", data: b"\xff\xff\xff", data + 9: b"\0\0\0"}
    changes |= {
        14: b"\0\0\0\0",
        entry + 16: b"\0\0\0\0",
        entry + 42: b"\xff\xff\xff\x7f",
        entry + 20: b"\xff\xff\xff\x7f",
    }
    broken = [raw[:at] + change + raw[at + len(change) :] for at, change in changes.items()]
    for spoilt in (*broken, raw[: len(raw) // 2], raw[:data] + raw[data + 20 :], b"", raw):
        with pytest.raises(ModelInvalid, match="not the files"):
            bundle_of(spoilt)


def test_a_server_that_lies_is_found_out(server, laptop, said, monkeypatch, tmp_path_factory):
    """By the keys that were pinned: the model's bytes, an entry, a ledger that was cut back, keys of its own."""
    lies = {}
    with between(server, lambda path, body: lies.get(path.partition("?")[0], lambda b: b)(body)) as url:
        monkeypatch.setenv("DPSERVE_URL", url)
        assert said("verify adult")[1]["ok"]
        sound = said("ledger audit")[1]
        assert sound["ok"], sound
        lies["/v1/models/adult@1/bundle"] = lambda raw: in_bundle(raw, "model.onnx", lambda each: each + b"x")
        for words in ("verify adult", "model show adult", "model explain adult", "model export adult --out x"):
            code, body, _ = said(words)
            assert code == 4, (words, body)
        lies["/v1/models/adult@1/bundle"] = lambda raw: b"no zip file"
        assert said("verify adult")[0] == 4
        lies.clear()
        lies["/v1/ledger"] = lambda raw: raw.replace(b'\\"epsilon\\":\\"1\\"', b'\\"epsilon\\":\\"0.5\\"', 1)
        assert said("ledger audit")[0] == 4
        lies["/v1/models"] = lambda raw: b'{"models": []}'  # whose proofs would give it away
        lies["/v1/ledger"] = lambda raw: json.dumps(cut(json.loads(raw), "entries", "index", 3)).encode()
        lies["/v1/ledger/checkpoints"] = lambda raw: json.dumps(cut(json.loads(raw), "checkpoints", "size", 4)).encode()
        code, body, _ = said("ledger audit")
        assert (code, body["ok"]) == (4, False)
        lies.clear()
        stranger = Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("stranger") / "home")})
        lies["/v1/trust"] = lambda raw: stranger.trust.to_json()
        for words in ("verify adult", "ledger audit", "ledger export --out y"):
            code, body, err = said(words)
            assert code == 4, words
            assert "other keys than those that were pinned" in err + json.dumps(body)
        assert said("dataset list")[0] == 4  # nothing else that it says is believed either
        lies.clear()
        with Client(url, server.tokens["audit"]) as service:
            old = next(note for size, note in service.checkpoints() if size > 2)
        lies["/v1/ledger/checkpoint"] = lambda raw: old.encode()
        for words in ("dataset list", "plan adult --learner lazybb --epsilon 0.5", "verify adult", "ledger audit"):
            code, body, err = said(words)
            assert code == 4, words
            assert "rolled back" in err + json.dumps(body), words
        lies.clear()
        lies["/v1/datasets"] = lambda raw: None  # sends the client elsewhere
        code, body, _ = said("dataset list")
        assert (code, body["error"]["code"]) == (2, "redirected")


def cut(body, key, number, most):
    return {**body, key: [each for each in body[key] if each[number] <= most]}


def test_keys_that_came_another_way(server, laptop, said, tmp_path):
    """Given at login, nothing is taken on first use; keys of somebody else are refused before the token is kept."""
    shutil.copy(server.path / "trust.json", tmp_path / "trust.json")
    url = f"http://127.0.0.1:{server.port}"
    code, _, err = said(f"login {url} --trust", tmp_path / "trust.json")
    assert (code, "first use" in err) == (0, False)
    stranger = Home.init({"DPSERVE_HOME": str(tmp_path / "stranger")})
    assert said(f"login {url} --trust", stranger.path / "trust.json")[0] == 4
    assert said("ledger audit --trust", stranger.path / "trust.json")[0] == 4


LIGHT = ("dataset list", "dataset show adult", "plan adult --epsilon 0.5", "job list", "model list", "grant list")


def test_a_laptop_loads_neither_learners_nor_the_server(server, laptop):
    """A real process: after all of them, and what predicts, no compiler, no learner and no server was loaded."""
    kept_out = {
        "numba",
        "sklearn",
        "scipy",
        "bentoml",
        "starlette",
        "onnxruntime",
        "training.learners.base.private_learner",
    }
    own = {name: value for name, value in environment(laptop).items() if name != "DPSERVE_HOME"}
    own |= {"DPSERVE_URL": f"http://127.0.0.1:{server.port}", "DPSERVE_TOKEN": server.tokens["admin"]}
    out = laptop / "out.csv"
    typed = [words.split() for words in (*LIGHT, f"predict adult --data {DATA / 'adult_test.parquet'} --out {out}")]
    look = "import sys; from serving.cli.app import run\n"
    look += f"for words in {typed!r}:\n"
    look += f"    assert run(words) == 0, words\n    print(words, {kept_out!r} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, env=own, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [f"{typed[-1]} set()"], (done.stdout[-3000:], done.stderr[-1000:])


def test_intervals_of_noise_and_sets_that_cover_are_the_same_here_and_there_and_refused_where_nobody_can_tell(
    server, laptop, said, monkeypatch
):
    """In JSON, in a table's columns and in a file of either side; the answers themselves stay."""
    words = "train adult --learner ebm --set epochs=2 --set pairs=0 --epsilon 0.5 --model curves"
    assert said(words)[0] == 0
    rows = pq.read_table(DATA / "adult_test.parquet").slice(0, 200).drop_columns(["income"])
    pq.write_table(rows, laptop / "rows.parquet")
    records = [dict(each) for each in rows.slice(0, 3).to_pylist()]
    with Client(f"http://127.0.0.1:{server.port}", server.tokens["admin"]) as service:
        plain, wide, wider = (service.predict("curves", records, interval=level) for level in (None, 0.9, 0.99))
        assert plain.raw | {"interval": wide.raw["interval"]} == wide.raw
        assert wide.raw["interval"]["level"] == 0.9
        for chances, near, far in zip(
            plain.raw["probabilities"], wide.raw["interval"]["ends"], wider.raw["interval"]["ends"], strict=True
        ):
            assert 0 < far[0] < near[0] < chances[1] < near[1] < far[1] < 1
        edits = [{"feature": "age", "zero": "..25"}]
        edited = service.edit("curves", edits, "a trial")["model"]
        for model, level, why in (
            ("adult", 0.9, "this is one of lazybb; .*without an interval"),
            (edited, 0.9, "edited by hand; ask the version"),
            ("curves", 9, "for instance .9"),
        ):
            with pytest.raises(BadInput, match=why):
                service.predict(model, records, interval=level)
        sink = pa.BufferOutputStream()
        pa.csv.write_csv(rows.slice(0, 3), sink)
        raw = sink.getvalue().to_pybytes()
        lines = [*csv.DictReader(service.predict_table("curves", raw, "text/csv", interval=0.9).decode().splitlines())]
        assert [[float(line["low"]), float(line["high"])] for line in lines] == wide.raw["interval"]["ends"]
        with pytest.raises(BadInput, match="interval: a .npy"):
            service.predict_table("curves", raw, "text/csv", "application/x-npy", interval=0.9)
    words = "predict curves --interval .9 --data", laptop / "rows.parquet", "--out"
    assert said(*words, laptop / "there.csv")[0] == 0
    for name in ("DPSERVE_URL", "DPSERVE_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DPSERVE_HOME", str(server.path))
    assert said(*words, laptop / "here.csv")[0] == 0
    assert (laptop / "there.csv").read_bytes() == (laptop / "here.csv").read_bytes()
    assert (laptop / "here.csv").read_text().splitlines()[0] == '"label","p_<=50K","p_>50K","low","high"'
    assert said("evaluate curves --dataset adult --epsilon 2 --cover")[0] == 0
    words = "predict curves --cover .8 --data", laptop / "rows.parquet", "--out"
    assert said(*words, laptop / "here.csv")[0] == 0
    with Client(f"http://127.0.0.1:{server.port}", server.tokens["admin"]) as service:
        found = service.predict("curves", records, cover=0.8).raw
        promised = service.model("curves")["worth"][0]
        assert (found["cover"]["level"], found["cover"]["statement"]) == (0.8, promised["entry"])
        assert plain.raw | {"cover": found["cover"]} == found
        for model, level, group, why in (
            ("adult", 0.8, None, "evaluate adult --dataset NAME --epsilon E --cover"),
            ("curves", 0.8, "sex", "by the groups of sex"),
            ("curves", 3, None, "for instance .9"),
        ):
            with pytest.raises(BadInput, match=why):
                service.predict(model, records, cover=level, group=group)
    lines = [*csv.DictReader((laptop / "here.csv").read_text().splitlines())][:3]
    sets = [[name.removeprefix("in_") for name in ("in_<=50K", "in_>50K") if line[name] == "true"] for line in lines]
    assert sets == found["cover"]["sets"]
    monkeypatch.delenv("DPSERVE_HOME")
    monkeypatch.setenv("DPSERVE_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["admin"])
    assert said(*words, laptop / "there.csv")[0] == 0
    assert (laptop / "there.csv").read_bytes() == (laptop / "here.csv").read_bytes()
    code, refused, _ = said("predict adult --interval .9 --data", laptop / "rows.parquet", "--out", laptop / "no.csv")
    assert (code, refused["error"]["code"]) == (2, "bad_input")
