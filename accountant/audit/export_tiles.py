"""The ledger as a folder of tiles (`dpserve_verify.log.tiles`): written once, then grown by what is new."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from sqlalchemy import Connection, select

from accountant.home import Home
from accountant.log.collect import standing
from accountant.store import store
from accountant.store.tables import entry_table, node_table
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import merkle
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import parse_checkpoint, verify_checkpoint
from dpserve_verify.log.seen_checkpoints import read_note, verify_head
from dpserve_verify.log.tiles import CHECKPOINT, HEIGHT, WIDTH, pack, tile_path, tiles_of
from dpserve_verify.log.witnessed import WITNESSED
from dpserve_verify.system.files import PUBLIC, holding, open_directory, replace_file, sync_directory


def export_tiles(home: Home, directory: Path) -> int:
    """Write the ledger into `directory`, or what is new since the last time; the number of entries in it.

    LedgerInvalid, and nothing is written, where the folder holds another history. The checkpoint comes last, so a
    reader of the folder never sees one whose tiles are not there yet."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"out={directory}: must be a folder ({error.strerror})") from error
    # One export into a folder at a time: an older one must not put its checkpoint over a newer one.
    database = home.ledger.log.database
    with holding(open_directory(directory)), standing(home.path, database) as (connection, note, cosigned):
        head = verify_head(note, home.trust)
        before = _exported_size(directory, home.trust, head.size, store.node_reader(connection))
        _place_all(directory, _new_tiles(connection, before, head.size))
        if cosigned is not None:
            _write(directory / WITNESSED, cosigned.encode())
        _write(directory / CHECKPOINT, note.encode())
        sync_directory(directory)
    for path in _filled_tiles(before, head.size):
        if (partial := directory / f"{path}.p").exists():  # readers fall back on the full tile
            shutil.rmtree(partial)
    return head.size


def _exported_size(directory: Path, trust: PublicKeys, size: int, read: merkle.NodeReader) -> int:
    """Return how many entries the folder holds already. LedgerInvalid unless they are the first of this ledger."""
    if not (directory / CHECKPOINT).exists():
        cut = {"tile", WITNESSED, *(f".{name}.partial" for name in (CHECKPOINT, WITNESSED))}  # an export that was cut
        if any(path.name not in cut for path in directory.iterdir()):
            raise InputError(f"out={directory}: must be a new folder, or one of tiles")
        return 0
    note = read_note(directory / CHECKPOINT)
    # A key that was compromised since has signed it all the same; what counts here is that the tree is ours.
    head = verify_checkpoint(note, trust.origin, trust.log_signer_at(parse_checkpoint(note).size))
    if head.size > size:
        raise LedgerInvalid(f"out={directory}: holds {head.size} entries, the ledger {size}: it was rolled back")
    if merkle.root(head.size, read) != head.root:
        raise LedgerInvalid(f"out={directory}: its first {head.size} entries are not this ledger's: a fork")
    return head.size


def _new_tiles(connection: Connection, before: int, size: int) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the tiles that a tree of `size` entries has and one of `before` has not."""
    for index, width in tiles_of(size, before):
        hashes = _hashes(connection, 0, index, width)
        yield tile_path(None, index, width), pack(_entries(connection, index, width, hashes))
        yield tile_path(0, index, width), b"".join(hashes)
    level = 1
    while count := size >> HEIGHT * level:
        for index, width in tiles_of(count, before >> HEIGHT * level):
            yield tile_path(level, index, width), b"".join(_hashes(connection, level, index, width))
        level += 1


def _filled_tiles(before: int, size: int) -> Iterator[str]:
    """Yield paths of the tiles that were partial and are full now."""
    level = 0
    while count := size >> HEIGHT * level:
        last = (before >> HEIGHT * level) // WIDTH
        if last < count // WIDTH:
            yield tile_path(level, last)
            if level == 0:
                yield tile_path(None, last)
        level += 1


def _hashes(connection: Connection, level: int, index: int, width: int) -> list[bytes]:
    column, first = node_table.c, index * WIDTH
    query = select(column.hash).where(column.level == level * HEIGHT, column.idx >= first, column.idx < first + width)
    hashes = [bytes(digest) for digest in connection.execute(query.order_by(column.idx)).scalars()]
    if len(hashes) != width or any(len(digest) != merkle.HASH_SIZE for digest in hashes):
        raise LedgerInvalid(f"{tile_path(level, index, width)}: the stored tree has not all of its hashes")
    return hashes


def _entries(connection: Connection, index: int, width: int, hashes: list[bytes]) -> list[bytes]:
    """Return the content of an entry bundle: the entries as they were hashed."""
    column, first = entry_table.c, index * WIDTH
    query = select(column.body).where(column.seq >= first, column.seq < first + width).order_by(column.seq)
    bodies = [bytes(body) for body in connection.execute(query).scalars()]
    for place in range(width):
        if place >= len(bodies) or merkle.leaf_hash(bodies[place]) != hashes[place]:
            raise LedgerInvalid(f"entry {first + place}: missing, or not what was hashed", entry=first + place)
    return bodies


def _place_all(directory: Path, tiles: Iterable[tuple[str, bytes]]) -> None:
    """Write tiles. A tile never changes: one that is there already must equal it."""
    folders = set()
    for path, content in tiles:
        file = directory / path
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            _write(file, content)
            folders.add(file.parent)
        elif file.stat().st_size != len(content) or file.read_bytes() != content:
            raise LedgerInvalid(f"{path}: the folder holds another one; this ledger is not what was exported before")
    for folder in folders:
        sync_directory(folder)


def _write(file: Path, content: bytes) -> None:
    """Write a file in one step. Its folder is synced later, when all files are there."""
    replace_file(file, content, PUBLIC, alone=True, sync_folder=False)
