"""What everybody may know of a dataset's columns: from its public schema alone, no row is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accountant.errors import RowsUnavailable, SchemaError
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from models.features.features import CalendarFeature, CategoricalFeature, Feature, NumericFeature
from training.rows.schema.schema import Schema, Target, schema_of


def describe_columns(home: Home, dataset: Dataset) -> list[dict[str, Any]]:
    """Return each column that a job may read or predict, and the one that names the person: `name`, `role`, `type`, and
    its public `range` or `values`; none where the schema is not here.
    """
    try:
        schema = schema_of(home, dataset)
    except (RowsUnavailable, SchemaError):
        return []
    unit = dataset.registration.unit.column
    named = [] if unit is None else [{"name": unit, "role": "names the person", "type": "text"}]
    return [*named, *_columns(schema)]


def _columns(schema: Schema) -> Iterator[dict[str, Any]]:
    targets = {target.name: target for target in schema.targets}
    groups = {group.name for group in schema.groups}
    features = {feature.name for feature in schema.features}
    for target in schema.targets:
        yield _target(target, target.name in features | groups)
    for feature in (*schema.features, *(group for group in schema.groups if group.name not in features)):
        if feature.name not in targets:
            roles = [role for role, names in (("feature", features), ("group", groups)) if feature.name in names]
            yield {"name": feature.name, "role": " and ".join(roles), **_values(schema, feature)}


def _target(target: Target, is_feature: bool) -> dict[str, Any]:
    role = "target and feature" if is_feature or target.also_feature else "target"
    about = {"name": target.name, "role": role}
    if target.classes is None:
        return {**about, "type": "numeric", "range": [f"{end:.15g}" for end in target.range or ()]}
    return {**about, "type": "categorical", "values": [str(label) for label in target.classes]}


def _values(schema: Schema, feature: Feature) -> dict[str, Any]:
    """Return type, range, values and words for a missing value, as they were declared."""
    missing = schema.written_as(feature.name).missing
    about: dict[str, Any] = {"type": feature.kind, **({"missing": list(missing)} if missing else {})}
    if isinstance(feature, CategoricalFeature):
        return {**about, "values": list(feature.values)}
    if isinstance(feature, NumericFeature) and feature.name in schema.ends:
        is_day = isinstance(feature, CalendarFeature)
        return {**about, "range": [feature.text(end) if is_day else f"{end:.15g}" for end in schema.ends[feature.name]]}
    return about


def example_query(dataset: str, columns: list[dict[str, Any]]) -> str:
    """Return a query that the dataset answers: counts by the first category, and the mean of the first number."""
    by = next((quoted(each["name"]) for each in columns if "values" in each), "")
    number = next((quoted(each["name"]) for each in columns if each["type"] == "numeric"), "")
    mean = f", avg({number})" if number else ""
    return f"select {by + ', ' if by else ''}count(*){mean} from {quoted(dataset)}{' group by ' + by if by else ''}"


def quoted(name: str) -> str:
    """Return a name as a query has it: in quotes where it is no plain word."""
    plain = name.isascii() and name.isidentifier() and name.islower()
    return name if plain else '"' + name.replace('"', '""') + '"'
