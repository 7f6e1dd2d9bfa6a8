"""Bundles and the store on disk: whole or not there, one reader's pass, names that cannot leave the root."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import fields, replace

import ledgers
import pytest
import warm
from onnx import ModelProto, helper

from accountant.errors import NameTaken, NothingServed, UnknownName
from accountant.home import Home
from dpserve_verify.certificates.bundle import FILES, Bundle, read_bundle
from dpserve_verify.errors import InputError, ModelInvalid
from models.features.features import CategoricalFeature, NumericFeature
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.forms.trees import TreeEnsemble
from models.forms.voting import VotingEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from models.parts.trees import Leaf, Split
from models.parts.votes import Vote
from models.store import bundle as module
from models.store.bundle import ModelStore, write_bundle
from models.store.loading import load_verified
from training.finish import release
from training.jobs import job
from training.requests import JobRequest

ENSEMBLE = VotingEnsemble(
    (NumericFeature("age", (18.0, 0.1 + 20.2)), CategoricalFeature("work", ("é", "b"))),
    "income",
    ("a", "b"),
    (Vote("above", 0, 1, 2), Vote("is", 1, 0, -1)),
    0.1 + 0.2,
)
BUNDLE = Bundle(b"onnx", b"envelope", b"sigstore", b"proof", ensemble_bytes(ENSEMBLE), b"card")


def other(number):
    return replace(BUNDLE, onnx=f"onnx {number}".encode())


# ---- one bundle ---------------------------------------------------------------------------------------------------


def test_files_are_the_contract():
    assert list(FILES) == [
        "model.onnx",
        "model.onnx.dsse.json",
        "model.onnx.sigstore.json",
        "model.onnx.tlog-proof",
        "ensemble.json",
        "card.md",
    ]
    assert [field for field, _ in FILES.values()] == [field.name for field in fields(Bundle)]


def test_write_and_read(tmp_path):
    write_bundle(tmp_path / "out", BUNDLE)
    assert read_bundle(tmp_path / "out") == BUNDLE
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "model.onnx").read_bytes() == b"onnx"


@pytest.mark.parametrize("make", ["mkdir", "touch", "symlink"])
def test_nothing_is_overwritten(tmp_path, make):
    target = tmp_path / "out"
    target.symlink_to(tmp_path / "nowhere") if make == "symlink" else getattr(target, make)()
    with pytest.raises(NameTaken, match="out"):
        write_bundle(target, BUNDLE)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(tmp_path, name):
    write_bundle(tmp_path / "out", BUNDLE)
    (tmp_path / "out" / name).unlink()
    with pytest.raises(ModelInvalid, match=f"^{name}: "):
        read_bundle(tmp_path / "out")


@pytest.mark.parametrize("name", FILES)
def test_links_are_not_followed(tmp_path, name):
    write_bundle(tmp_path / "out", BUNDLE)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (tmp_path / "out" / name).unlink()
    (tmp_path / "out" / name).symlink_to(secret)
    with pytest.raises(ModelInvalid, match=f"^{name}: "):
        read_bundle(tmp_path / "out")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_files_are_read(tmp_path, make):
    write_bundle(tmp_path / "out", BUNDLE)
    (tmp_path / "out" / "card.md").unlink()
    make(tmp_path / "out" / "card.md")
    with pytest.raises(ModelInvalid, match=r"^card\.md: "):
        read_bundle(tmp_path / "out")


def test_size_caps(tmp_path, monkeypatch):
    write_bundle(tmp_path / "out", BUNDLE)
    monkeypatch.setitem(module.FILES, "card.md", ("card", 3))
    with pytest.raises(ModelInvalid, match=r"card\.md: more than 3 bytes"):
        read_bundle(tmp_path / "out")
    with pytest.raises(ModelInvalid, match=r"card\.md: 4 bytes; at most 3"):
        write_bundle(tmp_path / "again", BUNDLE)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_no_folder(tmp_path):
    with pytest.raises(ModelInvalid, match="not a bundle folder"):
        read_bundle(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(ModelInvalid, match="not a bundle folder"):
        read_bundle(tmp_path / "file")


def test_every_file_is_read_once(tmp_path, monkeypatch):
    write_bundle(tmp_path / "out", BUNDLE)
    opened = []
    real = os.open

    def spy(path, *rest, **options):
        opened.append(os.fspath(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", spy)
    read_bundle(tmp_path / "out")
    assert opened == [str(tmp_path / "out"), *FILES]


# ---- ensemble.json --------------------------------------------------------------------------------------------------


THREE = replace(ENSEMBLE, classes=(3, 1, 2), votes=(Vote("above", 0, 1, 2, 2), Vote("is", 1, 0, -1, 1)))
TREES = TreeEnsemble(
    ENSEMBLE.features, "income", ("a", "b"), (Split("above", 0, 1, Leaf(2), Leaf(-1)), Leaf(1)), 3, 0.1 + 0.2
)


@pytest.mark.parametrize("ensemble", [ENSEMBLE, THREE, TREES])
def test_ensemble_bytes_and_back(ensemble):
    raw = ensemble_bytes(ensemble)
    assert ensemble_from_bytes(raw) == ensemble
    assert raw == ensemble_bytes(ensemble_from_bytes(raw))
    assert raw.isascii()


RAW = ensemble_bytes(ENSEMBLE)
OTHER_RAW = [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, RAW[:-1], RAW + b" "]
OTHER_RAW.append(RAW.replace(b'{"classes"', b'{"classes":["x","y"],"classes"'))
OTHER_RAW.append(RAW.replace(b'"type":"voting"', b'"type":"voting","rows":3'))
OTHER_RAW.append(RAW.replace(b'["is",1,0,-1]', b'["is",1,0,-1,0]'))  # an output where there is one
OTHER_RAW.append(ensemble_bytes(THREE).replace(b'["is",1,0,-1,1]', b'["is",1,0,-1]'))
OTHER_RAW.append(ensemble_bytes(TREES).replace(b'"constant":3', b'"constant":3.0'))
OTHER_RAW.append(ensemble_bytes(TREES).replace(b"[[", b"[" * 100_000))
OTHER_RAW.append(ensemble_bytes(TREES).replace(b'"above",0,1,2,-1', b'"above",0,1,2,-01'))


@pytest.mark.parametrize("raw", OTHER_RAW)
def test_other_ensemble_bytes_are_refused(raw):
    with pytest.raises(ModelInvalid):
        ensemble_from_bytes(raw)


# ---- the store ------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    return ModelStore(tmp_path / "models")


def test_versions_and_champion(store):
    assert store.names() == []
    assert [store.add("adult", other(1)), store.add("adult", other(2)), store.add("telco", other(3))] == [1, 2, 1]
    assert store.names() == ["adult", "telco"]
    assert store.versions("adult") == [1, 2]
    assert store.champion("adult") is None
    store.promote("adult", 2)
    assert store.resolve("adult") == store.resolve("adult@champion") == store.resolve("adult@2")
    assert read_bundle(store.resolve("adult@1")) == other(1)
    store.promote("adult", 1)
    assert store.champion("adult") == 1
    assert read_bundle(store.resolve("adult")) == other(1)
    assert store.add("adult", other(4)) == 3
    assert store.champion("adult") == 1


@pytest.mark.parametrize("reference", ["adult", "adult@champion"])
def test_without_champion_nothing_answers_and_the_newest_is_offered(store, reference):
    store.add("adult", other(1))
    store.add("adult", other(2))
    with pytest.raises(NothingServed) as caught:
        store.resolve(reference)
    assert caught.value.details["offer"] == "adult@2"
    assert "dpserve model promote adult@2" in caught.value.message
    assert store.resolve("adult@1").name == "1"


@pytest.mark.parametrize("reference", ["adult@3", "adult@99999", "nobody", "nobody@1", "nobody@champion"])
def test_unknown_models(store, reference):
    store.add("adult", BUNDLE)
    with pytest.raises(UnknownName):
        store.resolve(reference)


BAD_NAMES = ["", "..", "../adult", "adult/1", "/etc", "Adult", ".adult", "a" * 65, "adult\0", "adult\n", "ädult", "@1"]
BAD_VERSIONS = ["", "../1", "0", "01", "-1", "+1", "1/", "1@1", "٣", "latest", "1\n", "1000000000000"]


@pytest.mark.parametrize("reference", [*BAD_NAMES, *(f"adult@{version}" for version in BAD_VERSIONS)])
def test_references_that_are_none(store, reference):
    store.add("adult", BUNDLE)
    with pytest.raises(InputError):
        store.resolve(reference)


@pytest.mark.parametrize("name", ["..", "a/b", "A", "", ".x", "x" * 65, "a\n"])
def test_names_that_are_none_are_never_stored(store, tmp_path, name):
    with pytest.raises(InputError):
        store.add(name, BUNDLE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "x", "0", "../2", "1 2"])
def test_a_damaged_champion_fails_closed(store, text):
    store.add("adult", BUNDLE)
    (store.root / "adult" / "champion").write_text(text)
    with pytest.raises(ModelInvalid, match="champion"):
        store.resolve("adult")
    assert store.resolve("adult@1").name == "1"


def test_a_champion_that_is_gone(store):
    store.add("adult", BUNDLE)
    (store.root / "adult" / "champion").write_text("7\n")
    with pytest.raises(UnknownName, match="7"):
        store.resolve("adult")
    with pytest.raises(UnknownName):
        store.promote("adult", 7)


def test_strange_folders_are_passed_over(store, tmp_path):
    store.add("adult", BUNDLE)
    for name in (".bundle-half", "x", "01", "0"):
        (store.root / "adult" / name).mkdir()
    (store.root / "adult" / "5").touch()
    (store.root / "adult" / "6").symlink_to(tmp_path)
    (store.root / "empty").mkdir()
    (store.root / "UPPER").mkdir()
    assert store.versions("adult") == [1]
    assert store.names() == ["adult"]


def test_many_writers_get_a_version_each(store):
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append((store.add("adult", other(i)), i))) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(version for version, _ in found) == list(range(1, 13))
    assert all(read_bundle(store.resolve(f"adult@{version}")) == other(i) for version, i in found)


CRASH = """
import os, sys
from pathlib import Path
from models.store.bundle import Bundle, ModelStore

left = int(sys.argv[2])

def dying(real):
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return real(*arguments, **options)
    return call

for name in ("fsync", "rename", "replace", "open", "mkdir"):
    setattr(os, name, dying(getattr(os, name)))
ModelStore(Path(sys.argv[1])).add("adult", Bundle(b"new", b"2", b"3", b"4", b"5", b"6"))
"""


@pytest.mark.slow
def test_a_crash_at_any_step_leaves_whole_bundles_only(store):
    store.add("adult", other(0))
    store.promote("adult", 1)
    finished = False
    for step in range(60):
        before = store.versions("adult")
        done = subprocess.run([*warm.python(), "-c", CRASH, str(store.root), str(step)], check=False, timeout=300)
        assert done.returncode in (0, 9)
        versions = store.versions("adult")
        assert versions in (before, [*before, before[-1] + 1])
        assert all(read_bundle(store.resolve(f"adult@{version}")).onnx for version in versions)
        assert store.champion("adult") == 1
        if done.returncode == 0:
            finished = True
            break
    assert finished
    assert step > 10


# ---- the graph that is certified ----------------------------------------------------------------------------------


def otherwise(raw):
    """The same graph in other bytes: its parts in another order."""
    graph, rest = ModelProto(), ModelProto.FromString(raw)
    graph.graph.CopyFrom(rest.graph)
    rest.ClearField("graph")
    return graph.SerializeToString() + rest.SerializeToString()


def with_a_node(raw):
    """A graph that gives the same answers, and does something more."""
    model = ModelProto.FromString(raw)
    model.graph.node.append(helper.make_node("Identity", [model.graph.input[0].name], ["more"]))
    return model.SerializeToString(deterministic=True)


def about_others(raw):
    model = ModelProto.FromString(raw)
    next(each for each in model.metadata_props if each.key == "dataset").value = "others"
    return model.SerializeToString(deterministic=True)


@pytest.mark.slow
def test_no_graph_is_opened_but_the_one_that_the_numbers_come_to(tmp_path, monkeypatch):
    """Though its issuer has signed it, and the ledger has it: by bytes of an export here, never by those that came."""
    home = Home.open(ledgers.place(ledgers.copy(ledgers.prepared(), tmp_path / "home")))
    request, opened, open_graph = JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 3}), [], OnnxModel.__init__
    monkeypatch.setattr(OnnxModel, "__init__", lambda self, raw: (opened.append(raw), open_graph(self, raw))[1])
    for change in (bytes, otherwise, with_a_node, about_others):
        made = []

        def export(*about, change=change, made=made):
            made.append(to_onnx(*about))
            return change(made[0])

        monkeypatch.setattr(release, "to_onnx", export)
        job.train(home, replace(request, model=change.__name__), by="test")
        opened.clear()
        folder = home.models / change.__name__ / "1"
        assert (folder / "model.onnx").read_bytes() == change(made[0])
        if change in (with_a_node, about_others):
            with pytest.raises(ModelInvalid, match="is not the graph that ensemble.json comes to"):
                load_verified(folder, home.trust)
            assert opened == []
        else:
            load_verified(folder, home.trust)
            assert opened == made
