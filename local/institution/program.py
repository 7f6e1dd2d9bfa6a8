"""An institution answers a campaign: fetch, verify, hold against the own policy and dataset, charge the own home, and
then, round by round, send shares of what the own rows come to.

Whether an institution answers follows from what is public, and when does not depend on what rows say: sums take as long
whatever they come to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.noise import shares
from dpserve_verify.errors import CertificateInvalid, InputError, LedgerUnavailable
from dpserve_verify.formats.canonical import decode_base64, encode
from dpserve_verify.privacy.budget import Budget
from local.campaign.asking import (
    BYTES,
    ask,
    believe_history,
    fetch_campaign,
    invited_number,
    read_pinned_keys,
    reading,
    verify_offer,
)
from local.forecast.simulating import require_worth
from local.institution.contribution_steps import ContributionRequest, ContributionSteps, charged
from local.institution.settings import Settings, check_dataset
from local.reports.question import Question
from local.rounds import playing
from local.rounds.definition import PROFILE, RoundsDefinition
from training.datasets.datasets import open_rows
from training.measuring.answers.cells import TableCells
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import schema_of

Integers = NDArray[np.int64]
POLL = 0.02  # seconds between two looks for a round's answer
Progress = Callable[[int, int], None]


def answer(
    home: Home, settings: Settings, name: str, invitation: str, by: str, wait: float = 600.0,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """Answer the campaign `name` to its last round; started again, from the round that it is at. The home's dataset is
    charged once, before anything is sent. `wait`: seconds for the answer of one round.

    Raises:
        InputError, BudgetRefused: the campaign asks for what the policy, the dataset or its total does not allow;
            nothing was charged or sent.
        IdempotencyConflict: it was answered with another dataset, or as another institution, before.
        CertificateInvalid, LedgerInvalid, KeyInvalid, OtherHistory: it is not signed, or not in the pinned log.
        LedgerUnavailable: the service is away, or no answer came within `wait` seconds; do the same again.
        WrongState: the campaign is over.
    """
    number, trust = invited_number(invitation), read_pinned_keys(settings)

    def believe(offer: dict[str, Any]) -> Question:
        verified = verify_offer(offer, trust, name)
        believe_history(settings, offer, verified, trust)
        if offer.get("state") != "open":  # nothing was charged, and nothing would come of it
            raise WrongState(f"campaign={name}: is {offer.get('state')!s:.20}, and asks nobody any more")
        return verified.definition

    definition = fetch_campaign(settings, name, believe)
    if not isinstance(definition, RoundsDefinition):
        raise InputError(f"campaign={name}: asks owners; answer it by dpserve owner")
    if number >= definition.owners:
        raise InputError(f"invitation: is of institution {number}; the campaign has {definition.owners}")
    settings.policy.check(definition)
    with reading("definition"):
        public = playing.check_definition(definition)
    if settings.policy.least_worth is not None and not definition.is_counting:
        require_worth(definition, settings.policy.least_worth)
    dataset = home.ledger.dataset(settings.dataset, part=definition.part)
    check_dataset(definition, dataset, schema_of(home, dataset))
    charge = _charge(home, settings, definition, number, by)
    started = charged(home, charge)
    line = _Line(settings, definition, number, invitation, wait, progress)
    before = line.answers()
    with closing(_open(home, started, definition)) as rows:
        playing.play(definition, public, rows, before, line.exchange)
    return {
        "campaign": name,
        "dataset": settings.dataset,
        "institution": number,
        "job": charge,
        "rounds": len(definition.rounds),
        "epsilon": str(definition.epsilon),
        "delta": str(definition.delta),
    }


def _charge(home: Home, settings: Settings, definition: RoundsDefinition, number: int, by: str) -> int:
    """Charge the dataset for the whole campaign, once; the job's number."""
    about: dict[str, str | int | bool | None] = {
        "campaign": definition.campaign,
        "population": definition.population,
        "institution": number,
    }
    request = ContributionRequest(
        settings.dataset, definition.learner, Budget(definition.epsilon, definition.delta), about, definition.digest,
        definition.standard, definition.plan, definition.part,
    )  # fmt: skip
    return ContributionSteps.submit(home, request, by=by, key=None, queued=False, promotes=False).seq


def _open(home: Home, started: Started, definition: RoundsDefinition) -> Rows:
    """Open the rows that are asked: of a profile every row, in bins, with an answer or without."""
    schema = schema_of(home, started.dataset)
    if definition.learner != PROFILE:
        return open_rows(home, started, schema)
    cells = TableCells(schema)
    return cells.open(home, started, [cells.axis(name, fine=False) for name in cells.columns])


class _Line:
    """The line to the service, of one institution in one campaign."""

    def __init__(
        self, settings: Settings, definition: RoundsDefinition, number: int, invitation: str, wait: float,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._settings, self._definition, self._number = settings, definition, number
        self._invitation, self._wait, self._progress = invitation, wait, progress
        self._path = f"/v1/campaigns/{quote(definition.campaign, safe='')}/rounds"

    def answers(self) -> list[Integers]:
        """Return the noisy sums of all rounds that are over."""
        totals_so_far: list[Integers] = []
        while True:
            body = encode({"invitation": self._invitation, "after": len(totals_so_far) - 1})
            page = ask(self._settings, "POST", f"{self._path}/answers", body)
            with reading("answers"):
                totals = [self._read(text, len(totals_so_far) + at) for at, text in enumerate(page["answers"])]
            if not totals:
                return totals_so_far
            totals_so_far += totals

    def exchange(self, turn: int, exact: Integers) -> Integers:
        """Send shares of the sums of one round, sealed, the same bytes until it is over; return its noisy sum."""
        halves = shares.share(exact)
        sealed = b"".join(
            shares.seal(shares.to_bytes(half), bytes.fromhex(whom.seal), self._definition.about(turn, self._number, at))
            for at, (half, whom) in enumerate(zip(halves, self._definition.aggregators, strict=True))
        )
        body, until = f"{self._invitation}\n{turn}\n".encode() + sealed, time.monotonic() + self._wait
        while True:
            try:
                answer = ask(self._settings, "POST", f"{self._path}/shares", body, BYTES).get("answer")
            except LedgerUnavailable:
                if time.monotonic() > until:
                    raise
                answer = None
                time.sleep(1.0)
            if answer is not None:
                with reading("answer"):
                    total = self._read(answer, turn)
                self._progress(turn + 1, len(self._definition.rounds))
                return total
            if time.monotonic() > until:
                raise LedgerUnavailable(
                    f"campaign={self._definition.campaign}: round {turn + 1} has no answer after {self._wait:.0f} s; "
                    "start again to go on"
                )
            time.sleep(POLL)

    def _read(self, text: Any, turn: int) -> Integers:
        total = shares.from_bytes(decode_base64(str(text))).view(np.int64)
        if turn >= len(self._definition.rounds) or total.size != self._definition.numbers_of(turn):
            raise CertificateInvalid(f"answer: of round {turn + 1}, which has no sum of {total.size} numbers")
        return total
