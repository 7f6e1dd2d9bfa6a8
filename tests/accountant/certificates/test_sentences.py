"""Every sentence of a certificate follows from what was done: each combination is compared with its plan, and lies are
refused.
"""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from ledgers import request
from offices import Office, dataset

from accountant.certificates import profile, worth
from accountant.certificates.deployments import record
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import OWNER, Unit
from accountant.ledger.families.windows import Block
from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialSelection
from dpserve_verify.certificates import sentences
from dpserve_verify.certificates.certificate import ANY, verify
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.policy import Policy
from dpserve_verify.certificates.releases import PURPOSES, ReleaseKind, kind_of
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.drawing import is_wide
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from dpserve_verify.privacy.made_from import SCHEMA, START, Source
from dpserve_verify.privacy.selection import Poisson

VOTE = Release("select a 1-rule by weighted agreement", "exponential", "range", 1, BoundedRange(Decimal("0.02")))
CELLS = Release("count rows per fine cell", "discrete-laplace", "l1", 1, PureDp(Decimal("0.01")))
ORDER = replace(CELLS, purpose="count rows per class and value of a category")
SUMS = Release("sum residuals per leaf", "discrete-gaussian", "l2", 100, Gaussian(Decimal(20)))
TUNED = Release(
    "the best by score of a random number of runs, each with a setting drawn from the grid", "private-selection", "run",
    1, RepeatAndSelect(Poisson(Decimal(5)), ((BoundedRange(Decimal("0.01")), 5),)),
)  # fmt: skip
WEIGHING = ", rows of the first class weighing 0.5 and of the second 1"


def source(entry: int, about: str, part: str, epsilon: str, delta: str, same: bool, through: str = SCHEMA) -> Source:
    family, kind = f"family of {about}", "profile" if through == SCHEMA else "model"
    spent = ((PureDp(Decimal(epsilon)), 1),)
    claim = Decimal(epsilon), Decimal(delta)
    return Source("dpserve/x", entry - 2, entry, "a" * 64, kind, through, about, (family,), part, *claim, spent, same)


PROFILES = (
    source(7, "adult", "training", "0.5", "0", True),
    source(9, "adult", "holdout", "0.9", "0.000001", True),
    source(11, "others", "all", "4", "0", False),
)


def weighed(release: Release) -> Release:
    return replace(release, purpose=release.purpose + WEIGHING)


PLANS = {
    "votes": (VOTE,) * 9,
    "found": (CELLS, VOTE, VOTE),
    "found orders": (ORDER, VOTE),
    "found both": (CELLS, ORDER, VOTE),
    "weighed": (weighed(VOTE),),
    "found and weighed": (CELLS, weighed(VOTE)),
    "sums": (SUMS, SUMS),
    "tuned": (TUNED,),
}


def grown(about: Dataset, person: bool) -> Dataset:
    """The last of three blocks, with or without a total for one person."""
    blocks = (Block(3, 5, "c" * 64, 1000),)
    families = tuple(replace(family, block=3) for family in about.families)
    if person:
        families += (replace(families[0], person=True, block=None),)
    return replace(about, last=3, window=(3, 3), blocks=blocks, families=families)


def people(about: Dataset) -> Dataset:
    return replace(about, families=(*about.families, replace(about.families[0], person=True)))


PERSON = Unit("person", "pid", 2)
DATASETS = {
    "records": (dataset(), "records"),
    "records in blocks": (grown(dataset(), False), "records"),
    "people": (dataset(unit=PERSON), "person-total-by-default"),
    "people with a total": (people(dataset(unit=PERSON)), "person-total"),
    "people in blocks": (grown(dataset(unit=PERSON), False), "each-block"),
    "people in blocks with a total": (grown(dataset(unit=PERSON), True), "person-total"),
    "people, of before a growth": (replace(dataset(unit=PERSON), last=3), "each-block"),
    "replaced": (dataset(Relation.REPLACE_ONE), "fixed"),
    "joined": (dataset(unit=PERSON, version=2), "fixed"),
}


def refined(about: Dataset, profiles) -> Dataset:
    return replace(about, made_from=tuple(profiles))


def stated(plan: Plan, about: Dataset, delta: str = "0.000001") -> dict:
    return json.loads(Office().statement(b"a model", plan, about, delta))["predicate"]


@pytest.mark.parametrize("asked", PLANS)
@pytest.mark.parametrize("rows", DATASETS)
@pytest.mark.parametrize("profiles", [(), PROFILES[:1], PROFILES])
def test_each_combination_says_what_its_plan_did(asked, rows, profiles):
    about, growth = DATASETS[rows]
    found = stated(Plan.of(PLANS[asked]), refined(about, profiles))
    said = found["preprocessing"]
    assert ("found by noisy counts of rows, which are among the mechanisms" in said) == asked.startswith("found")
    assert ("the order of categories" in said) == (asked in ("found orders", "found both"))
    assert ("cut points of numbers" in said) == (asked in ("found", "found and weighed", "found both"))
    assert ("as each run's setting says" in said) == (asked == "tuned")
    assert ("classes weigh by the shares" in said) == asked.endswith("weighed")
    assert ("nothing was fitted to rows" in said) == (not profiles and not asked.startswith(("found", "tuned")))
    assert found["accounting"]["coversPreprocessing"] is not bool(profiles)
    assert found["accounting"]["coversTuning"] is (asked == "tuned")
    for each in profiles:
        people = "the same people" if each.same_people else "other people"
        where = f"entry {each.entry}, {each.part} rows of dataset {each.dataset}, {people}, epsilon "
        assert f"{where}{each.epsilon} at delta {each.delta}" in said
    assert ("public schema" in said) == (not profiles)
    assert (found["notCovered"][0] == sentences.PUBLIC_SCHEMA) == (not profiles)
    assert found["dataset"]["growth"] == {"state": growth, "promise": sentences.GROWTH[growth]}
    assert all("exact sampler" in run["library"] for run in found["mechanisms"])
    assert "opendp" not in json.dumps([found["mechanisms"], found["implementation"]])
    assert ("together" in found["dataset"]) == bool(profiles)
    sentences.check(found)


def test_the_sum_is_of_claims_on_the_same_part_and_the_larger_of_the_parts():
    plan = Plan.of((CELLS,) * 30)  # a pure sum of .3
    for profiles, epsilon, delta in (
        (PROFILES[:1], "0.8", "0"),
        (PROFILES[:2], "0.9", "0.000001"),
        ((*PROFILES[:2], source(8, "adult", "training", "0.2", "0.000004", True)), "1", "0.000004"),
        (PROFILES[1:], "0.9", "0.000001"),
    ):
        about = refined(dataset(unit=PERSON, version=2, budget=Budget.of("3")), profiles)
        together = stated(plan, about, "0")["dataset"]["together"]
        assert (together["epsilon"], together["delta"]) == (epsilon, delta)
    others = stated(plan, refined(dataset(), PROFILES[2:]), "0")["dataset"]
    assert "together" not in others
    assert others["apart"] == [{"datasets": ["others"], "epsilon": "4", "delta": "0"}]


BEGUN = Plan.of([replace(SUMS, purpose="compare the public start with none"), SUMS])


def test_a_start_that_holds_releases_of_rows_is_no_public_one():
    """The words of a public start stay; of another one it is said what it was made from, beside a refined schema."""
    public = stated(BEGUN, dataset())
    assert "boosting begins from a public model, whose sha256" in public["preprocessing"]
    assert public["accounting"]["coversPreprocessing"] is True
    start = source(20, "adult", "all", "8", "0.000001", True, START)
    found = stated(BEGUN, refined(dataset(), [start, PROFILES[0]]))
    assert "boosting begins from a model, whose sha256" in found["preprocessing"]
    assert "the model of entry 20, all rows of dataset adult, the same people, epsilon 8" in found["preprocessing"]
    assert "refined from noisy counts of rows, not in this price: the profile of entry 7" in found["preprocessing"]
    assert found["accounting"]["coversPreprocessing"] is False
    assert sentences.NOT_COVERED_OF_START in found["notCovered"]
    sums = Decimal(found["dataset"]["together"]["epsilon"]) - Decimal(found["claim"]["epsilon"])
    assert sums == Decimal("8.5")
    certificate = entered(found, BEGUN, refined(dataset(), [start, PROFILES[0]]))
    text = " ".join(to_text(plain(certificate)).split())
    assert f"({certificate.epsilon + Decimal('8.5'):f}, 2e-6)-differential privacy" in text
    assert "By itself epsilon" in text
    assert "Made from the model of entry 20" in text
    loss = record(certificate)["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == float(certificate.epsilon + Decimal("8.5"))
    with pytest.raises(CertificateInvalid, match="local policy admits at most 8"):
        entered(found, BEGUN, refined(dataset(), [start, PROFILES[0]]), Policy(largest_epsilon=Decimal(8)))


def entered(predicate: dict, plan: Plan, about: Dataset, policy: Policy = ANY):
    """A changed statement, signed and entered by whoever has both keys."""
    office = Office()
    body = json.loads(office.statement(b"a model", plan, about))
    body["predicate"] = {**copy.deepcopy(predicate), "ledger": body["predicate"]["ledger"]}
    payload = canonical.encode(body, 1 << 20)
    index = office.enter(payload, b"a model")
    return verify(office.sign(payload), office.proof(index), b"a model", office.trust, policy)


def put(predicate: dict, path: str, value) -> None:
    *above, name = path.split(".")
    place = predicate
    for step in above:
        place = place[int(step) if isinstance(place, list) else step]
    at = int(name) if isinstance(place, list) else name
    if value is None:
        del place[at]
    else:
        place[at] = value


def test_no_sentence_can_be_another_plans():
    """Each derived sentence is put in place of each other statement's: none verifies."""
    kinds = list(
        itertools.product(("votes", "found", "weighed", "tuned"), ("records", "people in blocks with a total"))
    )
    made = {}
    for asked, rows in kinds:
        about = refined(DATASETS[rows][0], PROFILES if asked == "found" else ())
        plan = Plan.of(PLANS[asked])
        made[asked, rows] = stated(plan, about), plan, about
    tried = 0
    for (own, plan, about), (other, _, _) in itertools.permutations(made.values(), 2):
        mine, theirs = sentences.derive(own), sentences.derive(other)
        for path in mine.keys() & theirs.keys():
            if mine[path] == theirs[path]:
                continue
            changed = copy.deepcopy(own)
            put(changed, path, theirs[path])
            tried += 1
            with pytest.raises(CertificateInvalid, match=r"says something else|words"):
                entered(changed, plan, about)
    assert tried > 150
    for own, plan, about in made.values():
        entered(own, plan, about)


LIES = {
    "nothing was fitted": (
        "preprocessing",
        "cut points and categories of the public schema; nothing was fitted to rows",
    ),
    "all was in the price": ("accounting.coversPreprocessing", True),
    "OpenDP drew": ("mechanisms.0.library", "dpserve 0.1.0 with opendp 0.16.0"),
    "the schema is public": ("notCovered.0", sentences.PUBLIC_SCHEMA),
    "the sum is the claim": ("dataset.together.epsilon", "0.05"),
    "no sum": ("dataset.together", None),
    "no profile": ("dataset.madeFrom", None),
    "a cheaper profile": ("dataset.madeFrom.0.epsilon", "0.1"),
    "others' profile": ("dataset.madeFrom.0.samePeople", False),
    "others hold less": ("dataset.apart.0.epsilon", "0.1"),
    "no others": ("dataset.apart", None),
    "growth says nothing": ("dataset.growth", None),
    "growth is bounded": ("dataset.growth.state", "person-total"),
    "another adversary": ("claim.adversary", "anyone with a pocket calculator"),
    "another conversion": ("claim.conversion", "epsilon = 0"),
    "nothing is unprotected": ("public.unprotected", []),
    "it covers everything": ("notCovered", []),
    "a later edition": ("words", 3),
    "no edition": ("words", None),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(lie):
    about = refined(DATASETS["people in blocks"][0], PROFILES)
    plan = Plan.of(PLANS["found"])
    changed = stated(plan, about)
    entered(changed, plan, about)  # true, it verifies
    put(changed, *LIES[lie])
    with pytest.raises(CertificateInvalid):
        entered(changed, plan, about)


def test_a_purpose_that_is_not_on_the_list_is_refused():
    for purpose in ("count rows per fine cells", "select a 1-rule by weighted agreement, rows of the first", ""):
        with pytest.raises(InputError, match="closed list"):
            kind_of(purpose)
    assert kind_of("rows by bin of 3 columns and 0 pairs of columns") is ReleaseKind.PROFILE
    each = ", each class weighing nearer to the others, to the power 0.5 by the declared shares"
    assert {kind_of(purpose + end) for purpose in PURPOSES for end in ("", WEIGHING, each)} < set(ReleaseKind)


def test_who_draws_is_named_by_who_draws():
    """On both sides of what 64 bits hold."""
    laplace, gaussian = DiscreteLaplace(Decimal(1)), DiscreteGaussian(Decimal(2))
    for mechanism, sensitivity, wide in (
        (laplace, 1, False), (laplace, 2**48, False), (laplace, 2**48 + 1, True), (gaussian, 1, False),
        (gaussian, 2**54, False), (gaussian, 2**54 + 16, True), (ExponentialSelection(Decimal(1)), 2**60, False),
    ):  # fmt: skip
        release = Release("count rows per bin", mechanism.name, mechanism.norm, sensitivity, mechanism.event)
        assert is_wide(release) is wide
        facts = replace(sentences.facts_of(stated(Plan.of([release]), DATASETS["records"][0])), version="0.3.0")
        assert sentences.library_of(facts) == ["dpserve 0.3.0: exact sampler"]
    with pytest.raises(InputError, match="nobody is known to draw"):
        is_wide(Release("count rows per bin", "a new one", "l1", 1, PureDp(Decimal(1))))


def test_owners_are_told_of_public_rows_only_where_there_are_some():
    for shared, budget in ((False, Budget.of("3", "0")), (True, Budget.of("3", "0.000001"))):
        about = dataset(Relation.ADD_REMOVE if shared else Relation.REPLACE_ONE, OWNER, budget)
        release = Release("sum of all owners' statistics", "discrete-gaussian", "l2", 100, Gaussian(Decimal(20)))
        if not shared:
            release = Release("one report of one owner", "one-of-k", "replacement", 1, PureDp(Decimal("0.5")))
        found = stated(Plan.of([release]), about, "0.000001" if shared else "0")
        assert "public rows" not in found["preprocessing"]
        assert not any("public rows" in each for each in found["public"]["unprotected"])
        assert "who answered, and when" in found["public"]["unprotected"]
        sentences.check(found)
    found["public"]["hyperparameters"]["public_rows"] = "0" * 64
    assert "coordinates fitted to public rows" in sentences.derive({**found, "mechanisms": [
        {**found["mechanisms"][0], "purpose": "one report of one owner", "mechanism": "one-of-k",
         "norm": "replacement", "event": {"type": "pure-dp", "epsilon": "0.5"}}
    ]})["preprocessing"]  # fmt: skip


@pytest.mark.parametrize("rows", DATASETS)
def test_the_page_and_the_record_bound_a_unit_as_far_as_anything_does(rows):
    """All that is ever learnt is bounded for one unit, and only over what a total is over."""
    about, growth = DATASETS[rows]
    plan = Plan.of(PLANS["found"])
    made = entered(stated(plan, about), plan, about)
    told = record(made)["deployment"]
    page = " ".join(to_text(plain(made)).split())
    for text in (page, told["deployment_model"]["release_type_details"]):
        assert "All that is ever learnt about them" not in text
        assert ("over all blocks together, stays within" in text) == (growth == "person-total")
        assert ("one person's total over all blocks together" in text) == (growth == "person-total-by-default")
        assert ("nothing bounds one person over all" in text) == (rows == "people in blocks")
    assert (told["deployment_model"]["data_source_type"] == "Dynamic") == ("blocks" in stated(plan, about)["dataset"])
    assert "found by noisy counts" in told["implementation"]["preprocessing_and_hyperparameter_tuning"]


COUNTS = Release("records by true answer and what the model says", "discrete-laplace", "l1", 1, PureDp(Decimal("0.5")))
SPREAD = Release(
    "rows by bin of 4 columns and 1 pairs of columns", "discrete-gaussian", "l2", 90, Gaussian(Decimal(30))
)


def counted(kind: str, about: Dataset, part: str) -> dict:
    """A statement of counts: of worth, or of a profile."""
    asked = request(delta="0" if kind == "worth" else "0.000001")
    place = {"origin": "example.org/ledger", "reservation": 3, "leaf": "0" * 64}
    if kind == "worth":
        payload = worth.WORTH.encode({}, {}, part, about, asked, Plan.of([COUNTS]), place, ("adult", "0" * 64))
    else:
        payload = profile.PROFILE.encode({}, {}, part, about, asked, Plan.of([SPREAD]), place)
    return json.loads(payload)["predicate"]


@pytest.mark.parametrize("kind", ["worth", "profile"])
@pytest.mark.parametrize("rows", DATASETS)
@pytest.mark.parametrize("part", ["all", "training", "holdout"])
@pytest.mark.parametrize("profiles", [(), PROFILES])
def test_statements_of_counts_say_what_was_counted(kind, rows, part, profiles):
    about, growth = DATASETS[rows]
    found = counted(kind, refined(about, profiles), part)
    stated_rows, accounting = found["rows"], found["accounting"]
    assert stated_rows["growth"] == {"state": growth, "promise": sentences.GROWTH[growth]}
    assert ("no rows are kept aside" in accounting["composition"]) == (part == "all")
    assert accounting["coversPreprocessing"] is not bool(profiles)
    assert (found["notCovered"][0] == sentences.PUBLIC_SCHEMA) == (not profiles)
    assert ("together" in stated_rows) == bool(profiles)
    if profiles:
        own = Decimal(found["claim"]["epsilon"])
        sums = {"holdout": (own + Decimal("0.9"), Decimal("0.5"))}.get(part, (own + Decimal("0.5"), Decimal("0.9")))
        assert Decimal(stated_rows["together"]["epsilon"]) == max(sums)
    sentences.check(found)
    for path, lie in (
        ("rows.growth", {"state": "fixed", "promise": "it cannot get worse"}), ("notCovered", []),
        ("accounting.coversPreprocessing", bool(profiles)), ("mechanisms.0.library", "somebody"),
        ("accounting.composition", "one release"), ("rows.together", {"epsilon": "0", "delta": "0", "sum": ""}),
    ):  # fmt: skip
        changed = copy.deepcopy(found)
        put(changed, path, lie)
        with pytest.raises(CertificateInvalid):
            sentences.check(changed)


@pytest.mark.slow
def test_whoever_derives_words_needs_no_sampler():
    script = "import sys; from dpserve_verify.certificates import sentences; "
    script += "print(sorted({'opendp', 'numba', 'numpy'} & set(sys.modules)))"
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
