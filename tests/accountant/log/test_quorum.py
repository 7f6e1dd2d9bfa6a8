"""The policy file: what it may say, what it may not, and when a quorum is met."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from witness_server import vkey as witness_vkey

from dpserve_verify.errors import InputError
from dpserve_verify.keys.verifier_keys import ED25519, verifier_key
from dpserve_verify.log.notes import MAX_SIGNATURES
from dpserve_verify.log.witness_policy import POLICY_LIMIT, parse_policy, read_witness_policy

KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(70)]
VKEYS = [witness_vkey(key, f"w.example/{number}") for number, key in enumerate(KEYS)]
LOG = verifier_key("log.example/a", KEYS[69].public_key(), ED25519)
THREE = "".join(f"witness X{number} {VKEYS[number]}\n" for number in range(3))
TWO = "".join(f"witness Y{number} {VKEYS[10 + number]}\n" for number in range(2))
NESTED = (
    f"log {LOG}\n\n{THREE}group X 2 X0 X1 X2\n{TWO}group Y any Y0 Y1\n# all of it\ngroup both all X Y\nquorum both\n"
)


def policy(text: str):
    return parse_policy(text.encode())


def test_the_example_of_the_specification():
    found = policy(NESTED)
    assert [log.origin for log in found.logs] == ["log.example/a"]
    assert [(group.name, group.threshold) for group in found.groups] == [("X", 2), ("Y", 1), ("both", 2)]
    names = [witness.name for witness in found.witnesses]
    for chosen in chain.from_iterable(combinations(names, count) for count in range(6)):
        x, y = sum(name[0] == "X" for name in chosen), sum(name[0] == "Y" for name in chosen)
        assert found.met_by(chosen) == (x >= 2 and y >= 1)


def test_one_witness_none_and_strangers():
    assert policy(f"{THREE}quorum X1\n").met_by(["X1"])
    assert not policy(f"{THREE}quorum X1\n").met_by(["X0", "X2", "X9"])
    assert policy("quorum none\n").met_by([])
    assert policy(f"quorum none\n{THREE}").met_by([])
    assert not policy(f"{THREE}group g all X0 X1\nquorum g\n").met_by(["g", "X0"][1:])


def test_blanks_comments_and_urls():
    text = f"\t# comment \u00e9\n \t witness\t a   {VKEYS[0]} \t https://w.example/\u00e9/ \n\nquorum a"
    found = policy(text)
    assert (found.witnesses[0].name, found.witnesses[0].url) == ("a", "https://w.example/\u00e9/")
    assert found.witnesses[0].key_name == "w.example/0"


def test_names_are_bytes():
    """K and the Kelvin sign are two names, and bytes that are no text are a name like any other."""
    raw = b"witness K %s\nwitness \xe2\x84\xaa %s\nwitness \xff %s\ngroup g 2 \xff K\nquorum g\n"
    found = parse_policy(raw % tuple(vkey.encode() for vkey in VKEYS[:3]))
    assert len({witness.name for witness in found.witnesses}) == 3
    assert found.met_by([found.witnesses[0].name, found.witnesses[2].name])
    assert not found.met_by([found.witnesses[0].name, found.witnesses[1].name])


def test_as_many_as_the_specification_asks_for():
    lines = [f"witness w{number} {VKEYS[number]}\n" for number in range(MAX_SIGNATURES - 1)]
    groups = [f"group g{number} any w{number}\n" for number in range(32)]
    assert len(policy("".join([*lines, *groups, "quorum g31\n"])).witnesses) == 63
    with pytest.raises(InputError, match="line 64: must be at most 63 witnesses"):
        policy("".join([*lines, f"witness more {VKEYS[63]}\nquorum more\n"]))


BAD = {
    "": "must have a quorum line",
    "# quorum none\n": "must have a quorum line",
    "quorum\n": "line 1: quorum",
    "quorum none none\n": "line 1: quorum",
    "quorum none\nquorum none\n": "line 2: quorum: must come once",
    "quorum all\n": "line 1: quorum",
    f"quorum X0\n{THREE}": "line 1: quorum",  # defined below
    "Quorum none\n": "must be log, witness, group or quorum",
    "quorum none\r\n": "line 1: must hold no control character",
    "quorum none\x00\n": "control character",
    "# \x1b[31m\nquorum none\n": "control character",
    "quorum\x0bnone\n": "control character",
    "quorum\u00a0none\n": "must be log, witness",
    "log\nquorum none\n": "line 1: must have 1 or 2 words",
    f"log {LOG} a b\nquorum none\n": "must have 1 or 2 words",
    f"log {VKEYS[0]}\nquorum none\n": "must be of Ed25519 (type 0x01",
    f"witness a {LOG}\nquorum none\n": "must be of Ed25519 (type 0x04",
    f"witness a {VKEYS[0][:-4]}\nquorum none\n": "line 1:",
    f"witness a {VKEYS[0].replace('+', '+0', 1)}\nquorum none\n": "key id does not belong",
    f"witness a {VKEYS[0].upper()}\nquorum none\n": "line 1:",
    f"log {LOG}\nlog {LOG}\nquorum none\n": "line 2: its key came before",
    f"witness a {VKEYS[0]}\nwitness b {VKEYS[0]}\nquorum none\n": "line 2: its key came before",
    f"witness a {VKEYS[0]}\nwitness b {witness_vkey(KEYS[0], 'other')}\nquorum none\n": "its key came before",
    f"witness a {VKEYS[0]}\nwitness a {VKEYS[1]}\nquorum none\n": "line 2: name='a': must be new",
    f"witness none {VKEYS[0]}\nquorum none\n": "must be new and not 'none'",
    f"log {LOG}\nwitness a {witness_vkey(KEYS[69], 'w')}\nquorum a\n": "a log must not be its own witness",
    "group g any\nquorum none\n": "line 1: group: must be",
    "group g any g\nquorum none\n": "member='g'",
    "group g any none\nquorum none\n": "member='none'",
    f"group g any X0\n{THREE}quorum g\n": "line 1: member='X0'",
    f"{THREE}group g 0 X0\nquorum g\n": "threshold='0'",
    f"{THREE}group g 2 X0\nquorum g\n": "threshold='2'",
    f"{THREE}group g -1 X0\nquorum g\n": "threshold='-1'",
    f"{THREE}group g 01 X0\nquorum g\n": "threshold='01'",
    f"{THREE}group g \u0661 X0\nquorum g\n": "threshold=",
    f"{THREE}group g {'9' * 5000} X0\nquorum g\n": "threshold=",
    f"{THREE}group g ANY X0\nquorum g\n": "threshold='ANY'",
    f"{THREE}group g 2 X0 X0\nquorum g\n": "member='X0'",  # one witness must not count twice
    f"{THREE}group a any X0\ngroup b any X0\nquorum a\n": "line 5: member='X0'",
    f"{THREE}group a any X0\ngroup b any a\ngroup c any a\nquorum c\n": "line 6: member='a'",
    f"{THREE}group X1 any X0\nquorum X1\n": "name='X1': must be new",
    "quorum none\n" + "#" * POLICY_LIMIT: "policy: must be at most",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_a_policy_may_not_say(text):
    with pytest.raises(InputError) as caught:
        policy(text)
    assert BAD[text] in caught.value.message
    assert caught.value.message.isascii()  # names come out escaped: a terminal shows this


def test_files(tmp_path):
    (tmp_path / "p").write_text(NESTED)
    assert read_witness_policy(tmp_path / "p") == policy(NESTED)
    (tmp_path / "huge").write_bytes(b"#" * 10_000_000)
    for name in ("huge", "none", "."):
        with pytest.raises(InputError, match="policy"):
            read_witness_policy(tmp_path / name)


@given(st.text(alphabet="logwitnesgruapq 0123456789X\n\t#+", max_size=200) | st.binary(max_size=200).map(str))
def test_no_text_does_more_than_be_refused(text):
    try:
        found = policy(text)
    except InputError:
        return
    assert found.quorum == "none"  # no keys can be guessed


@pytest.mark.slow
@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.data())
def test_more_cosigners_never_hurt(thresholds, data):
    """Monotone: a quorum that is met stays met when somebody else cosigns."""
    lines, before = list(THREE.splitlines()) + list(TWO.splitlines()), ["X0", "X1", "X2", "Y0", "Y1"]
    witnesses = list(before)
    for number, threshold in enumerate(thresholds):
        if not before:
            break
        members = data.draw(st.lists(st.sampled_from(before), unique=True, min_size=1))
        lines.append(f"group g{number} {min(threshold, len(members))} {' '.join(members)}")
        before = [name for name in before if name not in members] + [f"g{number}"]
    found = policy("\n".join([*lines, f"quorum {before[-1]}", ""]))
    cosigners = set(data.draw(st.lists(st.sampled_from(witnesses))))
    if found.met_by(cosigners):
        assert all(found.met_by(cosigners | {name}) for name in witnesses)
    assert found.met_by(witnesses)
    assert not found.met_by([])
