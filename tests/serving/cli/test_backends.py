"""Every command that works with a home and with a server, with each: the same exit code, JSON, and words of errors."""

from __future__ import annotations

import json
import shlex

import ledgers
import owners
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from small_home import records, serving, until, write_files

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.home import Home
from serving.cli.app import TREE, run
from serving.cli.backends.choice import Needs
from serving.cli.tree import Branch
from serving.process.tokens import new_token

pytestmark = [pytest.mark.slow, pytest.mark.server]

SIDES = ("server", "home")
DATASETS = {"server": "adult", "home": "german"}
# Where it is, who asked, when, and what the other side's own run had already changed.
OF_ITS_SIDE = {"folder", "statement", "forecast", "time", "at", "by", "home", "file"}
FEW = "--learner lazybb --set rounds=5 --epsilon 0.1"

# What reads: the same values.
READS = (
    "dataset list",
    "dataset show adult",
    f"plan adult {FEW}",
    f"plan adult {FEW} --curve",
    f"plan adult {FEW} --model mine --evaluate 0.1",
    "tune adult --learner lazybb --epsilon 1 --grid rounds=20,40 --plan",
    "evaluate adult --dataset adult --epsilon 0.1 --plan",
    "profile adult --epsilon 0.1 --plan --columns age --columns sex --pairs age,sex",
    'query adult "select sex, count(*), avg(age) from adult where age > 30 group by sex" --epsilon 0.1 --plan',
    'charge adult --rho 0.01 --mechanism "a table" --why published --plan',
    'charge adult --from history.json --mechanism "DP-SGD" --why "a pilot" --plan',
    "synthesize adult --epsilon 0.1 --plan",
    "predict adult --data rows.csv --out OUT.csv",
    "predict german --data german.csv --out OUT.csv",
    "verify adult",
    "verify adult@1 --certificate",
    "model list",
    "model list --limit 1 --contains adult",
    "dataset list --limit 1",
    "dataset list --limit 1 --after adult",
    "token list --limit 1 --contains a",
    "grant list --limit 1",
    "schedule list --limit 1",
    "model show adult",
    "model show other --certificate",
    "model export adult --out OUT",
    "model explain adult",
    "model explain adult --compare other",
    "model edit adult --feature age --show",
    "model edit adult --feature age --zero all --dry-run",
    "job list",
    "job list --limit 201",
    "job list --limit 2",
    "job show JOB",
    "job watch JOB",
    "campaign show",
    "campaign show survey",
    "dataset note adult",
    "model note adult@1",
    "schedule list",
    "grant list",
    "grant list --principal shop",
    "token list",
    "person adult",
    "ledger audit",
    "ledger checkpoint",
    "ledger export --out OUT",
)
# What changes something: each side changes it once more, and the JSON has the same keys.
CHANGES = (
    f"train adult {FEW} --model SIDE",
    f"train adult {FEW} --model SIDE --evaluate 0.1 --promote",
    "tune adult --learner lazybb --epsilon 0.2 --grid rounds=5,6 --runs 2 --model tuned-SIDE",
    "evaluate adult --dataset adult --epsilon 0.1",
    "profile adult --epsilon 0.1 --columns age",
    'query adult "select sex, count(*), avg(age) from adult where age > 30 group by sex" --epsilon 0.1',
    'query adult "select count(*) from adult where age > 30"',
    "model edit other --feature age --set ..30=VALUE --why x",
    "model promote other@NUMBER --why x --although-not-better",
    "model retire other@4 --why x",
    "model restore other@4 --why x",
    "dataset note SET --text x --tag a --tag b",
    "model note other --tag a",
    "charge adult --epsilon 0.001 --mechanism table-SIDE --why x",
    "dataset retire SET --reason x",
    "dataset restore SET --reason x",
    "grant add --principal shop --scope train --dataset SET",
    "grant revoke GRANT --reason over",
    "schedule add SIDE --dataset adult --epsilon 0.01 --learner lazybb --every week --start 2099-01-05T06:00",
    "schedule remove SIDE",
    "job cancel WAITING",
    "campaign give-up stuck-SIDE --reason late",
)
# What is refused: the same code and the same words.
REFUSED = (
    ("dataset show nope", 2),
    ("dataset show ''", 2),
    ("dataset show a/b", 2),
    ("dataset show ..", 2),
    ("plan adult --learner lazybb --epsilon 50", 3),
    ("train adult --learner lazybb --epsilon 50", 3),
    ("train adult --learner lazybb --epsilon 1 --set rounds", 2),
    ("tune adult --epsilon 1", 2),
    ("evaluate nope --dataset adult --epsilon 0.1 --plan", 2),
    ("profile nope --epsilon 0.1 --plan", 2),
    ("query nope 'select count(*) from nope' --epsilon 0.1", 2),
    ("query adult 'select max(age) from adult' --epsilon 0.1", 2),
    ("query adult 'select count(fnlwgt) from adult'", 2),
    ("predict nope --data rows.csv --out OUT.csv", 2),
    ("predict '' --data rows.csv --out OUT.csv", 2),
    ("predict german --data points.csv --out OUT.csv", 2),
    ("verify nope", 2),
    ("verify no/such", 2),
    ("verify none.onnx", 2),
    ("model show nope", 2),
    ("model show ''", 2),
    ("model show a/b", 2),
    ("model show adult@x", 2),
    ("model show adult@9", 2),
    ("model explain nope", 2),
    ("model export nope --out OUT", 2),
    ("model edit adult --feature age --zero all", 2),
    ("model edit adult --feature height --zero all --why x", 2),
    ("model promote adult@1 --why x", 2),
    ("model promote adult --why x", 2),
    ("model retire nope@1 --why x", 2),
    ("dataset withdraw nope --reason x", 2),
    ("charge nope --rho 0.001 --mechanism x --why x", 2),
    ("charge adult --rho 90 --mechanism x --why x", 3),
    ("charge adult --rho 0.1 --mu 0.1 --mechanism x --why x", 2),
    ("dataset note nope --text x", 2),
    ("model note nope", 2),
    ("dataset note adult --tag <", 2),
    ("dataset retire nope --reason x", 2),
    ("job watch 999", 2),
    ("job cancel JOB", 2),
    ("campaign show nope", 2),
    ("campaign show ''", 2),
    ("campaign next nope", 2),
    ("campaign close nope", 2),
    ("campaign give-up nope --reason x", 2),
    ("schedule remove ''", 2),
    ("grant add --principal team --scope nope", 2),
    ("grant revoke 99999 --reason x", 2),
)

GERMAN = """target: {name: ill, classes: ["no", "yes"]}
records: 200
features:
  lab: {type: numeric, range: [0, 2000], bins: 8}
  smokes: {type: boolean}
format: {delimiter: semicolon, decimal: ",", true_words: [ja], false_words: [nein]}
"""


def write_rows(folder):
    """Rows of the model `adult` as usual, and of the model `german` as its schema says, and as it does not."""
    schema = pq.read_schema(folder / "rows.parquet")
    table = pq.read_table(folder / "rows.parquet").slice(0, 300).drop_columns([schema.names[-1]])
    assert set(table.column_names) >= set(records(1)[0])
    arrow_csv.write_csv(table, folder / "rows.csv")
    lines = [f"{i},5;{('ja', 'nein')[i % 2]};{('yes', 'no')[i % 2]}" for i in range(200)]
    (folder / "german.csv").write_text("\n".join(["lab;smokes;ill", *lines, ""]))
    (folder / "points.csv").write_text("lab;smokes\n4.321;ja\n")
    (folder / "history.json").write_text('{"history": [[4.0, 0.01, 30]], "mechanism": "rdp"}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backends")
    files = write_files(folder / "files")
    write_rows(files)
    (files / "german.yaml").write_text(GERMAN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(folder / "home"))
        patch.chdir(files)
        for words in (
            "init",
            "dataset register adult --data rows.parquet --schema schema.yaml --epsilon 8 --delta 1e-5 --unit record "
            "--holdout 0.3",
            "dataset register german --data german.csv --schema german.yaml --epsilon 3 --delta 1e-5 --unit record "
            "--new-people --reason others",
            *(f"train adult --learner lazybb --set rounds=80 --epsilon 0.5 --model {name}" for name in MODELS),
            "train german --learner lazybb --set rounds=5 --epsilon 0.5",
            "evaluate adult --dataset adult --epsilon 0.1",
            "schedule add weekly --dataset adult --epsilon 0.01 --learner lazybb --start 2099-01-05T06:00",
        ):
            assert run(words.split()) == 0, words
        home = Home.open()
        new_token(home, "shop", ["predict"])
        for name in ("survey", *(f"stuck-{side}" for side in SIDES)):
            owners.asking(files, home, 12, 4, name, epsilon="0.5")
    with serving(folder / "home", workers=1) as found:
        for name in DATASETS.values():  # a list has the prices that its process was asked for
            until(lambda name=name: found.get(f"/v1/datasets/{name}").status_code == 200, f"{name} is priced")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPSERVE_HOME", str(folder / "home"))
            assert [run(["dataset", "show", name]) for name in DATASETS.values()] == [0, 0]
        yield found


MODELS = ("adult", "other", "other", "other", "other")


@pytest.fixture
def ask(server, tmp_path, monkeypatch, capsys):
    """Run a command with a side: (exit code, stdout as JSON)."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(server.path.parent / "files")

    def call(side, text):
        for name in ("DPSERVE_HOME", "DPSERVE_URL", "DPSERVE_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        if side == "home":
            monkeypatch.setenv("DPSERVE_HOME", str(server.path))
        else:
            monkeypatch.setenv("DPSERVE_URL", f"http://127.0.0.1:{server.port}")
            monkeypatch.setenv("DPSERVE_TOKEN", server.tokens["admin"])
        text = text.replace("JOB", str(server.home.ledger.jobs()[0].seq)) if "JOB" in text else text
        words = [word.replace("OUT", str(tmp_path / side)) for word in shlex.split(text)]
        capsys.readouterr()
        code = run([*words, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def shared(body):
    """Without what is of one side."""
    if isinstance(body, dict):
        return {key: shared(value) for key, value in body.items() if key not in OF_ITS_SIDE}
    return [shared(each) for each in body] if isinstance(body, list) else body


def keys(body):
    """The keys, at every depth; of a list those of its items together."""
    if isinstance(body, dict):
        return {key: keys(value) for key, value in body.items()}
    if isinstance(body, list):
        return sorted({json.dumps(keys(each), sort_keys=True) for each in body})
    return None


@pytest.mark.parametrize("words", READS)
def test_what_reads_says_the_same(ask, tmp_path, words):
    (code, far), (at_home, near) = (ask(side, words) for side in SIDES)
    assert (code, at_home) == (0, 0), (far, near)
    far, near = (json.loads(json.dumps(shared(body)).replace(f"{tmp_path}/{side}", "OUT")) for body, side in
                 ((far, "server"), (near, "home")))  # fmt: skip
    assert far == near
    if "OUT.csv" in words:
        assert (tmp_path / "server.csv").read_bytes() == (tmp_path / "home.csv").read_bytes()


@pytest.mark.parametrize("words", CHANGES)
def test_what_changes_something_gives_the_same_keys(ask, server, words):
    found = []
    for value, side in enumerate(SIDES, 1):
        text = words.replace("SIDE", side).replace("SET", DATASETS[side])
        text = text.replace("VALUE", f"0.{value}").replace("NUMBER", str(value + 1))
        if "GRANT" in text:
            (made,) = grants.add(server.home.ledger, [Grant("token:shop", "train", "family", DATASETS[side])], "test")
            text = text.replace("GRANT", str(made.index))
        for _ in range(20):  # the server's worker may be quicker to take a waiting job
            job = "WAITING" in text and ledgers.reserve(
                server.home.ledger, ledgers.request("adult", "0.02"), ledgers.plan(count=1)
            )
            code, body = ask(side, text.replace("WAITING", str(job.seq)) if job else text)
            if code == 0 or not job:
                break
        assert code == 0, body
        body.pop("evaluated", None)  # at the home the server's worker may come first
        body.pop("chosen", None)  # of a random number of runs, which may be 0
        found.append(keys(body))
    assert found[0] == found[1]


@pytest.mark.parametrize(("words", "code"), REFUSED)
def test_what_is_refused_is_refused_in_the_same_words(ask, words, code):
    (far, said_far), (near, said_near) = (ask(side, words) for side in SIDES)
    assert (far, near) == (code, code), (said_far, said_near)
    assert shared(said_far) == shared(said_near)


def test_no_command_is_left_out():
    """Each that works with both is run above, by itself and, where it can be, refused."""
    both = {
        f"{group} {name}".strip()
        for group, node in TREE.items()
        for name, leaf in (node.leaves.items() if isinstance(node, Branch) else [("", node)])
        if leaf.needs is Needs.EITHER
    }
    asked = {words for line in (*READS, *CHANGES, *(words for words, _ in REFUSED)) for words in
             (line.partition(" ")[0], " ".join(line.split()[:2]))}  # fmt: skip
    assert both - asked == set()
