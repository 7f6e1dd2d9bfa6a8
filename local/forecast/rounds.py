"""A campaign of institutions played on made-up rows, by the learner's own plan."""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any

import numpy as np

from accountant.noise.mechanisms import DiscreteGaussian, Mechanism
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.events import Release
from local.forecast.made_up import MadeUp
from local.reports.shared import AGGREGATORS
from local.rounds import playing
from local.rounds.definition import RoundsDefinition
from models.features.features import Codes, NumericFeature
from models.forms.ensemble import Ensemble
from models.worth.expected_width import normal
from training.rows.packed.cells import Cells, Span, declared_ranges, grid_of
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.session.session import Integers, Session


class MadeUpSession(Session):
    """Plays a plan on fewer rows than there are, each of which counts as `times`, with both aggregators' noise."""

    times = 1.0
    name = ""

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Draw normal numbers."""
        assert isinstance(mechanism, DiscreteGaussian)
        deviation = sqrt(AGGREGATORS) * float(mechanism.noise_multiplier) * asked.sensitivity
        noise = deviation * normal(f"{self.name} {len(self._played)}", exact.size)
        return np.rint(self.times * exact + noise).astype(np.int64)


def spans_of(definition: RoundsDefinition) -> tuple[Span | None, ...]:
    """Return the declared range of each number whose cut points may be found from rows."""
    schema = playing.schema_in(definition)
    return declared_ranges(schema.features, schema.ends)


def learn(definition: RoundsDefinition, world: MadeUp, most: int) -> Ensemble:
    """Learn what institutions of the schema's `records` would, from `most` made-up rows at most."""
    schema = playing.schema_in(definition)
    public = playing.public_of(schema, Budget(definition.epsilon, definition.delta), definition.unit.contributions)
    count = min(schema.records, most)
    values, answers, labels = world.draw(count, "owned")
    numbers = [at for at, span in enumerate(world.spans) if span is not None]

    def in_cells(number: int) -> Codes:
        at = numbers[number]
        feature, span = schema.features[at], world.spans[at]
        assert isinstance(feature, NumericFeature)
        assert span is not None
        return grid_of(feature, span).encode(span[0] + (span[1] - span[0]) * world.places(at, values[:, at]))

    codes = [world.encode(at, feature, values[:, at]) for at, feature in enumerate(schema.features)]
    widths = [feature.bins for feature in schema.features]
    outputs = labels.astype(np.uint8) if definition.classes else np.rint(answers[:, 0] * TARGET_GRID).astype(np.int32)
    cells = Cells(schema.features, world.spans, cache(in_cells))
    rows = Rows(np.array(codes, np.uint16), outputs, widths, len(definition.classes), cells=cells)
    session = MadeUpSession(public, definition.standard, definition.plan, rows)
    session.times, session.name = schema.records / count, f"{world.name} noise"
    model: Ensemble = playing.learner_in(definition).learn(session)
    return model
