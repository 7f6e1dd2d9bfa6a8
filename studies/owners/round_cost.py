"""What one round of a campaign of institutions costs in processor time, beside one process on all rows.

    python -m studies.owners.round_cost                     # 3 institutions of 1,000,000 rows of 20 features

Rows are made up. Each institution answers every release of a short plan on its own rows, shares and seals; both
aggregators open, add up and draw, by the code that campaigns run; what goes over the line is left out. Beside it one
session on all rows draws once. Prints processor seconds of one round in the mean.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from accountant.noise import shares
from accountant.noise.mechanisms import Mechanism
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import Plan, Release
from local.aggregator import rounds
from local.reports.shared import AGGREGATORS
from local.rounds import playing
from local.rounds.playing import KeptAnswers
from local.rounds.shared_session import SharedSession
from training.learners.parameters import learner_of
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, parse_schema
from training.session.session import Integers, Public, Session

BINS, SHORT = 32, {"epochs": 3, "pairs": 0, "cuts": "declared"}


def rows_of(schema: Schema, count: int, seed: int) -> Rows:
    """Made-up rows, with an answer that follows from three of the features."""
    random, widths = np.random.default_rng(seed), [feature.bins for feature in schema.features]
    bins = random.integers(0, BINS, (len(widths), count), np.uint8)
    answers = (bins[:3].sum(axis=0) + random.normal(0, 20, count) > 3 * BINS / 2).astype(np.uint8)
    return Rows(bins, answers, widths, 2)


class Central(Session):
    """One process on all rows; `answers`: what it drew."""

    def __init__(self, public: Public, unit: Decimal, plan: Plan, rows: Rows) -> None:
        super().__init__(public, unit, plan, rows)
        self.answers: list[Integers] = []

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Integers:
        """Draw once."""
        self.answers.append(np.asarray(super().draw(mechanism, exact, asked), np.int64))
        return self.answers[-1]


def text_of(features: int, records: int) -> bytes:
    """Numbers, of which declared bins alone are asked about."""
    lines = [f"  f{at}: {{type: numeric, range: [0, 1], bins: {BINS}}}" for at in range(features)]
    return "\n".join(["target: {name: y, classes: ['no', 'yes']}", f"records: {records}", "features:", *lines]).encode()


def timed(act: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    start = time.process_time()
    act()
    return time.process_time() - start


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--institutions", type=int, default=3)
    parser.add_argument("--features", type=int, default=20)
    asked = parser.parse_args()
    whole = asked.rows * asked.institutions
    schema = parse_schema(text_of(asked.features, whole))
    found = playing.rehearse(schema, "ebm", SHORT, Budget.of("1", "0.000001"), 1)
    public, plan, unit = playing.public_of(schema, Budget.of("1", "0.000001"), 1), found.recipe.plan, found.recipe.unit
    releases = [release for release, count in plan.runs for _ in range(count)]
    widths, keys = dict(found.numbers), [X25519PrivateKey.generate() for _ in range(AGGREGATORS)]
    seals = [key.public_key().public_bytes_raw() for key in keys]
    learner, parts = learner_of("ebm", SHORT), [rows_of(schema, asked.rows, at) for at in range(asked.institutions)]
    learner.learn(Session(public, unit, plan, rows_of(schema, 1000, 9)))  # compile
    central = Central(public, unit, plan, Rows.joined(parts))
    alone = timed(lambda: learner.learn(central))
    sealed: list[list[list[bytes]]] = []

    def answer(rows: Rows) -> None:
        sent: list[list[bytes]] = []

        def exchange(exact: Integers) -> Integers:
            filled = np.zeros(widths[releases[len(sent)].purpose], np.int64)
            filled[: exact.size] = exact
            halves = zip(shares.share(filled), seals, strict=True)
            sent.append([shares.seal(shares.to_bytes(half), key, b"x") for half, key in halves])
            return central.answers[len(sent) - 1]

        learner.learn(SharedSession(public, unit, plan, rows, KeptAnswers([]), exchange))
        sealed.append(sent)

    def add_up() -> None:
        for turn, release in enumerate(releases):
            for at, key in enumerate(keys):
                total = np.zeros(widths[release.purpose], np.uint64)
                for sent in sealed:
                    total += shares.from_bytes(shares.unseal(sent[turn][at], key, b"x"))
                total += rounds.draw(release, total.size).view(np.uint64)

    institutions = sum(timed(partial(answer, rows)) for rows in parts)
    aggregators, count = timed(add_up), len(releases)
    print(
        f"{count} rounds; processor ms a round: one process on {whole:,} rows {1000 * alone / count:.2f}; "
        f"{asked.institutions} institutions {1000 * institutions / count:.2f}, two aggregators "
        f"{1000 * aggregators / count:.2f}; {(institutions + aggregators) / alone:.2f} times"
    )


if __name__ == "__main__":
    main()
