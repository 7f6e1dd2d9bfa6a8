"""Whoever writes the database and has no key: gains no right and no budget by it, and the audit names what they did."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from decimal import Decimal

import pytest
from in_process import Site
from ledgers import UNJUDGED, advance, append_unsigned, begun, place, plan, raw, registration, request, reserve

from accountant.access import grants, key_life, tokens
from accountant.access.grants import Grant, access_of
from accountant.audit.audit import audit_home
from accountant.errors import WrongState
from accountant.home import Home
from accountant.keys.private_keys import KeyStore
from accountant.ledger import model_names
from accountant.ledger.families.records import Unit, Why
from accountant.ledger.ledger import Ledger
from accountant.log import entries
from accountant.log.newest import SPENDERS
from accountant.log.spenders import PLACE, Spenders, spender
from accountant.store import store
from accountant.store.tables import checkpoint_table
from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.log import notes
from serving.app import DOORS
from serving.process.tokens import digest, new_token, rights

SECRET = "dps_" + "a" * 43
SMALL = plan(count=2)


@pytest.fixture
def home(tmp_path) -> Home:
    return begun(tmp_path / "home", registration())


def small(ledger: Ledger, **options) -> int:
    return reserve(ledger, request(epsilon="0.1"), SMALL, **options).seq


def sql(home: Home, text: str, *values: object) -> list[tuple]:
    with closing(raw(home.path)) as connection:
        return connection.execute(text, values).fetchall()


def named(home: Home, word: str) -> bool:
    return any(word in problem for problem in audit_home(home).problems)


def evil_entry(**fields: object) -> bytes:
    whole = {"type": "token-created", "time": "2026-01-01T00:00:00Z", "name": "evil", "scopes": ["admin"]}
    return canonical.encode({**whole, "hash": digest(SECRET), "principal": "evil", **fields})


# Rights


@pytest.mark.parametrize("seq", [0, 1, 999])
def test_a_token_row_without_an_entry_opens_nothing_and_is_named(home, monkeypatch, seq):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    site = Site(home, DOORS)
    values = (digest(SECRET), seq, "evil", "admin")
    sql(home, "INSERT INTO token (hash, seq, name, scopes) VALUES (?, ?, ?, ?)", *values)
    site.look()
    assert site.bear(SECRET, "GET", "/v1/models").status_code == 401
    assert named(home, f"token {digest(SECRET)}")
    good = site.token("good", "audit")
    assert 'dpserve_index_mismatches_total{table="token"}' in site.bear(good, "GET", "/metrics").text
    sql(home, "DELETE FROM token WHERE name = 'evil'")
    assert audit_home(home).ok


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE token SET scopes = 'admin' WHERE name = 'shop'",
        "UPDATE token SET principal = 'token:root' WHERE name = 'shop'",
        "UPDATE token SET principal = NULL WHERE name = 'shop'",
        "UPDATE token SET hash = '" + "0" * 64 + "' WHERE name = 'shop'",
        "UPDATE token SET seq = (SELECT seq FROM token WHERE name = 'root') WHERE name = 'shop'",
        "UPDATE token SET revoked = NULL WHERE name = 'ended'",
    ],
)
def test_a_token_row_that_was_changed_is_good_for_nothing(home, change):
    for name, scope in (("root", "admin"), ("shop", "predict"), ("ended", "admin")):
        new_token(home, name, [scope])
    tokens.revoke(home.ledger, "ended")
    sql(home, change)
    held, wrong = rights(home).bearers, rights(home).wrong
    assert {bearer.token.name for bearer in held.values()} <= {"root", "shop"}
    assert len(wrong) == 1
    assert named(home, "token")
    assert not access_of(home.ledger, "token:shop").may("admin")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE granted SET scope = 'admin'",
        "UPDATE granted SET kind = 'everything', name = ''",
        "UPDATE granted SET principal = 'eve'",
        "UPDATE granted SET expires = NULL",
        "UPDATE granted SET revoked = NULL",
    ],
)
def test_a_grant_row_that_was_changed_gives_nothing(home, change):
    wanted = Grant("ann", "train", "dataset", "adult", expires="2099-01-01T00:00:00Z")
    (added,) = grants.add(home.ledger, [wanted], "test")
    assert access_of(home.ledger, "ann").may("train", dataset="adult")
    if "revoked" in change:
        grants.revoke(home.ledger, added.index, Why("test", "left"))
    sql(home, change)
    for who in ("ann", "eve"):
        assert access_of(home.ledger, who).scopes == ()
    assert named(home, f"grant {added.index}")


def test_entries_that_no_checkpoint_covers_stop_everything(home):
    with home.ledger.log.database.writing() as connection:  # the tree is right, and nobody signed it
        seq = append_unsigned(connection, evil_entry())
    values = (digest(SECRET), seq, "evil", "admin", "evil")
    sql(home, "INSERT INTO token (hash, seq, name, scopes, principal) VALUES (?, ?, ?, ?, ?)", *values)
    for act in (home.ledger.log.check_mark, lambda: small(home.ledger), lambda: rights(home)):
        with pytest.raises(LedgerInvalid, match=f"entry {seq}: no checkpoint"):
            act()
    with pytest.raises(LedgerInvalid):
        Home.open(place(home.path))
    assert named(home, f"entry {seq}")


def test_a_checkpoint_by_another_key_covers_nothing(home, tmp_path):
    with home.ledger.log.database.writing() as connection:
        seq = append_unsigned(connection, evil_entry())
        root = store.Tree(connection).root()
        signer = KeyStore.create(tmp_path / "others").signer("log")
        note = notes.sign_checkpoint(home.ledger.log.origin, seq + 1, root, signer)
        connection.execute(checkpoint_table.insert().values(size=seq + 1, note=note, kinds=0))
    with pytest.raises(LedgerInvalid):
        home.ledger.log.check_mark()
    with pytest.raises(LedgerInvalid):
        small(home.ledger)


# Money


@pytest.mark.parametrize("with_all", [False, True])
def test_a_family_that_is_set_back_admits_nothing_and_is_named(home, with_all):
    """Its row as it was before a job; and with it all that says that there was one."""
    before = sql(home, "SELECT used, reserved, changed FROM family")[0]
    seq = small(home.ledger)
    now = sql(home, "SELECT used, reserved, changed FROM family")[0]
    analyst, job = sql(home, "SELECT * FROM analyst")[0], sql(home, "SELECT * FROM job WHERE seq = ?", seq)[0]
    size = home.ledger.log.size()
    sql(home, "UPDATE family SET used = ?, reserved = ?, changed = ?", *before)
    if with_all:
        sql(home, "DELETE FROM job WHERE seq = ?", seq)
        sql(home, "DELETE FROM analyst")
    for act in (
        lambda: small(home.ledger),
        lambda: home.ledger.change_budget("adult", Decimal("4"), "more", "test"),
        lambda: reserve(Home.open(place(home.path)).ledger),
    ):
        with pytest.raises(LedgerInvalid, match="index: family"):
            act()
    assert home.ledger.log.size() == size
    assert named(home, "index: family")
    sql(home, "UPDATE family SET used = ?, reserved = ?, changed = ?", *now)
    sql(home, "INSERT OR REPLACE INTO analyst VALUES (?, ?, ?, ?)", *analyst)
    sql(home, f"INSERT OR REPLACE INTO job VALUES ({', '.join('?' * len(job))})", *job)
    assert small(home.ledger) == size


def test_what_has_not_started_is_read_from_what_was_signed(home):
    """Told as nothing, a job would start though the total was lowered below what has started."""
    first = small(home.ledger)
    home.ledger.start(first, "owner:1:1", 60.0)
    second = small(home.ledger)
    nothing = home.ledger.log.entry(first + 1).value["after"][0]["reserved"]
    for text in (json.dumps(nothing), sql(home, "SELECT used FROM family")[0][0]):
        before = sql(home, "SELECT reserved FROM family")[0]
        sql(home, "UPDATE family SET reserved = ?", text)
        for act in (
            lambda: small(home.ledger),
            lambda: home.ledger.start(second, "owner:1:1", 60.0),
            lambda: home.ledger.release(second),
            lambda: home.ledger.change_budget("adult", Decimal("4"), "more", "test"),
        ):
            with pytest.raises(LedgerInvalid, match="index: family"):
                act()
        assert named(home, "index: family")
        sql(home, "UPDATE family SET reserved = ?", *before)
    home.ledger.start(second, "owner:1:1", 60.0)
    assert home.ledger.log.entry(home.ledger.log.size() - 1).value["after"][0]["reserved"]["pure"] == "0"
    assert audit_home(home).ok


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE analyst SET share = '1' WHERE name = 'ann'",
        "UPDATE analyst SET share = NULL WHERE name = 'ann'",
        "DELETE FROM analyst WHERE name = 'ann'",
        "UPDATE analyst SET share = '1' WHERE name = '*'",
        "DELETE FROM analyst",
    ],
)
def test_a_quota_row_that_was_changed_admits_nothing(home, change):
    home.ledger.set_quota("adult", "ann", Decimal("0.9"), "a test", "steward")
    home.ledger.set_quota("adult", "ann", Decimal("0.5"), "a test", "steward")
    home.ledger.set_quota("adult", "*", Decimal("0.4"), "a test", "steward")
    assert small(home.ledger, by="ann")
    rows, size = sql(home, "SELECT * FROM analyst"), home.ledger.log.size()
    sql(home, change)
    with pytest.raises(LedgerInvalid, match="index: analyst"):
        small(home.ledger, by="ann")
    assert home.ledger.log.size() == size
    assert named(home, "index: analyst")
    sql(home, "DELETE FROM analyst")
    for row in rows:
        sql(home, f"INSERT INTO analyst VALUES ({', '.join('?' * len(row))})", *row)
    assert small(home.ledger, by="ann") == size


@pytest.mark.slow
@pytest.mark.parametrize("by", ["ann", 'a "quoted", name],', "*x*"])
@pytest.mark.parametrize("with_quota", [False, True])
def test_what_an_analyst_has_used_is_read_from_what_was_signed(home, by, with_quota):
    """Told as less, or as that of an earlier entry, a quota would admit again what was used."""
    home.ledger.register(registration("copy", None, families=("adult",)))
    if with_quota:
        home.ledger.set_quota("adult", by, Decimal("0.5"), "a test", "steward")
    small(home.ledger, by="bob")
    first = small(home.ledger, by=by)
    earlier = sql(home, "SELECT used FROM analyst WHERE name = ?", by)[0][0]
    second = small(home.ledger, by=by)
    home.ledger.start(second, "owner:1:1", 60.0)
    rows, size = sql(home, "SELECT * FROM analyst"), home.ledger.log.size()
    nothing = json.dumps({"pure": "0", "unbounded": 0, "rdp": dict.fromkeys(json.loads(earlier)["rdp"], "0")})
    changes = [("UPDATE analyst SET used = ? WHERE name = ?", text, by) for text in (earlier, nothing, "{")]
    changes += [("DELETE FROM analyst WHERE name = ?", by), ("UPDATE analyst SET name = 'eve' WHERE name = ?", by)]
    for change in changes:
        sql(home, *change)
        for ledger in (home.ledger, Home.open(place(home.path)).ledger):
            for act in (lambda to=ledger: small(to, by=by), lambda to=ledger: to.release(first)):
                with pytest.raises(LedgerInvalid, match="index: analyst"):
                    act()
        assert home.ledger.log.size() == size
        assert named(home, "index: analyst")
        sql(home, "DELETE FROM analyst")
        for row in rows:
            sql(home, f"INSERT INTO analyst VALUES ({', '.join('?' * len(row))})", *row)
    home.ledger.release(first)
    assert reserve(home.ledger, replace(request("copy", epsilon="0.1"), model="copy"), SMALL, by=by).seq == size + 1
    said = [
        line["analyst"]
        for entry in home.ledger.log.entries()
        for line in entry.value.get("after", ())
        if "analyst" in line
    ]
    assert [each["name"] for each in said] == ["bob", by, by, by, by]
    assert json.loads(sql(home, "SELECT used FROM analyst WHERE name = ?", by)[0][0]) == said[-1]["used"]
    assert audit_home(home).ok


def test_of_several_families_each_says_what_the_analyst_has_used(home):
    """One that was charged alone meanwhile has a newer entry than the others."""
    person = {"unit": Unit("person", "name")}
    home.ledger.register(registration("left", **person))
    home.ledger.register(registration("right", **person))
    home.ledger.register(registration("both", None, families=("left", "right"), **person))
    for name in ("both", "left", "left", "both", "right"):
        reserve(home.ledger, request(name, epsilon="0.1"), SMALL, by="ann")
    (left, right) = json.loads(sql(home, "SELECT families FROM dataset WHERE name = 'both'")[0][0])
    for family, alone in ((left, "right"), (right, "left")):
        (used,) = sql(home, "SELECT used FROM analyst WHERE family = ?", family)[0]
        (other,) = sql(home, "SELECT used FROM analyst WHERE family <> ?", family)[0]
        sql(home, "UPDATE analyst SET used = ? WHERE family = ?", other, family)
        with pytest.raises(LedgerInvalid, match="index: analyst ann"):
            reserve(home.ledger, request("both", epsilon="0.1"), SMALL, by="ann")
        for _ in range(2):
            reserve(home.ledger, request(alone, epsilon="0.1"), SMALL, by="ann")
        sql(home, "UPDATE analyst SET used = ? WHERE family = ?", used, family)
    reserve(home.ledger, request("both", epsilon="0.1"), SMALL, by="ann")
    assert audit_home(home).ok


def test_thousands_of_analysts_are_found_in_one_look_each(tmp_path):
    table, rest = Spenders(tmp_path / "spenders.bin"), {}
    table.begin()
    for seq in range(1, 5001):
        rest[spender(3, f"analyst {seq}")] = seq
        table.put({spender(3, f"analyst {seq}"): seq})
    table.put(dict.fromkeys(list(rest)[:10], 9999))
    rest |= dict.fromkeys(list(rest)[:10], 9999)
    assert dict(zip(rest, table.of(rest), strict=True)) == rest
    assert table.of([spender(account, "analyst 1") for account in (2, 4)]) == [0, 0]
    assert table.path.stat().st_size < 64 * PLACE.size * len(rest)


def test_a_total_that_is_set_back_admits_nothing(home):
    home.ledger.change_budget("adult", Decimal("0.01"), "too much", "test")
    sql(home, "UPDATE family SET changed = NULL")
    with pytest.raises(LedgerInvalid, match="index: family"):
        small(home.ledger)


def test_a_founding_entry_that_was_rewritten_admits_nothing(home):
    (body,) = sql(home, "SELECT body FROM entry WHERE seq = 1")[0]
    value = json.loads(body)
    richer = registration(budget=type(registration().budget).of("100", "0.000001"))
    other = Home.init(place(home.path.with_name("other")))
    other.ledger.register(richer)
    rich = json.loads(sql(other, "SELECT body FROM entry WHERE seq = 1")[0][0])
    forged = canonical.encode({**value, "budget": rich["budget"], "filter": rich["filter"]})
    sql(home, "UPDATE entry SET body = ? WHERE seq = 1", forged)
    with pytest.raises(LedgerInvalid):
        reserve(Home.open(place(home.path)).ledger)


@pytest.mark.parametrize("state", ["started", "committed", "burned", "released", "issued"])
def test_a_job_that_is_set_back_does_not_draw_again_nor_get_back_its_price(home, state):
    seq = small(home.ledger)
    advance(home.ledger, seq, state)
    sql(home, "UPDATE job SET state = 'reserved', queued = 1, owner = NULL, committed = NULL, issued = NULL")
    size = home.ledger.log.size()
    for act in (lambda: home.ledger.start(seq, "owner:1:1", 60.0), lambda: home.ledger.release(seq)):
        with pytest.raises(LedgerInvalid, match=f"index: job {seq}"):
            act()
    assert home.ledger.log.size() == size
    assert named(home, f"job {seq}")


# What is kept beside the keys


@pytest.mark.parametrize(
    ("name", "raw_bytes"),
    [
        *((entries.NEWEST, raw_bytes) for raw_bytes in (None, b"", b"dpnewst4", b"x" * 4096)),
        (SPENDERS, None),
        (SPENDERS, b""),
    ],
)
def test_the_newest_entries_are_found_anew(home, name, raw_bytes):
    before = sql(home, "SELECT used, reserved FROM family")[0]
    small(home.ledger)
    file = home.path / "keys" / name
    file.unlink() if raw_bytes is None else file.write_bytes(raw_bytes)
    (used,) = sql(home, "SELECT used FROM analyst")[0]
    sql(home, "UPDATE analyst SET used = ?", before[0])
    with pytest.raises(LedgerInvalid, match="index: analyst"):
        small(home.ledger)
    sql(home, "UPDATE analyst SET used = ?", used)
    sql(home, "UPDATE family SET used = ?, reserved = ?", *before)
    with pytest.raises(LedgerInvalid, match="index: family"):
        small(Home.open(place(home.path)).ledger)


def test_a_second_home_on_the_ledger_catches_up(home, tmp_path):
    shutil.copytree(home.path, tmp_path / "second")
    url = {"DPSERVE_LEDGER_URL": home.ledger.log.database.url}
    second = Home.open(place(tmp_path / "second") | url)
    jobs = [small(each.ledger) for each in (home, home, second, home, second, second, home)]
    before = sql(home, "SELECT used, reserved FROM family")[0]
    home.ledger.release(jobs[0])
    second.ledger.start(jobs[1], "owner:1:1", 60.0)
    assert audit_home(home).ok
    (used,) = sql(home, "SELECT used FROM analyst")[0]
    for table, values in (("analyst", before[:1]), ("family", before)):
        sql(home, f"UPDATE {table} SET used = ?" + ", reserved = ?" * (len(values) - 1), *values)
        for each in (home, second):
            with pytest.raises(LedgerInvalid, match=f"index: {table}"):
                small(each.ledger)
        sql(home, "UPDATE analyst SET used = ?", used)


@pytest.mark.parametrize("whose", ["the family's", "the analyst's"])
def test_the_audit_believes_no_sum_that_an_entry_states(home, monkeypatch, whose):
    append = entries.Writer.append

    def less(self, kind, **fields):
        for line in fields.get("after", ()):
            about = line if whose == "the family's" else line["analyst"]
            about["used"] = about["used"] | {"pure": "0"}
        return append(self, kind, **fields)

    monkeypatch.setattr(*UNJUDGED)
    monkeypatch.setattr(entries.Writer, "append", less)
    seq = small(home.ledger)
    assert named(home, f"entry {seq}: after:")


# Keys, and certificates that were revoked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("DELETE FROM revoked", "revoked"),
        ("UPDATE revoked SET issued = 1", "revoked"),
        ("UPDATE revoked SET seq = 1", "revoked"),
        ("INSERT INTO revoked VALUES (2, 3)", "revoked"),
        ("UPDATE signing_key SET until = NULL, ended = NULL WHERE ended = 'retired'", "signing_key"),
        ("UPDATE signing_key SET until = 99 WHERE ended = 'retired'", "signing_key"),
        ("UPDATE signing_key SET added = 99 WHERE added = 0 AND role = 'issuer'", "signing_key"),
        ("UPDATE signing_key SET pem = (SELECT pem FROM signing_key WHERE until IS NULL) WHERE ended = 'retired'", ""),
        ("DELETE FROM signing_key WHERE ended = 'retired'", "signing_key"),
        ("INSERT INTO signing_key SELECT 'x', role, pem, added, 9, ended FROM signing_key LIMIT 1", "signing_key"),
    ],
)
def test_a_row_of_keys_or_revocations_that_was_changed_stops_everything(home, monkeypatch, change, table):
    seq = small(home.ledger)
    advance(home.ledger, seq, "issued")
    key_life.revoke(home, home.ledger.job(seq).issued, "test", "a test")
    key_life.rotate(home, "issuer", "test", "yearly")
    key_life.rotate(home, "log", "test", "yearly")
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))
    site = Site(home, DOORS)
    good = site.token("good", "audit")
    assert audit_home(home).ok
    rows = sql(home, "SELECT * FROM signing_key"), sql(home, "SELECT * FROM revoked")
    size = home.ledger.log.size()
    sql(home, change)
    acts = [lambda: home.trust, lambda: Home.open(place(home.path)), home.ledger.log.check_mark]
    acts += [] if table == "revoked" else [lambda: small(home.ledger)]  # a job asks for no certificate
    for act in acts:
        with pytest.raises(DpserveError):
            act()
    assert named(home, "index: " + ("revocation" if table == "revoked" else "key"))
    site.look()
    assert site.bear(good, "GET", "/v1/ledger").status_code == 503
    for name, kept in zip(("signing_key", "revoked"), rows, strict=True):
        sql(home, f"DELETE FROM {name}")
        for row in kept:
            sql(home, f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", *row)
    assert audit_home(home).ok
    site.look()
    text = site.bear(good, "GET", "/metrics").text
    assert f'dpserve_index_mismatches_total{{table="{table or "signing_key"}"}}' in text
    small(home.ledger)
    assert home.ledger.log.size() == size + 1


def test_a_revoked_model_is_not_promoted_nor_derived_from_by_deleting_its_row(home):
    seq = small(home.ledger)
    advance(home.ledger, seq, "issued")
    issued = home.ledger.job(seq).issued
    key_life.revoke(home, issued, "test", "a test")
    sql(home, "DELETE FROM revoked")
    for act in (
        lambda: model_names.record(home.ledger, model_names.PROMOTED, "adult", 1, issued, "better", "test"),
        lambda: home.ledger.derive(issued, "0" * 64, "0" * 64, Why("test", "x")),
    ):
        with pytest.raises(WrongState, match="was revoked"):
            act()
