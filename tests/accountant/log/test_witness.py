"""Witnesses: what they see of a ledger that grows, forks or lies, and what a witness that lies can do (nothing)."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import histories
import ledgers
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from histories import copied, grown, log_vkey, new_home, pinned, rewritten
from witness_server import Server, Witness, cosignature_line, vkey

from accountant.audit.audit import audit_place
from accountant.audit.export import export
from accountant.audit.export_tiles import export_tiles
from accountant.home import Home
from accountant.log import stored_proofs
from accountant.log.collect import Witnessed, cosign, keep
from accountant.log.witness import ANSWER_LIMIT
from accountant.store import store
from accountant.store.store import Store
from dpserve_verify.audit.exports import audit_export, vouching
from dpserve_verify.audit.tile_check import audit_tiles
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.keys import verifier_keys
from dpserve_verify.log import notes
from dpserve_verify.log.cosignature import Cosignature, cosignatures, require_quorum, with_cosignatures
from dpserve_verify.log.proofs import parse_proof, verify_proof
from dpserve_verify.log.witness_policy import WitnessPolicy, parse_policy
from dpserve_verify.log.witnessed import WITNESSED, Vouched, judge, read_witnessed
from serving.cli.app import run

pytestmark = pytest.mark.server
PATIENCE = 0.5  # seconds that a test waits for a witness that stalls


@pytest.fixture
def home(tmp_path) -> Home:
    return copied(12, tmp_path / "home")


@pytest.fixture
def start(tmp_path):
    """Starts witnesses of a home's log."""
    with ExitStack() as stack:
        yield lambda home, name="w", twist=None: stack.enter_context(
            Witness(f"witness.example/{name}", tmp_path, [log_vkey(home)], twist)
        )


def policy(home: Home, witnesses: list[Witness], needed: str = "all", log: bool = True) -> WitnessPolicy:
    return parse_policy(policy_text(home, witnesses, needed, log).encode())


def policy_text(home: Home, witnesses: list[Witness], needed: str = "all", log: bool = True) -> str:
    lines = [f"log {log_vkey(home)}\n"] if log else []
    lines += [witness.line() for witness in witnesses]
    return "".join([*lines, f"group g {needed} {' '.join(each.name for each in witnesses)}\nquorum g\n"])


def asked(home: Home, rule: WitnessPolicy, **options) -> Witnessed:
    return cosign(home.ledger.log.database, pinned(home), rule, **options)


# A ledger that grows


def test_a_witness_follows_a_ledger_that_grows(home, start):
    witness, sizes = start(home), (12, 13, 21, 40)
    rule = policy(home, [witness])
    for size in sizes:
        found = asked(grown(home, size), rule, kept=read_witnessed(home.path))
        keep(home.path, found.note)
        assert (found.size, notes.parse_checkpoint(read_witnessed(home.path)).size) == (size, size)
        assert [each.witness for each in require_quorum(found.note, rule)] == [witness.name]
        assert witness.seen(home.ledger.log.origin)["size"] == size
    assert witness.asked == [200] * len(sizes)


def test_who_does_not_know_what_a_witness_saw_is_told(home, start):
    witness = start(home)
    rule = policy(home, [witness])
    asked(home, rule)
    asked(grown(home, 30), rule)  # without what was kept
    asked(home, rule)  # the same once more
    assert witness.asked == [200, 409, 200, 409, 200]


def test_two_witnesses_at_different_sizes(home, start):
    first, second = start(home, "1"), start(home, "2")
    keep(home.path, asked(home, policy(home, [first])).note)
    found = asked(grown(home, 20), policy(home, [first, second]), kept=read_witnessed(home.path))
    assert {each.witness for each in require_quorum(found.note, policy(home, [first, second]))} == {
        first.name,
        second.name,
    }
    assert (first.asked, second.asked) == ([200, 200], [200])


def test_a_cosigned_checkpoint_is_a_checkpoint(home, start):
    """The log's signature stays, readers who know no witness see what they always saw."""
    found = asked(home, policy(home, [start(home)]))
    head = notes.verify_checkpoint(found.note, home.ledger.log.origin, pinned(home).log_key_at(12))
    assert (head.size, len(head.signatures)) == (12, 2)
    assert home.ledger.log.checkpoint() in found.note.replace(head.signatures[1].line(), "")


def test_an_older_checkpoint_is_not_kept_over_a_newer_one(home, start):
    rule = policy(home, [start(home)])
    older = asked(home, rule).note
    newer = asked(grown(home, 14), rule).note
    for note in (newer, older):
        keep(home.path, note)
    assert read_witnessed(home.path) == newer
    assert [file.name for file in home.path.iterdir() if "partial" in file.name] == []


def test_a_quorum_of_two_of_three_holds_with_one_down(home, start):
    witnesses = [start(home, str(number)) for number in range(3)]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}"
    text = policy_text(home, witnesses, "2").replace(witnesses[1].url, gone)
    found = asked(home, parse_policy(text.encode()))
    assert [answer.problem == "" for answer in found.answers] == [True, False, True]
    assert "no answer" in found.answers[1].said
    with pytest.raises(LedgerInvalid, match=f"quorum=g: not met.*not by {witnesses[1].name}.*no answer"):
        asked(home, parse_policy(text.replace("group g 2", "group g all").encode()))


# A ledger that lies


def test_without_a_witness_a_rewritten_ledger_is_sound(home):
    """Said in the documentation: who holds the keys can rewrite everything, and the files alone do not show it."""
    kept_elsewhere = home.ledger.log.checkpoint()
    home = rewritten(home, 5)
    assert audit_place(ledgers.place(home.path)).ok
    found = audit_place(ledgers.place(home.path), seen=[kept_elsewhere])
    assert "kept from before has another root" in found.problems[0]


def test_another_tree_of_as_many_entries_is_told_as_that(home, start):
    """The specification has 409 for it, with or without the size, whichever size the client believed."""
    for name, twist in (("a", None), ("b", lambda answer: (answer[0], "text/x.tlog.size", answer[2] or b"12\n"))):
        witness = start(home, name, twist if twist is None else lambda it, t=twist: t(it) if it[0] == 409 else it)
        rule, before = policy(home, [witness]), asked(home, policy(home, [witness])).note
        forked = rewritten(Home.open(ledgers.place(ledgers.copy(home.path, home.path.with_name(name)))), 5)
        for kept in (None, before):
            with pytest.raises(LedgerInvalid, match=r"another tree of 12 entries of this log.*rewritten.*\(409\)"):
                asked(forked, rule, kept=kept)
        assert witness.asked == [200, 409, 409, 409]


def test_a_witness_refuses_a_rewritten_ledger(home, start):
    witness = start(home)
    rule = policy(home, [witness])
    keep(home.path, asked(home, rule).note)
    home = grown(rewritten(home, 5), 15)
    assert audit_place(ledgers.place(home.path)).ok
    with pytest.raises(LedgerInvalid, match="does not continue what it signed before"):
        asked(home, rule, kept=read_witnessed(home.path))
    (home.path / WITNESSED).unlink()  # the operator's last hope: that nobody asks for a quorum
    problems = judge([home.ledger.log.checkpoint()], rule, pinned(home)).problems
    assert "no checkpoint is vouched for" in problems[0]
    assert witness.seen(home.ledger.log.origin)["size"] == 12


def test_the_cosigned_checkpoint_shows_the_rewriting(home, start, tmp_path):
    """Where the operator forgets it, or an auditor kept it: it is of another history."""
    cosigned = asked(home, policy(home, [start(home)])).note
    home = rewritten(home, 5)
    keep(home.path, cosigned)
    export(home, tmp_path / "files")
    export_tiles(home, tmp_path / "tiles")
    for found in (
        audit_export(tmp_path / "files", pinned(home)),
        audit_tiles(tmp_path / "tiles", pinned(home)),
        audit_place(ledgers.place(home.path), seen=[cosigned]),
    ):
        assert not found.ok
        assert "another root" in found.problems[0]


@pytest.mark.parametrize(("out", "judged"), [(export, audit_export), (export_tiles, audit_tiles)])
def test_an_export_that_is_overtaken_holds_no_checkpoint_beyond_it(home, start, tmp_path, monkeypatch, out, judged):
    """The ledger grows, and witnesses cosign it, as soon as its snapshot is opened."""
    rule, reading = policy(home, [start(home)]), Store.reading

    @contextmanager
    def overtaken(database):
        with reading(database) as connection:
            store.size(connection)
            monkeypatch.setattr(Store, "reading", reading)
            keep(home.path, asked(grown(home, 20), rule).note)
            yield connection

    monkeypatch.setattr(Store, "reading", overtaken)
    assert out(home, tmp_path / "out") == 12
    assert notes.parse_checkpoint(read_witnessed(home.path)).size == 20
    assert judged(tmp_path / "out", pinned(home)).problems == ()


def test_a_fork_shown_to_two_auditors_is_signed_once(home, start, tmp_path):
    """Two ledgers of one key: whichever a witness sees first, it refuses the other, so one auditor gets no quorum."""
    witness = start(home)
    rule = policy(home, [witness])
    other = rewritten(Home.open(ledgers.place(ledgers.copy(home.path, tmp_path / "other"))), 5)
    assert grown(home, 20).ledger.log.origin == grown(other, 25).ledger.log.origin
    shown_to_one = asked(home, rule).note
    with pytest.raises(LedgerInvalid, match="quorum=g: not met"):
        asked(other, rule)
    for fork, note, sound in ((home, shown_to_one, True), (other, other.ledger.log.checkpoint(), False)):
        assert audit_place(ledgers.place(fork.path), seen=[note]).ok
        assert (not judge([note], rule, pinned(home)).problems) is sound


def test_a_rolled_back_ledger_is_not_signed(home, start, tmp_path):
    yesterday = ledgers.copy(home.path, tmp_path / "yesterday")
    rule = policy(home, [start(home)])
    asked(grown(home, 20), rule)
    with pytest.raises(LedgerInvalid, match="has signed 20 entries.*this checkpoint is of 12.*rolled back"):
        asked(Home.open(ledgers.place(yesterday)), rule)


def test_the_witness_refuses_what_the_specification_says(home, start, tmp_path):
    """The other end of the protocol, so that the tests above rest on a real witness."""
    from accountant.log.witness import Reply, _post, request_body
    from accountant.store import store
    from dpserve_verify.formats.canonical import encode_base64
    from dpserve_verify.formats.merkle import consistency_proof

    witness = start(home)
    rule = policy(home, [witness]).witnesses[0]
    first = home.ledger.log.checkpoint()
    home = grown(home, 20)
    second = home.ledger.log.checkpoint()
    with home.ledger.log.database.reading() as connection:
        proof = consistency_proof(12, 20, store.node_reader(connection))
    stranger = new_home(tmp_path / "stranger")
    forged = second.replace("\n20\n", "\n19\n")

    def answer(old: int, path: list[bytes], note: str) -> Reply:
        return _post(rule, request_body(old, path, note), 5.0)

    def status(*arguments) -> int:
        return answer(*arguments).status

    assert status(0, proof, first) == 422  # no proof is needed from the empty tree
    assert status(0, [], stranger.ledger.log.checkpoint()) == 404
    assert status(0, [], forged) == 403
    assert status(13, [], first) == 400
    assert status(0, [], first) == 200
    assert status(12, proof[:-1], second) == 422
    assert status(12, [], second) == 422
    conflict = answer(0, [], second)
    assert (conflict.status, conflict.kind, conflict.body) == (409, "text/x.tlog.size", b"12\n")
    assert status(12, proof, second) == 200
    assert status(12, [], first) == 409  # rolled back
    assert status(20, [], second) == 200
    assert json.loads(Path(witness._state).read_text())[home.ledger.log.origin]["size"] == 20
    assert encode_base64(notes.parse_checkpoint(second).root) == witness.seen(home.ledger.log.origin)["root"]


# A witness that lies


def changed(old: bytes, new: bytes):
    return lambda answer: (answer[0], answer[1], answer[2].replace(old, new))


def signed_by(key: Ed25519PrivateKey, name: str, now: int = 1_700_000_000, text: str | None = None):
    """An answer with this line over the checkpoint it was asked for, filled in by `lie`."""
    return lambda note: cosignature_line(key, name, text or notes.parse_note(note).text, now).encode()


KEY = Ed25519PrivateKey.generate()
W = "witness.example/w"


def lie(home: Home, answer, status: int = 200, kind: str = "text/plain") -> tuple[Server, WitnessPolicy]:
    """A witness of the key KEY that answers what `answer(note)` gives."""
    note = home.ledger.log.checkpoint()

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        body = answer(note) if callable(answer) else answer
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Location", "http://127.0.0.1:1/add-checkpoint")
        handler.end_headers()
        handler.wfile.write(body)

    server = Server(respond)
    return server, parse_policy(f"witness {W} {vkey(KEY, W)} {server.url}\nquorum {W}\n".encode())


OTHER = Ed25519PrivateKey.generate()
LIES = {
    "another key": (signed_by(OTHER, W), 200, "without a cosignature of its key"),
    "another name": (signed_by(KEY, "witness.example/x"), 200, "without a cosignature of its key"),
    "another text": (signed_by(KEY, W, text="other\n1\nAAAA\n"), 200, "does not verify"),
    "no time": (signed_by(KEY, W, now=0), 200, "must be a time"),
    "a time beyond all": (signed_by(KEY, W, now=2**63), 200, "must be a time"),
    "nothing": (b"", 200, "without signature lines"),
    "garbage": (b"\xff\x00" * 50, 200, "without signature lines"),
    "a page": (b"<html>welcome</html>\n", 200, "without signature lines"),
    "no last newline": (lambda note: signed_by(KEY, W)(note)[:-1], 200, "without signature lines"),
    "a note": (lambda note: b"x\n\n" + signed_by(KEY, W)(note), 200, "without"),
    "blank and lines": (lambda note: b"\n" + signed_by(KEY, W)(note), 200, "without"),
    "too many lines": (lambda note: signed_by(KEY, W)(note) * 65, 200, "without signature lines"),
    "long": (b"\xe2\x80\x94 x AAAA\n" * 20_000, 200, f"more than {ANSWER_LIMIT} bytes"),
    "a redirection": (b"", 302, "redirects elsewhere (302), which is not followed"),
    "a permanent one": (b"", 308, "redirects elsewhere (308)"),
    "no content": (b"", 201, "gives no cosignature (201)"),
    "an unknown log": (b"", 404, "does not know this log (404)"),
    "a bad signature": (b"", 403, "does not accept this log's signature"),
    "an inconsistent tree": (b"", 422, "was rewritten, or the witness errs"),
    "an error": (b"secret words", 500, "gives no cosignature (500)"),
    "a size without its type": (b"3\n", 409, "answered 409 without the size"),
}


@pytest.mark.parametrize("what", LIES)
def test_what_a_lying_witness_says_counts_for_nothing(home, what):
    answer, status, message = LIES[what]
    server, rule = lie(home, answer, status)
    with server, pytest.raises(LedgerInvalid) as caught:
        asked(home, rule)
    assert message in caught.value.message
    assert "secret words" not in caught.value.message


SIZES = {
    b"13\n": "has signed 13 entries of this log, this checkpoint is of 12",
    b"0\n": "without the size",  # what it was asked for
    b"5": "without the size",
    b"5\n\n": "without the size",
    b"05\n": "without the size",
    b"-1\n": "without the size",
    b"9223372036854775808\n": "without the size",
    b"99999999999999999999999999\n": "without the size",
    b"five\n": "without the size",
}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_that_cannot_be(home, size):
    server, rule = lie(home, size, 409, "text/x.tlog.size; charset=utf-8")
    with server, pytest.raises(LedgerInvalid) as caught:
        asked(home, rule)
    assert SIZES[size] in caught.value.message


def test_a_witness_that_changes_its_mind_is_left(home):
    sizes = iter(range(1, 99))
    server, rule = lie(home, lambda _: b"%d\n" % next(sizes), 409, "text/x.tlog.size")
    with server, pytest.raises(LedgerInvalid, match="named another size each time"):
        asked(home, rule)
    assert next(sizes) == 4


def test_foreign_lines_in_an_answer_are_left_out(home):
    """The client moves what it knows into its checkpoint, and nothing else."""
    foreign = signed_by(OTHER, "witness.example/x")
    server, rule = lie(home, lambda note: foreign(note) + signed_by(KEY, W)(note))
    with server:
        found = asked(home, rule)
    assert [line.name for line in notes.parse_note(found.note).signatures] == [home.ledger.log.origin, W]


def stalling(answer: bytes, drip: bytes = b"", wait: float = 0.01) -> tuple[socket.socket, threading.Event]:
    """A server that says `answer`, then `drip` again and again, and never ends."""
    listening, done = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        line, _ = listening.accept()
        with line:
            line.sendall(answer)
            while not done.wait(wait):
                try:
                    line.sendall(drip)
                except OSError:
                    return

    threading.Thread(target=serve, daemon=True).start()
    return listening, done


HEAD = b"HTTP/1.1 200 OK\r\n"
STALLS = {
    "silence": (b"", b"", "in time"),
    "half a status": (b"HTTP/1", b"", "in time"),
    "headers, drop by drop": (HEAD + b"X-A: ", b"a", "in time"),
    "headers without end": (HEAD, b"X-A: b\r\n" * 200, "no answer (HTTPException)"),
    "a header without end": (HEAD + b"X: ", b"a" * 70_000, "no answer (LineTooLong)"),
    "a body, drop by drop": (HEAD + b"\r\n", b"\n", "in time"),
    "a long body, drop by drop": (HEAD + b"Content-Length: 9999999999\r\n\r\n", b"\n", "in time"),
    "a body without end": (HEAD + b"\r\n", b"x" * 70_000, "more than"),
    "chunks without end": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"x" * 65536 + b"\r\n",
        "more than",
    ),
    "continue without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "in time"),
    "no HTTP": (b"SSH-2.0-nobody\r\n", b"", "no answer (BadStatusLine)"),
}


@pytest.mark.parametrize("what", STALLS)
def test_a_witness_that_stalls_is_left(home, what):
    answer, drip, message = STALLS[what]
    listening, done = stalling(answer, drip)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/prefix/"
    rule = parse_policy(f"witness {W} {vkey(KEY, W)} {url}\nquorum {W}\n".encode())
    try:
        with pytest.raises(LedgerInvalid) as caught:
            asked(home, rule, seconds=PATIENCE if message == "in time" else 60.0)
    finally:
        done.set()
        listening.close()
    assert message in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://h/", "file:///etc/passwd", "unix:/run/x", "http:///x", "http://h:99999/", "http://h:0/"),
        *("http://user:word@h/", "http://h/?a", "http://h/#a", "http://[::1", "//h/", "http://h\xe4user/"),
    ],
)
def test_addresses_that_are_not_asked(home, url):
    rule = parse_policy(f"witness {W} {vkey(KEY, W)} {url}\nquorum {W}\n".encode())
    with pytest.raises(InputError, match="url="):
        asked(home, rule)


@pytest.mark.parametrize("host", ["a..b", "no-such-host.invalid"])
def test_a_host_that_is_not_there(home, host):
    rule = parse_policy(f"witness {W} {vkey(KEY, W)} http://{host}/\nquorum {W}\n".encode())
    with pytest.raises(LedgerInvalid, match="no answer"):
        asked(home, rule)


# The quorum over a note


def test_every_line_in_a_witness_name_must_verify(home, start):
    """Signed-note: a known key's signature that fails condemns the note, another good one or not."""
    witness = start(home)
    rule = policy(home, [witness], log=False)
    good = asked(home, rule).note
    line = notes.parse_note(good).signatures[1]
    bad = notes.NoteSignature(line.name, line.key_id, bytes([*line.signature[:-1], line.signature[-1] ^ 1]))
    for note in (good + bad.line(), good.replace(line.line(), bad.line() + line.line())):
        with pytest.raises(LedgerInvalid, match="does not verify"):
            require_quorum(note, rule)
    older = cosignature_line(witness.key, witness.name, notes.parse_note(good).text, 5)
    found = cosignatures(notes.parse_note(good + older), rule)
    assert [each.time > 5 for each in found] == [True]  # one witness, its newest word
    assert with_cosignatures(good + older, [line]).count(witness.name) == 1


def test_when_a_witness_saw_it_is_its_own_word():
    assert Cosignature("w", 1_700_000_000).when == "2023-11-14T22:13:20Z"
    assert Cosignature("w", 253_402_300_799).when == "9999-12-31T23:59:59Z"
    assert Cosignature("w", 2**63 - 1).when == "9223372036854775807 s after 1970"
    assert Cosignature("w", 1).words == "w at 1970-01-01T00:00:01Z"


def test_a_cosignature_of_another_checkpoint_is_none(home, start):
    rule = policy(home, [start(home)], log=False)
    line = notes.parse_note(asked(home, rule).note).signatures[1]
    newer = grown(home, 13).ledger.log.checkpoint()
    with pytest.raises(LedgerInvalid, match="does not verify"):
        require_quorum(newer + line.line(), rule)
    with pytest.raises(LedgerInvalid, match="not met; cosigned by nobody"):
        require_quorum(newer, rule)


def test_a_log_signature_is_no_cosignature(home):
    """One key, two types of signature: what it signs as a log says nothing as a witness."""
    log, name = home.keys.signer("log"), home.ledger.log.origin
    both = verifier_keys.verifier_key(name, home.keys.public_key("log"), verifier_keys.COSIGNATURE)
    rule = parse_policy(f"witness {name} {both}\nquorum {name}\n".encode())
    note = notes.sign_note(notes.parse_note(home.ledger.log.checkpoint()).text, name, log)
    with pytest.raises(LedgerInvalid, match="cosigned by nobody"):
        require_quorum(note, rule)


def test_a_policy_of_other_logs(home, start, tmp_path):
    stranger = new_home(tmp_path / "stranger")
    rule = policy(stranger, [start(home)])
    with pytest.raises(InputError, match="none of its log lines"):
        asked(home, rule)
    problems = judge([home.ledger.log.checkpoint()], rule, pinned(home)).problems
    assert "none of its log lines holds the key" in problems[0]
    cosigned = asked(home, policy(home, [start(home, "v")], log=False)).note
    both = policy_text(stranger, []).replace("group g all \nquorum g", "quorum none")
    with pytest.raises(LedgerInvalid, match="signed by no log of the policy"):
        require_quorum(cosigned, parse_policy(both.encode()))


def test_no_quorum_asks_nobody(home):
    rule = parse_policy(b"quorum none\n")
    assert asked(home, rule).note == home.ledger.log.checkpoint()
    assert judge([home.ledger.log.checkpoint()], rule, pinned(home)) == Vouched(12, ())
    assert judge([], rule, pinned(home)).size == 0


# The commands


@pytest.fixture
def said(home, capsys, monkeypatch):
    """Runs a command on the home with --json; code and document."""
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))

    def command(*words: object) -> tuple[int, dict]:
        code = run([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return command


def test_ask_export_and_audit(home, start, said, tmp_path, monkeypatch):
    file, trust = tmp_path / "witnesses.policy", ("--trust", home.path / "trust.json")
    file.write_text(policy_text(home, [start(home, "1"), start(home, "2")], "2"))
    assert said("ledger", "audit", "--policy", file)[0] == 4  # nobody was asked yet
    code, body = said("ledger", "witness", "--policy", file)
    assert (code, body["size"], len(body["answers"])) == (0, 12, 2)
    assert body["checkpoint"] == read_witnessed(home.path)
    audited = said("ledger", "audit", "--policy", file)[1]
    assert audited["witnessed"] == 12
    assert [each["witness"] for each in audited["seen_by"]] == ["witness.example/1", "witness.example/2"]
    moments = [datetime.strptime(each["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for each in audited["seen_by"]]
    assert all(timedelta(0) <= datetime.now(UTC) - moment < timedelta(minutes=10) for moment in moments)
    said("ledger", "export", "--out", tmp_path / "files")
    said("ledger", "tiles", "--out", tmp_path / "tiles")
    for folder in (tmp_path / "files", tmp_path / "tiles"):
        assert (folder / "checkpoint").read_text() == body["checkpoint"]
        assert vouching(folder) == [body["checkpoint"]] * 2
        code, found = said("ledger", "audit", folder, *trust, "--policy", file)
        assert (code, found["ok"], found["witnessed"]) == (0, True, 12)
    grown(home, 15)
    monkeypatch.setenv("DPSERVE_WITNESS_POLICY", str(file))
    said("ledger", "export", "--out", tmp_path / "later")
    assert (tmp_path / "later" / "checkpoint").read_text() == home.ledger.log.checkpoint()
    code, found = said("ledger", "audit", tmp_path / "later", *trust)
    assert (code, found["entries"], found["witnessed"]) == (0, 15, 12)
    (tmp_path / "later" / "witnessed").unlink()
    code, found = said("ledger", "audit", tmp_path / "later", *trust)
    assert (code, found["witnessed"], found["ok"]) == (4, 0, False)
    seen = ("--seen", tmp_path / "files" / "checkpoint")
    assert said("ledger", "audit", tmp_path / "later", *trust, *seen)[0] == 0
    assert said("ledger", "witness")[1]["size"] == 15


def test_a_proof_against_a_cosigned_checkpoint(home, start, said, tmp_path):
    assert said("ledger", "proof", "--leaf", 3, "--witnessed")[0] == 2
    rule, out = policy(home, [start(home)]), tmp_path / "3.tlog-proof"
    keep(home.path, asked(home, rule).note)
    grown(home, 30)
    assert said("ledger", "proof", "--leaf", 3, "--witnessed", "--out", out)[0] == 0
    proof = parse_proof(out.read_text())
    assert verify_proof(proof, proof.extra, home.ledger.log.origin, pinned(home).log_key_at(12)).size == 12
    require_quorum(proof.checkpoint_note, rule)
    assert said("ledger", "proof", "--leaf", 12, "--witnessed")[0] == 2  # not yet witnessed
    with home.ledger.log.database.reading() as connection, pytest.raises(LedgerInvalid, match="not in the tree"):
        stored_proofs.inclusion(connection, 3, proof.checkpoint_note.replace("\n12\n", "\n11\n"))


def test_commands_without_a_policy(home, said, tmp_path, monkeypatch):
    assert said("ledger", "witness")[0] == 2
    assert said("ledger", "witness", "--policy", tmp_path / "none")[0] == 2
    (tmp_path / "bad").write_text("quorum all\n")
    code, body = said("ledger", "audit", "--policy", tmp_path / "bad")
    assert (code, body["error"]["message"][:14]) == (2, "policy, line 1")
    monkeypatch.setenv("DPSERVE_WITNESS_POLICY", str(tmp_path / "none"))
    assert said("ledger", "audit")[0] == 2  # a policy that is not there is not no policy


def test_a_missed_quorum_says_who_answered_what(home, start, said, tmp_path):
    down = start(home, "2", twist=lambda answer: (503, answer[1], b""))
    (tmp_path / "p").write_text(policy_text(home, [start(home, "1"), down]))
    code, body = said("ledger", "witness", "--policy", tmp_path / "p")
    assert code == 4
    assert body["error"]["details"]["answers"] == [
        "witness witness.example/1: cosigned",
        "witness witness.example/2: gives no cosignature (503)",
    ]
    assert read_witnessed(home.path) is None


def test_histories_are_what_they_say(home):
    """The rewriting that these tests rest on is one that nothing in the home shows."""
    before = home.ledger.log.checkpoint()
    home = histories.rewritten(home, 3)
    assert home.ledger.log.size() == 12
    assert home.ledger.log.checkpoint() != before
