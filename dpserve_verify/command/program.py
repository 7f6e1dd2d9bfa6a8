"""`dpserve-verify PATH --trust trust.json`, or `python -m dpserve_verify`: verify a model's bundle, a statement of
counts, a checkpoint, or a whole ledger. With the words, the JSON keys and the exit codes of `dpserve verify` and
`dpserve ledger audit`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpserve_verify.audit.exports import entries_of
from dpserve_verify.audit.folders import audit_folder
from dpserve_verify.audit.person import AGAIN, LEDGER_TOO, is_person, verify_person
from dpserve_verify.audit.tree_of_entries import Report
from dpserve_verify.certificates.bundle import FILES, read_bundle, verify_bundle
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.certificates.own_file import own_file
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.policy import Policy, read_policy
from dpserve_verify.certificates.stated import verify_stated
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import DpserveError, InputError, ModelInvalid, VerificationError
from dpserve_verify.formats.canonical import decimal_string, encode_base64
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.cosignature import Cosignature, require_quorum
from dpserve_verify.log.history import Look
from dpserve_verify.log.seen_checkpoints import read_note, verify_head
from dpserve_verify.log.witness_policy import read_witness_policy
from dpserve_verify.log.witnessed import UNSEEN, judge
from dpserve_verify.privacy.budget import exact_decimal
from dpserve_verify.system.files import read_beginning
from dpserve_verify.system.printable import printable_json, printable_lines
from dpserve_verify.system.user_folder import user_folder

CARD = "card.md"  # a page for people, which this program cannot derive
BESIDE = {"": 64 << 20, ".dsse.json": 4 << 20, ".tlog-proof": 1 << 20}  # of a single .onnx: suffix -> most bytes
STATEMENT, PROOF = ".dsse.json", ".tlog-proof"
FIGURES = "that each figure follows from the signed counts was not derived again: dpserve verify does that"
GRAPH = "the graph in model.onnx was not looked at: whoever runs it checks that it holds allowed operators alone"
NOTHING = ("model", "epsilon", "delta", "relation")
Answer = tuple[dict[str, Any], str]


def main(words: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 0, 2 for bad input, 4 where anything is wrong."""
    asked = _parser().parse_args(words)
    try:
        body, text = _task(asked.path)(asked)
        is_behind = body.get("newer") is not None and not body["problems"]
        code = 0 if body["ok"] else DpserveError.exit_code if is_behind else VerificationError.exit_code
    except VerificationError as error:
        body = {"ok": False, **dict.fromkeys(NOTHING), "problems": [error.message], "unverified": []}
        text, code = f"NOT VERIFIED: {error.message}", error.exit_code
    except DpserveError as error:
        body, text, code = error.to_json(), f"error: {error.message}", error.exit_code
    try:
        print(printable_json(json.dumps(body)) if asked.json else printable_lines(text), flush=True)
    except BrokenPipeError:  # `dpserve-verify .. | head` reads no further; the exit code is the verdict's all the same
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dpserve-verify", description="Verify what dpserve certifies. Offline.")
    parser.add_argument(
        "path", type=Path, help="a model's folder or .onnx, a .dsse.json, a checkpoint, an export or tiles"
    )
    parser.add_argument("--trust", "--keys", type=Path, required=True, help="the pinned keys (trust.json)")
    parser.add_argument("--policy", type=Path, help="your policy for a model, a JSON file")
    parser.add_argument("--largest-epsilon", help="the most that your policy admits")
    parser.add_argument("--witnesses", type=Path, help="whose cosignatures a checkpoint must have: a C2SP tlog-policy")
    parser.add_argument("--seen", type=Path, action="append", default=[], help="a checkpoint kept from before")
    parser.add_argument("--consistency", type=Path, help="the proof between its checkpoint and the one seen before")
    parser.add_argument("--certificate", action="store_true", help="say what it promises, in plain words")
    parser.add_argument("--ledger", type=Path, help="an export that a statement to people is derived from again")
    parser.add_argument(
        "--strict", action="store_true", help="fail as well where a folder holds what is not vouched for"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser


def _task(path: Path) -> Callable[[argparse.Namespace], Answer]:
    if path.name.endswith(STATEMENT) and not path.is_dir():
        return _verify_statement
    if path.is_dir():
        return _verify_model if (path / "model.onnx").exists() else _audit
    return _verify_model if path.suffix == ".onnx" else _verify_checkpoint


def _keys(path: Path) -> PublicKeys:
    try:
        return PublicKeys.from_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"trust={path}: cannot be read ({error.strerror})") from None


def _config_folder() -> Path:
    """Return the folder where this user's `dpserve` keeps the checkpoints seen before, too."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "dpserve"


def _policy(asked: argparse.Namespace) -> Policy:
    """Read the file's policy; a figure on the command line can only make it stricter."""
    policy = Policy() if asked.policy is None else read_policy(asked.policy)
    if asked.largest_epsilon is None:
        return policy
    most = exact_decimal("largest_epsilon", asked.largest_epsilon)
    return replace(
        policy, largest_epsilon=most if policy.largest_epsilon is None else min(most, policy.largest_epsilon)
    )


def _verify_model(asked: argparse.Namespace) -> Answer:
    path, keys, policy = asked.path, _keys(asked.trust), _policy(asked)
    if path.is_dir():
        certificate = verify_bundle(read_bundle(path), keys, policy)
        names = (os.fsencode(name).decode("utf-8", "backslashreplace") for name in os.listdir(path))
        others = sorted({*names} - FILES.keys() - _vouched_worths(path, keys) | {CARD})
    else:
        onnx, envelope, proof = (_read(Path(f"{path}{suffix}"), most) for suffix, most in BESIDE.items())
        certificate = verify(envelope, proof.decode("utf-8", "replace"), onnx, keys, policy)
        others = []
    if asked.strict and set(others) - {CARD}:
        raise ModelInvalid(f"{path.name}: holds what its certificate does not vouch for: {', '.join(others)}")
    look = Look(_config_folder() / "checkpoints", asked.witnesses, asked.consistency)
    history, line = look.at(path, keys)
    if asked.certificate:
        page = plain(certificate, (), own_file())
        return {"ok": True, **certificate.to_json(), "problems": [], "page": to_text(page)}, to_text(page).rstrip("\n")
    body = {"ok": True, **certificate.to_json(), "problems": [], "unverified": others}
    body |= {"history": history, "graph": GRAPH}
    lines = [f"verified: {certificate.model}: {certificate.line}"]
    lines += [f"  {part}" for part in certificate.parts]
    lines += [line] if line else []
    return body, "\n".join([*lines, *(f"not vouched for: {name!r}" for name in others), GRAPH])


def _vouched_worths(folder: Path, keys: PublicKeys) -> set[str]:
    """Verify each statement of what the folder's model is worth. Return the names of these files and their proofs."""
    model, vouched = _read(folder / "model.onnx", BESIDE[""]), set[str]()
    for path in sorted((*folder.glob(f"worth-*{STATEMENT}"), *folder.glob(f"attack-*{STATEMENT}"))):
        verify_stated(*_with_proof(path), keys, about=model)
        vouched |= {path.name, _proof_of(path).name}
    return vouched


def _proof_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(STATEMENT) + PROOF)


def _with_proof(path: Path) -> tuple[bytes, str]:
    """Read a signed statement, and the proof beside it."""
    envelope, proof = _read(path, BESIDE[STATEMENT]), _read(_proof_of(path), BESIDE[PROOF])
    return envelope, proof.decode("utf-8", "replace")


def _verify_statement(asked: argparse.Namespace) -> Answer:
    path, keys = asked.path, _keys(asked.trust)
    if is_person(envelope := _read(path, BESIDE[STATEMENT])):
        statement = verify_person(envelope, keys, None if asked.ledger is None else entries_of(asked.ledger))
        checked = LEDGER_TOO if asked.ledger is None else AGAIN
        body = {"ok": True, **statement.to_json(), "problems": [], "ledger": checked}
        return body, f"{to_text(statement.page)}\nverified: {checked}"
    found = verify_stated(*_with_proof(path), keys)
    look = Look(_config_folder() / "checkpoints", asked.witnesses, asked.consistency)
    history, line = look.at(path, keys)
    (epsilon, delta), rows = found.headline, found.form.rows
    about = {"model": found.name} if found.rule.about_model else {"dataset": rows.dataset, "schema": found.sha256}
    body = {"ok": True, **about, "epsilon": decimal_string(epsilon), "delta": decimal_string(delta)}
    body |= {"relation": found.form.claim.relation, "entry": found.entry, found.rule.word: found.statement["predicate"]}
    body |= {"problems": [], "history": history, "figures": FIGURES}
    lines = [f"verified: {found.rule.title} of {found.name}, from {rows.part} rows of {rows.dataset}"]
    lines += [f"  {part}" for part in found.parts]
    return body, "\n".join([*lines, *([line] if line else []), FIGURES])


def _read(path: Path, most: int) -> bytes:
    try:
        return read_beginning(path, most)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _verify_checkpoint(asked: argparse.Namespace) -> Answer:
    keys, note = _keys(asked.trust), read_note(asked.path)
    head = verify_head(note, keys)
    by: tuple[Cosignature, ...] = ()
    if asked.witnesses is not None:
        policy = read_witness_policy(asked.witnesses)
        policy.check_log(keys.origin, keys.log_key_at(head.size))
        by = require_quorum(note, policy)
    body = {"ok": True, "ledger": head.origin, "size": head.size, "root": encode_base64(head.root)}
    body |= {"witnesses": [each.witness for each in by], "seen_by": [each.to_json() for each in by], "problems": []}
    seen = f", cosigned by {', '.join(each.words for each in by)}" if by else ""
    return body, f"verified: checkpoint of {head.origin}: {head.size} entries, root {encode_base64(head.root)}{seen}"


def _audit(asked: argparse.Namespace) -> Answer:
    keys, vouched = _keys(asked.trust), UNSEEN
    try:
        report, notes = audit_folder(asked.path, keys, [read_note(path) for path in asked.seen])
        if asked.witnesses is not None:
            vouched = judge(notes, read_witness_policy(asked.witnesses), keys)
            report = replace(report, problems=(*report.problems, *vouched.problems))
    except VerificationError as error:
        report = Report(0, "", (error.message,))
    body = report.to_json() | ({} if asked.witnesses is None else vouched.to_json())
    lines = [f"entries  {report.entries}", f"root     {report.root}"]
    lines += [] if asked.witnesses is None else [f"witnessed  {vouched.words}"]
    lines += [f"result   {report.verdict}"]
    return body, "\n".join([*lines, *(f"  {line}" for line in (*report.problems, *report.notes))])


if __name__ == "__main__":
    sys.exit(main())
