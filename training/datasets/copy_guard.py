"""The guard against copies, at every door where a file comes in: which files are compared with registered datasets, how
many answers are given, and what an answer says (docs/privacy/rows.md).

What is found in somebody else's dataset is about people whose budget is not charged for it. So a file of few people is
not compared, answers are counted, each that no registration follows leaves an entry, and none says how much was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from accountant.errors import CameBetween, NameTaken
from accountant.home import Home
from accountant.ledger.comparisons import (
    APPEND,
    EVALUATE,
    REGISTER,
    Comparison,
    record_comparison,
    require_answers_left,
)
from accountant.ledger.families.families import Dataset
from dpserve_verify.errors import InputError
from training.datasets.overlap import LEAST_PEOPLE, SKETCH, Scan, Sketch
from training.rows.tables.file_check import FileCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accountant.access.grants import Access

LOCK = "datasets.lock"  # held while a file is compared, and its packed folder is put in its place and entered
SEEING = ("train", "evaluate", "audit", "steward")  # scopes by which the name of a dataset may be seen
_NEW = {REGISTER: "--new-people", APPEND: "--new-rows", EVALUATE: "--public"}


@dataclass(frozen=True)
class Asker:
    """Who brings a file. `access`: what they may see; None: they hold the keys of the home, and may see everything.
    `look` shows them what becomes of the cells before anything is entered, and raises to end the registration.
    """

    principal: str = "home"
    access: Access | None = None
    look: Callable[[FileCheck], None] | None = None

    def shown(self, check: FileCheck) -> Asker:
        """Show them what becomes of the cells; return them as who has seen it, however often the file is read."""
        if self.look is not None:
            self.look(check)
        return replace(self, look=None)

    @property
    def holds_keys(self) -> bool:
        """Return whether they hold the keys of the home, and no grant restricts them."""
        return self.access is None or self.access.operator

    def may_see(self, dataset: str) -> bool:
        """Return whether the dataset may be named to them."""
        return self.access is None or self.access.may(*SEEING, dataset=dataset)


@dataclass(frozen=True)
class Guard:
    """One file at one door. `door`, `dataset`: as `Comparison` says; `data`: a keyed digest of the file, or None."""

    home: Home
    door: str
    dataset: str
    asker: Asker = field(default_factory=Asker)
    data: str | None = None

    @property
    def comparison(self) -> Comparison:
        """Return the comparison as its ledger entry states it."""
        return Comparison(self.door, self.dataset, self.asker.principal, self.data)

    def require_answers_left(self) -> None:
        """Raise InputError where no more comparisons of this caller are answered this hour, whatever the rows say. Who
        holds the keys is told as often as they ask: they can read every row.
        """
        if not self.asker.holds_keys:
            require_answers_left(self.home.ledger, self.comparison)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Wrap the work that follows a comparison without a match. Where that work fails, nothing was registered, and
        an entry is left all the same, since the failure tells that nothing matched. CameBetween means that the work
        begins again, and leaves no entry.
        """
        try:
            yield
        except CameBetween:
            raise
        except Exception:
            self.record(())
            raise

    def record(self, labels: Iterable[str]) -> None:
        """Leave the entry of an answer that no registration follows. `labels`: as `known_rows.sketches` gives them."""
        record_comparison(self.home.ledger, self.comparison, [dataset_of(label) for label in labels])

    def refuse(self, found: Iterable[tuple[str, str]]) -> NameTaken:
        """Leave an entry, and make the refusal. `found`: (label of `known_rows.sketches`, "people" or "rows"), not
        empty. A dataset is named where the asker may see it; how much was found is not said.
        """
        labels = dict(found)
        self.record(labels)
        visible = [label for label in labels if self.asker.may_see(dataset_of(label))]
        word = f"say why by {_NEW[self.door]} --reason, which stands in the ledger"
        if not visible:
            return NameTaken(
                "data: rows or people of this file look registered already, in a dataset that you may not see; the "
                f"same people have one budget. Ask its steward; or, if these are other people, {word}"
            )
        label, what = visible[0], labels[visible[0]]
        return NameTaken(
            f"data: {what} of this file are in the dataset {label} already; the same people have one budget. Share it "
            f"by --family {label}; or, if these are other people, {word}",
            dataset=label, what=what,
        )  # fmt: skip

    def require_sketches(self, others: Iterable[Dataset], known: Iterable[str]) -> None:
        """Raise InputError about a dataset whose sketch is not in this home: nobody can say what stands in it. Owners
        keep their rows, so there is nothing to look at, here or anywhere.
        """
        there = set(known)
        for dataset in others:
            name = dataset.registration.name
            if name in there or dataset.registration.remote:
                continue
            if not self.asker.may_see(name):
                raise InputError(
                    "data: there is a dataset that you may not see, of which this home cannot say whether people of "
                    f"this file are in it. If they are not, say why by {_NEW[self.door]} --reason, which stands in the "
                    "ledger; or ask the operator to put back what it is known by",
                    answers=[f"{_NEW[self.door]} --reason TEXT"],
                )
            raise InputError(
                f"data: are people of this file in the dataset {name}? Nobody can say: what they are known by, "
                f"datasets/{dataset.registration.commitment}/{SKETCH}, is not in this home. Share its budget by "
                f"--family {name}; or, if these are other people, say why by --new-people --reason, which stands in "
                f"the ledger; or put that file back from a copy of the home where {name} was registered, or register "
                f"the file of {name} there once more, with the same schema: it is refused, and makes the sketch anew",
                dataset=name, answers=[f"--family {name}", "--new-people --reason TEXT"],
            )  # fmt: skip

    def require_enough(self, own: Sketch, column: str | None, others: Iterable[Dataset]) -> None:
        """Refuse to compare a file of few with `others`, where there are any: the answer would be about each of them.
        It is the same whatever they hold. `column`: of the ids that name people; None: each row is a person. Owners
        keep their rows, which are compared with nothing.

        Raises:
            InputError: fewer than LEAST_PEOPLE different ids, or rows where there is no such column.
        """
        people = own.rows if column is None else own.people[column].distinct
        if people >= LEAST_PEOPLE or all(dataset.registration.remote for dataset in others):
            return
        of = "rows" if column is None else f"different ids in {column}"
        raise InputError(
            f"data: has fewer than {LEAST_PEOPLE} {of}, so it is not compared with registered datasets: the answer "
            f"would be about single people. {_WORDS[self.door]}",
            answers=_ANSWERS[self.door],
        )


_WORDS = {
    REGISTER: "If these people have no budget yet, say why by --new-people --reason TEXT, which stands in the ledger; "
    "or share the budget of a dataset that holds them by --family NAME",
    APPEND: "If these rows are registered nowhere else, say why by --new-rows --reason TEXT, which stands in the "
    "ledger",
    EVALUATE: "If they are nobody's secret, say so by --public",
}
_ANSWERS = {
    REGISTER: ["--family NAME", "--new-people --reason TEXT"],
    APPEND: ["--new-rows --reason TEXT"],
    EVALUATE: ["--public"],
}


def dataset_of(label: str) -> str:
    """Return the dataset of a label of `known_rows.sketches`: "visits, block 3" is of visits."""
    return label.partition(",")[0]


def find_copies(others: Iterable[Dataset], scan: Scan, own: Sketch) -> list[tuple[str, str]]:
    """Return (label, "people" or "rows") of all in which a noticeable share of the file's people or rows stands.
    Everything is compared, whatever was found before, so that the time tells nothing of where.
    """
    names = {dataset.registration.name for dataset in others}
    copies: list[tuple[str, str]] = []
    for label in scan.known:
        if dataset_of(label) not in names:
            continue
        people, rows = scan.same_people(label, own), scan.same_rows(label, own)
        if people:
            copies.append((label, "people"))
        elif rows:
            copies.append((label, "rows"))
    return copies
