"""`dpserve verify`, and how a certificate is shown: as JSON, in one line, on one page, as a record for a registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.certificates.answer import ANSWER, Answer, AnswerPredicate
from accountant.certificates.attack import ATTACK, Attack
from accountant.certificates.deployments import record, to_yaml
from accountant.certificates.profile import PROFILE, Profile
from accountant.certificates.statement_kinds import kind_in
from accountant.certificates.worth import WORTH, Worth
from accountant.home import TRUST, place
from accountant.system.lazy_import import later
from dpserve_verify.audit.exports import entries_of
from dpserve_verify.audit.person import AGAIN, LEDGER_TOO, is_person, verify_person
from dpserve_verify.certificates import certificate as certificates
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.certificates.own_file import own_file
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.policy import Policy, read_policy
from dpserve_verify.certificates.written_page import to_html, to_markdown, to_text
from dpserve_verify.errors import InputError, ModelInvalid, VerificationError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.history import Look
from dpserve_verify.log.seen_checkpoints import Prover
from dpserve_verify.privacy.budget import exact_decimal
from models.answers.stated import table_of
from models.profile.stated import check as check_profile
from models.store.bundle import write_bundle
from models.store.loading import load_verified, unvouched
from models.worth.attacks import attack_to_json, chance_words, right_words
from models.worth.card import with_worth
from models.worth.stated import check
from serving.cli.backend import backend
from serving.cli.backends.choice import config_folder, server_address
from serving.cli.terminal import Json, paint, show, show_busy, show_or_write

if TYPE_CHECKING:
    from models.onnx import runtime
else:
    runtime = later("models.onnx.runtime")  # who shows a certificate runs no graph

MAX_FILE_BYTES = {"": 64 << 20, ".dsse.json": 4 << 20, ".tlog-proof": 1 << 20}  # by suffix after a single .onnx
PROFILE_SUFFIX = ".dsse.json"
WRITERS = {".txt": to_text, ".md": to_markdown, ".html": to_html}

Verified = Annotated[
    Path,
    typer.Argument(
        help="A model's folder, its .onnx, or a statement of worth or a profile (.dsse.json), its proof beside; or "
        "the name of a model of this home, or of the server that is asked."
    ),
]
OwnPolicy = Annotated[
    Path | None,
    typer.Option(help="Your policy, JSON: largest_epsilon, largest_delta, relations, witnesses, proved, ..."),
]
Witnesses = Annotated[
    Path | None, typer.Option(help="Whose cosignatures its checkpoint must have: a C2SP tlog-policy.")
]
Exported = Annotated[
    Path | None, typer.Option(help="An export that a statement of `dpserve person` is derived from again.")
]
Proof = Annotated[
    Path | None, typer.Option(help="The proof between its checkpoint and the one that was seen here before.")
]


def verify(
    path: Verified,
    trust: Annotated[Path | None, typer.Option(help="The pinned keys (trust.json); this home's when left out.")] = None,
    largest_epsilon: Annotated[
        str | None, typer.Option("--largest-epsilon", "--max-epsilon", help="The most that your policy admits.")
    ] = None,
    policy: OwnPolicy = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail as well where the folder holds what is not vouched for.")
    ] = False,
    witnesses: Witnesses = None,
    consistency: Proof = None,
    certificate: Annotated[bool, typer.Option("--certificate", help="Say what it promises, in plain words.")] = False,
    ledger: Exported = None,
    json: Json = False,
) -> None:
    """Verify a model, its certificate and its place in the ledger. Offline; anything wrong is exit code 4.

    The ledger's checkpoint is kept; another history of the same ledger, whenever it comes, is exit code 4. An older or
    a newer checkpoint is no fault: that it belongs to the same history is proved by --consistency, or said to be open.

    The name of a model means that of this home; of a server it is fetched, and verified here by the keys that were
    pinned (--trust, or on first use).

    Every sentence of the certificate is derived again from its plan.

    Says which files of the folder it does not vouch for: those that are no part of a model, and a card.md that says
    something else than the certificate (`model export` writes it anew).

    \b
    dpserve verify adult-model --trust trust.json
    dpserve verify adult-model --trust trust.json --policy policy.json --certificate
    """
    asks = trust is None or _is_name(path)
    admitted = _policy(policy, largest_epsilon)
    look = Look(config_folder() / "checkpoints", witnesses, consistency, _prover if asks else None)
    try:
        if path.name.endswith(".dsse.json"):
            return _show_statement(path, read_trusted_keys(trust), look, ledger, json)
        keys = read_trusted_keys(trust)
        with show_busy(f"verifying {path.name}"):
            verified, unverified, history, line = _verify(path, keys, admitted, look)
        if strict and unverified:
            raise ModelInvalid(
                f"{path.name}: holds what its certificate does not vouch for: {', '.join(map(repr, unverified))}"
            )
    except VerificationError as error:
        body: dict[str, Any] = {"ok": False, "model": None, "epsilon": None, "delta": None, "relation": None}
        body |= {"problems": [error.message], "unverified": []}
        show(json, body, f"{paint('NOT VERIFIED', 'bad')}: {error.message}")
        raise typer.Exit(error.exit_code) from None
    if certificate:
        return show_page(verified, None, json)
    body = {"ok": True, **verified.to_json(), "problems": [], "unverified": unverified}
    body |= {"history": history}
    text = f"{paint('verified', 'good')}: {verified.model}: {verified.line}"
    notes = [*(f"  {part}" for part in verified.parts), *filter(None, (verified.learner_words, line))]
    notes += [f"{paint('not vouched for', 'bad')}: {name!r}" for name in unverified]
    show(json, body, "\n".join([text, *notes]))


def _prover(origin: str) -> Prover:
    """Let the home, or the server, prove how its ledger of this name grew."""
    return partial(backend().ledger.prove_growth, origin)


def _policy(path: Path | None, largest_epsilon: str | None) -> Policy:
    """Read the file's policy; a figure on the command line can only make it stricter."""
    policy = Policy() if path is None else read_policy(path)
    if largest_epsilon is None:
        return policy
    most = exact_decimal("largest_epsilon", largest_epsilon)
    return replace(
        policy, largest_epsilon=most if policy.largest_epsilon is None else min(most, policy.largest_epsilon)
    )


def _verify(
    path: Path, trust: PublicKeys, policy: Policy, look: Look
) -> tuple[Certificate, list[str], dict[str, Any], str]:
    """Verify a model by its folder, its name or one of its files. Return the certificate, the files of the folder that
    it does not vouch for, and what `look` says of the ledger. The files of a model that is named are copied first.
    """
    if _is_name(path):
        with TemporaryDirectory() as folder:
            write_bundle(copied := Path(folder) / "model", backend().bundles.read(str(path)))
            return _verify(copied, trust, policy, look)
    if path.is_dir():
        loaded, statements = load_verified(path, trust, policy), sorted(path.glob("worth-*.dsse.json"))
        worths = [_read_worth(statement, trust, loaded.bundle.onnx) for statement in statements]
        statements += (attacks := sorted(path.glob("attack-*.dsse.json")))
        for statement in attacks:
            ATTACK.verify(*proof_beside(statement), trust, loaded.bundle.onnx)
        vouched = {name.name for statement in statements for name in (statement, _proof_of(statement))}
        if worths and loaded.bundle.card == with_worth(
            loaded.travelling.card, [statement.form for statement in worths]
        ):
            vouched |= {"card.md"}
        unverified = [name for name in unvouched(path, loaded) if name not in vouched]
        return loaded.certificate, unverified, *look.at(path, trust)
    onnx, envelope, proof = (_read_file(Path(f"{path}{suffix}"), most) for suffix, most in MAX_FILE_BYTES.items())
    verified = certificates.verify(envelope, proof.decode("utf-8", "replace"), onnx, trust, policy)
    runtime.OnnxModel(onnx)  # the graph holds allowed operators alone, and opens
    return verified, [], *look.at(path, trust)


def _is_name(path: Path) -> bool:
    """Return whether it is no file, but may be the name of a model of the server or of a home that is there."""
    if path.exists() or len(path.parts) > 1 or path.suffix in (".onnx", ".json"):
        return False
    return server_address() is not None or (place(os.environ)[0] / TRUST).exists()


def _read_worth(path: Path, trust: PublicKeys, model: bytes | None = None) -> Worth:
    """Read and verify a statement of worth, with its proof beside it: the signature, its place in the ledger, and that
    every figure follows from the counts that it states.
    """
    worth = WORTH.verify(*proof_beside(path), trust, model)
    check(worth)
    return worth


def card_with(card: bytes, envelopes: Sequence[bytes]) -> bytes:
    """Return a model's card with what these statements of worth say, which were verified."""
    return with_worth(card, [WORTH.read(dsse.parse(envelope).payload)[1].predicate for envelope in envelopes])


def _show_statement(path: Path, trust: PublicKeys, look: Look, ledger: Path | None, json: bool) -> None:
    """Verify and show a statement of a model's worth, of a dataset's profile, or to people."""
    if is_person(signed := _read_file(path, MAX_FILE_BYTES[".dsse.json"])):
        person = verify_person(signed, trust, None if ledger is None else entries_of(ledger))
        derivation = LEDGER_TOO if ledger is None else AGAIN
        body: dict[str, Any] = {"ok": True, **person.to_json(), "problems": [], "ledger": derivation}
        return show(json, body, f"{to_text(person.page)}\n{paint('verified', 'good')}: {derivation}")
    envelope, proof = proof_beside(path)
    kind = kind_in(envelope)
    statement = kind.verify(envelope, proof, trust)
    about, text = _SHOWN[kind.word](statement)
    history, line = look.at(path, trust)
    epsilon, delta = map(decimal_string, statement.headline)
    body = {"ok": True, **about, "epsilon": epsilon, "delta": delta}
    body |= {
        "relation": statement.form.claim.relation,
        "entry": statement.entry,
        kind.word: statement.statement["predicate"],
    }
    body |= {"problems": [], "history": history}
    lines = [f"{paint('verified', 'good')}: {text}", *(f"  {part}" for part in statement.parts)]
    show(json, body, "\n".join([*lines, *([line] if line else [])]))


def _shown_rows(statement: Profile | Answer) -> tuple[dict[str, Any], str]:
    """Check the figures of a statement about rows, and say what it is of."""
    name, part = statement.form.rows.dataset, statement.form.rows.part
    if isinstance(statement.form, AnswerPredicate):
        table_of(statement, statement.form.select)
        what = f"the answer to a query of {name}: {len(statement.form.counts)} sums"
    else:
        check_profile(statement)
        what = f"how the rows of {name} are spread: {len(statement.form.columns)} columns"
    return {"dataset": name, "schema": statement.sha256}, f"{what} of {part} rows, schema {statement.sha256[:16]}.."


def _shown_worth(statement: Worth) -> tuple[dict[str, Any], str]:
    check(statement)
    first, rows = statement.form.metrics[0], statement.form.rows
    line = f"{first.metric} {first.value} [{first.low}, {first.high}] on {rows.part} rows of {rows.dataset}"
    return {"model": statement.name}, f"what {statement.name} is worth: {line}"


def shown_attack(statement: Attack) -> tuple[dict[str, Any], str]:
    """Say what a verified attack shows."""
    body = attack_to_json(statement.form)
    return {"model": statement.name}, f"the attack on {statement.name}: {right_words(body)}; {chance_words(body)}"


_SHOWN: dict[str, Callable[[Any], tuple[dict[str, Any], str]]] = {
    PROFILE.word: _shown_rows,
    ANSWER.word: _shown_rows,
    WORTH.word: _shown_worth,
    ATTACK.word: shown_attack,
}


def proof_beside(path: Path) -> tuple[bytes, str]:
    """Read a statement's envelope, and the proof that lies beside it. Raises InputError where either cannot be read."""
    proof = _read_file(_proof_of(path), MAX_FILE_BYTES[".tlog-proof"])
    return _read_file(path, MAX_FILE_BYTES[".dsse.json"]), proof.decode("utf-8", "replace")


def _proof_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".dsse.json", ".tlog-proof"))


def _read_file(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise ModelInvalid(f"{path.name}: more than {most} bytes")
    return content


def read_trusted_keys(trust: Path | None) -> PublicKeys:
    """Read the pinned keys: of this file; else of the home, or those that were pinned for the server. Raises InputError
    where they cannot be read.
    """
    if trust is None:
        return backend().ledger.trusted_keys()
    try:
        return PublicKeys.from_json(trust.read_bytes())
    except OSError as error:
        raise InputError(
            f"trust={trust}: cannot be read ({error.strerror}); name the pinned keys with --trust"
        ) from None


def show_page(certificate: Certificate, out: Path | None, json: bool, since: Sequence[str] = ()) -> None:
    """Show a verified certificate in plain words, and what the ledger says came `since`: on stdout or in a file.

    InputError where the file's suffix is none of WRITERS.
    """
    if out is not None and out.suffix not in WRITERS:
        raise InputError(f"out={out.name}: must end in one of {', '.join(WRITERS)}")
    page = plain(certificate, since, own_file())
    first, sections = (
        [{"title": part.title, "paragraphs": part.paragraphs, "items": part.items} for part in parts]
        for parts in (page.first, page.sections)
    )
    body = {"ok": True, **certificate.to_json(), "problems": [], "first_page": first, "page": sections, "out": None}
    show_or_write(out, to_text(page) if out is None else WRITERS[out.suffix](page), body, json)


def show_record(certificate: Certificate, out: Path | None, json: bool) -> None:
    """Show the record for the Differential Privacy Deployments Registry, on stdout or in a .yaml file. Raises
    InputError for a file of another kind.
    """
    if out is not None and out.suffix not in (".yaml", ".yml"):
        raise InputError(f"out={out.name}: must end in .yaml")
    body = {**certificate.to_json(), "record": record(certificate), "out": None}
    show_or_write(out, to_yaml(certificate), body, json)
