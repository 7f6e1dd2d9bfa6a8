"""Say what is left for a further job: a share, the largest single job that is admitted now, and the account that binds.

Every door reads it here (docs/budgets.md, "What is left"). A job is charged to the accounts of its window at once: to
each family or block, to the total for one person over all blocks, and to the quota of the analyst who asks. Public
figures alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from accountant.ledger.families.families import Dataset, Family
from accountant.ledger.families.windows import ALL, Window, window_words
from accountant.privacy.one_job import OneJob, Room, one_job, room
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget, used_words
from dpserve_verify.privacy.filter import Price, price_to_json

FAMILY, BLOCK, PERSON, QUOTA, ROWS = "family", "block", "person", "quota", "rows"
ROOMIEST, NEWEST = "roomiest", "newest"  # windows of a dataset that has grown; ALL is the third
NOTHING = OneJob(Decimal(0), Decimal(0))


@dataclass(frozen=True)
class Account:
    """Name an account that a job is charged to. `kind`: FAMILY, BLOCK, PERSON (one person over all blocks), QUOTA (of
    `analyst`), or ROWS where no rows are on disk any more; `closed_by`: the job that took its whole total.
    """

    kind: str
    family: str
    block: int | None = None
    part: str | None = None
    analyst: str | None = None
    closed_by: int | None = None

    @property
    def words(self) -> str:
        """Name it in plain words, to follow "bound by"."""
        if self.kind == ROWS:
            return "the rows of all blocks are deleted"
        over = "" if self.part is None else " of the part kept aside"
        if self.kind == PERSON:
            return f"one person's total{over}"
        where = f"family {self.family}" if self.block is None else f"block {self.block}"
        closed = "" if self.closed_by is None else f", closed by job {self.closed_by}"
        return f"{'' if self.kind != QUOTA else f'the quota of {self.analyst} in '}{where}{over}{closed}"

    def to_json(self) -> dict[str, Any]:
        """Return its fields that say something, and its words."""
        optional = {"block": self.block, "part": self.part, "analyst": self.analyst, "closed_by": self.closed_by}
        present = {name: value for name, value in optional.items() if value is not None}
        return {"account": self.kind, "family": self.family, **present, "words": self.words}


@dataclass(frozen=True)
class Left:
    """Say what is left for a job that is charged to some accounts. `share`: of the account of which least is left,
    0..1, which is `least` and belongs to `family`; `job`: the largest single job that is admitted, bound by the account
    `binding`; `window`: of a dataset that grows, the blocks that such a job reads.
    """

    share: float
    job: OneJob
    binding: Account
    least: Account
    family: Family
    window: Window | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the share (six places), the job (None where none is admitted), the window and both accounts. For old
        readers `epsilon`: the total of `family` minus what was used of it, converted (docs/budgets.md). `words`: as
        every door says it, of one more job.
        """
        window = {} if self.window is None else {"window": [*self.window]}
        accounts = {"binding": self.binding.to_json(), "least": self.least.to_json()}
        epsilon = decimal_string(Decimal(0) if self.least.kind == ROWS else epsilon_left(self.family))
        left = {"epsilon": epsilon, **left_to_json(self.share, self.job), **window, **accounts}
        return {**left, "words": left_words(left)}


class _Standing(NamedTuple):
    """Where one account stands: the share that is left of it, what has room, and whether the quota is meant."""

    share: float
    room: Room
    quota: bool


def left_of(families: Sequence[Family], delta: Decimal, window: Window | None = None) -> Left:
    """Work out what is left for a job at `delta` that is charged to each of these accounts, or takes the whole of each.

    A job is admitted where every account has room for it beside others; or, where nothing was ever used of the families
    or blocks, as one job of their whole total, for which the person's total must have room (`Dataset.can_close`).
    """
    standings = _standings(families, delta)
    least = min(standings, key=lambda each: each[1].share)
    job, binding = _fits(standings, delta)
    accounts = [family for family in families if not family.person]
    if accounts and all(family.is_untouched and delta <= family.budget.delta for family in accounts):
        closes = _whole(accounts, [standing for standing in standings if standing[0].person], delta)
        if closes[0].epsilon >= job.epsilon:
            job, binding = closes
    limits = _account(*binding), _account(least[0], least[1].quota)
    return Left(max(0.0, least[1].share), job, *limits, least[0], window)


def _standings(families: Sequence[Family], delta: Decimal) -> list[tuple[Family, _Standing]]:
    """Compute the standing of each account; once for blocks that stand alike."""
    cache: dict[Any, tuple[_Standing, ...]] = {}
    standings: list[tuple[Family, _Standing]] = []
    for family in families:
        quota = family.quota
        key = family.identity, family.person, family.used, family.whole is None, quota and quota.used
        if key not in cache:
            cache[key] = _stand(family, delta)
            standings += [(family, standing) for standing in cache[key]]
    return standings


def _stand(family: Family, delta: Decimal) -> tuple[_Standing, ...]:
    nothing = Room(Decimal(0), Decimal(0))
    family_room = nothing if family.whole is not None else room(family.filter, family.used, delta)
    stands = _Standing(1 - family.share, family_room, False)
    if family.quota is None:
        return (stands,)
    design, used = family.quota.filter, family.quota.used
    return stands, _Standing(1 - design.share(used), room(design, used, delta), True)


def _fits(stood: Sequence[tuple[Family, _Standing]], delta: Decimal) -> tuple[OneJob, tuple[Family, bool]]:
    """Return the largest job that fits into each of these, and the account that limits it: a closed one first."""
    job = one_job([standing.room for _, standing in stood], delta)

    def bound(pair: tuple[Family, _Standing]) -> tuple[Decimal, bool, float]:
        family, standing = pair
        return standing.room.gaussian if job.gaussian else standing.room.pure, family.whole is None, standing.share

    family, standing = min(stood, key=bound)
    return job, (family, standing.quota)


def _whole(
    families: Sequence[Family], people: Sequence[tuple[Family, _Standing]], delta: Decimal
) -> tuple[OneJob, tuple[Family, bool]]:
    """Return the job that would take the whole total of these families, within what is left of people's totals."""
    smallest = min(families, key=lambda family: family.budget.epsilon)
    total = smallest.budget.epsilon
    if not people:
        return OneJob(total, delta), (smallest, False)
    job, binding = _fits(people, delta)
    return (job, binding) if job.epsilon < total else (replace(job, epsilon=total), (smallest, False))


def _account(family: Family, quota: bool) -> Account:
    kind = QUOTA if quota else PERSON if family.person else FAMILY if family.block is None else BLOCK
    analyst = family.quota.analyst if quota and family.quota else None
    closed = None if family.whole is None else family.whole.job
    return Account(kind, family.name, family.block, family.part, analyst, closed)


def left(dataset: Dataset, delta: Decimal | None = None) -> Left:
    """Compute what is left for a job on a dataset's window. Where it has grown and no window was said: on the one block
    that has room for the largest job, the newest of equal ones; a dataset is used up only where no block admits any.
    `delta`: None means the dataset's.
    """
    return _roomiest(dataset, dataset.delta if delta is None else delta)


def left_in_windows(dataset: Dataset, delta: Decimal | None = None) -> dict[str, Left]:
    """Compute what is left of the NEWEST block, of ALL blocks together, and of the ROOMIEST block where that is not the
    newest. Nothing of a dataset that has not grown, or of which a window was said.
    """
    if not _is_open(dataset):
        return {}
    at, first, last = dataset.delta if delta is None else delta, dataset.blocks[0].number, dataset.blocks[-1].number
    most = _roomiest(dataset, at)
    roomiest = {} if most.window == (last, last) else {ROOMIEST: most}
    return {**roomiest, NEWEST: _on(dataset, (last, last), at), ALL: _on(dataset, (first, last), at)}


def _is_open(dataset: Dataset) -> bool:
    """Return whether the dataset has grown, no window is set, and there are rows that a job may read."""
    return dataset.window is None and dataset.last is not None and dataset.dropped < dataset.last


def in_window(dataset: Dataset, window: Window) -> Dataset:
    """Narrow a dataset that has grown to the blocks of a window, which are among its blocks, and their accounts."""
    begin = dataset.blocks[0].number
    chosen = slice(window[0] - begin, window[1] + 1 - begin)
    people = (family for family in dataset.families if family.person)
    families = (*dataset.own[chosen], *people)
    return replace(dataset, blocks=dataset.blocks[chosen], families=families, window=window)


def roomiest(dataset: Dataset) -> Dataset:
    """Narrow a dataset that has grown, of which no window was said, to the block that `left` speaks of."""
    window = left(dataset).window
    return dataset if window is None or dataset.window is not None else in_window(dataset, window)


def _on(dataset: Dataset, window: Window, delta: Decimal) -> Left:
    return left_of(in_window(dataset, window).families, delta, window)


def _roomiest(dataset: Dataset, delta: Decimal) -> Left:
    if dataset.last is not None and dataset.dropped >= dataset.last:
        first = dataset.families[0]
        gone = Account(ROWS, first.name, part=first.part)
        return Left(0.0, NOTHING, gone, gone, first)
    if not _is_open(dataset):
        return left_of(dataset.families, delta, dataset.window)
    best, seen_states, accounts = None, set[Any](), dataset.own
    for at in range(len(dataset.blocks) - 1, -1, -1):
        family, number = accounts[at], dataset.blocks[at].number
        key = family.used, family.whole is None, family.quota and family.quota.used
        if key in seen_states:
            continue
        seen_states.add(key)
        candidate = _on(dataset, (number, number), delta)
        if best is None or (candidate.job.epsilon, candidate.share) > (best.job.epsilon, best.share):
            best = candidate
    assert best is not None
    return best


def describe_budget(dataset: Dataset, delta: Decimal | None = None) -> dict[str, Any]:
    """Describe a dataset's budget for people and programs; all of it is public.

    `total`, `reserved`, `spent`, `largest`: of the family or block of which most is used up, `account`. `left`: as
    `left`, with `windows` where the dataset has grown and none was said. `closed_by`: the job that took the whole,
    where nothing is admitted for that. `delta`: of the one more job; None means the dataset's.
    """
    budget_left, windows = left(dataset, delta), left_in_windows(dataset, delta)
    return _summary(dataset.most_used, budget_left, windows)


def describe_accounts(families: Sequence[Family], delta: Decimal | None = None) -> dict[str, Any]:
    """Describe accounts that are charged together, as `describe_budget` describes a dataset's."""
    first = max([family for family in families if not family.person] or families, key=lambda family: family.share)
    at = min(family.budget.delta for family in families) if delta is None else delta
    return _summary(first, left_of(families, at))


def _summary(most: Family, found: Left, windows: Mapping[str, Left] | None = None) -> dict[str, Any]:
    by_window = (
        {"windows": [{"name": name, **window_left.to_json()} for name, window_left in windows.items()]}
        if windows
        else {}
    )
    closed = None if found.job.epsilon else found.binding.closed_by
    return {
        "total": most.budget.to_json(),
        "reserved": _figure(most, most.reserved),
        "spent": _figure(most, most.used - most.reserved),
        "account": _account(most, quota=False).to_json(),
        "left": {**found.to_json(), **by_window},
        "largest": decimal_string(most.largest),
        "closed_by": closed,
    }


def epsilon_left(family: Family) -> Decimal:
    """Return a family's total minus what was used of it, converted at its delta; 0 where one job took the whole."""
    if family.whole is not None:
        return Decimal(0)
    return max(Decimal(0), family.budget.epsilon - family.epsilon_of(family.used))


def _figure(family: Family, used: Price) -> dict[str, Any]:
    epsilon, share = decimal_string(family.epsilon_of(used)), f"{family.share_of(used):.6f}"
    return {"epsilon": epsilon, "share": share, **price_to_json(used, family.filter.orders)}


@dataclass(frozen=True)
class FamilyRow:
    """A family as lists show it. `names`: of its datasets; `dataset`: one of them, with the accounts of this family
    alone; `family`: of these the one of which most is used up.
    """

    family: Family
    dataset: Dataset
    names: tuple[str, ...]


def families_of(datasets: Iterable[Dataset]) -> list[FamilyRow]:
    """List every family with the names of its datasets, by its name: the rows that people see."""
    founders: dict[str, Dataset] = {}
    members: dict[str, list[str]] = {}
    for dataset in datasets:
        for identity in dataset.identities:
            if identity not in founders or dataset.registration.budget is not None:  # which founded it
                founders[identity] = dataset
            members.setdefault(identity, []).append(dataset.registration.name)
    rows = []
    for identity, dataset in founders.items():
        accounts = tuple(family for family in dataset.families if family.identity == identity)
        narrowed = dataset if len(accounts) == len(dataset.families) else replace(dataset, families=accounts)
        rows.append(FamilyRow(narrowed.most_used, narrowed, tuple(members[identity])))
    return sorted(rows, key=lambda row: row.family.name)


def left_to_json(share: float, job: OneJob) -> dict[str, Any]:
    """Return what is left as programs read it: the share (six places), and the budget of `one_job`, None where none
    fits. `noise` says of which jobs alone it is told.
    """
    budget = Budget(job.epsilon, job.delta).to_json() if job.epsilon else None
    return {"share": f"{share:.6f}", "one_job": budget and budget | ({"noise": "gaussian"} if job.gaussian else {})}


def left_words(left: Mapping[str, Any], what: str = "job", epsilon: str = "epsilon") -> str:
    """Say in words what `left_to_json` or `Left.to_json` says: how much is used, and what one more job may ask for. Of
    a dataset that has grown: a phrase for each window. `epsilon`: as the reader writes it.
    """
    if "windows" in left:
        return "; ".join(windows_words(left, what, epsilon))
    of = QUOTA if left.get("least", {}).get("account") == QUOTA else "budget"
    return f"{used_words(float(left['share']), of)}. {room_words(left, what, epsilon)}"


def room_words(left: Mapping[str, Any], what: str = "job", epsilon: str = "epsilon") -> str:
    """Say in words what one more job may ask for, and what lets no larger one in where that is not plain."""
    job, binding, window = left["one_job"], left.get("binding"), left.get("window")
    if job is None:
        why = "" if binding is None else f" ({binding['words']})"
        return f"No further {what} fits{why}"
    bound = ""
    if binding is not None and binding["account"] != FAMILY and [binding.get("block")] * 2 != window:
        bound = f" (bound by {binding['words']})"
    delta = "δ" if epsilon == "ε" else "delta"
    pure = f" at {delta} 0" if what == "job" and not float(job["delta"]) else ""
    return f"Room for one more {what}: up to {epsilon} {job['epsilon']}{pure}{bound}"


def windows_words(left: Mapping[str, Any], what: str = "job", epsilon: str = "epsilon") -> list[str]:
    """Put what is left of each window into words, each window once; [] where there are none."""
    by_window = {tuple(window_left["window"]): window_left for window_left in left.get("windows", ())}
    return [
        f"{blocks_words(window)}: {left_words(window_left, what, epsilon)}" for window, window_left in by_window.items()
    ]


def blocks_words(window: Sequence[int]) -> str:
    """Name the blocks of a window: `block 4`, `blocks 1-4 together`."""
    first, last = window
    return f"block {last}" if first == last else f"blocks {window_words((first, last))} together"
