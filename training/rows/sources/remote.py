"""Files of an object store (S3, GCS, Azure) or of a mounted network drive, fetched once into the home, piece by piece,
and read from there: no byte crosses the network twice. Credentials are the environment's, as pyarrow reads them.

Each finished piece is noted with its checksum. A fetch that was cut goes on from those: a piece is taken as it lies
where the store still has that version and its bytes are still those, so what is then packed is what an uninterrupted
fetch gives. Packing begins anew: which rows are used follows from all rows before them, and 1e8 take a minute.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pyarrow as pa
from pyarrow import fs

from accountant.errors import DataError, WrongState
from dpserve_verify.errors import InputError, LedgerUnavailable
from dpserve_verify.system.files import holding, open_directory
from training.rows.packed.working import FETCHED
from training.rows.sources.folders import MOST_FILES, open_files

FORMS = "must be like s3://bucket/folder, gs://bucket/folder, abfs://container@account.dfs.core.windows.net/folder or "
FORMS += "file:///folder; a pattern like s3://bucket/folder/*.parquet"
SCHEMES = ("s3", "gs", "abfs", "abfss", "file")
AT_ONCE, CHUNK = 4, 1 << 20  # pieces that are fetched at one time; bytes of each in memory
PATIENCE = 20  # seconds that a store may be silent, before it is asked again: three times
KEPT = "what was fetched is kept for a day: the same command goes on from there"
# What the stores' libraries say -> what is told. Never their own words, which quote keys, accounts and requests.
MEANT = {
    "ACCESS_DENIED|FORBIDDEN|status 40[13]|INVALID_ACCESS|SIGNATURE|CREDENTIAL|AUTHENTIC|AUTHORIZ|PERMISSION": (
        "the store refused: the credentials in the environment are missing, or may not read this"
    ),
    "NO_SUCH|NOT.?FOUND|status 404": "no such bucket or object; it may have been there a moment ago",
    "NETWORK|CURL|TIMEOUT|TIMED OUT|UNAVAILABLE|SLOW|DEADLINE|status 5|INTERNAL|CONNECT": (
        f"the store cannot be reached, or did not answer in time; {KEPT}"
    ),
}


@dataclass(frozen=True)
class Piece:
    """An object as it was listed: `path` in its file system, `name` below the root, bytes, and when it was written."""

    path: str
    name: str
    size: int
    written: int


def is_remote(data: str) -> bool:
    """Return whether `--data` names an object store or a mounted drive."""
    return data.partition("://")[0].lower() in SCHEMES and "://" in data


@contextmanager
def fetch_rows(data: str, folder: Path, environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Fetch the file or folder that `data` names into `folder`, while it is needed: gone once it was used without an
    error, else kept for another try. DataError where an object changed, vanished or cannot be read; WrongState where
    another process fetches it; LedgerUnavailable where the disk is full.
    """
    system, path = _open_store(data, environment)
    place = folder / f"{hashlib.sha256(data.encode()).hexdigest()[:32]}{FETCHED}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(holding(open_directory(place), wait=False))
        except BlockingIOError:
            raise WrongState(f"data={data}: another registration is fetching it; wait until that has ended") from None
        pieces, root = _list_pieces(system, path, data)
        target = place / "rows" / (Path(root).name or "rows")
        files = tuple(target / piece.name if piece.name else target for piece in pieces)
        open_files(data, target.parent, files)  # before anything is fetched
        _fetch(system, pieces, files, place, data)
        if _list_pieces(system, path, data)[0] != pieces:
            raise DataError(f"data={data}: objects changed, came or went while they were read; {KEPT}")
        for leftover in set(target.rglob("*")) - set(files):  # of an earlier fetch, and the store has it no more
            if leftover.is_file():
                leftover.unlink()
        yield target
        shutil.rmtree(place)


def _open_store(data: str, environment: Mapping[str, str]) -> tuple[fs.FileSystem, str]:
    """Open the store, and return it and the path in it. InputError where the URL is none, or holds a secret: then it is
    not repeated.
    """
    scheme, _, rest = data.partition("://")
    scheme, (bucket, _, within) = scheme.lower(), rest.partition("/")
    azure = scheme.startswith("abfs")
    if ":" in bucket or re.search(r"\?\w+=", rest) or ("@" in bucket and not azure):
        raise InputError(f"data: a URL of rows holds no secret and no setting: those are the environment's. It {FORMS}")
    if scheme == "file":
        if bucket or not within:
            raise InputError(f"data={data}: {FORMS}")
        return fs.LocalFileSystem(), f"/{within.rstrip('/')}"
    container, _, account = bucket.partition("@")
    if not container or (azure and not account):
        raise InputError(f"data={data}: {FORMS}")
    with _translate_errors(data):
        if azure:
            return fs.AzureFileSystem(account_name=account.partition(".")[0]), f"{container}/{within}".rstrip("/")
        if scheme == "gs":
            local = environment.get("STORAGE_EMULATOR_HOST")
            anywhere = {"endpoint_override": local, "scheme": "http", "anonymous": True} if local else {}
            store = fs.GcsFileSystem(retry_time_limit=timedelta(seconds=3 * PATIENCE), **anywhere)
        else:
            endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
            region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
            if region is None and endpoint is None:
                region = fs.resolve_s3_region(container)
            store = fs.S3FileSystem(
                region=region, endpoint_override=endpoint, connect_timeout=PATIENCE, request_timeout=PATIENCE
            )
    return store, f"{container}/{within}".rstrip("/")


@contextmanager
def _translate_errors(data: str) -> Iterator[None]:
    """Turn what a store raises into a DataError that says nothing of its words."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        message = f"{type(error).__name__} " + re.sub(r"'[^']*'|\(Request ID.*", "", str(error))  # without names
        meanings = (meaning for pattern, meaning in MEANT.items() if re.search(pattern, message, re.IGNORECASE))
        cause = next(meanings, f"it cannot be read ({type(error).__name__}); {KEPT}")
        raise DataError(f"data={data}: {cause}. Nothing was registered") from None


def _list_pieces(system: fs.FileSystem, path: str, data: str) -> tuple[list[Piece], str]:
    """Return every object that the path names, in the order of their names, and the root that these are relative to: as
    `folders.open_table` finds them on a disk.
    """
    parts = path.split("/")
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    root, pattern = "/".join(parts[:fixed]), parts[fixed:]
    with _translate_errors(data):
        if not pattern and (single := system.get_file_info(path)).type == fs.FileType.File:
            return [Piece(path, "", single.size, single.mtime_ns)], path
        listed, pieces = system.get_file_info(fs.FileSelector(root, recursive=True)), []
    for entry in listed:
        below = entry.path[len(root) :].strip("/").split("/")
        if entry.type != fs.FileType.File or any(part[:1] in "._" for part in below) or not _fits(below, pattern):
            continue  # "" of a doubled slash, "." and ".." have no place on a disk: passed over as hidden ones are
        pieces.append(Piece(entry.path, "/".join(below), entry.size, entry.mtime_ns))
    if not pieces or len(pieces) > MOST_FILES:
        raise DataError(f"data={data}: names no object" + (f"s but {len(pieces)}; at most {MOST_FILES}" * bool(pieces)))
    return sorted(pieces, key=lambda piece: piece.name.split("/")), root


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a pattern finds the file, or a folder that it lies in."""
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_fits(parts[at:], pattern[1:]) for at in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def _fetch(system: fs.FileSystem, pieces: Sequence[Piece], files: Sequence[Path], place: Path, data: str) -> None:
    """Fetch every piece that does not lie there yet, some at one time. After an error none is begun."""
    done, noting, failed = _read_notes(place / "pieces"), Lock(), Event()
    with ThreadPoolExecutor(AT_ONCE) as pool, (place / "pieces").open("a") as notes:

        def one(piece: Piece, file: Path) -> None:
            with _translate_errors(data), system.open_input_stream(piece.path) as source:
                version = _version(source)
                state, before = {**asdict(piece), "version": version}, done.get(piece.path, {})
                if state.items() <= before.items() and file.is_file():
                    with file.open("rb") as stored:
                        if hashlib.file_digest(stored, "sha256").hexdigest() == before["sha256"]:
                            return
                checksum, size = _copy_object(source, file)
            with _translate_errors(data), system.open_input_stream(piece.path) as again:
                if (size, _version(again)) != (piece.size, version):
                    raise DataError(f"data={piece.path}: changed while it was read, or was cut short; {KEPT}")
            with noting:
                notes.write(json.dumps({**state, "sha256": checksum}) + "\n")
                notes.flush()

        def unless_failed(piece: Piece, file: Path) -> None:
            try:
                if not failed.is_set():
                    one(piece, file)
            except BaseException:
                failed.set()
                raise

        for _ in pool.map(unless_failed, pieces, files):
            pass  # the first error, in the order of the pieces, is raised


def _version(source: Any) -> str:
    """Return what the store calls this version of the object; "" where it calls it nothing."""
    metadata = {key.lower(): value for key, value in (source.metadata() or {}).items()}
    return " ".join(metadata[key].decode() for key in ("etag", "generation") if key in metadata)


def _read_notes(path: Path) -> dict[str, dict[str, Any]]:
    """Return what was said of each piece when it was finished. A line that was cut says nothing."""
    notes = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            about = json.loads(line)
        except ValueError:
            continue
        notes[about["path"]] = about
    return notes


def _copy_object(source: Any, file: Path) -> tuple[str, int]:
    """Return the checksum and the size of what was copied."""
    checksum, size = hashlib.sha256(), 0
    with _translate_disk_errors():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = file.open("wb", buffering=0)
    with target:
        for part in iter(partial(source.read, CHUNK), b""):
            checksum.update(part)
            size, rest = size + len(part), memoryview(part)
            with _translate_disk_errors():
                while rest:
                    rest = rest[target.write(rest) :]
    return checksum.hexdigest(), size


@contextmanager
def _translate_disk_errors() -> Iterator[None]:
    """Turn a full disk into LedgerUnavailable, and a name that no disk holds into DataError: neither is a fault of the
    store.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise LedgerUnavailable(
                f"disk: no room for the fetched rows where the home's datasets lie ({error.strerror}); as much is "
                f"needed as they take in the store, and then for the packed rows. Nothing was registered; {KEPT}"
            ) from None
        raise DataError(f"data: an object cannot lie on a disk under its name ({error.strerror})") from None
