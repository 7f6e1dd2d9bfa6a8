"""The text of a schema: YAML in which no key stands twice, and what a draft leaves for a person to fill in.

Whoever sends a schema chooses its bytes, so what they stand for is counted before it is made: a part that is named once
and repeated a thousand times is a few bytes each time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from accountant.errors import SchemaError

FILL_IN = "FILL-IN"  # in a draft: what only a person can say
MAX_VALUES = 1 << 18  # keys, texts, numbers, lists and mappings, each as often as it is repeated
MAX_SHOWN = 20  # places that an error names


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the one in C is ten times as fast
    """PyYAML's safe loader, which would take the last of two equal keys in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Raise SchemaError where a key stands twice."""
        seen, twice = set[Hashable](), set[str]()
        for key in (self.construct_object(key, deep=True) for key, _ in node.value):
            if isinstance(key, Hashable):  # the loader itself refuses others, and says where
                twice.update([str(key)] if key in seen else ())
                seen.add(key)
        if twice:
            named, line = sorted(twice)[:MAX_SHOWN], node.start_mark.line + 1
            raise SchemaError(f"schema: {named} stand twice in one mapping (line {line})")
        body: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return body


def load_yaml(text: str) -> Any:
    """Return what a text of YAML holds. SchemaError where it is none, a key stands twice, a part stands in itself, or
    there are more than MAX_VALUES values.
    """
    try:
        _check_size(text)
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML lets Python's own ValueError through
        raise SchemaError(f"schema: not YAML: {error}") from error


def _check_size(text: str) -> None:
    """Count the values, a part that an alias repeats as often as it does."""
    count, sizes, begun = 0, dict[str, int](), list[tuple[str | None, int]]()
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.AliasEvent):
            if any(event.anchor == other for other, _ in begun):
                raise SchemaError(f"schema: the part &{str(event.anchor)[:80]} stands in itself")
            count += sizes.get(str(event.anchor), 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = begun.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.CollectionStartEvent):
                begun.append((event.anchor, count))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
            count += 1
        if count > MAX_VALUES:
            raise SchemaError(f"schema: more than {MAX_VALUES} values, with those that it repeats by aliases")


def blanks(body: Any) -> list[str]:
    """Return where a draft was not filled in, at most MAX_SHOWN places. Each part is looked at once, for YAML lets one
    part stand in several.
    """
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
    shown = sorted(places)
    return shown if len(shown) <= MAX_SHOWN else [*shown[:MAX_SHOWN], f"and {len(shown) - MAX_SHOWN} more"]
