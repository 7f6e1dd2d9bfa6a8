"""The fast reader of signatures says yes to nothing that the careful one would refuse."""

from __future__ import annotations

import hashlib
from itertools import product

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError
from securesystemslib.signer import CryptoSigner

from accountant.system import signature_worker
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.keys.trust import fingerprint
from dpserve_verify.keys.verifier_keys import key_id
from dpserve_verify.log.notes import NoteSignature, sign_checkpoint, verify_checkpoint

ORIGIN = "example.org/ledger"
KEY = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"log").digest())
OTHER = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"other").digest())
L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
# Every encoding of a point of small order, canonical or not.
SMALL = [
    bytes.fromhex(text)
    for text in (
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    )
]


def sodium(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        return crypto_sign_open(signature + message, key) == message
    except BadSignatureError:
        return False


def openssl(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


# RFC 8032, 7.1: tests 1, 2, 3 and SHA(abc): public key, message, signature.
RFC = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
        "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
]


@pytest.mark.parametrize(("key", "message", "signature"), RFC)
def test_the_vectors_of_rfc_8032(key, message, signature):
    parts = [bytes.fromhex(part) for part in (key, signature, message)]
    assert sodium(*parts)
    assert openssl(*parts)
    assert not sodium(parts[0], bytes(64), parts[2])


def test_a_second_spelling_of_a_signature_is_refused():
    """S + L verifies by the equation alone: whoever admits it admits two signatures for one."""
    message = b"a tree"
    signature = KEY.sign(message)
    public = KEY.public_key().public_bytes_raw()
    again = int.from_bytes(signature[32:], "little") + L
    longer = signature[:32] + again.to_bytes(32, "little")
    assert sodium(public, signature, message)
    assert not sodium(public, longer, message)
    assert not openssl(public, longer, message)


@pytest.mark.slow
def test_keys_and_points_of_small_order_are_refused():
    """A key of small order signs anything: OpenSSL lets some of that pass, libsodium none."""
    messages = [str(number).encode() for number in range(24)]
    passed = 0
    for key, point, message in product(SMALL, SMALL, messages):
        assert not sodium(key, point + bytes(32), message)
        passed += openssl(key, point + bytes(32), message)
    assert passed  # so it is a test of something
    public = KEY.public_key().public_bytes_raw()
    for point, message in product(SMALL, messages):
        assert not sodium(public, point + bytes(32), message)


@given(st.binary(max_size=40), st.integers(0, 64 * 8 - 1))
def test_one_bit_is_enough(message, bit):
    public, signature = KEY.public_key().public_bytes_raw(), bytearray(KEY.sign(message))
    signature[bit // 8] ^= 1 << bit % 8
    assert not sodium(public, bytes(signature), message)


# Notes.


def signer(key: Ed25519PrivateKey) -> CryptoSigner:
    from securesystemslib.signer import SSlibKey

    public = key.public_key()
    return CryptoSigner(key, SSlibKey.from_crypto(public, keyid=fingerprint(public)))


def checkpoint(size: int = 5, key: Ed25519PrivateKey = KEY) -> str:
    return sign_checkpoint(ORIGIN, size, hashlib.sha256(str(size).encode()).digest(), signer(key))


def said(*notes: str, key: Ed25519PrivateKey = KEY) -> list[bool]:
    public = key.public_key()
    chunk = (ORIGIN, key_id(ORIGIN, public), public.public_bytes_raw(), list(notes))
    return [verdict == 1 for verdict in signature_worker.verdicts(chunk)]


def test_plain_checkpoints_are_known_to_be_good():
    assert said(*map(checkpoint, (0, 1, 10**17))) == [True] * 3


def cosigned(*names: str, length: int = 80) -> str:
    return checkpoint() + "".join(NoteSignature(name, b"abcd", bytes(length)).line() for name in names)


def test_signatures_of_others_do_not_matter():
    for length in (64, 76, 1000, 2428):
        assert said(cosigned("witness.example/a", "zeuge-ä", length=length)) == [True]
        assert verify_checkpoint(cosigned("witness.example/a", "zeuge-ä", length=length), ORIGIN, KEY.public_key())


DOUBTFUL = {
    "signed by another": checkpoint(key=OTHER),
    "another size": checkpoint().replace("\n5\n", "\n6\n"),
    "a leading zero": checkpoint().replace("\n5\n", "\n05\n"),
    "a larger origin": checkpoint().replace("example", "examples"),
    "cut": checkpoint()[:-1],
    "more": checkpoint() + "\n",
    "nothing": "",
    "a line too many": checkpoint().replace("\n\n", "\nmore\n\n"),
    "carriage returns": checkpoint().replace("\n", "\r\n"),
    "our name again, by another key": checkpoint() + checkpoint(key=OTHER).splitlines()[-1] + "\n",
    "our name again, wrongly signed": checkpoint() + NoteSignature(ORIGIN, b"abcd", bytes(64)).line(),
    "a witness before us": "\n".join((*checkpoint().split("\n")[:4], "— w YWJjZGVm", checkpoint().split("\n")[4], "")),
    "a witness with a blank": checkpoint() + "— a b YWJjZGVm\n",
    "a witness with a plus": checkpoint() + "— a+b YWJjZGVm\n",
    "a witness with stray bits": checkpoint() + "— w YWJjZGVn=\n",
    "a witness cut short": checkpoint() + "— w YWJj\n",
    "a lone surrogate": checkpoint() + "— \ud800 YWJjZGVm\n",
    "Latin digits": checkpoint().replace("\n5\n", "\n٥\n"),
}


@pytest.mark.parametrize("what", DOUBTFUL)
def test_what_is_not_plain_is_for_the_careful_reader(what):
    assert said(DOUBTFUL[what]) == [False]


def test_a_root_with_stray_bits_is_not_plain():
    size, root = 5, hashlib.sha256(b"5").digest()
    text = f"{ORIGIN}\n{size}\n{encode_base64(root)[:-2]}B=\n"  # decodes, in a second spelling
    note = f"{text}\n{NoteSignature(ORIGIN, key_id(ORIGIN, KEY.public_key()), KEY.sign(text.encode())).line()}"
    assert said(note) == [False]
    with pytest.raises(LedgerInvalid):
        verify_checkpoint(note, ORIGIN, KEY.public_key())


EDITS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from([*"\n A=+/09—\x00\x85\u2028é", "— ", ORIGIN])),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(EDITS, st.booleans())
def test_a_yes_is_a_yes_of_the_careful_reader(edits, more):
    note = cosigned("witness.example/a", "b") if more else checkpoint()
    for at, drop, add in edits:
        note = note[:at] + add + note[at + drop :]
    if said(note) == [True]:
        found = verify_checkpoint(note, ORIGIN, KEY.public_key())
        assert note.startswith(f"{ORIGIN}\n{found.size}\n{encode_base64(found.root)}\n\n")
