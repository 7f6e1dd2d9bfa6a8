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
WORDS = frozenset({"values", "classes", "ignore", "true_words", "false_words", "missing_words"})
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


class _Texts(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """PyYAML's loader for which everything is a text."""


def load_yaml(text: str) -> Any:
    """Return what a text of YAML holds, the words of columns as they are written: `[no, yes]` is two texts under
    `classes`. SchemaError where it is none, a key stands twice, a part stands in itself, or there are more than
    MAX_VALUES values.
    """
    try:
        _check_size(text)
        return _keep_words(yaml.load(text, Loader), yaml.load(text, _Texts))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML lets Python's own ValueError through
        raise SchemaError(f"schema: not YAML: {error}") from error


def _keep_words(body: Any, texts: Any, place: str = "") -> Any:
    """Return the body with what stands in WORDS as its texts, but for whole numbers as people write them; keys are
    texts, too.
    """
    if isinstance(body, dict) and isinstance(texts, dict) and len(body) == len(texts):
        pairs = zip(body.items(), texts.items(), strict=True)
        return {
            key if isinstance(key, str) else name: _keep_words(value, text, str(name))
            for (key, value), (name, text) in pairs
        }
    if not isinstance(body, list) or not isinstance(texts, list) or place not in WORDS:
        return body
    if len(body) == len(texts) and all(isinstance(text, str) for text in texts):
        whole = all(type(value) is int and abs(value) < 1 << 63 for value in body)
        if whole or place == "values":
            return [value if type(value) is int else text for value, text in zip(body, texts, strict=True)]
        return texts
    return body


def check_spelling(text: str) -> None:
    """Raise SchemaError where a value is a number that YAML and people read differently: of what is registered from now
    on, for what was registered keeps its meaning.
    """
    if odd := _misread(yaml.load(text, Loader), yaml.load(text, _Texts), "", ""):
        place, word = odd[0]
        more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
        raise SchemaError(f"schema: {place}: {word} is another number in YAML; put quotes around it: '{word}'{more}")


def _misread(body: Any, texts: Any, key: str, place: str) -> list[tuple[str, str]]:
    """Return place and text of the numbers in WORDS that YAML reads as others: `010` is 8, `1:30` 90, `1_0` 10."""
    if isinstance(body, dict) and isinstance(texts, dict) and len(body) == len(texts):
        pairs = zip(body.values(), texts.items(), strict=True)
        found = (_misread(value, text, str(name), f"{place}.{name}".lstrip(".")) for value, (name, text) in pairs)
        return [each for part in found for each in part]
    if not isinstance(body, list) or not isinstance(texts, list) or key not in WORDS or len(body) != len(texts):
        return []
    pairs_of_list = zip(body, texts, strict=True)
    return [(place, text) for value, text in pairs_of_list if type(value) is int and str(value) != text]


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
