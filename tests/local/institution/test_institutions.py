"""Campaigns of institutions: what is charged where, what an aggregator adds, and what everybody may do wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace

import hospitals
import numpy as np
import pyarrow as pa
import pytest
from hospitals import people, schema
from small_home import until

from accountant.audit.audit import audit_home
from accountant.certificates.profile import PROFILE
from accountant.certificates.worth import WORTH
from accountant.errors import DataError, IdempotencyConflict, PlanMismatch, UnknownName, WrongState
from accountant.home import Home
from accountant.noise import shares
from accountant.privacy import gdp
from dpserve_verify.certificates.plain_words import plain
from dpserve_verify.certificates.written_page import to_text
from dpserve_verify.entries.campaigns import Campaigns
from dpserve_verify.errors import BudgetRefused, CertificateInvalid, InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.privacy.budget import Budget, Relation
from local.aggregator import rounds
from local.campaign import campaigns
from local.campaign.questions import question_from_payload
from local.institution import program
from local.institution.settings import check_dataset
from local.rounds import playing
from local.rounds.store import RoundStore, Rule
from models.forms.registry import ensemble_bytes
from models.profile.stated import check as check_profile
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from models.worth.stated import check as check_worth
from serving.pages.parts.entry_text import describe
from training.jobs import job
from training.learners.choice import choose
from training.learners.job_words import CHOSEN
from training.measuring.profile.profile import columns_of
from training.requests import JobRequest
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema, schema_of
from training.rows.tables.data import rows_of
from training.session.session import Session

ROWS = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Institutions of 300 rows, of 299, and of 1; each with a total of epsilon 5."""
    with hospitals.asking(tmp_path_factory.mktemp("hospitals")) as found:
        table = people(2 * ROWS)
        parts = [table.slice(0, ROWS), table.slice(ROWS, ROWS - 1), table.slice(2 * ROWS - 1, 1)]
        found.found(parts, schema(2 * ROWS))
        yield found


@pytest.fixture(scope="module")
def study(place):
    """A campaign that everybody has answered."""
    definition = place.ask("study", epsilon="4", settings=(*hospitals.FEW, ("cuts", "declared")))
    found = place.everybody("study")
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    assert campaigns.close(place.home, "study")["state"] == "issued"
    return definition


def test_a_campaign_and_jobs_at_home_share_one_total(place, study):
    home = place.homes[0]
    (entry,) = hospitals.charged(home)
    assert (entry["contributes"], entry["plan"]) == (study.digest, study.plan.to_json())
    assert Decimal(entry["claim"]["epsilon"]) == gdp.epsilon_of(study.plan, study.delta) <= 4
    (told,) = [describe(each).words for each in home.ledger.log.entries() if each.value["type"] == "reserved"]
    assert "for sums over dataset rows by the campaign study elsewhere: epsilon" in told
    fits = JobRequest("rows", "ebm", "4", delta="0.000001", parameters={"epochs": 2})
    with pytest.raises(BudgetRefused):  # it would fit by itself
        job.submit(home, fits, by="analyst", queued=False)
    place.ask("dear", epsilon="4")
    with pytest.raises(BudgetRefused):
        place.contribute(0, "dear")
    assert campaigns.state(place.home, "dear")["reports"] == 0  # nothing was sent
    assert hospitals.charged(home) == [entry]
    with pytest.raises(WrongState, match="asks nobody"):  # it is over
        place.contribute(0, "study")
    assert hospitals.charged(home) == [entry]
    assert all(audit_home(each).ok for each in (place.home, *place.homes))


def test_the_definition_is_read_as_it_was_written(study):
    assert question_from_payload(study.payload) == study
    assert study.widest >= max(feature.bins for feature in study.features)


def test_what_is_not_agreed_to_is_refused_before_anything_is_charged(place, study):
    """By the policy, the dataset, the invitation, or since this campaign was answered with other rows, or as another
    institution, before."""
    before = [len(hospitals.charged(home)) for home in place.homes]
    place.ask("refused", epsilon="1")
    path = place.settings(place.homes[0])
    text = path.read_text()
    for old, new, error, word in (
        ('largest_epsilon = "4"', 'largest_epsilon = "0.5"', BudgetRefused, "your policy"),
        ("aggregators = [", 'aggregators = ["00"]\nlearners = [] #', InputError, "learners|allows"),
        ('aggregators = ["', 'aggregators = ["00', InputError, "neither of the two"),
        ("[policy]", "[policy]\nleast_institutions = 4", InputError, "at least 4"),
        ("[policy]", '[policy]\nleast_worth = "0.99"', InputError, "at least 0.99 .least_worth"),
        ('dataset = "rows"', 'dataset = "rows"\nmore = 1', InputError, "more"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(error, match=word):
            place.contribute(0, "refused")
    path.write_text(text)
    with pytest.raises(InputError, match="has 3"):
        place.contribute(0, "refused", number=7)
    assert [len(hospitals.charged(each)) for each in place.homes] == before


def test_one_institution_answers_as_one_with_its_own_rows(place):
    """Not as two, and not with other rows once it was charged."""
    place.ask("once", epsilon="0.1")
    home, table = place.homes[1], place.folder / "more.parquet"
    hospitals.pq.write_table(people(50, 4), table)
    with pytest.raises(LedgerUnavailable):  # charged, and cut: nobody else has sent
        place.contribute(1, "once", wait=0.0)
    before = hospitals.charged(home)
    with pytest.raises(IdempotencyConflict):
        place.contribute(0, "once", home=home)
    schema_file, total = place.folder / "schema.yaml", Budget.of("5", "0.00001")
    hospitals.register(home, "more", table, schema_file, total, Relation.ADD_REMOVE, "record", new_people=hospitals.NEW)
    toml = place.settings(home).read_text()
    place.settings(home).write_text(toml.replace('dataset = "rows"', 'dataset = "more"'))
    with pytest.raises(IdempotencyConflict):
        place.contribute(1, "once")
    place.settings(home).write_text(toml)
    assert hospitals.charged(home) == before


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"learner": "lazybb"}, "ebm and forest ask.*to which noise can be added.*auto is one of these"),
        ({"settings": (("engine", "convex"),)}, "say engine=epochs"),
        ({"learner": "forest", "settings": (("leaf", "label"),)}, "drawn by exponential"),
        ({"learner": "auto", "settings": (("rounds", "3"),)}, "ebm takes"),
        ({"patience": 90_000}, "waited for"),
        ({"epsilon": "60"}, "."),
    ],
)
def test_a_campaign_that_shares_cannot_answer_is_not_opened(place, more, word):
    entries = place.home.ledger.log.size()
    with pytest.raises((InputError, BudgetRefused), match=word):
        place.ask("never", **more)
    assert place.home.ledger.log.size() == entries


@pytest.mark.parametrize(
    ("unit", "contributions", "change", "word"),
    [
        ("person", 2, {}, ""),  # within the campaign's three rows of a person
        ("person", 4, {}, "unit"),
        ("record", 1, {}, "unit"),
        ("person", 2, {"b: {type: numeric, range: [-3, 3]": "b: {type: numeric, range: [-4, 3]"}, "features"),
        ("person", 2, {"['no', 'yes']": "['yes', 'no']"}, "classes"),
    ],
)
def test_a_dataset_protects_what_the_campaign_promises(tmp_path, unit, contributions, change, word):
    """A person's rows are bounded where they are registered, at least as tightly as the campaign's price is for."""
    few, budget, text = dict(hospitals.FEW), Budget.of("2", "0.000001"), schema(90).decode()
    asked = playing.rehearse(parse_schema(text.encode()), "ebm", few, budget, 3)
    definition = hospitals.made_definition(asked, text, "person", 3)
    for old, new in change.items():
        text = text.replace(old, new)
    home, table = Home.init({"DPSERVE_HOME": str(tmp_path / "home")}), people(90, 3)
    table = table.append_column("person", pa.array([f"p{at // 3}" for at in range(90)]))
    hospitals.pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "own.yaml").write_text(f"{text}ignore: [person]\n")
    column = "record" if unit == "record" else "person"
    made = hospitals.register(
        home, "rows", tmp_path / "rows.parquet", tmp_path / "own.yaml", Budget.of("5", "0.00001"), Relation.ADD_REMOVE,
        column, contributions,
    )  # fmt: skip
    if word:
        with pytest.raises(InputError, match=word):
            check_dataset(definition, made, schema_of(home, made))
    else:
        check_dataset(definition, made, schema_of(home, made))


@pytest.mark.parametrize(
    ("learner", "change", "kind", "words"),
    [
        ("ebm", {"epochs": 10**9}, InputError, "epochs"),
        ("ebm", {"epochs": -1}, InputError, "epochs"),
        ("ebm", {"leaves": -1}, InputError, "leaves"),
        ("ebm", {"share": "-1"}, InputError, "share"),
        ("ebm", {"epochs": 40}, PlanMismatch, "more than"),  # within the learner's bounds, and not what was priced
        ("forest", {"trees": 10**5}, InputError, "trees"),
        ("forest", {"depth": 10**5}, InputError, "depth"),
        ("forest", "[" * 100_000, InputError, "settings: must be an object"),
        ("forest", "[]", InputError, "settings: must be an object"),
    ],
)
def test_a_strangers_parameters_are_bounded_before_they_are_rehearsed(learner, change, kind, words):
    """Each of these took the whole processor for minutes, or ended in an error that nobody read, and began again."""
    text, few = schema(90).decode(), dict(hospitals.FEW) if learner == "ebm" else {}
    asked = playing.rehearse(parse_schema(text.encode()), learner, few, Budget.of("2", "0.000001"), 3)
    definition = hospitals.made_definition(asked, text, "person", 3)
    settings = change if isinstance(change, str) else json.dumps({**definition.given, **change}, sort_keys=True)
    playing.check_definition(definition)
    with pytest.raises(kind, match=words):
        playing.check_definition(replace(definition, settings=settings))


def table_rows(table, read):
    """Packed as a job reads them."""
    return rows_of(read, table, table[read.target], Relation.ADD_REMOVE)


def asked_of(definition, public, rows, answers):
    """The exact sums of one institution in every round, given what was answered."""
    sums = []

    def exchange(turn, exact):
        sums.append(exact)
        return answers[turn]

    playing.play(definition, public, rows, [], exchange)
    return sums


CURVES, FOREST = {"learner": "auto", **dict(hospitals.FEW)}, {"learner": "forest", "trees": 5, "depth": 2}


@pytest.mark.parametrize(
    ("unit", "contributions", "classes", "records", "more"),
    [
        *(
            (*unit, 90, {**CURVES, **more})
            for unit in (("record", 1, 2), ("person", 3, 2), ("record", 1, 3))
            for more in ({}, {"pairs": 3, "cuts": "found"})
        ),
        *((*unit, 9000, {**FOREST, "leaf": leaf})  # so many: cut points of residuals are found
          for unit in (("record", 1, 2), ("person", 3, 2)) for leaf in ("counts", "residuals")),
    ],
)  # fmt: skip
def test_sums_add_up_and_one_unit_moves_none_further_than_was_priced(unit, contributions, classes, records, more):
    """Over institutions cut anywhere, every round's sums are those of all rows: what two halves of shares come to.
    Leaving out one unit of one institution moves each by its sensitivity at most, and the histograms by all of it. And
    the loss of all rounds, whatever the other aggregator does, is that of one whole noise in each: the plan's."""
    text, budget, settings = schema(records, classes), Budget.of("2", "0.000001"), dict(more)
    learner = settings.pop("learner")
    asked = playing.rehearse(parse_schema(text), learner, settings, budget, contributions)
    definition = hospitals.made_definition(asked, text.decode(), unit, contributions)
    assert learner != "auto" or "sums alone" in definition.parameters[CHOSEN]
    public, table, drawn = playing.check_definition(definition), people(90, 3, classes), np.random.default_rng(0)
    answers = [
        np.rint(drawn.normal(0, 3e6, definition.numbers_of(turn))).astype(np.int64)
        for turn in range(len(definition.rounds))
    ]  # whatever was answered
    read = parse_schema(text)
    whole = asked_of(definition, public, table_rows(table, read), answers)
    cuts = (0, 1, 30, 31, 90)
    parts = [asked_of(definition, public, table_rows(table.slice(low, high - low), read), answers)
             for low, high in pairwise(cuts)]  # fmt: skip
    halves = [[shares.share(exact) for exact in part] for part in parts]
    for turn, exact in enumerate(whole):
        first, second = (sum((half[turn][at] for half in halves), np.zeros(exact.size, np.uint64)) for at in (0, 1))
        assert np.array_equal(shares.join(first, second), exact), turn
    kept = table_rows(table.slice(contributions, 90 - contributions), read)
    moved = [
        float(np.linalg.norm((more - less).astype(np.float64)))
        for more, less in zip(whole, asked_of(definition, public, kept, answers), strict=True)
    ]
    limits = [release.sensitivity for release in definition.rounds]
    assert all(move <= limit for move, limit in zip(moved, limits, strict=True))
    same = people(1, 5, classes).take([0] * contributions)  # rows of one kind: all of a unit in one bin
    alone = asked_of(definition, public, table_rows(same, read), answers)
    reached = [float(np.linalg.norm(exact.astype(np.float64))) for exact in alone]
    assert all(reach <= limit for reach, limit in zip(reached, limits, strict=True))
    assert reached[:3] == limits[:3]  # of the histograms; of a forest of counts every sum
    assert max(reach / limit for reach, limit in zip(reached[3:-1], limits[3:-1], strict=True)) > 0.3  # of the sums
    loss = sum(
        1 / (float(release.event.noise_multiplier) ** 2 - 4 / release.sensitivity**2) for release in definition.rounds
    )
    assert loss == pytest.approx(float(gdp.squared_mu(definition.plan)), rel=1e-9)
    assert gdp.epsilon_of(definition.plan, definition.delta) <= definition.epsilon


def test_a_public_rule_takes_trees_of_sums_where_features_are_numbers():
    """Of two classes, with enough rows for the noise of both aggregators; in every other case curves."""

    def schema_of_many(records, classes=2, words=1):
        names = [f"w{at}: {{type: categorical, values: [a, b, c]}}" for at in range(words)]
        numbers = [f"n{at}: {{type: numeric, range: [0, 1], bins: 8}}" for at in range(4)]
        text = f"target: {{name: y, classes: {list(range(classes))}}}\nrecords: {records}\nfeatures:\n  "
        return text + "\n  ".join(names + numbers)

    def chosen(*about, **more):
        found = choose(playing.public_of(parse_schema(schema_of_many(*about, **more).encode()), budget, 1))
        return found.learner, dict(found.settings)

    budget = Budget.of("1", "0.000001")

    trees = {"leaf": "residuals", "trees": 250}  # four of five features are numbers
    assert chosen(632) == chosen(10**6, classes=3) == chosen(10**6, words=2) == ("ebm", {})  # 200 sqrt(2 * 5)
    assert chosen(633) == chosen(10**6) == ("forest", trees)
    text = schema_of_many(9000)
    asked = playing.rehearse(parse_schema(text.encode()), "auto", {"trees": 3}, budget, 1)
    definition = replace(hospitals.made_definition(asked, text, "record", 1), epsilon=budget.epsilon)
    assert playing.check_definition(definition).shared
    assert definition.parameters | {"leaf": "residuals", "trees": 3} == definition.parameters
    assert "numbers" in definition.parameters[CHOSEN]


def test_each_aggregator_alone_adds_all_the_noise_that_is_priced(study):
    """Its spread over 40,000 numbers: 7 of its standard deviations, either way, would be seen."""
    for release in study.rounds[:1] + study.rounds[-1:]:
        noise = rounds.draw(release, 40_000)
        sigma = float(release.event.noise_multiplier) * release.sensitivity
        assert abs(noise.std() / sigma - 1) < 7 / np.sqrt(2 * noise.size)


def test_shares_are_wide_enough_for_ten_million_rows():
    exact = np.array([10**7 << 20, -(10**7 << 20), 0], np.int64)  # of rows that all add the most to one number
    thousand = [shares.share(exact) for _ in range(1000)]
    first, second = (sum((half[at] for half in thousand), np.zeros(3, np.uint64)) for at in (0, 1))
    assert np.array_equal(shares.join(first, second), exact * 1000)
    assert not np.array_equal(shares.share(exact)[0], shares.share(exact)[0])


def test_everybody_learns_the_same_model_from_the_answers(place, study):
    """What the platform learns at the close follows from the noisy sums alone, and from all of them."""
    kind = campaigns.load(place.home, "study").kind
    totals = [shares.from_bytes(total).view(np.int64) for total in kind.rounds.answers()]
    assert ensemble_bytes(playing.learn(study, totals)) == ensemble_bytes(kind.learn())
    with pytest.raises(PlanMismatch, match="sums of"):
        playing.learn(study, totals[:-1])


def test_trees_are_boosted_over_institutions(place):
    place.ask(
        "trees", epsilon="0.2", learner="forest", settings=(("leaf", "residuals"), ("trees", "3"), ("depth", "2"))
    )
    found = place.everybody("trees")
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    assert campaigns.close(place.home, "trees")["state"] == "issued"
    loaded = load_verified(ModelStore(place.home.models).resolve("trees"), place.home.trust)
    assert len(loaded.ensemble.trees) == 3


def test_an_institution_that_ends_goes_on_where_it_was_and_is_charged_once(place, monkeypatch):
    """In the first round, in the middle and in the last; the others wait for it."""
    definition = place.ask("cut", epsilon="0.4", settings=(*hospitals.FEW, ("pairs", "1"), ("cuts", "found")))
    purposes = {release.purpose for release in definition.rounds}
    assert {"sum residuals per cell of pairs", "count rows per fine cell"} <= purposes
    ends, exchange = iter((0, 5, len(definition.rounds) - 1)), program._Line.exchange
    at = [next(ends)]

    def cut(line, turn, exact):
        if line._number == 1 and turn == at[0]:
            at[0] = next(ends, -1)
            raise LedgerUnavailable("the line is cut")
        return exchange(line, turn, exact)

    monkeypatch.setattr(program._Line, "exchange", cut)

    def stubborn():
        for _ in range(3):
            with pytest.raises(LedgerUnavailable, match="cut"):
                place.contribute(1, "cut")
        return place.contribute(1, "cut")

    found = place.everybody("cut", institution_1=stubborn)
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    assert campaigns.close(place.home, "cut")["state"] == "issued"
    assert sum(entry.get("contributes") == definition.digest for entry in hospitals.charged(place.homes[1])) == 1


def test_one_that_stays_away_is_left_out_and_may_come_back(place):
    """Told by the platform's operator in the first round; after `patience` in a later one."""
    definition = place.ask("away", least=2, epsilon="0.3", patience=1)
    later = {}

    def late():
        place_of = campaigns.load(place.home, "away").kind
        until(lambda: place_of.rounds.where()[1] == 2, "two have sent")
        campaigns.end_turn(place.home, "away")
        until(lambda: place_of.rounds.where()[0] >= 3, "three rounds are over")
        later["from"] = place_of.rounds.where()[0]
        return place.contribute(2, "away")

    found = place.everybody("away", institution_2=late)
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    done = campaigns.load(place.home, "away").kind.rounds
    assert done.owners_of(0) == [0, 1]
    assert done.where()[0] == len(definition.rounds)
    assert campaigns.close(place.home, "away")["state"] == "issued"


def test_an_aggregator_answers_by_one_process_alone(place):
    """Another one of the same folder, of an older copy of the folder, and of one that has lost all: none draws."""
    place.ask("lost", epsilon="0.2")
    older = place.folder / "older"
    shutil.copytree(place.whom[0], older)
    with pytest.raises(LedgerUnavailable, match="round 1"):  # nobody sent: this process is over
        place.aggregate(0, "lost", wait=0.0)
    with pytest.raises(WrongState, match="another process of yours"):
        place.aggregate(0, "lost", wait=0.0)
    with pytest.raises(WrongState, match="restored"):
        place.aggregate(0, "lost", wait=0.0, folder=older)
    with pytest.raises(WrongState, match="is at round 1"):
        campaigns.close(place.home, "lost")
    assert campaigns.give_up(place.home, "lost", "steward", "an aggregator is lost")["state"] == "burned"
    with pytest.raises(WrongState, match="asks nobody"):
        place.contribute(0, "lost", wait=0.0)
    assert audit_home(place.home).ok


def test_who_lies_about_noise_or_rows_is_not_seen_and_takes_no_promise_from_others(place, monkeypatch):
    """An aggregator that adds none: the other's whole noise is there. An institution that counts each row a thousand
    times moves the sums by so much, and the campaign ends as any other."""
    definition = place.ask("lies", epsilon="0.2")
    draw, share, sent, drawn = rounds.draw, shares.share, [], []

    def draws(release, numbers):
        drawn.append(release)
        return draw(release, numbers) * (len(drawn) % 2)  # of one of the two, in every round

    def shared(values):
        sent.append(values * (1000 if len(sent) % 3 else 1))
        return share(sent[-1])

    monkeypatch.setattr(rounds, "draw", draws)
    monkeypatch.setattr(program.shares, "share", shared)
    found = place.everybody("lies")
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    assert campaigns.close(place.home, "lies")["state"] == "issued"
    answers = campaigns.load(place.home, "lies").kind.rounds.answers()
    noise = [
        (shares.from_bytes(answer).view(np.int64) - sum(sent[3 * turn : 3 * turn + 3]))
        / (float(release.event.noise_multiplier) * release.sensitivity)
        for turn, (release, answer) in enumerate(zip(definition.rounds, answers, strict=True))
    ]
    assert abs(np.concatenate(noise).std() - 1) < 0.25  # 7 of its standard deviations; 1.41 of both, 0 of none


def test_rows_are_counted_over_institutions_and_the_statement_is_signed(place, study):
    """A profile, and what the model is worth, on all rows: figures follow from counts with both noises, each home is
    charged the plan, and counts are near those of all rows."""
    for name, learner, model in (("spread", "profile", None), ("worth", "evaluation", "study")):
        definition = place.ask(name, epsilon="0.5", learner=learner, model=model, settings=(), part="all")
        assert len(definition.rounds) == 1
        before = len(hospitals.charged(place.homes[1]))
        with pytest.raises(LedgerUnavailable):  # charged, and cut: it is started again below
            place.contribute(1, name, wait=0.0)
        found = place.everybody(name)
        assert len(hospitals.charged(place.homes[1])) == before + 1
        assert not [each for each in found.values() if isinstance(each, Exception)], found
        assert campaigns.close(place.home, name)["state"] == "issued"
        job_of = campaigns.load(place.home, name).job
        sigma = float(definition.rounds[0].event.noise_multiplier) * definition.rounds[0].sensitivity
        if name == "spread":
            stated = PROFILE.open(place.home, job_of)[2]
            check_profile(stated)
            assert float(stated.form.variance) == pytest.approx(2 * (sigma / 64) ** 2, rel=1e-3)
            total, noise = sum(stated.form.columns[2].counts) / 64, 2**0.5 * sigma / 64
        else:
            stated = WORTH.open(place.home, job_of)[2]
            check_worth(stated)
            assert stated.form.rows.part == "all"
            assert stated.form.rows.seen
            assert float(stated.form.histogram.variance) == pytest.approx(2 * (sigma / 64) ** 2 + 1 / 12)
            total, noise = (
                sum(stated.form.histogram.counts),
                (2 * len(stated.form.histogram.counts)) ** 0.5 * sigma / 64,
            )
        assert abs(total - 2 * ROWS) < 8 * noise
        assert stated.form.claim.trust_model.startswith("institutions: ")
        for home in place.homes:
            entry = hospitals.charged(home)[-1]
            assert (entry["contributes"], entry["plan"]) == (definition.digest, definition.plan.to_json())
    assert all(audit_home(each).ok for each in (place.home, *place.homes))


def test_counts_beyond_a_total_or_of_rows_that_nobody_keeps_aside_are_refused(place, study):
    before = [hospitals.charged(home) for home in place.homes]
    place.ask("dear-counts", epsilon="4", learner="profile", settings=())
    with pytest.raises(BudgetRefused):
        place.contribute(0, "dear-counts")
    place.ask("no-holdout", epsilon="0.1", learner="evaluation", model="study", settings=())
    with pytest.raises(InputError, match="aside|holdout"):
        place.contribute(0, "no-holdout")
    with pytest.raises(UnknownName):
        place.ask("nothing", epsilon="0.1", learner="evaluation", model="nothing", settings=())
    assert [hospitals.charged(home) for home in place.homes] == before
    assert campaigns.state(place.home, "dear-counts")["reports"] == 0


def test_what_institutions_keep_aside_is_charged_and_counted_by_itself(tmp_path):
    """A model learns from the others; the statement says that it has not seen what it is measured on."""
    with hospitals.asking(tmp_path) as clinics:
        table = people(400, 7)
        clinics.found([table.slice(0, 200), table.slice(200, 200)], schema(400), holdout="0.3")
        clinics.ask("learnt", epsilon="2")
        assert not [each for each in clinics.everybody("learnt").values() if isinstance(each, Exception)]
        assert campaigns.close(clinics.home, "learnt")["state"] == "issued"
        clinics.ask("measured", epsilon="4", learner="evaluation", model="learnt", settings=())
        found = clinics.everybody("measured")
        assert not [each for each in found.values() if isinstance(each, Exception)], found
        assert campaigns.close(clinics.home, "measured")["state"] == "issued"
        stated = WORTH.open(clinics.home, campaigns.load(clinics.home, "measured").job)[2]
        assert (stated.form.rows.part, stated.form.rows.seen) == ("holdout", False)
        assert "part" not in hospitals.charged(clinics.homes[0])[0]
        assert hospitals.charged(clinics.homes[0])[1]["part"] == "holdout"
        kept = sum(home.ledger.dataset("rows", part="holdout").records for home in clinics.homes)
        noise = (len(stated.form.histogram.counts) * float(stated.form.histogram.variance)) ** 0.5
        assert abs(sum(stated.form.histogram.counts) - 0.3 * 400) < 8 * (noise + 0.3 * 400**0.5), kept
        assert all(audit_home(each).ok for each in (clinics.home, *clinics.homes))


@pytest.mark.parametrize(("unit", "contributions"), [("record", 1), ("person", 3)])
@pytest.mark.parametrize("learner", ["profile", "evaluation"])
def test_a_unit_moves_counts_over_institutions_by_what_is_priced(study, place, learner, unit, contributions):
    """By all of it at most, and by nearly all: half the sensitivity would be too little."""
    text, budget = schema(90), Budget.of("2", "0.000001")
    read, model = parse_schema(text), campaigns.load(place.home, "study").kind.learn()
    given = {"columns": "", "pairs": "", "noise": "l2"}
    if learner == "evaluation":
        given = {"ensemble": ensemble_bytes(model).decode(), "evaluates": 1, "part": "all", "noise": "l2"}
    asked = playing.rehearse(read, learner, given, budget, contributions)
    definition = hospitals.made_definition(asked, text.decode(), unit, contributions)
    public = playing.check_definition(definition)

    def counted(table):
        rows = table_rows(table, read)
        if learner == "profile":
            answers = np.array([read.classes.index(each) for each in table["answer"].to_pylist()], np.uint8)
            widths = [column.bins for column in columns_of(read)]
            rows = Rows(np.stack([*rows.bins, answers]), np.zeros(len(table), np.uint8), widths)
        return asked_of(definition, public, rows, [np.zeros(definition.numbers_of(0), np.int64)])[0]

    table, (release,) = people(90, 3), definition.rounds
    parts = [counted(table.slice(at, 45)) for at in (0, 45)]
    assert np.array_equal(parts[0] + parts[1], counted(table))
    for at in range(0, 90, contributions):
        moved = np.linalg.norm(counted(table) - counted(table.take([*range(at), *range(at + contributions, 90)])))
        assert moved <= release.sensitivity
    alike = np.linalg.norm(counted(people(1, 5).take([0] * contributions)).astype(float))
    assert release.sensitivity / 1.01 <= alike <= release.sensitivity
    loss = 1 / (float(release.event.noise_multiplier) ** 2 - 4 / release.sensitivity**2)
    assert loss == pytest.approx(float(gdp.squared_mu(definition.plan)), rel=1e-9)
    assert gdp.epsilon_of(definition.plan, definition.delta) <= definition.epsilon


def test_persons_are_protected_whose_rows_institutions_bound(tmp_path):
    """At most three rows of each, in the price and in the words of the certificate."""
    table = people(120, 7).append_column("patient", pa.array([f"p{at // 4}" for at in range(120)]))
    with hospitals.asking(tmp_path) as clinics:
        text = schema(120) + b"ignore: [patient]\n"
        clinics.found([table.slice(0, 60), table.slice(60, 60)], text, "patient", 3)
        definition = clinics.ask("patients", epsilon="4")
        found = clinics.everybody("patients")
        assert not [each for each in found.values() if isinstance(each, Exception)], found
        assert campaigns.close(clinics.home, "patients")["state"] == "issued"
        loaded = load_verified(ModelStore(clinics.home.models).resolve("patients"), clinics.home.trust)
        unit = loaded.certificate.claim["unit"]
        assert (unit["name"], unit["contributions"]) == ("person", 3)
        assert unit["bounding"].endswith("in file order, at each institution, by itself")
        assert "any one person" in to_text(plain(loaded.certificate))
        sums = [release.sensitivity for release in definition.rounds]
        assert sums == [3 * (1 << 20)] * len(sums)  # three times one row's
        assert all(audit_home(home).ok for home in (clinics.home, *clinics.homes))


def test_rounds_close_once_and_count_each_institution_once(tmp_path):
    store = RoundStore(tmp_path / "rounds.db", Rule(3, 2, 1e9))
    assert store.add(0, 1, b"first") is None
    store.add(0, 0, b"zero")
    with pytest.raises(WrongState, match="round 0"):
        store.add(1, 0, b"early")
    assert store.parts(0) is None  # the third is waited for, for there is no round before
    store.add(0, 1, b"again")
    store.begin()
    store.add(0, 2, b"late")
    store.add(0, 1, b"thrice")
    assert store.parts(0) == [(0, b"zero"), (1, b"again")]
    assert store.say(0, 0, b"a") is None
    with pytest.raises(IdempotencyConflict):
        store.say(0, 0, b"b")
    assert store.say(0, 1, b"c") == [b"a", b"c"]
    store.answer(0, b"total")
    store.answer(0, b"another")
    assert (store.add(0, 1, b"again"), store.add(0, 2, b"late")) == (b"total", b"total")
    assert store.parts(0) == []
    store.add(1, 0, b"x")
    store.add(1, 2, b"y")  # who was away is in it again, and one of the round before is waited for
    assert store.parts(1) is None
    store.add(1, 1, b"z")
    assert [owner for owner, _ in store.parts(1)] == [0, 1, 2]
    with pytest.raises(WrongState, match="0 institutions"):
        RoundStore(tmp_path / "other.db", Rule(3, 2, 1.0)).begin()


def test_a_round_goes_on_without_one_that_is_slow(tmp_path):
    """Once its patience is over, and never without `least`."""
    for patience, chosen in ((0.0, [0]), (1e9, None)):
        store = RoundStore(tmp_path / f"{patience}.db", Rule(2, 1, patience))
        store.add(0, 0, b"a")
        assert store.parts(0) is None  # the first round waits for all
        store.add(0, 1, b"b")
        store.answer(0, b"total")
        store.add(1, 0, b"c")
        assert (None if (found := store.parts(1)) is None else [owner for owner, _ in found]) == chosen
    store = RoundStore(tmp_path / "few.db", Rule(2, 2, 0.0))
    store.add(0, 0, b"a")
    store.add(0, 1, b"b")
    store.answer(0, b"total")
    store.add(1, 0, b"c")
    assert store.parts(1) is None


def test_a_service_that_is_away_for_a_moment_ends_no_process(place, monkeypatch):
    """Each of the ways in which an aggregator and an institution ask is cut once, in the middle."""
    place.ask("away-again", epsilon="0.1")
    monkeypatch.setattr(rounds, "AWAY", 0.01)
    real, cut = rounds.ask, set()

    def ask(settings, method, path, *more):
        if (what := path.rpartition("/")[2]) not in cut:
            cut.add(what)
            raise LedgerUnavailable("away")
        return real(settings, method, path, *more)

    monkeypatch.setattr(rounds, "ask", ask)
    monkeypatch.setattr(program, "ask", lambda settings, method, path, *more: (
        ask(settings, method, path, *more) if path.endswith("shares") else real(settings, method, path, *more)
    ))  # fmt: skip
    found = place.everybody("away-again")
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    assert cut == {"begin", "collect", "sum", "shares"}


def test_an_institution_without_rows_registers_nothing_and_one_of_a_single_row_answers(place, study):
    """The latter is the third of this place, and was in every round of the study."""
    with pytest.raises(DataError, match="no rows"):
        place.institution("empty", people(0), "record", 1, "5")
    done = campaigns.load(place.home, "study").kind.rounds
    assert all(done.owners_of(turn) == [0, 1, 2] for turn in range(len(study.rounds)))


def test_shares_of_one_institution_twice_are_refused_by_the_aggregator(place, study):
    settings = hospitals.read_aggregator_settings(place.whom[0])
    with pytest.raises(CertificateInvalid, match="once"):
        rounds._open(settings, study, 0, 0, [(1, b""), (1, b"")])
    assert rounds._open(settings, study, 0, 0, [(0, b"not sealed"), (1, bytes(study.share_bytes(0)))]) == []


def test_a_model_says_how_wide_both_noises_are(study, place):
    """Its curves' errors are of two draws, though one is priced."""
    answers = campaigns.load(place.home, "study").kind.rounds.answers()
    totals, public = [shares.from_bytes(each).view(np.int64) for each in answers], playing.check_definition(study)
    assert public.widening == pytest.approx(2**0.5)
    learner = playing.learner_in(study)
    learner = replace(learner, **asdict(learner.settings(public)))

    def spread(draws):
        session = playing._Cut(replace(public, draws=draws), study, None, totals, lambda exact: exact)
        return np.concatenate(learner.learn(session).errors)

    # A wider ridge takes some of it back, most where steps are few: the one in the middle says what most have.
    assert np.median(spread(2) / spread(1)) > 1.15


def test_the_ledger_and_its_auditor_take_sums_alone_and_both_aggregators(place, study):
    """A selection is neither reserved nor passed over; a model of institutions needs the word of both aggregators, each
    said while the campaign is open."""
    with pytest.raises(InputError, match="stay with their owners"):
        place.home.ledger.dataset("clinics").price(hospitals.plan_of_selections())
    rows = SimpleNamespace(remote=True, shared=False, institutions=3, records=600)
    parameters, one = {**study.parameters, "owners": 3, "least": 2}, study.parameters["aggregator_1"]
    judged = Campaigns()
    judged.judge_reserved(7, {"plan": study.plan.to_json(), "parameters": parameters}, rows)
    for wrong, word in (
        ({"plan": hospitals.plan_of_selections().to_json(), "parameters": parameters}, "sums"),
        ({"plan": study.plan.to_json(), "parameters": {**parameters, "owners": 4}}, "owners"),
        (
            {"plan": study.plan.to_json(), "parameters": {**parameters, "aggregator_2": one}},
            "two",
        ),
    ):
        with pytest.raises(LedgerInvalid, match=word):
            judged.judge_reserved(8, wrong, rows)
    about = {"reservation": 7, "definition": study.digest}
    opened, closed = SimpleNamespace(**about), SimpleNamespace(**about, reports=3)
    first, second = (SimpleNamespace(**about, answer="00" * 32, aggregator=number) for number in (1, 2))
    with pytest.raises(InputError, match="no aggregators now"):
        judged.judge_answered(first, "started")
    judged.judge_opened(opened, "started")
    judged.judge_answered(first, "started")
    judged.judge_closed(closed, "started")
    with pytest.raises(InputError, match="no aggregators now"):
        judged.judge_answered(second, "started")
    with pytest.raises(LedgerInvalid, match="needs both"):
        judged.require_answered(7, "released")
    judged.states[7].summed.add(2)
    judged.require_answered(7, "released")


def test_a_session_of_shares_draws_nothing_itself(study):
    assert Session.draw is not playing.SharedSession.draw
    with pytest.raises(InputError, match="aggregators see shares"):
        playing.check_adding(hospitals.plan_of_selections())
