"""The files of somebody else's learner, read without running a line of them: one file, or a package."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from dpserve_verify.errors import InputError
from training.session.session import Source

LONGEST_TEXT = 1 << 18  # bytes, of all files together as they are kept
MOST_FILES = 100
COMPILED = (".so", ".pyd", ".dll", ".dylib", ".pyc", ".pyx")
LEARNERS = "dpserve.learners"  # group of entry points


def is_outside(reference: str) -> bool:
    """Tell whether it names a learner of somebody else's, as `source_of` reads it."""
    name = reference.partition(":")[0]
    return name.endswith((".py", "/")) or name in {point.name for point in entry_points(group=LEARNERS)}


def source_of(reference: str) -> Source:
    """Read a learner's files: of `path.py[:Class]`, of a package's folder `path/[:Class]`, or of the package that an
    entry point in the group `dpserve.learners` names. InputError where there is none, or it is more than may be kept.
    """
    name, _, kind = reference.partition(":")
    if name.endswith(".py"):
        return Source(_text(Path(name), reference), kind or "Learner", name)
    if name.endswith("/"):
        folder = Path(name).resolve()
        return Source(_package(folder, folder.name, reference), kind or "Learner", name)
    point = next((point for point in entry_points(group=LEARNERS) if point.name == name), None)
    top = point.module.partition(".")[0] if point else ""
    spec = find_spec(top) if top else None  # of a module within a package it would run the package
    if point is None or spec is None or spec.origin is None:
        raise InputError(f"learner={reference!r:.200}: no such learner is installed")
    author = f"{point.dist.name} {point.dist.version}" if point.dist else point.module
    if spec.submodule_search_locations is None:
        return Source(_text(Path(spec.origin), reference), point.attr, author)
    return Source(_package(Path(spec.origin).parent.resolve(), point.module, reference), point.attr, author)


def _package(folder: Path, module: str, reference: str) -> str:
    """Return all texts of a package as one, in JSON: `files` by their place, and the `module` with the class."""
    top = module.partition(".")[0]
    if not top.isidentifier() or not (folder / "__init__.py").is_file():
        raise InputError(f"learner={reference!r:.200}: a package is a folder with __init__.py, named as modules are")
    files = dict[str, str]()
    for path in sorted(folder.rglob("*")):
        within = path.relative_to(folder)
        place = within.as_posix()
        if path.is_symlink():
            raise InputError(f"learner={reference!r:.200}: {place} is a link; put what it leads to in its place")
        if "__pycache__" in within.parts:
            continue
        if path.name.endswith(COMPILED):
            raise InputError(f"learner={reference!r:.200}: {place} is compiled; only what people can read is admitted")
        if path.suffix == ".py" and path.is_file():
            files[f"{top}/{place}"] = _text(path, reference)
        if len(files) > MOST_FILES:
            raise InputError(f"learner={reference!r:.200}: more than {MOST_FILES} files")
    text = json.dumps({"files": files, "module": module}, ensure_ascii=False)
    if len(text.encode()) > LONGEST_TEXT:
        raise InputError(
            f"learner={reference!r:.200}: its files are {len(text.encode())} bytes; at most {LONGEST_TEXT}"
        )
    return text


def _text(path: Path, reference: str) -> str:
    try:
        if path.stat().st_size > LONGEST_TEXT:
            raise InputError(f"learner={reference!r:.200}: {path.name} is longer than {LONGEST_TEXT} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"learner={reference!r:.200}: cannot be read ({type(error).__name__})") from None
