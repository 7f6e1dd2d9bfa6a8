"""Operations: functions of a caller, each stated once for every door.

A function becomes an `Operation` by its declaration: method, path, scopes. Its parameters say where they come from: a
name in the path, `body` a request, `part` a part of a list, any other one the query; its answer is an `Answer`, or JSON
of a shape that has a name. The REST door with its schemas (`serving.operations.doors`), both backends of the command
line (`at_home`, `to_request`), the description, the table of rights and the trail follow from that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_type_hints

from serving.http import rights
from serving.http.rights import DatasetOf
from serving.operations.answers import Body, ToJson, read_answer

if TYPE_CHECKING:
    from accountant.access.grants import Access
    from accountant.home import Home
    from models.store.loading import OpenedModel
    from serving.process.registry import Served

P = ParamSpec("P")
A = TypeVar("A", bound=ToJson | Body, covariant=True)
Scopes = tuple[str, ...]


@dataclass(frozen=True)
class Caller:
    """Who asks for an operation, in which home, with which rights. `token`: the entry that made the caller's token;
    None at the command line, where `by` may say who decides in the user's place. `find`, `dataset_of`: how a server
    finds a verified model, and the dataset of one; None: in the home's files.
    """

    home: Home
    rights: Access
    token: int | None = None
    by: str | None = None
    find: Callable[[str], Served] | None = None
    dataset_of: DatasetOf | None = None

    def model(self, reference: str) -> Served | OpenedModel:
        """Return a verified model, as the server holds it or from the files of the home. Raises UnknownName, or the
        error for which it is not served.
        """
        from models.store.placing import open_in  # loads what verifies, and lists do without

        return open_in(self.home, reference) if self.find is None else self.find(reference)

    @property
    def is_here(self) -> bool:
        """Tell whether the caller sits at the home's machine and waits as long as it takes."""
        return self.token is None

    @property
    def principal(self) -> str:
        """Return who asks, as entries name them."""
        return self.by or self.rights.principal

    def require_model(self, scopes: Scopes, reference: str) -> None:
        """Raise Forbidden unless one of `scopes` is held on a model, or on the dataset that it was trained on."""
        rights.require_model(self.rights, self.dataset_of or partial(trained_on, self.home), scopes, reference)


@dataclass(frozen=True)
class Operation(Generic[P, A]):
    """A function of a caller, and what its doors ask for.

    Attributes:
        function: What is done; the first sentence of its docstring describes it.
        method: GET, POST, PUT or DELETE.
        path: The REST door's, with names in braces.
        scopes: One of them is enough.
        on: What a scope must be held on, where the path does not name it (`serving.http.rights`).
        status: Of what is done; 200 for a request that is a dry run.
        errors: Statuses that do not follow from the rest.
        is_repeatable: Whether asking twice does no more than asking once.
        needs_prices: Whether privacy is priced on the way, in the caller's turn.
        has_archive: Whether the list that it gives a part of leaves out what is archived, unless that is asked for.
        counts_refusals: Whether a server counts what a budget refuses of it, and notes the body's dataset in its trail.
    """

    function: Callable[Concatenate[Caller, P], A]
    method: str
    path: str
    scopes: Scopes
    on: str = ""
    status: int = 200
    errors: tuple[int, ...] = ()
    is_repeatable: bool = False
    needs_prices: bool = False
    has_archive: bool = False
    counts_refusals: bool = False

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """Return the type of each parameter behind the caller."""
        hints = get_type_hints(self.function, include_extras=True)
        return {name: hints[name] for name in list(inspect.signature(self.function).parameters)[1:]}

    @cached_property
    def answer(self) -> Any:
        """Return the type of the answer: a class, or JSON with the name of its shape."""
        return get_type_hints(self.function, include_extras=True)["return"]

    def read(self, body: Any) -> A:
        """Read the JSON of its answer. DpserveError where it is none."""
        return cast(A, read_answer(self.answer, body))

    @property
    def query(self) -> list[str]:
        """Return the names of the query's fields, beside those of a part. `from_` stands for a word of Python's."""
        return [name for name in self.parameters if name not in ("body", "part") and f"{{{name}}}" not in self.path]

    @property
    def thing(self) -> str:
        """Return what a scope must be held on: what the path names, or one of `serving.http.rights`."""
        return self.on or rights.thing_of(self.path)


def operation(
    method: str, path: str, *scopes: str, **more: Any
) -> Callable[[Callable[Concatenate[Caller, P], A]], Operation[P, A]]:
    """Make a function an operation; `more`: other attributes of it."""
    return lambda function: Operation(function, method, path, scopes, **more)


def at_home(asked: Operation[P, A], caller: Caller, *arguments: P.args, **values: P.kwargs) -> A:
    """Do what an operation says in a home, for a caller who may: by the same rule as at its door."""
    if rights.needs_look(caller.rights, asked.scopes, asked.thing):
        changes, dataset_of = asked.method != "GET", partial(trained_on, caller.home)
        rights.require_thing(caller.home, caller.rights, asked.scopes, asked.thing, values, changes, dataset_of)
    return asked.function(caller, *arguments, **values)


def trained_on(home: Home, reference: str) -> str | None:
    """Return the dataset of the newest version of a model whose files are those that the ledger entered."""
    from models.store.listing import lines, versions_in

    versions = [each for each in versions_in(home) if each[0] == reference.partition("@")[0]]
    return next((line["dataset"] for line in lines(home, versions[::-1]) if line["dataset"]), None)


def to_request(asked: Operation[P, A], values: Mapping[str, Any]) -> tuple[str, str, Any, dict[str, Any]]:
    """Return method, path, body and query by which a server is asked."""
    from dpserve.transport import segment

    path, query, body = asked.path, dict[str, Any](), None
    for name, value in values.items():
        if name == "body":
            body = value.to_json()
        elif name == "part":
            query |= value.to_query()
        elif f"{{{name}}}" in path:
            kind = asked.thing if name == "name" else name
            path = path.replace(f"{{{name}}}", segment(kind, str(value)))
        else:
            query[name.rstrip("_")] = value
    return asked.method, path, body, query
