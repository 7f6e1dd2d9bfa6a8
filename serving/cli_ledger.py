"""Commands of the auditor: the ledger, its proofs, and its audit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.errors import InputError, ModelInvalid, VerificationError
from accountant.home import Home, place
from accountant.keys import PublicKeys
from accountant.log import Entry
from accountant.notes import parse_checkpoint
from accountant.rebuild import Report
from serving.terminal import Json, aligned, show

if TYPE_CHECKING:
    from models.bundle import ModelStore

ledger = typer.Typer(help="The ledger: every release that was ever paid for.", no_args_is_help=True)

PAGE = 1000
QUIET = {"type", "time", "plan", "price", "claim", "filter", "schema", "parameters", "commitment", "request"}


@ledger.command("show")
def show_ledger(
    dataset: Annotated[str | None, typer.Option(help="Only what concerns this dataset.")] = None,
    json: Json = False,
) -> None:
    """Show the ledger's entries.

    \b
    dpserve ledger show --dataset adult
    """
    home = Home.open()
    if dataset is not None:
        home.ledger.dataset(dataset)
    found = list(_concerning(_entries(home), dataset))
    body = {"entries": [{"index": entry.seq, **entry.value} for entry in found]}
    show(json, body, aligned([("INDEX", "TIME", "TYPE", "WHAT"), *map(_row, found)]))


def _entries(home: Home) -> Iterator[Entry]:
    after = 0
    while page := home.ledger.log.entries(after, PAGE):
        yield from page
        after = page[-1].seq + 1


def _concerning(entries: Iterator[Entry], dataset: str | None) -> Iterator[Entry]:
    jobs: set[int] = set()
    for entry in entries:
        named = entry.value.get("dataset") == dataset
        if named and entry.value["type"] == "reserved":
            jobs.add(entry.seq)
        if dataset is None or named or entry.value.get("reservation") in jobs:
            yield entry


def _row(entry: Entry) -> tuple[Any, ...]:
    what = {name: value for name, value in entry.value.items() if name not in QUIET and isinstance(value, str | int)}
    text = " ".join(f"{name}={str(value)[:40]!s}" for name, value in what.items())
    return (entry.seq, entry.value.get("time", ""), entry.value["type"], text)


@ledger.command("checkpoint")
def checkpoint(json: Json = False) -> None:
    """Print the newest signed tree head. Keep it elsewhere: it shows any rewriting of what came before.

    \b
    dpserve ledger checkpoint > checkpoint.txt
    """
    text = Home.open().ledger.log.checkpoint()
    found = parse_checkpoint(text)
    show(json, {"checkpoint": text, "size": found.size, "root": found.root.hex()}, text.rstrip("\n"))


@ledger.command("export")
def export_ledger(out: Annotated[Path, typer.Option(help="A new folder.")], json: Json = False) -> None:
    """Write the whole ledger as files that an auditor reads with any tool.

    \b
    dpserve ledger export --out ledger-files
    """
    from accountant.export import export

    count = export(Home.open(), out)
    show(json, {"entries": count, "out": str(out)}, f"{count} entries written to {out}")


@ledger.command("audit")
def audit_ledger(
    folder: Annotated[Path | None, typer.Argument(help="An exported ledger; this home's when left out.")] = None,
    trust: Annotated[Path | None, typer.Option(help="The pinned keys, for an exported ledger.")] = None,
    seen: Annotated[list[Path] | None, typer.Option(help="A checkpoint kept from before. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Audit the ledger: every entry, hash, signature and budget, and the certificates. Problems are exit code 4.

    \b
    dpserve ledger audit --seen checkpoint.txt
    """
    try:
        found = _audit(folder, trust, [path.read_text("utf-8") for path in seen or []])
    except VerificationError as error:
        found = Report(0, "", (error.message,))
    lines = [("entries", found.entries), ("root", found.root), ("result", "sound" if found.ok else "NOT SOUND")]
    show(json, found.to_json(), "\n".join([aligned(lines), *(f"  {problem}" for problem in found.problems)]))
    if not found.ok:
        raise typer.Exit(VerificationError.exit_code)


def _audit(folder: Path | None, trust: Path | None, seen: list[str]) -> Report:
    from accountant.audit import audit_place
    from accountant.export import audit_export
    from models.bundle import ModelStore

    if folder is None:
        return audit_place(bundles=_bundles(ModelStore(place(os.environ)[0] / "models")), seen=seen)
    if trust is None:
        raise InputError("--trust: an exported ledger is audited against keys that came by another way")
    return audit_export(folder, PublicKeys.from_json(trust.read_bytes()), seen=seen)


def _bundles(store: ModelStore) -> Iterator[tuple[str, bytes, bytes, bytes]]:
    """Every model of the home; one whose files cannot be read has an envelope that does not verify."""
    from models.bundle import read_bundle

    for name in store.names():
        for version in store.versions(name):
            try:
                found = read_bundle(store.root / name / str(version))
                yield f"{name}@{version}", found.envelope, found.proof, found.onnx
            except ModelInvalid:
                yield f"{name}@{version}", b"", b"", b""
