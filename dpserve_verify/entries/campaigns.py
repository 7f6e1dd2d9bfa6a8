"""Campaigns: what owners and institutions were asked, and how many answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay
    from dpserve_verify.audit.replay_budget import DatasetState

from dpserve_verify.entries.entry import Count, EntryForm, Hex, Index
from dpserve_verify.formats.forms import Limits


class CampaignForm(EntryForm):
    """An entry about the campaign of a job, which has this definition."""

    reservation: Index
    definition: Hex


class CampaignOpened(CampaignForm):
    """Owners are asked."""

    type: Literal["campaign-opened"]

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.campaigns.judge_opened(self, replay.job(self.reservation).state)


class CampaignClosed(CampaignForm):
    """No more reports are taken."""

    type: Literal["campaign-closed"]
    reports: Annotated[int, Limits(low=0)]

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.campaigns.judge_closed(self, replay.job(self.reservation).state)


class CampaignRound(CampaignForm):
    """A turn is over."""

    type: Literal["campaign-round"]
    round: Count
    reports: Count
    ensemble: Hex

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.campaigns.judge_round(self)


class CampaignAnswered(CampaignForm):
    """One of the two aggregators has an answer, and sends no other."""

    type: Literal["campaign-answered"]
    aggregator: Annotated[Literal[1, 2], Limits(refusal="must be 1 or 2")]
    answer: Hex

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.campaigns.judge_answered(self, replay.job(self.reservation).state)


_HEX = re.compile("[0-9a-f]{64}", re.ASCII)
_SUM = ("discrete-gaussian", "sum of all owners' statistics", "l2")


@dataclass(slots=True)
class CampaignState:
    """Of a job on owners' data. `reports`: how many counted, once it is closed. `turns`: in how many owners answer, 0
    where all are asked at once; `ensembles`: what each that has ended has learnt, and `answered` how many in all.
    `shared`: owners send shares; `summed`: which of the two aggregators have answered. `in_rounds`: institutions send
    shares of sum after sum, and each aggregator has entered, before the first, which of its processes answers.
    """

    definition: str
    owners: int
    least: int
    open: bool = False
    reports: int | None = None
    turns: int = 0
    ensembles: list[str] = field(default_factory=list)
    answered: int = 0
    shared: bool = False
    summed: set[int] = field(default_factory=set)
    in_rounds: bool = False


@dataclass
class Campaigns:
    """By the job's number: every job on data that stays with its owners has one, and no other job has."""

    states: dict[int, CampaignState] = field(default_factory=dict)

    def judge_reserved(self, seq: int, value: Mapping[str, Any], dataset: DatasetState) -> None:
        """Judge a job on owners' data: one pure report of each by one of K or, of shares, one sum with Gaussian noise.
        The campaign is defined before the job is reserved.
        """
        plan, parameters = value["plan"], value["parameters"]
        if not dataset.remote:
            require(all(run["mechanism"] != "one-of-k" for run in plan), "plan: reports are asked of owners alone")
            return
        if dataset.shared:
            summed = [(run["mechanism"], run["purpose"], run["norm"], run["count"]) for run in plan]
            require(summed == [(*_SUM, 1)], "plan: must be one sum of shares, with discrete Gaussian noise")
            _require_digests(parameters, "aggregator_1", "aggregator_2")
            require(parameters["aggregator_1"] != parameters["aggregator_2"], "aggregators: must be two")
        elif dataset.institutions is not None:
            sums = all((run["mechanism"], run["norm"]) == (_SUM[0], _SUM[2]) for run in plan)
            require(sums, "plan: institutions are asked for sums with discrete Gaussian noise alone")
            _require_digests(parameters, "aggregator_1", "aggregator_2")
            require(parameters["aggregator_1"] != parameters["aggregator_2"], "aggregators: must be two")
        else:
            ours = [(run["mechanism"], run["count"]) for run in plan]
            require(ours == [("one-of-k", 1)], "plan: must be one report of each owner, by one-of-k")
        _require_digests(parameters, "definition")
        owners, least = parameters["owners"], parameters["least"]
        most = dataset.records if dataset.institutions is None else dataset.institutions
        in_range = type(owners) is int and type(least) is int and 1 <= least <= owners <= most
        require(in_range, "owners: must be as many as least, and no more than the population has")
        turns = parameters.get("turns", 0)
        require(type(turns) is int and 0 <= turns <= owners, "turns: must be a whole number, no more than owners")
        about = parameters["definition"], owners, least
        in_rounds = dataset.institutions is not None
        self.states[seq] = CampaignState(*about, turns=turns, shared=dataset.shared, in_rounds=in_rounds)

    def judge_opened(self, form: CampaignOpened, job: str) -> None:
        """Judge `campaign-opened`: once, and of the definition that was priced. `job`: its state."""
        state = self._state(form)
        require(job == "started", f"job {form.reservation}: is {job}, must have started to be opened", "wrong_state")
        require(not state.open, f"job {form.reservation}: its campaign was opened before", "wrong_state")
        state.open = True

    def judge_closed(self, form: CampaignClosed, job: str) -> None:
        """Judge `campaign-closed`: once, after it was opened; no more reports than owners."""
        state, reports = self._state(form), form.reports
        require(job == "started", f"job {form.reservation}: is {job}, must have started to be closed", "wrong_state")
        require(
            state.open and state.reports is None,
            f"job {form.reservation}: has no open campaign to close",
            "wrong_state",
        )
        in_range = state.answered <= reports <= state.owners
        require(in_range, f"reports={reports!r:.40}: more than owners, or fewer than the turns had")
        state.reports = reports

    def judge_round(self, form: CampaignRound) -> None:
        """Judge `campaign-round`: while the campaign is open, each turn once and in order, of no more owners than are
        left.
        """
        state, turn, reports = self._state(form), form.round, form.reports
        require(state.open and state.reports is None, f"job {form.reservation}: has no open campaign", "wrong_state")
        due = len(state.ensembles) + 1
        require(turn == due <= state.turns, f"round={turn!r:.40}: is not {due} of {state.turns}", "wrong_state")
        in_range = reports <= state.owners - state.answered
        require(in_range, f"reports={reports!r:.40}: must be at least one, and no more than the owners who are left")
        state.ensembles.append(form.ensemble)
        state.answered += reports

    def judge_answered(self, form: CampaignAnswered, job: str) -> None:
        """Judge `campaign-answered`: by each of two aggregators once, after the campaign was closed; where institutions
        answer in rounds, while it is open. `job`: its state.
        """
        state, aggregator = self._state(form), form.aggregator
        require(job == "started", f"job {form.reservation}: is {job}, must have started to be answered", "wrong_state")
        due = (state.shared and state.reports is not None) or (state.in_rounds and state.open and state.reports is None)
        require(due, f"job {form.reservation}: asks no aggregators now", "wrong_state")
        require(aggregator not in state.summed, f"aggregator {aggregator}: has answered twice")
        state.summed.add(aggregator)

    def require_answered(self, job: int, released: str) -> None:
        """Raise LedgerInvalid unless the campaign is closed and as many owners answered as its entry says. Where they
        answered in turns, the model must be what one of these turns published.
        """
        state = self.states.get(job)
        if state is not None:
            enough = state.reports is not None and state.reports >= state.least
            require(enough, f"job {job}: a model needs {state.least} reports of a closed campaign")
            begun = not state.in_rounds or state.summed == {1, 2}
            require(begun, f"job {job}: a model of institutions needs both aggregators")
            published = not state.turns or released in state.ensembles
            require(published, f"job {job}: its model is none that owners were shown in their turns")

    def _state(self, form: CampaignForm) -> CampaignState:
        state = self.states.get(form.reservation)
        if state is None:
            raise LedgerInvalid(f"job {form.reservation}: is not of owners' data")
        require(form.definition == state.definition, "definition: is not the one that was reserved")
        return state


def _require_digests(parameters: Mapping[str, Any], *names: str) -> None:
    for name in names:
        digest = isinstance(parameters[name], str) and _HEX.fullmatch(parameters[name])
        require(bool(digest), f"{name}: must be 64 hexadecimal digits")
