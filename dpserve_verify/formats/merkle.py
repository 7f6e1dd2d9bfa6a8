"""The Merkle tree of RFC 6962 (SHA-256), as pure functions over stored complete subtrees.

Node (level, index) is the hash of the 2^level leaves from index * 2^level on; it is stored once, when its last leaf
arrives, and never changes. Everything else (roots, proofs) is computed from at most O(log n) of them.
Clause numbers are those of RFC 9162, whose proofs are the same as RFC 6962's and better described.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from dpserve_verify.errors import LedgerInvalid

HASH_SIZE = 32
MAX_SIZE = 2**63 - 1  # what a checkpoint's reader in any language holds
EMPTY_ROOT = hashlib.sha256(b"").digest()

NodeReader = Callable[[int, int], bytes]
"""`read(level, index)` gives the hash of a complete subtree. For `new_nodes` and `root` at the newest size the last
node written at each level is enough: `last: dict[int, bytes]`, `read = lambda level, index: last[level]`."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of one entry's exact bytes (2.1.1)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees side by side (2.1.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def new_nodes(size: int, leaf: bytes, read: NodeReader) -> list[tuple[int, int, bytes]]:
    """Return the subtrees (level, index, hash) completed by the leaf hash `leaf` when it joins a tree of `size`
    leaves.
    """
    level, index, digest = 0, size, leaf
    nodes = [(level, index, digest)]
    while index & 1:
        digest = node_hash(read(level, index - 1), digest)
        level, index = level + 1, index >> 1
        nodes.append((level, index, digest))
    return nodes


def root(size: int, read: NodeReader) -> bytes:
    """Return the root hash over the first `size` leaves (2.1.1)."""
    digest = b""
    for level in range(size.bit_length()):
        if size >> level & 1:  # a complete subtree, and all that is right of it
            left = read(level, (size >> level) - 1)
            digest = node_hash(left, digest) if digest else left
    return digest or EMPTY_ROOT


def inclusion_proof(index: int, size: int, read: NodeReader) -> list[bytes]:
    """Return the audit path (2.1.3.1) of leaf `index` in the tree of `size` leaves, from the leaf's sibling upwards."""
    if not 0 <= index < size:
        raise LedgerInvalid(f"index={index}: must be below the tree size {size}")
    path: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_range(middle, high, read))
            high = middle
        else:
            path.append(_range(low, middle, read))
            low = middle
    return path[::-1]


def consistency_proof(m: int, n: int, read: NodeReader) -> list[bytes]:
    """Return the proof that the first `m` leaves are a prefix of the tree of `n` (2.1.4.1); empty for m = 0 and for m =
    n.
    """
    if not 0 <= m <= n:
        raise LedgerInvalid(f"size={m}: must not be above the tree size {n}")
    if m in (0, n):
        return []
    path: list[bytes] = []
    low, high = 0, n
    while high != m:
        middle = low + _split(high - low)
        if m <= middle:
            path.append(_range(middle, high, read))
            high = middle
        else:
            path.append(_range(low, middle, read))
            low = middle
    if low:  # SUBPROOF's flag b: the old tree's own root is known to who asks, a part of it is not
        path.append(_range(low, high, read))
    return path[::-1]


def verify_inclusion(index: int, size: int, leaf: bytes, path: Sequence[bytes], root_hash: bytes) -> None:
    """Raise LedgerInvalid unless `path` joins the leaf hash at `index` to the root of `size` leaves (2.1.3.2)."""
    if not 0 <= index < size <= MAX_SIZE:  # step 1
        raise LedgerInvalid(f"index={index}: must be below the tree size {size}")
    _check_hashes([leaf, root_hash, *path])
    fn, sn, r = index, size - 1, leaf  # steps 2, 3
    for p in path:  # step 4
        if sn == 0:
            raise LedgerInvalid("inclusion proof: too long")
        if fn & 1 or fn == sn:
            r = node_hash(p, r)
            fn, sn = _skip_missing(fn, sn)
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:  # step 5
        raise LedgerInvalid("inclusion proof: too short")
    if r != root_hash:
        raise LedgerInvalid(f"inclusion proof: leaf {index} is not in the tree of size {size} with this root")


def verify_consistency(m: int, n: int, path: Sequence[bytes], root_m: bytes, root_n: bytes) -> None:
    """Raise LedgerInvalid unless the tree (n, root_n) begins with the tree (m, root_m) (2.1.4.2)."""
    if not 0 <= m <= n <= MAX_SIZE:
        raise LedgerInvalid(f"size={m}: must not be above the tree size {n}")
    _check_hashes([root_m, root_n, *path])
    if m in (0, n):
        if path:
            raise LedgerInvalid("consistency proof: must be empty between equal trees and from the empty tree")
        if root_m != (EMPTY_ROOT if m == 0 else root_n):
            raise LedgerInvalid(f"consistency proof: two roots for the tree of size {m}")
        return
    if not path:  # step 1
        raise LedgerInvalid("consistency proof: too short")
    nodes = [root_m, *path] if m & (m - 1) == 0 else list(path)  # step 2
    fn, sn = m - 1, n - 1  # step 3
    while fn & 1:  # step 4
        fn, sn = fn >> 1, sn >> 1
    fr = sr = nodes[0]  # step 5
    for c in nodes[1:]:  # step 6
        if sn == 0:
            raise LedgerInvalid("consistency proof: too long")
        if fn & 1 or fn == sn:
            fr, sr = node_hash(c, fr), node_hash(c, sr)
            fn, sn = _skip_missing(fn, sn)
        else:
            sr = node_hash(sr, c)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:  # step 7
        raise LedgerInvalid("consistency proof: too short")
    if fr != root_m or sr != root_n:
        raise LedgerInvalid(f"consistency proof: the tree of size {n} does not begin with the tree of size {m}")


def _skip_missing(fn: int, sn: int) -> tuple[int, int]:
    """Pass the levels at which the last subtree has no left sibling in the path (2.1.3.2 step 4b, 2.1.4.2 step 6b)."""
    while fn and not fn & 1:
        fn, sn = fn >> 1, sn >> 1
    return fn, sn


def _range(low: int, high: int, read: NodeReader) -> bytes:
    """Return the hash over leaves low..high-1, a subtree of RFC 6962's recursion (so its complete parts are
    aligned).
    """
    width = high - low
    if width & (width - 1) == 0:
        level = width.bit_length() - 1
        return read(level, low >> level)
    middle = low + _split(width)
    return node_hash(_range(low, middle, read), _range(middle, high, read))


def _split(width: int) -> int:
    """Return the largest power of two below `width` (> 1) (2.1.1)."""
    return 1 << ((width - 1).bit_length() - 1)


def _check_hashes(hashes: Sequence[bytes]) -> None:
    if any(len(h) != HASH_SIZE for h in hashes):
        raise LedgerInvalid(f"proof: every hash must be {HASH_SIZE} bytes")
