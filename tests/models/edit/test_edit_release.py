"""An edited model's way into the ledger and out again: what it states, that it costs nothing, and every forgery."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import ledgers
import numpy as np
import pytest
import small_home
from ledgers import bodies, bundles, changed, copy, hexes, place, raw, rewrite
from trusts import audit_models

from accountant.access import key_life
from accountant.audit.audit import audit_home, audit_place
from accountant.certificates import statement
from accountant.errors import UnknownName, WrongState
from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_verify.audit.audit import audit
from dpserve_verify.certificates import certificate
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.policy import Policy
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerUnavailable, ModelInvalid, VerificationError
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from models.edit import editing
from models.edit.editing import EditNote, to_additive
from models.forms.registry import ensemble_bytes
from models.store import lineage
from models.store.bundle import ModelStore
from models.store.loading import VerifiedModel, load_of_home, load_verified
from training.finish import derive as deriving
from training.finish import release
from training.finish.derive import derive

pytestmark = pytest.mark.home("trained")

NOTE = EditNote("ann", "a review", "2026-05-03T10:00:00Z")
WHY = Why("ann", "a review")


def edited(found: VerifiedModel, value: float = 0.5, note: EditNote = NOTE):
    return editing.set_value(to_additive(found.ensemble), "education", "Bachelors, Masters", value, note)


def opened(path: Path) -> Home:
    return Home.open(place(path))


def load(home: Home, version: int) -> VerifiedModel:
    return load_of_home(home, ModelStore(home.models).resolve(f"adult@{version}"), "adult")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """adult@3 is adult@1 edited, adult@4 is adult@3 edited."""
    path = copy(ledgers.trained(), tmp_path_factory.mktemp("made") / "home")
    home = opened(path)
    derive(home, load(home, 1), edited(load(home, 1)))
    derive(home, load(home, 3), edited(load(home, 3), -0.25))
    home.ledger.log.database.close()
    return path


@pytest.fixture
def twice(made, tmp_path) -> Path:
    return copy(made, tmp_path / "twice")


def entries(home: Path) -> list[dict]:
    return [json.loads(body) for body in bodies(home)]


def problems(home: Path) -> tuple[str, ...]:
    return audit_place(place(home), bundles=bundles(home)).problems


def test_an_edited_model_is_served_certified_and_costs_nothing(home):
    before, base = home.ledger.dataset("adult"), load(home, 1)
    place_ = derive(home, base, edited(base), promote=True)
    assert place_.name == "3"
    assert ModelStore(home.models).champion("adult") == 3
    said = home.ledger.log.entries()[-1].value
    assert (said["type"], said["version"], said["by"]) == ("model-promoted", 3, NOTE.by)
    found = load(home, 3)
    assert found.ensemble == edited(base)
    assert home.ledger.dataset("adult") == before
    own, its = found.certificate.statement["predicate"], base.certificate.statement["predicate"]
    public = dict(own["public"])
    assert public.pop("edits") == [edit.to_json() for edit in found.ensemble.edits]
    assert public.pop("supersedes") == [
        {
            "entry": base.certificate.issued,
            "statement": certificate.digest(dsse.parse(base.bundle.envelope).payload),
            "ensemble": certificate.digest(base.bundle.ensemble),
        }
    ]
    assert public.pop("ensemble") == certificate.digest(found.bundle.ensemble)
    assert {**own, "public": {**public, "ensemble": its["public"]["ensemble"]}} == its
    assert audit_home(home, bundles(home.path)).ok
    assert list(home.jobs.glob("edit-*")) == []


def test_the_entry_says_who_why_and_of_what(twice):
    *_, first, second = entries(twice)
    base = next(seq for seq, each in enumerate(entries(twice)) if each["type"] == "issued")
    assert set(first) == {"type", "time", "base", "reservation", "statement", "model", "name", "reason", "by"}
    assert (first["type"], first["base"], first["by"], first["reason"]) == ("derived", base, "ann", "a review")
    assert second["base"] == len(entries(twice)) - 2
    assert first["reservation"] == second["reservation"] == entries(twice)[base]["reservation"]


def test_an_edit_of_an_edit_names_all_it_came_from(twice):
    home = opened(twice)
    found = load(home, 4)
    chain = home.ledger.lineage(found.certificate.issued)
    assert [entry.value["type"] for entry in chain] == ["issued", "derived", "derived"]
    assert [each.entry for each in found.certificate.ancestors] == [entry.seq for entry in chain[:-1]]
    assert len(found.ensemble.edits) == 2
    assert problems(twice) == ()
    assert audit_models(bundles(twice), home.trust) == ()


def test_a_model_that_is_not_promoted(home):
    derive(home, load(home, 1), edited(load(home, 1)))
    assert ModelStore(home.models).champion("adult") == 1


def test_edits_must_go_on_from_the_models_own(home):
    base = load(home, 1)
    with pytest.raises(InputError, match="edits"):
        derive(home, base, to_additive(base.ensemble))
    other = edited(base)
    with pytest.raises(InputError, match="target"):
        derive(home, base, replace(other, target="wealth"))
    derive(home, base, other)
    with pytest.raises(InputError, match="edits"):
        derive(home, load(home, 3), edited(base, 0.7))  # without what was edited before


# Revocation.


def test_what_came_from_a_revoked_model_is_refused(twice):
    home = opened(twice)
    three, four = load(home, 3), load(home, 4)
    key_life.revoke(home, three.certificate.issued, *("ann", "wrong"))
    load(home, 1)
    for version in (3, 4):
        with pytest.raises(CertificateInvalid, match=f"entry {three.certificate.issued}.* was revoked"):
            load(home, version)
    with pytest.raises(WrongState, match="was revoked"):
        derive(home, four, edited(four, 0.125))
    assert problems(twice) == ()


def test_a_policy_may_revoke_the_base_too(twice):
    home = opened(twice)
    found = load(home, 4).bundle
    first = load(home, 1).certificate.issued
    with pytest.raises(CertificateInvalid, match="was revoked"):
        verify(found.envelope, found.proof.decode(), found.onnx, home.trust, Policy(revoked=frozenset({first})))


# Cuts.


@pytest.mark.slow
@pytest.mark.parametrize("step", ["write", "sign", "bound", "stored"])
def test_a_cut_is_taken_up_and_nothing_is_done_twice(home, monkeypatch, step):
    base, count = load(home, 1), home.ledger.log.size()

    class Cut(Exception):
        pass

    def cut(*_args, **_more):
        raise Cut

    name = {"write": "sign", "sign": "Why", "bound": "store", "stored": "discard"}[step]
    with monkeypatch.context() as patch:
        patch.setattr(deriving, name, cut)
        with pytest.raises(Cut):
            derive(home, base, edited(base), promote=True)
    assert audit_home(opened(home.path), bundles(home.path)).ok
    later = replace(NOTE, at="2026-05-03T10:07:00Z")
    derive(home, base, edited(base, note=later), promote=True)
    assert home.ledger.log.size() == count + 2  # the model, and its promotion once
    assert ModelStore(home.models).versions("adult") == [1, 2, 3]
    assert ModelStore(home.models).champion("adult") == 3
    assert load(home, 3).ensemble.edits[0].at == NOTE.at
    assert list(home.jobs.glob("edit-*")) == []
    assert audit_home(home, bundles(home.path)).ok


def test_a_key_that_ends_between_signature_and_entry(home, monkeypatch):
    base = load(home, 1)

    def late(*_args, **_more):
        raise LedgerUnavailable("ledger: locked")

    with monkeypatch.context() as patch:
        patch.setattr(deriving, "Why", late)
        with pytest.raises(LedgerUnavailable):
            derive(home, base, edited(base))
    key_life.rotate(home, "issuer", "ann", "yearly")
    derive(home, base, edited(base))
    assert load(home, 3).certificate.issuers == (home.keys.key("issuer").keyid,)


def test_numbers_that_were_changed_while_they_waited(home, monkeypatch):
    base = load(home, 1)
    monkeypatch.setattr(deriving, "sign", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        derive(home, base, edited(base))
    (folder,) = home.jobs.glob("edit-*")
    (folder / release.ENSEMBLE).write_bytes(ensemble_bytes(edited(base, 3.0)))
    with pytest.raises(ModelInvalid, match="is not what was edited"):
        derive(home, base, edited(base))


# The ledger's door.


def test_nothing_derives_from_what_certifies_nothing(home):
    for base in (-1, 0, 1, load(home, 1).certificate.reservation, 10_000):
        with pytest.raises(UnknownName, match="base="):
            home.ledger.derive(base, hexes("a"), hexes("b"), WHY)


def test_a_derived_certificate_can_be_revoked_by_itself(twice):
    home = opened(twice)
    key_life.revoke(home, load(home, 4).certificate.issued, "ann", "wrong")
    load(home, 3)
    with pytest.raises(CertificateInvalid, match="revoked"):
        load(home, 4)


# Forgeries: of the entry, by who can sign the log.


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"base": 0}, "base=0"),
        ({"base": 10_000}, "base=10000"),
        ({"base": "4"}, "base='4': must be the index"),
        ({"base": True}, "base: must be the index"),
        ({"reservation": 0}, "job=0"),
        ({"name": "other"}, "name='other'"),
        ({"statement": "x"}, "statement"),
        ({"model": "x"}, "model"),
        ({"by": ""}, "by"),
        ({"reason": " "}, "reason"),
        ({"price": {"pure": "0"}}, "exactly the fields"),
    ],
)
def test_a_forged_entry_is_named(twice, fields, problem):
    leaves = bodies(twice)
    at = len(leaves) - 2
    rewrite(twice, [*leaves[:at], changed(leaves[at], **fields), *leaves[at + 1 :]])
    found = audit_place(place(twice))
    assert found.first == at
    assert problem in found.problems[0]


def test_a_base_of_another_job(twice):
    values, leaves = entries(twice), bodies(twice)
    other = [seq for seq, each in enumerate(values) if each["type"] == "issued"][1]
    at = len(leaves) - 2
    rewrite(twice, [*leaves[:at], changed(leaves[at], base=other), *leaves[at + 1 :]])
    found = audit_place(place(twice))
    assert found.first == at
    assert "is not a model of job" in found.problems[0]


def test_an_entry_that_derives_from_what_was_revoked(twice):
    leaves, values = bodies(twice), entries(twice)
    base = next(seq for seq, each in enumerate(values) if each["type"] == "issued")
    revoked = {"type": "revoked", "issued": base, "reason": "x", "by": "x", "time": values[-1]["time"]}
    rewrite(twice, [*leaves[:-1], canonical.encode(revoked), leaves[-1]])
    found = audit_place(place(twice))
    assert found.first == len(leaves)
    assert "was revoked: nothing can be derived" in found.problems[0]


# Forgeries: of the certificate, by who has the issuer's key and can append what the ledger's own door lets in.


def forged(home: Home, version: int, change) -> tuple[bytes, str, bytes]:
    """The version's certificate with another statement, signed by the issuer and entered anew in the ledger."""
    found = load(home, version)
    body = json.loads(dsse.parse(found.bundle.envelope).payload)
    change(body["predicate"]["public"], body["predicate"])
    payload = canonical.encode(body, 1 << 19)
    envelope = statement.sign(payload, home.keys)
    base = found.certificate.ancestors[-1].entry if found.certificate.ancestors else found.certificate.issued
    index = home.ledger.derive(base, certificate.digest(payload), found.certificate.sha256, WHY)
    return envelope, home.ledger.log.proof(index), found.bundle.onnx


def put(home: Home, version: int, parts: tuple[bytes, str, bytes]) -> Path:
    folder = ModelStore(home.models).resolve(f"adult@{version}")
    (folder / "model.onnx.dsse.json").write_bytes(parts[0])
    (folder / "model.onnx.sigstore.json").write_bytes(dsse.to_sigstore_bundle(parts[0]))
    (folder / "model.onnx.tlog-proof").write_text(parts[1])
    return folder


def ancestor(at: int, **fields):
    def change(public, _predicate):
        public["supersedes"][at] |= fields

    return change


def without(name: str):
    return lambda public, _predicate: public.pop(name)


def edit_says(public, _predicate):
    public["edits"][0]["why"] = "another reason"


VERIFIED_ALONE = {
    "no base": without("supersedes"),
    "no supersedes, no edits": lambda public, _: (public.pop("supersedes"), public.pop("edits")),
    "another base": ancestor(-1, entry=5),
    "a base after it": ancestor(-1, entry=10_000),
    "a base before the reservation": ancestor(0, entry=0),
    "out of order": lambda public, _: public["supersedes"].reverse(),
    "half of the chain": lambda public, _: public["supersedes"].pop(),
    "an empty chain": lambda public, _: public.update(supersedes=[]),
    "no edit": lambda public, _: public.update(edits=[]),
    "a cheaper claim": lambda _, predicate: predicate["claim"].update(epsilon="0.1"),
    "another reservation": lambda _, predicate: predicate["ledger"].update(reservation=1),
    "a field more": ancestor(0, price="0"),
    "a digest that is none": ancestor(0, statement="0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", VERIFIED_ALONE.values(), ids=VERIFIED_ALONE.keys())
def test_a_forged_statement_is_refused_offline(twice, change):
    home = opened(twice)
    parts = forged(home, 4, change)
    with pytest.raises(VerificationError):
        verify(*parts, home.trust)


LOADED = {
    "edits altered": edit_says,
    "an edit left out": lambda public, _: public["edits"].pop(),
    "other numbers": lambda public, _: public.update(ensemble=hexes("other")),
}


@pytest.mark.parametrize("change", LOADED.values(), ids=LOADED.keys())
def test_edits_that_are_not_the_models_are_refused_when_it_is_loaded(twice, change):
    home = opened(twice)
    folder = put(home, 4, forged(home, 4, change))
    with pytest.raises(ModelInvalid, match=r"ensemble\.json"):
        load_verified(folder, home.trust)


KNOWN_TO_THE_LEDGER = {
    "a statement that the base has not": ancestor(1, statement=hexes("x")),
    "a statement that the release has not": ancestor(0, statement=hexes("x")),
    "numbers that were not released": ancestor(0, ensemble=hexes("x")),
    "a link left out": lambda public, _: public["supersedes"].pop(0),
}


@pytest.mark.parametrize("change", KNOWN_TO_THE_LEDGER.values(), ids=KNOWN_TO_THE_LEDGER.keys())
def test_a_forged_descent_is_found_by_home_and_audit(twice, change):
    home = opened(twice)
    put(home, 4, forged(home, 4, change))
    with pytest.raises(VerificationError):
        load(home, 4)
    found = audit_home(home, bundles(home.path))
    assert any("adult@4" in problem for problem in found.problems)


PROMISES = {
    "another dataset": lambda _, predicate: predicate["dataset"].update(name="other"),
    "other hyper-parameters": lambda public, _: public["hyperparameters"].update(rounds=7),
}


@pytest.mark.parametrize("change", PROMISES.values(), ids=PROMISES.keys())
def test_a_derived_model_promises_what_its_base_does(twice, change):
    home = opened(twice)
    put(home, 3, forged(home, 3, change))
    shutil.rmtree(home.models / "adult" / "4")
    found = audit_home(home, bundles(home.path))
    assert found.problems == (f"model adult@3: promises something else than entry {_issued(home, 1)}, its base",)


def _issued(home: Home, version: int) -> int:
    return load(home, version).certificate.issued


def test_a_released_certificate_passed_off_as_derived_and_the_other_way(twice):
    home = opened(twice)
    released, derived = load(home, 1), load(home, 3)
    proofs = released.bundle.proof.decode(), derived.bundle.proof.decode()
    with pytest.raises(VerificationError):
        verify(derived.bundle.envelope, proofs[0], derived.bundle.onnx, home.trust)
    with pytest.raises(VerificationError):
        verify(released.bundle.envelope, proofs[1], released.bundle.onnx, home.trust)
    with pytest.raises(ModelInvalid, match="edits stand in a derived model"):
        lineage.check_edits(derived.ensemble, released.certificate)


def test_the_numbers_of_an_edited_model_are_bound_too(twice):
    home = opened(twice)
    folder = ModelStore(home.models).resolve("adult@3")
    (folder / "ensemble.json").write_bytes(ensemble_bytes(edited(load(home, 1), 0.75)))
    with pytest.raises(ModelInvalid, match="not the released numbers"):
        load(home, 3)


def test_a_ledger_without_the_entry_knows_no_such_model(twice, tmp_path):
    """Put back to before the edits, mark and all."""
    rewrite(twice, bodies(twice)[:-2])
    home = opened(twice)
    with pytest.raises(VerificationError):
        load(home, 3)
    load(home, 1)
    assert problems(twice) != ()


def test_an_export_is_audited_with_its_edited_models(twice, tmp_path):
    from accountant.audit.export import export
    from accountant.audit.export_tiles import export_tiles
    from dpserve_verify.audit.exports import audit_export
    from dpserve_verify.audit.tile_check import audit_tiles

    home = opened(twice)
    export(home, tmp_path / "ledger")
    assert audit_export(tmp_path / "ledger", home.trust, bundles=bundles(twice)).ok
    export_tiles(home, tmp_path / "tiles")
    assert audit_tiles(tmp_path / "tiles", home.trust, bundles=bundles(twice)).ok


def test_the_graph_answers_as_the_edited_numbers_do(twice):
    home = opened(twice)
    found = load(home, 4)
    names = [feature.name for feature in found.ensemble.features]
    rows = small_home.records(100)
    columns = {name: np.array([row[name] for row in rows]) for name in names}
    labels, probabilities = found.runtime.predict(columns)
    assert (labels == found.ensemble.predict(columns)).all()
    assert np.allclose(probabilities, found.ensemble.probabilities(columns), atol=1e-6)
    moved = np.isin(columns["education"], ["Bachelors", "Masters"])
    changed = (load(home, 1).ensemble.probabilities(columns) != found.ensemble.probabilities(columns)).any(axis=1)
    assert (changed == moved).all()


def test_the_page_in_plain_words_says_what_was_edited(twice):
    home = opened(twice)
    said = to_text(plain(load(home, 4).certificate))
    assert "What was edited" in said
    assert said.count("a review") == 2
    assert "costs no privacy" in said
    assert "What was edited" not in to_text(plain(load(home, 1).certificate))


def test_a_raw_index_row_gives_no_derived_model_away(twice):
    """The derived index holds nothing of derived entries: it still agrees with them."""
    assert raw(twice).execute("SELECT count(*) FROM job WHERE issued IS NOT NULL").fetchone() == (2,)
    assert problems(twice) == ()
    assert read_bundle(twice / "models" / "adult" / "3").card


def test_the_audit_reads_derived_entries_from_leaves_alone(twice):
    home = opened(twice)
    with home.ledger.log.database.reading() as connection:
        from accountant.store.store import checkpoints, leaves

        assert audit(leaves(connection), checkpoints(connection), home.trust, bundles=bundles(twice)).ok
