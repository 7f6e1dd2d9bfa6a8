"""The script for an auditor who has none of our code: every step is run, against sound files and forged ones."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import ledgers
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from expected_verdicts import EXPECTED, FOLDER, accepts, concerning, trust_of
from histories import copied, grown, log_vkey, pinned, rewritten
from ledgers import place, plan
from pages import blocks
from witness_server import Witness

from accountant.access import tokens
from accountant.audit.export import export
from accountant.audit.export_tiles import export_tiles
from accountant.home import Home
from accountant.log import stored_proofs
from accountant.log.collect import cosign
from accountant.privacy.claims import ADAPTIVE, GAUSSIAN, PURE, RENYI, claim
from dpserve_verify.formats import canonical
from dpserve_verify.keys.trust import public_pem
from dpserve_verify.log.witness_policy import parse_policy
from dpserve_verify.privacy.budget import NANO
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp

pytestmark = [pytest.mark.slow, pytest.mark.system("openssl", "jq", "awk")]
AUDIT = (ledgers.ROOT / "docs" / "audit.sh").read_text()
STEPS = [f"# {step}" for step in re.split(r"^# \d+\. ", AUDIT, flags=re.M)[1:]]
WITNESSES = "set -eu\n" + "\n".join(blocks("docs/reference/ledger.md", "sh", "Witnesses"))


@lru_cache
def _desk() -> Path:
    """What the auditor is given: a bundle, an export, tiles, the keys by another way; and what they kept."""
    desk = ledgers.scratch() / "desk"
    desk.mkdir()
    home = Home.open(place(ledgers.copy(ledgers.trained(), ledgers.scratch() / "audited")))
    (desk / "kept.checkpoint").write_text(home.ledger.log.checkpoint())
    for name in ("a", "b", "c"):
        tokens.create(home.ledger, name, ["audit"], ledgers.hexes(name))
    found = stored_proofs.continues(home.ledger.log.database, pinned(home), (desk / "kept.checkpoint").read_text())
    (desk / "consistency.json").write_text(json.dumps(found.to_json()))
    export(home, desk / "ledger")
    export_tiles(home, desk / "tiles")
    shutil.copytree(home.path / "models" / "adult" / "1", desk / "bundle")
    shutil.copytree(home.path / "models" / "adult" / "2", desk / "other")
    (desk / "trust.json").write_bytes(home.trust.to_json())
    return desk


@pytest.fixture
def desk(tmp_path) -> Path:
    return ledgers.copy(_desk(), tmp_path / "desk")


def follow(folder: Path, script: str = AUDIT) -> subprocess.CompletedProcess:
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True)


def test_it_verifies_what_is_sound(desk):
    found = follow(desk)
    assert found.returncode == 0, found.stdout[-500:] + found.stderr
    assert found.stdout.count("Signature Verified Successfully") == 6
    figures = json.loads((desk / "epsilon.json").read_text())
    assert figures["bound"] == ADAPTIVE
    assert 0.98 * figures["stated"] < figures["computed"] <= figures["stated"] <= 0.5
    budgets = json.loads((desk / "budgets.json").read_text())
    (account,) = budgets["accounts"].values()
    assert (budgets["wrong"], account["total"]["epsilon"], account["used"]["pure"] > 500_000_000) == (
        [],
        3 * NANO,
        True,
    )
    assert (desk / "tiled").read_bytes() == (desk / "ledger" / "entries.jsonl").read_bytes()


def test_it_needs_no_more_than_the_first_three(desk):
    """Without an earlier audit and without tiles the page is followed to its end all the same."""
    for name in ("kept.checkpoint", "consistency.json"):
        (desk / name).unlink()
    shutil.rmtree(desk / "tiles")
    found = follow(desk)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("Signature Verified Successfully") == 4


def resumed(step: int, steps: list[str]) -> str:
    """These steps in a shell that knows what the one before knew."""
    functions = re.findall(r"^\w+\(\) \{\n.*?^\}\n", "".join(STEPS[:step]), re.M | re.S)
    return "\n".join(["set -eu", ". ./variables", *functions, *steps])


@lru_cache
def _found_sound() -> tuple[Path, ...]:
    """The sound desk as each step of the page finds it: every step is begun anew, and stops at nothing."""
    desks = [ledgers.copy(_desk(), ledgers.scratch() / "step0")]
    (desks[0] / "variables").touch()
    for step, text in enumerate(STEPS):
        desks.append(ledgers.copy(desks[-1], ledgers.scratch() / f"step{step + 1}"))
        found = follow(desks[-1], resumed(step, [text, "set | grep '^[a-z_]*=' > variables"]))
        assert found.returncode == 0, found.stderr
    return tuple(desks)


def forged(folder: Path, attack) -> tuple[int, Path]:
    """The step that first reads from where the forged file lies, and the desk as it finds it."""
    attack(ledgers.copy(_desk(), folder / "given"))
    names = [path.relative_to(_desk()) for path in _desk().rglob("*") if path.is_file()]
    (name,) = [name for name in names if content(folder / "given" / name) != content(_desk() / name)]
    place = f"{name.parts[0]}/" if name.parts[1:] else str(name)
    step = next(at for at, text in enumerate(STEPS) if place in text)
    desk = ledgers.copy(_found_sound()[step], folder / "desk")
    (desk / name).unlink()
    if (folder / "given" / name).exists():
        shutil.copy(folder / "given" / name, desk / name)
    return step, desk


def content(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def swap(desk: Path, name: str, old: bytes, new: bytes) -> None:
    before = (desk / name).read_bytes()
    assert old in before
    (desk / name).write_bytes(before.replace(old, new, 1))


def flip(desk: Path, name: str) -> None:
    raw = (desk / name).read_bytes()
    (desk / name).write_bytes(bytes([*raw[:-1], raw[-1] ^ 1]))


def trusted(desk: Path, change) -> None:
    value = json.loads((desk / "trust.json").read_bytes())
    change(value)
    (desk / "trust.json").write_text(json.dumps(value))


def foreign(value: dict) -> None:
    value["pem"] = public_pem(Ed25519PrivateKey.generate().public_key())


def hashes(desk: Path, change) -> None:
    value = json.loads((desk / "consistency.json").read_text())
    (desk / "consistency.json").write_text(json.dumps(value | {"hashes": change(value["hashes"])}))


def gone(desk: Path, name: str) -> None:
    (desk / name).unlink()


SIZE, KEPT = 13, 10
ATTACKS = {
    "the model": lambda desk: swap(desk, "bundle/model.onnx", b"adult", b"adul_"),
    "the certificate": lambda desk: shutil.copy(desk / "other" / "model.onnx.dsse.json", desk / "bundle"),
    "the proof": lambda desk: shutil.copy(desk / "other" / "model.onnx.tlog-proof", desk / "bundle"),
    "an entry": lambda desk: swap(desk, "ledger/entries.jsonl", b'"by":"test"', b'"by":"tess"'),
    "one entry less": lambda desk: swap(desk, "ledger/entries.jsonl", b"\n", b""),
    "a size": lambda desk: swap(desk, "ledger/checkpoint", b"\n%d\n" % SIZE, b"\n%d\n" % (SIZE - 1)),
    "the log key": lambda desk: trusted(desk, lambda value: foreign(value["logs"][0])),
    "a log key of other sizes": lambda desk: trusted(desk, lambda value: value["logs"][0].update(until_size=SIZE)),
    "the issuer key": lambda desk: trusted(desk, lambda value: foreign(value["issuers"][0])),
    "an issuer key retired before": lambda desk: trusted(desk, lambda value: value["issuers"][0].update(until_index=5)),
    "an issuer key added later": lambda desk: trusted(desk, lambda value: value["issuers"][0].update(from_index=9)),
    "a revoked certificate": lambda desk: trusted(desk, lambda value: value.update(revoked=[5])),
    "a trust file of another form": lambda desk: trusted(desk, lambda value: value.update(format="x")),
    "a kept size": lambda desk: swap(desk, "kept.checkpoint", b"\n%d\n" % KEPT, b"\n%d\n" % (KEPT - 1)),
    "a hash of the growth": lambda desk: hashes(desk, lambda path: [path[0].swapcase(), *path[1:]]),
    "a hash less": lambda desk: hashes(desk, lambda path: path[:-1]),
    "a hash more": lambda desk: hashes(desk, lambda path: [*path, path[0]]),
    "two hashes in another order": lambda desk: hashes(desk, lambda path: [path[1], path[0], *path[2:]]),
    "a hash tile": lambda desk: flip(desk, f"tiles/tile/0/000.p/{SIZE}"),
    "a bundle": lambda desk: flip(desk, f"tiles/tile/entries/000.p/{SIZE}"),
    "no hash tile": lambda desk: gone(desk, f"tiles/tile/0/000.p/{SIZE}"),
    "no bundle": lambda desk: gone(desk, f"tiles/tile/entries/000.p/{SIZE}"),
    "the tiles' checkpoint": lambda desk: swap(desk, "tiles/checkpoint", b"\n%d\n" % SIZE, b"\n%d\n" % (SIZE - 1)),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_it_stops_at_what_is_not(tmp_path, what):
    """Steps that read nothing of where it lies find what they found at the sound desk: it begins after them."""
    step, desk = forged(tmp_path, ATTACKS[what])
    assert follow(desk, resumed(step, STEPS[step:])).returncode != 0


def test_it_finds_a_rewritten_ledger_by_what_was_kept(desk, tmp_path):
    """All signed anew: without the kept checkpoint the forged files pass."""
    home = Home.open(place(ledgers.copy(ledgers.scratch() / "audited", tmp_path / "home")))
    home = rewritten(home, 12)
    kept = stored_proofs.consistency(home.ledger.log.database, KEPT)
    for name in ("ledger", "tiles"):
        shutil.rmtree(desk / name)
    export(home, desk / "ledger")
    export_tiles(home, desk / "tiles")
    (desk / "consistency.json").write_text(json.dumps(kept.to_json()))
    assert follow(desk).returncode == 0  # what was changed came after what was kept
    home = rewritten(home, 9)
    for name in ("ledger", "tiles"):
        shutil.rmtree(desk / name)
    export(home, desk / "ledger")
    export_tiles(home, desk / "tiles")
    (desk / "consistency.json").unlink()
    assert follow(desk).returncode != 0
    (desk / "kept.checkpoint").unlink()
    assert follow(desk).returncode == 0


# Epsilon


def said(tmp_path: Path, what: Plan, delta: str, bound: str, factor: str = "1", less: str = "0") -> dict:
    """What the page's program makes of a claim about `what`."""
    (program,) = re.findall(r"^(cat > epsilon\.jq <<'END'\n.*?)^jq -e \.holds", AUDIT, re.M | re.S)
    found = claim(what, Decimal(delta), (bound,))
    stated = {"epsilon": str(found.epsilon * Decimal(factor) - Decimal(less)), "delta": delta, "bound": bound}
    stated["order"] = None if found.order is None else str(found.order)
    (tmp_path / "statement.json").write_text(json.dumps({"predicate": {"claim": stated, "mechanisms": what.to_json()}}))
    done = follow(tmp_path, "set -eu\n" + program)
    assert done.returncode == 0, done.stderr
    return json.loads((tmp_path / "epsilon.json").read_text())


VOTES, FEW = plan(BoundedRange(Decimal("0.02")), 25), plan(BoundedRange(Decimal("5")), 2)
FLIPS = plan(PureDp(Decimal("0.01")), 200)
NOISE = plan(Gaussian(Decimal("8.9957")), 7)
BOTH = Plan((*VOTES.runs, *plan(PureDp(Decimal("0.1")), 2).runs))
ALL = Plan((*plan(Gaussian(Decimal("30")), 9).runs, *BOTH.runs))
EXACT = [(VOTES, PURE), (FLIPS, PURE), (BOTH, PURE)] + [(each, RENYI) for each in (VOTES, FEW, FLIPS, NOISE, ALL)]
EXACT += [(NOISE, GAUSSIAN), (plan(Gaussian(Decimal("2.1")), 1), GAUSSIAN)]


@pytest.mark.parametrize(("what", "bound"), EXACT)
@pytest.mark.parametrize("delta", ["0.000001", "0.0000000001"])
def test_epsilon_is_recomputed(tmp_path, what, bound, delta):
    found = said(tmp_path, what, delta, bound)
    assert (found["holds"], found["bound"]) == (True, bound)
    assert found["stated"] - 1e-5 < found["computed"] <= found["stated"] + 1e-9
    assert said(tmp_path, what, delta, bound, less="0.000011")["holds"] is False


@pytest.mark.parametrize("what", [VOTES, FLIPS, BOTH, plan(BoundedRange(Decimal("0.02")), 99)])
@pytest.mark.parametrize("delta", ["0.000001", "0.0000000001"])
def test_the_adaptive_bound_is_recomputed_from_below(tmp_path, what, delta):
    found = said(tmp_path, what, delta, ADAPTIVE)
    assert found["holds"] is True
    assert 0.98 * found["stated"] < found["computed"] <= found["stated"]
    assert said(tmp_path, what, delta, ADAPTIVE, factor="0.97")["holds"] is False


# Budgets, and the vectors of docs/reference/ledger.md

FUNCTIONS = ("verify_checkpoint", "root_of_the_first")
ROOT_OF_ALL = """verify_checkpoint ledger/checkpoint
size=$(sed -n 2p ledger/checkpoint)
test "$(grep -c '' ledger/entries.jsonl)" = "$size"
test "$(root_of_the_first "$size")" = "$(sed -n 3p ledger/checkpoint)"
"""


def test_an_admission_that_should_not_have_been_is_listed(tmp_path):
    """The whole sample, with a joined dataset, a changed budget and jobs in every state; then one reservation more."""
    (program,) = re.findall(r"^(cat > budgets\.jq <<'END'\n.*?)^jq -e \.holds", AUDIT, re.M | re.S)
    leaves = ledgers.bodies(ledgers.filled())
    kinds = [json.loads(leaf)["type"] for leaf in leaves]
    assert {"dataset-joined", "budget-changed", "released"} <= set(kinds)
    (tmp_path / "ledger").mkdir()

    def budgets(entries: list[bytes]) -> dict:
        (tmp_path / "ledger" / "entries.jsonl").write_bytes(b"".join(leaf + b"\n" for leaf in entries))
        done = follow(tmp_path, "set -eu\n" + program)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "budgets.json").read_text())

    def wrong(entries: list[bytes]) -> list[int]:
        found = budgets(entries)
        assert found["holds"] == (found["wrong"] == [])
        return [each["entry"] for each in found["wrong"]]

    assert wrong(leaves) == []
    (reserved,) = [leaf for leaf in leaves if b'"pure-dp"' in leaf]  # 0.5 of 1.5
    assert wrong([*leaves, reserved]) == [len(leaves)]  # what it says of the sums is of another time
    value = json.loads(reserved)
    again = canonical.encode({name: said for name, said in value.items() if name != "after"})
    assert wrong([*leaves, again, again, again]) == [len(leaves) + 2]
    before = kinds.index("budget-changed")
    assert wrong([*leaves[:before], again, again]) == [before + 1]  # 0.5 of 1


@pytest.mark.parametrize("name", concerning("ledger", "budgets"))
def test_budgets_of_the_vectors(tmp_path, name):
    """Every kind of entry; where something else is wrong, the sums are right all the same."""
    (program,) = re.findall(r"^(cat > budgets\.jq <<'END'\n.*?)^jq -e \.holds", AUDIT, re.M | re.S)
    shutil.copytree(FOLDER / name / "ledger", tmp_path / "ledger")
    done = follow(tmp_path, "set -eu\n" + program)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "budgets.json").read_text())
    assert found["holds"] == accepts(name, "budgets"), found["wrong"]
    if not found["holds"]:
        assert found["wrong"][0]["entry"] == EXPECTED[name]["entry"]


def test_the_page_of_vectors_lists_each_with_its_verdict():
    found = follow(ledgers.ROOT, "\n".join(blocks("docs/reference/ledger.md", "sh", "Vectors for verifiers")))
    listed = {line.split()[0]: line.split()[2] for line in found.stdout.splitlines()}
    assert listed == {path.name: EXPECTED[path.name]["verdict"] for path in FOLDER.iterdir() if path.is_dir()}


@pytest.mark.parametrize("name", concerning("claim", "epsilon", needs=False))
def test_epsilons_of_the_vectors(tmp_path, name):
    (program,) = re.findall(r"^(cat > epsilon\.jq <<'END'\n.*?)^jq -e \.holds", AUDIT, re.M | re.S)
    shutil.copy(FOLDER / name / "statement.json", tmp_path)
    done = follow(tmp_path, "set -eu\n" + program)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "epsilon.json").read_text())["holds"] == accepts(name, "epsilon")


def logs() -> list[str]:
    """Every unsound log, and of the sound ones one of each size and keys, by which alone the steps differ."""
    found: dict[object, str] = {}
    for name in concerning("ledger", "log"):
        folder = FOLDER / name
        size, keys = (folder / "ledger" / "checkpoint").read_bytes().split(b"\n")[1], len(trust_of(name).logs)
        found[(size, keys) if accepts(name, "log") else name] = name
    return [*found.values()]


@pytest.mark.parametrize("name", logs())
def test_logs_of_the_vectors(tmp_path, name):
    """The checkpoint's signature, and the root of the entries, by openssl."""
    functions = [re.search(rf"^{each}\(\) {{\n.*?^}}\n", AUDIT, re.M | re.S) for each in FUNCTIONS]
    shutil.copytree(FOLDER / name, tmp_path, dirs_exist_ok=True)
    done = follow(tmp_path, "set -eu\n" + "".join(each[0] for each in functions if each) + ROOT_OF_ALL)
    assert (done.returncode == 0) == accepts(name, "log"), done.stderr


# Witnesses


@pytest.fixture
def cosigned(tmp_path) -> Path:
    home = grown(copied(12, tmp_path / "home"), 14)
    with Witness("witness.university.example", tmp_path, [log_vkey(home)]) as witness:
        text = f"log {log_vkey(home)}\nwitness university {witness.vkey} {witness.url}\nquorum university\n"
        found = cosign(home.ledger.log.database, pinned(home), parse_policy(text.encode()))
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk" / "witnesses.policy").write_text(text)
    (tmp_path / "desk" / "checkpoint").write_text(found.note)
    return tmp_path / "desk"


def test_a_cosignature_is_verified(cosigned):
    found = follow(cosigned, WITNESSES)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "Signature Verified Successfully\n"


@pytest.mark.parametrize(("old", "new"), [(b"\n14\n", b"\n13\n"), (b"AAAA", b"AAAB"), (b"witness.", b"Witness.")])
def test_a_cosignature_of_something_else_is_not(cosigned, old, new):
    swap(cosigned, "checkpoint", old, new)
    assert follow(cosigned, WITNESSES).returncode != 0
