"""Commands of the auditor: the ledger, its proofs, and its audit."""

from __future__ import annotations

from dataclasses import replace
from json import dumps as as_text
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy import Connection

from accountant.audit.export_tiles import export_tiles
from accountant.home import Home, settings
from accountant.log import stored_proofs
from accountant.log.collect import cosign, keep, newest
from dpserve_verify.audit.folders import audit_folder
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.errors import InputError, VerificationError
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.seen_checkpoints import read_note
from dpserve_verify.log.witness_policy import WitnessPolicy, read_witness_policy
from dpserve_verify.log.witnessed import UNSEEN, Vouched, judge, read_witnessed
from serving.cli.backend import backend
from serving.cli.terminal import (
    Json,
    align_columns,
    note_more,
    paint,
    show,
    show_busy,
    show_or_write,
    show_progress,
    show_stream,
)

Policy = Annotated[Path | None, typer.Option(help="Whose cosignatures count; DPSERVE_WITNESS_POLICY when left out.")]

LISTED = 20  # of what is lost, for people
QUIET = {"type", "time", "plan", "price", "claim", "filter", "schema", "parameters", "commitment", "request", "pem"}


def show_ledger(
    dataset: Annotated[str | None, typer.Option(help="Only what concerns this dataset.")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Only entries of this type.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many entries.", min=1)] = 50,
    before: Annotated[int | None, typer.Option(help="Go on below this entry.", min=0)] = None,
    after: Annotated[
        int | None, typer.Option(help="Only behind this entry, the oldest first; -1: from the beginning.", min=-1)
    ] = None,
    json: Json = False,
) -> None:
    """Show the ledger's entries, the newest first.

    \b
    dpserve ledger show --dataset adult
    dpserve ledger show --type issued --limit 10
    dpserve ledger show --after -1 --limit 1000000 --json
    """
    from accountant.ledger.entry_search import Walk, Wanted  # loads numpy

    walk = Walk(Home.open().ledger.log.database, Wanted(dataset, kind), after, before, limit)
    if json:
        bodies = ({"index": entry.seq, **entry.value} for entry in walk)
        return show_stream("entries", bodies, lambda: {"next": walk.following})
    rows: list[tuple[Any, ...]] = [("INDEX", "TIME", "TYPE", "WHAT")]
    for entry in walk:
        shown = {key: value for key, value in entry.value.items() if key not in QUIET}
        fields = {key: value for key, value in shown.items() if key == "curve" or isinstance(value, str | int)}
        text = " ".join(f"{key}={str(value)[:40]!s}" for key, value in fields.items())
        rows.append((entry.seq, entry.value.get("time", ""), entry.value["type"], text))
    show(False, {}, align_columns(rows))
    return note_more(walk.following, "--before" if after is None else "--after")


def checkpoint(json: Json = False) -> None:
    """Print the newest signed tree head. Keep it elsewhere: it shows any rewriting of what came before.

    \b
    dpserve ledger checkpoint > checkpoint.txt
    """
    text = backend().ledger.checkpoint()
    head = parse_checkpoint(text)
    show(json, {"checkpoint": text, "size": head.size, "root": encode_base64(head.root)}, text.rstrip("\n"))


def proof(
    leaf: Annotated[int, typer.Option(help="Number of the entry.")],
    size: Annotated[int | None, typer.Option(help="Only the path in the tree of this size, as JSON.")] = None,
    witnessed: Annotated[bool, typer.Option(help="Against the newest checkpoint that witnesses cosigned.")] = False,
    out: Annotated[Path | None, typer.Option(help="A file to write.")] = None,
    json: Json = False,
) -> None:
    """Prove that an entry is in the ledger: a .tlog-proof against the newest checkpoint.

    \b
    dpserve ledger proof --leaf 3 --out entry-3.tlog-proof
    """
    home = Home.open()
    if size is not None:
        path = stored_proofs.path_to(home.ledger.log.database, leaf, size)
        return show_or_write(out, as_text(path, indent=2) + "\n", path, json)
    with home.ledger.log.database.reading() as connection:
        text = stored_proofs.inclusion(connection, leaf, _note(home, connection, witnessed))
    show_or_write(out, text, {"leaf": leaf, "proof": text}, json)


def _note(home: Home, connection: Connection, witnessed: bool) -> str:
    """Return the checkpoint that proofs lead to."""
    if not witnessed:
        return newest(home.path, connection)
    cosigned = read_witnessed(home.path)
    if cosigned is None:
        raise InputError("witnessed: no checkpoint was cosigned yet; run dpserve ledger witness")
    return cosigned


def consistency(
    earlier: Annotated[int | None, typer.Option("--from", help="Number of entries of the earlier tree.")] = None,
    later: Annotated[int | None, typer.Option("--to", help="Of the later one; the newest when left out.")] = None,
    seen: Annotated[Path | None, typer.Option(help="A checkpoint kept from before, in place of --from.")] = None,
    json: Json = False,
) -> None:
    """Prove that the ledger only grew. A ledger that does not continue --seen is exit code 4.

    \b
    dpserve ledger consistency --seen checkpoint.txt
    """
    home = Home.open()
    if (earlier is None) == (seen is None):
        raise InputError("--from, --seen: one of the two")
    if seen is not None:
        proof = stored_proofs.continues(home.ledger.log.database, home.trust, read_note(seen), later)
    else:
        proof = stored_proofs.consistency(home.ledger.log.database, earlier or 0, later)
    sizes = f"the first {proof.earlier} of {proof.later} entries are as they were"
    show(json, proof.to_json(), "\n".join([*map(encode_base64, proof.hashes), sizes]))


def export_ledger(out: Annotated[Path, typer.Option(help="A new folder.")], json: Json = False) -> None:
    """Write the whole ledger as files that an auditor reads with any tool.

    \b
    dpserve ledger export --out ledger-files
    """
    with show_busy("writing the ledger"):
        count = backend().ledger.export(out)
    show(json, {"entries": count, "out": str(out)}, f"{count} entries written to {out}")


def tiles(
    out: Annotated[Path, typer.Option(help="A new folder, or one that this wrote before.")], json: Json = False
) -> None:
    """Write the ledger as static tiles (C2SP tlog-tiles) for a web server; again: adds what is new.

    \b
    dpserve ledger tiles --out public/ledger
    """
    with show_busy("writing tiles"):
        count = export_tiles(Home.open(), out)
    show(json, {"entries": count, "out": str(out)}, f"{count} entries in {out}")


def witness(policy: Policy = None, json: Json = False) -> None:
    """Ask the witnesses of a policy to cosign the newest checkpoint. A quorum that is missed is exit code 4.

    \b
    dpserve ledger witness --policy witnesses.policy
    """
    home, witnesses = Home.open(), _policy(policy)
    if witnesses is None:
        raise InputError("--policy: a file in the form of C2SP tlog-policy, or set DPSERVE_WITNESS_POLICY")
    with show_busy("asking the witnesses"):
        cosigned = cosign(home.ledger.log.database, home.trust, witnesses, read_witnessed(home.path))
    keep(home.path, cosigned.note)
    answers = [answer.said for answer in cosigned.answers]
    body = {"size": cosigned.size, "checkpoint": cosigned.note, "answers": answers}
    show(json, body, "\n".join([f"the first {cosigned.size} entries are witnessed", *answers]))


def _policy(given: Path | None) -> WitnessPolicy | None:
    setting = settings()["DPSERVE_WITNESS_POLICY"].value
    path = given or (Path(setting) if setting else None)
    return None if path is None else read_witness_policy(path)


def audit_ledger(
    folder: Annotated[
        Path | None, typer.Argument(help="An export or tiles; the home's ledger, or the server's, when left out.")
    ] = None,
    trust: Annotated[Path | None, typer.Option(help="The pinned keys, for a ledger that is not this home's.")] = None,
    seen: Annotated[list[Path] | None, typer.Option(help="A checkpoint kept from before. Repeatable.")] = None,
    policy: Policy = None,
    json: Json = False,
) -> None:
    """Audit the ledger: every entry, hash, signature and budget, and the certificates. Problems are exit code 4; where
    there are none up to an entry of a newer version, which must be asked for the rest, it is 1.

    What was paid for and has no files in the home any more is listed as lost: statements, models, open campaigns. The
    ledger is sound all the same, and the exit code 0.

    A server's ledger is fetched and judged here, by the keys that were pinned; its own word counts for nothing.

    \b
    dpserve ledger audit --seen checkpoint.txt
    """
    witnesses, vouched = _policy(policy), UNSEEN
    try:
        report, vouched = _audit(folder, trust, seen or [], witnesses)
    except VerificationError as error:
        report = Report(0, "", (error.message,))
    lines: list[tuple[str, Any]] = [("entries", report.entries), ("root", report.root)]
    lines += [] if witnesses is None else [("witnessed", vouched.words)]
    lines += [("result", paint(report.verdict, "good" if report.ok and not report.lost else "bad"))]
    body = report.to_json() | ({} if witnesses is None else vouched.to_json())
    show(json, body, "\n".join([align_columns(lines), *report_lines(report)]))
    if not report.ok:
        raise typer.Exit(report.exit_code)


def report_lines(report: Report) -> list[str]:
    """Return an audit's problems, notes and the first LISTED of what is lost, a line each."""
    lost = [f"lost: {line}" for line in report.lost[:LISTED]]
    lost += [f"lost: {len(report.lost) - LISTED} more; --json has all"] if len(report.lost) > LISTED else []
    return [f"  {line}" for line in (*report.problems, *report.notes, *lost)]


def _audit(
    folder: Path | None, trust: Path | None, seen: list[Path], policy: WitnessPolicy | None
) -> tuple[Report, Vouched]:
    """Audit a ledger. Return the report, and what the policy's witnesses vouch for."""
    notes = [read_note(path) for path in seen]
    if folder is not None:
        if trust is None:
            raise InputError("--trust: an exported ledger is audited against keys that came by another way")
        keys = PublicKeys.from_json(trust.read_bytes())
        with show_progress("audit") as progress:
            report, notes = audit_folder(folder, keys, notes, progress)
    else:
        with show_progress("audit") as progress:
            report, notes, keys = backend().ledger.audit(notes, trust, progress)
    if policy is None:
        return report, UNSEEN
    vouched = judge(notes, policy, keys)
    return replace(report, problems=(*report.problems, *vouched.problems)), vouched
