"""Well-known public tables, as they are downloaded, go from draft to prediction with at most the schema edited."""

from __future__ import annotations

import pytest
from known_shapes import SHAPES
from table_story import filled_in, stranger_in


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_file_as_it_is_downloaded_is_learnt_from(tmp_path, monkeypatch, capsys, name):
    person, shape = stranger_in(tmp_path, monkeypatch, capsys), SHAPES[name]()
    file = tmp_path / shape.file
    file.write_text(shape.text, "utf-8", newline="")
    schema = filled_in(person.draft(file, *shape.draft), shape.answers, shape.ignored, shape.names)
    found = person.learn(file, schema, train=("--epsilon", 20))  # by the learner that auto chooses
    if shape.labels:
        assert sum(map(str.__eq__, found, shape.labels)) > 0.85 * len(shape.labels)
    else:
        assert all(5 <= float(value) <= 50 for value in found)
