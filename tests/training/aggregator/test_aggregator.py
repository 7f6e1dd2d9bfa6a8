"""Two aggregators over real HTTPS: sums of shares with the noise of both, answered once, whatever kills them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import owners
import pytest
import sharing
from https import served
from in_process import Site

from accountant.audit.audit import audit_home
from accountant.certificates.deployments import to_yaml
from accountant.certificates.plain_words import plain, to_text
from accountant.home import Home
from models.store.bundle import ModelStore
from models.store.loading import load_verified
from serving.rest import aggregators
from serving.rest import campaigns as doors
from training.aggregator import program
from training.aggregator.settings import read_settings
from training.aggregator.store import AggregatorStore
from training.local import campaigns, shared_campaigns
from training.owner import program as owner_program
from training.owner.settings import read_settings as read_owner

OWNERS, ROWS = 160, 12
TOML = """\
url = "{url}"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"
ca = "{ca}"

[policy]
total_epsilon = "6"
largest_epsilon = "2"
total_delta = "0.0001"
largest_delta = "0.00001"
aggregators = ["{one}"]
"""


class Place:
    """A home that asks, over HTTPS, and two aggregators."""

    def __init__(self, folder: Path, site: Site, url: str, ca: Path) -> None:
        self.folder, self.home, self.url, self.ca, self.site = folder, site.home, url, ca, site
        self.whom = sharing.aggregators(folder, self.home, url, ca)

    def owner(self, number: int, rows: int = 1, toml: str = TOML) -> Path:
        own = self.folder / f"owner-{number}"
        own.mkdir(exist_ok=True)
        owners.write(own / "rows.csv", owners.people(rows, number))
        one = json.loads((self.whom[0] / "aggregator.json").read_text())
        print_of = campaigns.read_aggregator(self.whom[0] / "aggregator.json").fingerprint
        assert one["name"] == "first"
        text = toml.format(url=self.url, trust=self.home.path / "trust.json", ca=self.ca, one=print_of)
        (own / "owner.toml").write_text(text)
        return own / "owner.toml"

    def answer(self, name: str) -> list[object]:
        """Both at once, as they would."""
        found: list[object] = [None, None]

        def one(at: int) -> None:
            token = shared_campaigns.token(self.home, name, at)
            try:
                found[at] = program.answer(read_settings(self.whom[at]), name, token, 20)
            except Exception as error:  # the test looks at it
                found[at] = error

        both = [threading.Thread(target=one, args=(at,)) for at in (0, 1)]
        for each in both:
            each.start()
        for each in both:
            each.join()
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing")
    home = Home.init({"DPSERVE_HOME": str(folder / "home")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSERVE_HOME", str(home.path))
        site = Site(home, (*doors.DOORS, *aggregators.DOORS))
        with served(site, folder) as (url, ca):
            yield Place(folder, site, url, ca)


@pytest.fixture(scope="module")
def census(place):
    """A campaign that was answered by most owners, one of them by its own program, two to one aggregator alone."""
    definition = sharing.asking(place.folder, place.home, place.whom, OWNERS, 120)
    people = owners.people(OWNERS * ROWS)
    for owner in range(1, OWNERS - 2):
        body = sharing.sealed(
            definition, owner, {name: column[owner * ROWS : (owner + 1) * ROWS] for name, column in people.items()}
        )
        sharing.send(place.home, definition, owner, body)
    size = definition.share_bytes
    for owner, lost in ((OWNERS - 2, 0), (OWNERS - 1, 1)):  # to one aggregator alone
        body = bytearray(sharing.sealed(definition, owner, owners.people(1)))
        body[lost * size : (lost + 1) * size] = bytes(size)
        sharing.send(place.home, definition, owner, bytes(body))
    settings = read_owner(place.owner(0))
    invitation = campaigns.invitation(place.home, "census", 0)
    line = owner_program.answer(settings, "census", invitation)
    again = owner_program.answer(settings, "census", invitation)
    assert (again.body, again.drawn) == (line.body, line.drawn)
    assert "two shares" in owner_program.words(line)
    assert owner_program.told(settings)["spent_delta"] == "0.00001"
    assert campaigns.close(place.home, "census")["state"] == "started"
    return definition, place.answer("census")


def test_model_of_two_aggregators_is_certified_and_good(place, census):
    definition, found = census
    assert [line.owners for line in found] == [OWNERS - 2] * 2, found
    done = campaigns.close(place.home, "census")
    assert (done["state"], done["reports"]) == ("issued", OWNERS)
    assert all(each["opened"] and each["answered"] for each in done["aggregators"])
    loaded = load_verified(ModelStore(place.home.models).resolve("census"), place.home.trust)
    claim, form = loaded.certificate.claim, loaded.certificate.form
    assert claim["trustModel"].startswith("two-aggregators:")
    assert (claim["unit"]["name"], claim["relation"], claim["delta"]) == ("owner", "add-remove", "0.00001")
    assert form.public.hyperparameters["aggregator_1"] == definition.aggregators[0].fingerprint
    assert any("lie" in line for line in form.not_covered)
    assert "Who took part is public" in to_text(plain(loaded.certificate))
    assert "model_name: Two aggregators\n" in to_yaml(loaded.certificate)
    test = owners.people(4000, 5)
    assert np.mean(loaded.ensemble.predict(test) == test["answer"]) > 0.65  # half by chance
    assert audit_home(place.home).ok
    assert campaigns.close(place.home, "census") == done
    for folder in place.whom:
        assert not AggregatorStore(folder / "aggregator.db").owners(definition).any()  # shares are gone
