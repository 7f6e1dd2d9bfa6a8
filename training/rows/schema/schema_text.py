"""The text of a schema: YAML in which no key stands twice, and what a draft leaves for a person to fill in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from accountant.errors import SchemaError

FILL_IN = "FILL-IN"  # in a draft: what only a person can say


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which would take the last of two equal keys in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Raise SchemaError where a key stands twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise SchemaError(f"schema: {sorted(twice)} stand twice in one mapping (line {node.start_mark.line + 1})")
        return super().construct_mapping(node, deep)


def blanks(body: Any) -> list[str]:
    """Return where a draft was not filled in. Each part is looked at once, for YAML lets a part stand in itself."""
    places: dict[str, None] = {}
    parts, visited = [("", body)], set[int]()
    while parts:
        place, part = parts.pop()
        if part == FILL_IN:
            places[place] = None
        if id(part) in visited or not isinstance(part, dict | list):
            continue
        visited.add(id(part))
        items = part.items() if isinstance(part, dict) else ((None, value) for value in part)
        parts += [(place if name is None else f"{place}.{name}".lstrip("."), value) for name, value in items]
    return sorted(places)
