"""A value that many rows share, from the rows to all that a model is: each learner that finds cut points gives it a
bin, and answers, exports, pictures and edits know that bin.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from models.edit.edit_parts import bin_text, part_of
from models.edit.editing import EditNote, monotone, set_value
from models.explain.explain import shapes
from models.explain.shapes import shape_panels
from models.explain.vega_panels import LIGHT, NARROW, REACH
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from training.learners import LEARNERS
from training.rows.schema.column_rules import Columns

VALUE, MOST = 7688.0, 99_999.0


@lru_cache(maxsize=3)
def fitted(name: str):
    """Of 6,000 rows a tenth has a gain of 7,688 and is of class yes; the others' gains are anything, seldom of it."""
    random = np.random.default_rng(1)
    gain = np.where(random.random(6000) < 0.1, VALUE, random.uniform(0, 20_000, 6000))
    label = np.where((gain == VALUE) | (random.random(6000) < 0.1), "yes", "no")
    columns = {"gain": gain, "other": random.random(6000) * MOST}
    schema = Columns(low=0, high=MOST, classes=["no", "yes"], records=6000).schema(list(columns))
    return LEARNERS[name](schema=schema, epsilon="8").fit(columns, label).ensemble_


def place_of(ensemble) -> int:
    """The bin of the value, which is alone there: it is a cell wide, or two."""
    gain = ensemble.features[0]
    place = int(gain.encode([VALUE])[0])
    assert gain.edges[place] - gain.edges[place - 1] < 2.5 * MOST / 4096
    return place


@pytest.mark.parametrize("name", ["lazybb", "lazybb-tree", "ebm"])
def test_what_is_alone_has_answers_of_its_own_in_every_form(name):
    """In the model, in what is stored, and in ONNX; a value a cell away has its neighbours' answers."""
    ensemble = fitted(name)
    edges = np.array(ensemble.features[0].edges)
    low, high = edges[place_of(ensemble) - 1 : place_of(ensemble) + 1]
    gains = np.array([VALUE, low, np.nextafter(low, MOST), high, np.nextafter(high, MOST), low - 500, high + 500])
    columns = {"gain": gains, "other": np.full(gains.size, 9.0)}
    chances = ensemble.probabilities(columns)[:, 1]
    assert chances[[0, 2, 3]] == pytest.approx([chances[0]] * 3)
    assert chances[0] > max(chances[[5, 6]]) + 0.2
    stored = ensemble_from_bytes(ensemble_bytes(ensemble))
    assert (stored.probabilities(columns)[:, 1] == chances).all()
    exported = OnnxModel(to_onnx(ensemble, {})).predict(columns)[1]
    assert exported[:, 1] == pytest.approx(chances, abs=1e-5)


def test_the_picture_shows_it_and_a_pointer_finds_it():
    """A fifteenth of a pixel of the curve: what answers a pointer is some pixels wide, and its neighbours make room."""
    ensemble = fitted("ebm")
    place = place_of(ensemble)
    [panel] = [panel for panel in shape_panels(ensemble, LIGHT) if panel.name == "gain"]
    hits = next(layer["data"]["values"] for layer in panel.spec["layer"] if layer["mark"].get("fillOpacity") == 0)
    label = shapes(ensemble)[0].bins[place].label
    assert hits[place]["says"].startswith(label)
    low, high = ensemble.features[0].edges[0], ensemble.features[0].edges[-1]
    least = min(NARROW, REACH / len(hits)) * (high - low) * 1.125 / REACH
    assert all(hit["to"] - hit["at"] > 0.99 * least for hit in hits)
    assert [hit["to"] for hit in hits[:-1]] == [hit["at"] for hit in hits[1:]]
    assert abs((hits[place]["to"] + hits[place]["at"]) / 2 - VALUE) < 60 * least
    [line] = [layer for layer in panel.spec["layer"] if layer["mark"]["type"] == "line"]
    drawn = [row["value"] for row in line["data"]["values"] if abs(row["at"] - VALUE) < 2.5 * MOST / 4096]
    assert shapes(ensemble)[0].bins[place].votes in drawn


def test_an_edit_names_it_and_monotone_curves_take_it_in():
    ensemble = fitted("ebm")
    place, gain, note = place_of(ensemble), ensemble.features[0], EditNote("ada", "too steep")
    words = bin_text(gain, place)
    assert [part_of(gain, bin_text(gain, code)) for code in range(gain.bins)] == [[code] for code in range(gain.bins)]
    before, after = (np.array(each.terms[0]) for each in (ensemble, set_value(ensemble, "gain", words, 0.0, note)))
    assert np.flatnonzero(before != after).tolist() == [place]
    rising = np.array(monotone(ensemble, "gain", "increasing", note).terms[0][: gain.missing])
    assert (np.diff(rising) >= 0).all()
    assert (np.diff(before[: gain.missing]) < 0).any()
