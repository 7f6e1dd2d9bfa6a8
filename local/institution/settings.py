"""What an institution decides beforehand, in one file of its own (institution.toml). What is not understood is refused.

url = "https://campaigns.example"    # where campaigns are
trust = "trust.json"                 # the pinned keys of who asks
dataset = "clinic"                   # of the home of this institution (DPSERVE_HOME): its rows, unit and total
seen = "seen"                        # a folder: the checkpoints of the platform's log that were seen
ca = "ca.pem"                        # of the server's certificate; the system's when left out
witnesses = "witnesses.policy"       # whose cosignatures the log must show (C2SP tlog-policy); nobody's when left out

[policy]
largest_epsilon = "1"                # of one campaign; the dataset's own total holds as well
largest_delta = "0.000001"
aggregators = ["FINGERPRINT"]        # those you trust: one of the two must be among them
learners = ["ebm", "forest", "evaluation", "profile"]
least_institutions = 2               # in a sum
least_worth = "0.6"                  # of a campaign's forecast: 0.5 is guessing, 1 perfect; any when left out
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from accountant.ledger.families.families import Dataset
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.log.seen_checkpoints import SeenCheckpoints
from dpserve_verify.privacy.budget import Relation, exact_decimal
from local.campaign.asking import Carry, check_url, seen_beside
from local.reports.forecast import read_least_worth
from local.reports.toml import Kind, check_settings
from local.rounds.definition import ROUND_ASKED, RoundsDefinition
from local.rounds.playing import schema_in
from training.rows.schema.schema import Schema

INVITATIONS = "invitations"  # the folder beside the file: in it a file of each campaign's name holds what lets it in


@dataclass(frozen=True)
class Policy:
    """What an institution agrees to. `aggregators`: fingerprints of those whom it believes to be honest. `least_worth`:
    of the forecast that a campaign is signed with; None: whatever it is.
    """

    largest_epsilon: Decimal
    largest_delta: Decimal
    aggregators: tuple[str, ...]
    learners: tuple[str, ...] = ROUND_ASKED
    least_institutions: int = 2
    least_worth: Decimal | None = None

    def check(self, definition: RoundsDefinition) -> None:
        """Raise BudgetRefused where a campaign asks for more than one may cost; InputError for the first other thing
        that is not agreed to. Decided by the definition and the settings, never by rows.
        """
        for name in ("epsilon", "delta"):
            most = getattr(self, f"largest_{name}")
            if getattr(definition, name) > most:
                raise BudgetRefused(
                    f"{name}={getattr(definition, name)}: your policy gives at most {most} to a campaign"
                )
        if definition.learner not in self.learners:
            raise InputError(f"learner={definition.learner}: your policy allows {', '.join(self.learners)}")
        if not {aggregator.fingerprint for aggregator in definition.aggregators} & set(self.aggregators):
            raise InputError("aggregators: your policy names neither of the two that the campaign has")
        if definition.least < self.least_institutions:
            raise InputError(
                f"least={definition.least}: your policy wants at least {self.least_institutions} institutions in a sum"
            )


@dataclass(frozen=True)
class Settings:
    """institution.toml, with paths beside that file, which is in `folder`."""

    folder: Path
    url: str
    trust: Path
    dataset: str
    ca: Path | None
    policy: Policy
    seen: SeenCheckpoints
    carry: Carry | None = None


def read_settings(path: Path) -> Settings:
    """Read institution.toml. InputError where it is not there, or says something that is not understood."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as TOML ({type(error).__name__})") from None
    needed: dict[str, Kind] = {"url": str, "trust": str, "dataset": str, "seen": str, "policy": dict}
    top = check_settings(raw, needed, {"ca": str, "witnesses": str})
    policy = check_settings(
        top["policy"],
        {"largest_epsilon": str, "largest_delta": str, "aggregators": list},
        {"learners": list, "least_institutions": int, "least_worth": str},
    )
    largest = ("largest_epsilon", "largest_delta")
    limits: dict[str, Any] = {name: exact_decimal(name, policy.pop(name)) for name in largest}
    limits |= {name: tuple(value) if isinstance(value, list) else value for name, value in policy.items()}
    if "least_worth" in limits:
        limits["least_worth"] = read_least_worth(limits["least_worth"])
    beside = {name: path.parent / top[name] for name in ("ca", "witnesses") if name in top}
    return Settings(
        path.parent, check_url(top["url"]), path.parent / top["trust"], top["dataset"], beside.get("ca"),
        Policy(**limits), seen_beside(path.parent / top["seen"], beside.get("witnesses")),
    )  # fmt: skip


def check_dataset(definition: RoundsDefinition, dataset: Dataset, schema: Schema) -> None:
    """Raise InputError unless a registered dataset can be asked: it has the campaign's features and target, and its
    unit of privacy, bounded at least as tightly.
    """
    registration, wanted, name = dataset.registration, schema_in(definition), dataset.registration.name
    if registration.remote or registration.relation is not Relation.ADD_REMOVE or len(schema.targets) > 1:
        raise InputError(f"dataset={name}: must hold rows of its own, under add-remove, with one target")
    own, asked = registration.unit, definition.unit
    if (own.column is None) != (asked.column is None) or own.contributions > asked.contributions:
        raise InputError(
            f"unit: the campaign's is {asked.name} with at most {asked.contributions} rows, and the dataset's "
            f"{own.name} with at most {own.contributions}: what it protects must be what you registered"
        )
    same = ("features", "target", "classes", "target_range")
    differ = [each for each in same if getattr(schema, each) != getattr(wanted, each)]
    if differ:
        raise InputError(
            f"schema: the campaign's and that of dataset {name} differ in {', '.join(differ)}; register your rows "
            "under the campaign's schema"
        )
