"""The form of a certificate: an in-toto Statement v1 and what its predicate states. Strict: no field more, none less.

The published JSON Schema (docs/certificate.schema.json) is made from these classes. `words`, and what belongs to them,
is absent from certificates of commit 44b969b.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from accountant.errors import CertificateInvalid
from accountant.formats import canonical

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://dpserve/privacy-certificate/v1"
STATEMENT_LIMIT = 1 << 19
MAX_INDEX = canonical.MAX_INTEGER

Text = str  # the statement's own limit is the only one
Figure = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", max_length=40)]
Signed = Annotated[str, StringConstraints(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$", max_length=40)]
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Index = Annotated[int, Field(ge=0, le=MAX_INDEX)]
Count = Annotated[int, Field(ge=1, le=MAX_INDEX)]


class Form(BaseModel):
    """A part of the statement: exactly its fields, none of them converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RenyiFigure(Form):
    """Renyi divergence of all releases together, at one order."""

    order: Figure
    epsilon: Figure


class UnitForm(Form):
    """Who is protected."""

    name: Text = Field(description="what one unit of privacy is called")
    contributions: Count = Field(description="the most records of one unit that are used")
    bounding: Text = Field(description="how a unit's records are bounded to that number")


class ClaimForm(Form):
    """What is promised."""

    variant: Literal["pure", "approximate"] = Field(description="pure where delta is 0")
    epsilon: Figure = Field(description="rounded up")
    delta: Figure
    bound: Text = Field(description="which bound gives epsilon: pure, renyi, gaussian or adaptive")
    pure: Figure | None = Field(description="the sum of the pure figures; null where a release has none")
    rdp: list[RenyiFigure] = Field(max_length=256, description="the Renyi curve, at the orders that the filter adds up")
    conversion: Text = Field(description="how epsilon follows from the mechanisms")
    order: Figure | None = Field(description="the Renyi order of the conversion; null for other bounds")
    relation: Literal["add-remove", "replace-one"] = Field(description="which two datasets are neighbours")
    unit: UnitForm
    trust_model: Text = Field(alias="trustModel", description="who sees the rows")
    adversary: Text = Field(description="against whom the promise holds")
    release: Text = Field(description="what is released, and how often")


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
SimpleEvent = Annotated[Simple, Field(discriminator="type")]


class RunForm(Form):
    """Releases of one run of a private selection."""

    event: SimpleEvent
    count: Count


class SelectionEvent(Form):
    """Private selection: the best of a random number of runs, each of which would release `runs`."""

    type: Literal["repeat-and-select"]
    distribution: Annotated[BinomialRuns | PoissonRuns, Field(discriminator="type")]
    runs: list[RunForm] = Field(min_length=1)


EventForm = Annotated[Simple | SelectionEvent, Field(discriminator="type")]


class MechanismForm(Form):
    """A run of equal releases."""

    purpose: Text
    mechanism: Text = Field(description="type of the mechanism")
    norm: Text = Field(description="how the sensitivity is measured")
    sensitivity: Figure
    event: EventForm = Field(description="what one release costs")
    count: Count
    library: Text = Field(description="what draws the noise")


class AccountingForm(Form):
    """How the releases add up."""

    composition: Text
    covers_tuning: bool = Field(alias="coversTuning", description="whether a choice of hyper-parameters was paid for")
    covers_preprocessing: bool = Field(alias="coversPreprocessing")
    tuning: Text | None = Field(None, description="how the hyper-parameters came about")


class BudgetForm(Form):
    """A total budget."""

    epsilon: Figure
    delta: Figure


class SpentForm(Form):
    """A family's sums after this job was reserved, jobs of others included."""

    pure: Figure
    unbounded: Index = Field(description="how many jobs have no pure figure")
    rdp: dict[str, Figure]
    epsilon: Figure = Field(description="the sums converted at the family's delta")
    left: Figure = Field(description="epsilon that is left of the total")


LARGEST = "the largest total epsilon that was ever in force; `budget` is the present one"
QUERIES = Field(
    None, description="only of rows that a query answered: by which; null where they are too many to list here"
)
WHOLE = Field(None, description="only where this model took the whole total: nothing else was or will be admitted")


class FamilyForm(Form):
    """People who share one budget, and where it stood."""

    family: Text
    budget: BudgetForm
    largest: Figure = Field(description=LARGEST)
    whole: Literal[True] | None = WHOLE
    after: SpentForm


class BlocksForm(Form):
    """Of a dataset that grows, the blocks that the model was learnt from: its job is charged to each."""

    first: Count
    last: Count
    of: Count = Field(description="how many blocks the dataset had when this was written")
    tightest: Count = Field(description="the block with the least left, whose account this certificate states")
    commitments: Hex = Field(description="sha256 over the commitments of these blocks, in order, each on a line")
    together: Text = Field(description="what the promise comes to for who stands in several blocks")


class PersonForm(Form):
    """Of a dataset that may grow, the total for one person over all blocks, and where it stood."""

    budget: BudgetForm
    largest: Figure | None = Field(None, description=LARGEST)
    after: SpentForm
    promise: Text = Field(description="what the two totals promise, of a block and of all of them")


class QueryForm(Form):
    """A query of a database that rows were read by."""

    sha256: Hex = Field(description="of its text; the steward has the text, which may name people")
    reason: Text | None = Field(
        None, description="only where the query does not show it: why each of its rows is about one person alone"
    )
    blocks: Count = Field(description="of how many of the blocks that were read; 1 where the dataset has none")


class RefinedForm(Form):
    """A profile of rows that the schema was refined from: whose cut points and categories follow from its counts."""

    entry: Index = Field(description="index of its `profiled` entry")
    dataset: Text = Field(description="whose rows were counted")
    part: Literal["holdout", "training", "all"] = Field(description="which of its rows")
    epsilon: Figure = Field(description="what was claimed of it, which is not in this claim")
    delta: Figure
    same_people: bool = Field(alias="samePeople", description="whether it counted people of these families")


class TogetherForm(Form):
    """What one who has this release and the schema has of one unit: this claim and those of its profiles, summed."""

    epsilon: Figure
    delta: Figure
    sum: Text = Field(description="how they add up")


class GrowthForm(Form):
    """What becomes of the promise where rows are appended to the dataset."""

    state: Literal["fixed", "records", "person-total", "person-total-by-default", "each-block"]
    promise: Text


REFINED = Field(None, min_length=1, description="only where the schema was refined from profiles of rows")
TOGETHER = Field(None, description="only where one of these profiles is of the same people")
GROWTH = Field(None, description="what becomes of the promise where the dataset grows")
WORDS = Field(None, description="edition of the words: they follow from the plan, and verifiers derive them again")


class DatasetForm(Form):
    """What the model was learnt from. Its first family's budget; all of them in `families` where there are several."""

    name: Text
    uuid: Text
    family: Text = Field(description="who shares the budget: refreshed, filtered and joined copies of the rows")
    version: Count = Field(description="its ordinal among the datasets of that family")
    families: list[FamilyForm] | None = Field(None, description="every family, where the rows belong to several")
    commitment: Hex = Field(description="HMAC-SHA256 over the packed rows; the accountant holds its key")
    schema_digest: Hex = Field(alias="schema", description="sha256 of the public schema file")
    records: Count | None = Field(None, description="only where the number is public: under replace-one")
    blocks: BlocksForm | None = Field(None, description="only of a dataset that grows")
    person: PersonForm | None = Field(None, description="only where one person has a total over all blocks")
    queries: list[QueryForm] | None = QUERIES
    refined: list[RefinedForm] | None = REFINED
    together: TogetherForm | None = TOGETHER
    growth: GrowthForm | None = GROWTH
    budget: BudgetForm
    largest: Figure = Field(description=LARGEST)
    whole: Literal[True] | None = WHOLE
    after: SpentForm


class NumericDomain(Form):
    """A number with its cut points."""

    name: Text
    type: Literal["numeric"]
    low: Text | None = Field(description="first cut point; values below are as if they were it")
    high: Text | None = Field(description="last cut point")
    cuts: Index


class CalendarDomain(Form):
    """A date (cut points in days), a moment or a time of day (in seconds) with its cut points as ISO 8601."""

    name: Text
    type: Literal["date", "datetime", "time"]
    low: Text | None = Field(description="first cut point; values before are as if they were it")
    high: Text | None = Field(description="last cut point")
    cuts: Index


class CategoricalDomain(Form):
    """One of publicly known categories."""

    name: Text
    type: Literal["categorical"]
    count: Index = Field(description="how many categories are publicly known")
    values: list[Text] | None = Field(description="the categories, where they are few")


class BooleanDomain(Form):
    """True or false."""

    name: Text
    type: Literal["boolean"]


Domain = Annotated[NumericDomain | CalendarDomain | CategoricalDomain | BooleanDomain, Field(discriminator="type")]


class RangeForm(Form):
    """The public range of a number that is answered."""

    low: Text = Field(description="targets below counted as it in training, and no answer is below")
    high: Text = Field(description="the same of those above")


class AncestorForm(Form):
    """A certified model that a derived one came from."""

    entry: Index = Field(description="index of its `issued` or `derived` entry")
    statement: Hex = Field(description="sha256 of its statement")
    ensemble: Hex = Field(description="sha256 of its ensemble.json")


class EditForm(Form):
    """One edit of released numbers."""

    at: Text = Field(description="when, by the clock of who edited")
    by: Text
    why: Text
    feature: Text
    what: Text = Field(description="what was done, a JSON object as text")


class PublicForm(Form):
    """What was public before any row was read."""

    learner: Text
    ensemble: Hex = Field(description="sha256 of ensemble.json, the released numbers")
    hyperparameters: dict[str, Text | int | bool | None]
    target: Text | None = Field(
        None, description="what is answered, where the dataset has several targets to choose from"
    )
    inputs: list[Text] | None = Field(description="names of the features; null where they are too many to list")
    domains: list[Domain] | None = Field(description="what the schema says of each feature, as above")
    classes: list[Text] | None = Field(description="null where a number is answered")
    range: RangeForm | None = Field(None, description="only of a model that answers a number")
    unprotected: list[Text] = Field(description="what is published without noise")
    supersedes: list[AncestorForm] | None = Field(
        None,
        min_length=1,
        description="only of a model edited after its release: what it came from, released first",
    )
    edits: list[EditForm] | None = Field(
        None, description="only of such a model: every edit since the release; null where they are too many to list"
    )


class RandomnessForm(Form):
    """Where the noise came from."""

    source: Text
    seeded: Literal[False]

    @field_validator("seeded", mode="before")
    @classmethod
    def _never(cls, value: object) -> object:
        if value is not False:  # 0 would pass for it
            raise ValueError("must be false: a seeded run is not private")
        return value


class LedgerForm(Form):
    """Where the job was reserved before any row was read."""

    origin: Text
    reservation: Index = Field(description="index of the `reserved` entry")
    leaf: Hex = Field(description="RFC 6962 leaf hash of that entry")


class Predicate(Form):
    """A privacy certificate."""

    claim: ClaimForm
    mechanisms: list[MechanismForm]
    accounting: AccountingForm
    dataset: DatasetForm
    public: PublicForm
    preprocessing: Text
    randomness: RandomnessForm
    implementation: dict[str, Text] = Field(description="versions, digest of all that was installed, rounding")
    ledger: LedgerForm
    not_covered: list[Text] = Field(alias="notCovered", description="what this promise does not speak of")
    words: Literal[2] | None = WORDS


class DigestForm(Form):
    """The digest of a file."""

    sha256: Hex


class SubjectForm(Form):
    """The ONNX file."""

    name: Text
    digest: DigestForm


class Statement(Form):
    """An in-toto Statement v1 about exactly one ONNX file."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[SubjectForm] = Field(min_length=1, max_length=1)
    predicate_type: Literal["https://dpserve/privacy-certificate/v1"] = Field(alias="predicateType")
    predicate: Predicate


AnyForm = TypeVar("AnyForm", bound=Form)


def read_statement(payload: bytes) -> tuple[dict[str, Any], Statement]:
    """Exact signed bytes -> what they say, as JSON and by name. CertificateInvalid names the first thing wrong."""
    return read_as(payload, Statement)


def read_as(payload: bytes, form: type[AnyForm]) -> tuple[dict[str, Any], AnyForm]:
    """The same of a statement of any kind."""
    try:
        body: Any = canonical.decode_canonical(payload, STATEMENT_LIMIT)
        return body, form.model_validate(body)
    except canonical.CanonicalError as error:
        raise CertificateInvalid(f"statement: {error.message}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "statement"
        raise CertificateInvalid(f"{where:.99}: {first['msg']:.200}") from None


def json_schema() -> dict[str, Any]:
    """The published schema of the statement."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{PREDICATE_TYPE}/schema.json"}
    return {**head, **Statement.model_json_schema(by_alias=True)}


if __name__ == "__main__":
    import json

    print(json.dumps(json_schema(), indent=2))
