"""Static tiles: their layout, growth and round trip, and everything that can be wrong with a folder of them."""

from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import ledgers
import pytest
from histories import copied, grown, new_home, pinned, rewritten
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.audit.export_tiles import export_tiles
from accountant.home import Home
from dpserve_verify.audit.tile_check import _Tiles, audit_tiles
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import ENTRY_LIMIT, encode_base64
from dpserve_verify.log import notes
from dpserve_verify.log.tiles import BUNDLE_LIMIT, CHECKPOINT, WIDTH, pack, tile_path, tiles_of, unpack
from serving.cli.app import run

SIZE = 2 * WIDTH + 88


@pytest.fixture
def home(tmp_path) -> Home:
    return copied(SIZE, tmp_path / "home")


@lru_cache
def _exported() -> tuple[Path, Home]:
    folder = ledgers.scratch() / "tiles of a history"
    home = copied(SIZE, ledgers.scratch() / "history of the tiles")
    export_tiles(home, folder)
    return folder, home


@pytest.fixture
def tiles(tmp_path) -> Path:
    return ledgers.copy(_exported()[0], tmp_path / "tiles")


def files(folder: Path) -> dict[str, bytes]:
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def audited(folder: Path, **options) -> Report:
    return audit_tiles(folder, pinned(_exported()[1]), **options)


# Layout


def test_paths_of_the_specification():
    assert tile_path(0, 1234067) == "tile/0/x001/x234/067"
    assert tile_path(0, 0) == "tile/0/000"
    assert tile_path(63, 1000, 7) == "tile/63/x001/000.p/7"
    assert tile_path(None, 999, 255) == "tile/entries/999.p/255"
    assert tile_path(None, 10**9) == "tile/entries/x001/x000/x000/000"


def test_the_example_of_the_specification():
    """A tree of 70,000: 273 full tiles at level 0 and one of 112, one full and one of 17, one of 1."""
    levels = [list(tiles_of(70_000 >> 8 * level)) for level in range(3)]
    assert [len(level) for level in levels] == [274, 2, 1]
    assert [level[-1][1] for level in levels] == [112, 17, 1]
    assert {width for index, width in levels[0][:-1]} == {256}
    assert list(tiles_of(0)) == []
    assert list(tiles_of(256)) == [(0, 256)]
    assert list(tiles_of(600, 511)) == [(1, 256), (2, 88)]


@pytest.mark.slow
def test_what_stands_where(tiles):
    """Against the definition: tile n of level l holds MTH(D[(256 n + i) 256^l : (256 n + i + 1) 256^l])."""
    found, leaves = files(tiles), ledgers.bodies(_exported()[1].path)
    assert sorted(found) == sorted(
        [
            "checkpoint",
            *("tile/entries/000", "tile/entries/001", f"tile/entries/002.p/{SIZE % WIDTH}"),
            *("tile/0/000", "tile/0/001", f"tile/0/002.p/{SIZE % WIDTH}", "tile/1/000.p/2"),
        ]
    )
    hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
    assert found["tile/0/001"] == b"".join(hashes[256:512])
    assert found[f"tile/0/002.p/{SIZE % WIDTH}"] == b"".join(hashes[512:])
    bundle, at = found["tile/entries/001"], 0
    for leaf in leaves[256:512]:
        assert bundle[at : at + 2] == len(leaf).to_bytes(2, "big")
        assert bundle[at + 2 : at + 2 + len(leaf)] == leaf
        at += 2 + len(leaf)
    assert at == len(bundle)
    level = hashes[:512]
    while len(level) > 2:
        level = [merkle.node_hash(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
    assert found["tile/1/000.p/2"] == b"".join(level)


@given(st.lists(st.binary(max_size=40) | st.just(b"x" * ENTRY_LIMIT), max_size=20))
def test_bundles_are_what_was_packed(entries):
    assert unpack(pack(entries), "bundle") == entries


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(raw):
    with suppress(LedgerInvalid):
        assert pack(unpack(raw, "bundle")) == raw
    for cut in range(len(raw)):
        with pytest.raises(LedgerInvalid, match="bundle: is cut short"):
            unpack(pack([raw])[: -1 - cut], "bundle")


# Export


@pytest.mark.slow
def test_export_and_audit(tiles):
    found = audited(tiles)
    assert found.problems == ()
    head = notes.parse_checkpoint((tiles / CHECKPOINT).read_text())
    assert (found.entries, found.root) == (SIZE, encode_base64(head.root))
    assert found == ledgers_report()


def ledgers_report() -> Report:
    from accountant.audit.audit import audit_place

    return audit_place(ledgers.place(_exported()[1].path))


@pytest.mark.slow
def test_again_adds_what_is_new(tmp_path):
    """From every size the next export gives what one export of all would, but for older partial tiles."""
    home, growing = new_home(tmp_path / "home"), tmp_path / "tiles"
    for size in (1, 2, 255, 256, 257, 300):
        assert export_tiles(grown(home, size), growing) == size
        assert audit_tiles(growing, pinned(home)).ok
        before = {path: os.stat(growing / path).st_mtime_ns for path in files(growing)}
        assert export_tiles(home, growing) == size
        assert {path for path in before if os.stat(growing / path).st_mtime_ns != before[path]} <= {CHECKPOINT}
        shutil.rmtree(tmp_path / "whole", ignore_errors=True)
        export_tiles(home, tmp_path / "whole")
        assert files(tmp_path / "whole").items() <= files(growing).items()
    left = {path for path in files(growing) if ".p/" in path}
    assert left == {"tile/0/001.p/1", "tile/0/001.p/44", "tile/entries/001.p/1", "tile/entries/001.p/44"} | {
        "tile/1/000.p/1"
    }


@pytest.mark.slow
def test_a_reader_of_the_old_checkpoint_finds_the_full_tile(tmp_path):
    """Partial tiles go when the full one is there; who holds the older checkpoint reads that instead."""
    home, folder = new_home(tmp_path / "home", 250), tmp_path / "tiles"
    export_tiles(home, folder)
    older = (folder / CHECKPOINT).read_bytes()
    export_tiles(grown(home, 260), folder)
    assert not (folder / "tile/0/000.p").exists()
    (folder / CHECKPOINT).write_bytes(older)
    assert (audit_tiles(folder, pinned(home)).problems, audit_tiles(folder, pinned(home)).entries) == ((), 250)


def test_the_checkpoint_comes_last(home, tmp_path, monkeypatch):
    """Cut at any write, the folder holds what it held, and the next export ends the work."""
    folder, written, limit = tmp_path / "tiles", [], [0]
    replace = Path.replace

    def cut(self: Path, target: Path) -> Path:
        written.append(target.name)
        if len(written) == limit[0]:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", cut)
    for limit[0] in range(1, 9):
        written.clear()
        shutil.rmtree(folder, ignore_errors=True)
        with pytest.raises(OSError, match="No space"):
            export_tiles(home, folder)
        assert not (folder / CHECKPOINT).exists()
    assert written[-1] == CHECKPOINT
    limit[0] = 0
    assert export_tiles(home, folder) == SIZE
    assert [path for path in files(folder) if "partial" in path] == []
    assert audit_tiles(folder, pinned(home)).ok


def test_two_exports_at_once(home, tmp_path):
    folder, sizes = tmp_path / "tiles", []
    threads = [threading.Thread(target=lambda: sizes.append(export_tiles(home, folder))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sizes == [SIZE] * 4
    assert audit_tiles(folder, pinned(home)).ok


def test_folders_that_are_not_written_to(home, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("mine")
    for name in ("file", "file/x", "photos"):
        with pytest.raises(InputError, match="out="):
            export_tiles(home, tmp_path / name)
    assert files(tmp_path / "photos") == {"cat.jpg": b"mine"}
    stranger = new_home(tmp_path / "stranger", 3)
    export_tiles(stranger, tmp_path / "tiles")
    before = files(tmp_path / "tiles")
    with pytest.raises(LedgerInvalid, match="no signature by the pinned key"):
        export_tiles(home, tmp_path / "tiles")
    assert files(tmp_path / "tiles") == before


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 100, 299])
def test_a_fork_is_not_exported_over_the_old_history(tmp_path, at):
    home, folder = new_home(tmp_path / "home", 300), tmp_path / "tiles"
    export_tiles(home, folder)
    before = files(folder)
    home = grown(rewritten(home, at), 310)
    with pytest.raises(LedgerInvalid, match="its first 300 entries are not this ledger's: a fork"):
        export_tiles(home, folder)
    assert files(folder) == before
    (folder / CHECKPOINT).unlink()  # tiles alone convict it too
    if at < WIDTH:
        with pytest.raises(LedgerInvalid, match="tile/entries/000: the folder holds another one"):
            export_tiles(home, folder)
    else:
        export_tiles(home, folder)
        assert "tile/0/001.p/44: hash 43 is not what the entries give" in str(
            audit_tiles(folder, pinned(home)).problems
        )


def test_a_rolled_back_ledger_is_not_exported(tmp_path):
    home = new_home(tmp_path / "home", 5)
    yesterday = ledgers.copy(home.path, tmp_path / "yesterday")
    export_tiles(grown(home, 9), tmp_path / "tiles")
    with pytest.raises(LedgerInvalid, match="holds 9 entries, the ledger 5: it was rolled back"):
        export_tiles(Home.open(ledgers.place(yesterday)), tmp_path / "tiles")


def test_a_database_that_was_tampered_with_is_not_exported(home, tmp_path):
    with ledgers.raw(home.path) as connection:
        connection.execute("UPDATE entry SET body = CAST('{}' AS BLOB) WHERE seq = 300")
    with pytest.raises(LedgerInvalid, match="entry 300: missing, or not what was hashed"):
        export_tiles(home, tmp_path / "tiles")


def test_a_tree_with_a_hole_is_not_exported(home, tmp_path):
    with ledgers.raw(home.path) as connection:
        connection.execute("DELETE FROM node WHERE level = 8 AND idx = 1")
    with pytest.raises(LedgerInvalid, match="tile/1/000.p/2: the stored tree has not all"):
        export_tiles(home, tmp_path / "tiles")


# Damage


COUNTS = {None: SIZE, 0: SIZE, 1: SIZE // WIDTH}  # of what stands at each level
TILES = sorted(tile_path(level, *tile) for level, count in COUNTS.items() for tile in tiles_of(count))


def test_no_tile_is_left_out(tiles):
    assert [path for path in files(tiles) if path.startswith("tile")] == TILES


@pytest.mark.parametrize("path", TILES)
def test_every_missing_tile_is_named(tiles, path):
    (tiles / path).unlink()
    found = audited(tiles)
    assert not found.ok
    assert f"{path}: is missing" in found.problems[0]


DAMAGE = {
    "cut": lambda raw: raw[:-1],
    "longer": lambda raw: raw + b"\0",
    "a bit": lambda raw: bytes([*raw[: len(raw) // 2], raw[len(raw) // 2] ^ 1, *raw[len(raw) // 2 + 1 :]]),
    "the last bit": lambda raw: bytes([*raw[:-1], raw[-1] ^ 1]),
    "empty": lambda raw: b"",
    "twice": lambda raw: raw * 2,
    "zeros": lambda raw: bytes(len(raw)),
    "shifted": lambda raw: raw[32:] + raw[:32],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("path", TILES)
def test_every_damaged_tile_is_named_or_its_entry(tiles, path, what):
    (tiles / path).write_bytes(DAMAGE[what]((tiles / path).read_bytes()))
    found = audited(tiles)
    assert not found.ok
    named = "\n".join(found.problems)
    entry = 0 if path.startswith("tile/1") else int(path.split("/")[2][:3]) * WIDTH
    assert found.first is not None
    assert entry <= found.first < (SIZE if path.startswith("tile/1") else entry + WIDTH)
    assert path in named or path.replace("entries", "0") in named


def test_bundles_in_another_order(tiles):
    for a, b in (("tile/entries/000", "tile/entries/001"), ("tile/0/000", "tile/0/001")):
        folder = ledgers.copy(tiles, tiles.with_name(a.replace("/", "-")))
        (folder / a).write_bytes((tiles / b).read_bytes())
        (folder / b).write_bytes((tiles / a).read_bytes())
        found = audited(folder)
        assert (found.ok, found.first) == (False, 0)


def rebundled(tiles: Path, change) -> None:
    path = tiles / "tile/entries/001"
    path.write_bytes(pack(change(unpack(path.read_bytes(), ""))))


CHANGES = {
    "one left out": (lambda entries: [*entries[:40], *entries[41:]], "holds 255 entries"),
    "one twice": (lambda entries: [*entries[:41], *entries[40:]], "holds 257 entries"),
    "one in place of another": (lambda entries: [*entries[:41], entries[40], *entries[42:]], "tile/0/001"),
    "two swapped": (lambda entries: [*entries[:40], entries[41], entries[40], *entries[42:]], "tile/0/001"),
    "one forged": (lambda entries: [*entries[:40], b"{}", *entries[41:]], "entry 296: tile/0/001: hash 40"),
    "an empty one": (lambda entries: [*entries[:40], b"", *entries[41:]], "entry 296"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_entries_that_are_not_those_signed(tiles, what):
    change, message = CHANGES[what]
    rebundled(tiles, change)
    found = audited(tiles)
    assert WIDTH <= found.first < 2 * WIDTH
    assert any(message in problem for problem in found.problems), found.problems[:5]


def test_older_partial_tiles_must_agree(tmp_path):
    """They were shown to somebody: one that is no beginning of the newer tile is a fork."""
    home, folder = new_home(tmp_path / "home", 20), tmp_path / "tiles"
    export_tiles(home, folder)
    export_tiles(grown(home, 30), folder)
    assert audit_tiles(folder, pinned(home)).ok
    (folder / "tile/0/000.p/junk").write_text("no tile")
    (folder / "tile/0/000.p/31").write_text("of a tree to come")
    assert audit_tiles(folder, pinned(home)).ok
    for path in ("tile/0/000.p/20", "tile/entries/000.p/20"):
        whole = (folder / path).read_bytes()
        for raw in (whole[:-1], whole + b"\0", whole[1:] + b"x"):
            (folder / path).write_bytes(raw)
            found = audit_tiles(folder, pinned(home))
            assert f"{path}:" in found.problems[0]
        (folder / path).write_bytes(whole)


@pytest.mark.slow
def test_the_end_cut_off(tmp_path):
    """A checkpoint of fewer entries is an older export; only one that was kept shows that."""
    home, folder = new_home(tmp_path / "home", 300), tmp_path / "tiles"
    export_tiles(home, folder)
    older = (folder / CHECKPOINT).read_text()
    export_tiles(grown(home, 310), folder)
    newer = (folder / CHECKPOINT).read_text()
    (folder / CHECKPOINT).write_text(older)
    assert audit_tiles(folder, pinned(home)).entries == 300
    assert audit_tiles(folder, pinned(home)).ok
    found = audit_tiles(folder, pinned(home), seen=[newer])
    assert (found.ok, found.first) == (False, 300)
    assert "signs 310 entries" in found.problems[0]


def test_checkpoints_of_others_and_none(tiles):
    whole = (tiles / CHECKPOINT).read_text()
    for bad in (whole.replace(f"\n{SIZE}\n", "\n9\n"), "", "x", whole[:-1], whole * 2):
        (tiles / CHECKPOINT).write_text(bad)
        with pytest.raises(LedgerInvalid):
            audited(tiles)


def test_files_that_are_too_large_or_none(tiles):
    for path, limit in (("tile/0/000", WIDTH * 32), ("tile/entries/000", BUNDLE_LIMIT)):
        whole = (tiles / path).read_bytes()
        with (tiles / path).open("ab") as file:
            file.truncate(4_000_000_000)  # sparse: it costs no disk, reading it whole would cost memory
        assert any(f"{path}: must be at most {limit} bytes" in problem for problem in audited(tiles).problems)
        (tiles / path).write_bytes(whole)
    (tiles / "tile/0/000").unlink()
    os.mkfifo(tiles / "tile/0/000")
    assert "tile/0/000: is missing" in audited(tiles).problems[0]
    with (tiles / CHECKPOINT).open("ab") as file:
        file.truncate(4_000_000_000)
    with pytest.raises(LedgerInvalid, match="checkpoint: must be at most"):
        audited(tiles)
    (tiles / CHECKPOINT).unlink()
    with pytest.raises(InputError, match="cannot be read"):
        audited(tiles)


def test_every_missing_tile_is_named_in_order(tiles):
    for path in TILES:
        if not path.startswith("tile/entries"):
            (tiles / path).unlink()
    assert [problem.split(":")[0] for problem in audited(tiles).problems] == [
        "entry 0",
        "entry 0",
        "entry 256",
        "entry 512",
    ]


# The command


def test_the_command_knows_exports_and_tiles(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DPSERVE_HOME", str(home.path))

    def said(*words: object) -> tuple[int, dict]:
        code = run([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    folder, trust = tmp_path / "tiles", ("--trust", home.path / "trust.json")
    assert said("ledger", "tiles", "--out", folder) == (0, {"entries": SIZE, "out": str(folder)})
    assert said("ledger", "tiles", "--out", folder)[0] == 0
    said("ledger", "export", "--out", tmp_path / "files")
    whole = said("ledger", "audit")
    assert whole[1]["ok"]
    assert said("ledger", "audit", folder, *trust) == whole
    assert said("ledger", "audit", tmp_path / "files", *trust) == whole
    assert said("ledger", "audit", folder)[0] == 2
    assert said("ledger", "audit", tmp_path, *trust)[0] == 2
    (folder / "tile/0/000").unlink()
    code, body = said("ledger", "audit", folder, *trust)
    assert (code, body["problems"]) == (4, ["entry 0: tile/0/000: is missing"])


# Any tree


def stored(leaves: list[bytes], folder: Path) -> None:
    """Tiles by the reader's definition alone, to hold the writer against."""
    tree, size = {}, len(leaves)
    for number, leaf in enumerate(leaves):
        for level, index, digest in merkle.new_nodes(number, merkle.leaf_hash(leaf), lambda *at: tree[at]):
            tree[level, index] = digest
    for level in (0, 1, 2):
        for index, width in tiles_of(size >> 8 * level):
            file = folder / tile_path(level, index, width)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"".join(tree[8 * level, index * WIDTH + place] for place in range(width)))
    for index, width in tiles_of(size):
        file = folder / tile_path(None, index, width)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pack(leaves[index * WIDTH : index * WIDTH + width]))


@settings(max_examples=30)
@given(st.integers(0, 900), st.integers(0, 900), st.randoms(use_true_random=False))
def test_any_tree_comes_back_and_any_flip_is_found(tmp_path_factory, size, older, random):
    leaves = [b"%d" % number * random.randint(0, 5) for number in range(size)]
    folder = tmp_path_factory.mktemp("any")
    stored(leaves[: min(older, size)], folder)
    stored(leaves, folder)
    reader = _Tiles(folder, size)
    assert [body for _, body in reader.entries()] == leaves
    assert reader.findings.found == []
    paths = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    if not paths:
        return
    path = random.choice(paths)
    raw = bytearray((folder / path).read_bytes())
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    (folder / path).write_bytes(raw)
    again = _Tiles(folder, size)
    list(again.entries())
    full = [name for name in paths if name == path.split(".p/")[0]]
    assert again.findings.found or (".p/" in path and full), path
    shutil.rmtree(folder)
