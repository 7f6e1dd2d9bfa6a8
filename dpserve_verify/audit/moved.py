"""Which releases one person's rows could have moved: a function of a ledger's entries alone, the same for whoever asks
and wherever it is reckoned. That the entries are sound is for the audit (docs/privacy/filter.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from dpserve_verify.certificates.chances import factor
from dpserve_verify.entries.job_kinds import JobKind, read_kind
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical import decimal_string, parse_decimal
from dpserve_verify.privacy.soundness import require

Window = tuple[int, int]
UP = Context(prec=6, rounding=ROUND_CEILING)
ENDS = ("issued", "evaluated", "profiled", "derived")  # kinds that bind what came of a job
STATES = {"started": "running", "committed": "released", "burned": "failed"}
WHAT = {
    JobKind.TRAINING: "model",
    JobKind.EVALUATION: "evaluation",
    JobKind.PROFILE: "counts",
    JobKind.CONTRIBUTION: "sums",
}


@dataclass
class _Dataset:
    """A dataset as its entries leave it. `last`: its newest block; `person`: the largest total of one person over all
    blocks, and its delta."""

    families: tuple[str, ...]
    unit: str
    relation: str
    last: int = 1
    person: tuple[Decimal, Decimal] | None = None


@dataclass
class Moved:
    """Reads entries in order. `totals`: of each family, the largest total epsilon that was ever in force, and delta."""

    datasets: dict[str, _Dataset] = field(default_factory=dict)
    totals: dict[str, tuple[Decimal, Decimal]] = field(default_factory=dict)
    releases: dict[int, dict[str, Any]] = field(default_factory=dict)

    def read(self, seq: int, value: Mapping[str, Any]) -> None:
        """Take an entry in."""
        match value["type"]:
            case "dataset-registered" | "dataset-joined" as kind:
                families = tuple(value["families"]) if kind == "dataset-joined" else (value["family"],)
                self.datasets[value["dataset"]] = _Dataset(families, value["unit"]["name"], value["relation"])
                if kind == "dataset-registered":
                    self.totals[value["family"]] = _total(value)
            case "dataset-withdrawn":
                self.datasets.pop(value["dataset"], None)
            case "dataset-appended":
                self.datasets[value["dataset"]].last = value["block"]
            case "budget-changed":
                self.totals[value["family"]] = _total(value)
            case "person-total":
                self.datasets[value["dataset"]].person = _total(value)
            case "reserved" | "charged":
                self.releases[seq] = {"entry": seq, **_asked(value)}
            case "started" | "committed" | "burned":
                self.releases[value["reservation"]]["state"] = STATES[value["type"]]
            case "released":
                self.releases.pop(value["reservation"], None)
            case kind if kind in ENDS:
                self.releases[value["reservation"]]["results"].append(seq)
            case "revoked":
                for each in self.releases.values():
                    if value["issued"] in each["results"]:
                        each["revoked"] = True

    def about(self, name: str, window: Window | None = None) -> dict[str, Any]:
        """Return what a statement says of one person in a dataset, or in a window of its blocks: every release that
        their rows could have moved, and its bounds. InputError where there is no such dataset or block.
        """
        require(name in self.datasets, f"dataset={name!r:.80}: no such dataset", "unknown_name", dataset=name)
        dataset = self.datasets[name]
        first, last = window or (1, dataset.last)
        if not 1 <= first <= last <= dataset.last:
            raise InputError(f"blocks={first}-{last}: dataset {name} has blocks 1 to {dataset.last}")
        names = sorted(each for each, it in self.datasets.items() if {*it.families} & {*dataset.families})
        adds_up = dataset.person is None and dataset.unit == "person"
        listed, together, times = (
            list[dict[str, Any]](),
            dict[str, Decimal | None](aside=Decimal(0), others=Decimal(0)),
            1,
        )
        for each in self.releases.values():
            begin, end = max(each["window"][0], first), min(each["window"][1], last)
            if each["dataset"] not in names or begin > end or each["state"] == "reserved":
                continue
            listed.append({key: each[key] for key in each if key not in ("pure", "window", "part")})
            listed[-1] |= {"blocks": {"first": begin, "last": end}} if dataset.last > 1 else {}
            listed[-1] |= {"aside": True} if each["part"] == "aside" else {}
            times = end - begin + 1 if adds_up else 1
            for part in ("aside", "others"):
                if each["part"] in (None, part):
                    total, pure = together[part], each["pure"]
                    together[part] = None if total is None or pure is None else total + times * pure
        totals = [self.totals[family] for family in dataset.families]
        totals = [dataset.person] if dataset.person else totals * (last - first + 1 if adds_up else 1)
        bounds = [("total", *chain(totals))]
        if None not in together.values():
            bounds.append(("sum", max(each for each in together.values() if each is not None), Decimal(0)))
        if len(listed) == 1 and listed[0]["epsilon"] is not None:
            one = parse_decimal(listed[0]["epsilon"]), parse_decimal(listed[0]["delta"])
            bounds.append(("one-release", *chain([one] * times)))
        by, epsilon, delta = min(bounds, key=lambda bound: bound[1])
        blocks = {"blocks": {"first": first, "last": last, "of": dataset.last}} if dataset.last > 1 else {}
        return {
            "dataset": name,
            "datasets": names,
            "unit": dataset.unit,
            "relation": dataset.relation,
            **blocks,
            "releases": listed,
            "bound": {"by": by, **_spelt(epsilon, delta)},
            "total": _spelt(*bounds[0][1:]),
        }


def moved(entries: Iterable[tuple[int, Mapping[str, Any]]], name: str, window: Window | None = None) -> dict[str, Any]:
    """Return `Moved.about` of these entries (index, value), in order. LedgerInvalid for one that cannot be read."""
    reader = Moved()
    for seq, value in entries:
        try:
            reader.read(seq, value)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise LedgerInvalid(f"entry {seq}: not of its type's form ({error!r:.200})", entry=seq) from error
    return reader.about(name, window)


def chain(bounds: Iterable[tuple[Decimal, Decimal]]) -> tuple[Decimal, Decimal]:
    """Return what follows for one who moves several (epsilon, delta) bounds at once: neighbours of neighbours, one
    after another. Epsilons add up; each delta counts e^(the epsilons before it) times, rounded up, at most 1.
    """
    epsilon, delta = Decimal(0), Decimal(0)
    for more, slack in bounds:
        delta += slack * factor(epsilon) if slack and epsilon else slack
        epsilon += more
    return epsilon, min(Decimal(1), delta.normalize(UP))


def _spelt(epsilon: Decimal, delta: Decimal) -> dict[str, str]:
    return {"epsilon": decimal_string(epsilon), "delta": decimal_string(delta)}


def _total(value: Mapping[str, Any]) -> tuple[Decimal, Decimal]:
    budget = value["budget"]
    return parse_decimal(value.get("largest", budget["epsilon"])), parse_decimal(budget["delta"])


def _asked(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a statement says of a release by the entry that charges it. `pure`: its worst case for one person,
    where there is any; `part`: of the people that may have moved it, None: all.
    """
    price, window = value["price"], tuple(value.get("window", (1, 1)))
    pure = None if price["unbounded"] else parse_decimal(price["pure"])
    known = {"time": value["time"], "dataset": value["dataset"], "results": list[int](), "revoked": False}
    known |= {"window": window, "pure": pure}
    if value["type"] == "charged":
        most = None if pure is None or "delta" in value else decimal_string(pure)
        delta = value.get("delta", "0")
        return known | {
            "what": "elsewhere", "name": value["mechanism"], "by": "", "epsilon": most, "delta": delta,
            "state": "released", "part": None,
        }  # fmt: skip
    claim, aside = value["claim"], value.get("part") == "holdout"
    return known | {
        "what": WHAT[read_kind(value)], "name": value["model"], "by": value["learner"], "epsilon": claim["epsilon"],
        "delta": claim["delta"], "state": "reserved", "part": "aside" if aside else "others",
    }  # fmt: skip
