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

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from accountant.ledger.families.families import Dataset
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Relation
from local.campaign.asking import Place
from local.campaign.settings_files import read_place, read_policy, read_toml
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
class Settings(Place):
    """institution.toml, with paths beside that file, which is in `folder`."""

    folder: Path
    dataset: str
    policy: Policy


def read_settings(path: Path) -> Settings:
    """Read institution.toml. InputError where it is not there, or says something that is not understood."""
    top = read_toml(path, {"dataset": str, "seen": str}, {})
    policy = read_policy(Policy, top["policy"])
    place = read_place(path, top, path.parent / top["seen"])
    return Settings(**place, folder=path.parent, dataset=top["dataset"], policy=policy)


def check_dataset(definition: RoundsDefinition, dataset: Dataset, schema: Schema) -> None:
    """Raise InputError unless a registered dataset can be asked: it has the campaign's features and target, and its
    unit of privacy, bounded at least as tightly.
    """
    registration, wanted, name = dataset.registration, schema_in(definition), dataset.registration.name
    if registration.remote or registration.relation is not Relation.ADD_REMOVE or len(schema.targets) > 1:
        raise InputError(f"dataset={name}: must hold rows of its own, under add-remove, with one target")
    own, theirs = registration.unit, definition.unit
    if (own.column is None) != (theirs.column is None) or own.contributions > theirs.contributions:
        raise InputError(
            f"unit: the campaign's is {theirs.name} with at most {theirs.contributions} rows, and the dataset's "
            f"{own.name} with at most {own.contributions}: what it protects must be what you registered"
        )
    same = ("features", "target", "classes", "target_range")
    differ = [each for each in same if getattr(schema, each) != getattr(wanted, each)]
    if differ:
        raise InputError(
            f"schema: the campaign's and that of dataset {name} differ in {', '.join(differ)}; register your rows "
            "under the campaign's schema"
        )
