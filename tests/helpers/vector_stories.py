"""Small ledgers with every kind of entry: each story is played on a real home, and is sound. `tests/helpers/vectors.py`
writes them, and forged ones beside them, as the vectors of `tests/vectors`.

To add a kind of entry: let a story write it. A test names the kinds that no story has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any
from unittest import mock

from ledgers import advance, hexes, plan, registration, request, reserve, unjudged

from accountant.access import grants, key_life, tokens
from accountant.access.grants import Grant
from accountant.home import Home
from accountant.ledger import (
    attacks,
    block_appending,
    campaigns,
    evaluations,
    learner_admissions,
    model_names,
    schedules,
)
from accountant.ledger.archive import archive
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.comparisons import REGISTER, Comparison, record_comparison
from accountant.ledger.families.job_kinds import Evaluation, Profile
from accountant.ledger.families.records import HOLDOUT, Request, Unit, Why
from accountant.ledger.families.windows import Period
from accountant.ledger.learner_admissions import Admission
from accountant.ledger.outside import Outside, charge
from accountant.ledger.person_totals import change_person_total
from accountant.ledger.withdrawal import withdraw
from dpserve_verify.certificates.releases import VOUCHED
from dpserve_verify.certificates.vouched import MECHANISM
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release, RepeatAndSelect
from dpserve_verify.privacy.outside import Curve
from dpserve_verify.privacy.selection import Poisson, geometric

Story = Callable[[Home], None]
STORIES: dict[str, Story] = {}
PERSON = Unit("person", "patient", 2)
SMALL = plan(PureDp(Decimal("0.02")), 10)  # epsilon .2 in all
WHY = Why("steward", "a test")


def story(function: Story) -> Story:
    """Name the story by its function."""
    STORIES[function.__name__.replace("_", "-")] = function
    return function


def ask(dataset: str = "adult", epsilon: str = "0.5", delta: str = "0", **fields: Any) -> Request:
    """A job as somebody asks for it."""
    return replace(request(dataset, epsilon, delta), **fields)


def grow(home: Home, name: str, upto: int, **fields: Any) -> None:
    """Append blocks up to this number."""
    for number in range((home.ledger.dataset(name).last or 1) + 1, upto + 1):
        block_appending.append(
            home.ledger.log, NewBlock(name, hexes(f"{name} {number}"), 1000, "steward", **fields), number
        )


def statement(home: Home, seq: int) -> None:
    """Bind the statement of a committed evaluation or profile."""
    keyid = home.keys.signer("issuer").public_key.keyid
    evaluations.enter(home.ledger.log, seq, hexes(f"statement {seq}"), keyid)


@story
def jobs_in_every_state(home: Home) -> None:
    home.ledger.register(registration())
    for state in ("reserved", "started", "committed", "burned", "released", "issued"):
        advance(home.ledger, reserve(home.ledger, key=state).seq, state)
    seq = reserve(home.ledger, ask(delta="0.000001")).seq
    advance(home.ledger, seq, "started")
    with home.ledger.log.writing() as writer:
        writer.append("resumed", reservation=seq, times=1)


@story
def four_jobs(home: Home) -> None:
    home.ledger.register(registration())
    for state in ("reserved", "started", "released", "issued"):
        advance(home.ledger, reserve(home.ledger).seq, state)


@story
def without_delta(home: Home) -> None:
    home.ledger.register(registration("pure", Budget.of("1")))
    advance(home.ledger, reserve(home.ledger, ask("pure", "0.5"), plan(PureDp(Decimal("0.05")), 10)).seq, "issued")
    reserve(home.ledger, ask("pure", "0.5"), plan(BoundedRange(Decimal("0.02")), 25))


@story
def families(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration("north", Budget.of("1", "0.000001"), unit=PERSON, family_name="patients"))
    ledger.register(registration("south", Budget.of("2", "0.000001"), unit=PERSON))
    ledger.register(registration("both", None, unit=PERSON, families=("north", "south")))
    ledger.register(registration("more", None, unit=PERSON, families=("south",)))
    for name in ("both", "north", "more", "both"):
        advance(ledger, reserve(ledger, ask(name, "0.2"), SMALL).seq, "started")
    ledger.release(reserve(ledger, ask("both", "0.2"), SMALL).seq)


@story
def kept_aside(home: Home) -> None:
    """A job, an evaluation that was reserved with it, one that was asked for alone, and one on what was learnt from."""
    ledger = home.ledger
    ledger.register(registration(budget=Budget.of("1", "0.000001"), holdout=Decimal("0.2")))
    first = ask(epsilon="0.9"), Decimal("0.02"), plan(PureDp(Decimal("0.09")), 10)
    follows = evaluation(0, epsilon="0.8"), Decimal("1"), plan(PureDp(Decimal("0.4")), 2)
    job = ledger.reserve(*first, by="test", evaluation=follows)
    advance(ledger, job.seq, "issued")
    advance(ledger, job.seq + 1, "committed")
    statement(home, job.seq + 1)
    issued = next(entry.seq for entry in ledger.log.entries() if entry.value["type"] == "issued")
    advance(ledger, reserve(ledger, evaluation(issued, part=None), plan(PureDp(Decimal("0.05")), 1)).seq, "burned")
    ledger.release(reserve(ledger, evaluation(issued), plan(PureDp(Decimal("0.1")), 1)).seq)


def evaluation(certified: int, part: str | None = HOLDOUT, epsilon: str = "0.1") -> Request:
    return Request("adult", "evaluation", Budget.of(epsilon), {}, "adult", kind=Evaluation(certified), part=part)


@story
def profile(home: Home) -> None:
    home.ledger.register(registration(holdout=Decimal("0.1")))
    columns = {"columns": "", "pairs": "", "noise": "l1"}
    for part in (None, HOLDOUT):
        asked = Request("adult", "profile", Budget.of("0.2"), columns, "", kind=Profile(), part=part)
        seq = reserve(home.ledger, asked, plan(PureDp(Decimal("0.2")), 1)).seq
        advance(home.ledger, seq, "committed")
        statement(home, seq)


@story
def the_whole_total(home: Home) -> None:
    """Given back once, then taken; and of two families at once."""
    ledger = home.ledger
    for name in ("adult", "north", "south"):
        ledger.register(registration(name, Budget.of("1", "0.000001"), unit=PERSON if name != "adult" else Unit()))
    ledger.register(registration("both", None, unit=PERSON, families=("north", "south")))
    taken = plan(BoundedRange(Decimal("0.05")), 89)
    ledger.release(reserve(ledger, ask(epsilon="1", delta="0.000001"), taken).seq)
    reserve(ledger, ask(epsilon="0.2"), SMALL)
    advance(ledger, reserve(ledger, ask("both", "1", "0.000001"), taken).seq, "committed")


@story
def blocks(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration("visits", Budget.of("1", "0.000001")))
    grow(home, "visits", 2)
    grow(home, "visits", 3, period=Period("day", "2026-01-01", "2026-01-31"))
    for words in ("all", "2", "1-2", "last:1"):
        advance(ledger, reserve(ledger, ask("visits", "0.2", blocks=words), SMALL).seq, "committed")
    ledger.release(reserve(ledger, ask("visits", "0.2", blocks="2-3"), SMALL).seq)
    ledger.set_quota("visits", "ann", Decimal("0.3"), "a test", "steward")
    block_appending.drop(ledger.log, "visits", 1, WHY)
    grow(home, "visits", 4)
    reserve(ledger, ask("visits", "0.2", blocks="all"), SMALL, by="ann")
    ledger.change_budget("visits", Decimal("1.5"), "a test", "steward")
    advance(ledger, reserve(ledger, ask("visits", "0.2", blocks="3"), SMALL).seq, "started")


@story
def a_block_taken_whole(home: Home) -> None:
    home.ledger.register(registration("visits", Budget.of("1", "0.000001")))
    grow(home, "visits", 3)
    taken = plan(BoundedRange(Decimal("0.05")), 89)
    advance(home.ledger, reserve(home.ledger, ask("visits", "1", "0.000001", blocks="2-3"), taken).seq, "started")
    reserve(home.ledger, ask("visits", "0.2", blocks="1"), SMALL)


@story
def one_person_over_all_blocks(home: Home) -> None:
    ledger = home.ledger
    person = Budget.of("1.3", "0.000001")
    ledger.register(
        registration("visits", Budget.of("1"), unit=PERSON, person=Budget.of("1.3"), holdout=Decimal("0.2"))
    )
    ledger.register(registration("others", Budget.of("1", "0.000001"), unit=PERSON, person=person))
    for name in ("visits", "others"):
        reserve(ledger, ask(name, "0.2"), SMALL)
        grow(home, name, 3)
        for words in ("1", "2-3", "all"):
            advance(ledger, reserve(ledger, ask(name, "0.2", blocks=words), SMALL).seq, "started")
        ledger.release(reserve(ledger, ask(name, "0.2", blocks="last:2"), SMALL).seq)


@story
def one_person_by_default(home: Home) -> None:
    """A total for one person is founded as the dataset grows first, with what was used before, and raised with a
    reason; of another dataset the same people get a budget in each block, with a reason."""
    ledger = home.ledger
    ledger.register(registration("visits", Budget.of("1"), unit=PERSON, holdout=Decimal("0.2")))
    ledger.register(registration("others", Budget.of("1", "0.000001"), unit=PERSON))
    waiting = reserve(ledger, ask("visits", "0.2"), SMALL).seq
    advance(ledger, reserve(ledger, ask("visits", "0.2"), SMALL, by="ann").seq, "started")
    reserve(ledger, ask("others", "0.2"), SMALL)
    grow(home, "visits", 2)
    grow(home, "others", 2, each_block=WHY)
    reserve(ledger, ask("visits", "0.2", blocks="2"), SMALL, by="ann")
    change_person_total(ledger.log, "visits", Decimal("1.5"), WHY)
    grow(home, "visits", 3)
    advance(ledger, waiting, "started")
    ledger.release(reserve(ledger, ask("visits", "0.2", blocks="all"), SMALL).seq)
    reserve(ledger, ask("others", "0.2", blocks="2"), SMALL)


@story
def quotas(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration(budget=Budget.of("1")))
    ledger.set_quota("adult", "*", Decimal("0.25"), "a test", "steward")
    ledger.set_quota("adult", "ann", Decimal("0.5"), "a test", "steward")
    for by in ("ann", "bob", "ann"):
        advance(ledger, reserve(ledger, ask(epsilon="0.2"), SMALL, by=by).seq, "started")
    ledger.set_quota("adult", "ann", Decimal("0.7"), "more is needed", "steward")
    reserve(ledger, ask(epsilon="0.2"), SMALL, by="ann")


@story
def totals_raised_and_lowered(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration(budget=Budget.of("1", "0.000001"), holdout=Decimal("0.5")))
    first, second = (reserve(ledger, ask(epsilon="0.2"), SMALL).seq for _ in range(2))
    ledger.change_budget("adult", Decimal("2"), "more is needed", "steward")
    third = reserve(ledger, ask(epsilon="1.2"), plan(PureDp(Decimal("0.12")), 10)).seq
    advance(ledger, first, "started")
    ledger.change_budget("adult", Decimal("0.5"), "less was agreed", "steward")
    advance(ledger, second, "started")
    ledger.release(third)


@story
def tuned(home: Home) -> None:
    """The second of them costs less than the accountant's search finds; the first auditors called it false."""
    home.ledger.register(registration())
    best = RepeatAndSelect(
        geometric(Decimal("0.05")), ((BoundedRange(Decimal("0.02")), 10), (PureDp(Decimal("0.01")), 1))
    )
    cheap = (BoundedRange(Decimal("0.000017959")), 14), (Gaussian(Decimal("89290.46447322")), 1)
    for event, epsilon in ((best, "0.6"), (RepeatAndSelect(Poisson(Decimal(20)), cheap), "0.00135")):
        chosen = Plan(
            (
                (
                    Release(
                        "the best by score of a random number of runs, each with a setting drawn from the grid",
                        "private-selection",
                        "run",
                        1,
                        event,
                    ),
                    1,
                ),
            )
        )
        advance(home.ledger, reserve(home.ledger, ask(epsilon=epsilon, delta="0.000001"), chosen).seq, "issued")


@story
def tokens_and_grants(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration())
    tokens.create(ledger, "ci", ["train", "predict"], hexes("token"))
    tokens.create(ledger, "desk", [], hexes("another token"), principal="ann")
    wanted = [Grant("ann", "train", "dataset", "adult"), Grant("ann", "promote", expires="2099-01-01T00:00:00Z")]
    given = grants.add(ledger, wanted, "steward")
    grants.revoke(ledger, given[0].index or 0, WHY)
    tokens.revoke(ledger, "ci")
    again = tokens.create(ledger, "ci", ["train"], hexes("a third token"))
    grants.add(ledger, [Grant(again.principal, "predict", "model", "adult")], "steward")


@story
def scheduled(home: Home) -> None:
    """Schedules of a token and of who sits at the home: each asks once a period; they are refused, removed, or end."""
    ledger = home.ledger
    ledger.register(registration())
    made = tokens.create(ledger, "nightly", ["train"], hexes("token"), principal="cli:ana")
    tokens.create(ledger, "desk", ["train"], hexes("another token"), principal="cli:ana")
    grants.add(ledger, [Grant("cli:ana", "train", "dataset", "adult")], "steward")
    asked = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.2"}
    with ledger.log.writing() as writer:
        rules = [
            schedules.enter(writer, schedules.Schedule(name, "day", 1_767_225_600, by, asked, token)).seq or 0
            for name, by, token in (("by-day", "cli:ana", made.created), ("at-home", "cli:ben", None))
        ]
    for rule, period, by in ((rules[0], 0, "cli:ana"), (rules[0], 2, "cli:ana"), (rules[1], 7, "cli:ben")):
        job = ledger.reserve(
            ask(epsilon="0.2"), Decimal("0.02"), SMALL, by=by, scheduled=schedules.Period(rule, period)
        )
        advance(ledger, job.seq, "issued")
    with ledger.log.writing() as writer:
        schedules.stop(writer, rules[1], "budget: nothing fits any more")
    with ledger.log.writing() as writer:
        schedules.remove(writer, "at-home", "cli:ben")
    tokens.revoke(ledger, "nightly")


@story
def keys(home: Home) -> None:
    home.ledger.register(registration())
    advance(home.ledger, reserve(home.ledger).seq, "issued")
    old = home.keys.signer("issuer").public_key.keyid
    key_life.rotate(home, "issuer", "steward", "once a year", overlap=True)
    key_life.retire(home, old, "steward", "once a year")
    key_life.rotate(home, "log", "steward", "once a year")
    advance(home.ledger, reserve(home.ledger).seq, "issued")
    new = home.keys.signer("issuer").public_key.keyid
    key_life.mark_compromised(home, new, home.ledger.log.size() - 1, "steward", "a laptop was stolen")
    issued = [entry.seq for entry in home.ledger.log.entries() if entry.value["type"] == "issued"]
    key_life.revoke(home, issued[-1], "steward", "a wrong column")


@story
def files_compared(home: Home) -> None:
    """The guard against copies answered twice, and no registration followed."""
    home.ledger.register(registration())
    asked = Comparison(REGISTER, "copy", "ann", hexes("file"))
    record_comparison(home.ledger, asked, ["adult"])
    record_comparison(home.ledger, replace(asked, dataset="other", data=None), [])


@story
def a_job_from_before_growth(home: Home) -> None:
    """What was reserved before a dataset grew is charged to its first block, started or given back afterwards."""
    ledger = home.ledger
    ledger.register(registration("visits", Budget.of("1")))
    first, second, third = (reserve(ledger, ask("visits", "0.2"), SMALL).seq for _ in range(3))
    grow(home, "visits", 3)
    advance(ledger, first, "burned")
    ledger.release(second)
    block_appending.append(ledger.log, NewBlock("visits", hexes("late"), 1000, "steward"), 4)
    advance(ledger, third, "committed")
    reserve(ledger, ask("visits", "0.2", blocks="all"), SMALL)


@story
def names_and_edits(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration())
    for _ in range(2):
        advance(ledger, reserve(ledger).seq, "issued")
    first, second = (entry.seq for entry in ledger.log.entries() if entry.value["type"] == "issued")
    edited = ledger.derive(first, hexes("edited statement"), hexes("edited model"), WHY)
    model_names.record(ledger, "model-promoted", "adult", 2, second, "better", "steward", replaces=1)
    model_names.record(ledger, "model-retired", "adult", 1, first, "old", "steward")
    model_names.record(ledger, "model-restored", "adult", 1, first, "needed", "steward")
    model_names.record(ledger, "model-promoted", "adult", 3, edited, "edited", "steward", replaces=2)


@story
def archived(home: Home) -> None:
    """A dataset that takes no job for a while, and a model that lists leave out and let in again."""
    ledger = home.ledger
    ledger.register(registration())
    advance(ledger, reserve(ledger).seq, "issued")
    for what in ("dataset", "model"):
        archive(ledger, what, "adult", WHY)
        archive(ledger, what, "adult", WHY, ends=True)
    archive(ledger, "model", "adult", WHY)
    reserve(ledger)  # a model's archive changes nothing else


@story
def spent_elsewhere(home: Home) -> None:
    """Releases made elsewhere, by each kind of curve: on rows of two families, blocks, parts, and beside a job; of a
    total that sets a part of its delta apart, with a delta.
    """
    ledger, people = home.ledger, Unit("person", "name")
    for name in ("visits", "payroll"):
        ledger.register(registration(name, unit=people))
    ledger.register(registration("both", None, unit=people, families=("visits", "payroll")))
    person = Budget.of("4", "0.000001")
    ledger.register(registration("grown", unit=people, holdout=Decimal("0.2"), person=person))
    grow(home, "grown", 2)
    reserve(ledger, request("both"))
    curves = {"epsilon": "0.2"}, {"rho": "0.002"}, {"mu": "0.02"}, {"renyi": {"9": "0.01", "40": "0.1"}}
    for at, stated in enumerate(curves):
        whole = Outside(Curve.read(stated), "a table", WHY, hexes(f"document {at}"), "person")
        charge(ledger, "both", whole)
        charge(ledger, "grown", replace(whole, blocks="2" if at % 2 else "all"))
    rows = Outside(Curve.read(curves[1]), "a table", WHY, contributions=3)
    charge(ledger, "visits", rows)
    charge(ledger, "visits", replace(rows, another=True))
    ledger.register(registration("apart", Budget.of("3", "0.000001", "0.0000001"), unit=people))
    with_delta = Outside(Curve.read({"epsilon": "0.1", "delta": "0.00000001"}), "a count", WHY, contributions=3)
    charge(ledger, "apart", with_delta)
    charge(ledger, "apart", replace(with_delta, another=True))
    reserve(ledger, request("apart"))


@story
def charged_to_joined_rows(home: Home) -> None:
    """A release made elsewhere of rows that joined a family which keeps people aside counts for both of its parts."""
    ledger, person = home.ledger, Unit("person", "name")
    ledger.register(registration("visits", unit=person, holdout=Decimal("0.2")))
    ledger.register(registration("later", None, unit=person, families=("visits",)))
    charge(ledger, "later", Outside(Curve.read({"epsilon": "0.2"}), "a table", WHY, hexes("document"), "person"))
    columns = {"columns": "", "pairs": "", "noise": "l1"}
    for part in (None, HOLDOUT):
        asked = Request("visits", "profile", Budget.of("0.2"), columns, "", kind=Profile(), part=part)
        reserve(ledger, asked, plan(PureDp(Decimal("0.2")), 1))


@story
def learners_of_others(home: Home) -> None:
    """Learners of others, admitted for every dataset or for one, removed, and admitted anew; and jobs that run them."""
    ledger = home.ledger
    for name in ("adult", "visits"):
        ledger.register(registration(name))
    text = Admission("bayes", hexes("bayes"), "NaiveBayes", "naive_bayes.py", hexes("report"), 100, WHY)
    first = learner_admissions.admit(ledger, text).seq
    vouched = replace(text, name="program", digest=hexes("program"), datasets=("visits",))
    advance(ledger, reserve(ledger, outside(text, first)).seq, "committed")
    advance(
        ledger,
        reserve(ledger, outside(vouched, learner_admissions.admit(ledger, vouched).seq, "visits")).seq,
        "started",
    )
    waits = reserve(ledger, outside(text, first)).seq
    learner_admissions.remove(ledger, "bayes", WHY)
    with suppress(InputError):
        ledger.start(waits, "owner:1:1", 60.0)  # which gives it back
    again = learner_admissions.admit(ledger, replace(text, report=hexes("another report"))).seq
    advance(ledger, reserve(ledger, outside(text, again)).seq, "started")


@story
def attacked(home: Home) -> None:
    """Registered attacks: not begun, begun, stated, and one that shows more than is claimed."""
    home.ledger.register(registration())
    keyid = home.keys.signer("issuer").public_key.keyid
    for stage in range(4):
        seq = reserve(home.ledger, ask("adult", "0.2", attack=120), SMALL).seq
        advance(home.ledger, seq, "issued")
        if stage:
            coins = hexes(f"coins {seq}")
            with home.ledger.log.writing() as writer:
                started = writer.append(attacks.STARTED, reservation=seq, coins=coins, by="steward")
        if stage > 1:
            right = 120 if stage > 2 else 60
            found = {"started": started, "coins": coins, "runs": 120, "right": right}
            attacks.enter(home.ledger, seq, hexes(f"attack {seq}"), found, stage > 2, keyid)
    key_life.revoke(home, int(home.ledger.job(seq).issued or 0), "steward", "its attack shows more than it claims")


@story
def vouched_programs(home: Home) -> None:
    """Programs that read rows, vouched for by epsilon and by mu for one dataset, and a job of each."""
    ledger = home.ledger
    ledger.register(registration("adult"))
    for promise, event in (("epsilon", PureDp(Decimal("0.5"))), ("mu", Gaussian(Decimal(9)))):
        named = hexes(promise), "Program", "others 1.0", hexes(f"word {promise}"), 0, WHY, ("adult",), promise
        text = Admission(promise, *named)
        asked = replace(outside(text, learner_admissions.admit(ledger, text).seq), learner="vouched")
        run = Plan.of([Release(VOUCHED, MECHANISM, "declared", 10**9, event)])
        advance(ledger, reserve(ledger, asked, run).seq, "committed")


def outside(text: Admission, entry: int, dataset: str = "adult") -> Request:
    """A job that runs a learner of others."""
    named = {"code": text.digest, "author": text.author, "admitted_by": text.why.by, "admission": entry}
    return replace(ask(dataset, "0.5", "0.000001"), learner="outside", parameters=named)


@story
def withdrawn(home: Home) -> None:
    """Registrations that were withdrawn: one whose only job was given back, a copy, and one of a name used again."""
    ledger, people = home.ledger, Unit("person", "name")
    total = Budget.of("2", "0.000001")
    ledger.register(
        registration("visits", total, unit=people, holdout=Decimal("0.2"), person=Budget.of("4", "0.000001"))
    )
    ledger.release(reserve(ledger, request("visits")).seq)
    withdraw(ledger, "visits", WHY)
    ledger.register(registration("visits", unit=people))  # the same rows, with the whole of another total
    ledger.register(registration("copy", None, unit=people, families=("visits",)))
    advance(ledger, reserve(ledger, request("visits")).seq, "issued")
    withdraw(ledger, "copy", WHY)
    ledger.register(registration())
    archive(ledger, "dataset", "adult", WHY)
    withdraw(ledger, "adult", WHY)
    ledger.register(registration())  # it is not archived
    reserve(ledger)


@story
def campaign_of_reports(home: Home) -> None:
    ledger = home.ledger
    owners = Unit("owner", None, 1)
    ledger.register(registration("wards", Budget.of("2"), relation=Relation.REPLACE_ONE, unit=owners))
    for turns, epsilon in ((0, "0.5"), (2, "1")):
        definition = hexes(f"definition {turns}")
        asked = {"definition": definition, "owners": 500, "least": 100} | ({"turns": turns} if turns else {})
        report = Release("one report of one owner", "one-of-k", "replacement", 1, PureDp(Decimal(epsilon)))
        job = reserve(
            ledger, Request("wards", "one-of-k", Budget.of(epsilon), asked, f"m{turns}"), Plan(((report, 1),))
        )
        advance(ledger, job.seq, "started")
        campaigns.open_campaign(ledger, job.seq, definition)
        for turn in range(1, turns + 1):
            campaigns.enter_round(ledger, job.seq, definition, turn, 60, hexes(f"released {job.seq}"))
        campaigns.close_campaign(ledger, job.seq, definition, 150)
        ledger.commit(job.seq, hexes(f"released {job.seq}"))
        ledger.issue(job.seq, hexes(f"statement {job.seq}"), hexes(f"model {job.seq}"))


@story
def campaign_of_shares(home: Home) -> None:
    ledger = home.ledger
    ledger.register(registration("wards", unit=Unit("owner", None, 1)))
    definition = hexes("definition")
    asked = {"definition": definition, "owners": 500, "least": 100}
    asked |= {"aggregator_1": hexes("one"), "aggregator_2": hexes("two")}
    summed = Release("sum of all owners' statistics", "discrete-gaussian", "l2", 4096, Gaussian(Decimal("9")))
    job = reserve(ledger, Request("wards", "sums", Budget.of("1", "0.000001"), asked, "wards"), Plan(((summed, 1),)))
    advance(ledger, job.seq, "started")
    campaigns.open_campaign(ledger, job.seq, definition)
    campaigns.close_campaign(ledger, job.seq, definition, 300)
    for aggregator in (1, 2):
        campaigns.enter_answer(ledger, job.seq, definition, aggregator, hexes(f"answer {aggregator}"))
    ledger.commit(job.seq, hexes("sums"))


@story
def priced_above_the_definitions(home: Home) -> None:
    """Another accountant may charge more than ours: what its entries state is what they are charged."""
    home.ledger.register(registration())
    with priced(2):
        advance(home.ledger, reserve(home.ledger).seq, "started")
        home.ledger.release(reserve(home.ledger).seq)


def priced(factor: Decimal | int, sound: bool = True) -> ExitStack:
    """While it lasts, jobs are charged their price times `factor`; unless `sound`, nobody judges them beforehand."""
    from accountant.ledger import admission
    from accountant.ledger.families.families import Dataset
    from dpserve_verify.privacy.filter import Price

    honest, stack = Dataset.price, ExitStack()

    def other(dataset: Dataset, what: Plan) -> Price:
        cost = honest(dataset, what)
        return Price(round(cost.pure * factor), cost.unbounded, tuple(round(figure * factor) for figure in cost.rdp))

    stack.enter_context(mock.patch.object(Dataset, "price", other))
    if not sound:
        stack.enter_context(mock.patch.object(admission, "judging", partial(suppress, LedgerInvalid)))
        stack.enter_context(unjudged())
    return stack
