"""A part of a list: what every list is asked by, at every door, and how it is cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dpserve_verify.errors import InputError

if TYPE_CHECKING:
    from accountant.access.grants import Grant
    from accountant.access.tokens import Token
    from accountant.ledger.families.families import Dataset
    from accountant.ledger.families.left import FamilyRow
    from accountant.ledger.schedules import Schedule

Line = TypeVar("Line")
MAX_LIMIT = 1000  # lines of a part; all of a list has no limit


@dataclass(frozen=True)
class Part:
    """Which lines are wanted: those where a text holds `q`, in small or capital letters, behind the line that `after`
    names, and at most `limit` of them; None: all. `archived`: also what is archived.
    """

    q: str = ""
    after: str | None = None
    limit: int | None = None
    archived: bool = False

    def cut(
        self,
        lines: Sequence[Line],
        place: Callable[[Line], str],
        texts: Callable[[Line], Iterable[str]] | None = None,
        is_archived: Callable[[Line], bool] = lambda line: False,
    ) -> tuple[list[Line], str | None]:
        """Return these lines of a list, in its order, and the `after` of the next part; None on the last.

        Args:
            lines: The whole list, of which cheap things are known.
            place: What names a line, once in the list.
            texts: What `q` is looked for in; its place when left out.
            is_archived: Whether a line is left out unless archived ones are wanted as well.

        Raises:
            InputError: No line of the list is named by `after`: it was removed.
        """
        first = 0
        if self.after is not None:
            places = [place(line) for line in lines]
            if self.after not in places:
                raise InputError(f"after={self.after[:80]!r}: is not in this list any more; begin again without it")
            first = places.index(self.after) + 1
        asked, wanted = self.q.lower(), list[Line]()
        for line in lines[first:]:
            if not self.archived and is_archived(line):
                continue
            if asked and not any(asked in text.lower() for text in (texts(line) if texts else [place(line)])):
                continue
            if len(wanted) == self.limit:
                return wanted, place(wanted[-1])
            wanted.append(line)
        return wanted, None

    def to_query(self) -> dict[str, str | int]:
        """Return it as a query of REST."""
        asked = {"q": self.q, "after": self.after, "limit": self.limit, "archived": "true" if self.archived else None}
        return {name: value for name, value in asked.items() if value}


def cut_datasets(
    part: Part, datasets: Sequence[Dataset], archived: Collection[str]
) -> tuple[list[Dataset], str | None]:
    """Cut a list of datasets: by name."""
    return part.cut(
        datasets,
        lambda dataset: dataset.registration.name,
        is_archived=lambda dataset: dataset.registration.name in archived,
    )


def cut_families(
    part: Part, rows: Sequence[FamilyRow], archived: Collection[str]
) -> tuple[list[FamilyRow], str | None]:
    """Cut a list of families: by name, looked for by those of their datasets as well. One is archived where all of its
    datasets are.
    """
    return part.cut(
        rows,
        lambda row: row.family.name,
        lambda row: (row.family.name, *row.names),
        lambda row: all(name in archived for name in row.names),
    )


def cut_tokens(part: Part, tokens: Sequence[Token]) -> tuple[list[Token], str | None]:
    """Cut a list of tokens: by the entry that made each, for the name of one that ended may be another's now."""
    return part.cut(tokens, lambda token: str(token.created), lambda token: (token.name, token.principal))


def cut_grants(part: Part, grants: Sequence[Grant]) -> tuple[list[Grant], str | None]:
    """Cut a list of grants: by the entry that added each, looked for by principal."""
    return part.cut(grants, lambda grant: str(grant.index), lambda grant: (grant.principal,))


def cut_schedules(part: Part, schedules: Sequence[Schedule]) -> tuple[list[Schedule], str | None]:
    """Cut a list of schedules: by name, looked for by that of their dataset as well."""
    return part.cut(schedules, lambda rule: rule.name, lambda rule: (rule.name, str(rule.asked["dataset"])))
