"""A platform that shows two histories: an owner, or an aggregator, that has seen one of them answers nobody by the
other.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import owners
import pytest
from offices import cosigned, witness_policy

from accountant.home import Home
from accountant.log import collect
from accountant.store.store import page_of_checkpoints
from dpserve_verify.errors import CertificateInvalid, DpserveError, InputError, LedgerInvalid, OtherHistory
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.seen_checkpoints import SeenCheckpoints
from local.aggregator import program as aggregator
from local.campaign import asking, campaigns
from local.campaign.asking import verify_offer
from local.owner import program
from local.owner.own_ledger import OwnLedger
from local.owner.settings import Settings, read_settings

OWNERS = 8
TOML = """\
url = "http://127.0.0.1:9"
trust = "{trust}"
rows = "rows.csv"
ledger = "owner.db"

[question]
target = "answer"
classes = ["no", "yes"]
features = ["a", "b", "c"]

[policy]
total_epsilon = "30"
largest_epsilon = "6"
"""


@pytest.fixture(scope="module")
def homes(tmp_path_factory) -> tuple[Home, Home]:
    """One ledger and a copy of it; then each opens the campaign `survey` with a question of its own, and others."""
    folder = tmp_path_factory.mktemp("histories")
    first = Home.init({"DPSERVE_HOME": str(folder / "a")})
    owners.asking(folder, first, OWNERS, 3, "before", epsilon="0.5")
    shutil.copytree(folder / "a", folder / "b")
    second = Home.open({"DPSERVE_HOME": str(folder / "b")})
    owners.asking(folder, first, OWNERS, 3, "survey", epsilon="1")
    owners.asking(folder, second, OWNERS, 3, "survey", epsilon="2")
    for name in ("more", "most"):
        owners.asking(folder, second, OWNERS, 3, name, epsilon="0.5")
    owners.asking(folder, first, OWNERS, 3, "last", epsilon="0.5")
    return first, second


def owner(folder: Path, home: Home, number: int = 0, more: str = "") -> Settings:
    folder.mkdir(exist_ok=True)
    owners.write(folder / "rows.csv", owners.people(1, number))
    (folder / "owner.toml").write_text(more + TOML.format(trust=home.path / "trust.json"))
    return read_settings(folder / "owner.toml")


def answer(settings: Settings, home: Home, name: str, number: int = 0, **changes):
    seen = settings.seen.read(home.trust)
    size = 0 if seen is None else seen.head.size
    offer = campaigns.offer(home, name, size, settings.seen.witnesses is not None) | changes
    return program.prepare(settings, offer, name, campaigns.invitation(home, name, number))


def early(home: Home) -> tuple[int, str]:
    """A checkpoint of its first entries, and their number."""
    with home.ledger.log.database.reading() as connection:
        return page_of_checkpoints(connection, 3, 1)[0]


def spent(settings: Settings) -> list[str]:
    return [str(line.epsilon) for line in OwnLedger(settings.ledger).lines()]


def test_an_owner_that_saw_one_history_answers_nobody_by_the_other(homes, tmp_path):
    first, second = homes
    settings = owner(tmp_path, first)
    assert answer(settings, first, "survey").epsilon == 1
    for name in ("survey", "more", "most"):  # the other is larger, and its proofs are true of itself
        with pytest.raises(OtherHistory, match="does not continue"):
            answer(settings, second, name)
    assert spent(settings) == ["1"]
    kept = settings.seen.read(first.trust)
    assert parse_checkpoint(kept.path.with_suffix(".refused").read_text()).size == second.ledger.log.size()
    answer(settings, first, "last")
    assert spent(settings) == ["1", "0.5"]


def test_an_owner_of_the_larger_one_finds_the_rollback(homes, tmp_path):
    first, second = homes
    settings = owner(tmp_path, second)
    assert answer(settings, second, "survey").epsilon == 2
    with pytest.raises(OtherHistory, match="rolled back"):
        answer(settings, first, "survey")
    assert spent(settings) == ["2"]


def test_a_proof_is_asked_for_and_not_forgotten(homes, tmp_path):
    first, _ = homes
    settings = owner(tmp_path, first)
    old = campaigns.offer(first, "before")
    size, earlier = early(first)
    settings.seen.advance(earlier, first.trust)
    for changes in (
        {"consistency": None},
        {"consistency": {}},
        {"consistency": "x"},
        {"consistency": old["consistency"]},
    ):
        with pytest.raises(LedgerInvalid):
            answer(settings, first, "survey", **changes)
    assert spent(settings) == []
    assert settings.seen.read(first.trust).head.size == size
    assert answer(settings, first, "survey").epsilon == 1


def test_one_name_is_one_question_also_where_the_first_was_not_answered(homes, tmp_path):
    """By a platform that keeps one log: its files are put beside each other, and both definitions are signed."""
    first, second = homes
    settings = owner(tmp_path, first)
    one = verify_offer(campaigns.offer(first, "survey"), first.trust, "survey").definition
    two = verify_offer(campaigns.offer(second, "survey"), first.trust, "survey").definition
    ledger = OwnLedger(settings.ledger)
    ledger.serve("log", one)
    ledger.serve("log", one)
    ledger.serve("another log", two)
    with pytest.raises(OtherHistory, match=r"survey: asks something else .*nothing was drawn") as error:
        ledger.serve("log", two)
    assert (error.value.exit_code, error.value.code) == (4, "other_history")
    small = replace(settings, policy=replace(settings.policy, largest_epsilon=one.epsilon / 2))
    with pytest.raises(DpserveError, match="your policy gives"):
        answer(small, first, "survey")  # not answered, and remembered
    for each in tmp_path.glob("owner.db.checkpoints/*"):
        each.unlink()  # as if this were the first contact
    with pytest.raises(OtherHistory, match="asks something else"):
        answer(settings, second, "survey")
    assert spent(settings) == []


def test_witnesses_that_an_owner_names_must_have_seen_it(homes, tmp_path):
    first, _ = homes
    with pytest.raises(InputError, match="policy="):
        owner(tmp_path, first, more='witnesses = "none.policy"\n')
    settings = owner(tmp_path, first)
    settings = replace(settings, seen=SeenCheckpoints(settings.seen.folder, witness_policy(31, 32)))
    with pytest.raises(LedgerInvalid, match="quorum"):
        answer(settings, first, "survey")
    assert spent(settings) == []
    one = cosigned(first.ledger.log.checkpoint(), 31)
    collect.keep(first.path, one)
    with pytest.raises(LedgerInvalid, match="not by w32"):
        answer(settings, first, "survey")
    collect.keep(first.path, cosigned(one, 32))
    answer(settings, first, "survey")
    assert spent(settings) == ["1"]
    answer(settings, first, "last")
    (first.path / collect.WITNESSED).unlink()


def test_an_aggregator_goes_by_what_it_has_seen(homes, tmp_path):
    first, second = homes
    settings = owner(tmp_path, first)
    offer = campaigns.offer(first, "survey")
    assert aggregator.verify_history(settings, offer, "survey")[0].epsilon == 1
    seen = settings.seen.read(first.trust).head.size
    with pytest.raises(OtherHistory):
        aggregator.verify_history(settings, campaigns.offer(second, "more", seen), "more")


def test_who_has_seen_more_meanwhile_is_asked_again(homes, tmp_path, monkeypatch):
    """Two processes of one owner: what the other has kept between question and answer is no rollback."""
    first, _ = homes
    settings = owner(tmp_path, first)
    asked: list[str] = []
    settings.seen.advance(early(first)[1], first.trust)

    def platform(place, method, path):
        asked.append(path)
        offer = campaigns.offer(first, "before", int(path.rpartition("seen=")[2]))
        if len(asked) == 1:  # a campaign is opened, and the other process is done with it, before this one goes on
            owners.asking(tmp_path, first, OWNERS, 3, "meanwhile", epsilon="0.5")
            answer(settings, first, "meanwhile")
        return offer

    def act(offer):
        return program.prepare(settings, offer, "before", campaigns.invitation(first, "before", 0))

    monkeypatch.setattr(asking, "ask", platform)
    assert asking.fetch_campaign(settings, "before", act).campaign == "before"
    assert len(asked) == 2
    assert spent(settings) == ["0.5", "0.5"]

    def forget(offer):
        return act(offer | {"proof": campaigns.offer(first, "before", 1)["proof"], "consistency": None})

    owners.asking(tmp_path, first, OWNERS, 3, "afterwards", epsilon="0.5")
    with pytest.raises(OtherHistory, match="without the proof"):
        asking.fetch_campaign(settings, "before", forget)
    assert len(asked) == 3  # nobody has seen more: it is not asked twice


@pytest.mark.parametrize("field", ["envelope", "proof"])
@pytest.mark.parametrize("lie", ["", "{}", "[" * 100_000, "\x1b[2J", "\ud800", 7, None, [[]]])
def test_whatever_is_sent_is_refused_in_our_own_words(homes, field, lie):
    first, _ = homes
    with pytest.raises((CertificateInvalid, LedgerInvalid)):
        verify_offer(campaigns.offer(first, "survey") | {field: lie}, first.trust, "survey")
