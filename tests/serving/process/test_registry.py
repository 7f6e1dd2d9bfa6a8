"""Hot loading: new, changed, tampered and removed bundles, each verified before it serves, none stopping the others."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from small_home import records, write_files

from accountant.access.key_life import mark_compromised as compromise
from accountant.access.key_life import revoke, rotate
from accountant.audit.audit import audit_home, audit_place
from accountant.errors import NothingServed, RecordError, UnknownName
from accountant.home import Home
from accountant.log import stored_proofs
from accountant.log.entries import latest_checkpoint
from dpserve_verify.certificates.bundle import FILES, read_bundle
from dpserve_verify.errors import CertificateRevoked, InputError, ModelInvalid, VerificationError
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.store import index, placing
from models.store.bundle import ModelStore
from models.store.standing import entry_of
from serving.process import registry as registry_of_models
from serving.process.registry import NotHeld, Registry
from serving.process.watch.audit_runs import bundles_of
from serving.process.watch.metrics import FAILURES, PREDICTIONS
from serving.rest.models import answer_records
from training.datasets.datasets import register
from training.jobs import job
from training.requests import JobRequest

pytestmark = pytest.mark.home("of_two_names")


@pytest.fixture(scope="module")
def of_two_names(tmp_path_factory):
    """A home with two versions of `adult` and one of `other`."""
    files = write_files(tmp_path_factory.mktemp("files"))
    home = Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("of_two_names") / "home")})
    data, schema = files / "rows.parquet", files / "schema.yaml"
    register(home, "adult", data, schema, Budget.of(5, "1e-5"), Relation.ADD_REMOVE, None)
    for model in ("adult", "adult", "other"):
        job.train(
            home, JobRequest("adult", "lazybb", "0.3", parameters={"rounds": 5}, model=model, promote=True), by="test"
        )
    return home


@pytest.fixture
def registry(home):
    found = Registry()
    found.refresh(home)
    return found


def seen(registry):
    """How each version stands, and whether it verified."""
    return [(line["state"], line["verified"]) for line in registry.to_json()]


def failures(reason):
    (counter,) = FAILURES.collect()
    return sum(each.value for each in counter.samples if each.labels == {"reason": reason} and "total" in each.name)


def test_names_versions_and_champion(home, registry):
    assert registry.loaded == 3
    assert registry.get("adult").reference == "adult@2"
    assert registry.get("adult@champion").reference == "adult@2"
    assert registry.get("adult@1").reference == "adult@1"
    ModelStore(home.models).promote("adult", 1)
    registry.refresh(home)
    assert registry.get("adult").reference == "adult@1"
    assert [line["model"] for line in registry.to_json() if line["champion"]] == ["adult@1", "other@1"]


def counted() -> dict[str, float]:
    """Records predicted, by series."""
    samples = [each for metric in PREDICTIONS.collect() for each in metric.samples if each.name.endswith("_total")]
    return {each.labels["model"]: each.value for each in samples}


def test_champions_have_series_of_their_own_and_all_others_one(home, registry):
    """Of a home with thousands of versions the metrics grow with the names that answer."""

    def count(found, *references):
        before = counted()
        for reference in references:
            found.get(reference).count(3, 0.01)
        return {name: value - before.get(name, 0) for name, value in counted().items() if value != before.get(name, 0)}

    assert count(registry, "adult", "adult@2", "adult@1", "other") == {"adult@2": 6, "other": 3, "other@1": 3}
    ModelStore(home.models).promote("adult", 1)
    registry.refresh(home)
    assert count(registry, "adult", "adult@2") == {"adult@1": 3, "other": 3}  # held in memory since before
    every = Registry(series="all")
    every.refresh(home)
    assert count(every, "adult", "adult@2") == {"adult@1": 3, "adult@2": 3}


@pytest.mark.parametrize(
    "name", ["nope", "adult@3", "adult@0", "adult@x", "adult@", "../adult", "", "adult@²", "adult@01"]
)
def test_unknown_name(registry, name):
    with pytest.raises(UnknownName):
        registry.get(name)


def test_what_came_since_the_last_look_is_found_when_it_is_asked_for(home):
    """Whoever was told by the worker that a model is there may ask before the next look."""
    shutil.move(home.models, home.path.with_name("later"))
    registry = Registry()
    registry.refresh(home)
    with pytest.raises(UnknownName):
        registry.get("adult")
    shutil.copytree(home.path.with_name("later"), home.models)
    for ask in (registry.get, registry.get_loaded):
        assert ask("adult").reference == "adult@2"
    assert registry.versions("other") == [1]
    store = ModelStore(home.models)
    assert store.add("adult", read_bundle(home.models / "adult" / "1")) == 3
    assert registry.get("adult@3").reference == "adult@3"
    assert registry.get("adult").reference == "adult@2"  # a new version answers nobody


def test_nothing_is_read_again_while_nothing_changes(home, registry):
    before = [registry.get(name).verified for name in ("adult@1", "adult@2", "other")]
    registry.refresh(home)
    assert all(
        a is registry.get(name).verified for a, name in zip(before, ("adult@1", "adult@2", "other"), strict=True)
    )


@pytest.mark.parametrize("file", list(FILES))
def test_tampered_file_takes_the_model_away_and_leaves_the_others(home, registry, file):
    path = home.models / "adult" / "2" / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    registry.refresh(home)
    if file == "card.md":  # for people; it is never read
        assert registry.get("adult@2")
        return
    with pytest.raises(ModelInvalid, match="does not verify"):
        registry.get("adult")
    assert registry.get("adult@1")
    assert registry.get("other")
    assert seen(registry) == [("candidate", True), ("champion", False), ("champion", True)]


def test_other_votes_under_a_good_certificate_are_refused(home, registry):
    """ensemble.json is what explains and reads records; the ledger knows the digest of what was released."""
    path = home.models / "adult" / "2" / "ensemble.json"
    ensemble = ensemble_from_bytes(path.read_bytes())
    object.__setattr__(ensemble, "votes", ensemble.votes[1:])
    path.write_bytes(ensemble_bytes(ensemble))
    registry.refresh(home)
    with pytest.raises(ModelInvalid) as caught:
        registry.get("adult")
    assert "ensemble.json" in caught.value.details["reason"]


def test_failure_is_counted_once_and_repair_serves_again(home, registry):
    path = home.models / "adult" / "2" / "model.onnx"
    good, before = path.read_bytes(), failures("certificate_invalid")
    path.write_bytes(good + b" ")
    registry.refresh(home)
    registry.refresh(home)
    assert failures("certificate_invalid") == before + 1
    path.write_bytes(good)
    registry.refresh(home)
    assert registry.get("adult").reference == "adult@2"


def test_certificate_of_another_model_is_refused(home, registry):
    shutil.copytree(home.models / "adult" / "2", home.models / "other" / "2")
    registry.refresh(home)
    with pytest.raises(ModelInvalid):
        registry.get("other@2")
    assert registry.get("other@1")


def test_a_revocation_is_no_failure_and_hides_none(home, registry):
    """It is a state, for as long as its files lie there; a model that somebody changes afterwards is counted."""
    before = {reason: failures(reason) for reason in ("certificate_revoked", "certificate_invalid", "model_invalid")}
    revoke(home, registry.get("adult@2").verified.certificate.issued, "test", "the rows were wrong")
    registry.refresh(home)
    assert (registry.loaded, registry.refused) == (2, 0)
    assert failures("certificate_revoked") == before["certificate_revoked"]
    (home.models / "other" / "1" / "model.onnx").write_bytes(b"changed")
    registry.refresh(home)
    assert (registry.loaded, registry.refused) == (1, 1)
    assert sum(map(failures, before)) == sum(before.values()) + 1


def test_what_was_revoked_can_be_retired_and_nothing_else(home, registry):
    revoke(home, registry.get("adult@2").verified.certificate.issued, "test", "the rows were wrong")
    placed = placing.retire(home, "adult@2", "it was revoked", "test")
    assert (placed.retired, placed.serves, placed.offer) == ([2], None, "adult@1")
    for again in (placing.restore, placing.promote):
        with pytest.raises((CertificateRevoked, InputError)):
            again(home, "adult@2", "why not", "test")
    registry.refresh(home)
    assert seen(registry) == [("candidate", True), ("revoked", None), ("champion", True)]
    assert audit_home(home, bundles_of(home.models)).ok
    (home.models / "other" / "1" / "model.onnx").write_bytes(b"changed")
    with pytest.raises(VerificationError):
        placing.retire(home, "other@1", "a test", "test")


def test_an_audit_of_a_busy_home_is_of_one_moment(home):
    """A version that is issued, and a proof that is made anew, while the bundles are read."""

    def busy():
        for bundle in bundles_of(home.models):
            yield bundle
            asked = JobRequest("adult", "lazybb", "0.1", parameters={"rounds": 5}, model="zebra")
            job.train(home, asked, by="test")
            (folder,) = home.models.glob("other/1")
            (folder / "model.onnx.tlog-proof").write_text(inclusion_of(home, folder))

    before = home.ledger.log.size()
    report = audit_place({"DPSERVE_HOME": str(home.path)}, busy())
    assert (report.problems, report.entries) == ((), before)
    assert len(list(bundles_of(home.models))) == 6
    assert audit_home(home, bundles_of(home.models)).ok


def inclusion_of(home, folder):
    """A proof of the same entry, to the newest checkpoint."""
    with home.ledger.log.database.reading() as connection:
        return stored_proofs.inclusion(connection, entry_of(folder), latest_checkpoint(connection))


def test_revoked_certificate_is_served_no_more(home, registry):
    revoke(home, registry.get("adult@2").verified.certificate.issued, "test", "the rows were wrong")
    registry.refresh(home)
    with pytest.raises(
        CertificateRevoked, match="nothing is served under this name; dpserve model promote adult@1"
    ) as caught:
        registry.get("adult")
    details = caught.value.details
    assert "was revoked" in details.pop("reason")
    assert details == {
        **{"name": "adult", "version": "adult@2", "state": "revoked", "offer": "adult@1"},
        "command": "dpserve model promote adult@1",
    }
    with pytest.raises(CertificateRevoked) as caught:  # who names a version gets it or nothing
        registry.get("adult@2")
    assert "offer" not in caught.value.details
    assert registry.get("adult@1")
    assert registry.get("other@1")
    assert seen(registry) == [("candidate", True), ("revoked", False), ("champion", True)]
    ModelStore(home.models).retire("adult", 2)  # what was revoked stays that
    registry.refresh(home)
    assert seen(registry) == [("candidate", True), ("revoked", None), ("champion", True)]


def test_a_name_without_a_champion_answers_nothing_and_its_versions_who_names_them(home, registry):
    (home.models / "adult" / "champion").unlink()
    registry.refresh(home)
    with pytest.raises(NothingServed, match="no version was promoted; dpserve model promote adult@2"):
        registry.get("adult")
    assert registry.get("adult@2").reference == "adult@2"
    assert seen(registry) == [("candidate", True), ("candidate", True), ("champion", True)]


def test_rotated_key_changes_nothing_for_what_was_issued_before(home, registry):
    before = registry.get("adult@1").verified
    rotate(home, "issuer", "test", "yearly")
    registry.refresh(home)
    assert registry.loaded == 3
    assert registry.get("adult@1").verified is not before  # verified again, under the new trust


def test_compromised_key_takes_what_it_signed_after_with_it(home, registry):
    first, last = (registry.get(f"adult@{n}").verified.certificate for n in (1, 2))
    compromise(home, first.issuers[0], first.issued, "test", "stolen")
    registry.refresh(home)
    assert registry.get("adult@1")
    for name in ("adult@2", "other"):
        with pytest.raises(ModelInvalid) as caught:
            registry.get(name)
        assert "pinned issuer key" in caught.value.details["reason"]
    assert last.issued > first.issued


def test_removed_model_is_gone(home, registry):
    shutil.rmtree(home.models / "adult")
    registry.refresh(home)
    with pytest.raises(UnknownName):
        registry.get("adult")
    assert registry.loaded == 1


def test_missing_file_and_spoiled_champion(home, registry):
    (home.models / "adult" / "1" / "model.onnx.tlog-proof").unlink()
    (home.models / "adult" / "champion").write_text("first")
    registry.refresh(home)
    for name in ("adult", "adult@1"):
        with pytest.raises(ModelInvalid):
            registry.get(name)
    assert registry.get("adult@2")


def test_another_homes_model_is_refused(home, registry, of_two_names, tmp_path):
    stranger = Home.init({"DPSERVE_HOME": str(tmp_path / "stranger")})
    shutil.copytree(of_two_names.models / "adult" / "1", stranger.models / "adult" / "1")
    fresh = Registry()
    fresh.refresh(stranger)
    with pytest.raises(ModelInvalid):
        fresh.get("adult@1")
    with pytest.raises(NothingServed, match="no version of it verifies"):
        fresh.get("adult")


def test_answer_is_the_ensembles_own(registry):
    rows = records(50)
    served, answer = answer_records(registry.get, {"model": "adult", "records": rows})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    ensemble = served.verified.ensemble
    assert answer["predictions"] == ensemble.predict(columns).tolist()
    assert abs(answer["probabilities"] - ensemble.probabilities(columns)).max() < 1e-6
    assert answer["classes"] == ensemble.classes


def test_no_records_no_answers(registry):
    _, answer = answer_records(registry.get, {"model": "adult", "records": []})
    assert answer["predictions"] == []
    assert answer["probabilities"].shape == (0, 2)


def test_record_that_does_not_fit_names_record_and_field(registry):
    rows = records(3)
    rows[1]["age"] = "old"
    with pytest.raises(RecordError) as caught:
        answer_records(registry.get, {"model": "adult", "records": rows})
    assert caught.value.details == {"record": 1, "field": "age"}


# Many models


def shelve(home, count):
    """Versions 1..count of `adult`, all of them good: copies of the second."""
    first = home.models / "adult" / "2"
    for version in range(3, count + 1):
        shutil.copytree(first, home.models / "adult" / str(version))


def opened(monkeypatch):
    """Return a list that grows by the name and version of every bundle that is read from now on."""
    seen, load = [], registry_of_models.load_of_home

    def counted(home, folder, name, trust):
        seen.append((name, int(folder.name)))
        return load(home, folder, name, trust)

    monkeypatch.setattr(registry_of_models, "load_of_home", counted)
    return seen


def test_what_is_not_in_memory_is_verified_when_it_is_asked_for(home):
    registry = Registry()
    registry.refresh(home, seconds=-1)
    assert {line["verified"] for line in registry.to_json()} == {None}
    assert registry.loaded == 0
    with pytest.raises(NotHeld):
        registry.get_loaded("adult")
    assert registry.get("adult").reference == "adult@2"
    assert registry.get_loaded("adult") is registry.get("adult")
    assert [line["verified"] for line in registry.to_json()] == [None, True, None]
    registry.refresh(home)
    assert {line["verified"] for line in registry.to_json()} == {True}


def test_a_look_that_takes_long_leaves_time_to_verify(home, monkeypatch):
    hours = iter(range(0, 1_000_000, 3600))

    def slow(*of):
        clock.now = next(hours)
        return index.look(*of)

    clock = SimpleNamespace(now=next(hours), monotonic=lambda: clock.now)
    monkeypatch.setattr(registry_of_models, "time", clock)
    monkeypatch.setattr(registry_of_models, "look", slow)
    registry = Registry()
    registry.refresh(home, seconds=0.2)
    assert {line["verified"] for line in registry.to_json()} == {True}
    path = home.models / "adult" / "2" / "model.onnx"
    path.write_bytes(path.read_bytes() + b" ")
    registry.refresh(home, seconds=0.2)
    assert [line["verified"] for line in registry.to_json()] == [True, False, True]  # though nobody asked for it


def test_memory_holds_no_more_than_it_may(home, monkeypatch):
    shelve(home, 6)
    registry = Registry(most=3)
    registry.refresh(home)
    assert registry.loaded == 7
    assert len(registry._held) == 3
    seen = opened(monkeypatch)
    for version in (4, 5, 6, 5, 4, 6, 4):
        assert registry.get(f"adult@{version}").version == version
    assert len(registry._held) == 3
    assert sorted(seen) in ([("adult", 4), ("adult", 5), ("adult", 6)], [("adult", v) for v in (5, 6)])
    registry.get("adult@1")  # makes room: the version that was asked for the longest ago goes
    assert ("adult", 5) not in registry._held
    assert {("adult", 4), ("adult", 6)} < registry._held.keys()


def test_what_does_not_verify_is_not_read_again_until_it_changes(home):
    path = home.models / "adult" / "2" / "model.onnx"
    good, before = path.read_bytes(), failures("certificate_invalid")
    path.write_bytes(good + b" ")
    registry = Registry()
    registry.refresh(home, seconds=-1)
    for _ in range(3):
        with pytest.raises(ModelInvalid):
            registry.get("adult")
    assert (registry.refused, failures("certificate_invalid")) == (1, before + 1)
    path.write_bytes(good)
    assert registry.get("adult").reference == "adult@2"  # at once: it is read when it is asked for
    assert registry.refused == 0


def test_a_change_is_seen_in_memory_and_in_turn_outside(home, monkeypatch):
    monkeypatch.setattr(registry_of_models, "AT_A_LOOK", 2)
    shelve(home, 8)
    registry = Registry(most=1)
    registry.refresh(home)
    spoilt = home.models / "adult" / "7" / "model.onnx"
    spoilt.write_bytes(spoilt.read_bytes() + b" ")
    for _ in range(5):  # nine versions, one in memory, two at a look
        registry.refresh(home)
    assert [line["version"] for line in registry.to_json() if line["verified"] is False] == [7]


def test_a_folder_that_does_not_change_is_not_read(home, monkeypatch):
    monkeypatch.setattr(index, "SETTLED", 0)
    store, read = ModelStore(home.models), []
    plain = ModelStore.versions
    monkeypatch.setattr(ModelStore, "versions", lambda self, name: read.append(name) or plain(self, name))
    first = index.look(store)
    read.clear()
    assert index.look(store, first) == first
    assert read == []
    store.promote("adult", 1)
    store.retire("other", 1)
    found = index.look(store, first).shelves
    assert set(read) == {"adult", "other"}
    assert (found["adult"].champion, found["other"].retired) == (1, {1})
    monkeypatch.setattr(index, "SETTLED", 10**18)  # what changed this century may change again within its tick
    again = index.look(store)
    read.clear()
    index.look(store, again)
    assert {"adult", "other"} <= set(read)


def test_a_look_costs_the_same_however_many_models_there_are(tmp_path, monkeypatch):
    """What a store changes is seen at once, what other hands change in turn."""
    monkeypatch.setattr(index, "SETTLED", 0)
    monkeypatch.setattr(index, "AT_A_LOOK", 20)
    store, asked, plain = ModelStore(tmp_path / "models"), [], index.stamp_of
    monkeypatch.setattr(index, "stamp_of", lambda path: asked.append(path) or plain(path))
    costs = []
    for count in (40, 400):
        for number in range(count):
            (store.root / f"m-{number:03}" / "1").mkdir(parents=True, exist_ok=True)
        seen = index.look(store, index.look(store))
        asked.clear()
        assert index.look(store, seen).shelves is seen.shelves
        costs.append(len(asked))
    assert costs == [41, 41]
    for change, name in ((store.promote, "m-399"), (store.retire, "m-398"), (store.restore, "m-398")):
        change(name, 1)
        newer = index.look(store, seen)
        assert {each for each in newer.shelves if newer.shelves[each] is not seen.shelves[each]} == {name}
        seen = newer
    (store.root / "m-200" / "champion").write_text("1")
    (store.root / "m-100" / "1").rmdir()
    looks = 0
    while seen.shelves["m-200"].champion is None or "m-100" in seen.shelves:
        seen, looks = index.look(store, seen), looks + 1
        assert looks <= 21
    assert looks > 1
    assert len(seen.shelves) == 399


def test_retired_versions_are_not_served_and_not_verified(home, registry):
    store = ModelStore(home.models)
    store.retire("adult", 2)
    registry.refresh(home)
    with pytest.raises(NothingServed, match="adult@2 was retired; dpserve model promote adult@1"):
        registry.get("adult")
    with pytest.raises(UnknownName, match="was retired"):
        registry.get("adult@2")
    assert registry.get("adult@1")
    assert registry.versions("adult") == [1]
    assert seen(registry) == [("candidate", True), ("retired", None), ("champion", True)]
    store.restore("adult", 2)
    registry.refresh(home)
    assert registry.get("adult").reference == "adult@2"
    with pytest.raises(UnknownName):
        store.retire("adult", 3)


def test_threads_that_ask_at_once_share_one_reading(home):
    registry = Registry()
    registry.refresh(home, seconds=-1)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(registry.get, ["adult"] * 8))
    assert all(each is found[0] for each in found)
