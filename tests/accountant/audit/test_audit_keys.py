"""The audit of a ledger whose keys changed: by the entries, from whatever was pinned when."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledgers import bodies, bundles, copy, filled, place, raw, trained
from long_ledger import anywhere, evidence, kind_after, log_key, note, quarter_steps, replaced  # noqa: F401

from accountant.access import key_life
from accountant.audit.audit import audit_home, audit_place
from accountant.home import Home
from accountant.keys import opening
from dpserve_verify.audit.audit import audit
from dpserve_verify.audit.tree_of_entries import Tree
from dpserve_verify.formats import canonical
from dpserve_verify.keys.trust import LogKey, PublicKeys, fingerprint, public_pem

pytestmark = pytest.mark.slow

WHY = {"by": "steward", "reason": "a test"}


@pytest.fixture
def opened(tmp_path):
    return Home.open(place(copy(filled(), tmp_path / "home")))


@pytest.fixture
def served(tmp_path):
    return Home.open(place(copy(trained(), tmp_path / "served")))


def evidence_of(home: Home) -> tuple[list[bytes], list[tuple[int, str]]]:
    return bodies(home.path), raw(home.path).execute("SELECT size, note FROM checkpoint ORDER BY size").fetchall()


def report(home: Home, trust: PublicKeys | None = None, **options):
    entries, filed = evidence_of(home)
    return audit(enumerate(entries), filed, trust or home.trust, **options)


def good(home: Home, role: str) -> list[str]:
    return [row.keyid for row in opening.keys_of(home.ledger.log.database) if row.role == role and row.until is None]


def test_every_change_of_keys_is_sound_for_old_and_new_pins(opened):
    before = opened.trust
    for role in ("log", "issuer", "log"):
        key_life.rotate(opened, role, **WHY)
    key_life.rotate(opened, "issuer", **WHY, overlap=True)
    key_life.retire(opened, good(opened, "issuer")[0], **WHY)
    for role in ("log", "issuer"):
        key_life.mark_compromised(opened, good(opened, role)[-1], opened.ledger.log.size() - 3, **WHY)
    key_life.revoke(opened, next(seq for seq, body in enumerate(bodies(opened.path)) if b'"issued"}' in body), **WHY)
    assert audit_home(opened).ok
    for pinned in (before, opened.trust):
        found = report(opened, pinned)
        assert found.problems == ()


def test_a_pin_from_after_a_compromise_still_judges_what_was_signed_before(opened):
    """The compromised key's checkpoints count no more by themselves; held against the entries they are evidence."""
    kept = opened.ledger.log.checkpoint()
    key_life.mark_compromised(opened, good(opened, "log")[-1], 3, **WHY)
    assert report(opened, seen=[kept]).ok


def test_a_checkpoint_by_the_old_key_counts_no_more(opened):
    before = opened.keys.signer("log")
    key_life.rotate(opened, "log", **WHY)
    key_life.rotate(opened, "issuer", **WHY)
    entries, filed = evidence_of(opened)
    tree = Tree()
    for body in entries:
        tree.append(body)
    from dpserve_verify.log.notes import sign_checkpoint

    stale = sign_checkpoint(opened.trust.origin, tree.size, tree.root(), before)
    found = audit(enumerate(entries), [*filed[:-1], (tree.size, stale)], opened.trust)
    assert found.first == tree.size - 2  # from the last checkpoint that counts
    assert any("no signature by the pinned key" in problem for problem in found.problems)


def test_the_first_checkpoint_of_a_new_key_needs_the_old_ones_signature(opened):
    key_life.rotate(opened, "log", **WHY)
    entries, filed = evidence_of(opened)
    size, both = filed[-1]
    lines = both.split("\n")
    for dropped in (-3, -2):
        alone = "\n".join(line for at, line in enumerate(lines) if at != len(lines) + dropped)
        assert not audit(enumerate(entries), [*filed[:-1], (size, alone)], opened.trust).ok


def test_keys_that_the_ledger_does_not_add_are_not_taken(opened, tmp_path):
    key_life.rotate(opened, "log", **WHY)
    stranger = Home.init(place(tmp_path / "stranger")).trust
    trust = opened.trust
    added = PublicKeys.of(
        trust.origin,
        trust.issuers,
        (*trust.logs[:-1], LogKey(stranger.log_pem, trust.log_from)),
        frozenset(),
    )
    found = report(opened, added)
    assert not found.ok


# In a long ledger, read ahead by helpers that cannot know what key comes.


def rotated(at: int, *, vouched: bool = True, stale: int = 0) -> tuple[list[bytes], list[tuple[int, str]], PublicKeys]:
    """The long ledger with a new log key from entry `at` on (in the place of an `issued` one, which nothing needs), and
    the trust file from after it. `stale`: how many checkpoints more the old key signs."""
    before, after = log_key(), Ed25519PrivateKey.generate()
    pem, trust = public_pem(after.public_key()), evidence()[2]
    value = {"type": "key-added", "time": "2026-01-31T00:00:00Z", "role": "log", "pem": pem, **WHY}
    value["keyid"] = fingerprint(after.public_key())
    entries = replaced(evidence()[0], at, canonical.encode(value))
    tree, filed = Tree(), evidence()[1][:at]
    for size, body in enumerate(entries, 1):
        tree.append(body)
        if size > at:
            both = (before, after) if vouched else (after,)
            keys = both if size == at + 1 else (before,) if size <= at + 1 + stale else (after,)
            filed.append((size, note(size, tree.root(), *keys)))
    logs = (LogKey(trust.log_pem, 0, at + 1), LogKey(pem, at + 1))
    return entries, filed, PublicKeys.of(trust.origin, trust.issuers, logs, frozenset())


@pytest.mark.parametrize("helpers", [0, 2])
def test_a_log_rotation_anywhere(helpers):
    at = kind_after(anywhere(), "issued")
    entries, filed, newer = rotated(at)
    for trust in (evidence()[2], newer):
        assert audit(enumerate(entries), filed, trust, helpers=helpers).problems == ()


@pytest.mark.parametrize("helpers", [0, 2])
def test_a_log_rotation_that_went_wrong(helpers):
    at = kind_after(anywhere(), "issued")
    for options, first in (({"vouched": False}, at), ({"stale": 2}, at + 1)):
        entries, filed, newer = rotated(at, **options)
        for trust in (evidence()[2], newer):
            assert audit(enumerate(entries), filed, trust, helpers=helpers).first == first


# Certificates.


def test_models_outlive_a_rotation_and_a_revoked_one_is_settled(served):
    """The audit of a home whose operator revoked a certificate is sound: nobody accepts it any more."""
    key_life.rotate(served, "issuer", **WHY)
    models = bundles(served.path)
    assert audit_home(served, models).ok
    before = served.trust
    issued = [seq for seq, body in enumerate(bodies(served.path)) if b'"type":"issued"' in body]
    key_life.revoke(served, issued[0], **WHY)
    assert audit_place(place(served.path), models).ok
    assert report(served, before, bundles=models).ok  # a pin that does not know it yet
    broken = [(name, envelope, proof, model + b"x") for name, envelope, proof, model in models]
    assert [problem[:13] for problem in audit_place(place(served.path), broken).problems] == ["model adult@2"]


def test_a_compromised_issuer(served):
    """What it signed from then on counts no more, for old pins and new ones; what it signed before does."""
    models, before = bundles(served.path), served.trust
    issued = [seq for seq, body in enumerate(bodies(served.path)) if b'"type":"issued"' in body]
    key_life.mark_compromised(served, good(served, "issuer")[-1], issued[0], **WHY)
    for trust in (before, served.trust):
        problems = report(served, trust, bundles=models).problems
        assert len(problems) == 1
        assert problems[0].startswith("model adult@2")
    key_life.revoke(served, issued[1], **WHY)
    assert report(served, served.trust, bundles=models).ok
