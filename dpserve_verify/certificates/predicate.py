"""The form of a certificate: an in-toto Statement v1 and what its predicate states. Strict: no field more, none less.

The published JSON Schema (docs/certificate.schema.json) is made from these classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from dpserve_verify.errors import CertificateInvalid
from dpserve_verify.formats import canonical, forms
from dpserve_verify.formats.forms import Form, Limits, NotOfTheForm, form_field
from dpserve_verify.privacy import made_from

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://dpserve/privacy-certificate/v1"
STATEMENT_LIMIT = 1 << 19
MAX_INDEX = canonical.MAX_INTEGER

Text = str  # the statement's own limit is the only one
Figure = Annotated[str, Limits(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=40)]
Signed = Annotated[str, Limits(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=40)]
Hex = Annotated[str, Limits(pattern=r"^[0-9a-f]{64}$")]
Index = Annotated[int, Limits(low=0, high=MAX_INDEX)]
Count = Annotated[int, Limits(low=1, high=MAX_INDEX)]


class RenyiFigure(Form):
    """Renyi divergence of all releases together, at one order."""

    order: Figure
    epsilon: Figure


class UnitForm(Form):
    """Who is protected."""

    name: Text = form_field(about="what one unit of privacy is called")
    contributions: Count = form_field(about="the most records of one unit that are used")
    bounding: Text = form_field(about="how a unit's records are bounded to that number")


class ClaimForm(Form):
    """What is promised."""

    variant: Literal["pure", "approximate"] = form_field(about="pure where delta is 0")
    epsilon: Figure = form_field(about="rounded up")
    delta: Figure
    bound: Text = form_field(about="which bound gives epsilon: pure, renyi, gaussian or adaptive")
    pure: Figure | None = form_field(about="the sum of the pure figures; null where a release has none")
    rdp: list[RenyiFigure] = form_field(
        about="the Renyi curve, at the orders that the filter adds up", limits=Limits(longest=256)
    )
    conversion: Text = form_field(about="how epsilon follows from the mechanisms")
    order: Figure | None = form_field(about="the Renyi order of the conversion; null for other bounds")
    relation: Literal["add-remove", "replace-one"] = form_field(about="which two datasets are neighbours")
    unit: UnitForm
    trust_model: Text = form_field(key="trustModel", about="who sees the rows")
    adversary: Text = form_field(about="against whom the promise holds")
    release: Text = form_field(about="what is released, and how often")


class EpsilonEvent(Form):
    """A release whose losses lie in an interval of length epsilon, or any epsilon-DP release."""

    type: Literal["bounded-range", "pure-dp"]
    epsilon: Figure


class GaussianEvent(Form):
    """Gaussian noise; `noise_multiplier` is sigma over the L2 sensitivity."""

    type: Literal["gaussian"]
    noise_multiplier: Figure


class BinomialRuns(Form):
    """A truncated negative binomial number of runs."""

    type: Literal["truncated-negative-binomial"]
    shape: Signed
    gamma: Figure


class PoissonRuns(Form):
    """A Poisson number of runs."""

    type: Literal["poisson"]
    mean: Figure


Simple = EpsilonEvent | GaussianEvent
SimpleEvent = Annotated[Simple, Limits(tag="type")]


class RunForm(Form):
    """Releases of one run of a private selection."""

    event: SimpleEvent
    count: Count


class SelectionEvent(Form):
    """Private selection: the best of a random number of runs, each of which would release `runs`."""

    type: Literal["repeat-and-select"]
    distribution: Annotated[BinomialRuns | PoissonRuns, Limits(tag="type")]
    runs: list[RunForm] = form_field(limits=Limits(shortest=1))


EventForm = Annotated[Simple | SelectionEvent, Limits(tag="type")]


class MechanismForm(Form):
    """A run of equal releases."""

    purpose: Text
    mechanism: Text = form_field(about="type of the mechanism")
    norm: Text = form_field(about="how the sensitivity is measured")
    sensitivity: Figure
    event: EventForm = form_field(about="what one release costs")
    count: Count
    library: Text = form_field(about="what draws the noise")


class AccountingForm(Form):
    """How the releases add up."""

    composition: Text
    covers_tuning: bool = form_field(key="coversTuning", about="whether a choice of hyper-parameters was paid for")
    covers_preprocessing: bool = form_field(key="coversPreprocessing")
    tuning: Text | None = form_field(default=None, about="how the hyper-parameters came about")


class BudgetForm(Form):
    """A total budget."""

    epsilon: Figure
    delta: Figure
    outside: Figure | None = form_field(
        default=None, about="of delta, what is set apart for releases made elsewhere; no filter counts on it"
    )


class SpentForm(Form):
    """A family's sums after this job was reserved, jobs of others included."""

    pure: Figure
    unbounded: Index = form_field(about="how many jobs have no pure figure")
    rdp: dict[str, Figure]
    epsilon: Figure = form_field(about="the sums converted at the family's delta")
    left: Figure = form_field(about="epsilon that is left of the total")


LARGEST = "the largest total epsilon that was ever in force; `budget` is the present one"
QUERIES = form_field(
    default=None, about="only of rows that a query answered: by which; null where they are too many to list here"
)
WHOLE = form_field(
    default=None, about="only where this model took the whole total: nothing else was or will be admitted"
)


class FamilyForm(Form):
    """People who share one budget, and where it stood."""

    family: Text
    budget: BudgetForm
    largest: Figure = form_field(about=LARGEST)
    whole: Literal[True] | None = WHOLE
    after: SpentForm


class BlocksForm(Form):
    """Of a dataset that grows, the blocks that the model was learnt from: its job is charged to each."""

    first: Count
    last: Count
    of: Count = form_field(about="how many blocks the dataset had when this was written")
    tightest: Count = form_field(about="the block with the least left, whose account this certificate states")
    commitments: Hex = form_field(about="sha256 over the commitments of these blocks, in order, each on a line")
    together: Text = form_field(about="what the promise comes to for who stands in several blocks")


class PersonForm(Form):
    """Of a dataset that may grow, the total for one person over all blocks, and where it stood."""

    budget: BudgetForm
    largest: Figure | None = form_field(default=None, about=LARGEST)
    after: SpentForm
    promise: Text = form_field(about="what the two totals promise, of a block and of all of them")


class QueryForm(Form):
    """A query of a database that rows were read by."""

    sha256: Hex = form_field(about="of its text; the steward has the text, which may name people")
    reason: Text | None = form_field(
        default=None, about="only where the query does not show it: why each of its rows is about one person alone"
    )
    blocks: Count = form_field(about="of how many of the blocks that were read; 1 where the dataset has none")


class WeightForm(Form):
    """What says what a record weighs: it counts as its part of the most, to the next of `parts`."""

    column: Text
    most: Figure = form_field(about="the most that one record weighs")
    parts: Count = form_field(about="of the most weight; the mechanisms' sensitivities are in such parts")


WEIGHT = form_field(default=None, about="only where records count by their weight: at most one record each")


class PricedForm(Form):
    """Equal releases, by what one of them costs."""

    event: EventForm
    count: Count


class SourceForm(Form):
    """A release that this one was made from: who has this has what that gave away, too."""

    ledger: Text = form_field(about="origin of the log that reserved it")
    reservation: Index = form_field(about="index of its `reserved` entry: with the ledger, the release's name")
    entry: Index = form_field(about="index of the entry that binds its statement")
    statement: Hex = form_field(about="sha256 of that statement")
    kind: Literal["model", "profile"] = form_field(about="of a profile synthetic rows are drawn, too")
    through: Literal["schema", "start"] = form_field(
        about="schema: its cut points and categories follow from it; start: what boosting began from was made from it"
    )
    dataset: Text = form_field(about="whose rows it read")
    families: list[Text] = form_field(about="whose budgets it was charged to", limits=Limits(shortest=1))
    part: Literal["holdout", "training", "all"] = form_field(about="which of its rows")
    epsilon: Figure = form_field(about="what was claimed of it alone, which is not in this claim")
    delta: Figure
    events: list[PricedForm] = form_field(
        about="what its own releases cost, for who charges it elsewhere", limits=Limits(shortest=1)
    )
    same_people: bool = form_field(key="samePeople", about="whether it read people of these families")


class TogetherForm(Form):
    """What one who has this release has of one unit: this claim and those of what it was made from, summed."""

    epsilon: Figure
    delta: Figure
    sum: Text = form_field(about="how they add up")


class ApartForm(Form):
    """What it holds of one unit of other people."""

    datasets: list[Text] = form_field(about="whose rows were read", limits=Limits(shortest=1))
    epsilon: Figure
    delta: Figure


class GrowthForm(Form):
    """What becomes of the promise where rows are appended to the dataset."""

    state: Literal["fixed", "records", "person-total", "person-total-by-default", "each-block"]
    promise: Text


MADE_FROM = form_field(
    default=None,
    key="madeFrom",
    about="only where it was made from other releases: each of them, those that these were made from included",
    limits=Limits(shortest=1, longest=made_from.MOST),
)
TOGETHER = form_field(default=None, about="only where one of these is of the same people: it stands before the claim")
APART = form_field(
    default=None, about="only where one of these is of other people: group by group", limits=Limits(shortest=1)
)
GROWTH = form_field(default=None, about="what becomes of the promise where the dataset grows")
WORDS = form_field(about="edition of the words: they follow from the plan, and verifiers derive them again")


class DatasetForm(Form):
    """What the model was learnt from. Its first family's budget; all of them in `families` where there are several."""

    name: Text
    uuid: Text
    family: Text = form_field(about="who shares the budget: refreshed, filtered and joined copies of the rows")
    version: Count = form_field(about="its ordinal among the datasets of that family")
    families: list[FamilyForm] | None = form_field(default=None, about="every family, where the rows belong to several")
    commitment: Hex = form_field(about="HMAC-SHA256 over the packed rows; the accountant holds its key")
    schema_digest: Hex = form_field(key="schema", about="sha256 of the public schema file")
    format: Text | None = form_field(
        default="",
        about="only where its tables are not written as usual: how they are, by the schema, a JSON object as text; "
        "null where that is too long or was not at hand",
    )
    records: Count | None = form_field(default=None, about="only where the number is public: under replace-one")
    blocks: BlocksForm | None = form_field(default=None, about="only of a dataset that grows")
    person: PersonForm | None = form_field(default=None, about="only where one person has a total over all blocks")
    queries: list[QueryForm] | None = QUERIES
    made_from: list[SourceForm] | None = MADE_FROM
    together: TogetherForm | None = TOGETHER
    apart: list[ApartForm] | None = APART
    growth: GrowthForm | None = GROWTH
    weight: WeightForm | None = WEIGHT
    budget: BudgetForm
    largest: Figure = form_field(about=LARGEST)
    whole: Literal[True] | None = WHOLE
    after: SpentForm


class NumericDomain(Form):
    """A number with its cut points."""

    name: Text
    type: Literal["numeric"]
    low: Text | None = form_field(about="first cut point; values below are as if they were it")
    high: Text | None = form_field(about="last cut point")
    cuts: Index


class CalendarDomain(Form):
    """A date (cut points in days), a moment or a time of day (in seconds) with its cut points as ISO 8601."""

    name: Text
    type: Literal["date", "datetime", "time"]
    low: Text | None = form_field(about="first cut point; values before are as if they were it")
    high: Text | None = form_field(about="last cut point")
    cuts: Index


class CategoricalDomain(Form):
    """One of publicly known categories."""

    name: Text
    type: Literal["categorical"]
    count: Index = form_field(about="how many categories are publicly known")
    values: list[Text] | None = form_field(about="the categories, where they are few")


class BooleanDomain(Form):
    """True or false."""

    name: Text
    type: Literal["boolean"]


Domain = Annotated[NumericDomain | CalendarDomain | CategoricalDomain | BooleanDomain, Limits(tag="type")]


class RangeForm(Form):
    """The public range of a number that is answered."""

    low: Text = form_field(about="targets below counted as it in training, and no answer is below")
    high: Text = form_field(about="the same of those above")


class AncestorForm(Form):
    """A certified model that a derived one came from."""

    entry: Index = form_field(about="index of its `issued` or `derived` entry")
    statement: Hex = form_field(about="sha256 of its statement")
    ensemble: Hex = form_field(about="sha256 of its ensemble.json")


class EditForm(Form):
    """One edit of released numbers."""

    at: Text = form_field(about="when, by the clock of who edited")
    by: Text
    why: Text
    feature: Text
    what: Text = form_field(about="what was done, a JSON object as text")


class PublicForm(Form):
    """What was public before any row was read."""

    learner: Text
    ensemble: Hex = form_field(about="sha256 of ensemble.json, the released numbers")
    hyperparameters: dict[str, Text | int | bool | None]
    target: Text | None = form_field(
        default=None, about="what is answered, where the dataset has several targets to choose from"
    )
    inputs: list[Text] | None = form_field(about="names of the features; null where they are too many to list")
    domains: list[Domain] | None = form_field(about="what the schema says of each feature, as above")
    classes: list[Text] | None = form_field(about="null where a number is answered")
    range: RangeForm | None = form_field(default=None, about="only of a model that answers a number")
    unprotected: list[Text] = form_field(about="what is published without noise")
    supersedes: list[AncestorForm] | None = form_field(
        default=None,
        about="only of a model edited after its release: what it came from, released first",
        limits=Limits(shortest=1),
    )
    edits: list[EditForm] | None = form_field(
        default=None, about="only of such a model: every edit since the release; null where they are too many to list"
    )


class RandomnessForm(Form):
    """Where the noise came from."""

    source: Text
    seeded: Literal[False] | None = form_field(
        default=None,
        about="left out where the noise is a program's own",
        limits=Limits(refusal="must be false: a seeded run is not private"),
    )


class LedgerForm(Form):
    """Where the job was reserved before any row was read."""

    origin: Text
    reservation: Index = form_field(about="index of the `reserved` entry")
    leaf: Hex = form_field(about="RFC 6962 leaf hash of that entry")


class Predicate(Form):
    """A privacy certificate."""

    claim: ClaimForm
    mechanisms: list[MechanismForm]
    accounting: AccountingForm
    dataset: DatasetForm
    public: PublicForm
    preprocessing: Text
    randomness: RandomnessForm
    implementation: dict[str, Text] = form_field(about="versions, digest of all that was installed, rounding")
    ledger: LedgerForm
    not_covered: list[Text] = form_field(key="notCovered", about="what this promise does not speak of")
    words: Literal[2] = WORDS


class DigestForm(Form):
    """The digest of a file."""

    sha256: Hex


class SubjectForm(Form):
    """The ONNX file."""

    name: Text
    digest: DigestForm


class StatementForm(Form):
    """An in-toto Statement v1 about exactly one file."""

    type: Literal["https://in-toto.io/Statement/v1"] = form_field(key="_type")
    subject: list[SubjectForm] = form_field(limits=Limits(shortest=1, longest=1))


class Statement(StatementForm):
    """An in-toto Statement v1 about exactly one ONNX file."""

    predicate_type: Literal["https://dpserve/privacy-certificate/v1"] = form_field(key="predicateType")
    predicate: Predicate


AnyForm = TypeVar("AnyForm", bound=Form)


def read_statement(payload: bytes) -> tuple[dict[str, Any], Statement]:
    """Read exact signed bytes: what they say, as JSON and by name. CertificateInvalid names the first thing wrong."""
    return read_as(payload, Statement)


def read_as(payload: bytes, form: type[AnyForm]) -> tuple[dict[str, Any], AnyForm]:
    """Read a statement of any kind by its form."""
    try:
        body: Any = canonical.decode_canonical(payload, STATEMENT_LIMIT)
        return body, form.read(body)
    except canonical.CanonicalError as error:
        raise CertificateInvalid(f"statement: {error.message}") from error
    except NotOfTheForm as error:
        where = ".".join(map(str, error.place)) or "statement"
        raise CertificateInvalid(f"{where:.99}: {error.message:.200}") from None


def json_schema() -> dict[str, Any]:
    """Return the published schema of the statement."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{PREDICATE_TYPE}/schema.json"}
    return {**head, **forms.json_schema(Statement)}


if __name__ == "__main__":
    import json

    print(json.dumps(json_schema(), indent=2))
