"""A statement to people whose rows may be in a dataset: which releases these could have moved, and by how much.

An in-toto Statement v1 about the ledger as its root says it, in a DSSE envelope that an issuer's key signed. It is made
from the public entries alone (`dpserve_verify.audit.moved`), it is the same for everybody, no entry says that somebody
asked, and whether anybody is in the data it does not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from dpserve_verify.audit.moved import Window, moved
from dpserve_verify.audit.tree_of_entries import Tree
from dpserve_verify.certificates.plain_words import everyday
from dpserve_verify.certificates.predicate import (
    STATEMENT_LIMIT,
    STATEMENT_TYPE,
    Count,
    Figure,
    Index,
    StatementForm,
    Text,
    read_as,
)
from dpserve_verify.certificates.written_page import Page, Section
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.formats.forms import Form, form_field
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.entry import read_entry
from dpserve_verify.privacy.budget import short_delta

URL = "https://dpserve/person/v1"
MARK = f'"predicateType":"{URL}"'.encode()
LEDGER_TOO = "that it follows from the ledger was not derived again: give an export of the ledger with --ledger"
AGAIN = "every line of it was derived again from the ledger's entries"


class BlocksForm(Form):
    """Which blocks of a dataset that grows. `of`: how many there were."""

    first: Count
    last: Count
    of: Count | None = form_field(default=None)


class BoundForm(Form):
    """A bound (epsilon, delta) on what one person's rows could have moved. `by`: from what it follows."""

    epsilon: Figure
    delta: Figure
    by: Literal["one-release", "sum", "total"] | None = form_field(default=None)


class ReleaseForm(Form):
    """A release that the rows could have moved."""

    entry: Index = form_field(about="of the ledger, which charged it")
    time: Text
    dataset: Text
    what: Literal["model", "evaluation", "counts", "sums", "elsewhere"]
    name: Text = form_field(about="of the model, or what released it elsewhere; empty where it is of the dataset")
    by: Text = form_field(about="the learner, or what counted")
    epsilon: Figure | None = form_field(about="by itself; null where it is a curve")
    delta: Figure
    state: Literal["running", "released", "failed"] = form_field(about="failed: charged, and handed to nobody")
    results: list[Index] = form_field(about="entries that bind what came of it")
    revoked: bool
    blocks: BlocksForm | None = form_field(default=None)
    aside: Literal[True] | None = form_field(default=None, about="of the people kept aside for measuring, of no other")


class PlaceForm(Form):
    """The ledger that it was made from, as far as that went."""

    origin: Text
    size: Count


class PersonPredicate(Form):
    """What one person's rows could have moved."""

    dataset: Text
    datasets: list[Text] = form_field(about="that share its budget: the same people may be in them")
    unit: Text
    relation: Literal["add-remove", "replace-one"]
    blocks: BlocksForm | None = form_field(default=None)
    releases: list[ReleaseForm]
    bound: BoundForm = form_field(about="of all of them together")
    total: BoundForm = form_field(about="promised for all that will ever be released")
    ledger: PlaceForm
    words: list[list[Text]] = form_field(about="the same for people: sections, each its title and its paragraphs")


class PersonStatement(StatementForm):
    """An in-toto Statement v1 about exactly one ledger, by its root hash."""

    predicate_type: Literal["https://dpserve/person/v1"] = form_field(key="predicateType")
    predicate: PersonPredicate


@dataclass(frozen=True)
class Person:
    """A statement that was verified: its predicate as JSON, and the root hash of the ledger, in hex."""

    predicate: Mapping[str, Any]
    root: str

    @property
    def page(self) -> Page:
        """Return what people read."""
        sections = tuple(Section(title, tuple(texts)) for title, *texts in self.predicate["words"])
        return Page(title_of(self.predicate), sections)

    def to_json(self) -> dict[str, Any]:
        """Return its fields for programs."""
        predicate = self.predicate
        bound = {name: predicate["bound"][name] for name in ("epsilon", "delta")}
        return {"dataset": predicate["dataset"], **bound, "relation": predicate["relation"], "person": predicate}


def encode(facts: Mapping[str, Any], origin: str, size: int, root: bytes) -> bytes:
    """Return the statement's canonical bytes. `facts`: as `moved` gives them, of the first `size` entries. InputError
    where there are more releases than it can hold.
    """
    predicate = {**facts, "ledger": {"origin": origin, "size": size}}
    body: Any = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": origin, "digest": {"sha256": root.hex()}}],
        "predicateType": URL,
        "predicate": {**predicate, "words": words_of(predicate)},
    }
    try:
        return canonical.encode(body, STATEMENT_LIMIT)
    except canonical.CanonicalError as error:
        remedy = "name fewer blocks" if "blocks" in facts else "dpserve ledger export gives all of them"
        raise InputError(f"releases: {len(facts['releases'])} are more than one statement holds; {remedy}") from error


def is_person(envelope: bytes) -> bool:
    """Tell whether an envelope says that it holds such a statement. Nothing is verified."""
    return MARK in dsse.parse(envelope).payload


def verify_person(envelope: bytes, trust: PublicKeys, entries: Iterable[tuple[int, bytes]] | None = None) -> Person:
    """Verify the signature by a pinned issuer key, and that the words follow from the figures; with the ledger's
    `entries`, that all of it follows from them. CertificateInvalid names what does not.
    """
    payload = dsse.verify(envelope, trust.issuer_keys())
    body, form = read_as(payload, PersonStatement)
    stated, place = body["predicate"], form.predicate.ledger
    if form.subject[0].name != place.origin or place.origin != trust.origin:
        raise CertificateInvalid(f"ledger={place.origin:.80}: is not {trust.origin}, whose keys are pinned")
    dsse.verify(envelope, trust.issuer_keys(place.size - 1))
    if stated["words"] != words_of(stated):
        raise CertificateInvalid("words: say something else than follows from the figures")
    root = form.subject[0].digest.sha256
    if entries is not None:
        blocks = form.predicate.blocks
        window = None if blocks is None else (blocks.first, blocks.last)
        _check_ledger(stated, window, root, islice(entries, place.size))
    return Person(stated, root)


def _check_ledger(stated: Any, window: Window | None, root: str, entries: Iterable[tuple[int, bytes]]) -> None:
    tree = Tree()

    def values() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for seq, body in entries:
            tree.append(body)
            yield seq, read_entry(seq, body).value

    try:
        derived = moved(values(), stated["dataset"], window)
    except InputError as error:
        raise CertificateInvalid(f"ledger: {error.message}") from error
    if tree.size != stated["ledger"]["size"] or tree.root().hex() != root:
        raise CertificateInvalid("ledger: its entries are not those that the statement was made from")
    wrong = [key for key in derived if stated.get(key) != derived[key]]
    if wrong or {*stated} - {*derived} != {"ledger", "words"}:
        raise CertificateInvalid(f"{', '.join(wrong) or 'predicate'}: not what the ledger's entries give")


def title_of(stated: Mapping[str, Any]) -> str:
    """Return the title of the page for people."""
    return f"What the data {stated['dataset']} can give away about one {stated['unit']}"


def words_of(stated: Mapping[str, Any]) -> list[list[str]]:
    """Put the figures into words: sections, each a title and paragraphs, which are signed with them."""
    return [
        ["Whom this is for", *_whom(stated)],
        ["How much, at most", *_how_much(stated)],
        ["What your rows could have moved", *(map(_release, stated["releases"]) if stated["releases"] else [NOTHING])],
        ["If rows are erased", *_erased(stated)],
        ["Who checks it", CHECKED],
    ]


LIMIT = "The ledger admits nothing beyond it; another limit takes an entry with a reason, which everybody can read."
NOTHING = "Nothing. Nothing was made from these data that anybody was given."
CHECKED = (
    "Anybody, and nobody has to be asked: dpserve-verify FILE --trust trust.json --ledger LEDGER makes every line "
    "again from the ledger's entries. The entries are checked by dpserve-verify LEDGER --trust trust.json."
)
BY = {
    "one-release": "It is what the one release promises.",
    "sum": "It is the sum of the worst cases of each release; of people kept aside and of the others, the larger one.",
    "total": "It is the limit for all releases together.",
}
STATES = {"running": ", being made", "failed": ", came to nothing and was handed to nobody", "released": ""}


def _blocks(blocks: Mapping[str, Any]) -> str:
    first, last = blocks["first"], blocks["last"]
    return f"block {first}" if first == last else f"blocks {first} to {last}"


def _whom(stated: Mapping[str, Any]) -> list[str]:
    blocks, others = stated.get("blocks"), [each for each in stated["datasets"] if each != stated["dataset"]]
    where = f"{_blocks(blocks)} (of {blocks['of']}) of " if blocks else ""
    also = f" The same people may be in {', '.join(others)}: what was made from that counts as well." if others else ""
    ledger = stated["ledger"]
    return [
        f"For people who ask what {where}the data called {stated['dataset']} could give away about them.{also} It is "
        f"the same for everybody. It was made from {ledger['size']} entries of the public ledger {ledger['origin']}, "
        "and no row was read for it.",
        "It does not say whether you are in the data, or ever were. Nobody learns that from it, and that it was asked "
        "for is not noted in the ledger.",
    ]


def _how_much(stated: Mapping[str, Any]) -> list[str]:
    bound, total, unit = stated["bound"], stated["total"], stated["unit"]
    guess, answer = _everyday(stated, bound, "all of that")
    ever, _ = _everyday(stated, total, "all that will ever be made of these data")
    experts = f"({bound['epsilon']}, {short_delta(bound['delta'])})-differential privacy"
    several = [f"Where several rows are yours, each {unit} may give away as much."] if unit == "record" else []
    so_far = [f"{guess} {answer}", f"Experts say: {experts}. {BY[bound['by']]}"] if stated["releases"] else []
    promised = f"({total['epsilon']}, {short_delta(total['delta'])})"
    return [*so_far, f"Promised permanently: {ever[0].lower()}{ever[1:]} Experts say: {promised}. {LIMIT}", *several]


def _everyday(stated: Mapping[str, Any], bound: Mapping[str, str], what: str) -> tuple[str, str]:
    figures = parse_decimal(bound["epsilon"]), parse_decimal(bound["delta"])
    return everyday(*figures, stated["unit"], stated["relation"], what)


def _release(each: Mapping[str, Any]) -> str:
    epsilon = "a curve of its own" if each["epsilon"] is None else f"epsilon {each['epsilon']}"
    price = f"{epsilon} at delta {short_delta(each['delta'])}"
    of = f" from {_blocks(each['blocks'])}" if "blocks" in each else ""
    of += " (of people kept aside for measuring)" if "aside" in each else ""
    match each["what"]:
        case "model":
            what = f"The model {each['name']}, learnt by {each['by']}"
        case "evaluation":
            what = f"How good the model {each['name']} is"
        case "elsewhere":
            what = f"Made elsewhere: {each['name']}"
        case "sums":
            what = "Sums for a model that several houses make together"
        case _:
            what = f"Counts, or rows made up from counts ({each['by']})"
    edited = f" and {len(each['results']) - 1} edited" if len(each["results"]) > 1 else ""
    revoked = "; its certificate was revoked" if each["revoked"] else ""
    return (
        f"{what}{edited}{of}{STATES[each['state']]}: {price}, by entry {each['entry']} of the ledger, "
        f"{each['time'][:10]}{revoked}."
    )


def _erased(stated: Mapping[str, Any]) -> list[str]:
    models = dict.fromkeys(each["name"] for each in stated["releases"] if each["what"] == "model" and each["results"])
    after = (
        "Deleting rows, now or later, changes nothing that was made before, and takes nothing back. What is "
        "said above stays true of it, and what is promised to all others stays too."
    )
    if not models:
        return [after]
    return [
        f"Models that were learnt from rows which were there then: {', '.join(models)}. {after}",
        "A model that never saw your rows is learnt from data registered without them, and takes the old one's "
        "place; that is a job of dpserve's as any other, paid from the same limit (docs/delete-a-person.md).",
    ]
