"""Learners of others that were admitted to this home (docs/platform.md): their text, and a report that the issuer's key
signed, kept by the digest that a job names, so that ledger, plan and certificate carry it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_verify.errors import CertificateInvalid, InputError, ModelInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.system.files import PRIVATE, replace_file
from training.outside.sandbox import ADMITTED_BY, AUTHOR, CODE, OutsideLearner
from training.session.session import Public, Source

FOLDER, TEXT, ADMISSION = "learners", "learner.py", "admission.dsse.json"
TYPE = "https://dpserve/learner-admission/v1"
LONGEST_TEXT = 1 << 18
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)
AGAIN = "dpserve learner admit FILE.py:CLASS --name NAME --reason TEXT"


@dataclass(frozen=True)
class Admitted:
    """A learner that was admitted: its name here and its source, who admitted it and why, and what its check saw."""

    name: str
    source: Source
    why: Why
    report: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it for programs, without the text: what is signed."""
        return {
            "_type": TYPE,
            "name": self.name,
            "digest": self.source.digest,
            "kind": self.source.kind,
            "author": self.source.author,
            "by": self.why.by,
            "reason": self.why.reason,
            "report": canonical.encode(_exact(self.report)).decode(),
        }


def _exact(value: Any) -> Any:
    """Return JSON whose fractions are texts, as what is signed has them."""
    if isinstance(value, Mapping):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return f"{value:.6f}" if isinstance(value, float) else value


def keep(home: Home, source: Source, name: str, why: Why, report: Mapping[str, Any]) -> Admitted:
    """Admit a learner that its check did not refuse. InputError where it did, or the name is another's here."""
    check_name("name", name)
    if report.get("ok") is not True:
        faults = "; ".join(f"{fault['kind']}: {fault['words']}" for fault in report.get("faults", ()))
        raise InputError(f"learner={name}: is not admitted, for its check refuses it ({faults:.500})")
    if len(source.text) > LONGEST_TEXT:
        raise InputError(f"learner={name}: {len(source.text)} characters; at most {LONGEST_TEXT}")
    Why(source.author, source.kind)  # one line each, since certificates show them
    other = next((each for each in admitted(home) if each.name == name), None)
    if other is not None and other.source.digest != source.digest:
        raise InputError(f"name={name}: another learner has it here; take a new name, or remove that one first")
    entered = Admitted(name, source, why, report)
    envelope = dsse.sign(canonical.encode(entered.to_json()), home.keys.signer("issuer"))
    folder = home.path / FOLDER / source.digest
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(folder / TEXT, source.text.encode(), PRIVATE)
    replace_file(folder / ADMISSION, envelope, PRIVATE)
    return entered


def admitted(home: Home) -> list[Admitted]:
    """Return the learners of others that this home admits, by name."""
    place = home.path / FOLDER
    digests = sorted(each.name for each in place.iterdir()) if place.is_dir() else []
    return sorted((_read(home, each) for each in digests if _DIGEST.fullmatch(each)), key=lambda each: each.name)


def named(home: Home, name: str) -> Admitted:
    """Return the learner that was admitted by this name, or digest. InputError where there is none."""
    known = admitted(home)
    for each in known:
        if name in (each.name, each.source.digest):
            return each
    names = ", ".join(each.name for each in known) or "none"
    raise InputError(f"code={name!r:.80}: is not admitted here; name one with --set code=NAME ({names}), or {AGAIN}")


def remove(home: Home, name: str) -> Admitted:
    """Take the admission back: jobs that wait are given back, and no further one is planned."""
    gone = named(home, name)
    shutil.rmtree(home.path / FOLDER / gone.source.digest)
    return gone


def resolve(home: Home, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job's parameters with the digest in the place of the name, who wrote the learner and who admitted it."""
    given = dict(parameters or {})
    if {AUTHOR, ADMITTED_BY} & given.keys():
        raise InputError(f"{AUTHOR}, {ADMITTED_BY}: follow from the admission; leave them out")
    found = named(home, str(given.pop(CODE, "")))
    return {**given, CODE: found.source.digest, AUTHOR: found.source.author, ADMITTED_BY: found.why.by}


def begin(home: Home, public: Public, learner: str, parameters: Mapping[str, Any]) -> Public:
    """Add the text of the learner that a job's parameters name to what it may know. InputError where it is not admitted
    (any more), ModelInvalid where what is kept is not what was admitted.
    """
    if learner != OutsideLearner.name:
        return public
    found = _read(home, str(parameters.get(CODE)))
    if (parameters.get(AUTHOR), parameters.get(ADMITTED_BY)) != (found.source.author, found.why.by):
        raise InputError(f"code={found.source.digest}: it was admitted anew, by another; ask for the job again")
    return replace(public, code=found.source)


def _read(home: Home, digest: str) -> Admitted:
    """Read an admission: signed by an issuer key that is good now, and of exactly this text."""
    folder = home.path / FOLDER / digest if _DIGEST.fullmatch(digest) else Path()
    try:
        text, envelope = (folder / TEXT).read_bytes(), (folder / ADMISSION).read_bytes()
    except OSError:
        raise InputError(f"code={digest:.80}: no learner of this digest is admitted here; {AGAIN}") from None
    try:
        body: Any = canonical.decode_canonical(dsse.verify(envelope, home.trust.issuer_keys(home.ledger.log.size())))
        source = Source(text.decode(), str(body["kind"]), str(body["author"]))
        report: Any = canonical.decode_canonical(body["report"].encode())
        found = Admitted(str(body["name"]), source, Why(body["by"], body["reason"]), dict(report))
    except (CertificateInvalid, canonical.CanonicalError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelInvalid(
            f"learner {digest}: its admission is not signed by this home's key as it is now ({error}); {AGAIN}"
        ) from None
    if body["_type"] != TYPE or digest != source.digest or body["digest"] != digest:
        raise ModelInvalid(f"learner {digest}: its file is not what was admitted; {AGAIN}")
    return found
