"""Signatures of plain checkpoints by the thousand, in a process of its own or not: yes, or "somebody must look closer".

A yes means what `dpserve_verify.log.notes.verify_checkpoint` means. Libsodium verifies in half the time that OpenSSL
takes, and refuses all that OpenSSL refuses (tests/accountant/audit/test_audit_signatures.py). Imports nothing of ours:
as a program it reads chunks from standard input and ends with it, so it never outlives who asked.
"""

from __future__ import annotations

import marshal
import re
import signal
import sys
from binascii import a2b_base64
from functools import lru_cache
from queue import SimpleQueue
from threading import Thread

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

Chunk = tuple[str, bytes, bytes, list[str]]
"""The name that signs, its key id, its raw Ed25519 key, and notes."""

LENGTH = 8
# Canonical base64: the bits that the last letter has too many are zero.
_TAIL = "[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]="
_BASE64 = f"(?:[A-Za-z0-9+/]{{4}}){{1,2000}}(?:{_TAIL}|[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{{4}})"
_OTHERS = rf"(?:— [^\s+\x00-\x1f\ud800-\udfff]{{1,255}} {_BASE64}\n){{0,16}}"


@lru_cache(maxsize=16)
def _layout(name: str) -> re.Pattern[str]:
    """Compile the layout of a note: origin, size, root; our signature; those of others. A size of 19 digits is for
    somebody else to judge.
    """
    origin = re.escape(name)
    tree = f"{origin}\n(?:0|[1-9][0-9]{{0,17}})\n[A-Za-z0-9+/]{{40}}{_TAIL}\n"
    ours = f"— {origin} ([A-Za-z0-9+/]{{88}}{_TAIL})\n"
    return re.compile(f"({tree})\n{ours}({_OTHERS})")


def verdicts(chunk: Chunk) -> bytes:
    """Return a byte for each note: 1 where it is a plain checkpoint in this name, signed by this key."""
    name, key_id, key, notes = chunk
    layout, again = _layout(name), f"— {name} "
    return bytes(_is_signed(layout, again, key_id, key, note) for note in notes)


def _is_signed(layout: re.Pattern[str], again: str, key_id: bytes, key: bytes, note: str) -> bool:
    match = layout.fullmatch(note)
    if match is None or again in match[3]:  # every line in our name must verify
        return False
    signature = a2b_base64(match[2])
    if signature[:4] != key_id:
        return False
    try:
        crypto_sign_open(signature[4:] + match[1].encode(), key)
    except BadSignatureError:
        return False
    return True


def main() -> None:
    """Answer chunks, each a length and a marshalled Chunk, with their verdicts, in order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts us both; who asked closes our input
    waiting: SimpleQueue[Chunk | None] = SimpleQueue()
    Thread(target=_receive, args=(waiting,), daemon=True).start()  # so that who asks need not wait for us to read
    while (chunk := waiting.get()) is not None:
        sys.stdout.buffer.write(verdicts(chunk))
        sys.stdout.buffer.flush()


def _receive(waiting: SimpleQueue[Chunk | None]) -> None:
    source = sys.stdin.buffer
    while len(length := source.read(LENGTH)) == LENGTH:
        raw = source.read(int.from_bytes(length))
        if len(raw) < int.from_bytes(length):
            break
        waiting.put(marshal.loads(raw))
    waiting.put(None)


if __name__ == "__main__":
    main()
