"""The sentences of a statement, derived from what the statement itself says was done: its plan, its schema's profiles,
its unit, relation, blocks and totals.

The issuer fills them in by `fill`, and every verifier derives them again by `check`: a statement whose words are not
those that follow from its plan is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from dpserve_verify.certificates import vouched
from dpserve_verify.certificates.releases import OUTSIDE, ReleaseKind, kinds_of, weighs_classes
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.declared import declared_of, own_kind
from dpserve_verify.privacy.drawing import is_wide
from dpserve_verify.privacy.events import Plan, RepeatAndSelect, plan_from_json
from dpserve_verify.privacy.made_from import SCHEMA, START, Source, Sum, sum_of

EDITION = 2  # of the words
Trust = Literal["central", "local", "two-aggregators", "institutions"]
Growth = Literal["fixed", "records", "person-total", "person-total-by-default", "each-block"]

TOGETHER = (
    "the promise is to each unit in each block; whoever stands in b blocks of the dataset has, for all that is ever "
    "released from it, b times the family's epsilon E at delta D (e^(b E) - 1) / (e^E - 1)"
)
PERSON = (
    "the rows of each person are bounded over all blocks that a job reads; so all that is ever released from the "
    "dataset keeps, for each person in however many blocks, the total for one person, and for whoever stands in one "
    "block alone the family's as well"
)
GROWTH: Mapping[Growth, str] = {
    "fixed": "the dataset cannot grow: the promise is over all of its rows",
    "records": (
        "if the dataset grows, each record stands in one block and keeps that block's total; several records of one "
        "person, in one block or in many, are not told to be one person's"
    ),
    "person-total": PERSON,
    "person-total-by-default": (
        "if the dataset grows, one total holds for one person over all of its blocks together: the ledger enters it at "
        "the first growth, as large as the family's total, unless a reasoned entry gives another one, or says that "
        "each block promises for itself alone"
    ),
    "each-block": TOGETHER,
}
CONVERSIONS = {  # by prices.BOUNDS: how an auditor gets epsilon from the listed mechanisms
    "pure": "epsilon = the sum of the pure figures of all releases",
    "renyi": "epsilon = rdp + log(1 - 1/order) - (log(delta) + log(order)) / (order - 1)",
    "gaussian": (
        "mu^2 = the sum of 1 / (noise_multiplier^2 - 4 / sensitivity^2) over all releases; "
        "delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)"
    ),
    "adaptive": (
        "delta = V(epsilon), V computed from the last release to the first, beginning with max(0, 1 - exp(x)); "
        "before a bounded-range release of e: V(x) = max over t in [0, e] of p V'(x - t) + (1 - p) V'(x - t + e), "
        "p = (exp(e) - exp(t)) / (exp(e) - 1); before any other release with a pure price e: "
        "V(x) = q V'(x - e) + (1 - q) V'(x + e), "
        "q = 1 / (1 + exp(-e)); V' is V after that release"
    ),
}
TRUST: Mapping[Trust, str] = {
    "central": "central: the platform sees the rows, the reader of the model does not",
    "local": "local: nobody but its owner sees a row; the platform sees one random report of each owner",
    "two-aggregators": (
        "two-aggregators: nobody but its owner sees a row; if one of the two aggregators is honest, nobody sees more "
        "than sums over all owners, with that one's whole noise"
    ),
    "institutions": (
        "institutions: each sees the rows that it keeps, and nobody else does; institutions bound contributions "
        "honestly; if one of the two aggregators is honest, nobody sees more than sums over all of them, with that "
        "one's whole noise"
    ),
}


def draws_of(trust_model: str) -> int:
    """Return how many times the noise that is priced is in every answer: two aggregators add it for institutions."""
    return 2 if trust_model.startswith("institutions:") else 1


ADVERSARY: Mapping[Trust, str] = {
    "central": "anyone with the model, this certificate and any other knowledge, without bound on computation",
    "local": (
        "anyone with every report, the model, this certificate and any other knowledge, the platform and all other "
        "owners included, without bound on computation"
    ),
    "two-aggregators": (
        "anyone with the model, this certificate and any other knowledge, the platform, all other owners and one of "
        "the two aggregators included; sealed and split shares are kept from it by cryptography (HPKE), all else holds "
        "without bound on computation"
    ),
    "institutions": (
        "anyone with every noisy sum, the model, this certificate and any other knowledge, the platform, all other "
        "institutions and one of the two aggregators included; sealed and split shares are kept from it by "
        "cryptography (HPKE), all else holds without bound on computation"
    ),
}
PUBLIC_SCHEMA = "what the schema says, and everything else that was public before any row was read"
NOT_COVERED = (
    "who else holds or released the same records outside this ledger",
    "correlations between units of privacy: a unit's own records are protected, not what others' records reveal",
    "side channels of the machine that trained the model, and the accountant's own keys and disks",
    "an operator who rewrites and signs the whole ledger anew, where nobody else keeps its checkpoints",
)
NOT_COVERED_OF_QUERY = (
    "what a query ties together: nothing shows that each row it answers is about one unit alone; the steward says so, "
    "for the reason under queries"
)
NOT_COVERED_OF_START = (
    "what the releases say that it began from: they have prices of their own (madeFrom), and what one who has this has "
    "of the same people stands under together"
)
NOT_COVERED_MORE: Mapping[Trust, Sequence[str]] = {
    "central": (),
    "local": (
        "owners who lie: a report moves the model by no more than any other report, but nothing shows that it is "
        "honest",
        "reports that somebody with other owners' invitations sends in their place",
        "the owners' own machines and programs, by which reports are drawn",
    ),
    "two-aggregators": (
        "both aggregators together: who has both shares of an owner has that owner's statistic",
        "owners who lie: what an owner sends is in shares, and nobody can see whether it is a statistic at all; one "
        "owner can move the model at will",
        "who took part: the promise compares sums with and without an owner's contribution, and participation is "
        "public",
        "the owners' own machines and programs, by which shares are made",
    ),
    "institutions": (
        "both aggregators together: who has both shares of an institution has its sums",
        "an institution that does not bound what one of its units contributes: the promise to its own units is then a "
        "weaker one, that to all others stays",
        "institutions that lie: what one sends is in shares, and nobody can see whether it is a sum of rows at all; "
        "one can move the model at will",
        "people whose records several institutions keep: the promise is to a unit at one institution",
        "which institutions took part in which sum: it is public",
        "the institutions' own machines and programs, by which sums and shares are made",
    ),
}


@dataclass(frozen=True)
class Facts:
    """What the sentences of a statement follow from: all of it stands in the statement. `part`: of the rows that were
    read; `one_release`: a statement of counts, and no model; `public_rows`: whether owners were asked about coordinates
    of public rows; `queried`: whether rows came by a query, and `reasoned`: one that a steward answers for by a reason;
    `parameters`: of the job that made a model; `version`: of dpserve.
    """

    plan: Plan
    bound: str | None
    epsilon: Decimal
    delta: Decimal
    trust: Trust
    growth: Growth
    sources: tuple[Source, ...]
    part: str
    one_release: bool
    public_rows: bool
    queried: bool
    reasoned: bool
    parameters: Mapping[str, Any]
    version: str

    @property
    def profiles(self) -> list[Source]:
        """List the profiles that the schema was refined from."""
        return [source for source in self.sources if source.through == SCHEMA]

    @property
    def starts(self) -> list[Source]:
        """List what boosting began from was made from."""
        return [source for source in self.sources if source.through == START]

    @property
    def sum(self) -> Sum:
        """Add up this claim and what it was made from."""
        return sum_of(self.epsilon, self.delta, self.part, self.sources)

    @property
    def word(self) -> str:
        """Say by whose word the price is, where a program read rows. InputError as `vouched.word_of`."""
        return vouched.word_of(self.plan, str(self.parameters.get("admitted_by") or ""))


def facts_of(predicate: Mapping[str, Any]) -> Facts:
    """Read the facts of a statement: a certificate's, or one of worth or of a profile. InputError where its plan has no
    form.
    """
    claim, of_model = predicate["claim"], "dataset" in predicate
    rows = predicate["dataset"] if of_model else predicate["rows"]
    runs = [{key: value for key, value in run.items() if key != "library"} for run in predicate["mechanisms"]]
    trust = next((model for model in TRUST if claim["trustModel"].startswith(f"{model}:")), None)
    if trust is None:
        raise InputError(f"trustModel={claim['trustModel']:.60}: must begin with one of {', '.join(TRUST)}")
    return Facts(
        plan_from_json(runs),
        claim.get("bound"),
        parse_decimal(claim["epsilon"]),
        parse_decimal(claim["delta"]),
        trust,
        _growth(predicate, trust, rows),
        tuple(map(Source.from_json, rows.get("madeFrom") or ())),
        str(rows.get("part", "training")),
        not of_model,
        of_model and predicate["public"]["hyperparameters"].get("public_rows") is not None,
        "queries" in rows,
        "queries" in rows and any(query.get("reason") for query in rows["queries"] or [{"reason": "too many to list"}]),
        predicate["public"]["hyperparameters"] if of_model else {},
        str(predicate["implementation"].get("dpserve", "")),
    )


def _growth(predicate: Mapping[str, Any], trust: Trust, rows: Mapping[str, Any]) -> Growth:
    """Derive what growth does to the promise. A statement of counts does not state accounts; what it says of them must
    go with its unit.
    """
    claim = predicate["claim"]
    if trust != "central" or claim["relation"] == "replace-one" or (rows.get("version") or 1) > 1:
        return "fixed"
    if claim["unit"]["bounding"].startswith("none needed"):
        return "records"
    state = (rows.get("growth") or {}).get("state")
    if "dataset" in predicate:
        if rows.get("person") is not None:
            return "person-total"
        # a job of before a growth names no blocks: its issuer says that others came, each for itself
        by_default = rows.get("blocks") is None and state != "each-block"
        return "person-total-by-default" if by_default else "each-block"
    in_a_block: str = claim["unit"]["name"]
    if in_a_block.endswith(" in a block") or state == "each-block":
        return "each-block"
    return "person-total" if state == "person-total" else "person-total-by-default"


def preprocessing_of(facts: Facts) -> str:
    """Say where cut points and categories come from, and what of it was learnt from rows."""
    sentence = _cuts_of(facts)
    if ReleaseKind.START in kinds_of(facts.plan):
        model = "a model" if facts.starts else "a public model"
        sentence += f"; boosting begins from {model}, whose sha256 is public.hyperparameters.start"
    if facts.starts:
        what = "it was" if ReleaseKind.START in kinds_of(facts.plan) else "its public rows were"
        sentence += f"; {what} made from releases that are not in this price: {_list(facts.starts)}"
    if any(release.purpose in OUTSIDE or own_kind(release.purpose) for release, _ in facts.plan.runs):
        sentence += (
            "; the learner is a text of others that ran without rows: public.hyperparameters has its sha256 (code), "
            "who wrote it (author) and who admitted it (admitted_by"
        )
        sentence += ", by the ledger's entry admission)" if "admission" in facts.parameters else ")"
    sentence += vouched.PREPROCESSING.format(word=facts.word) if facts.word else ""
    if facts.queried:
        sentence += "; rows were made by a query, which stands under dataset.queries"
    if facts.profiles:
        sentence += (
            f"; the schema itself was refined from noisy counts of rows, not in this price: {_list(facts.profiles)}"
        )
    return sentence


def _cuts_of(facts: Facts) -> str:
    kinds, schema = kinds_of(facts.plan), "the schema" if facts.profiles else "the public schema"
    weighed = "; classes weigh by the shares that the schema declares" if weighs_classes(facts.plan) else ""
    if ReleaseKind.REPORT in kinds:
        fitted = (
            "; coordinates fitted to public rows without labels, whose sha256 is under public.hyperparameters"
            if facts.public_rows
            else ""
        )
        return f"cut points and categories of {schema}{fitted}; nothing was fitted to the owners' rows"
    if ReleaseKind.TUNING in kinds:
        return (
            f"categories of {schema}; cut points and weights of classes as each run's setting says, of {schema} or "
            "found by noisy counts of rows, which the price of the runs covers"
        )
    if kinds & {ReleaseKind.CUT_POINTS, ReleaseKind.ORDERS}:
        declared = "categories" if ReleaseKind.CUT_POINTS in kinds else "cut points and categories"
        named = ((ReleaseKind.CUT_POINTS, "cut points of numbers"), (ReleaseKind.ORDERS, "the order of categories"))
        learnt = " and ".join(words for kind, words in named if kind in kinds)
        return (
            f"{declared} of {schema}; {learnt} found by noisy counts of rows, which are among the "
            f"mechanisms and in the price{weighed}"
        )
    if facts.profiles:
        return f"cut points and categories of {schema}; this job fitted none to rows{weighed}"
    return f"cut points and categories of {schema}; nothing was fitted to rows{weighed}"


def _list(sources: Sequence[Source]) -> str:
    return "; ".join(source.words for source in sources)


def sums_of(facts: Facts) -> dict[str, Any]:
    """State what one who has this release has of one unit, where it was made from others: of its own people under
    `together`, of other people under `apart`.
    """
    found = facts.sum

    def spell(epsilon: Decimal, delta: Decimal) -> dict[str, str]:
        return {"epsilon": decimal_string(epsilon), "delta": decimal_string(delta)}

    others = [{"datasets": [*each.datasets], **spell(each.epsilon, each.delta)} for each in found.apart]
    own = {} if found.same is None else {"together": {**spell(*found.same), "sum": found.words}}
    return own | ({"apart": others} if others else {})


def library_of(facts: Facts) -> list[str]:
    """Name the library that draws each run of the plan."""
    dpserve, libraries = f"dpserve {facts.version}", list[str]()
    for release, _ in facts.plan.runs:
        if release.mechanism == vouched.MECHANISM:
            libraries.append(vouched.OWN)
            continue
        wide = is_wide(release)
        if facts.trust == "local":
            libraries.append("dpserve: integer coins from the operating system, by each owner's program")
        elif facts.trust in ("two-aggregators", "institutions"):
            libraries.append("dpserve: exact sampler, the whole noise by each of two aggregators")
        elif wide is None:
            libraries.append(f"{dpserve}: exact samplers")
        else:
            libraries.append(f"{dpserve}: exact sampler")
    return libraries


def not_covered_of(facts: Facts) -> list[str]:
    """List what the promise does not speak of."""
    first = PUBLIC_SCHEMA
    if facts.profiles:
        first = (
            "what the schema says but for what its profiles counted, which has a price of its own, and everything else "
            "that was public before any row was read"
        )
    start = [NOT_COVERED_OF_START] if facts.starts else []
    query = [NOT_COVERED_OF_QUERY] if facts.reasoned else []
    program = [vouched.NOT_COVERED.format(word=facts.word)] if facts.word else []
    declared = declared_of((release.purpose for release, _ in facts.plan.runs), facts.parameters)
    return [first, *start, *program, *declared, *NOT_COVERED, *query, *NOT_COVERED_MORE[facts.trust]]


def accounting_of(facts: Facts) -> dict[str, Any]:
    """Say how releases add up, and whether tuning and preprocessing are in the price."""
    tuned = any(isinstance(release.event, RepeatAndSelect) for release, _ in facts.plan.runs)
    covers = {"coversTuning": tuned, "coversPreprocessing": not facts.sources}
    if facts.one_release:
        parts = (
            "no rows are kept aside: it adds to all else that was released of these rows"
            if facts.part == "all"
            else "the parts of a family are disjoint, and their budgets do not add up"
        )
        return {"composition": f"one release; {parts}", **covers}
    return {
        "composition": "pure: sum; Renyi: sum at each order; valid for releases chosen adaptively",
        **covers,
        "tuning": "a private selection among settings, in the price"
        if tuned
        else "none: hyper-parameters are public defaults or were given with the request, before any row was read",
    }


def derive(predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Derive a statement's sentences from its facts: each by where it stands in the predicate, keys joined by dots.

    InputError where the plan asks what is not on the closed list, or nobody is known to draw it.
    """
    facts = facts_of(predicate)
    rows = "rows" if facts.one_release else "dataset"
    words = {
        **{f"accounting.{name}": sentence for name, sentence in accounting_of(facts).items()},
        "claim.conversion": CONVERSIONS.get(facts.bound or "", predicate["claim"]["conversion"]),
        "claim.trustModel": TRUST[facts.trust],
        "claim.adversary": ADVERSARY[facts.trust],
        f"{rows}.growth": {"state": facts.growth, "promise": GROWTH[facts.growth]},
        "notCovered": not_covered_of(facts),
    }
    if not facts.one_release:
        words["preprocessing"] = preprocessing_of(facts)
        words["public.unprotected"] = _public_facts(facts)
        words |= vouched.words_of(facts.word)
        if predicate["dataset"].get("blocks") is not None:
            words["dataset.blocks.together"] = PERSON if predicate["dataset"].get("person") is not None else TOGETHER
        if predicate["dataset"].get("person") is not None:
            words["dataset.person.promise"] = PERSON
    words |= {f"{rows}.{name}": stated for name, stated in sums_of(facts).items()}
    for at, library in enumerate(library_of(facts)):
        words[f"mechanisms.{at}.library"] = library
    return words


def _public_facts(facts: Facts) -> list[str]:
    return [
        "schema",
        "hyper-parameters",
        "plan",
        "time of the ledger's entries",
        *([] if facts.trust == "central" else ["who answered, and when"]),
        *(["the public rows, which are named by their digest"] if facts.public_rows else []),
    ]


def fill(predicate: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a predicate by its sentences and the edition of the words. InputError as `derive`."""
    body: dict[str, Any] = {**predicate, "words": EDITION}
    body["mechanisms"] = [dict(run) for run in predicate["mechanisms"]]
    for path, sentence in derive(predicate).items():
        *above, name = path.split(".")
        place: Any = body
        for step in above:
            at: Any = int(step) if isinstance(place, list) else step
            if isinstance(place, dict):
                place[at] = dict(place.get(at, {})) if not isinstance(place.get(at), list) else place[at]
            place = place[at]
        place[name] = sentence
    return body


def check(predicate: Mapping[str, Any]) -> None:
    """Refuse a statement whose words are not those that follow from what was done. CertificateInvalid names the
    sentence.
    """
    vouched.check_randomness(predicate["randomness"])
    try:
        derived = derive(predicate)
    except InputError as error:
        raise CertificateInvalid(f"words: cannot be derived from the plan ({error.message})") from error
    for path, sentence in derived.items():
        if _at(predicate, path) != sentence:
            raise CertificateInvalid(f"{path}: says something else than follows from the plan and the schema")
    rows = "dataset" if "dataset" in predicate else "rows"
    for name in ("together", "apart"):
        if name in predicate[rows] and f"{rows}.{name}" not in derived:
            raise CertificateInvalid(f"{name}: {predicate[rows][name]!r:.60} is of no release")


def _at(predicate: Mapping[str, Any], path: str) -> Any:
    place: Any = predicate
    for step in path.split("."):
        inside = place if isinstance(place, Mapping) else {}
        place = place[int(step)] if isinstance(place, list) else inside.get(step)
    return place
