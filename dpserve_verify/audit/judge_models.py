"""Models beside the ledger, judged with it: each certificate verifies and speaks of the reservation that the ledger
holds. One that was revoked is settled: nobody accepts it, and what is wrong with it is no fault of the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from dpserve_verify.audit.judge import Account
from dpserve_verify.audit.replay import Replay
from dpserve_verify.audit.replay_made_from import BINDS
from dpserve_verify.audit.tree_of_entries import Findings, Head
from dpserve_verify.certificates.certificate import LAST_DIGITS, Certificate, verify
from dpserve_verify.certificates.predicate import DatasetForm, FamilyForm, PersonForm
from dpserve_verify.errors import DpserveError
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.proofs import parse_proof
from dpserve_verify.privacy.budget import from_nano
from dpserve_verify.privacy.made_from import MODEL, PROFILE, SCHEMA, START, Source, merge_events

Accounts = list[tuple[Account, ...]]
Bundle = tuple[str, bytes, bytes, bytes]
"""A model's name, envelope, proof and ONNX bytes."""


Champions = Callable[[], Mapping[str, int]]
"""By name, the version that answers to it, as the folder of models has it (`models.store.versions`)."""


class Models:
    """Certificates to be held against the entries as these go by."""

    def __init__(self, trust: PublicKeys, findings: Findings, champions: Champions = dict) -> None:
        self._trust, self._findings = trust, findings
        self._champions, self._answering = champions, champions()
        self._waiting: dict[int, list[tuple[str, Certificate]]] = {}
        self._ancestors: dict[int, list[tuple[str, str]]] = {}
        self._found: dict[int, Certificate] = {}
        self._stood: dict[int, Accounts] = {}
        self._sources = NamedSources()

    def take(self, bundles: Iterable[Bundle]) -> list[Head]:
        """Verify each bundle; the tree heads that their proofs bring along."""
        heads = []
        for name, envelope, proof, model in bundles:
            try:
                text = proof.decode("utf-8")
                if parse_proof(text).index in self._trust.revoked:
                    continue
                certificate = verify(envelope, text, model, replace(self._trust, revoked=frozenset()))
            except (DpserveError, UnicodeDecodeError) as error:
                self._findings.add(None, f"model {name}: {error}")
                continue
            if any(ancestor.entry in self._trust.revoked for ancestor in certificate.ancestors):
                continue
            self._waiting.setdefault(certificate.reservation, []).append((name, certificate))
            self._found[certificate.issued] = certificate
            self._sources.take(name, certificate)
            for ancestor in certificate.ancestors:
                self._ancestors.setdefault(ancestor.entry, []).append((name, ancestor.statement))
            heads.append(Head(certificate.checkpoint_size, 1, certificate.root, f"the proof of model {name}"))
        return heads

    def check(self, seq: int, body: bytes, value: Mapping[str, Any], replay: Replay) -> None:
        """Hold entry `seq`, which `replay` has taken in, against the certificates that say they were reserved by it, or
        came from it.
        """
        self._check_accounts(value, replay)
        for name in self._sources.wrong(seq, value, replay):
            self._findings.add(None, f"model {name}: its certificate says of a release what entry {seq} does not")
        for name, statement in self._ancestors.get(seq, ()):
            if value.get("statement") != statement:
                self._findings.add(None, f"model {name}: supersedes another statement than that of entry {seq}")
        if value.get("type") == "committed":
            self._check_released(value)
            self._check_growth(value["reservation"], replay)
        for name, certificate in self._waiting.get(seq, ()):
            predicate, leaf = certificate.statement["predicate"], hashlib.sha256(b"\x00" + body).hexdigest()
            plan = [{key: part for key, part in run.items() if key != "library"} for run in predicate["mechanisms"]]
            if predicate["ledger"]["leaf"] != leaf or plan != value.get("plan"):
                self._findings.add(None, f"model {name}: its certificate is not about what entry {seq} reserved")
            claimed = {part: predicate["claim"].get(part) for part in value["claim"]}
            if claimed != value["claim"]:
                self._findings.add(None, f"model {name}: its certificate claims something else than entry {seq}")
            rows = replay.books.dataset(value["dataset"])
            kept = "institutions:" if rows.institutions is not None else "local:" if rows.remote else "central:"
            trusted = "two-aggregators:" if rows.shared else kept
            if not predicate["claim"]["trustModel"].startswith(trusted):
                self._findings.add(None, f"model {name}: its certificate's trust model is not that of entry {seq}")
            if not self._sources.are_of(seq, certificate, value, replay):
                self._findings.add(None, f"model {name}: its certificate names other releases than entry {seq}")
            if predicate["public"].get("target") != value.get("target"):
                self._findings.add(None, f"model {name}: its certificate names another target than entry {seq}")

    def _check_accounts(self, value: Mapping[str, Any], replay: Replay) -> None:
        """Check that what a certificate says of its families is how they stood at one time between the job's commit and
        its issue, when it was written.
        """
        kind, job = value.get("type"), value.get("reservation")
        if kind == "committed" and job in self._waiting:
            self._stood[job] = []
        for number, states in self._stood.items():
            judged = replay.jobs[number]
            accounts = replay.books.accounts(judged.dataset, judged.part, judged.window)
            if not states or states[-1] != accounts:
                states.append(accounts)
        if kind == "issued" and job in self._stood:
            states = self._stood.pop(job)
            for name, certificate in self._waiting[job]:
                dataset = certificate.form.dataset
                families: list[FamilyForm | DatasetForm] = [*(dataset.families or ())] or [dataset]
                window, blocks = replay.jobs[job].window, dataset.blocks
                if window != (blocks and (blocks.first, blocks.last)):
                    self._findings.add(None, f"model {name}: its certificate names other blocks than job {job}")
                elif blocks is not None:  # of all of them, the account that it names, and that of one person
                    tightest, people = slice(blocks.tightest - blocks.first, blocks.tightest - blocks.first + 1), -1
                    states = [
                        (*state[tightest], *(account for account in state[people:] if account.person))
                        for state in states
                    ]
                stands = (
                    families[0].family == dataset.family
                    and len(families) + (dataset.person is not None) == len(accounts)
                    and all(map(_tells, families, accounts))
                    and (dataset.person is None or (accounts[-1].person and _sums_agree(dataset.person, accounts[-1])))
                    for accounts in states
                )  # fmt: skip
                if not any(stands):
                    self._findings.add(None, f"model {name}: its certificate's budget is not what the entries give")

    def _check_released(self, value: Mapping[str, Any]) -> None:
        """Check that the numbers released are the certificate's, or those that its edits began from."""
        for name, certificate in self._waiting.get(value["reservation"], ()):
            chain = certificate.ancestors
            if value["released"] != (chain[0].ensemble if chain else certificate.form.public.ensemble):
                self._findings.add(
                    None, f"model {name}: is not of the numbers that job {certificate.reservation} released"
                )

    def _check_growth(self, job: int, replay: Replay) -> None:
        """Check that no certificate says that a total for one person is to come where blocks have come without one."""
        rows = replay.jobs[job].dataset
        if rows not in replay.books.blocks.known or replay.books.datasets[rows].people:
            return
        for name, certificate in self._waiting.get(job, ()):
            if certificate.growth == "person-total-by-default":
                self._findings.add(None, f"model {name}: its certificate says that its dataset has not grown")

    def _check_base(self, name: str, certificate: Certificate) -> None:
        """Check that an edited model promises what its base does, where that one is at hand."""
        base = self._found.get(certificate.ancestors[-1].entry)
        if base is None:
            return
        follows = (
            certificate.ancestors[-1].ensemble == base.form.public.ensemble
            and certificate.ancestors[:-1] == base.ancestors
        )
        if not follows or not _same_promise(certificate.statement["predicate"], base.statement["predicate"]):
            self._findings.add(None, f"model {name}: promises something else than entry {base.issued}, its base")

    def _check_champions(self, replay: Replay) -> None:
        """Check which version answers to each name in the folder of models against the entries. It was read before and
        after them: a version may have been promoted meanwhile.
        """
        issued = {name: certificate.issued for waiting in self._waiting.values() for name, certificate in waiting}
        before, after = self._answering, self._champions()
        for name, version in before.items():
            recorded = replay.names.champions.get(name, issued.get(f"{name}@{version}"))
            stands = [issued.get(f"{name}@{answering.get(name)}", recorded) for answering in (before, after)]
            if recorded not in stands:
                by = "no version does" if recorded is None else f"the one that entry {recorded} certified does"
                self._findings.add(None, f"model {name}: {name}@{version} answers to it, and by the entries {by}")

    def check_end(self, replay: Replay) -> None:
        """Check after the last entry what was issued, by which key, and whether it stands and answers."""
        self._check_champions(replay)
        for seq, waiting in self._waiting.items():
            job = replay.jobs.get(seq)
            for name, certificate in waiting:
                chain = [*(ancestor.entry for ancestor in certificate.ancestors), certificate.issued]
                if replay.keys.revocations.keys() & set(chain):  # by a ledger that knows more than the pinned file
                    continue
                if job is None or replay.ancestors(certificate.issued) != chain or job.issued != chain[0]:
                    self._findings.add(
                        None, f"model {name}: entry {certificate.issued} is not what job {seq} was issued as"
                    )
                if not replay.keys.issuer_keys(certificate.issued).keys() >= set(certificate.issuers):
                    self._findings.add(None, f"model {name}: signed by a key that may not speak for its entry")
                if certificate.ancestors:
                    self._check_base(name, certificate)


def _same_promise(derived: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Return whether two predicates differ only in what an edit may change: the numbers, and the words about the
    edit.
    """

    def without_edits(predicate: Mapping[str, Any]) -> dict[str, Any]:
        own = ("ensemble", "supersedes", "edits")
        public = {name: value for name, value in predicate["public"].items() if name not in own}
        return {**predicate, "public": public}

    return without_edits(derived) == without_edits(base)


def _tells(said: FamilyForm | DatasetForm, account: Account) -> bool:
    """Return whether the form states the account rightly. Certificates from before `largest` was stated have no more
    than the total beside the sums, and are read so.
    """
    if said.family != account.family or not _sums_agree(said, account, said.largest is not None):
        return False
    if said.largest is None:
        return not account.whole
    return bool(said.whole) == account.whole and parse_decimal(said.largest) == account.largest


def _sums_agree(stated: FamilyForm | DatasetForm | PersonForm, account: Account, converted: bool = True) -> bool:
    """Return whether the total and the sums are an account's; with `converted`, what they come to as well."""
    after, used, total = stated.after, account.used, account.budget.epsilon
    rdp = {decimal_string(order): decimal_string(from_nano(figure)) for order, figure in account.rdp}
    sums = (after.pure, after.unbounded, after.rdp) == (decimal_string(from_nano(used.pure)), used.unbounded, rdp)
    largest = stated.largest is None or parse_decimal(stated.largest) == account.largest
    if stated.budget.to_json() != account.budget.to_entry() or not sums or not largest:
        return False
    unspent = Decimal(0) if account.whole else max(Decimal(0), total - account.epsilon)
    figures = ((after.epsilon, account.epsilon), (after.left, unspent)) if converted else ()
    return all(
        stated_figure is not None and abs(parse_decimal(stated_figure) - computed) <= LAST_DIGITS
        for stated_figure, computed in figures
    )


class NamedSources:
    """Every release that certificates at hand name, by its job and by the entry that binds its statement."""

    def __init__(self) -> None:
        self._of_job: dict[int, list[tuple[str, Source]]] = {}
        self._of_entry: dict[int, list[tuple[str, Source]]] = {}

    def take(self, name: str, certificate: Certificate) -> None:
        """Note what a model's certificate names."""
        for source in sources_of(certificate):
            self._of_job.setdefault(source.reservation, []).append((name, source))
            self._of_entry.setdefault(source.entry, []).append((name, source))

    def wrong(self, seq: int, value: Mapping[str, Any], replay: Replay) -> Iterator[str]:
        """Yield the models whose certificates say of the release that entry `seq` reserved, or whose statement it
        binds, what is not so.
        """
        for name, source in self._of_job.get(seq, ()):
            if value.get("type") != "reserved" or not _is_priced(source, value, replay):
                yield name
        for name, source in self._of_entry.get(seq, ()):
            kind = PROFILE if value.get("type") == "profiled" else MODEL
            bound = value.get("reservation"), value.get("statement"), kind
            stated = source.reservation, source.statement, source.kind
            if value.get("type") not in BINDS or bound != stated:
                yield name

    def are_of(self, seq: int, certificate: Certificate, value: Mapping[str, Any], replay: Replay) -> bool:
        """Return whether a certificate names the releases that its job's entry, `seq`, names, and says rightly through
        what each came and whether it is of the same people.
        """
        sources = sources_of(certificate)
        schema, own = replay.behind.schema_of(value["dataset"]), set(replay.books.datasets[value["dataset"]].families)
        return [source.entry for source in sources] == value.get("made_from", []) and all(
            source.ledger == replay.trust.origin
            and source.through == (SCHEMA if source.reservation in schema else START)
            and source.same_people == (not own.isdisjoint(source.families))
            for source in sources
        )


def sources_of(certificate: Certificate) -> list[Source]:
    """Return the releases that a certificate names."""
    return [Source.from_json(line.to_json()) for line in certificate.form.dataset.made_from or ()]


def _is_priced(source: Source, value: Mapping[str, Any], replay: Replay) -> bool:
    """Return whether a release is that of a `reserved` entry: of these rows, at this price."""
    counted = replay.books.datasets[value["dataset"]]
    part = value.get("part") or ("training" if counted.held else "all")
    claim = tuple(parse_decimal(value["claim"][name]) for name in ("epsilon", "delta"))
    return (
        (source.dataset, source.part, (source.epsilon, source.delta)) == (value["dataset"], part, claim)
        and [*source.families] == [*counted.families]
        and source.events == merge_events(value["plan"])
    )
