"""Certificates of models trained on real rows: what verifies, all that must not, and tools that are not ours."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import ledgers
import pytest
from ledgers import place
from securesystemslib.signer import CryptoSigner

from accountant import canonical, certificate, dsse, proofs
from accountant.certificate import PREDICATE_TYPE, Policy, verify
from accountant.errors import CertificateInvalid, LedgerInvalid, VerificationError
from accountant.home import Home
from accountant.keys import IssuerKey, PublicKeys, public_pem
from accountant.prices import claim, compose_rdp

REFUSED = (CertificateInvalid, LedgerInvalid)


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
    runs[0]["count"] -= 1
    plan = ledgers.Plan(
        certificate.plan_from_json([{k: v for k, v in run.items() if k != "library"} for run in runs]).runs
    )
    found = claim(plan, Decimal(claimed["delta"]))
    claimed["epsilon"] = canonical.decimal_string(found.epsilon)
    claimed["rdp"] = [
        {
            "order": line["order"],
            "epsilon": canonical.decimal_string(certificate.from_nano(compose_rdp(plan.events, float(line["order"])))),
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
