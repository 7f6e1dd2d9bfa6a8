"""The folder `tests/vectors`: ledgers, claims and bundles with the verdict that every verifier has to come to.

    python tests/helpers/vectors.py

writes it anew; keys, clock and names are fixed, so that the same code writes the same bytes. docs/reference/ledger.md
says what stands in it. The stories of ledgers are in `vector_stories.py`; here are the forgeries of them, and the
certificates.
"""

from __future__ import annotations

import datetime as clock
import hashlib
import itertools
import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "vectors"
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

import ledgers  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from offices import Filed, Office  # noqa: E402
from vector_stories import STORIES, priced  # noqa: E402

from accountant.access import grants  # noqa: E402
from accountant.audit.export import export  # noqa: E402
from accountant.audit.export_tiles import export_tiles  # noqa: E402
from accountant.home import Home  # noqa: E402
from accountant.ledger import model_names  # noqa: E402
from accountant.log import entries as log_entries  # noqa: E402
from dpserve_verify.entries.jobs import ASKED  # noqa: E402
from dpserve_verify.formats import canonical  # noqa: E402
from dpserve_verify.formats.canonical import decimal_string  # noqa: E402
from dpserve_verify.keys import dsse  # noqa: E402
from dpserve_verify.keys.trust import PublicKeys  # noqa: E402
from dpserve_verify.privacy.events import BoundedRange, Gaussian, Plan, PureDp, Release, RepeatAndSelect  # noqa: E402
from dpserve_verify.privacy.selection import geometric  # noqa: E402

Leaves = list[bytes]
SOUND, FORGED = "sound", "forged"
LAYERS = {
    "log": "the entries are those that the checkpoint's key signed",
    "figures": "prices, claims and filters are at least what the definitions give, of events that are the mechanisms'",
    "budgets": "sums follow from the entries, and no account is overspent",
    "rules": "every entry has its form, its place and its right",
    "epsilon": "the stated epsilon is at least what the listed mechanisms come to, by the bound that is named",
    "curve": "the pure sum and the Renyi figures are at least what the listed mechanisms come to",
    "pairs": "each event is the price of its mechanism, with the lines that must follow it",
    "signature": "a pinned issuer key signed the certificate",
    "subject": "the certificate is about this file",
    "proof": "the entry is in the tree that the checkpoint's key signed",
    "binding": "the entry is about this certificate and its reservation",
    "standing": "nothing was revoked",
}


@dataclass(frozen=True)
class Vector:
    """`kind`: ledger, claim or bundle. `layers`: of each that is judged, its verdict. `entry`: the first that is wrong,
    of a forged ledger; `needs`: kinds of events that not every verifier knows.
    """

    kind: str
    layers: dict[str, str]
    why: str
    entry: int | None = None
    needs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """expected.json."""
        forged = [name for name, verdict in self.layers.items() if verdict == FORGED]
        return {
            "kind": self.kind,
            "verdict": FORGED if forged else SOUND,
            "by": forged,
            "layers": self.layers,
            "why": self.why,
            **({} if self.entry is None else {"entry": self.entry}),
            **({"needs": [*self.needs]} if self.needs else {}),
        }


# ---- the same bytes each time ----------------------------------------------------------------------------------------


class FixedClock(clock.datetime):
    """A second later each time that it is asked."""

    ticks: Iterator[int] = iter(())

    @classmethod
    def now(cls, zone: Any = None) -> clock.datetime:  # type: ignore[override]
        return clock.datetime(2026, 1, 1, tzinfo=zone) + clock.timedelta(seconds=next(cls.ticks))


@contextmanager
def fixed(name: str) -> Iterator[None]:
    """Keys, clock and identities that follow from the vector's name."""
    numbers = itertools.count()

    def seeded(what: str) -> bytes:
        return hashlib.sha256(f"{name} {what} {next(numbers)}".encode()).digest()

    def identity() -> uuid.UUID:
        return uuid.UUID(bytes=seeded("uuid")[:16], version=4)

    FixedClock.ticks = itertools.count()
    with ExitStack() as stack:
        for module in (log_entries, grants, model_names):
            stack.enter_context(mock.patch.object(module, "datetime", FixedClock))
        made = staticmethod(lambda: Ed25519PrivateKey.from_private_bytes(seeded("key")))
        stack.enter_context(mock.patch.object(Ed25519PrivateKey, "generate", made))
        stack.enter_context(mock.patch.object(uuid, "uuid4", identity))
        yield


# ---- ledgers ---------------------------------------------------------------------------------------------------------


@contextmanager
def played(name: str, story: Callable[[Home], None]) -> Iterator[Home]:
    with tempfile.TemporaryDirectory() as folder, fixed(name):
        home = Home.init(ledgers.place(Path(folder) / "home"))
        story(home)
        yield home
        home.ledger.log.database.close()


def write_ledger(name: str, home: Home, vector: Vector, tiles: bool = False) -> Path:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    export(home, folder / "ledger")
    (folder / "ledger" / "trust.json").rename(folder / "trust.json")
    if tiles:
        export_tiles(home, folder / "tiles")
    finish(folder, vector)
    return folder


def finish(folder: Path, vector: Vector) -> None:
    (folder / "expected.json").write_text(json.dumps(vector.to_json(), indent=2) + "\n")


def layers(**forged: str) -> dict[str, str]:
    """Of a ledger: sound but for these."""
    return {name: forged.get(name, SOUND) for name in ("log", "figures", "budgets", "rules")}


def first(leaves: Leaves, kind: str, number: int = 0, **fields: Any) -> int:
    """The number of an entry of this kind."""
    values = [json.loads(leaf) for leaf in leaves]
    return [at for at, each in enumerate(values) if each["type"] == kind and fields.items() <= each.items()][number]


def replaced(leaves: Leaves, at: int, **fields: Any) -> Leaves:
    return [ledgers.changed(leaf, **fields) if number == at else leaf for number, leaf in enumerate(leaves)]


def again(leaves: Leaves, at: int, account: int | None = None, **fields: Any) -> Leaves:
    """Append a reservation once more, with the sums that it leads to: all that is wrong with it is that it is one more.

    account: the entry that founded the account that is charged in place of the first one.
    """
    value = {**json.loads(leaves[at]), **fields, "idempotency_key": None}
    body = {name: value[name] for name in ASKED if name in value}
    value["request"] = hashlib.sha256(canonical.spell(body)).hexdigest()
    value["after"] = [charged_again(leaves, at, line, account) for line in value["after"]]
    return [*leaves, canonical.encode(value)]


def charged_again(leaves: Leaves, at: int, line: dict[str, Any], account: int | None) -> dict[str, Any]:
    """Return the line of an account after the reservation `at` was charged to it again, behind all `leaves`."""
    target = line if account is None else {**line, "family": account}
    before, now = balance(leaves[:at], line), balance(leaves, target)
    charged = {name: now[name] | add(now[name], add(line[name], before[name], -1)) for name in ("used", "reserved")}
    if "analyst" in line:
        cost = add(line["analyst"]["used"], before["analyst"]["used"], -1)
        charged["analyst"] = {**line["analyst"], "used": add(now["analyst"]["used"], cost)}
    return {**target, **charged}


def balance(leaves: Leaves, line: dict[str, Any]) -> dict[str, Any]:
    """Return what the newest entry says of the account of `line`; zeros where none does."""
    zero = add(line["used"], line["used"], -1)
    found = {"used": zero, "reserved": zero, "analyst": {"used": zero}}
    for leaf in leaves:
        for each in json.loads(leaf).get("after", ()):
            same = each.get("person", False) == line.get("person", False)
            if same and line["family"] in (each["family"], *each.get("also", ())):
                found |= {name: each[name] for name in found if name in each}
    return found


def add(one: dict[str, Any], other: dict[str, Any], times: int = 1) -> dict[str, Any]:
    """Return the price `one` and `times` the price `other`."""
    rdp = {
        order: decimal_string(Decimal(one["rdp"].get(order, "0")) + times * Decimal(other["rdp"].get(order, "0")))
        for order in {**one["rdp"], **other["rdp"]}
    }
    pure = decimal_string(Decimal(one["pure"]) + times * Decimal(other["pure"]))
    return {"pure": pure, "rdp": rdp, "unbounded": one["unbounded"] + times * other["unbounded"]}


def moved(leaves: Leaves, reservation: int, kind: str) -> list[dict[str, Any]]:
    """Return the lines of the accounts of a job behind all `leaves`, once it has `started` or was `released`."""
    lines = []
    for line in json.loads(leaves[reservation])["after"]:
        cost, now = add(line["used"], balance(leaves[:reservation], line)["used"], -1), balance(leaves, line)
        figures = {"reserved": add(now["reserved"], cost, -1), "used": now["used"]}
        if kind == "released":
            figures["used"] = now["used"] | add(now["used"], cost, -1)
            figures["analyst"] = {**line["analyst"], "used": add(now["analyst"]["used"], cost, -1)}
        lines.append({**{name: line[name] for name in line if name != "analyst"}, **figures})
    return lines


def entry(kind: str, **fields: Any) -> bytes:
    return canonical.encode({"type": kind, "time": "2026-12-31T00:00:00Z", **fields})


def withdrawal(leaves: Leaves, number: int = 0) -> bytes:
    """The entry that withdraws the registration of this number."""
    at = first(leaves, "dataset-registered", number)
    return entry(
        "dataset-withdrawn", dataset=json.loads(leaves[at])["dataset"], registered=at, reason="x", by="steward"
    )


def outside_parameters(leaves: Leaves, **changes: Any) -> dict[str, Any]:
    """The parameters of the first job, with some of them changed."""
    return json.loads(leaves[first(leaves, "reserved")])["parameters"] | changes


def half(figures: dict[str, Any]) -> dict[str, Any]:
    return {**figures, "rdp": {order: decimal_string(Decimal(each) / 2) for order, each in figures["rdp"].items()}}


@dataclass(frozen=True)
class Forgery:
    """What the holder of the log's key makes of a story, and signs anew."""

    story: str
    layer: str
    why: str
    change: Callable[[Leaves], Leaves]
    behind: int = 0  # how many entries behind the one that was changed it shows


def skip_charge(leaves: Leaves) -> Leaves:
    before, at = (first(leaves, "reserved", number) for number in (0, 1))
    return replaced(leaves, at, after=json.loads(leaves[before])["after"])


def charge_other_block(leaves: Leaves) -> Leaves:
    return replaced(leaves, first(leaves, "reserved", blocks="2"), window=[1, 1])


def charge_other_part(leaves: Leaves) -> Leaves:
    """The evaluation's price on the account of what learners read: its words and its digest follow."""
    at = first(leaves, "reserved", part="holdout")
    value = {name: said for name, said in json.loads(leaves[at]).items() if name != "part"}
    keys = ("dataset", "learner", "parameters", "model", "epsilon", "delta", "evaluates")
    value["request"] = hashlib.sha256(canonical.spell({key: value[key] for key in keys})).hexdigest()
    return [*leaves[:at], canonical.encode(value)]


def start_beyond(leaves: Leaves) -> Leaves:
    at = first(leaves, "released")
    value = json.loads(leaves[at])
    lines = moved(leaves[:at], value["reservation"], "started")
    return [*leaves[:at], canonical.encode({**value, "type": "started", "after": lines})]


def carry_nothing(leaves: Leaves) -> Leaves:
    at = first(leaves, "person-total")
    value = json.loads(leaves[at])
    nothing = {"pure": "0", "unbounded": 0, "rdp": {}}
    carried = [{"used": nothing, "reserved": nothing, "analysts": {}} for _ in value["carried"]]
    return replaced(leaves[: at + 1], at, carried=carried)


def claim_halved(leaves: Leaves) -> Leaves:
    at = first(leaves, "reserved")
    said = json.loads(leaves[at])["claim"]
    return replaced(leaves, at, claim={**said, "epsilon": decimal_string(Decimal(said["epsilon"]) / 2)})


def of_another_mechanism(leaves: Leaves) -> Leaves:
    """Permute-and-flip at the price of the exponential mechanism, whose losses lie in half of the interval."""
    at = first(leaves, "reserved")
    return replaced(
        leaves, at, plan=[{**run, "mechanism": "permute-and-flip"} for run in json.loads(leaves[at])["plan"]]
    )


def cap_raised(leaves: Leaves) -> Leaves:
    at = first(leaves, "dataset-registered")
    lines = json.loads(leaves[at])["filter"]
    return replaced(leaves, at, filter=[{**lines[0], "cap": decimal_string(Decimal(lines[0]["cap"]) * 2)}, *lines[1:]])


def reserved_again(number: int = 0, times: int = 1, **fields: Any) -> Callable[[Leaves], Leaves]:
    def change(leaves: Leaves) -> Leaves:
        for _ in range(times):
            leaves = again(leaves, first(leaves, "reserved", number), **fields)
        return leaves

    return change


def more(kind: str, of: str = "reserved", number: int = 0, **fields: Any) -> Callable[[Leaves], Leaves]:
    """One more entry about a job: that of an entry of the kind `of`. What moves sums says where that leads."""

    def change(leaves: Leaves) -> Leaves:
        at = first(leaves, of, number)
        job = json.loads(leaves[at]).get("reservation", at)
        sums = {"after": moved(leaves, job, kind)} if kind in ("started", "released") else {}
        return [*leaves, entry(kind, reservation=job, **sums, **fields)]

    return change


DIGEST = "0" * 64
FORGERIES = {
    "overspent": Forgery("without-delta", "budgets", "a job more than the total admits", reserved_again()),
    "skipped-charge": Forgery("four-jobs", "budgets", "the sums leave a job out", skip_charge),
    "charged-to-another-block": Forgery(
        "blocks", "budgets", "block 2 is read, and block 1 is charged", charge_other_block
    ),
    "charged-to-another-part": Forgery("kept-aside", "budgets", "an evaluation of another part", charge_other_part),
    "whole-twice": Forgery("the-whole-total", "budgets", "what was taken whole is taken again", reserved_again(2)),
    "closed-block": Forgery(
        "a-block-taken-whole",
        "budgets",
        "a small job on a block that is closed",
        reserved_again(1, blocks="2", window=[2, 2], account=2),
    ),
    "carried-nothing": Forgery(
        "one-person-by-default", "budgets", "one person's account begins without what was used before", carry_nothing
    ),
    "quota-exceeded": Forgery("quotas", "budgets", "more than an analyst's share", reserved_again(1)),
    "person-exceeded": Forgery(
        "one-person-over-all-blocks",
        "budgets",
        "each block admits it, one person's total does not",
        reserved_again(2, 3),
    ),
    "start-beyond-lowered-total": Forgery(
        "totals-raised-and-lowered", "budgets", "a job starts that the lowered total refuses", start_beyond
    ),
    "given-back-after-start": Forgery(
        "four-jobs", "budgets", "a price is given back after rows were read", more("released", "started")
    ),
    "given-back-twice": Forgery(
        "four-jobs", "budgets", "a price is given back twice: sums below zero", more("released", "released")
    ),
    "claim-halved": Forgery("four-jobs", "figures", "a claim of half the epsilon", claim_halved),
    "mechanism-of-another-price": Forgery(
        "four-jobs", "figures", "permute-and-flip at the price of bounded range", of_another_mechanism
    ),
    "cap-raised": Forgery("four-jobs", "figures", "a cap that the total does not give", cap_raised),
    "committed-before-start": Forgery(
        "four-jobs", "rules", "rows were read by a job that never began", more("committed", released=DIGEST)
    ),
    "issued-twice": Forgery(
        "four-jobs",
        "rules",
        "two certificates of one job",
        more("issued", "issued", statement=DIGEST, model=DIGEST, name="adult"),
    ),
    "attacked-with-more-runs": Forgery(
        "attacked",
        "rules",
        "an attack states other runs than were registered: how many are chosen after it was made",
        lambda leaves: replaced(leaves, first(leaves, "attacked"), runs=1000),
    ),
    "attacked-and-silent": Forgery(
        "attacked",
        "rules",
        "an attack shows more than is claimed, and its entry does not say so",
        lambda leaves: replaced(leaves, first(leaves, "attacked"), right=120),
    ),
    "of-an-ended-schedule": Forgery(
        "scheduled",
        "rules",
        "a job of a schedule whose token was revoked, though another acts for its principal",
        lambda leaves: again(leaves, first(leaves, "reserved"), schedule={"entry": 5, "period": 3}),
    ),
    "scheduled-by-a-revoked-token": Forgery(
        "scheduled",
        "rules",
        "a schedule of a token that was revoked, though its principal may train",
        lambda leaves: [
            *leaves,
            entry(
                "schedule-added",
                name="late",
                every="day",
                since=0,
                by="cli:ana",
                token=2,
                asked={"dataset": "adult", "learner": "lazybb", "epsilon": "0.2"},
            ),
        ],
    ),
    "a-period-twice": Forgery(
        "scheduled",
        "rules",
        "a second job of a period",
        lambda leaves: again(leaves[: first(leaves, "token-revoked")], first(leaves, "reserved")),
    ),
    "of-another-name": Forgery(
        "tokens-and-grants",
        "rules",
        "a token that acts for one of another entry",
        lambda leaves: replaced(leaves, first(leaves, "token-created", 2), principal="token:ci#3"),
    ),
    "unknown-kind": Forgery(
        "four-jobs",
        "rules",
        "an entry that no reader knows",
        lambda leaves: [*leaves, entry("gift", epsilon="1")],
    ),
    "two-beginnings": Forgery("four-jobs", "rules", "a second genesis", lambda leaves: [*leaves, leaves[0]]),
    "archived-twice": Forgery(
        "archived",
        "rules",
        "a model that is archived is archived once more",
        lambda leaves: [*leaves, entry("model-archived", name="adult", reason="again", by="steward")],
    ),
    "a-job-of-the-archived": Forgery(
        "archived",
        "rules",
        "a job on a dataset that is archived",
        lambda leaves: [*leaves[: first(leaves, "dataset-archived") + 1], leaves[first(leaves, "reserved", 1)]],
    ),
    "charged-too-little": Forgery(
        "spent-elsewhere",
        "figures",
        "a release made elsewhere is charged less than its curve says",
        lambda leaves: replaced(leaves, first(leaves, "charged", 2), curve={"rho": "0.02"}),
    ),
    "charged-half-its-delta": Forgery(
        "spent-elsewhere",
        "figures",
        "a release made elsewhere takes less of the delta that is set apart than its records come to",
        lambda leaves: replaced(leaves, first(leaves, "charged", 10), delta="0.00000001"),
    ),
    "charged-beyond-its-delta": Forgery(
        "spent-elsewhere",
        "budgets",
        "releases made elsewhere take more of delta than is set apart",
        lambda leaves: replaced(leaves, first(leaves, "charged", 11), delta="0.00000009"),
    ),
    "charged-for-nothing": Forgery(
        "spent-elsewhere",
        "budgets",
        "a release made elsewhere is entered, and in no sum",
        lambda leaves: [*leaves, ledgers.changed(leaves[first(leaves, "charged", 2)], document="0" * 64)],
    ),
    "a-learner-nobody-admitted": Forgery(
        "learners-of-others",
        "rules",
        "a job runs a learner of others of which there is no admission",
        lambda leaves: again(leaves, first(leaves, "reserved"), parameters=outside_parameters(leaves, code=DIGEST)),
    ),
    "a-learner-without-its-admission": Forgery(
        "learners-of-others",
        "rules",
        "a job runs a learner of others, and says of no entry that it admits it",
        lambda leaves: again(leaves, first(leaves, "reserved"), parameters={}),
    ),
    "a-learner-that-was-removed": Forgery(
        "learners-of-others",
        "rules",
        "a job names an admission that has ended",
        lambda leaves: again(leaves, first(leaves, "reserved")),
    ),
    "a-learner-removed-before-the-start": Forgery(
        "learners-of-others",
        "rules",
        "a job that waited starts, though the admission of its learner has ended",
        lambda leaves: more("started", "reserved", 2)(leaves[: first(leaves, "learner-removed") + 1]),
    ),
    "a-learner-of-other-datasets": Forgery(
        "learners-of-others",
        "rules",
        "a job on a dataset for which its learner is not admitted",
        lambda leaves: again(
            leaves, first(leaves, "reserved"), parameters=json.loads(leaves[first(leaves, "reserved", 1)])["parameters"]
        ),
    ),
    "a-learner-admitted-twice": Forgery(
        "learners-of-others",
        "rules",
        "what is admitted already is admitted again, under another name",
        lambda leaves: [*leaves, ledgers.changed(leaves[first(leaves, "learner-admitted", 2)], name="other")],
    ),
    "a-program-vouched-for-everywhere": Forgery(
        "learners-of-others",
        "rules",
        "a program that reads rows is vouched for, and no dataset named",
        lambda leaves: replaced(leaves, first(leaves, "learner-admitted"), vouched="mu", neighbours=0),
    ),
    "a-program-that-nobody-vouched-for": Forgery(
        "vouched-programs",
        "rules",
        "a job runs a program that reads rows, and names no admission",
        lambda leaves: again(leaves, first(leaves, "reserved"), learner="ebm", parameters={}),
    ),
    "a-program-priced-by-another-promise": Forgery(
        "vouched-programs",
        "rules",
        "a program that keeps mu is charged as if it kept epsilon",
        lambda leaves: again(
            leaves, first(leaves, "reserved"), parameters=json.loads(leaves[first(leaves, "reserved", 1)])["parameters"]
        ),
    ),
    "withdrawn-though-named-by-a-learner": Forgery(
        "learners-of-others",
        "rules",
        "a registration is withdrawn, and an admission names it",
        lambda leaves: [*leaves[: first(leaves, "learner-admitted", 1) + 1], withdrawal(leaves, 1)],
    ),
    "withdrawn-though-charged": Forgery(
        "spent-elsewhere",
        "budgets",
        "a registration is withdrawn, and a release made elsewhere was charged on it",
        lambda leaves: [*leaves, withdrawal(leaves, 2)],
    ),
    "withdrawn-though-spent": Forgery(
        "four-jobs",
        "budgets",
        "a registration is withdrawn, and jobs were charged on it",
        lambda leaves: [*leaves, withdrawal(leaves)],
    ),
    "withdrawn-under-a-copy": Forgery(
        "withdrawn",
        "budgets",
        "a registration is withdrawn while a copy of it stands in its family",
        lambda leaves: [*leaves[: first(leaves, "dataset-joined") + 1], withdrawal(leaves, 1)],
    ),
    "withdrawn-copy-with-a-job": Forgery(
        "withdrawn",
        "budgets",
        "a copy is withdrawn, and a job on it was charged to its family",
        lambda leaves: [
            *again(
                leaves[: (at := first(leaves, "dataset-withdrawn", 1))], first(leaves, "reserved", 1), dataset="copy"
            ),
            leaves[at],
        ],
        1,
    ),
    "too-many-reports": Forgery(
        "campaign-of-reports",
        "rules",
        "more reports than owners were asked",
        lambda leaves: replaced(leaves, first(leaves, "campaign-closed"), reports=501),
    ),
    "too-few-reports": Forgery(
        "campaign-of-shares",
        "rules",
        "a model of fewer owners than were promised",
        lambda leaves: replaced(leaves, first(leaves, "campaign-closed"), reports=99),
        3,
    ),
}


def cheap_job(factor: str) -> Callable[[Home], None]:
    """A job that is charged its price times `factor`, sums and all: what only the definitions show."""

    def story(home: Home) -> None:
        home.ledger.register(ledgers.registration())
        with priced(Decimal(factor), sound=False):
            ledgers.reserve(home.ledger)

    return story


def cheap_choice(home: Home) -> None:
    with priced(Decimal("0.5"), sound=False):
        STORIES["tuned"](home)


CHEAPENED = {
    "price-halved": (cheap_job("0.5"), "half of what a job costs is charged"),
    "price-a-hair-lower": (cheap_job("0.998"), "two parts of a thousand of what a job costs are not charged"),
    "tuned-price-halved": (cheap_choice, "half of what a private choice costs is charged"),
}


def write_ledgers() -> None:
    for name, story in STORIES.items():
        with played(name, story) as home:
            write_ledger(name, home, Vector("ledger", layers(), (story.__doc__ or name).strip().split("\n")[0]))
    for name, forgery in FORGERIES.items():
        with played(name, STORIES[forgery.story]) as home:
            leaves = ledgers.bodies(home.path)
            forged = forgery.change(leaves)
            home.ledger.log.database.close()
            ledgers.rewrite(home.path, forged)
            at = next((seq for seq, leaf in enumerate(forged) if leaf != leaves[min(seq, len(leaves) - 1)]), None)
            at = len(forged) - 1 if at is None or at >= len(leaves) else at
            vector = Vector("ledger", layers(**{forgery.layer: FORGED}), forgery.why, at + forgery.behind)
            write_ledger(name, Home.open(ledgers.place(home.path)), vector)
    for name, (story, why) in CHEAPENED.items():
        with played(name, story) as home:
            at = first(ledgers.bodies(home.path), "reserved")
            write_ledger(name, home, Vector("ledger", layers(figures=FORGED), why, at))
    write_logs()


def write_logs() -> None:
    """What somebody without the log's key can do; `tiles/` beside the export, for readers of tiles."""
    for name, (why, change) in LOGS.items():
        with played(name, STORIES["four-jobs"]) as home:
            verdict = {"log": FORGED} if change else layers()
            folder = write_ledger(name, home, Vector("ledger", verdict, why), tiles=True)
            if change:
                change(folder)


def change_a_byte(folder: Path) -> None:
    path = folder / "ledger" / "entries.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = ledgers.changed(lines[3], by="nobody") + b"\n"
    path.write_bytes(b"".join(lines))
    tile = next((folder / "tiles" / "tile" / "entries").rglob("000.p/*"))
    tile.write_bytes(tile.read_bytes().replace(b'"by":"test"', b'"by":"tesu"', 1))


def leave_an_entry_out(folder: Path) -> None:
    path = folder / "ledger" / "entries.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    shutil.rmtree(folder / "tiles")


def trust_another_key(folder: Path) -> None:
    """The pinned key is not the one that signed."""
    trust = PublicKeys.from_json((folder / "trust.json").read_bytes())
    other = Office(issuer=7, log=8).trust
    (folder / "trust.json").write_bytes(replace(trust, log_pem=other.log_pem).to_json())


LOGS: dict[str, tuple[str, Callable[[Path], None] | None]] = {
    "tiles": ("an export beside the same ledger as tiles", None),
    "entry-changed": ("an entry says something else than what was signed", change_a_byte),
    "entry-left-out": ("an entry is missing", leave_an_entry_out),
    "checkpoint-of-another-key": ("the pinned key signed no checkpoint of this log", trust_another_key),
}


# ---- claims ----------------------------------------------------------------------------------------------------------


def planned(*runs: tuple[Any, int]) -> Plan:
    """A plan that draws by the mechanism which the event is of."""
    purposes = "select a 1-rule by weighted agreement", "count rows per bin"
    made = [(event, count, purpose) for (event, count), purpose in zip(runs, purposes, strict=False)]
    return Plan(tuple((Release(why, *ledgers.MECHANISMS[type(each)], 1000, each), count) for each, count, why in made))


TUNED = RepeatAndSelect(geometric(Decimal("0.05")), ((BoundedRange(Decimal("0.02")), 10), (PureDp(Decimal("0.01")), 1)))
MINIMUM = Plan.of(
    Release(f"minimise a convex loss{words}", "objective-perturbation", "l2", sensitivity, event)
    for words, sensitivity, event in (
        ("", 1000, Gaussian(Decimal(9))),
        (": how the loss curves", 1, PureDp(Decimal("0.03"))),
        (": how near the minimum is", 7, Gaussian(Decimal(180))),
    )
)
CLAIMS = {
    "claim-pure": (planned((PureDp(Decimal("0.05")), 4), (BoundedRange(Decimal("0.1")), 2)), "0"),
    "claim-renyi": (planned((Gaussian(Decimal(30)), 20), (PureDp(Decimal("0.01")), 2)), "0.000001"),
    "claim-gaussian": (planned((Gaussian(Decimal(30)), 20), (Gaussian(Decimal(12)), 1)), "0.000001"),
    "claim-adaptive": (planned((BoundedRange(Decimal("0.0248")), 60)), "0.000001"),
    "claim-adaptive-of-coins": (planned((PureDp(Decimal("0.05")), 60)), "0.000001"),
    "claim-of-a-choice": (planned((TUNED, 1)), "0.000001"),
    "claim-of-a-minimum": (MINIMUM, "0.000001"),
}
MISPAIRED: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "claim-of-another-mechanism": (
        "claim-gaussian",
        "exponential mechanisms at the price of Gaussian noise",
        lambda runs: [{**run, "mechanism": "exponential", "norm": "range"} for run in runs],
    ),
    "claim-of-a-wider-range": (
        "claim-adaptive",
        "permute-and-flip at the price of bounded range",
        lambda runs: [{**run, "mechanism": "permute-and-flip"} for run in runs],
    ),
    "claim-of-a-minimum-alone": (
        "claim-of-a-minimum",
        "objective perturbation without what its curvature and its nearness cost",
        lambda runs: runs[:1],
    ),
}


def scaled(part: str, factor: str) -> Callable[[dict[str, Any]], None]:
    """A figure of the claim times `factor`."""

    def change(said: dict[str, Any]) -> None:
        said[part] = times(said[part], factor)

    return change


def times(figure: str, factor: str) -> str:
    return decimal_string((Decimal(figure) * Decimal(factor)).quantize(Decimal("0.000000001")))


def scaled_curve(factor: str) -> Callable[[dict[str, Any]], None]:
    def change(said: dict[str, Any]) -> None:
        said["rdp"] = [{**line, "epsilon": times(line["epsilon"], factor)} for line in said["rdp"]]

    return change


CLAIM_CHANGES: dict[str, tuple[str, str, Callable[[dict[str, Any]], None]]] = {
    "": ("", "as the accountant states it", lambda said: None),
    "-overstated": ("", "twice the epsilon is stated: it promises less than it could", scaled("epsilon", "2")),
    "-understated": ("epsilon", "half of epsilon is stated", scaled("epsilon", "0.5")),
    "-understated-by-a-part": ("epsilon", "97 of 100 parts of epsilon are stated", scaled("epsilon", "0.97")),
    "-curve-overstated": ("", "twice the Renyi figures are stated", scaled_curve("2")),
    "-curve-understated": ("curve", "half of the Renyi figures is stated", scaled_curve("0.5")),
}


def write_claims() -> None:
    for name, (plan, delta) in CLAIMS.items():
        needs = tuple(sorted({event.type for event, _ in plan.events} & {RepeatAndSelect.type}))
        for ending, (wrong, why, change) in CLAIM_CHANGES.items():
            statement = json.loads(Office().statement(b"a model", plan, delta=delta))
            change(statement["predicate"]["claim"])
            folder = FOLDER / f"{name}{ending}"
            folder.mkdir()
            (folder / "statement.json").write_bytes(canonical.encode(statement, 1 << 20))
            verdicts = {each: FORGED if each == wrong else SOUND for each in ("epsilon", "curve")}
            finish(folder, Vector("claim", verdicts, why, needs=needs))
    for name, (base, why, change) in MISPAIRED.items():
        plan, delta = CLAIMS[base]
        statement = json.loads(Office().statement(b"a model", plan, delta=delta))
        statement["predicate"]["mechanisms"] = change(statement["predicate"]["mechanisms"])
        folder = FOLDER / name
        folder.mkdir()
        (folder / "statement.json").write_bytes(canonical.encode(statement, 1 << 20))
        finish(folder, Vector("claim", {"epsilon": SOUND, "curve": SOUND, "pairs": FORGED}, why))


# ---- bundles ---------------------------------------------------------------------------------------------------------

BUNDLE = ("epsilon", "curve", "signature", "subject", "proof", "binding", "standing")


def write_bundle(name: str, why: str, filed: Filed, trust: PublicKeys, *forged: str) -> None:
    folder = FOLDER / name
    folder.mkdir()
    (folder / "model.onnx").write_bytes(filed.onnx)
    (folder / "model.onnx.dsse.json").write_bytes(filed.envelope)
    (folder / "model.onnx.tlog-proof").write_text(filed.proof)
    (folder / "model.onnx.sigstore.json").write_bytes(dsse.to_sigstore_bundle(filed.envelope))
    (folder / "trust.json").write_bytes(trust.to_json())
    finish(folder, Vector("bundle", {each: FORGED if each in forged else SOUND for each in BUNDLE}, why))


def restated(office: Office, change: Callable[[dict[str, Any]], None]) -> Filed:
    """A certificate of another claim, signed and entered by who holds both keys."""
    value = json.loads(office.statement(b"a model"))
    change(value["predicate"]["claim"])
    payload = canonical.encode(value, 1 << 20)
    index = office.enter(payload, b"a model")
    return Filed(payload, office.sign(payload), index, office.proof(index), b"a model")


def write_bundles() -> None:
    made = Office()
    filed = made.issue()
    stranger = Office(issuer=7, log=8)
    write_bundle("bundle", "a certificate as it was issued", filed, made.trust)
    other = replace(filed, onnx=b"another model")
    write_bundle("bundle-of-another-model", "the file is another", other, made.trust, "subject")
    resigned = replace(filed, envelope=made.sign(filed.payload, 7))
    write_bundle("bundle-signed-by-another", "the issuer's key did not sign it", resigned, made.trust, "signature")
    moved = replace(filed, proof=made.proof(filed.index - 1))
    write_bundle("bundle-of-another-entry", "the proof is of another entry", moved, made.trust, "binding")
    wrong_log = replace(made.trust, log_pem=stranger.trust.log_pem)
    write_bundle("bundle-in-another-log", "the pinned log key did not sign the checkpoint", filed, wrong_log, "proof")
    revoked = replace(made.trust, revoked=frozenset({filed.index}))
    write_bundle("bundle-revoked", "the certificate was revoked", filed, revoked, "standing")
    for name, change, forged in (
        ("bundle-overstated", scaled("epsilon", "2"), ()),
        ("bundle-understated", scaled("epsilon", "0.5"), ("epsilon",)),
        ("bundle-curve-understated", scaled_curve("0.5"), ("curve",)),
    ):
        thief = Office()
        why = "signed and entered by who holds both keys: " + CLAIM_CHANGES[name.removeprefix("bundle")][1]
        write_bundle(name, why, restated(thief, change), thief.trust, *forged)


def write() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with mock.patch("accountant.certificates.statement.distributions", list):  # of one machine, and no part of this
        write_ledgers()
        write_claims()
        write_bundles()


if __name__ == "__main__":
    write()
    print(sum(1 for _ in FOLDER.iterdir()), "vectors in", FOLDER.relative_to(ROOT))
