"""A home in any order of acts: what is not refused in words stands an audit, and every act ends."""

from __future__ import annotations

import time

import pytest
from random_player import Player

from accountant.ledger import comparisons
from dpserve_verify.entries.kinds import FORMS

STEPS = 120
SEEDS = (26, 1, 3, 9, 5)
LEAST = 38  # kinds that these games reach; of the others, two are reached by none
UNREACHED = {
    "campaign-answered",  # of aggregators: the vectors' campaign of shares
}


@pytest.fixture(autouse=True)
def many_answers(monkeypatch):
    monkeypatch.setattr(comparisons, "MAX_ANSWERS", 10**9)


@pytest.mark.slow
def test_fixed_games_reach_most_kinds_of_entries(tmp_path):
    """With the mends of their faults taken back, seed 26 finds a resumed job that named blocks before the first growth,
    and seed 1 an append to a retired dataset that never ended.
    """
    reached = set()
    for seed in SEEDS:
        player = Player(tmp_path / f"{seed}", seed)
        player.play(STEPS)
        reached |= {*player.kinds}
    assert not reached & UNREACHED
    assert len(reached) >= LEAST, sorted(FORMS.keys() - reached)


def test_a_game_of_today(tmp_path):
    seed = time.time_ns()
    print(f"Player(folder, {seed}).play({STEPS})")
    Player(tmp_path / "game", seed).play(STEPS)
