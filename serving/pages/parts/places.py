"""A place of the navigation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of the navigation, for who holds one of `scopes`; on everything, where it shows the `whole`. `later`: what
    stands under "More", for nobody needs it in a first hour. `help`: of an extension's, the documentation's page.
    """

    path: str
    label: str
    scopes: tuple[str, ...]
    says: str
    whole: bool = False
    later: bool = False
    help: str = ""
