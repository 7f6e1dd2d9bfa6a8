"""Certificates of models trained on real rows: what verifies, all that must not, and tools that are not ours."""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path

import jsonschema
import ledgers
import pytest
from ledgers import place
from offices import Office, cosigned, dataset, witness_policy
from securesystemslib.signer import CryptoSigner

from accountant.certificates import statement as statement_module
from accountant.certificates.statement import CONVERSIONS, implementation
from accountant.home import Home
from accountant.ledger.families.records import Unit
from accountant.log.collect import keep
from accountant.privacy import claims
from accountant.privacy.claims import claim
from dpserve_verify.certificates import certificate, predicate
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.certificates.policy import Policy
from dpserve_verify.certificates.predicate import PREDICATE_TYPE
from dpserve_verify.errors import CertificateInvalid, DpserveError, LedgerInvalid, ModelInvalid, VerificationError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.forms import json_schema
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import IssuerKey, PublicKeys, public_pem
from dpserve_verify.log import proofs
from dpserve_verify.privacy.budget import Budget, Relation, from_nano
from dpserve_verify.privacy.events import (
    EVENT_TYPES,
    BoundedRange,
    Gaussian,
    Plan,
    PureDp,
    Release,
    RepeatAndSelect,
    plan_from_json,
)
from dpserve_verify.privacy.renyi import compose_rdp
from dpserve_verify.privacy.selection import Poisson, logarithmic
from models.store.bundle import write_bundle
from models.store.loading import domains, load_of_home, load_verified
from serving.cli.app import run as run_command

REFUSED = (CertificateInvalid, LedgerInvalid)
SCHEMA = Path(__file__).resolve().parents[3] / "docs" / "certificate.schema.json"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    return Home.open(place(ledgers.copy(ledgers.trained(), tmp_path_factory.mktemp("certificates") / "home")))


@pytest.fixture(scope="module")
def models(home):
    """(envelope, proof, onnx) of two models."""
    return [(envelope, proof.decode(), onnx) for _, envelope, proof, onnx in ledgers.bundles(home.path)]


def statement(envelope: bytes) -> dict:
    return json.loads(dsse.parse(envelope).payload)


def signed(home: Home, payload: bytes) -> bytes:
    """What a thief of the issuer key can make: an envelope over anything."""
    return dsse.sign(payload, home.keys.signer("issuer"))


def test_a_certificate_says_what_was_reserved(home, models):
    for envelope, proof, onnx in models:
        found = verify(envelope, proof, onnx, home.trust)
        entry = home.ledger.reservation(found.reservation).value
        body = found.statement
        assert (found.epsilon, found.delta) == (Decimal(entry["claim"]["epsilon"]), Decimal("0.000001"))
        assert [{k: v for k, v in run.items() if k != "library"} for run in body["predicate"]["mechanisms"]] == entry[
            "plan"
        ]
        assert body["predicateType"] == PREDICATE_TYPE
        assert body["subject"] == [{"name": "adult", "digest": {"sha256": certificate.digest(onnx)}}]
        assert body["predicate"]["randomness"] == {"source": "operating system", "seeded": False}
        assert body["predicate"]["ledger"]["leaf"] == home.ledger.reservation_hash(found.reservation)
        assert home.ledger.log.entry(found.issued).value["reservation"] == found.reservation
        assert found.checkpoint_size > found.issued


def test_a_certificate_tells_nothing_that_depends_on_rows(models):
    """Under add/remove the number of rows is private; so are hashes of data, times and seeds."""
    for envelope, _, _ in models:
        text = dsse.parse(envelope).payload.decode()
        assert "records" not in statement(envelope)["predicate"]["dataset"]
        assert str(ledgers.SMALL_ROWS) not in [str(value) for value in leaves_of(statement(envelope))]
        for word in ("seconds", "duration", 'seed"', "accuracy", "auroc"):
            assert word not in text


def leaves_of(value):
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves_of(inner)]
    return [leaf for inner in value for leaf in leaves_of(inner)] if isinstance(value, list) else [value]


def test_policy(home, models):
    envelope, proof, onnx = models[0]
    found = verify(envelope, proof, onnx, home.trust)
    for fine in (
        Policy(largest_epsilon=found.epsilon),
        Policy(smallest_size=found.checkpoint_size),
        Policy(revoked=[0]),
    ):
        verify(envelope, proof, onnx, home.trust, fine)
    for strict, problem in (
        (Policy(largest_epsilon=found.epsilon - Decimal("0.000001")), "local policy"),
        (Policy(smallest_size=found.checkpoint_size + 1), "seen before"),
        (Policy(revoked=[found.issued]), "revoked"),
    ):
        with pytest.raises(CertificateInvalid, match=problem):
            verify(envelope, proof, onnx, home.trust, strict)


def test_moved_to_another_model(home, models):
    (envelope, proof, onnx), (_, other_proof, other_onnx) = models
    for other in (other_onnx, onnx + b"\0", onnx[:-1], b""):
        with pytest.raises(CertificateInvalid, match="the model's bytes"):
            verify(envelope, proof, other, home.trust)
    with pytest.raises(REFUSED):
        verify(envelope, other_proof, other_onnx, home.trust)


def test_the_proof_of_another_run(home, models):
    (envelope, proof, onnx), (_, other, _) = models
    with pytest.raises(REFUSED):
        verify(envelope, other, onnx, home.trust)
    parsed = proofs.parse_proof(proof)
    for entry in range(home.ledger.log.size()):  # any other entry of the same log, soundly proved
        if entry != parsed.index:
            with pytest.raises(REFUSED):
                verify(envelope, home.ledger.log.proof(entry), onnx, home.trust)
    verify(envelope, home.ledger.log.proof(parsed.index), onnx, home.trust)  # a newer checkpoint does as well


def test_a_foreign_issuer_and_a_foreign_log(home, models, tmp_path):
    envelope, proof, onnx = models[0]
    other = Home.init(place(tmp_path / "other"))
    mixed = PublicKeys(home.trust.origin, other.trust.issuers, home.trust.log_pem)
    for trust in (
        other.trust,
        mixed,
        replace(home.trust, log_pem=other.trust.log_pem),
        replace(home.trust, origin="x.y/z"),
    ):
        with pytest.raises(REFUSED):
            verify(envelope, proof, onnx, trust)
    with pytest.raises(CertificateInvalid, match="pinned issuer"):
        verify(dsse.sign(dsse.parse(envelope).payload, other.keys.signer("issuer")), proof, onnx, home.trust)


def test_an_issuer_key_speaks_for_its_own_indices(home, models):
    envelope, proof, onnx = models[0]
    index, pem = proofs.parse_proof(proof).index, home.trust.issuers[0].pem
    verify(envelope, proof, onnx, replace(home.trust, issuers=(IssuerKey(pem, 0, index + 1),)))
    for key in (IssuerKey(pem, 0, index), IssuerKey(pem, index + 1)):
        with pytest.raises(CertificateInvalid, match="pinned issuer"):
            verify(envelope, proof, onnx, replace(home.trust, issuers=(key,)))


def lower_epsilon(body):
    """Every number right: as if half the releases had been made."""
    claimed, runs = body["predicate"]["claim"], body["predicate"]["mechanisms"]
    next(run for run in runs if run["count"] > 1)["count"] -= 1
    plan = plan_from_json([{k: v for k, v in run.items() if k != "library"} for run in runs])
    found = claim(plan, Decimal(claimed["delta"]))
    claimed["epsilon"] = canonical.decimal_string(found.epsilon)
    claimed["rdp"] = [
        {
            "order": line["order"],
            "epsilon": canonical.decimal_string(from_nano(compose_rdp(plan.events, float(line["order"])))),
        }
        for line in claimed["rdp"]
    ]


def edit(*path):
    *inner, new = path

    def change(body):
        for step in inner[:-1]:
            body = body[step]
        body[inner[-1]] = new

    return change


CHANGES = {
    "epsilon and all that leads to it": lower_epsilon,
    "epsilon alone": edit("predicate", "claim", "epsilon", "0.1"),
    "epsilon raised": edit("predicate", "claim", "epsilon", "0.9"),
    "epsilon with an exponent": edit("predicate", "claim", "epsilon", "5e-1"),
    "epsilon not a number": edit("predicate", "claim", "epsilon", "NaN"),
    "epsilon an integer": edit("predicate", "claim", "epsilon", 1),
    "delta": edit("predicate", "claim", "delta", "0.00001"),
    "a Renyi figure": edit("predicate", "claim", "rdp", 0, "epsilon", "0.000001"),
    "the event": edit("predicate", "mechanisms", 0, "event", "epsilon", "0.000001"),
    "an unknown event": edit("predicate", "mechanisms", 0, "event", "type", "free"),
    "no mechanisms": edit("predicate", "mechanisms", []),
    "mechanisms not a list": edit("predicate", "mechanisms", 5),
    "the relation": edit("predicate", "claim", "relation", "replace-one"),
    "seeded": edit("predicate", "randomness", "seeded", True),
    "seeded with a zero": edit("predicate", "randomness", "seeded", 0),
    "seeded not said": edit("predicate", "randomness", {}),
    "the reservation": edit("predicate", "ledger", "reservation", 1),
    "a reservation to come": edit("predicate", "ledger", "reservation", 10**6),
    "a reservation before all": edit("predicate", "ledger", "reservation", -1),
    "the leaf": edit("predicate", "ledger", "leaf", "0" * 64),
    "the origin": edit("predicate", "ledger", "origin", "elsewhere"),
    "the dataset": edit("predicate", "dataset", "name", "other"),
    "the predicate type": edit("predicateType", "https://dpserve/other/v1"),
    "the statement type": edit("_type", "https://in-toto.io/Statement/v0.1"),
    "one more field": edit("extra", 1),
    "no subject": edit("subject", []),
    "the name": edit("subject", 0, "name", "other"),
    "no predicate": edit("predicate", None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_statement_is_refused_though_the_issuer_key_signed_it(home, models, what):
    """A stolen issuer key alone mints nothing: the log holds no entry for it."""
    envelope, proof, onnx = models[0]
    body = statement(envelope)
    CHANGES[what](body)
    with pytest.raises(REFUSED):
        verify(signed(home, canonical.encode(body, 1 << 20)), proof, onnx, home.trust)


def test_two_subjects_are_refused(home, models):
    envelope, proof, onnx = models[0]
    body = statement(envelope)
    body["subject"] *= 2
    with pytest.raises(CertificateInvalid):
        verify(signed(home, canonical.encode(body)), proof, onnx, home.trust)


def test_a_stolen_issuer_key_gets_nothing_for_a_model_of_its_own(home, models):
    envelope, proof, onnx = models[0]
    body = copy.deepcopy(statement(envelope))
    forged = onnx + b"backdoor"
    body["subject"][0]["digest"]["sha256"] = certificate.digest(forged)
    with pytest.raises(CertificateInvalid):
        verify(signed(home, canonical.encode(body)), proof, forged, home.trust)


def test_the_statement_is_read_strictly(home, models):
    """Signed or not: floats, double keys, white space and what follows the value have no place in it."""
    envelope, proof, onnx = models[0]
    payload = dsse.parse(envelope).payload
    for bad in (
        payload.replace(b'"count":', b'"count":1.0,"x":', 1),
        payload.replace(b'"predicate":{', b'"predicate":{"claim":{},', 1),
        payload + b" ",
        payload + b"{}",
        payload[:-1],
        b" " + payload,
        payload.replace(b",", b", ", 1),
        payload[:-1] + b',"pad":"' + b"x" * (1 << 19) + b'"}',
        b"",
        b"null",
    ):
        with pytest.raises(REFUSED):
            verify(signed(home, bad), proof, onnx, home.trust)


def test_the_envelope_is_read_strictly(home, models):
    envelope, proof, onnx = models[0]
    value = json.loads(envelope)
    one = value["signatures"][0]
    for bad in (
        envelope + b"x",
        envelope + b"\n{}",
        envelope[:-1],
        envelope[: len(envelope) // 2],
        b"",
        b'{"payload":"x",' + envelope[1:],
        envelope[:-1] + b',"pad":"' + b"x" * 10_000_000 + b'"}',
        b"[" * 100_000,
        json.dumps({**value, "signatures": []}).encode(),
        json.dumps({**value, "signatures": [one, one]}).encode(),
        json.dumps({**value, "signatures": [{**one, "sig": 1.5}]}).encode(),
        json.dumps({**value, "signatures": [{**one, "sig": base64.b64encode(bytes(64)).decode()}]}).encode(),
        json.dumps({**value, "payloadType": "text/plain"}).encode(),
        json.dumps({**value, "extra": 1}).encode(),
    ):
        with pytest.raises(REFUSED):
            verify(bad, proof, onnx, home.trust)
    verify(json.dumps(value, indent=2).encode(), proof, onnx, home.trust)  # white space is free in the envelope


def test_the_proof_is_read_strictly(home, models):
    envelope, proof, onnx = models[0]
    lines = proof.split("\n")
    extra = next(index for index, line in enumerate(lines) if line.startswith("extra "))
    for bad in (
        "",
        proof[:-1],
        proof + "x\n",
        proof[: len(proof) // 2],
        "\n".join(lines[:extra] + lines[extra + 1 :]),
        proof.replace("\nindex ", "\nindex 1", 1),
        proof.replace("dpserve/", "other/"),
        proof + "x" * 10_000_000,
    ):
        with pytest.raises(REFUSED):
            verify(envelope, bad, onnx, home.trust)
    for index in range(1, len(proof), 7):  # any one character changed
        bad = proof[:index] + ("A" if proof[index] != "A" else "B") + proof[index + 1 :]
        with pytest.raises(REFUSED):
            verify(envelope, bad, onnx, home.trust)


@pytest.mark.slow
def test_any_changed_byte_of_the_envelope_is_refused(home, models):
    envelope, proof, onnx = models[0]
    for index in range(0, len(envelope), 11):
        bad = envelope[:index] + bytes([envelope[index] ^ 1]) + envelope[index + 1 :]
        with pytest.raises(VerificationError):
            verify(bad, proof, onnx, home.trust)


def test_only_the_issuer_key_counts(home, models):
    """The log's key, though pinned, signs no certificate."""
    envelope, proof, onnx = models[0]
    signer = home.keys.signer("log")
    assert isinstance(signer, CryptoSigner)
    with pytest.raises(CertificateInvalid, match="pinned issuer"):
        verify(dsse.sign(dsse.parse(envelope).payload, signer), proof, onnx, home.trust)


# ---- the published form


@pytest.fixture(scope="module")
def schema():
    return json.loads(SCHEMA.read_text())


def test_the_published_schema_is_that_of_the_code(schema):
    """Made anew by `python -m dpserve_verify.certificates.predicate > docs/certificate.schema.json`."""
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == predicate.json_schema()


def objects(part):
    if isinstance(part, dict):
        yield from ([part] if "properties" in part else [])
        part = list(part.values())
    for each in part if isinstance(part, list) else ():
        yield from objects(each)


def test_the_published_schema_allows_nothing_more(schema):
    found = list(objects(schema))
    assert len(found) > 15
    assert all(each["additionalProperties"] is False for each in found)


def one_of(event) -> Plan:
    return Plan(
        (
            (
                Release(
                    "the best by score of a random number of runs, each with a setting drawn from the grid",
                    "private-selection",
                    "run",
                    1,
                    event,
                ),
                1,
            ),
        )
    )


def made() -> list[bytes]:
    """Payloads of certificates of every kind that this version writes."""
    pure = {"what": ledgers.plan(PureDp(Decimal("0.05")), 10), "about": dataset(budget=Budget.of("3")), "delta": "0"}
    run = ((BoundedRange(Decimal("0.01")), 5), (Gaussian(Decimal(50)), 1))
    selections = [one_of(RepeatAndSelect(each, run)) for each in (Poisson(Decimal(5)), logarithmic(Decimal("0.1")))]
    gaussians = Plan(((Release("sum residuals per leaf", "discrete-gaussian", "l2", 100, Gaussian(Decimal(20))), 30),))
    several = dataset(Relation.REPLACE_ONE, Unit("person", "customer", 4), families=3, version=7)
    kinds = [{}, pure, {"about": several}, {"what": gaussians}, *({"what": each} for each in selections)]
    return [Office().issue(**kind).payload for kind in kinds]


@pytest.mark.slow
def test_every_certificate_is_of_the_published_form(schema, models):
    validator = jsonschema.Draft202012Validator(schema)
    payloads = [*made(), *(dsse.parse(envelope).payload for envelope, _, _ in models)]
    for payload in payloads:
        validator.validate(json.loads(payload))
        stated = json.loads(payload)["predicate"]
        for part, model in (("claim", predicate.ClaimForm), ("accounting", predicate.AccountingForm)):
            assert set(stated[part]) == json_schema(model)["properties"].keys()
    bounds = {json.loads(payload)["predicate"]["claim"]["bound"] for payload in payloads}
    assert bounds == {"pure", "renyi", "gaussian", "adaptive"}
    listed = [run["event"]["type"] for payload in payloads for run in json.loads(payload)["predicate"]["mechanisms"]]
    assert set(listed) == {kind.type for kind in EVENT_TYPES}


def test_the_published_schema_refuses_what_the_reader_refuses(schema, models):
    validator = jsonschema.Draft202012Validator(schema)
    body = statement(models[0][0])
    for what in (
        "epsilon with an exponent",
        "epsilon an integer",
        "seeded",
        "one more field",
        "no subject",
        "no predicate",
    ):
        changed = copy.deepcopy(body)
        CHANGES[what](changed)
        assert not validator.is_valid(changed), what


def test_what_was_selected_in_private_is_said_to_be_paid_for():
    paid = [json.loads(payload)["predicate"]["accounting"]["coversTuning"] for payload in made()]
    assert paid == [False, False, False, False, True, True]


def test_every_bound_has_its_conversion():
    assert set(CONVERSIONS) >= set(claims.BOUNDS)


# ---- bundles


@pytest.fixture
def folder(home, tmp_path) -> Path:
    write_bundle(tmp_path / "model", read_bundle(home.models / "adult" / "1"))
    return tmp_path / "model"


def test_a_bundle_loads(home, folder):
    found = load_verified(folder, home.trust)
    assert found.travelling == found.bundle


def test_the_sigstore_form_must_wrap_the_very_envelope(home, folder):
    path, other = folder / "model.onnx.sigstore.json", read_bundle(home.models / "adult" / "2")
    good = json.loads(path.read_text())
    path.write_bytes(other.sigstore)
    with pytest.raises(CertificateInvalid, match="another envelope"):
        load_verified(folder, home.trust)
    for change in (
        {"mediaType": "application/vnd.dev.sigstore.bundle.v0.1+json"},
        {"verificationMaterial": {"publicKey": {"hint": "other"}, "tlogEntries": []}},
        {"verificationMaterial": {"publicKey": good["verificationMaterial"]["publicKey"], "tlogEntries": [1]}},
        {"extra": 1},
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(CertificateInvalid, match="bundle|mediaType"):
            load_verified(folder, home.trust)
    path.write_text(json.dumps(good, indent=1))  # white space is free
    assert load_verified(folder, home.trust)


def test_the_card_is_never_read_and_is_made_again_for_whoever_takes_the_model_along(home, folder):
    right = (folder / "card.md").read_bytes()
    (folder / "card.md").write_text("(0.01, 0)-differential privacy, promised")
    assert load_verified(folder, home.trust).travelling.card == right


def test_other_released_numbers_are_refused(home, folder):
    (folder / "ensemble.json").write_bytes(read_bundle(home.models / "adult" / "2").ensemble)
    with pytest.raises(ModelInvalid, match="released numbers"):
        load_verified(folder, home.trust)


def test_a_model_in_a_home_is_held_against_its_ledger(home, folder, tmp_path):
    assert load_of_home(home, folder, "adult")
    with pytest.raises(ModelInvalid, match="speaks of 'adult'"):
        load_of_home(home, folder, "other")
    before = Home.open(place(ledgers.copy(ledgers.prepared(), tmp_path / "before")))  # the same keys, before any model
    with pytest.raises(DpserveError):
        load_of_home(before, folder, "adult")
    other = Home.open(place(ledgers.copy(ledgers.prepared(), tmp_path / "other")))
    for number in range(12):  # another history, as long
        other.ledger.register(ledgers.registration(f"data{number}"))
    with pytest.raises(ModelInvalid, match="of this ledger is another"):
        load_of_home(other, folder, "adult")


def test_an_export_with_a_proof_against_a_cosigned_checkpoint(home, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    export = ["model", "export", "adult@1", "--witnessed", "--out", str(tmp_path / "out")]
    assert run_command(export) == 2
    assert "no checkpoint was cosigned yet" in capsys.readouterr().err
    keep(home.path, cosigned(home.ledger.log.checkpoint(), 31))
    assert run_command(export) == 0
    policy = Policy(witnesses=witness_policy(31), smallest_size=home.ledger.log.size())
    found = load_verified(tmp_path / "out", home.trust, policy)
    assert [each.witness for each in found.certificate.witnesses] == ["w31"]
    with pytest.raises(CertificateInvalid, match="seen before"):
        load_verified(home.models / "adult" / "1", home.trust, policy)


def test_domains_say_what_the_schema_says(home, folder):
    ensemble = load_verified(folder, home.trust).ensemble
    stated = domains(ensemble.features)
    assert [each["name"] for each in stated] == [feature.name for feature in ensemble.features]
    age = next(each for each in stated if each["name"] == "age")
    assert (age["type"], age["low"]) == ("numeric", "17")
    made = Office().issue()
    for each in stated:
        value = json.loads(made.payload)
        value["predicate"]["public"]["domains"] = [each]
        predicate.Statement.read(value)


def run(folder: Path, script: str) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True)


@pytest.mark.system("openssl", "jq")
def test_openssl_verifies_the_certificate_and_refuses_another(home, models, tmp_path):
    (tmp_path / "model.onnx.dsse.json").write_bytes(models[0][0])
    (tmp_path / "issuer.pem").write_text(public_pem(home.keys.public_key("issuer")))
    script = """
    jq -r .payload model.onnx.dsse.json | base64 -d > payload
    kind=$(jq -r .payloadType model.onnx.dsse.json)
    { printf 'DSSEv1 %d %s %d ' ${#kind} "$kind" "$(wc -c < payload)"; cat payload; } > pae
    jq -r '.signatures[0].sig' model.onnx.dsse.json | base64 -d > signature
    openssl pkeyutl -verify -rawin -pubin -inkey issuer.pem -sigfile signature -in pae
    """
    found = run(tmp_path, script)
    assert (found.returncode, found.stdout) == (0, "Signature Verified Successfully\n"), found.stderr
    payload = dsse.parse(models[0][0]).payload
    assert (tmp_path / "pae").read_bytes() == dsse.pae(dsse.PAYLOAD_TYPE, payload)
    value = json.loads(models[0][0])
    other = payload.replace(b'"add-remove"', b'"replace-one"', 1)
    assert other != payload
    (tmp_path / "model.onnx.dsse.json").write_text(json.dumps({**value, "payload": base64.b64encode(other).decode()}))
    assert run(tmp_path, script).returncode != 0


def test_the_documentation_explains_every_field(schema):
    text = (SCHEMA.parent / "reference" / "certificate.md").read_text()
    for part in objects(schema):
        if part.get("title") not in (
            "RenyiFigure",
            "BudgetForm",
            "NumericDomain",
            "CategoricalDomain",
            "BooleanDomain",
        ):
            for field in set(part["properties"]) - {"predicate"}:
                assert re.search(rf"[`.]{field}[`,.]", text), f"{part.get('title')}.{field}"


@pytest.mark.slow
def test_whoever_verifies_needs_no_sampler():
    script = "import sys; from dpserve_verify.certificates import certificate; "
    script += "print(sorted({'opendp', 'numba', 'numpy'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.system("jq", "openssl")
def test_the_documentations_commands_do_what_they_say(home, tmp_path):
    text = (SCHEMA.parent / "reference" / "certificate.md").read_text()
    (find_key,) = re.findall(r"```sh\n(jq .*?)```", text, re.DOTALL)
    (show,) = re.findall(r"`(jq '\.payload[^`]*)`", text)
    write_bundle(tmp_path / "model", read_bundle(home.models / "adult" / "1"))
    (tmp_path / "model" / "trust.json").write_bytes(home.trust.to_json())
    assert run(tmp_path / "model", find_key).returncode == 0
    assert (tmp_path / "model" / "issuer.pem").read_text() == public_pem(home.keys.public_key("issuer")) + "\n"
    assert run(tmp_path / "model", "openssl pkey -pubin -in issuer.pem -noout").returncode == 0
    assert json.loads(run(tmp_path / "model", show).stdout) == statement(read_bundle(tmp_path / "model").envelope)


def test_the_environment_is_what_the_installed_packages_say():
    """Each by the lines of its metadata, which a reader of mail reads alike, and longer."""
    found = {f"{each.metadata['Name']}=={each.version}".lower() for each in distributions()}
    assert dict(implementation())["environment"] == sha256("\n".join(sorted(found)).encode()).hexdigest()


class Odd(Distribution):
    """A distribution whose metadata say a name in another way."""

    def read_text(self, filename):
        return "Metadata-Version: 2.1\nname: Folded\nVersion: 1.0\n\nName: other\n" if filename == "METADATA" else None

    def locate_file(self, path):
        raise NotImplementedError


def test_metadata_that_say_it_otherwise_are_read_as_mail():
    assert statement_module._name_and_version(Odd()) == "folded==1.0"
