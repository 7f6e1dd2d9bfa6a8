"""Asking one witness to cosign a checkpoint: `add-checkpoint` of c2sp.org/tlog-witness, over HTTP or HTTPS.

A witness is not trusted, nor is the way to it: what it says is bounded in size and time, redirections are not followed,
and only a cosignature that verifies counts. What cannot be used is LedgerInvalid, whose message says what came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from urllib.parse import SplitResult, urlsplit

from accountant.system.bounded_http import SCHEMES, Reply, exchange
from dpserve_verify.errors import InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.formats.merkle import MAX_SIZE
from dpserve_verify.log.cosignature import is_by, verify_cosignature
from dpserve_verify.log.notes import NoteSignature, parse_checkpoint, parse_note
from dpserve_verify.log.witness_policy import Witness, printable_name

ANSWER_LIMIT = 65_536  # bytes
SECONDS = 10.0  # for one request and its answer
TRIES = 3  # somebody else may submit a checkpoint between the answer 409 and the next try
MAX_PROOF = 63
SIZE_TYPE = "text/x.tlog.size"
_SIZE = re.compile(rb"(0|[1-9][0-9]{0,18})\n")

Prover = Callable[[int], Sequence[bytes]]
"""The consistency proof from a tree of this size to the checkpoint's."""

_MEANING = {
    400: "finds the request malformed",
    403: "does not accept this log's signature",
    404: "does not know this log",
    422: "says that this ledger does not continue what it signed before: the ledger was rewritten, or the witness errs",
}


def ask(
    witness: Witness, note: str, prove: Prover, known: int = 0, seconds: float = SECONDS
) -> tuple[NoteSignature, ...]:
    """Ask a witness to cosign the checkpoint `note`; return its cosignatures. `known`: the size that it is thought to
    have signed last.
    """
    size = parse_checkpoint(note).size
    for _ in range(TRIES):
        reply = _post(witness, request_body(known, prove(known), note), seconds)
        if reply.status == 200:
            return _check_cosignatures(witness, note, reply.body)
        if 300 <= reply.status < 400:
            refuse = f"redirects elsewhere ({reply.status}), which is not followed"
            raise LedgerInvalid(f"witness {printable_name(witness.name)}: {refuse}")
        if reply.status != 409:
            meaning = _MEANING.get(reply.status, "gives no cosignature")
            raise LedgerInvalid(f"witness {printable_name(witness.name)}: {meaning} ({reply.status})")
        known = _signed_size(witness, reply, known, size)
    raise LedgerInvalid(f"witness {printable_name(witness.name)}: named another size each time it was asked")


def request_body(old: int, proof: Sequence[bytes], note: str) -> bytes:
    """Return the body of `add-checkpoint`."""
    if len(proof) > MAX_PROOF:
        raise LedgerInvalid(f"consistency proof: must have at most {MAX_PROOF} hashes")
    return "\n".join([f"old {old}", *map(encode_base64, proof), "", note]).encode()


def _signed_size(witness: Witness, reply: Reply, asked: int, size: int) -> int:
    """Return the size of the tree that the witness signed last."""
    match = _SIZE.fullmatch(reply.body)
    if asked == size and (reply.kind != SIZE_TYPE or (match and int(match[1]) == asked)):
        raise LedgerInvalid(
            f"witness {printable_name(witness.name)}: has signed another tree of {size} entries of this log: the "
            "ledger was rewritten, or the witness errs (409)"
        )
    if reply.kind != SIZE_TYPE or not match or not 0 <= int(match[1]) <= MAX_SIZE or int(match[1]) == asked:
        raise LedgerInvalid(f"witness {printable_name(witness.name)}: answered 409 without the size that it knows")
    stated = int(match[1])
    if stated > size:
        raise LedgerInvalid(
            f"witness {printable_name(witness.name)}: has signed {stated} entries of this log, this checkpoint is of "
            f"{size}: a newer one was submitted meanwhile, or the ledger was rolled back"
        )
    return stated


def _check_cosignatures(witness: Witness, note: str, body: bytes) -> tuple[NoteSignature, ...]:
    text = parse_note(note).text
    try:
        lines = parse_note(f"{text}\n{body.decode('utf-8')}")
    except (LedgerInvalid, UnicodeDecodeError) as error:
        raise LedgerInvalid(f"witness {printable_name(witness.name)}: answered 200 without signature lines") from error
    own = tuple(line for line in lines.signatures if is_by(line, witness))
    if lines.text != text or not own:
        raise LedgerInvalid(f"witness {printable_name(witness.name)}: answered 200 without a cosignature of its key")
    for line in own:
        verify_cosignature(line, witness, text)
    return own


def _post(witness: Witness, body: bytes, seconds: float) -> Reply:
    """Send one request and read one answer, within `seconds` in all. LedgerInvalid, without the server's own words,
    else.
    """
    parts = address(witness)
    headers = {"Content-Type": "text/plain; charset=utf-8", "User-Agent": "dpserve", "Connection": "close"}
    try:
        target = f"{parts.path.rstrip('/')}/add-checkpoint"
        return exchange(parts, "POST", target, body, headers, seconds, ANSWER_LIMIT)
    except LedgerUnavailable as error:
        raise LedgerInvalid(f"witness {printable_name(witness.name)}: {error.message}") from error


def address(witness: Witness) -> SplitResult:
    """Return the parts of the witness's URL; InputError where it has none that can be asked."""
    url = witness.url or ""
    wrong = InputError(
        f"witness {printable_name(witness.name)}: url={printable_name(url)[:80]!r}: must be "
        "http(s)://host[:port]/path, in ASCII"
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise wrong from error
    extra = parts.username is not None or "?" in url or "#" in url
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or extra or not url.isascii():
        raise wrong
    return parts
