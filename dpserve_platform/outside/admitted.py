"""Learners of others that were admitted to this home (docs/reference/others.md): the ledger says which, and by the
digests in its entries lie their texts here, and the reports of their checks that the issuer's key signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

from accountant.home import Home
from accountant.ledger import learner_admissions
from accountant.ledger.entry_search import AT_ONCE, Wanted, search
from accountant.ledger.families.records import Why
from accountant.ledger.learner_admissions import ADMISSION, ADMITTED_BY, AGAIN, CODE, Admission
from accountant.ledger.ledger import Ledger
from dpserve_platform.outside.sources import LONGEST_TEXT
from dpserve_verify.errors import CertificateInvalid, InputError, ModelInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse
from dpserve_verify.log.entry import Entry
from dpserve_verify.privacy.declared import AUTHOR, TESTED, own_kind
from dpserve_verify.system.files import PRIVATE, replace_file
from training.session.session import Public, Source, Vouch

FOLDER, TEXT, REPORT = "learners", "learner.py", "{}.dsse.json"
TYPE = "https://dpserve/learner-admission/v1"


@dataclass(frozen=True)
class Admitted:
    """A learner that was admitted: the entry that says so, its source, and what its check saw."""

    entry: Entry
    source: Source
    report: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it for programs: as `line_of`, with its text and the report of its check."""
        return {**line_of(self.entry), "report": dict(self.report), "text": self.source.text}


def line_of(entry: Entry) -> dict[str, Any]:
    """Return what a list says of an admission. `datasets`: for whose jobs alone it may run; None: for all.
    `vouched`: what it keeps by the word of who admitted it, of a program that reads rows; `declared`: which queries
    are its own, by a sensitivity that its author declares.
    """
    said = ("name", "digest", "class", "author", "neighbours", "by", "reason", "time")
    more = {key: entry.value.get(key) for key in ("datasets", "vouched", "declared")}
    return {"entry": entry.seq, **{key: entry.value[key] for key in said}, **more}


def listed(home: Home) -> list[dict[str, Any]]:
    """Return the admissions that stand, by name, each with how many jobs named it."""
    ledger = home.ledger
    return [{**line_of(entry), "jobs": count_jobs(ledger, entry)} for entry in learner_admissions.admissions(ledger)]


def shown(home: Home, name: str) -> dict[str, Any]:
    """Return one admission that stands, with text, report and how many jobs named it. Raises as `read`, and UnknownName
    where there is none.
    """
    entry = learner_admissions.admission_of(home.ledger, name)
    return {**read(home, entry).to_json(), "jobs": count_jobs(home.ledger, entry)}


def _exact(value: Any) -> Any:
    """Return JSON whose fractions are texts, as what is signed has them."""
    if isinstance(value, Mapping):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return f"{value:.6f}" if isinstance(value, float) else value


def keep(
    home: Home,
    source: Source,
    name: str,
    why: Why,
    report: Mapping[str, Any],
    datasets: tuple[str, ...] = (),
    declared: bool = False,
) -> Admitted:
    """Admit a learner that its check did not refuse, for the jobs of these datasets, or for all. Its files come first,
    each by its digest: without the entry they mean nothing. InputError where its check refuses it, or it has queries of
    its own and not `declared` says that its word on them is taken; NameTaken as `learner_admissions.admit`.
    """
    if report.get("ok") is not True:
        faults = "; ".join(f"{fault['kind']}: {fault['words']}" for fault in report.get("faults", ()))
        raise InputError(f"learner={name}: is not admitted, for its check refuses it ({faults:.500})")
    if len(source.text.encode()) > LONGEST_TEXT:
        raise InputError(f"learner={name}: {len(source.text.encode())} bytes; at most {LONGEST_TEXT}")
    purposes = (each.rpartition(" (")[0] for each in report.get("reached", ()))
    played, own = int(report["neighbours"]), tuple(sorted({*filter(None, map(own_kind, purposes))}))
    if declared is not bool(own):
        raise InputError(
            f"learner={name}: asks queries of its own ({', '.join(own)}), whose sensitivity {source.author} declares: "
            f"they were tested on {played} neighbours and not proved; take that word with --declared"
            if own
            else f"learner={name}: asked no query of its own in its check; leave out --declared"
        )
    promise = "" if source.vouch is None else source.vouch.promise
    about = Admission(name, source.digest, source.kind, source.author, "0" * 64, played, why, datasets, promise, own)
    signer = home.keys.signer("issuer")
    needs = {"modules": [*source.modules], "packages": packages_of(source.modules)}
    more = {**needs, **({} if source.vouch is None else {"vouch": source.vouch.to_json()})}
    body = {**about.fields(), "_type": TYPE, "report": canonical.encode(_exact(report) | more).decode()}
    envelope = dsse.sign(canonical.encode(body), signer)
    about = replace(about, report=hashlib.sha256(envelope).hexdigest())
    folder = home.path / FOLDER / source.digest
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(folder / TEXT, source.text.encode(), PRIVATE)
    replace_file(folder / REPORT.format(about.report), envelope, PRIVATE)
    return read(home, learner_admissions.admit(home.ledger, about, signer.public_key.keyid))


def resolve(home: Home, learner: str, parameters: Mapping[str, Any] | None, dataset: str) -> dict[str, Any]:
    """Return a job's parameters with the digest in the place of the name, who wrote the learner, who admitted it, and
    by which entry.
    """
    given = dict(parameters or {})
    if {AUTHOR, ADMITTED_BY, ADMISSION, TESTED} & given.keys():
        raise InputError(f"{AUTHOR}, {ADMITTED_BY}, {ADMISSION}, {TESTED}: follow from the admission; leave them out")
    if CODE not in given:
        raise InputError(f"learner={learner}: name one that is admitted: --set {CODE}=NAME; to admit one: {AGAIN}")
    return given | learner_admissions.parameters_of(home.ledger, learner, str(given[CODE]), dataset)


def begin(home: Home, public: Public, parameters: Mapping[str, Any]) -> Public:
    """Add the text of the learner that a job's parameters name to what it may know. Raises as `of_job`."""
    return replace(public, code=of_job(home, parameters).source)


def of_job(home: Home, parameters: Mapping[str, Any]) -> Admitted:
    """Read the learner that a job's parameters name, whether or not its admission stands still: that is for the ledger
    to say. InputError where they name none, or a package has another version here than it was admitted with;
    ModelInvalid as `read`.
    """
    found = read(home, learner_admissions.named_by(home.ledger, parameters))
    for package, wanted in found.report.get("packages", {}).items():
        with suppress(PackageNotFoundError):
            if version(package) == wanted:
                continue
        name = found.entry.value["name"]
        raise InputError(f"code={name}: was admitted with {package} {wanted}, which is not here; admit it anew")
    return found


def read(home: Home, entry: Entry) -> Admitted:
    """Read what an entry admitted. ModelInvalid where what is kept is not that, or is gone."""
    value, again = entry.value, f"dpserve learner remove {entry.value['name']} --reason TEXT, then {AGAIN}"
    folder = home.path / FOLDER / value["digest"]
    try:
        text, envelope = (folder / TEXT).read_bytes(), (folder / REPORT.format(value["report"])).read_bytes()
        source = Source(text.decode(), value["class"], value["author"], own=tuple(value.get("declared", ())))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelInvalid(
            f"learner {value['name']}: what entry {entry.seq} admitted cannot be read ({type(error).__name__}); {again}"
        ) from None
    if source.digest != value["digest"] or hashlib.sha256(envelope).hexdigest() != value["report"]:
        raise ModelInvalid(f"learner {value['name']}: its file is not what entry {entry.seq} admitted; {again}")
    try:
        body: Any = canonical.decode_canonical(dsse.verify(envelope, home.trust.issuer_keys(entry.seq)))
        report: Any = canonical.decode_canonical(body["report"].encode())
        vouch = Vouch.from_json(report["vouch"] | {"promise": value["vouched"]}) if "vouched" in value else None
        return Admitted(entry, replace(source, modules=tuple(report.get("modules", ())), vouch=vouch), report)
    except (CertificateInvalid, canonical.CanonicalError, AttributeError, KeyError, TypeError) as error:
        raise ModelInvalid(
            f"learner {value['name']}: the report that entry {entry.seq} names is not signed by a key of this home "
            f"that stands ({error}); {again}"
        ) from None


def packages_of(modules: Iterable[str]) -> dict[str, str]:
    """Return the version of the package that each module is of, by the package's name. InputError where it is of none,
    or of several.
    """
    known, packages = packages_distributions(), dict[str, str]()
    for module in modules:
        names = set(known.get(module.partition(":")[0].partition(".")[0], ()))
        if len(names) != 1:
            raise InputError(f"module={module!r:.120}: is of no one package that is installed here")
        packages |= {name: version(name) for name in names}
    return packages


def count_jobs(ledger: Ledger, admission: Entry) -> int:
    """Count the jobs that named an admission, whatever became of them."""
    wanted, count = Wanted(kind="reserved", text=admission.value["digest"]), 0
    before: int | None = None
    while True:
        found = search(ledger.log.database, wanted, before, AT_ONCE)
        count += len([job for job in found.entries if job.value["parameters"].get(ADMISSION) == admission.seq])
        before = found.older
        if before is None or before <= admission.seq:
            return count
