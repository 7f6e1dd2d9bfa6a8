"""Signed notes, checkpoints and .tlog-proof sidecars: the specifications' own examples, then every forgery refused."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from dpserve_verify.errors import InputError, KeyInvalid, LedgerInvalid
from dpserve_verify.formats.merkle import EMPTY_ROOT, inclusion_proof, leaf_hash, new_nodes, root
from dpserve_verify.keys.verifier_keys import COSIGNATURE, check_origin, key_id, parse_verifier_key, verifier_key
from dpserve_verify.log.notes import (
    Checkpoint,
    NoteSignature,
    parse_checkpoint,
    parse_note,
    sign_checkpoint,
    sign_note,
    verify_checkpoint,
    verify_note,
)
from dpserve_verify.log.proofs import PROOF_LIMIT, parse_proof, verify_proof, write_proof

ORIGIN = "example.org/ledger"
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SIGNER, PUBLIC = CryptoSigner(PRIVATE), PRIVATE.public_key()
OTHER_PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))
OTHER = CryptoSigner(OTHER_PRIVATE)
ROOT = bytes(range(32))
NOTE = sign_checkpoint(ORIGIN, 20852163, ROOT, SIGNER)
TEXT, LINE = NOTE.split("\n\n")

# The example of c2sp.org/signed-note.
SPEC_VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SPEC_NOTE = (
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
# The example of c2sp.org/tlog-checkpoint.
SPEC_CHECKPOINT = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "— example.com/behind-the-sofa "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
)


def signed(text, name=ORIGIN, signer=SIGNER):
    """A correctly signed note over any text: what only the key's holder could make."""
    return sign_note(text, name, signer)


def test_the_specifications_note_verifies():
    name, public_key = parse_verifier_key(SPEC_VKEY)
    assert name == "example.com/foo"
    assert verify_note(SPEC_NOTE, name, public_key).text == "This is an example message.\n"
    assert verifier_key(name, public_key) == SPEC_VKEY
    with pytest.raises(LedgerInvalid, match="not verify"):
        verify_note(SPEC_NOTE.replace("example message", "Example message"), name, public_key)


def test_the_specifications_checkpoint_is_read():
    checkpoint = parse_checkpoint(SPEC_CHECKPOINT)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert base64.b64encode(checkpoint.root) == b"CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
    assert "".join(s.line() for s in checkpoint.signatures) == SPEC_CHECKPOINT.split("\n\n")[1]


def test_checkpoint_round_trip():
    line = NoteSignature(ORIGIN, key_id(ORIGIN, PUBLIC), PRIVATE.sign((TEXT + "\n").encode()))
    assert verify_checkpoint(NOTE, ORIGIN, PUBLIC) == Checkpoint(ORIGIN, 20852163, ROOT, (line,))
    empty = sign_checkpoint(ORIGIN, 0, EMPTY_ROOT, SIGNER)
    assert verify_checkpoint(empty, ORIGIN, PUBLIC).size == 0


def test_extension_lines_are_read_and_unknown_signatures_ignored():
    stranger = NoteSignature("witness.example", b"\x01\x02\x03\x04", b"\x04" * 72).line()
    same_name = NoteSignature(ORIGIN, b"\x01\x02\x03\x04", bytes(64)).line()
    same_id = NoteSignature("elsewhere.example", key_id(ORIGIN, PUBLIC), bytes(64)).line()
    note = signed(f"{TEXT}\nan extension\nanother\n") + stranger + same_name + same_id
    checkpoint = verify_checkpoint(note, ORIGIN, PUBLIC)
    assert checkpoint.extensions == ("an extension", "another")
    assert len(checkpoint.signatures) == 4


def test_a_repeated_good_signature_is_harmless_and_a_second_bad_one_is_not():
    line = NOTE.split("\n\n")[1]
    verify_checkpoint(NOTE + line, ORIGIN, PUBLIC)
    bad = NoteSignature(ORIGIN, key_id(ORIGIN, PUBLIC), bytes(64)).line()
    for note in (NOTE + bad, f"{TEXT}\n\n{bad}{line}", f"{TEXT}\n\n{bad}"):
        with pytest.raises(LedgerInvalid, match="not verify"):
            verify_checkpoint(note, ORIGIN, PUBLIC)


def test_every_flipped_bit_is_refused():
    raw = NOTE.encode()
    for i in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[i] ^= 1 << bit
            with pytest.raises((LedgerInvalid, UnicodeDecodeError)):
                verify_checkpoint(changed.decode(), ORIGIN, PUBLIC)


def test_only_the_pinned_key_and_origin_speak():
    with pytest.raises(LedgerInvalid, match="no signature"):
        verify_checkpoint(sign_checkpoint(ORIGIN, 1, ROOT, OTHER), ORIGIN, PUBLIC)
    with pytest.raises(LedgerInvalid, match="no signature"):
        verify_checkpoint(NOTE, "example.org/other", PUBLIC)
    with pytest.raises(LedgerInvalid, match="origin="):  # our key's name over another log's tree head
        verify_checkpoint(signed(TEXT.replace(ORIGIN, "example.org/other") + "\n"), ORIGIN, PUBLIC)


SIG = base64.b64encode(bytes(68)).decode()


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n\n",
        TEXT,
        TEXT + "\n",
        TEXT + "\n\n",
        NOTE[:-1],
        NOTE + "\n",
        NOTE + "x",
        NOTE.replace("\n\n", "\n"),
        NOTE.replace("\n", "\r\n"),
        NOTE.replace("— ", "- "),
        NOTE.replace("— ", "—"),
        NOTE.replace("— ", "—  "),
        f"{TEXT}\n\n— {ORIGIN}\n",
        f"{TEXT}\n\n— {ORIGIN} \n",
        f"{TEXT}\n\n— {ORIGIN} {SIG} x\n",
        f"{TEXT}\n\n—  {SIG}\n",
        f"{TEXT}\n\n— a+b {SIG}\n",
        f"{TEXT}\n\n— a\u00a0b {SIG}\n",
        f"{TEXT}\n\n— {ORIGIN} AAAAAA==\n",
        f"{TEXT}\n\n— {ORIGIN} AAAA\n",
        f"{TEXT}\n\n— {ORIGIN} {SIG[:-1]}\n",
        NOTE + LINE.replace("=", ""),
        NOTE.replace(ORIGIN, ORIGIN + "\t"),
        NOTE + LINE * 64,
        NOTE.replace("\n\n", "\nx" * 200_000 + "\n\n"),
        NOTE.replace(ORIGIN, "\ud800"),
    ],
)
def test_malformed_notes_are_refused(note):
    with pytest.raises(LedgerInvalid):
        parse_checkpoint(note)


ROOT64 = base64.b64encode(ROOT).decode()


@pytest.mark.parametrize(
    "text",
    [
        "\n",
        f"{ORIGIN}\n5\n",
        f"\n5\n{ROOT64}\n",
        f"{ORIGIN}\n\n{ROOT64}\n",
        f"{ORIGIN}\n05\n{ROOT64}\n",
        f"{ORIGIN}\n+5\n{ROOT64}\n",
        f"{ORIGIN}\n-5\n{ROOT64}\n",
        f"{ORIGIN}\n 5\n{ROOT64}\n",
        f"{ORIGIN}\n5.0\n{ROOT64}\n",
        f"{ORIGIN}\n٥\n{ROOT64}\n",
        f"{ORIGIN}\n{2**63}\n{ROOT64}\n",
        f"{ORIGIN}\n{'9' * 5000}\n{ROOT64}\n",
        f"{ORIGIN}\n5\n{ROOT64[:-1]}\n",
        f"{ORIGIN}\n5\n{ROOT64[:-2]}9=\n",
        f"{ORIGIN}\n5\n{ROOT64} \n",
        f"{ORIGIN}\n5\n{base64.b64encode(bytes(31)).decode()}\n",
        f"{ORIGIN}\n5\n{ROOT.hex()}\n",
        f"{ORIGIN}\n5\n{ROOT64}\n\nx\n",
        f"{ORIGIN}\n5\n{ROOT64}\n\n",
    ],
)
def test_malformed_checkpoints_are_refused_although_signed(text):
    with pytest.raises(LedgerInvalid):
        verify_checkpoint(signed(text), ORIGIN, PUBLIC)


def test_a_note_may_hold_empty_lines():
    text = "one\n\n\ntwo\n"
    assert verify_note(signed(text), ORIGIN, PUBLIC).text == text
    assert parse_note(signed("\n" + text)).text == "\n" + text


@pytest.mark.parametrize("origin", ["", "a b", "a+b", "a\n", "a\u00a0b", "é", "a\x7f", "x" * 256])
def test_origins_that_cannot_name_a_log(origin):
    with pytest.raises(InputError, match="origin="):
        check_origin(origin)
    with pytest.raises(InputError, match="origin="):
        sign_checkpoint(origin, 1, ROOT, SIGNER)


def test_what_is_not_a_tree_head_is_not_signed():
    for size, root_hash in ((-1, ROOT), (2**63, ROOT), (1, b""), (1, bytes(33))):
        with pytest.raises(InputError, match="size="):
            sign_checkpoint(ORIGIN, size, root_hash, SIGNER)
    with pytest.raises(KeyInvalid, match="Ed25519"):
        sign_checkpoint(ORIGIN, 1, ROOT, CryptoSigner.generate_ecdsa())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        SPEC_VKEY.replace("foo", "bar"),
        SPEC_VKEY.replace("530d", "530D"),
        SPEC_VKEY.replace("530d903a", "00000000"),
        SPEC_VKEY.replace("+Aeky", "+Beky"),
        SPEC_VKEY[:-1],
        SPEC_VKEY + "\n",
        SPEC_VKEY + "=",
        "+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "é" + SPEC_VKEY,
    ],
)
def test_malformed_verifier_keys_are_refused(text):
    with pytest.raises(KeyInvalid):
        parse_verifier_key(text)


ENTRIES = [b'{"entry":%d}' % i for i in range(7)]
NODES = {}


def read(level, index):
    return NODES[level, index]


for n, entry in enumerate(ENTRIES):
    NODES |= {(level, i): digest for level, i, digest in new_nodes(n, leaf_hash(entry), read)}


def proof_of(index, size=7):
    note = sign_checkpoint(ORIGIN, size, root(size, read), SIGNER)
    return write_proof(index, inclusion_proof(index, size, read), note, ENTRIES[index])


def verify_text(text):
    proof = parse_proof(text)
    return verify_proof(proof, proof.extra or b"", ORIGIN, PUBLIC)


@pytest.mark.parametrize("size", range(1, 8))
def test_every_entry_has_a_proof(size):
    for index in range(size):
        proof = parse_proof(proof_of(index, size))
        assert proof.extra == ENTRIES[index]
        assert verify_text(proof_of(index, size)).size == size
        with pytest.raises(LedgerInvalid):
            verify_proof(proof, b"another entry", ORIGIN, PUBLIC)
        with pytest.raises(LedgerInvalid):
            verify_proof(proof, proof.extra, ORIGIN, OTHER_PRIVATE.public_key())


def test_proof_text_is_the_specified_one():
    lines = proof_of(2, 4).split("\n")
    extra = base64.b64encode(ENTRIES[2]).decode()
    hashes = [base64.b64encode(NODES[0, 3]).decode(), base64.b64encode(NODES[1, 0]).decode()]
    assert lines[:7] == ["c2sp.org/tlog-proof@v1", f"extra {extra}", "index 2", *hashes, "", ORIGIN]
    bare = write_proof(0, [], NOTE, None)
    assert bare == "c2sp.org/tlog-proof@v1\nindex 0\n\n" + NOTE
    assert (parse_proof(bare).extra, parse_proof(bare).path) == (None, ())


def test_every_flipped_bit_of_a_proof_is_refused():
    """The extra line is not authenticated, but what it then holds is another entry, and that is not in the log."""
    raw = proof_of(3).encode()
    for i in range(len(raw)):
        changed = bytearray(raw)
        changed[i] ^= 1 << i % 8
        with pytest.raises((LedgerInvalid, UnicodeDecodeError)):
            verify_text(changed.decode())


PROOF = proof_of(2)
HASH = base64.b64encode(NODES[0, 3]).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c2sp.org/tlog-proof@v1",
        "c2sp.org/tlog-proof@v1\n\n" + NOTE,
        PROOF.replace("@v1", "@v2"),
        " " + PROOF,
        PROOF.replace("\n", "\r\n"),
        PROOF.replace("index 2", "index 02"),
        PROOF.replace("index 2", "index -2"),
        PROOF.replace("index 2", "index  2"),
        PROOF.replace("index 2", "index 2 "),
        PROOF.replace("index 2", "Index 2"),
        PROOF.replace("index 2", "index 2\nindex 2"),
        PROOF.replace("index 2", f"index {2**63}"),
        PROOF.replace("index 2\n", ""),
        PROOF.replace("extra ", "extra  "),
        PROOF.replace("extra ", "extra \nextra "),
        PROOF.replace("extra ", "other eA==\nextra "),
        PROOF.replace(HASH, HASH[:-1]),
        PROOF.replace(HASH, HASH + " "),
        PROOF.replace(HASH, base64.b64encode(bytes(31)).decode()),
        PROOF.replace(HASH, f"{HASH}\n\n"),
        PROOF.replace(HASH, "\n".join([HASH] * 64)),
        PROOF[:-1],
        PROOF + "x",
        PROOF + "\n",
        "c2sp.org/tlog-proof@v1\nextra \nindex 0\n\n" + NOTE,
        "c2sp.org/tlog-proof@v1\n" + "A" * PROOF_LIMIT,
    ],
)
def test_malformed_proofs_are_refused(text):
    with pytest.raises(LedgerInvalid):
        parse_proof(text)


@pytest.mark.parametrize(
    ("index", "path", "note", "extra"),
    [
        (-1, [], NOTE, None),
        (2**63, [], NOTE, None),
        (0, [b"short"], NOTE, None),
        (0, [ROOT] * 64, NOTE, None),
        (0, [], NOTE, b""),
        (0, [], NOTE, bytes(65_536)),
        (0, [], "no note", None),
    ],
)
def test_what_cannot_be_read_is_not_written(index, path, note, extra):
    with pytest.raises(LedgerInvalid):
        write_proof(index, path, note, extra)


# The key of the example of c2sp.org/tlog-cosignature is not published; its line is of the right form.
SPEC_COSIGNED = SPEC_CHECKPOINT + (
    "\u2014 witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZ"
    "qhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
)


def test_the_example_of_a_cosignature_is_read():
    line = parse_note(SPEC_COSIGNED).signatures[1]
    assert (line.name, line.key_id.hex()) == ("witness.example.com/w1", "8d66cf3f")
    assert int.from_bytes(line.signature[:8], "big") == 1679315147
    assert len(line.signature) == 8 + 64
    assert parse_checkpoint(SPEC_COSIGNED).size == parse_checkpoint(SPEC_CHECKPOINT).size


def test_one_key_in_two_roles_has_two_names():
    log, witness = verifier_key(ORIGIN, PUBLIC), verifier_key(ORIGIN, PUBLIC, COSIGNATURE)
    assert key_id(ORIGIN, PUBLIC) != key_id(ORIGIN, PUBLIC, COSIGNATURE)
    assert parse_verifier_key(witness, COSIGNATURE) == parse_verifier_key(log) == (ORIGIN, PUBLIC)
    for text, kind in ((log, COSIGNATURE), (witness, b"\x01"), (witness, b"\x06")):
        with pytest.raises(KeyInvalid, match=f"type 0x{kind.hex()}"):
            parse_verifier_key(text, kind)
