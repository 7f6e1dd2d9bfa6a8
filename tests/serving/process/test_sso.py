"""Single sign-on, by a real provider: its tokens, forged and late ones, keys that roll, people who leave or sign out;
in Chromium, by a command line, over REST.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
from browser import DESK, PHONE, chromium, new_page, no_serious_findings, no_sideways_scroll
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from in_process import BASE, site_at
from joserfc import jwk
from pages import blocks
from small_home import ROOT, adult_home, dpserve, free_port, running, until

from accountant.access import grants
from accountant.access.grants import Grant
from accountant.audit.audit import audit_home
from accountant.ledger.families.records import Why
from dpserve import ServiceError
from dpserve.sso import sign_in
from dpserve_verify.entries.access import GrantState, Rights
from dpserve_verify.errors import InputError
from serving.pages import home as home_pages
from serving.pages import sso as pages_sso
from serving.process import provider_keys
from serving.process.config.limits import SIGN_INS, Meter
from serving.process.config.provider import Provider
from serving.process.sso import SingleSignOn
from serving.process.tokens import digest
from serving.wire.errors import NotReady, Unauthorized

pytestmark = pytest.mark.server
PASSWORD = "correct horse battery"
LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
RIGHTS = SimpleNamespace(granted={}, families=None)
foreign_key = rsa.generate_private_key(65537, 2048)


def kid(key):
    return jwk.RSAKey.import_key(key).thumbprint()


class Organization:
    """The provider, its keys, and what its admin does."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.issuer, self.site = f"http://127.0.0.1:{self.port}/o", f"http://127.0.0.1:{free_port()}"
        self.roll()
        command = [sys.executable, ROOT / "tests" / "helpers" / "oidc_provider.py", str(self.port), str(folder)]
        self.process = subprocess.Popen(command)
        until(self.answers, "the provider answers")
        self.client("dpserve", "confidential", "authorization-code", redirect_uris=f"{self.site}/ui/sso/back")
        self.client("cli", "public", "urn:ietf:params:oauth:grant-type:device_code")
        (folder / "secret").write_text("hush\n")
        self.setting = re.search("DPSERVE_SSO='(.*)'", self.page("bash"))[1]

    def page(self, language):
        """Return the blocks of the page about single sign-on, with this organization's addresses."""
        text = "".join(blocks("docs/access.md" if language == "bash" else "docs/reference/sso.md", language))
        text = text.replace("https://idp.example.org/realms/ward", self.issuer)
        return text.replace("https://dp.example.org", self.site).replace("/run/secrets/sso", f"{self.folder}/secret")

    def commands(self, name):
        """Return the words behind `dpserve` of the page's commands that begin so."""
        return [shlex.split(line)[1:] for line in re.findall(rf"^dpserve {name} .*", self.page("bash"), re.M)]

    def answers(self):
        assert self.process.poll() is None
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            return False

    def roll(self):
        self.key = rsa.generate_private_key(65537, 2048)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (self.folder / "key.pem").write_bytes(self.key.private_bytes(*pem))

    def admin(self, **what):
        httpx.post(f"http://127.0.0.1:{self.port}/admin/", json=what).raise_for_status()

    def asked(self, path):
        """How often the provider was asked for a path that ends so."""
        return sum(n for each, n in Counter((self.folder / "asked").read_text().split()).items() if each.endswith(path))

    @contextmanager
    def file(self, name):
        """While it is there, the provider hangs, or is away."""
        (self.folder / name).touch()
        try:
            yield
        finally:
            (self.folder / name).unlink(missing_ok=True)

    def client(self, name, kind, grant, **more):
        about = {"client_id": name, "client_secret": "hush", "client_type": kind, "authorization_grant_type": grant}
        self.admin(client={**about, **more})

    def person(self, name, *groups, active=True):
        self.admin(user={"name": name, "groups": groups, "active": active})

    def token(self, key=None, header=None, **claims):
        """A token as the provider makes them, but for what is said."""
        key, now = key or self.key, int(time.time())
        about = {"iss": self.issuer, "aud": "dpserve", "sub": "1", "iat": now, "exp": now + 300, "groups": ["ward"]}
        about = {name: value for name, value in (about | claims).items() if value is not None}
        head = {"alg": "RS256", "kid": kid(key)} | (header or {})
        start = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, about))
        way = hashes.SHA512() if head["alg"] == "RS512" else hashes.SHA256()
        return start + b"." + base64.urlsafe_b64encode(key.sign(start, padding.PKCS1v15(), way)).rstrip(b"=")

    def logout(self, key=None, header=None, **claims):
        """A token that says that somebody signed out, as providers make them, but for what is said."""
        about = {"events": {LOGOUT: {}}, "jti": uuid4().hex, "groups": None}
        return self.token(key, {"typ": "logout+jwt"} | (header or {}), **about | claims)


@pytest.fixture(scope="module")
def organization(tmp_path_factory):
    found = Organization(tmp_path_factory.mktemp("provider"))
    try:
        found.person("ana", "ward")
        yield found
    finally:
        found.process.kill()
        found.process.wait()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A provider on a busy machine may take its time."""
    monkeypatch.setattr(provider_keys, "ASK_SECONDS", 600)


@pytest.fixture
def sign_on(organization, tmp_path):
    return SingleSignOn(Provider.of(organization.setting), tmp_path)


def test_a_good_token_is_a_person_and_their_groups(organization, sign_on):
    person = sign_on.check(organization.token(groups=["ward", "lab", "ward"]))
    assert person.principals == tuple(
        f"sso:{organization.issuer} {who}" for who in ("person 1", "group ward", "group lab")
    )


def unsigned(organization, alg, signature=b""):
    """Of algorithm none, or HS256 with the public key as its secret: written by hand, for no library writes it."""
    public = organization.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head, body = {"alg": alg, "kid": kid(organization.key)}, organization.token()
    start = base64.urlsafe_b64encode(json.dumps(head).encode()).rstrip(b"=") + b"." + body.split(b".")[1]
    made = hmac.digest(public, start, "sha256") if alg == "HS256" else signature
    return start + b"." + base64.urlsafe_b64encode(made).rstrip(b"=")


def nested(organization, name):
    """Deep JSON in the claims, or in the header."""
    deep = b'{"alg":"RS256","x":' + b"[" * 3000 + b"]" * 3000 + b"}"
    parts = organization.token().split(b".")
    parts[name] = base64.urlsafe_b64encode(deep).rstrip(b"=")
    return b".".join(parts)


HOUR = 3600
FORGED = {
    "wrong key, its own kid": lambda o: o.token(foreign_key),
    "wrong key, the kid of ours": lambda o: o.token(foreign_key, {"kid": kid(o.key)}),
    "its key in the header": lambda o: o.token(foreign_key, {"jwk": jwk.RSAKey.generate_key().as_dict(private=False)}),
    "wrong issuer": lambda o: o.token(iss=o.issuer + "/"),
    "no issuer": lambda o: o.token(iss=None),
    "wrong audience": lambda o: o.token(aud="another"),
    "a part of the audience": lambda o: o.token(aud="dpserve-staging"),
    "no audience": lambda o: o.token(aud=None),
    "no audience in its list": lambda o: o.token(aud=["another", "dpserv"]),
    "none": lambda o: unsigned(o, "none"),
    "none, with a signature": lambda o: unsigned(o, "none", b"x" * 256),
    "HS256 by the public key": lambda o: unsigned(o, "HS256"),
    "another algorithm of the key": lambda o: o.token(header={"alg": "RS512"}),
    "expired": lambda o: o.token(exp=int(time.time()) - 1),
    "no end": lambda o: o.token(exp=None),
    "an end that is a text": lambda o: o.token(exp="2099"),
    "an end that is NaN": lambda o: o.token(exp=float("nan")),
    "not yet valid": lambda o: o.token(nbf=int(time.time()) + 60),
    "made in the future": lambda o: o.token(iat=int(time.time()) + 60),
    "made too long ago": lambda o: o.token(iat=int(time.time()) - 601, exp=int(time.time()) + HOUR),
    "no subject": lambda o: o.token(sub=None),
    "a subject of two lines": lambda o: o.token(sub="1\n2"),
    "a subject that is a number": lambda o: o.token(sub=1),
    "a long subject": lambda o: o.token(sub="1" * 201),
    "groups that are a text": lambda o: o.token(groups="ward"),
    "groups that are numbers": lambda o: o.token(groups=[1]),
    "of a logout": lambda o: o.token(events={"http://schemas.openid.net/event/backchannel-logout": {}}),
    "of another type": lambda o: o.token(header={"typ": "logout+jwt"}),
    "critical and unknown": lambda o: o.token(header={"crit": ["exp"], "exp": 1}),
    "huge": lambda o: o.token(groups=["x" * 8000]),
    "deep claims": lambda o: nested(o, 1),
    "deep header": lambda o: nested(o, 0),
    "cut": lambda o: o.token()[:-20],
    "a byte too much": lambda o: o.token() + b"A",
    "two parts": lambda o: o.token().rpartition(b".")[0],
    "no JSON": lambda o: b"eyJ.eyJ.eyJ",
    "not of ASCII": lambda o: o.token() + "é".encode(),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_or_late_token_is_nobody(organization, sign_on, forge):
    sign_on.check(organization.token())  # the provider answers, and this one is good
    with pytest.raises(Unauthorized) as refused:
        sign_on.check(forge(organization))
    assert refused.value.message == "Authorization: this token of the provider is not good here, or not any more"


@pytest.mark.parametrize("nonce", ["another", ""])
def test_an_answer_to_another_sign_in_is_refused(organization, sign_on, nonce):
    assert sign_on.check(organization.token(nonce="mine"), "mine").principals
    for claims in ({"nonce": nonce}, {"nonce": None}, {"nonce": "mine", "azp": "another"}):
        with pytest.raises(Unauthorized):
            sign_on.check(organization.token(**claims), "mine")


def is_known(sign_on, token):
    return sign_on.bearer(digest(token), RIGHTS) is not None


def test_keys_roll_and_what_a_removed_key_signed_is_over(organization, sign_on, monkeypatch):
    old = organization.token()
    sign_on.admit(old)
    assert is_known(sign_on, old)
    monkeypatch.setattr(provider_keys, "PAUSE_SECONDS", 0)
    organization.roll()
    new = organization.token()
    sign_on.admit(new)  # of a key that was never seen: it is asked for
    assert is_known(sign_on, new)
    assert not is_known(sign_on, old)  # though it was checked seconds ago
    with pytest.raises(Unauthorized):
        sign_on.admit(old)


def unknown(organization, count):
    """Tokens of so many keys that there are not."""
    head, _, rest = organization.token().partition(b".")
    for number in range(count):
        head = json.dumps({"alg": "RS256", "kid": f"k{number}"}).encode()
        yield base64.urlsafe_b64encode(head).rstrip(b"=") + b"." + rest


@pytest.mark.parametrize("is_old", [False, True], ids=["by a new key", "by keys of a minute ago"])
def test_a_provider_that_hangs_keeps_nobody_else_waiting(organization, sign_on, monkeypatch, is_old):
    """One thread asks it. Others are answered meanwhile, and tokens of 1,000 keys that there are not are refused."""
    monkeypatch.setattr(provider_keys, "PAUSE_SECONDS", 0)
    known = organization.token()
    sign_on.admit(known)
    before = organization.asked("configuration")
    first = organization.token() if is_old else organization.token(foreign_key)
    if is_old:
        sign_on.keys._known = replace(sign_on.keys._known, seen=sign_on.keys._known.seen - 61)
    with ThreadPoolExecutor(9) as threads:
        with organization.file("hang"):
            asking = threads.submit(sign_on.check, first)
            until(lambda: organization.asked("configuration") > before, "the provider was asked")
            others = [threads.submit(sign_on.check, each) for each in unknown(organization, 1000)]
            assert {type(each.exception(60)) for each in others} == {Unauthorized}
            assert is_known(sign_on, known)
            assert threads.submit(sign_on.check, organization.token(sub="2")).result(60).principals
            assert not asking.done()
        monkeypatch.setattr(provider_keys, "PAUSE_SECONDS", 3600)  # the rest after it
        assert (asking.exception(60) is None) == is_old
        others = [threads.submit(sign_on.check, each) for each in unknown(organization, 1000)]
        assert {type(each.exception(60)) for each in others} == {Unauthorized}
    assert organization.asked("configuration") == before + 1


def test_the_first_to_come_wait_for_one_question(organization, sign_on):
    before = organization.asked("configuration")
    with ThreadPoolExecutor(4) as threads:
        with organization.file("hang"):
            coming = [threads.submit(sign_on.check, organization.token()) for _ in range(4)]
            until(lambda: organization.asked("configuration") > before, "the provider was asked")
        assert all(each.result(60).principals for each in coming)
    assert organization.asked("configuration") == before + 1


def test_a_provider_that_is_away_vouches_by_keys_of_ten_minutes(organization, sign_on, monkeypatch):
    monkeypatch.setattr(provider_keys, "PAUSE_SECONDS", 0)

    def seen_earlier(seconds):
        sign_on.keys._known = replace(sign_on.keys._known, seen=sign_on.keys._known.seen - seconds)

    with organization.file("away"), pytest.raises(NotReady):
        sign_on.check(organization.token())
    sign_on.check(organization.token())
    with organization.file("away"):
        seen_earlier(provider_keys.AWAY_SECONDS - 30)
        sign_on.check(organization.token())
        with pytest.raises(Unauthorized):
            sign_on.check(organization.token(foreign_key))
        seen_earlier(60)
        with pytest.raises(NotReady):
            sign_on.check(organization.token())


# Who signs out at the provider


def test_a_logout_ends_what_was_made_before_it_in_every_process(organization, sign_on, tmp_path):
    another, now = SingleSignOn(sign_on.provider, tmp_path), int(time.time())
    ana, bo, later = (organization.token(**about) for about in ({}, {"sub": "2"}, {"iat": now + 5}))
    for each in (ana, bo, later):
        another.admit(each)
    sign_on.sign_out(organization.logout(iat=now + 4))
    assert [is_known(another, each) for each in (ana, bo, later)] == [False, True, True]
    for process in (sign_on, another, SingleSignOn(sign_on.provider, tmp_path)):
        with pytest.raises(Unauthorized):
            process.admit(ana)
        process.admit(later)
    sign_on.sign_out(organization.logout(iat=now - 60))  # late, and of less
    assert not is_known(another, ana)


def test_a_logout_of_a_session_ends_that_session(organization, sign_on):
    one, two = (organization.token(sid=sid) for sid in ("one", "two"))
    for each in (one, two):
        sign_on.admit(each)
    sign_on.sign_out(organization.logout(sub=None, sid="one"))
    assert [is_known(sign_on, each) for each in (one, two)] == [False, True]
    sign_on.sign_out(organization.logout(sid="three"))  # of the person and of a session: of all
    assert not is_known(sign_on, two)


def test_a_token_that_ends_here_ends_alone_and_in_every_process(organization, sign_on, tmp_path):
    another, (one, two) = SingleSignOn(sign_on.provider, tmp_path), (organization.token(sid=sid) for sid in "ab")
    for each in (one, two):
        another.admit(each)
    sign_on.end(one)
    assert [is_known(another, each) for each in (one, two)] == [False, True]
    for late in (one, organization.logout(), organization.token(exp=int(time.time()) - 1)):
        with pytest.raises(Unauthorized):
            sign_on.end(late)
    (file,) = tmp_path.glob("*.json")
    assert len(json.loads(file.read_text())) == 1


def test_who_signs_out_here_is_rid_of_the_cookie_and_told_where_the_token_could_not_be_ended(
    organization, tmp_path, monkeypatch
):
    monkeypatch.setenv("DPSERVE_SSO", organization.setting)
    headers = {"Cookie": f"dpserve={organization.token().decode()}", "Origin": BASE}
    with site_at(tmp_path, home_pages.DOORS) as site:
        with organization.file("away"):
            answer = site.ask("POST", "/ui/logout", headers)
            assert answer.headers["location"] == "/ui/login?refused=out"
            assert answer.headers["set-cookie"].startswith('dpserve="";')
            assert "It could not be ended" in site.ask("GET", "/ui/login?refused=out").text
        sign_on = SingleSignOn(site.app.state.serving.sign_on.provider, site.home.path)
        sign_on.admit(headers["Cookie"].partition("=")[2].encode())
        monkeypatch.setattr(provider_keys, "PAUSE_SECONDS", 0)
        for _ in range(2):  # it is over the second time
            answer = site.ask("POST", "/ui/logout", headers)
            assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
        with pytest.raises(Unauthorized):
            sign_on.admit(headers["Cookie"].partition("=")[2].encode())
        other = {**headers, "Cookie": headers["Cookie"] + "x"}  # forged: nothing ends, and nothing is written
        assert site.ask("POST", "/ui/logout", other).headers["location"] == "/ui/login"
        assert len(json.loads((site.home.path / "signed-out.json").read_text())) == 1


NO_LOGOUT = {
    "a token of somebody": lambda o: o.token(),
    "with a nonce": lambda o: o.logout(nonce="1"),
    "without events": lambda o: o.logout(events=None),
    "of another event": lambda o: o.logout(events={"http://schemas.openid.net/event/another": {}}),
    "events that are a list": lambda o: o.logout(events=[LOGOUT]),
    "an event that is a text": lambda o: o.logout(events={LOGOUT: "now"}),
    "without jti": lambda o: o.logout(jti=None),
    "an empty jti": lambda o: o.logout(jti=""),
    "a jti that is a number": lambda o: o.logout(jti=1),
    "of nobody": lambda o: o.logout(sub=None),
    "an empty session": lambda o: o.logout(sid=""),
    "a session that is a number": lambda o: o.logout(sid=1),
    "typed as an access token": lambda o: o.logout(header={"typ": "at+jwt"}),
    "nothing": lambda o: b"",
}
ONLY_OF_TOKENS = {"groups that are a text", "groups that are numbers", "of a logout", "of another type"}
NO_LOGOUT |= {
    name: lambda o, forge=forge: forge(SimpleNamespace(token=o.logout, key=o.key, issuer=o.issuer))
    for name, forge in FORGED.items()
    if name not in ONLY_OF_TOKENS
}


@pytest.mark.parametrize("forge", NO_LOGOUT.values(), ids=NO_LOGOUT)
def test_a_forged_or_late_logout_ends_nothing(organization, sign_on, forge):
    good = organization.token(sid="one")
    sign_on.admit(good)
    with pytest.raises(InputError, match="logout_token: "):
        sign_on.sign_out(forge(organization))
    assert is_known(sign_on, good)


def test_a_logout_counts_once_and_is_forgotten_when_all_before_it_is_over(organization, sign_on, tmp_path, monkeypatch):
    logout, now = organization.logout(), time.time()
    sign_on.sign_out(logout)
    for process in (sign_on, SingleSignOn(sign_on.provider, tmp_path)):
        with pytest.raises(InputError):
            process.sign_out(logout)
    (file,) = tmp_path.glob("*.json")
    assert len(json.loads(file.read_text())) == 2
    assert b"person" not in file.read_bytes()
    monkeypatch.setattr(time, "time", lambda: now + 700)
    with pytest.raises(InputError):  # over, however new its jti
        sign_on.sign_out(logout)
    sign_on.sign_out(organization.logout(sub="2", iat=int(now + 700), exp=int(now + 800)))
    assert len(json.loads(file.read_text())) == 2


@pytest.mark.parametrize("content", [b"", b"[", b"\xff"])
def test_where_it_cannot_be_known_who_signed_out_nobody_is_let_in(organization, sign_on, tmp_path, content):
    token = organization.token()
    sign_on.admit(token)
    (tmp_path / "signed-out.json").write_bytes(content)
    with pytest.raises(NotReady):
        sign_on.bearer(digest(token), RIGHTS)
    with pytest.raises(NotReady):
        sign_on.admit(token)


GOOD = "https://a?client=x&url=https://b"
WRONG = ["", "?client=x", "https://a", "https://a?client=x", "https://a?url=https://b"]
WRONG += ["https://a?client=&url=https://b", "https://a?client=x&url=http://b", f"{GOOD}/c", f"{GOOD}#c"]
WRONG += [f"{GOOD}&{each}" for each in ("more=1", "secret=/nowhere", "client=y", "algorithm=none", "algorithm=HS256")]
WRONG += [f"{GOOD}&seconds={each}" for each in ("59", "3601", "x")]
WRONG += [GOOD.replace("//a", f"//{host}") for host in ("u:p@a", "a b", "a" * 160)]
WRONG += [GOOD.replace("https", "http", 1), GOOD.replace("https", "ftp", 1)]


@pytest.mark.parametrize("setting", WRONG)
def test_a_setting_that_means_nothing_is_refused_at_the_start(setting):
    assert Provider.of(GOOD).audiences == ["x"]
    with pytest.raises(InputError, match="DPSERVE_SSO"):
        Provider.of(setting)


def test_an_auditor_takes_a_person_for_nobody_who_holds_keys():
    rights, now = Rights(), "2026-11-29T00:00:00Z"
    assert rights.may_promote("cli:op", "m", now)
    assert not rights.may_promote("sso:https://a person 1", "m", now)
    rights.grants[3] = GrantState("sso:https://a group lab", "promote", "everything", "", None)
    assert rights.may_promote("sso:https://a person 1", "m", now)
    others = ("sso:https://b person 1", "sso:https://a/b person 1", "sso:https://a group ward", "sso:https://a", "sso:")
    assert not any(rights.may_promote(other, "m", now) for other in others)
    rights.grants[3].revoked = 4
    assert not rights.may_promote("sso:https://a person 1", "m", now)


# With a server


@pytest.fixture(scope="module")
def server(organization, tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("sso"), 3)
    port = int(organization.site.rpartition(":")[2])
    command = [sys.executable, "-m", "serving.cli", "serve", "--port", str(port), "--workers", "2"]
    with running(home.path, command, port, ROOT, DPSERVE_SSO=organization.setting, DPSERVE_JOB_WORKERS="0") as found:
        assert [dpserve(home.path, *words).returncode for words in organization.commands("grant")] == [0]
        grants.add(home.ledger, [Grant(f"sso:{organization.issuer} group lab", "promote")], "cli:op")
        yield found


def ask(server, token, method="GET", path="/v1/datasets/adult", **more):
    return server.ask(method, path, scope=None, headers={"Authorization": f"Bearer {token.decode()}"}, **more)


def test_rest_takes_tokens_of_the_provider_by_groups_and_an_auditor_follows(organization, server):
    until(lambda: ask(server, organization.token()).status_code == 200, "the grant is known")
    assert ask(server, organization.token(groups=["lab"])).status_code == 403
    refused = ask(server, organization.token(groups=None))
    assert (refused.status_code, f"'sso:{organization.issuer} person 1' --scope" in refused.text) == (403, True)
    assert ask(server, organization.token(foreign_key)).status_code == 401
    assert ask(server, organization.token(exp=int(time.time()) - 1)).status_code == 401
    job = {"dataset": "adult", "epsilon": "0.1", "idempotency_key": "of ana"}
    asked = ask(server, organization.token(), "POST", "/v1/jobs", json=job)
    assert asked.status_code == 202
    person = f"sso:{organization.issuer} person 1"
    assert server.home.ledger.job(asked.json()["job"]).by == person
    another = ask(server, organization.token(sub="2"), "POST", "/v1/jobs", json={**job, "idempotency_key": "of bo"})
    assert another.json()["error"]["code"] == "forbidden"  # the name is another person's
    champion = {**job, "idempotency_key": "at once", "promote": True}
    assert ask(server, organization.token(), "POST", "/v1/jobs", json=champion).status_code == 403
    assert ask(server, organization.token(groups=["ward", "lab"]), "POST", "/v1/jobs", json=champion).status_code == 202
    rule = {"name": "weekly", "every": "week", "job": {"dataset": "adult", "epsilon": "0.1"}}
    assert ask(server, organization.token(), "POST", "/v1/schedules", json=rule).status_code in (403, 400)
    assert audit_home(server.home).problems == ()


def test_who_leaves_has_nothing_when_the_token_ends_or_the_grant_does(organization, server):
    """A token that was checked is looked at no more for a minute, but for its end and its grants."""
    group = f"sso:{organization.issuer} group guests"
    (grant,) = grants.add(server.home.ledger, [Grant(group, "train", "dataset", "adult")], "cli:op")
    end = int(time.time()) + 8
    short, long = organization.token(groups=["guests"], exp=end), organization.token(groups=["guests"])
    until(lambda: ask(server, short).status_code == 200, "the grant is known")
    until(lambda: ask(server, short).status_code == 401, "it is over", 20)
    assert end <= time.time() < end + 10
    assert ask(server, long).status_code == 200
    grants.revoke(server.home.ledger, grant.index, Why("cli:op", "guests left"))
    until(lambda: ask(server, long).status_code == 403, "the end of a grant is known", 10)


def test_who_signs_out_there_has_nothing_here(organization, server):
    """Whichever worker is asked after a logout says no; tests/serving/process/test_foreign_provider.py has a provider
    that sends it.
    """
    tokens = [organization.token(sub="2", sid=sid) for sid in ("one", "two")]
    until(lambda: all(ask(server, each).status_code == 200 for each in tokens * 10), "both workers know the grant")
    address = f"{organization.site}/ui/sso/logout"
    assert httpx.post(address, data={"logout_token": organization.logout(sub="2").decode()}).status_code == 200
    assert {ask(server, each).status_code for each in tokens * 10} == {401}
    assert ask(server, organization.token()).status_code == 200
    late = organization.logout(exp=int(time.time()) - 1)
    wrong = {b"": 400, b"x" * 9000: 413, late: 400, b"x" * (1 << 21): 413}
    assert {sent: httpx.post(address, data={"logout_token": sent.decode()}).status_code for sent in wrong} == wrong
    assert httpx.post(address, content=b"{}").status_code == 415
    assert httpx.get(address).status_code == 405


def test_sign_ins_are_bounded(organization, tmp_path, monkeypatch):
    """What a browser brings is shown to the provider so often a second, whoever brings it, and no more."""
    monkeypatch.setenv("DPSERVE_SSO", organization.setting)
    monkeypatch.setattr(pages_sso, "meter", lambda path: Meter(path / "limits", clock=lambda: 1e9))
    before, most = organization.asked("/token/"), SIGN_INS.limits.per_second
    with site_at(tmp_path, pages_sso.DOORS) as site:
        headers = {"Cookie": "dpserve-sso=s~n~v~%2Fui"}
        answers = [site.ask("GET", "/ui/sso/back?state=s&code=guess", headers) for _ in range(most + 5)]
        other = site.ask("GET", "/ui/sso/back?state=another&code=guess", headers)
    assert [each.status_code for each in answers] == [303] * most + [429] * 5
    assert answers[-1].headers["retry-after"] == "1"
    assert other.status_code == 303
    assert organization.asked("/token/") == before + most


def sign_in_there(page, name="ana"):
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def is_for_everybody(page):
    """The page on which a sign-in ends is no other test's, for no address alone leads there."""
    for size, scheme in product((DESK, PHONE), ("light", "dark")):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        no_serious_findings(page)
        no_sideways_scroll(page)
    assert page.title() == "Signed in · dpserve"
    assert [page.locator(each).count() for each in ("h1", "main")] == [1, 1]
    go_on = page.get_by_role("link", name="Go on")
    until(
        lambda: page.keyboard.press("Tab") or go_on.evaluate("each => each === document.activeElement"), "a key comes"
    )


def test_pages_by_chromium(organization, server):
    organization.person("ana", "ward")
    with chromium() as browser:
        page = new_page(browser, server)
        back = []
        page.on("request", lambda asked: back.append(asked.url) if "/ui/sso/back" in asked.url else None)
        page.goto("/ui/login?next=/ui/datasets/adult")
        page.get_by_role("link", name="Sign in with your organization").click()
        page.get_by_label("Username").wait_for()
        (attempt,) = [each for each in page.context.cookies() if each["name"] == "dpserve-sso"]
        page.route("**/ui/datasets/adult", lambda route: route.fulfill(status=204))  # it stays, as without a refresh
        sign_in_there(page)
        page.get_by_role("heading", name="Signed in").wait_for()
        is_for_everybody(page)
        page.unroute("**/ui/datasets/adult")
        page.keyboard.press("Enter")  # on "Go on"
        page.wait_for_url("**/ui/datasets/adult")
        assert page.locator(".who .name").inner_text() == f"sso:{organization.issuer} person 1"
        (session,) = [each for each in page.context.cookies() if each["name"] == "dpserve"]
        assert (session["httpOnly"], session["sameSite"], attempt["httpOnly"]) == (True, "Strict", True)
        assert "dpserve-sso" not in {each["name"] for each in page.context.cookies()}

        # Shown again, by who has the address alone and by who has the cookie too; with another state.
        (url,) = back
        for cookies in ({}, {"dpserve-sso": attempt["value"]}):
            for asked in (url, url.replace("state=", "state=x"), url.partition("?")[0], url + "&iss=https://evil.test"):
                answer = httpx.get(asked, cookies=cookies)
                assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?refused=sso")
                assert "dpserve=" not in answer.headers.get("set-cookie", "")

        # Who signs out has nothing left, also where the cookie was copied before, in either worker.
        assert ask(server, session["value"].encode()).status_code == 200
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/ui/login")
        assert {ask(server, session["value"].encode()).status_code for _ in range(10)} == {401}

        # The token ends: the page asks the provider, who knows.
        organization.person("ana")
        over = organization.token(exp=int(time.time()) - 1).decode()
        page.context.add_cookies([{**session, "value": over}])
        page.goto("/ui/datasets/adult")
        page.wait_for_url("**/ui/datasets/adult")
        assert page.get_by_role("heading", name="Not with this token").is_visible()
        organization.person("ana", "ward", active=False)
        page.context.add_cookies([{**session, "value": over}])
        page.goto("/ui/datasets/adult")
        page.get_by_label("Username").wait_for()  # at the provider, who lets her in no more
        sign_in_there(page)
        assert page.get_by_label("Username").is_visible()


COMMAND = [sys.executable, "-m", "serving.cli"]


def started(command, folder):
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("DPSERVE_")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, cwd=folder, **pipes)


def approve(page, said, sign_in=lambda page: None):
    """At the provider, in a browser, as the words say that a command line shows."""
    address, code = re.search(r"at (\S+) with the code (\S+)", said).groups()
    page.goto(address)
    sign_in(page)
    page.locator("[name=user_code]").fill(code)
    page.locator("[type=submit]").click()
    page.locator("[value=accept]").click()
    page.wait_for_url("**/device-grant-status/**")


def run(folder, *arguments):
    process = started([*COMMAND, *arguments], folder)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_a_command_line_by_the_device_flow(organization, server, tmp_path):
    organization.person("ana", "ward")
    login = started([*COMMAND, *organization.commands("login")[0]], tmp_path)
    program = started([sys.executable, "-u", "-c", organization.page("python")], tmp_path)
    with chromium() as browser:
        page = new_page(browser, server)
        approve(page, login.stderr.readline(), sign_in_there)
        approve(page, program.stdout.readline())
    out, err = login.communicate(timeout=120)
    assert login.returncode == 0, err
    out, err = program.communicate(timeout=120)
    assert "name='adult'" in out, err
    file = tmp_path / "dpserve" / "login.json"
    assert file.stat().st_mode & 0o077 == 0
    (listing,) = organization.commands("dataset")
    code, out, err = run(tmp_path, *listing)
    assert (code, "adult" in out) == (0, True), err

    def over():
        kept = json.loads(file.read_text())
        kept["token"] = kept["session"]["token"] = organization.token(aud="cli", exp=int(time.time()) - 1).decode()
        file.write_text(json.dumps(kept))
        return kept

    before = over()
    assert run(tmp_path, "dataset", "list")[0] == 0  # renewed
    assert json.loads(file.read_text())["session"]["token"] != before["session"]["token"]
    organization.person("ana", "ward", active=False)
    over()
    code, out, err = run(tmp_path, "dataset", "list")
    assert (code, "--sso" in err) == (3, True), err


def test_a_server_without_single_sign_on_loads_nothing_of_it():
    with pytest.raises(ServiceError):
        sign_in("http://127.0.0.1:9", print)
    loaded = (
        "import serving.app, sys; print([m for m in sys.modules if m.startswith(('authlib', 'joserfc', 'httpx2'))])"
    )
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, cwd=ROOT).stdout == "[]\n"
