"""Private selection inside a session: a random number of runs, each of one setting drawn from the public grid, each
scored privately; the best outcome is all that is left (docs/privacy/prices.md).

The number of runs is never told. So that the time does not tell it either, at least `most` runs are made, a public
number; those beyond the number drawn are made and forgotten. Only a draw above `most`, of chance below RARE, shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.noise.mechanisms import ExponentialSelection, draw_runs
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import MAX_EPSILON, Relation, from_nano, nano
from dpserve_verify.privacy.events import Plan, PureDp, Release, RepeatAndSelect, SimpleEvent
from dpserve_verify.privacy.selection import Distribution, Poisson
from models.forms.ensemble import Ensemble
from models.parts.answers import labels_of
from training.calibration.calibrate import rehearse
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import Rows
from training.session.learner import Learner
from training.session.session import Public, Rehearsal, Releaser, Session
from training.tuning.ceilings import Ceiling, Score

RARE = 1e-9
BLOCK = 1 << 16
FAIR = ExponentialSelection(Decimal(1))  # over equal scores: the uniform law, drawn exactly
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CorrectRows:
    """How many rows the released ensemble tells right. One row more or less, or another, moves it by at most 1."""

    ensemble: Ensemble
    norm: str
    purpose: ClassVar[str] = "count the rows that the model tells right"
    size: ClassVar[int] = 1

    def sensitivity(self, relation: Relation) -> int:
        """Return 1 row, under either relation."""
        return 1

    def __call__(self, rows: Rows) -> NDArray[np.int64]:
        return rows.binned(self.ensemble.features).ask(self.right)

    def right(self, rows: Partition) -> NDArray[np.int64]:
        """Count the correct rows of a partition: (1,)."""
        correct = 0
        for start in range(0, rows.size, BLOCK):
            part = slice(start, min(start + BLOCK, rows.size))
            scores = self.ensemble.coded_scores([rows.codes(at)[part] for at in range(len(rows.widths))])
            predicted = labels_of(range(len(self.ensemble.classes)), scores)
            correct += int(np.count_nonzero(predicted == rows.labels[part]))
        return np.array([correct], np.int64)


@dataclass(frozen=True)
class Outcome:
    """What a run releases: which setting of the grid it drew, what that learnt, and its noisy score. `setting` None:
    nothing was run, and the ensemble is what the learner makes of blank answers."""

    setting: int | None
    ensemble: Ensemble
    score: int


@dataclass(frozen=True)
class Setting:
    """One setting of the grid: its learner, the unit that keeps it below the ceiling, the plan of a run of it, and what
    its rehearsal made of blank answers.
    """

    learner: Learner
    unit: Decimal
    plan: Plan
    blank: Ensemble


@dataclass(frozen=True)
class BestOf:
    """The best of a random number of runs. `public`: what a run is told, its own part of the budget included."""

    learners: tuple[Learner, ...]
    public: Public
    ceiling: Ceiling
    score: Score
    distribution: Distribution
    unit: Decimal

    @property
    def charge(self) -> Release:
        """Return the one line of the plan: the ceiling on a run of any setting, and its score."""
        runs = _merge((self.ceiling.event, self.ceiling.count), (self.score.event, 1))
        purpose = "the best by score of a random number of runs, each with a setting drawn from the grid"
        return Release(purpose, "private-selection", "run", 1, RepeatAndSelect(self.distribution, runs))

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return every setting with the largest unit, nearly, that stays below the ceiling."""
        settings = []
        for index, learner in enumerate(self.learners):
            unit = self._unit(index, learner)
            rehearsal = Rehearsal(self.public, unit)
            blank, _ = self._play_once(learner, rehearsal)
            settings.append(Setting(learner, unit, rehearsal.plan, blank))
        return tuple(settings)

    @property
    def most(self) -> int:
        """Return the least number of runs that are made, which is public."""
        return most_runs(self.distribution)

    def blank(self) -> Outcome:
        """Return what the first setting's learner makes of blank answers, with no setting chosen."""
        return Outcome(None, self.learners[0].learn(Rehearsal(self.public, self.unit)), 0)

    def play(self, rows: Rows, progress: Progress, held: Callable[[], None] = lambda: None) -> Outcome:
        """Make as many runs as are drawn, then more up to `most`, and return the best. Of equal scores the first
        stands. Nobody is told when a run ends: how long it took would name its setting, and only that of the best is
        released.
        """
        settings, best = self.settings, self.blank()
        runs = draw_runs(self.distribution)
        for done in range(1, max(runs, self.most) + 1):
            outcome = self._run(settings, rows, held)
            if done <= runs and (best.setting is None or outcome.score > best.score):
                best = outcome
        progress(self.most, self.most)
        return best

    def _run(self, settings: tuple[Setting, ...], rows: Rows, held: Callable[[], None]) -> Outcome:
        """Make one run in a session of its own, which holds it to its plan. Rows anew: nothing is carried from run to
        run.
        """
        index = FAIR.draw(np.zeros(len(settings), np.int64), 1)
        setting = settings[index]
        session = Session(self.public, setting.unit, setting.plan, rows.fresh(), held=held)
        ensemble, score = self._play_once(setting.learner, session)
        session.close()
        return Outcome(index, ensemble, score)

    def _play_once(self, learner: Learner, session: Releaser) -> tuple[Ensemble, int]:
        ensemble = learner.learn(session)
        return ensemble, int(session.release(CorrectRows(ensemble, self.score.norm), self.score)[0])

    def _unit(self, index: int, learner: Learner) -> Decimal:
        """Search for the largest unit whose load is at most 1, by the law that loads follow up to rounding; return the
        largest that was tried. InputError where none is.
        """
        unit, best, above = nano(self.unit), 0, nano(MAX_EPSILON) + 1
        while best < unit < above:
            load = self.ceiling.load(rehearse(learner, self.public, from_nano(unit)))
            best, above = (unit, above) if load <= 1 else (best, unit)
            if not isinstance(load, Fraction) or not load:
                guess = 0 if load else unit
            else:  # loads grow with the square of the unit, those of pure figures with itself
                pure = isinstance(self.ceiling.event, PureDp)
                guess = int(unit / load) if pure else isqrt(int(unit * unit / load))
            unit = min(guess, above - 1)
        if not best:
            raise InputError(f"grid: setting {index + 1} makes releases that cannot be charged as those of the others")
        return from_nano(best)


def _merge(*runs: tuple[SimpleEvent, int]) -> tuple[tuple[SimpleEvent, int], ...]:
    """Merge equal neighbours."""
    merged: list[tuple[SimpleEvent, int]] = []
    for event, count in runs:
        if merged and merged[-1][0] == event:
            merged[-1] = (event, merged[-1][1] + count)
        else:
            merged.append((event, count))
    return tuple(merged)


@lru_cache(maxsize=64)
def most_runs(distribution: Distribution) -> int:
    """Return the least number that a draw exceeds with chance below RARE."""
    chances = _chances(distribution)
    total = sum(chances)
    after = 0.0
    for count in range(len(chances) - 1, 0, -1):
        after += chances[count]
        if after >= RARE * total:
            return count
    return 1


def _chances(distribution: Distribution) -> list[float]:
    """Compute P(K = 0), P(K = 1), .. up to a common factor, until what follows is negligible beside RARE."""
    chances = [1.0, float(distribution.mean)] if isinstance(distribution, Poisson) else [0.0, 1.0]
    top = max(chances)
    while len(chances) <= distribution.mean or chances[-1] > RARE * RARE * top:
        count = len(chances) - 1
        if isinstance(distribution, Poisson):
            ratio = float(distribution.mean) / (count + 1)
        else:
            ratio = (1 - float(distribution.gamma)) * (count + float(distribution.shape)) / (count + 1)
        chances.append(chances[-1] * ratio)
        top = max(top, chances[-1])
    return chances
