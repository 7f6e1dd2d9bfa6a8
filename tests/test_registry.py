"""Hot loading: new, changed, tampered and removed bundles, each verified before it serves, none stopping the others."""

from __future__ import annotations

import shutil

import pytest
from small_home import records, write_files

from accountant.budget import Budget, Relation
from accountant.errors import ModelInvalid, RecordError, UnknownName
from accountant.home import Home
from accountant.keyring import mark_compromised as compromise
from accountant.keyring import revoke, rotate
from models.bundle import FILES, ModelStore, ensemble_bytes, ensemble_from_bytes
from serving.api_models import answer_records
from serving.metrics import FAILURES
from serving.registry import Registry
from training import job
from training.job import Asked


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A home with two versions of `adult` and one of `other`."""
    files = write_files(tmp_path_factory.mktemp("files"))
    home = Home.init({"DPSERVE_HOME": str(tmp_path_factory.mktemp("trained") / "home")})
    data, schema = files / "rows.parquet", files / "schema.yaml"
    job.register(home, "adult", data, schema, Budget.of(5, "1e-5"), Relation.ADD_REMOVE, None)
    for model in ("adult", "adult", "other"):
        job.train(home, Asked("adult", "lazybb", "0.3", parameters={"rounds": 5}, model=model), by="test")
    return home


@pytest.fixture
def home(trained, tmp_path):
    """A copy that a test may spoil."""
    shutil.copytree(trained.path, tmp_path / "home")
    return Home.open({"DPSERVE_HOME": str(tmp_path / "home")})


@pytest.fixture
def registry(home):
    found = Registry()
    found.refresh(home)
    return found


def failures(reason):
    return FAILURES.labels(reason)._value.get()


def test_names_versions_and_champion(home, registry):
    assert registry.loaded == 3
    assert registry.get("adult").reference == "adult@2"
    assert registry.get("adult@champion").reference == "adult@2"
    assert registry.get("adult@1").reference == "adult@1"
    ModelStore(home.models).promote("adult", 1)
    registry.refresh(home)
    assert registry.get("adult").reference == "adult@1"
    assert [line["model"] for line in registry.to_json() if line["champion"]] == ["adult@1", "other@1"]


@pytest.mark.parametrize(
    "name", ["nope", "adult@3", "adult@0", "adult@x", "adult@", "../adult", "", "adult@²", "adult@01"]
)
def test_unknown_name(registry, name):
    with pytest.raises(UnknownName):
        registry.get(name)


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
    assert [line["state"] for line in registry.to_json()] == ["served", "invalid", "served"]


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


def test_revoked_certificate_is_served_no_more(home, registry):
    revoke(home, registry.get("adult@2").verified.certificate.issued, "test", "the rows were wrong")
    registry.refresh(home)
    with pytest.raises(ModelInvalid) as caught:
        registry.get("adult")
    assert "was revoked" in caught.value.details["reason"]
    assert registry.get("adult@1")
    assert registry.get("other@1")
    assert [line["state"] for line in registry.to_json()] == ["served", "invalid", "served"]


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


def test_another_homes_model_is_refused(home, registry, trained, tmp_path):
    stranger = Home.init({"DPSERVE_HOME": str(tmp_path / "stranger")})
    shutil.copytree(trained.models / "adult" / "1", stranger.models / "adult" / "1")
    fresh = Registry()
    fresh.refresh(stranger)
    with pytest.raises(ModelInvalid):
        fresh.get("adult")


def test_answer_is_the_ensembles_own(registry):
    rows = records(50)
    served, answer = answer_records(registry, {"model": "adult", "records": rows})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    ensemble = served.verified.ensemble
    assert answer["predictions"] == ensemble.predict(columns).tolist()
    assert abs(answer["probabilities"] - ensemble.probabilities(columns)).max() < 1e-6
    assert answer["classes"] == ensemble.classes


def test_no_records_no_answers(registry):
    _, answer = answer_records(registry, {"model": "adult", "records": []})
    assert answer["predictions"] == []
    assert answer["probabilities"].shape == (0, 2)


def test_record_that_does_not_fit_names_record_and_field(registry):
    rows = records(3)
    rows[1]["age"] = "old"
    with pytest.raises(RecordError) as caught:
        answer_records(registry, {"model": "adult", "records": rows})
    assert caught.value.details == {"record": 1, "field": "age"}
