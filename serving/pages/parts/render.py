"""Pages of the documentation from their Markdown: links among them lead to /docs, and what is no part of it is text.

The files are the project's own `docs/`, or those that the wheel brought (`serving/docs`). What is made from the code is
among the wheel's; a server that runs from its sources makes it when it is asked for (`docs/reference.py`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from accountant.errors import UnknownName

ROOM = Path(__file__).resolve().parents[2]
PLACES = ((ROOM / "docs", ROOM / "docs" / "mkdocs.yml"), (ROOM.parent / "docs", ROOM.parent / "mkdocs.yml"))
FILES = {
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".sh": "text/plain",
}
MAKER = "reference.py"
START = '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>\n'


@dataclass(frozen=True)
class Page:
    """`name` as in its address; `sections`: anchors and titles of its second level."""

    name: str
    title: str
    html: Markup
    sections: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Manual:
    """By name: what reads a page, without its ending; paths of pictures and figures; and the order of the pages."""

    pages: Mapping[str, Callable[[], str]]
    files: Mapping[str, Path]
    contents: Sequence[tuple[str, Sequence[tuple[str, str]]]]


@cache
def manual() -> Manual:
    """Return the installed manual. UnknownName where there is none."""
    folder, order = next((place for place in PLACES if place[0].is_dir() and place[1].is_file()), (None, None))
    if folder is None or order is None:
        raise UnknownName("docs: they are not installed here; a wheel that `make wheel` built has them")
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    read = {
        name.removesuffix(".md"): partial(path.read_text, "utf-8")
        for name, path in paths.items()
        if name.endswith(".md")
    }
    pages: dict[str, Callable[[], str]] = {**read, **(_generated_pages(paths[MAKER]) if MAKER in paths else {})}
    files = {name: path for name, path in paths.items() if path.suffix in FILES}
    return Manual(pages, files, _contents(yaml.safe_load(order.read_text("utf-8"))["nav"], pages))


def _generated_pages(maker: Path) -> dict[str, Callable[[], str]]:
    """Return the pages that are made from the code, each made once."""
    spec = spec_from_file_location("docs_reference", maker)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    content_of = cache(module.made)
    return {name: partial(content_of, name) for name in (*module.PAGES, module.CHANGES)}


def _contents(
    order: Sequence[Mapping[str, Any]], pages: Mapping[str, object]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the titles of sections, each with the titles and names of its pages; a page that is missing is left
    out.
    """
    sections: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    for entry in order:
        for title, value in entry.items():
            listed = value if isinstance(value, list) else [entry]
            lines = [(name, path.removesuffix(".md")) for section in listed for name, path in section.items()]
            present = [(name, path) for name, path in lines if path in pages]
            if isinstance(value, list):
                sections.append((title, present))
            else:
                sections[0][1].extend(present)
    return [section for section in sections if section[1]]


def slug(text: str) -> str:
    """Return the anchor of a heading, as MkDocs makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text.encode("ascii", "ignore").decode()).strip().lower())


def markdown_of(name: str) -> str:
    """Return the text of a page, without what MkDocs reads at its head. UnknownName where there is none."""
    read = manual().pages.get(name)
    if read is None:
        raise UnknownName(f"docs={name[:80]!r}: there is no such page")
    return re.sub(r"\A---\n.*?\n---\n", "", read(), flags=re.DOTALL)


@lru_cache(maxsize=256)
def page(name: str) -> Page:
    """Return a page of the manual. UnknownName where there is none."""
    text = markdown_of(name)
    reader = MarkdownIt("commonmark").enable("table")
    tokens, sections, title = reader.parse(text), list[tuple[str, str]](), name
    for token, after in zip(tokens, [*tokens[1:], Token("", "", 0)], strict=True):
        if token.type == "heading_open":
            heading = "".join(child.content for child in after.children or () if child.type in ("text", "code_inline"))
            token.attrSet("id", slug(heading))
            if token.tag == "h2":
                sections.append((slug(heading), heading))
            title = heading if token.tag == "h1" else title
        if token.attrs.pop("style", None) == "text-align:right":  # of a table's cell; our pages take no styles inline
            token.attrSet("class", "number")
        for child in token.children or ():
            _point_link(child, name)
    html = reader.renderer.render(tokens, reader.options, {})
    html = html.replace("<table>\n", START).replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    return Page(name, title, Markup(html), tuple(sections))


def _point_link(token: Token, name: str) -> None:
    """Point a link or picture to where this server has it; a link to what it has not becomes plain text."""
    kind = {"link_open": "href", "image": "src"}.get(token.type)
    if kind is None:
        return
    parts = urlsplit(str(token.attrGet(kind)))
    if parts.scheme or parts.netloc or not parts.path:
        return
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(name), parts.path))
    plain, installed = wanted.removesuffix(".md"), manual()
    anchor = f"#{parts.fragment}" if parts.fragment else ""
    if plain in installed.pages or wanted in installed.files:
        token.attrSet(kind, f"/docs/{plain}{anchor}")
    else:
        token.attrs.pop(kind, None)
