"""The exact law of a whole private tuning on small data: every transcript of every setting, every score, and the best
of a random number of them. Sensitivities and prices are read from the queries and mechanisms under test.
"""

from __future__ import annotations

from itertools import product
from math import log

import numpy as np
from exact_laws import law_of, log_sum

from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.privacy.selection import Poisson
from training.session.session import sensitivity_of
from training.tuning.selecting import CorrectRows


class Scripted:
    """A session which draws nothing: it follows a script of answers and adds up their exact log probabilities. The law
    after the same answers is worked out once: `laws` is for one learner on the same rows.
    """

    def __init__(self, public, unit, rows, script, laws) -> None:
        self.public, self.unit, self.rows = public, unit, rows
        self._script, self._place, self._laws, self.log_chance = script, 0, laws, 0.0

    def release(self, query, mechanism):
        told, answer = self._script[: self._place], self._script[self._place]
        if told not in self._laws:
            self._laws[told] = law_of(mechanism, query(self.rows), sensitivity_of(query, self.public))
        self._place += 1
        self.log_chance += self._laws[told][answer]
        return answer


def answers_of(learner, public, unit, rows, releases: int):
    """How many answers each of the releases has."""

    class Sizes(Scripted):
        def release(self, query, mechanism):
            self.sizes.append(query.size)
            return 0

    session = Sizes(public, unit, rows, (), {})
    session.sizes = []
    learner.learn(session)
    assert len(session.sizes) == releases
    return session.sizes


def noise_law(mechanism, sensitivity: float):
    """Integers beyond which next to nothing lies, and log P of the mechanism's noise there, by its own number."""
    if isinstance(mechanism, DiscreteLaplace):
        rate = float(mechanism.epsilon) / sensitivity
        z = np.arange(-int(30 / rate), int(30 / rate) + 1)
        exponent = -abs(z) * rate
    else:
        spread = float(mechanism.noise_multiplier) * sensitivity
        z = np.arange(-int(8 * spread), int(8 * spread) + 1)
        exponent = -((z / spread) ** 2) / 2
    return z, exponent - np.logaddexp.reduce(exponent)


def law_of_one_run(best, rows, most_rows: int):
    """log P of (setting and transcript, score): a line for each setting's transcript, a column for each score; whose
    lines they are; and the score of the first column. What lies beyond the noise of one of the datasets compared is
    left out: `most_rows` is the largest of them."""
    lines, owners = [], []
    for index, setting in enumerate(best.settings):
        public, releases, laws = best.public, len(setting.plan) - 1, {}  # the last one is the score
        for script in product(*map(range, answers_of(setting.learner, public, setting.unit, rows, releases))):
            session = Scripted(public, setting.unit, rows, script, laws)
            query = CorrectRows(setting.learner.learn(session), best.score.norm)
            z, law = noise_law(best.score, sensitivity_of(query, public))
            right = int(query(rows)[0])
            line = law[most_rows - right : law.size - right]
            owners.append(index)
            lines.append(line + session.log_chance - log(len(best.settings)))
    found = np.array(lines)
    assert abs(np.exp(found).sum() - 1) < 1e-9
    return found, np.array(owners), z[0] + most_rows


def rise(law, below, level):
    """f(below + level) - f(below), f(x) = E x^K, without cancellation; f(0) is P(K = 0)."""
    if isinstance(law, Poisson):
        mean = float(law.mean)
        return np.exp(mean * (below - 1)) * np.expm1(mean * level)
    assert law.shape == 0
    going_on = 1 - float(law.gamma)
    return np.log1p(-going_on * level / (1 - going_on * below)) / log(law.gamma)


def law_of_the_best(distribution, run):
    """log P of each outcome of the selection, and first that of no run at all. Of equal scores the first run stands,
    which makes all outcomes of one score as likely as they are in a run."""
    levels = log_sum(run)
    level = np.exp(levels)
    factor = np.log(rise(distribution, np.cumsum(level) - level, level)) - levels
    none = -float(distribution.mean) if isinstance(distribution, Poisson) else -np.inf
    found = np.concatenate([[none], (run + factor).ravel()])
    assert abs(np.exp(found).sum() - 1) < 1e-9
    return found
