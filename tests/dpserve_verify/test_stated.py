"""Statements of counts, by the small verifier and by the whole one: the same verdict, price and place."""

from __future__ import annotations

import base64
import json
import shutil

import pytest
from small_home import adult_home, dpserve

from accountant.certificates.profile import PROFILE
from accountant.certificates.worth import WORTH
from dpserve_verify.command.program import main
from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.keys.trust import PublicKeys
from serving.cli.backends.server.statements import verified

pytestmark = pytest.mark.slow
SELECT = "select sex, count(*) from adult group by sex"
SAME = ("ok", "epsilon", "delta", "relation", "entry", "problems")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with a model's bundle, which has a statement of worth, and a profile and an answer."""
    place = tmp_path_factory.mktemp("stated")
    home = adult_home(place, epsilon=20).path
    for words in (
        ["train", "adult", "--learner", "lazybb", "--epsilon", "2", "--set", "rounds=5"],
        ["evaluate", "adult", "--dataset", "adult", "--part", "training", "--epsilon", "2"],
        ["profile", "adult", "--epsilon", "2"],
        ["query", "adult", SELECT, "--epsilon", "1"],
        ["model", "export", "adult", "--out", str(place / "bundle")],
    ):
        done = dpserve(home, *words)
        assert done.returncode == 0, done.stdout + done.stderr
    (worth,) = (place / "bundle").glob("worth-*.dsse.json")
    (profile,), (answer,) = (list((home / "profiles").glob(f"*/{word}.dsse.json")) for word in ("profile", "answer"))
    return home, {"worth": worth, "profile": profile, "answer": answer}


@pytest.fixture
def verify(exported, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(path, *words):
        code = main([str(path), "--trust", str(exported[0] / "trust.json"), *words])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize("kind", [WORTH, PROFILE], ids=lambda kind: kind.word)
def test_figures_of_a_server_are_those_that_were_signed(exported, kind):
    """A server that shows other figures beside a sound statement is not repeated."""
    home, statements = exported
    path = statements[kind.word]
    proof = path.with_name(path.name.replace(".dsse.json", ".tlog-proof")).read_text()
    honest = {"job": 7, "envelope": json.loads(path.read_bytes()), "proof": proof}
    boasts = {**honest, "metrics": [], "better": True, "outcome": "better", "columns": [], "epsilon": "0.001"}
    keys = PublicKeys.from_json((home / "trust.json").read_bytes())
    stated, shown = verified(kind, boasts, keys)
    assert shown == verified(kind, honest, keys)[1]
    assert shown["epsilon"] == stated.form.claim.epsilon != "0.001"
    assert shown["metrics" if kind is WORTH else "columns"]
    with pytest.raises(CertificateInvalid):  # of another kind
        verified(PROFILE if kind is WORTH else WORTH, honest, keys)


@pytest.mark.parametrize("word", ["worth", "profile", "answer"])
def test_both_verifiers_say_the_same(exported, verify, word):
    home, statements = exported
    path = statements[word]
    code, out = verify(path, "--json")
    whole = dpserve(home, "verify", str(path), "--trust", str(home / "trust.json"), "--json")
    assert (code, whole.returncode) == (0, 0), out + whole.stdout
    found, by_all = json.loads(out), json.loads(whole.stdout)
    assert {key: found[key] for key in (*SAME, word)} == {key: by_all[key] for key in (*SAME, word)}
    about = "model" if word == "worth" else "dataset"
    assert found[about] == by_all[about] == "adult"
    assert "not derived again" in found["figures"]
    code, out = verify(path)
    assert code == 0
    assert out.startswith("verified: ")


def changed(path, folder, change):
    """A copy of a statement and its proof, with its payload changed."""
    proof = path.with_name(path.name.replace(".dsse.json", ".tlog-proof"))
    copied = folder / path.name
    shutil.copy(proof, folder / proof.name)
    envelope = json.loads(path.read_text())
    payload = base64.b64decode(envelope["payload"])
    envelope["payload"] = base64.b64encode(change(payload)).decode()
    copied.write_text(json.dumps(envelope))
    return copied


@pytest.mark.parametrize("word", ["worth", "profile", "answer"])
def test_what_was_changed_or_is_of_another_entry_is_not_verified(exported, verify, tmp_path, word):
    path = exported[1][word]
    code, out = verify(changed(path, tmp_path, lambda payload: payload.replace(b'"delta":"', b'"delta":"1', 1)))
    assert code == 4
    assert out.startswith("NOT VERIFIED: ")
    other = exported[1]["answer" if word == "profile" else "profile"]
    shutil.copy(
        other.with_name(other.name.replace(".dsse.json", ".tlog-proof")), tmp_path / f"{path.name[:-10]}.tlog-proof"
    )
    shutil.copy(path, tmp_path / path.name)
    code, out = verify(tmp_path / path.name)
    assert code == 4
    (tmp_path / f"{path.name[:-10]}.tlog-proof").unlink()
    assert verify(tmp_path / path.name)[0] == 2


def test_a_bundle_vouches_for_what_it_is_worth(exported, verify, tmp_path):
    _, statements = exported
    bundle = shutil.copytree(statements["worth"].parent, tmp_path / "bundle")
    code, out = verify(bundle)
    assert code == 0
    assert "worth-" not in out
    assert verify(bundle, "--strict")[0] == 0
    with (bundle / statements["worth"].name).open("ab") as file:
        file.write(b" x")
    assert verify(bundle)[0] == 4
    moved = bundle / "worth-9.dsse.json"
    shutil.copy(statements["profile"], moved)  # signed, and about no model
    (bundle / statements["worth"].name).unlink()
    shutil.copy(statements["profile"].with_name("profile.tlog-proof"), bundle / "worth-9.tlog-proof")
    assert verify(bundle)[0] == 4


def test_a_certificate_by_itself_is_no_statement_of_counts(exported, verify, tmp_path):
    bundle = exported[1]["worth"].parent
    for suffix in (".dsse.json", ".tlog-proof"):
        shutil.copy(bundle / f"model.onnx{suffix}", tmp_path / f"model.onnx{suffix}")
    code, out = verify(tmp_path / "model.onnx.dsse.json")
    assert (code, "predicateType" in out) == (4, True)
