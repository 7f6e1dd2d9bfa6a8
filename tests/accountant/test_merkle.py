"""The tree against published vectors, the naive definitions and every small forgery; the high-water mark over it."""

from __future__ import annotations

import hashlib
import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import pytest

from accountant.log.last_seen import HighWater
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    new_nodes,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

LARGEST = 130

# From certificate-transparency's merkletree tests: eight leaves, and the root after each.
CT_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
CT_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


class Tree:
    """Complete subtrees in a dictionary, as the database keeps them in a table; counts reads."""

    def __init__(self, entries=()):
        self.nodes, self.size, self.reads = {}, 0, 0
        for entry in entries:
            self.append(entry)

    def read(self, level, index):
        self.reads += 1
        return self.nodes[level, index]

    def append(self, entry):
        for level, index, digest in new_nodes(self.size, leaf_hash(entry), self.read):
            assert (level, index) not in self.nodes
            self.nodes[level, index] = digest
        self.size += 1


ENTRIES = [b"entry %d" % i for i in range(LARGEST)]
TREE = Tree(ENTRIES)


def split(n):
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def naive_root(entries):
    """RFC 6962 2.1, MTH."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = split(len(entries))
    return hashlib.sha256(b"\x01" + naive_root(entries[:k]) + naive_root(entries[k:])).digest()


def naive_path(m, entries):
    """RFC 6962 2.1.1, PATH."""
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if m < k:
        return [*naive_path(m, entries[:k]), naive_root(entries[k:])]
    return [*naive_path(m - k, entries[k:]), naive_root(entries[:k])]


def naive_subproof(m, entries, whole):
    """RFC 6962 2.1.2, SUBPROOF."""
    if m == len(entries):
        return [] if whole else [naive_root(entries)]
    k = split(len(entries))
    if m <= k:
        return [*naive_subproof(m, entries[:k], whole), naive_root(entries[k:])]
    return [*naive_subproof(m - k, entries[k:], False), naive_root(entries[:k])]


ROOTS = [naive_root(ENTRIES[:n]) for n in range(LARGEST + 1)]


def forgeries(path):
    """Every proof one step away: a bit flipped, a hash dropped, doubled, added, cut short, two neighbours swapped."""
    for i, digest in enumerate(path):
        for bit in (0, 100, 255):
            flipped = bytearray(digest)
            flipped[bit // 8] ^= 1 << bit % 8
            yield [*path[:i], bytes(flipped), *path[i + 1 :]]
        yield [*path[:i], *path[i + 1 :]]
        yield [*path[: i + 1], *path[i:]]
        yield [*path[:i], digest[:-1], *path[i + 1 :]]
    for extra in (EMPTY_ROOT, bytes(32), *path[:1]):
        yield [*path, extra]
        yield [extra, *path]
    for i, (a, b) in enumerate(pairwise(path)):
        yield [*path[:i], b, a, *path[i + 2 :]]


def test_certificate_transparency_vectors():
    entries = [bytes.fromhex(leaf) for leaf in CT_LEAVES]
    tree = Tree(entries)
    assert [root(n, tree.read).hex() for n in range(1, 9)] == CT_ROOTS
    assert root(0, tree.read) == EMPTY_ROOT == hashlib.sha256(b"").digest()
    # A published path of the same test suite: leaf 0 of 8.
    assert [h.hex() for h in inclusion_proof(0, 8, tree.read)] == [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]


def test_every_node_is_a_complete_subtree_and_none_is_missing():
    widths = [(level, index) for level in range(8) for index in range(LARGEST >> level)]
    assert sorted(TREE.nodes) == sorted(widths)
    for (level, index), digest in TREE.nodes.items():
        assert digest == naive_root(ENTRIES[index << level : (index + 1) << level])


def test_roots_of_every_size():
    assert [root(n, TREE.read) for n in range(LARGEST + 1)] == ROOTS


def test_the_last_node_of_each_level_is_enough_to_append():
    last = {}
    for n, entry in enumerate(ENTRIES):
        for level, _, digest in new_nodes(n, leaf_hash(entry), lambda level, index: last[level]):
            last[level] = digest
        assert root(n + 1, lambda level, index: last[level]) == ROOTS[n + 1]


@pytest.mark.slow
def test_every_inclusion_proof():
    for n in range(1, LARGEST + 1):
        for m in range(n):
            path = inclusion_proof(m, n, TREE.read)
            assert path == naive_path(m, ENTRIES[:n])
            verify_inclusion(m, n, leaf_hash(ENTRIES[m]), path, ROOTS[n])


@pytest.mark.slow
def test_every_consistency_proof():
    for n in range(LARGEST + 1):
        for m in range(n + 1):
            path = consistency_proof(m, n, TREE.read)
            assert path == (naive_subproof(m, ENTRIES[:n], True) if m else [])
            verify_consistency(m, n, path, ROOTS[m], ROOTS[n])


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 8, 21, 64, 65, 127, 130])
def test_forged_inclusion_is_refused(n):
    for m in range(n):
        leaf, path = leaf_hash(ENTRIES[m]), inclusion_proof(m, n, TREE.read)
        for forged in forgeries(path):
            with pytest.raises(LedgerInvalid):
                verify_inclusion(m, n, leaf, forged, ROOTS[n])
        for index, wrong_leaf, wrong_root in (
            (m ^ 1, leaf, ROOTS[n]),
            (m, leaf_hash(b"other"), ROOTS[n]),
            (m, leaf, ROOTS[n - 1]),
            (n, leaf, ROOTS[n]),
            (-1, leaf, ROOTS[n]),
        ):
            with pytest.raises(LedgerInvalid):
                verify_inclusion(index, n, wrong_leaf, path, wrong_root)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 8, 21, 64, 65, 127, 130])
def test_forged_consistency_is_refused(n):
    for m in range(n + 1):
        path = consistency_proof(m, n, TREE.read)
        for forged in forgeries(path):
            with pytest.raises(LedgerInvalid):
                verify_consistency(m, n, forged, ROOTS[m], ROOTS[n])
        other = bytes(32)
        for size_m, size_n, root_m, root_n in (
            (m, n, other, ROOTS[n]),
            (n + 1, n, ROOTS[m], ROOTS[n]),
            (-1, n, ROOTS[m], ROOTS[n]),
            *([(m, n, ROOTS[m], other)] if m else []),
            *([(m - 1, n, ROOTS[m], ROOTS[n])] if m else []),
        ):
            with pytest.raises(LedgerInvalid):
                verify_consistency(size_m, size_n, path, root_m, root_n)


def test_a_rewritten_history_is_refused():
    forked = Tree([*ENTRIES[:40], b"another entry", *ENTRIES[41:]])
    for m in (41, 64, 100):
        with pytest.raises(LedgerInvalid, match="begin"):
            verify_consistency(m, LARGEST, consistency_proof(m, LARGEST, forked.read), ROOTS[m], root(130, forked.read))


def test_a_node_is_not_a_leaf():
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert node_hash(left, right) != leaf_hash(left + right)
    with pytest.raises(LedgerInvalid):
        verify_inclusion(0, 1, leaf_hash(left + right), [], node_hash(left, right))


def test_proofs_read_a_logarithm_of_nodes():
    for n in range(1, LARGEST + 1):
        bound = 2 * n.bit_length()
        for call in (
            lambda n=n: root(n, TREE.read),
            lambda n=n: inclusion_proof(n // 2, n, TREE.read),
            lambda n=n: inclusion_proof(0, n, TREE.read),
            lambda n=n: consistency_proof(n // 2, n, TREE.read),
        ):
            TREE.reads = 0
            call()
            assert TREE.reads <= bound


def test_outside_the_tree_there_is_no_proof():
    for call in (
        lambda: inclusion_proof(5, 5, TREE.read),
        lambda: inclusion_proof(-1, 5, TREE.read),
        lambda: inclusion_proof(0, 0, TREE.read),
        lambda: consistency_proof(6, 5, TREE.read),
        lambda: consistency_proof(-1, 5, TREE.read),
    ):
        with pytest.raises(LedgerInvalid):
            call()


A, B = bytes(32), bytes([1]) * 32


def test_high_water_rises_and_never_falls(tmp_path):
    mark = HighWater(tmp_path / "mark")
    assert mark.read() is None
    mark.advance(0, A)
    mark.advance(5, A)
    mark.advance(5, A)
    assert HighWater(tmp_path / "mark").read() == (5, A)
    with pytest.raises(LedgerInvalid, match="rolled back"):
        mark.advance(4, A)
    with pytest.raises(LedgerInvalid, match="rewritten"):
        mark.advance(5, B)
    assert mark.read() == (5, A)
    mark.advance(6, B)
    assert mark.read() == (6, B)
    assert stat.S_IMODE((tmp_path / "mark").stat().st_mode) == 0o600
    for size, digest in ((-1, A), (7, b""), (7, bytes(33))):
        with pytest.raises(LedgerInvalid):
            mark.advance(size, digest)


def test_high_water_checks_the_ledger_below_it(tmp_path):
    mark, read = HighWater(tmp_path / "mark"), Tree(ENTRIES[:9]).read
    with mark.locked() as held:
        held.check(0, read)
        held.check(9, read)
    mark.advance(6, root(6, read))
    with mark.locked() as held:
        for size in (6, 7, 9):
            held.check(size, read)
        with pytest.raises(LedgerInvalid, match="rolled back"):
            held.check(5, read)
        for forged in ([*ENTRIES[:5], b"x", *ENTRIES[6:9]], [b"x", *ENTRIES[1:9]]):
            with pytest.raises(LedgerInvalid, match="rewritten"):
                held.check(9, Tree(forged).read)
        held.check(9, Tree([*ENTRIES[:6], b"x", b"y", b"z"]).read)  # above the mark nothing was signed yet
        held.advance(9, root(9, read))
    assert mark.read() == (9, root(9, read))


DAMAGED = [b"", b"{}", b"\0", b'{"root":"","size":1}x', b'{"root":5,"size":1}', b'{"root":"A","size":1}']


@pytest.mark.parametrize("raw", DAMAGED)
def test_a_damaged_mark_is_refused(tmp_path, raw):
    (tmp_path / "mark").write_bytes(raw)
    for call in (HighWater(tmp_path / "mark").read, lambda: HighWater(tmp_path / "mark").advance(9, A)):
        with pytest.raises(LedgerInvalid, match="damaged"):
            call()
    assert (tmp_path / "mark").read_bytes() == raw


def test_a_crash_before_the_rename_leaves_the_old_mark(tmp_path):
    mark = HighWater(tmp_path / "mark")
    mark.advance(1, A)
    (tmp_path / ".mark.partial").write_bytes(b"half writ")
    assert mark.read() == (1, A)
    mark.advance(2, B)
    assert mark.read() == (2, B)


def climb(path):
    """Raise the mark 40 times by one, each time from what the lock shows."""
    for _ in range(40):
        with HighWater(path).locked() as held:
            size = held.value[0] if held.value else 0
            held.advance(size + 1, A)


@pytest.mark.slow
def test_processes_and_threads_take_turns(tmp_path):
    path = tmp_path / "mark"
    workers = [get_context("spawn").Process(target=climb, args=(path,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(climb, [path, path]))
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert HighWater(path).read() == (200, A)
