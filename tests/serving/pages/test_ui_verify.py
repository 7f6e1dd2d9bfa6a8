"""serving/pages/static/verify.js against what the accountant writes, outside a browser: every forged, tampered or
revoked
part is refused at its step, in the same cases in which our own verifier refuses it."""

from __future__ import annotations

import base64
import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from expected_verdicts import EXPECTED, concerning
from expected_verdicts import FOLDER as VECTORS
from ledgers import MECHANISMS, hexes, plan
from offices import ORIGIN, Filed, Office, dataset, office, public_of
from securesystemslib.signer import CryptoSigner, SSlibKey
from stated import stated

from accountant.certificates.edited_models import Ancestor, statement_of
from dpserve_verify.certificates.certificate import digest, verify
from dpserve_verify.errors import DpserveError
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import IssuerKey, LogKey, PublicKeys, fingerprint, public_pem
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from dpserve_verify.privacy.made_from import Source
from dpserve_verify.privacy.selection import Poisson

pytestmark = [pytest.mark.slow, pytest.mark.system("node")]
ROOT = Path(__file__).resolve().parents[3]
STATIC = ROOT / "serving" / "pages" / "static"
STEPS = ["keys", "form", "signature", "model", "claim", "checkpoint", "inclusion", "entry", "standing"]

OFFICE, FILED = office()


@lru_cache
def quick() -> tuple[Office, Filed]:
    """Whose claim is a plain sum, for what is asked hundreds of times."""
    made = Office()
    filed = made.issue(delta="0")
    made.append("token-revoked", name="a token")
    return made, filed


class Checker:
    """verify.js in a process of its own; what is not given anew is as it was first."""

    def __init__(self, folder: Path) -> None:
        for script in STATIC.glob("verify*.js"):
            shutil.copy(script, folder)
        (folder / "package.json").write_text('{"type": "module"}')
        command = ["node", str(ROOT / "tests" / "node" / "verify_driver.mjs"), str(folder / "verify.js")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **parts: bytes) -> dict:
        line = json.dumps({name: base64.b64encode(raw).decode() for name, raw in parts.items()})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def bad(self, **parts: bytes) -> list[str]:
        """The steps that fail, without those that could not be reached."""
        found = self.ask(**parts)
        assert not found["ok"]
        unreached = "Could not be checked, because a step before it failed."
        return [id for id, state in found["steps"].items() if state == "bad" and found["says"][id] != unreached]


def parts(filed: Filed, trust: PublicKeys) -> dict[str, bytes]:
    return {
        "model": filed.onnx,
        "certificate": filed.envelope,
        "proof": filed.proof.encode(),
        "trust": trust.to_json(),
    }


@pytest.fixture(scope="module")
def checker(tmp_path_factory) -> Iterator[Checker]:
    found = Checker(tmp_path_factory.mktemp("verify"))
    assert found.ask(**parts(FILED, OFFICE.trust))["ok"]
    yield found
    found.process.stdin.close()
    assert found.process.wait(300) == 0


def test_what_the_accountant_writes_passes_every_step(checker):
    found = checker.ask()
    assert list(found["steps"].items()) == [(step, "good") for step in STEPS]
    assert digest(FILED.onnx) in found["says"]["model"]
    assert OFFICE.trust.issuers[0].keyid in found["says"]["signature"]


@pytest.mark.parametrize("kind", ["worth", "profile"])
def test_statements_pass_every_step_and_whatever_is_changed_fails_at_its_own(checker, kind):
    home, found, _ = stated()
    (statement, proof), other = found[kind], found["profile" if kind == "worth" else "worth"]
    given = {"statement": statement, "proof": proof, "trust": home.trust.to_json()}
    whole = checker.ask(**given)
    steps = [
        "keys",
        "statementForm",
        "signature",
        "claim",
        "checkpoint",
        "inclusion",
        "statementEntry",
        "statementStanding",
    ]
    assert list(whole["steps"].items()) == [(step, "good") for step in steps], whole["says"]
    payload = dsse.parse(statement).payload
    cheaper = canonical.encode(mutated(payload, ("claim", "epsilon"), "0.01"), 1 << 19)
    stolen = dsse.sign(cheaper, home.keys.signer("issuer"))
    assert checker.bad(**{**given, "statement": with_payload(statement, cheaper)}) == [
        "signature",
        "claim",
        "statementEntry",
    ]
    assert checker.bad(**{**given, "statement": stolen}) == ["claim", "statementEntry"]  # a stolen key mints none
    assert checker.bad(**{**given, "proof": other[1]}) == ["statementEntry"]
    assert checker.bad(**{**given, "trust": OFFICE.trust.to_json()}) == ["signature", "checkpoint"]
    assert "statementForm" in checker.bad(**{**given, "statement": FILED.envelope})  # a certificate is none
    if kind == "worth":
        entry = json.loads(payload)["predicate"]["model"]["certificate"]
        revoked = replace(home.trust, revoked=frozenset({entry}))
        assert checker.bad(**{**given, "trust": revoked.to_json()}) == ["statementStanding"]


def mutated(payload: bytes, path: tuple[str, ...], to: str) -> dict:
    body = json.loads(payload)
    place = body["predicate"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return body


def with_payload(envelope: bytes, payload: bytes) -> bytes:
    return json.dumps(json.loads(envelope) | {"payload": base64.b64encode(payload).decode()}).encode()


def accepted(**changed: bytes) -> bool:
    """Whether our own verifier takes it."""
    made, filed = quick()
    given = {**parts(filed, made.trust), **changed}
    try:
        trust = PublicKeys.from_json(given["trust"])
        verify(given["certificate"], given["proof"].decode(), given["model"], trust)
    except (DpserveError, UnicodeDecodeError):
        return False
    return True


@pytest.mark.parametrize("part", ["model", "certificate", "proof", "trust"])
def test_a_changed_byte_of_any_part_fails(checker, part):
    """At places all over the file; where a byte changes nothing for our own verifier, it may change nothing here."""
    given = parts(quick()[1], quick()[0].trust)
    raw = given[part]
    places = np.random.default_rng(1).choice(len(raw), min(len(raw), 100), replace=False)
    for at in sorted(map(int, places)):
        for flip in (1, 0x20):
            changed = raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :]
            ours = accepted(**{part: changed})
            assert checker.ask(**{**given, part: changed})["ok"] == ours, (at, flip)
            assert not ours or part == "trust"  # a first index that still holds the certificate's


@pytest.mark.parametrize("part", ["model", "certificate", "proof", "trust"])
@pytest.mark.parametrize(
    "change", [lambda raw: b"", lambda raw: raw[:-1], lambda raw: raw + b"\n", lambda raw: raw * 2]
)
def test_what_is_cut_or_added_fails(checker, part, change):
    given = parts(quick()[1], quick()[0].trust)
    changed = change(given[part])
    assert checker.ask(**{**given, part: changed})["ok"] == accepted(**{part: changed})


def test_each_step_fails_by_itself(checker):
    other = Office(issuer=7, log=8)
    assert checker.bad(model=b"another model") == ["model"]
    assert checker.bad(certificate=OFFICE.sign(FILED.payload, 7)) == ["signature"]
    issuer_only = replace(OFFICE.trust, log_pem=other.trust.log_pem)
    assert checker.bad(trust=issuer_only.to_json()) == ["checkpoint"]
    assert checker.bad(trust=replace(OFFICE.trust, revoked=frozenset({FILED.index})).to_json()) == ["standing"]
    assert checker.bad(trust=replace(OFFICE.trust, origin="example.org/other").to_json()) == ["checkpoint"]
    assert checker.bad(proof=OFFICE.proof(FILED.index - 1).encode()) == ["entry"]
    assert checker.bad(proof=FILED.proof.replace(f"index {FILED.index}", "index 0").encode()) == ["inclusion"]


def test_a_key_that_anybody_can_sign_by_is_no_key(checker):
    """The identity as issuer, in both its spellings, and the largest point of order 8: our own verifier refuses too."""
    text = OFFICE.trust.to_json().decode()
    eighth = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
    for number in (1, 2**255 - 18, 2**255 - 19, 1 << 255, eighth):
        small = Ed25519PublicKey.from_public_bytes(number.to_bytes(32, "little"))
        own = OFFICE.trust.issuers[0]
        changed = text.replace(json.dumps(own.pem)[1:-1], json.dumps(public_pem(small))[1:-1])
        changed = changed.replace(own.keyid, fingerprint(small))
        assert changed != text
        assert "keys" in checker.bad(trust=changed.encode())
        assert not accepted(trust=changed.encode())


def test_a_key_counts_only_where_it_may_speak(checker):
    key = OFFICE.trust.issuers[0]
    late, ended = replace(key, from_index=FILED.index + 1), replace(key, until_index=FILED.index)
    for issuer in (late, ended):
        assert checker.bad(trust=replace(OFFICE.trust, issuers=(issuer,)).to_json()) == ["signature"]
    good = replace(key, from_index=FILED.index, until_index=FILED.index + 1)
    assert checker.ask(trust=replace(OFFICE.trust, issuers=(good,)).to_json())["ok"]
    size = FILED.index + 1  # of the checkpoint in its proof
    former = LogKey(OFFICE.trust.log_pem, 0, size + 1)
    moved = PublicKeys(ORIGIN, OFFICE.trust.issuers, public_of(9), size + 1, (former,))
    assert checker.ask(trust=moved.to_json())["ok"]
    ended_before = PublicKeys(ORIGIN, OFFICE.trust.issuers, public_of(9), size + 1, (replace(former, until_size=size),))
    assert checker.bad(trust=ended_before.to_json()) == ["checkpoint"]


def test_an_entry_that_binds_something_else_fails(checker):
    for field, value in {"model": "0" * 64, "statement": "0" * 64, "name": "other", "reservation": 0}.items():
        made = Office()
        payload = made.statement(b"a model")
        index = made.enter(payload, b"a model", **{field: value})
        given = Filed(payload, made.sign(payload), index, made.proof(index), b"a model")
        assert checker.bad(**parts(given, made.trust)) == ["entry"], field


def test_an_edited_model_rests_on_what_it_came_from(checker):
    made = Office()
    first = made.issue()
    onnx, chain = b"an edited model", [Ancestor(first.index, digest(first.payload), hexes("ensemble"))]
    edit = {"at": "2025-02-01T12:00:00Z", "by": "ann", "why": "noise", "feature": "age", "what": "{}"}
    payload = statement_of(first.payload, chain, [edit], digest(onnx), hexes("edited"))

    def entered(base):
        reservation = json.loads(payload)["predicate"]["ledger"]["reservation"]
        fields = {"base": base, "statement": digest(payload), "model": digest(onnx), "name": "adult"}
        index = made.append("derived", reservation=reservation, reason="noise", by="ann", **fields)
        return parts(Filed(payload, made.sign(payload), index, made.proof(index), onnx), made.trust)

    good = entered(first.index)
    assert checker.ask(**good)["ok"]
    verify(good["certificate"], good["proof"].decode(), onnx, made.trust)
    assert checker.bad(**entered(first.index - 1)) == ["entry"]
    revoked = replace(made.trust, revoked=frozenset({first.index}))
    assert checker.bad(**{**good, "trust": revoked.to_json()}) == ["standing"]


def test_a_key_that_stands_twice_or_a_float_is_refused(checker):
    text = FILED.envelope.decode()
    twice = text.replace('{"payload":', '{"payloadType":"x","payload":', 1)
    assert checker.bad(certificate=twice.encode()) == ["form"]
    number = OFFICE.trust.to_json().replace(b'"from_index":0', b'"from_index":0.0')
    assert checker.bad(trust=number) == ["keys"]


def test_a_statement_that_is_not_canonical_is_refused(checker):
    made = Office()
    payload = made.statement(b"a model").replace(b'{"_type"', b'{ "_type"', 1)
    index = made.enter(made.statement(b"a model"), b"a model", statement=digest(payload))
    given = Filed(payload, made.sign(payload), index, made.proof(index), b"a model")
    assert checker.bad(**parts(given, made.trust)) == ["form"]


def test_a_certificate_signed_on_p256(checker):
    private = ec.derive_private_key(5, ec.SECP256R1())
    public = private.public_key()
    signer = CryptoSigner(private, SSlibKey.from_crypto(public, keyid=fingerprint(public)))
    trust = replace(OFFICE.trust, issuers=(IssuerKey(public_pem(public)),))
    for _ in range(8):  # signatures differ in length
        assert checker.ask(certificate=dsse.sign(FILED.payload, signer), trust=trust.to_json())["ok"]
    raw = json.loads(dsse.sign(FILED.payload, signer))
    sig = base64.b64decode(raw["signatures"][0]["sig"])
    raw["signatures"][0]["sig"] = base64.b64encode(sig[:-1] + bytes([sig[-1] ^ 1])).decode()
    assert checker.bad(certificate=json.dumps(raw).encode(), trust=trust.to_json()) == ["signature"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 9, 33])
def test_inclusion_at_every_place(checker, size):
    for before in range(0, size, max(1, size // 4)):
        made = Office()
        for number in range(before):
            made.append("token-revoked", name=f"token {number}")
        filed = made.issue()
        for number in range(size - before):
            made.append("token-revoked", name=f"later {number}")
        given = replace(filed, proof=made.proof(filed.index))
        assert checker.ask(**parts(given, made.trust))["ok"]


VOTE = "select a 1-rule by weighted agreement"
BEST = "the best by score of a random number of runs, each with a setting drawn from the grid"


def releases(*runs: tuple[str, str, int]) -> Plan:
    kinds = {"range": BoundedRange, "pure": PureDp, "gauss": Gaussian}
    return Plan(tuple((Release(VOTE, *MECHANISMS[kinds[k]], 1048576, kinds[k](Decimal(e))), n) for k, e, n in runs))


CLAIMS = {
    "pure": (releases(("range", "0.1", 5)), "0"),
    "adaptive": (releases(("range", "0.089078691", 97), ("pure", "0.2", 3)), "0.000001"),
    "one release": (releases(("range", "0.5", 1)), "0.000001"),
    "gaussian": (releases(("gauss", "31", 14), ("gauss", "13.2", 1), ("gauss", "30", 400)), "0.0000001"),
    "much noise": (releases(("gauss", "900", 1)), "0.000001"),
    "little noise": (releases(("gauss", "0.3", 4)), "0.00001"),
    "mixed": (releases(("gauss", "20", 40), ("range", "0.1", 20)), "0.000001"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_epsilon_is_computed_again(checker, name):
    what, delta = CLAIMS[name]
    made = Office()
    filed = made.issue(b"a model", what, delta=delta)
    found = checker.ask(**parts(filed, made.trust))
    assert found["ok"], found["says"]
    assert found["steps"]["claim"] == "good"


@pytest.mark.parametrize("name", CLAIMS)
def test_an_epsilon_that_is_too_small_is_refused(checker, name):
    """Signed and entered by the office itself: only the arithmetic tells."""
    what, delta = CLAIMS[name]
    made = Office()
    body = json.loads(made.statement(b"a model", what, delta=delta))
    stated = body["predicate"]["claim"]
    stated["epsilon"] = canonical.decimal_string(Decimal(stated["epsilon"]) * Decimal("0.9990"))
    payload = canonical.encode(body, 1 << 20)
    index = made.enter(payload, b"a model")
    filed = Filed(payload, made.sign(payload), index, made.proof(index), b"a model")
    assert checker.bad(**parts(filed, made.trust)) == ["claim"]


def test_what_a_browser_does_not_compute_is_said_to_be_open(checker):
    selection = RepeatAndSelect(Poisson(Decimal(5)), ((BoundedRange(Decimal("0.01")), 3),))
    made = Office()
    filed = made.issue(b"a model", Plan(((Release(BEST, "private-selection", "run", 1, selection), 1),)))
    found = checker.ask(**parts(filed, made.trust))
    assert found["ok"]
    assert found["steps"]["claim"] == "open"
    assert "dpserve verify does it" in found["says"]["claim"]


def test_a_sum_that_does_not_follow_is_refused(checker):
    for change in ({"pure": "0.1"}, {"rdp": [{"order": "2", "epsilon": "0.000001"}]}, {"variant": "pure"}):
        made = Office()
        body = json.loads(made.statement(b"a model", plan()))
        body["predicate"]["claim"].update(change)
        payload = canonical.encode(body, 1 << 20)
        index = made.enter(payload, b"a model")
        filed = Filed(payload, made.sign(payload), index, made.proof(index), b"a model")
        assert checker.bad(**parts(filed, made.trust)) == ["claim"], change


@pytest.mark.slow
def test_the_documented_snippet_runs(checker, tmp_path):
    page = (ROOT / "docs" / "audit.md").read_text()
    snippet = page.split("```js\n")[1].split("```")[0]
    for script in STATIC.glob("verify*.js"):
        shutil.copy(script, tmp_path)
    names = list(parts(FILED, OFFICE.trust))
    for name, raw in parts(FILED, OFFICE.trust).items():
        (tmp_path / name).write_bytes(raw)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    head = (
        'import { webcrypto } from "node:crypto";\nimport { readFileSync } from "node:fs";\n'
        "globalThis.crypto ??= webcrypto;\n"
        f"const [{', '.join(names)}] = {json.dumps(names)}.map((name) => new Uint8Array(readFileSync(name)));\n"
    )
    (tmp_path / "snippet.js").write_text(f"{head}{snippet}console.log(ok, steps.length);\n")
    done = subprocess.run(["node", "snippet.js"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == f"true {len(STEPS)}\n", done.stderr


# ---- the vectors of docs/reference/ledger.md -------------------------------------------------------------------------

LAYERS = {
    "signature": "signature",
    "model": "subject",
    "checkpoint": "proof",
    "inclusion": "proof",
    "entry": "binding",
    "standing": "standing",
}


@pytest.mark.parametrize("name", concerning("bundle", "signature"))
def test_bundles_of_the_vectors(checker, name):
    """It accepts what is sound; of what is not, the steps that fail are about the layer that was forged."""
    folder = VECTORS / name
    ends = {"certificate": "dsse.json", "proof": "tlog-proof"}
    files = {part: (folder / f"model.onnx.{end}").read_bytes() for part, end in ends.items()}
    given = {"model": (folder / "model.onnx").read_bytes(), "trust": (folder / "trust.json").read_bytes(), **files}
    if EXPECTED[name]["verdict"] == "sound":
        assert checker.ask(**given)["ok"]
    else:
        failed = checker.bad(**given)
        layers = {"epsilon" if step == "claim" else LAYERS[step] for step in failed}
        layers = {"curve"} if layers == {"epsilon"} and "curve" in EXPECTED[name]["by"] else layers  # one step for both
        assert layers == set(EXPECTED[name]["by"]), failed


def test_claims_of_the_vectors():
    names = concerning("claim", "epsilon")
    files = [str(VECTORS / name / "statement.json") for name in names]
    driver = str(ROOT / "tests" / "node" / "claims_driver.mjs")
    done = subprocess.run(["node", driver, str(STATIC / "verify_claim.js"), *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))
    for name, said in found.items():
        wanted = "open" if EXPECTED[name].get("needs") else EXPECTED[name]["verdict"]
        assert said["verdict"] == wanted, (name, said)


def test_the_sum_with_what_a_release_was_made_from_is_added_up_again(tmp_path):
    """The browser adds up what the one function does, parts kept aside apart, and refuses another sum or none."""

    def source(job: int, epsilon: str, part: str, same: bool = True) -> Source:
        spent = ((PureDp(Decimal(epsilon)), 1),)
        claim = Decimal(epsilon), Decimal("0.00000000001")
        named = "profile", "schema", "d", ("f",)
        return Source("dpserve/x", job, job + 1, "a" * 64, *named, part, *claim, spent, same)

    sources = source(3, "0.5", "training"), source(3, "0.5", "training"), source(5, "0.125", "holdout")
    plan = Plan.of(
        [Release("select a 1-rule by weighted agreement", "permute-and-flip", "range", 1, PureDp(Decimal("0.1")))]
    )
    about = replace(dataset(), made_from=(*sources[1:], source(9, "4", "all", False)))
    sound = json.loads(Office().statement(b"a model", plan, about, "0"))
    assert sound["predicate"]["dataset"]["together"]["epsilon"] == "0.6"
    cases: dict[str, dict[str, Any]] = {"sound": sound}
    for name, (key, lie) in {
        "less": ("together", {"epsilon": "0.5", "delta": "0.00000000001", "sum": ""}),
        "no delta": ("together", {"epsilon": "0.6", "delta": "0", "sum": ""}),
        "none": ("together", None), "left out": ("madeFrom", None),
        "twice": ("madeFrom", [each.to_json() for each in sources]),
    }.items():  # fmt: skip
        cases[name] = copy.deepcopy(sound)
        cases[name]["predicate"]["dataset"].pop(key)
        if lie is not None:
            cases[name]["predicate"]["dataset"][key] = lie
    for name, statement in cases.items():
        (tmp_path / name).write_text(json.dumps(statement))
    driver = str(ROOT / "tests" / "node" / "claims_driver.mjs")
    files = [str(tmp_path / name) for name in cases]
    done = subprocess.run(["node", driver, str(STATIC / "verify_claim.js"), *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(zip(cases, (json.loads(line) for line in done.stdout.splitlines()), strict=True))
    assert found["sound"]["verdict"] == found["twice"]["verdict"] == "sound", found  # a release is counted once
    for name in cases.keys() - {"sound", "twice"}:
        assert found[name]["verdict"] == "forged", name
        assert found[name]["why"].startswith("together:"), found[name]
