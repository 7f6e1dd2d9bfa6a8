"""What an institution decides at first, the campaigns that it then answers by itself, and what it can see of them."""

from __future__ import annotations

import json

import hospitals
import pytest
from hospitals import people, schema

from dpserve_verify.errors import InputError, KeyInvalid, LedgerUnavailable
from local.campaign import campaigns
from local.institution import answering
from local.institution.answering import Answering, answer_noted, status_of
from local.institution.founding import NewInstitution, found_institution
from local.institution.settings import INVITATIONS, read_settings


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with hospitals.asking(tmp_path_factory.mktemp("hospitals")) as found:
        found.found([people(60, 1), people(60, 2)], schema(120))
        yield found


def invite(place, at, name):
    own = read_settings(place.settings(place.homes[at]))
    (own.folder / INVITATIONS).mkdir(exist_ok=True)
    (own.folder / INVITATIONS / name).write_text(campaigns.invitation(place.home, name, at) + "\n")
    return own


def states(place, at):
    home = place.homes[at]
    return {each["campaign"]: each for each in status_of(home, read_settings(place.settings(home)))["campaigns"]}


def answer_all(place, at, told):
    own = Answering(place.homes[at], place.settings(place.homes[at]), "operator", 30.0, told.append)
    own.look()
    own.finish()
    return own


def test_start_answers_what_the_policy_allows_side_by_side_and_status_says_what_came_of_each(place):
    """Another institution hears of one campaign only when one is over; a third asks for more than one may cost."""
    told = []
    for name, epsilon in (("b-first", "0.3"), ("a-second", "0.2"), ("dear", "4")):
        place.ask(name, epsilon=epsilon)
        for at in (0,) if name == "a-second" else (0, 1):
            own = invite(place, at, name)
    for home in place.homes:
        path = place.settings(home)
        path.write_text(path.read_text().replace('largest_epsilon = "4"', 'largest_epsilon = "1"'))
    (own.folder / INVITATIONS / "no campaign's name").write_text("x")
    assert {each["state"] for each in states(place, 1).values()} == {"invited"}

    def second():
        answer_all(place, 1, told)
        invite(place, 1, "a-second")
        return answer_all(place, 1, told)

    found = place.everybody(
        "b-first",
        institution_0=lambda: answer_all(place, 0, told),
        institution_1=second,
        aggregator_2=lambda: place.aggregate(0, "a-second"),
        aggregator_3=lambda: place.aggregate(1, "a-second"),
    )
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    one = states(place, 0)
    assert {name: each["state"] for name, each in one.items()} == {
        "a-second": "answered", "b-first": "answered", "dear": "refused",
    }  # fmt: skip
    assert (one["dear"]["why"], one["dear"]["charged"]) == (
        "epsilon=4: your policy gives at most 1 to a campaign",
        None,
    )
    assert one["b-first"]["rounds"] == one["b-first"]["of"] == 11
    entries = {entry["parameters"]["campaign"]: entry["claim"] for entry in hospitals.charged(place.homes[0])}
    assert {name: one[name]["charged"]["epsilon"] for name in entries} == {
        name: claim["epsilon"] for name, claim in entries.items()
    }
    before, running = len(told), found["institution_0"]
    running.look()  # nothing has changed
    running.finish()
    assert len(told) == before
    path = place.settings(place.homes[0])
    path.write_text(path.read_text().replace('largest_epsilon = "1"', 'largest_epsilon = "2"'))
    running.look()  # the policy has
    running.finish()
    assert [line for line in told[before:] if "dear" in line][-1].endswith("gives at most 2 to a campaign")
    assert len(hospitals.charged(place.homes[0])) == 2


def test_what_could_not_be_reached_is_asked_again_and_seen_without_a_network(place, monkeypatch):
    place.ask("unreached", epsilon="0.1")
    own = invite(place, 0, "unreached")

    def away(*given):
        raise LedgerUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(answering, "answer", away)
        with pytest.raises(LedgerUnavailable):
            answer_noted(place.homes[0], own, "unreached", "dpi_0_00", "operator")
        running, told = answer_all(place, 0, told := []), told
        running.look()
        running.finish()
    assert told.count("campaign unreached: no answer") == 2
    assert states(place, 0)["unreached"]["state"] == "waiting"
    campaigns.give_up(place.home, "unreached", "steward", "not needed")
    answer_all(place, 0, told)
    assert (states(place, 0)["unreached"]["state"], states(place, 0)["unreached"]["charged"]) == ("over", None)


def test_a_fault_of_the_program_is_noted_and_not_met_again_at_each_look(place, monkeypatch):
    place.ask("odd", epsilon="0.1")
    invite(place, 0, "odd")

    def fail(*given):
        raise ZeroDivisionError("the fault")

    with monkeypatch.context() as patch:
        patch.setattr(answering, "answer", fail)
        running = answer_all(place, 0, told := [])
        running.look()
        running.finish()
    assert told.count("campaign odd: not answered: unexpected ZeroDivisionError") == 1
    noted = states(place, 0)["odd"]
    assert (noted["state"], noted["why"], noted["charged"]) == ("refused", "unexpected ZeroDivisionError", None)
    campaigns.give_up(place.home, "odd", "steward", "not needed")


def new(place, **changed):
    said = {
        "url": "https://campaigns.example", "trust": place.home.path / "trust.json", "dataset": "rows",
        "largest_epsilon": "1", "largest_delta": "0.000001", "aggregators": ("ab" * 32,), "learners": ("ebm",),
        "least_institutions": 3, "least_worth": "0.6", **changed,
    }  # fmt: skip
    return NewInstitution(**said)


def test_what_was_said_is_what_is_read_and_keys_are_pinned(place, tmp_path):
    path = tmp_path / "own" / "institution.toml"
    keys = found_institution(path, new(place, ca=tmp_path / "ca.pem"))
    assert keys.to_json() == (place.home.path / "trust.json").read_bytes()
    own = read_settings(path)
    policy = own.policy
    assert str(policy.least_worth) == "0.6"
    assert (str(policy.largest_epsilon), policy.learners, policy.least_institutions) == ("1", ("ebm",), 3)
    assert (own.trust.read_bytes(), own.ca) == (keys.to_json(), tmp_path / "ca.pem")
    assert [oct(each.stat().st_mode & 0o777) for each in (path, path.parent / INVITATIONS)] == ["0o600", "0o700"]
    with pytest.raises(InputError, match="is there already"):
        found_institution(path, new(place))


@pytest.mark.parametrize(
    ("changed", "error", "word"),
    [
        ({"learners": ("lazybb",)}, InputError, "are by one of ebm, forest"),
        ({"largest_epsilon": "much"}, InputError, "largest_epsilon"),
        ({"aggregators": ("ab",)}, InputError, "64 hex digits"),
        ({"least_worth": "good"}, InputError, "least_worth"),
        ({"url": "http://campaigns.example"}, InputError, "https"),
        ({"trust": "nowhere.json"}, KeyInvalid, "cannot be read"),
        ({"trust": "other"}, InputError, "other keys already"),
    ],
)
def test_what_is_not_right_makes_no_settings(place, tmp_path, changed, error, word):
    if changed.get("trust") == "other":
        (tmp_path / "trust.json").write_text(json.dumps({"kept": "before"}))
        changed = {}
    changed = {name: tmp_path / value if name == "trust" else value for name, value in changed.items()}
    with pytest.raises(error, match=word):
        found_institution(tmp_path / "institution.toml", new(place, **changed))
    assert not (tmp_path / "institution.toml").exists()
