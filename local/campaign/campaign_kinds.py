"""The kinds of campaigns: how owners are asked, and what is learnt from what they answer.

A new kind is one class here and its `case` in `kind_of`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger import campaigns
from accountant.ledger.families.records import State
from accountant.noise import shares
from dpserve_verify.errors import InputError
from local.reports.definition import Definition
from local.reports.learning import learn_from_reports
from local.reports.question import Question
from local.reports.report_store import ReportStore
from local.reports.shared import AGGREGATORS, SharedDefinition
from local.reports.shared_learning import learn_shared
from local.reports.sums import HELD, SUM, add_answers
from local.rounds import playing
from local.rounds.definition import RoundsDefinition
from local.rounds.store import RoundStore, Rule
from local.turns import turns
from local.turns.definition import BoostedDefinition
from models.forms.ensemble import Ensemble
from training.finish.release import lock_job

ROUNDS = "rounds.db"
Asks = TypeVar("Asks", bound=Question)


@dataclass(frozen=True)
class CampaignKind(ABC, Generic[Asks]):
    """One campaign that was opened, as its kind handles it.

    Attributes:
        folder: of the campaign, in its home; it has the campaign's name.
        job: number of its reservation.
        definition: what owners are asked, as it was signed.
        reports: what they answered.
    """

    home: Home
    folder: Path
    job: int
    definition: Asks
    reports: ReportStore

    @property
    def name(self) -> str:
        """Return the campaign's name."""
        return self.folder.name

    def create(self) -> None:
        """Create what the kind keeps beside the reports."""
        return

    def turn_to_json(self) -> dict[str, Any]:
        """Return the turn that is being asked, of how many, and how many of its owners have answered; 0 of no turns."""
        return {"rounds": 0, "turns": 0, "turn": 0, "turn_reports": 0, "turn_least": 0}

    def aggregators_to_json(self) -> list[dict[str, Any]]:
        """Return the aggregators, and how far each is; none where reports are asked for."""
        return []

    def published(self) -> tuple[dict[str, Any], int | None]:
        """Return what owners have to know beside the definition, and the entry that says so, where one does."""
        return turns.ALL_AT_ONCE, None

    @abstractmethod
    def add_report(self, owner: int, value: int) -> None:
        """Take an owner's report in. InputError where `value` is no index of the campaign's vectors, or it asks for
        shares; IdempotencyConflict for another report of the same owner.
        """

    def end_cut_turn(self) -> None:
        """End a turn whose end was cut by a crash."""
        return

    def end_turn(self) -> None:
        """End the turn that is being asked, though not all of its owners have answered. To be called alone."""
        raise WrongState(f"campaign={self.name}: asks all owners at once, and has no turns")

    def end_last_turn(self) -> None:
        """End the turn that is being asked, where enough of its owners have answered. To be called alone."""
        return

    def is_waiting(self, count: int) -> bool:
        """Tell whether nothing can be learnt yet from so many reports, which are all that will come."""
        return False

    def count_learnt(self, count: int) -> int:
        """Return of how many owners the model learns, where so many reported."""
        return count

    @abstractmethod
    def learn(self) -> Ensemble | None:
        """Return the model; None where nothing was learnt."""


class AtOnce(CampaignKind[Definition]):
    """Every owner draws one report; all are asked alike."""

    def add_report(self, owner: int, value: int) -> None:
        """Take it in."""
        check_report(value, self.definition.candidates)
        self.reports.add(owner, value, 1)

    def learn(self) -> Ensemble:
        """Learn from all reports."""
        return learn_from_reports(self.definition, *self.reports.all())


class InTurns(CampaignKind[BoostedDefinition]):
    """Owners draw one report each, turn by turn; what was learnt before a turn is published."""

    def turn_to_json(self) -> dict[str, Any]:
        """Return where it stands."""
        return turns.state_of(self.home, self.job, self.definition, self.reports)

    def published(self) -> tuple[dict[str, Any], int | None]:
        """Return the turn, and the model so far."""
        return turns.offer_turn(self.home, self.folder, self.job)

    def add_report(self, owner: int, value: int) -> None:
        """Take it in; the last one of a turn ends it."""
        turn = self.definition.turn_of(owner)
        check_report(value, self.definition.mechanism_in(turn).candidates)
        if self.reports.add(owner, value, turn):
            self._end_if(lambda: turns.is_full(self.definition, self.reports), wait=True)

    def end_cut_turn(self) -> None:
        """End it, unless another process is at it."""
        with suppress(BlockingIOError):
            self._end_if(lambda: turns.is_cut(self.home, self.job, self.reports), wait=False)

    def _end_if(self, due: Callable[[], bool], wait: bool) -> None:
        """End the turn, unless somebody else has ended it meanwhile."""
        if due():
            with lock_job(self.home, f"campaign-{self.name}", wait):
                if due():
                    self.end_turn()

    def end_turn(self) -> None:
        """Learn from its reports, and publish."""
        turns.end_turn(self.home, self.folder, self.job, self.definition, self.reports)

    def end_last_turn(self) -> None:
        """End it, where the campaign is open."""
        turns.end_last(self.home, self.folder, self.job, self.definition, self.reports)

    def learn(self) -> Ensemble | None:
        """Return what was published when the last voter had been weighed."""
        return turns.last_model(self.home, self.folder, self.job, self.definition)


class OfShares(CampaignKind[SharedDefinition]):
    """Every owner sends a share to each of two aggregators, which answer with noisy sums."""

    def aggregators_to_json(self) -> list[dict[str, Any]]:
        """Return the two."""
        with_shares, answered = (self.reports.said(kind) for kind in (HELD, SUM))
        return [
            {
                "name": aggregator.name,
                "fingerprint": aggregator.fingerprint,
                "opened": at in with_shares,
                "answered": at in answered,
            }
            for at, aggregator in enumerate(self.definition.aggregators)
        ]

    def add_report(self, owner: int, value: int) -> None:
        """Refuse it."""
        raise InputError(f"campaign={self.name}: asks for shares, at .../shares")

    def is_waiting(self, count: int) -> bool:
        """Tell whether enough owners sent shares, and an aggregator has not answered."""
        return count >= self.definition.least and len(self.reports.said(SUM)) < AGGREGATORS

    def count_learnt(self, count: int) -> int:
        """Return of how many owners both aggregators opened shares."""
        return count if count < self.definition.least else self._total[1]

    def learn(self) -> Ensemble:
        """Learn from the sum of both answers."""
        return learn_shared(self.definition, *self._total)

    @cached_property
    def _total(self) -> tuple[Any, int]:
        return add_answers(self.definition, self.reports.said(SUM))


class OfInstitutions(CampaignKind[RoundsDefinition]):
    """Institutions send shares of sum after sum over their rows, and two aggregators the noisy sums."""

    @property
    def rounds(self) -> RoundStore:
        """Open what was sent of the rounds."""
        asked = self.definition
        return RoundStore(self.folder / ROUNDS, Rule(asked.owners, asked.least, asked.patience))

    def create(self) -> None:
        """Create the file of the rounds."""
        self.rounds.create()

    def begun(self) -> dict[int, str]:
        """Return the sha256 of the word by which each aggregator, 1 or 2, has begun."""
        return campaigns.answered_by(self.home.ledger, self.job)

    def turn_to_json(self) -> dict[str, Any]:
        """Return the round that is asked, of how many, and how many institutions have sent their shares of it."""
        turn, sent = self.rounds.where()
        total = len(self.definition.rounds)
        return {
            "rounds": total,
            "turns": total,
            "turn": min(turn + 1, total),
            "turn_reports": sent,
            "turn_least": self.definition.least,
        }

    def aggregators_to_json(self) -> list[dict[str, Any]]:
        """Return the two."""
        begun, over = self.begun(), self._is_over
        return [
            {"name": each.name, "fingerprint": each.fingerprint, "opened": at in begun, "answered": over}
            for at, each in enumerate(self.definition.aggregators, 1)
        ]

    def add_report(self, owner: int, value: int) -> None:
        """Refuse it."""
        raise InputError(f"campaign={self.name}: asks institutions for shares of sums")

    def end_turn(self) -> None:
        """Go on without the institutions that have not sent their shares of the round that is asked."""
        self.rounds.begin()

    def end_last_turn(self) -> None:
        """Raise WrongState where rounds are left: closing would end a campaign that was charged."""
        if self.home.ledger.job(self.job).state is State.STARTED and not self._is_over:
            turn, total = self.rounds.where()[0] + 1, len(self.definition.rounds)
            raise WrongState(
                f"campaign={self.name}: is at round {turn} of {total}; close it once all are over, or give it up"
            )

    def learn(self) -> Any:
        """Learn from the noisy sums of all rounds; of what counts rows, return the counts."""
        totals = [shares.from_bytes(total).view(np.int64) for total in self.rounds.answers()]
        return playing.learn(self.definition, totals)

    @property
    def _is_over(self) -> bool:
        return self.rounds.where()[0] >= len(self.definition.rounds)


def check_report(value: int, most: int) -> None:
    """Raise InputError where a report is none of so many vectors."""
    if not 0 <= value < most:
        raise InputError(f"report={value}: must be from 0 to {most - 1}")


def kind_of(home: Home, folder: Path, job: int, definition: Question, reports: ReportStore) -> CampaignKind[Any]:
    """Return a campaign as its kind: the one place that looks at what is asked."""
    match definition:
        case RoundsDefinition():
            return OfInstitutions(home, folder, job, definition, reports)
        case SharedDefinition():
            return OfShares(home, folder, job, definition, reports)
        case BoostedDefinition():
            return InTurns(home, folder, job, definition, reports)
        case Definition():
            return AtOnce(home, folder, job, definition, reports)
    raise InputError(f"campaign={folder.name}: is of no kind that this version knows")
