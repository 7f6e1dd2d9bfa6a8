"""What a campaign is forecast to be worth: said and signed before anybody answers, simulated again by owners."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import owners
import pytest
from https import served
from in_process import Site
from small_home import dpserve

from accountant.home import Home
from accountant.noise.mechanisms import DiscreteGaussian
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from local.campaign import campaigns
from local.campaign.defining import CampaignRequest
from local.campaign.questions import question_from_payload
from local.doors import campaigns as doors
from local.forecast import rounds, simulating
from local.forecast.made_up import MadeUp, auroc_of, worth_of_errors
from local.institution.settings import read_settings as read_institution
from local.owner import program
from local.owner.own_ledger import OwnLedger
from local.owner.settings import Pinned, Policy, read_settings
from local.reports.coordinates import embedding_width
from local.reports.forecast import BAR, Forecast, read_least_worth
from local.reports.learning import estimate_direction
from local.reports.question import COMMON, LIMIT
from local.reports.statistics import own_vectors
from local.turns import stumps
from local.turns.definition import BoostedDefinition
from local.turns.lines import Lines, plain_coordinates
from models.features.features import CategoricalFeature, NumericFeature
from training.learners.expected import GUESS

OWNER = """\
url = "{url}"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"
ca = "{ca}"
pace_seconds = 0.05

[question]
target = "answer"
classes = ["no", "yes"]
features = ["a", "b", "c"]

[policy]
total_epsilon = "9"
largest_epsilon = "5"
"""
INSTITUTION = """\
url = "https://x.example"
trust = "t"
dataset = "d"
seen = "s"

[policy]
largest_epsilon = "1"
largest_delta = "0.1"
aggregators = []
"""


class Place:
    """A platform over HTTPS with a population of 400, and owners beside it."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder, self.home, self.url, self.ca = folder, home, "", Path()

    def words(self, name: str, count: int, *more: str) -> list[str]:
        asked = f"campaign open {name} --population folk --epsilon 0.2 --owners {count} --least 1".split()
        public, invitations = (str(self.folder / file) for file in ("public.csv", name))
        return [*asked, "--public-rows", public, "--invitations", invitations, *more]

    def owner(self, name: str, *policy: str) -> Path:
        own = self.folder / name
        own.mkdir()
        owners.write(own / "rows.csv", owners.people(1, 3))
        text = OWNER.format(url=self.url, trust=self.home.path / "trust.json", ca=self.ca)
        (own / "owner.toml").write_text(text + "".join(f"{line}\n" for line in policy))
        return own / "owner.toml"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecasts")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    (folder / "schema.yaml").write_text(owners.SCHEMA)
    owners.write(folder / "public.csv", {k: v for k, v in owners.people(300, 9).items() if k != "answer"})
    campaigns.found_population(home, "folk", folder / "schema.yaml", 400, "9", None)
    made = Place(folder, home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home.path))
        with served(Site(home, doors.DOORS), folder) as (made.url, made.ca):
            yield made


@pytest.fixture(scope="module")
def good(place):
    """A campaign that is worth something."""
    asked = CampaignRequest("good", "folk", "local-linear", "5", 400, place.folder / "public.csv", 1)
    campaigns.open_campaign(place.home, asked, "steward")
    return campaigns.load(place.home, "good").definition


def refused(policy_or_act, match: str) -> None:
    with pytest.raises(InputError, match=match):
        policy_or_act()


@pytest.mark.slow
def test_a_campaign_of_noise_is_refused_then_opened_although_it_is_and_an_owner_refuses_it(place):
    size = place.home.ledger.log.size()
    first = dpserve(place.home.path, *place.words("few", 4))
    assert first.returncode == 2
    assert "forecast: AUROC" in first.stderr
    assert "no better than guessing; ask more owners" in first.stderr
    assert "--although-noise" in first.stderr
    assert place.home.ledger.log.size() == size  # nothing was charged, and the name is free
    assert not (place.folder / "few").exists()
    opened = dpserve(place.home.path, *place.words("few", 4, "--although-noise", "--json"))
    assert opened.returncode == 0, opened.stderr
    told = json.loads(opened.stdout)["forecast"]
    assert (told["better"], told["although_noise"]) == (False, True)
    signed = json.loads(campaigns.load(place.home, "few").definition.payload)["predicate"]["forecast"]
    assert signed == {key: told[key] for key in ("metric", "mean", "spread", "although_noise")}
    shown = dpserve(place.home.path, "campaign", "show", "few").stdout
    assert f"forecast    AUROC {told['mean']} ± {told['spread']} on made-up rows" in shown
    assert "no better than guessing, and opened although it is" in shown
    settings = place.owner("careful", 'least_worth = "0.6"')
    invitation = campaigns.invitation(place.home, "few", 2)
    answer = ("owner", "answer", "few", "--invitation", invitation, "--settings", str(settings))
    careful = dpserve(place.home.path, *answer)
    assert careful.returncode == 2
    assert "your policy wants a mean less its spread of at least 0.6 (least_worth)" in careful.stderr
    assert OwnLedger(settings.parent / "owner.db").lines() == []
    easy = place.owner("easy")  # who asks for nothing answers
    assert program.answer(read_settings(easy), "few", invitation).epsilon == Decimal("0.2")


def test_who_needs_no_leave_is_told_so(place):
    asked = CampaignRequest("many", "folk", "local-linear", "5", 400, place.folder / "public.csv", although_noise=True)
    size = place.home.ledger.log.size()
    refused(lambda: campaigns.open_campaign(place.home, asked, "me"), "better than guessing; open it without")
    assert place.home.ledger.log.size() == size


def test_owners_simulate_the_signed_words_again(place, good):
    assert good.forecast.is_better
    assert simulating.forecast_of(good) == replace(good.forecast, although_noise=False)  # to the digit, here
    settings = read_settings(place.owner("trusting", f'least_worth = "{good.forecast.worth}"'))
    assert program.answer(settings, "good", campaigns.invitation(place.home, "good", 0)).epsilon == 5
    more = good.forecast.worth + Decimal("0.01")
    refused(lambda: simulating.require_worth(good, more), f"at least {more}")


def test_which_way_a_machine_points_its_directions_changes_no_forecast(good, monkeypatch):
    """Another LAPACK may turn any of them the other way round."""
    signed, found = simulating.forecast_of(good), simulating.whitened_coordinates

    def turned(features, codes, most):
        ways = found(features, codes, most)
        weights = tuple(tuple(-weight for weight in row) for row in ways.weights)
        return replace(ways, weights=weights, offset=tuple(-number for number in ways.offset))

    monkeypatch.setattr(simulating, "whitened_coordinates", turned)
    assert simulating.forecast_of(good) == signed


def test_a_forecast_that_is_not_what_the_words_simulate_to_is_refused(good):
    pinned = Pinned("answer", ("no", "yes"), ("a", "b", "c"))
    policy = Policy(Decimal(9), Decimal(5), question=pinned, least_worth=Decimal("0.6"))
    policy.check(good)
    lie = replace(good, epsilon=Decimal("0.1"), favoured=1, forecast=good.forecast)
    refused(lambda: policy.check(lie), "is signed as .* simulated here it is")
    replace(policy, least_worth=None).check(lie)  # who asks for nothing goes by the signature
    refused(lambda: policy.check(replace(good, forecast=None)), "an older version opened it")


def test_what_an_older_version_signed_is_read_as_it_was(good):
    old = replace(good, forecast=None)
    assert b"forecast" not in old.payload
    assert question_from_payload(old.payload) == old
    assert question_from_payload(good.payload).forecast == good.forecast


BAD = {
    "mean above 1": {"mean": "1.2"},
    "mean is NaN": {"mean": "NaN"},
    "mean is a number": {"mean": 1},
    "three digits": {"mean": "0.555"},
    "spread below 0": {"spread": "-0.1"},
    "another metric": {"metric": "accuracy"},
    "noise is a text": {"although_noise": "yes"},
    "one field more": {"sure": True},
}


@pytest.mark.parametrize("change", [*BAD.values(), None], ids=[*BAD, "null"])
def test_a_forecast_that_cannot_be_read_is_no_definition(good, change):
    top = json.loads(good.payload)
    forecast = None if change is None else {**top["predicate"]["forecast"], **change}
    top["predicate"]["forecast"] = forecast
    digest = hashlib.sha256(canonical.encode(top["predicate"], LIMIT)).hexdigest()
    top["subject"][0]["digest"]["sha256"] = digest
    with pytest.raises(CertificateInvalid, match="not a definition"):
        question_from_payload(canonical.encode(top, LIMIT))


@pytest.mark.parametrize("text", ["0.49", "1.01", "NaN", "inf", "-1", "much", "", "0,6"])
def test_a_least_worth_that_is_none_is_refused(place, tmp_path, text):
    refused(lambda: read_least_worth(text), "least_worth=")
    own = tmp_path / "owner.toml"
    own.write_text(OWNER.format(url="https://x.example", trust="t", ca="c") + f'least_worth = "{text}"\n')
    refused(lambda: read_settings(own), "least_worth=")
    own.write_text(INSTITUTION + f'least_worth = "{text}"\n')
    refused(lambda: read_institution(own), "least_worth=")


def test_a_least_worth_is_a_text_as_every_figure_of_a_policy_is(tmp_path):
    own = tmp_path / "owner.toml"
    own.write_text(OWNER.format(url="https://x.example", trust="t", ca="c") + "least_worth = 0.6\n")
    refused(lambda: read_settings(own), "least_worth: is not a setting, or not of its type")


@pytest.mark.statistical
def test_noise_of_a_simulated_mean_is_that_of_drawn_reports(good):
    """In mean square: the error of an estimate from reports, beside the normal numbers that stand for it. One square
    has a deviation of .7 of its mean, so that of the drawn ones is .029 of theirs: less than one false alarm in a
    hundred thousand.
    """
    asked, count, runs = replace(good, owners=60), 60, 600
    world = MadeUp(good.features, 2, "law")
    codes, answers, _ = world.rows(count, "owned")
    own = own_vectors("local-linear", good.coordinates.of(codes), answers, np.ones(count, np.int64))
    drawn, made_up = [], []
    for run in range(runs):
        definition = replace(asked, seed=f"{run:064x}")
        reports = owners.reports_of(definition, own)
        drawn.append(np.sum((estimate_direction(definition, np.arange(count), reports) - own.mean(axis=0)) ** 2))
        noisy, _ = simulating.noisy_mean(definition, own, count, f"law {run}")
        made_up.append(np.sum((noisy - own.mean(axis=0)) ** 2))
    assert np.mean(made_up) == pytest.approx(np.mean(drawn), rel=0.15)


def test_noise_of_a_simulated_sum_is_that_of_both_aggregators():
    session = rounds.MadeUpSession.__new__(rounds.MadeUpSession)
    session._played, session.name, session.times = [], "law", 3.0
    mechanism, exact = DiscreteGaussian(Decimal("2.5")), np.full(20_000, 7)
    asked = type("Asked", (), {"sensitivity": 16})()
    found = session.draw(mechanism, exact, asked)
    both = sum(mechanism.draw(np.zeros(20_000, np.int64), 16) for _ in range(2))
    assert found.mean() == pytest.approx(21, abs=2)
    assert found.std() == pytest.approx(both.std(), rel=0.03)


def test_one_feature_of_eight_classes_is_made_up_too():
    """What shifts it cancels out to nothing in half of the names."""
    for name in "abcdef":
        codes, answers, labels = MadeUp((NumericFeature("a", (0.0, 1.0, 2.0)),), 8, name).rows(200, "rows")
        assert (len(codes), answers.shape, set(labels) <= set(range(8))) == (1, (200, 7), True)
        assert len(set(codes[0].tolist())) > 1


def test_figures_of_a_forecast():
    labels = np.array([0, 0, 1, 1])
    assert auroc_of(np.array([[1], [2], [3], [4]]), labels, 2) == 1
    assert auroc_of(np.array([[1], [1], [1], [1]]), labels, 2) == 0.5
    assert auroc_of(np.array([[1], [3], [2], [4]]), labels, 2) == 0.75
    three = np.eye(3)[[0, 1, 2, 0]]
    assert auroc_of(three, np.array([0, 1, 2, 0]), 3) == 1
    answers = np.array([-1.0, 1.0])
    assert worth_of_errors(answers, answers) == 0.5  # always the mean
    assert worth_of_errors(np.zeros(2), answers) == 1
    assert worth_of_errors(2 * answers, answers) == 0  # worse than the mean
    edge = Forecast("auroc", BAR + Decimal("0.1"), Decimal("0.1"))
    assert (edge.is_better, replace(edge, spread=Decimal("0.11")).is_better) == (True, False)
    assert "better than guessing" in edge.says
    assert float(BAR) == GUESS  # of what central training is told to expect


def test_a_definition_that_is_too_wide_to_be_simulated_is_narrowed(good):
    """What a stranger signs costs who simulates it seconds, and no more: values and features beyond are left out."""
    numbers = tuple(NumericFeature(f"x{at}", (0.0,)) for at in range(600))
    wide = (CategoricalFeature("c", tuple(map(str, range(500)))), *numbers)
    narrow = simulating.narrow_definition(replace(good, features=wide))
    assert len(narrow.features[0].values) == simulating.MOST_VALUES
    widths = [embedding_width(feature) for feature in narrow.features]
    assert sum(widths) == simulating.MOST_WIDTH
    assert simulating.narrow_definition(good) == good
    common = {name: getattr(good, name) for name in COMMON if name not in ("features", "learner")}
    lines = Lines(plain_coordinates(wide), "centroids", 1)
    for learner, basis in (("local-stump", stumps.tests_for(wide, None)), ("local-ncc", lines)):
        turns = BoostedDefinition(
            **common, learner=learner, features=wide, basis=basis, public_rows="", seed=good.seed, rounds=2,
            candidates=64, favoured=1,
        )  # fmt: skip
        assert simulating.narrow_definition(turns).features == narrow.features
