"""The table of docs/access.md: which door takes which scope, on what. Run as a program, it writes the table anew."""

from __future__ import annotations

import re
from pathlib import Path

from accountant.access.tokens import SCOPES
from serving.app import DOORS
from serving.http.routes import Door
from serving.pages.all import PAGES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access.md"
START, END = "<!-- the table of serving.http.rights -->\n", "<!-- its end -->"
EVERY = tuple(door for door in (*DOORS, *PAGES) if door.scopes)


def table() -> str:
    lines = [("door", *SCOPES), ("---",) * (len(SCOPES) + 1)]
    lines += [(f"`{door.method} {door.path}`", *map(said, (door,) * len(SCOPES), SCOPES)) for door in EVERY]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def said(door: Door, scope: str) -> str:
    reach = door.reach(scope)
    return "–" if reach == "no" else reach


def shown() -> str:
    return re.search(f"{START}(.*){END}", PAGE.read_text("utf-8"), re.DOTALL)[1]


if __name__ == "__main__":
    text = PAGE.read_text("utf-8").replace(START + "\n", f"{START}{END}\n\n", 1)
    PAGE.write_text(re.sub(f"{START}.*{END}", lambda _: f"{START}{table()}{END}", text, flags=re.DOTALL), "utf-8")
