"""What somebody else's learner sends to ask for a release, read strictly: exact keys and types, numbers in a range."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism
from dpserve_platform.outside.forms import whole_number
from dpserve_platform.outside.own import Answering, read_own
from dpserve_platform.outside.process import OutsideFailed
from dpserve_platform.outside.queries import Cells, Distances, Grid, Leaves, PerCell, Table, TableSums, largest
from dpserve_verify.errors import ModelInvalid
from dpserve_verify.privacy.budget import from_nano, nano
from models.parts.trees import check_tree, codes_of_tests, leaves, tree_from_json
from training.session.session import Public, Query, Releaser, Source

MOST_CELLS, MOST_TABLES, MOST_TREES = 1 << 16, 1 << 10, 1 << 10
MOST_GIVEN = 1 << 18  # numbers that histograms are compared with
GREATEST = 1 << 20  # entry of a table, in size
SMALLEST_SHARE, LARGEST_SHARE = Decimal("0.0001"), Decimal(1)
KEYS = {  # beside ask and share
    "histogram": {"features", "of", "noise"},
    "leaves": {"trees", "of", "noise"},
    "sums": {"tables", "noise"},
    "select": {"tables"},
    "furthest": {"histograms", "by_class"},
    "own": {"kind", "arguments", "size", "sensitivity", "seconds", "noise"},
}


def read_request(
    said: dict[str, Any], session: Releaser, source: Source, answering: Answering
) -> tuple[Query, Mechanism]:
    """Read one request. OutsideFailed where a key is missing, unknown or of another kind."""
    public, ask = session.public, said.get("ask")
    if not isinstance(ask, str) or ask not in KEYS or set(said) != KEYS[ask] | {"ask", "share"}:
        raise OutsideFailed(f"learner: it asks {sorted(said)!s:.200}; a request is one of {', '.join(KEYS)}")
    mechanism = _mechanism(said, session.unit, public)
    norm = mechanism.norm
    if ask == "own":
        return read_own(said, public, norm, source, answering), mechanism
    if ask == "furthest":
        return _read_distances(said, public), mechanism
    if ask in ("sums", "select"):
        return TableSums(_read_tables(said["tables"], public), norm), mechanism
    of, numbers = said["of"], public.classes is None
    if of not in ("rows", "total" if numbers else "classes"):
        raise OutsideFailed("learner: counts are of rows, by class where there are classes, or the total of a number")
    cells: Cells = (_read_grid(said["features"], public),) if ask == "histogram" else _read_trees(said["trees"], public)
    query = PerCell(cells, len(public.classes or ()) if of == "classes" else 0, of == "total", norm)
    if query.size > MOST_CELLS:
        raise OutsideFailed(f"learner: {query.size} cells; at most {MOST_CELLS}")
    return query, mechanism


def _mechanism(said: dict[str, Any], unit: Decimal, public: Public) -> Mechanism:
    """Return the noise that is named, or of a choice the selection, at a share of the unit."""
    part = from_nano(max(1, int(nano(unit) * _share(said["share"]))))
    if "noise" not in said:
        return public.selection(part)
    if said["noise"] == "laplace":
        return DiscreteLaplace(part)
    if said["noise"] != "gaussian" or public.pure:
        raise OutsideFailed("learner: noise must be laplace, or gaussian where there is a delta")
    return DiscreteGaussian.of_unit(part)


def _read_grid(said: Any, public: Public) -> Grid:
    if not isinstance(said, list) or not 1 <= len(said) <= 2 or len(set(map(str, said))) < len(said):
        raise OutsideFailed("learner: features must be one place or two")
    places = tuple(whole_number(at, 0, len(public.features) - 1) for at in said)
    return Grid(places, tuple(public.features[at].bins for at in places))


def _read_trees(said: Any, public: Public) -> tuple[Leaves, ...]:
    if not isinstance(said, list) or not 1 <= len(said) <= MOST_TREES:
        raise OutsideFailed(f"learner: trees must be a list of 1 to {MOST_TREES}")
    allowed, widths = codes_of_tests(public.features), tuple(feature.bins for feature in public.features)
    trees = []
    for each in said:
        try:
            tree = tree_from_json(each)
            check_tree(tree, public.features, allowed)
        except (ModelInvalid, TypeError) as error:
            raise OutsideFailed(f"learner: its tree: {error!s:.300}") from None
        numbers = [whole_number(leaf, 0, MOST_CELLS - 1) for leaf in leaves(tree)]
        trees.append(Leaves(tree, max(numbers) + 1, widths))
    return tuple(trees)


def _read_distances(said: dict[str, Any], public: Public) -> Distances:
    by_class, listed = said["by_class"], said["histograms"]
    if not isinstance(by_class, bool) or (by_class and public.classes is None):
        raise OutsideFailed("learner: by_class must be true or false, and false where the target is a number")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_TABLES:
        raise OutsideFailed(f"learner: histograms must be a list of 1 to {MOST_TABLES}")
    grids, given, classes = [], [], len(public.classes or ()) if by_class else 0
    for each in listed:
        if not isinstance(each, dict) or set(each) != {"features", "given"} or not isinstance(each["given"], list):
            raise OutsideFailed("learner: a histogram is its features and what is given")
        grids.append(_read_grid(each["features"], public))
        if len(each["given"]) != grids[-1].size * max(1, classes):
            raise OutsideFailed("learner: given must be a number for each cell, class after class")
        given.append(tuple(whole_number(number, -public.most, public.most) for number in each["given"]))
    if sum(map(len, given)) > MOST_GIVEN:
        raise OutsideFailed(f"learner: histograms of {sum(map(len, given))} cells; at most {MOST_GIVEN}")
    return Distances(tuple(grids), classes, tuple(given))


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
