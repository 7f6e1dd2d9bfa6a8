"""What somebody else's learner sends to ask for a release, read strictly: exact keys and types, numbers in a range."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism
from dpserve_verify.privacy.budget import NANO, from_nano, nano
from dpserve_verify.privacy.events import MAX_NOISE
from training.outside.forms import whole_number
from training.outside.process import OutsideFailed
from training.outside.queries import Histogram, Table, TableSums, largest
from training.session.session import Public, Query, Releaser

MOST_CELLS, MOST_TABLES = 1 << 16, 1 << 10
GREATEST = 1 << 20  # entry of a table, in size
SMALLEST_SHARE, LARGEST_SHARE = Decimal("0.0001"), Decimal(1)


def read_request(said: dict[str, Any], session: Releaser) -> tuple[Query, Mechanism]:
    """Read one request. OutsideFailed where a key is missing, unknown or of another kind."""
    public, ask = session.public, said.get("ask")
    keys = {"histogram": {"features", "by_class", "noise"}, "sums": {"tables", "noise"}, "select": {"tables"}}
    if not isinstance(ask, str) or ask not in keys or set(said) != keys[ask] | {"ask", "share"}:
        raise OutsideFailed(f"learner: it asks {sorted(said)!s:.200}; a request is one of {', '.join(keys)}")
    share = _share(said["share"])
    if ask == "select":
        mechanism: Mechanism = public.selection(_part(session.unit, share))
    elif said["noise"] == "laplace":
        mechanism = DiscreteLaplace(_part(session.unit, share))
    elif said["noise"] == "gaussian" and not public.pure:
        mechanism = DiscreteGaussian(min(MAX_NOISE, from_nano(-(-NANO * NANO // nano(_part(session.unit, share))))))
    else:
        raise OutsideFailed("learner: noise must be laplace, or gaussian where there is a delta")
    if ask == "histogram":
        return _read_histogram(said, public, mechanism.norm), mechanism
    return TableSums(_read_tables(said["tables"], public), mechanism.norm), mechanism


def _read_histogram(said: dict[str, Any], public: Public, norm: str) -> Histogram:
    features, by_class = said["features"], said["by_class"]
    if not isinstance(by_class, bool) or (by_class and public.classes is None):
        raise OutsideFailed("learner: by_class must be true or false, and false where the target is a number")
    if not isinstance(features, list) or not 1 <= len(features) <= 2 or len(set(map(str, features))) < len(features):
        raise OutsideFailed("learner: features must be one place or two")
    places = tuple(whole_number(at, 0, len(public.features) - 1) for at in features)
    widths = tuple(public.features[at].bins for at in places)
    query = Histogram(places, widths, len(public.classes or ()) if by_class else 0, norm)
    if query.size > MOST_CELLS:
        raise OutsideFailed(f"learner: {query.size} cells; at most {MOST_CELLS}")
    return query


def _read_tables(said: Any, public: Public) -> tuple[Table, ...]:
    if not isinstance(said, list) or not 1 <= len(said) <= MOST_TABLES:
        raise OutsideFailed(f"learner: tables must be a list of 1 to {MOST_TABLES}")
    tables, lines = [], {1, len(public.classes or ())}
    for each in said:
        if not isinstance(each, dict) or set(each) != {"feature", "values"} or not isinstance(each["values"], list):
            raise OutsideFailed("learner: a table is a feature and its values")
        feature = whole_number(each["feature"], 0, len(public.features) - 1)
        width = public.features[feature].bins
        if len(each["values"]) not in lines or any(not isinstance(v, list) or len(v) != width for v in each["values"]):
            raise OutsideFailed(f"learner: values must be of every class, or of one line, and {width} in each")
        tables.append(
            Table(feature, tuple(tuple(whole_number(v, -GREATEST, GREATEST) for v in line) for line in each["values"]))
        )
    if largest(tables) * public.most >= 1 << 62:
        raise OutsideFailed("learner: entries so large that 64 bits do not hold their sums")
    return tuple(tables)


def _share(value: Any) -> Decimal:
    if not isinstance(value, str) or len(value) > 12 or not value.replace(".", "", 1).isdecimal():
        raise OutsideFailed(f"learner: share={value!r:.60} must be a decimal text")
    share = Decimal(value)
    if not SMALLEST_SHARE <= share <= LARGEST_SHARE:
        raise OutsideFailed(f"learner: share={value!r:.60} must be {SMALLEST_SHARE} to {LARGEST_SHARE}")
    return share


def _part(unit: Decimal, share: Decimal) -> Decimal:
    return from_nano(max(1, int(nano(unit) * share)))
