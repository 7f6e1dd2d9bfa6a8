"""Learners of others that a steward admits: each admission is an entry, and so is its end. A job that names one is
reserved and started only while that admission stands, and for its dataset (docs/reference/others.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accountant.errors import NameTaken, UnknownName
from accountant.keys import key_rows
from accountant.ledger.families.family_rows import load
from accountant.ledger.families.records import Why
from accountant.log.entries import Signed
from accountant.log.rare_entries import ADMITTED, REMOVED
from dpserve_verify.errors import InputError
from dpserve_verify.log.entry import Entry, read_entry
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.privacy.declared import AUTHOR, NAME, TESTED

if TYPE_CHECKING:
    from accountant.ledger.ledger import Ledger

OUTSIDE, VOUCHED = "outside", "vouched"  # the learner of jobs that run one, without rows and with them
CODE, ADMITTED_BY, ADMISSION = "code", "admitted_by", "admission"
ENTERED = CODE, AUTHOR, ADMITTED_BY, ADMISSION, TESTED  # among their parameters
AGAIN = "dpserve learner admit FILE.py:CLASS --name NAME --reason TEXT"
_DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Admission:
    """What a steward admits. InputError where a name, a digest or a line is none.

    Attributes:
        digest: sha256 of the class's name and the text.
        report: sha256 of the signed report of the check, which played it on so many `neighbours`.
        datasets: for whose jobs alone it may run; empty: for everybody's.
        vouched: of a program that reads rows, which nobody can play: whether it keeps epsilon or mu, by the word of
            who admits it for each of the datasets; "" of others.
        declared: its classes that answer queries of its own, by a sensitivity that its author declares.
    """

    name: str
    digest: str
    kind: str
    author: str
    report: str
    neighbours: int
    why: Why
    datasets: tuple[str, ...] = ()
    vouched: str = ""
    declared: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _DIGEST.fullmatch(check_name("name", self.name)):
            raise InputError(f"name={self.name}: is a digest; take a name")
        Why(self.author, self.kind)  # one line each, for certificates show them
        for name in ("digest", "report"):
            if not _DIGEST.fullmatch(getattr(self, name)):
                raise InputError(f"{name}: must be a sha256 digest, 64 hexadecimal digits in lower case")
        if self.vouched not in ("", "epsilon", "mu"):
            raise InputError(f"vouched={self.vouched!r:.40}: must be epsilon or mu")
        if self.vouched and not self.datasets:
            raise InputError(f"learner={self.name}: reads rows, so its steward names each dataset: --dataset NAME")
        if (self.neighbours < 1) is not bool(self.vouched):
            raise InputError(f"neighbours={self.neighbours}: must be at least 1, and 0 of a program that reads rows")
        if self.datasets != tuple(sorted(set(self.datasets))):
            raise InputError("datasets: must be names, each once and in order")
        if self.declared != tuple(sorted({each for each in self.declared if NAME.fullmatch(each)})):
            raise InputError("declared: must be names of classes, each once and in order")

    def fields(self) -> dict[str, Any]:
        """Return what its entry states of it."""
        return {
            "name": self.name,
            "digest": self.digest,
            "class": self.kind,
            "author": self.author,
            "report": self.report,
            "neighbours": self.neighbours,
            "reason": self.why.reason,
            "by": self.why.by,
            **({"datasets": [*self.datasets]} if self.datasets else {}),
            **({"vouched": self.vouched} if self.vouched else {}),
            **({"declared": [*self.declared]} if self.declared else {}),
        }


def admit(ledger: Ledger, admission: Admission, signed_by: str | None = None) -> Entry:
    """Append the entry that admits a learner, and return it. `signed_by`: as for `Ledger.issue`, of the report.

    Raises:
        NameTaken: A learner of this name, or this digest, is admitted.
        UnknownName: There is no dataset of a name among `datasets`.
    """
    with ledger.log.writing() as writer:
        if signed_by is not None:
            key_rows.require_issuer(writer.connection, signed_by)
        for entry in writer.signed.rare().admissions.values():
            name = entry.value["name"]
            if entry.value["digest"] == admission.digest:
                raise NameTaken(
                    f"learner={admission.name}: it is admitted already, as {name}, by entry {entry.seq}; to admit it "
                    f"anew, dpserve learner remove {name} first",
                    entry=entry.seq,
                )
            if name == admission.name:
                raise NameTaken(
                    f"name={name}: another learner has it here, by entry {entry.seq}; take a new name, or dpserve "
                    f"learner remove {name} first",
                    entry=entry.seq,
                )
        for dataset in admission.datasets:
            load(writer.connection, dataset)
        seq = writer.append(ADMITTED, **admission.fields())
        return read_entry(seq, writer.appended[-1][1])


def remove(ledger: Ledger, name: str, why: Why) -> Entry:
    """Append the entry that ends an admission; return that of the admission. UnknownName where none of it stands."""
    with ledger.log.writing() as writer:
        gone = _find(writer.signed, name)
        writer.append(REMOVED, name=gone.value["name"], admitted=gone.seq, reason=why.reason, by=why.by)
        return gone


def admissions(ledger: Ledger) -> list[Entry]:
    """Return the admissions that stand, by name."""
    with ledger.log.signed() as signed:
        return sorted(signed.rare().admissions.values(), key=lambda entry: str(entry.value["name"]))


def admission_of(ledger: Ledger, name: str) -> Entry:
    """Return the admission that stands of this name, or digest. UnknownName where there is none."""
    with ledger.log.signed() as signed:
        return _find(signed, name)


def parameters_of(ledger: Ledger, learner: str, name: str, dataset: str) -> dict[str, Any]:
    """Return what a job's parameters say of the learner of others that it names. UnknownName where none of this name
    or digest is admitted, InputError where it is for other datasets, or not for jobs of this `learner`.
    """
    with ledger.log.signed() as signed:
        entry = _find(signed, name)
        value = entry.value
        named = {CODE: value["digest"], ADMISSION: entry.seq, **_said_of(value)}
        refused = refusal(signed, learner, named, dataset)
    if refused is not None:
        raise refused
    return named


def _said_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return who wrote an admitted learner and who admitted it; of queries of its own, on how many neighbours they were
    tested.
    """
    tested = {TESTED: value["neighbours"]} if "declared" in value else {}
    return {AUTHOR: value["author"], ADMITTED_BY: value["by"], **tested}


def named_by(ledger: Ledger, parameters: Mapping[str, Any]) -> Entry:
    """Return the admission that a job's parameters name, whether or not it stands still. InputError where none is."""
    at = parameters.get(ADMISSION)
    with ledger.log.signed() as signed:
        entry = signed.entry(at) if type(at) is int and 0 < at < signed.size else None
    if entry is None or entry.value["type"] != ADMITTED or entry.value["digest"] != parameters.get(CODE):
        raise InputError(f"code={parameters.get(CODE)!s:.80}: names no admission; ask for the job again")
    return entry


def _find(signed: Signed, name: str) -> Entry:
    standing = signed.rare().admissions.values()
    for entry in standing:
        if name in (entry.value["name"], entry.value["digest"]):
            return entry
    names = ", ".join(sorted(entry.value["name"] for entry in standing)) or "none"
    raise UnknownName(
        f"learner={name!r:.80}: is not admitted here; admitted are: {names}. To admit one: {AGAIN}",
        learner=name,
    )


def refusal(signed: Signed, learner: str, parameters: Mapping[str, Any], dataset: str) -> InputError | None:
    """Return why a job may not run the learner of others that it names, as its admission does not stand, or is for the
    jobs of other datasets; None where it may. What runs is what the ledger says.
    """
    if learner not in (OUTSIDE, VOUCHED) and CODE not in parameters:
        return None
    digest, at = parameters.get(CODE), parameters.get(ADMISSION)
    entry = signed.rare().admissions.get(at) if type(at) is int else None
    if entry is None or entry.value["digest"] != digest:
        return InputError(
            f"code={digest!s:.80}: is not admitted here, or was removed or admitted anew since the job was asked for; "
            f"name it again (--set code=NAME). To admit it: {AGAIN}"
        )
    if {key: parameters[key] for key in (AUTHOR, ADMITTED_BY, TESTED) if key in parameters} != _said_of(entry.value):
        return InputError(
            f"{AUTHOR}, {ADMITTED_BY}, {TESTED}: are not those of entry {at}, which admitted it; leave them out"
        )
    if learner != (of := VOUCHED if "vouched" in entry.value else OUTSIDE):
        return InputError(f"learner={learner:.40}: {entry.value['name']} is admitted as --learner {of}")
    if "datasets" in entry.value and dataset not in entry.value["datasets"]:
        return InputError(
            f"code={entry.value['name']}: is admitted for jobs on {', '.join(entry.value['datasets'])} alone, and not "
            f"on {dataset}"
        )
    return None
