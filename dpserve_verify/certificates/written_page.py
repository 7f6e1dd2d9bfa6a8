"""A page for people, and how it is written: for a terminal, in Markdown, in HTML."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape

WIDTH = 80
IN_FULL = "In full"  # the heading between the first page and what follows it
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:44em;margin:2em auto;padding:0 1em}p,li{overflow-wrap:anywhere}"
    "@media print{.full{break-before:page}}"
)


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs and, after them, a list."""

    title: str
    paragraphs: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A title, a first page that stands for itself, and the sections behind it; `to_text`, `to_markdown` and `to_html`
    write it.
    """

    title: str
    sections: tuple[Section, ...]
    first: tuple[Section, ...] = ()


def to_text(page: Page) -> str:
    """Return the page for a terminal of 80 columns. Control characters in names do not get through."""
    parts = [page.title, "=" * min(WIDTH, len(page.title))]
    for section in page.first:
        parts += _section_text(section)
    parts += ["", "", IN_FULL, "=" * len(IN_FULL)] if page.first else []
    for section in page.sections:
        parts += _section_text(section)
    return "\n".join(_printable(part) for part in parts) + "\n"


def _section_text(section: Section) -> list[str]:
    parts = ["", section.title, "-" * len(section.title)]
    parts += [line for text in section.paragraphs for line in (*_wrap(text, "", ""), "")]
    parts += [line for text in section.items for line in _wrap(text, "- ", "  ")]
    return parts if section.items else parts[:-1]


def _wrap(text: str, first: str, other: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=other, break_long_words=False, break_on_hyphens=False
    )


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def to_markdown(page: Page) -> str:
    """Return the page in Markdown. Names and values stay text, in Markdown and in HTML made from it."""
    parts = [f"# {_escape_markdown(page.title)}"]
    for section in (*page.first, None, *page.sections):
        if section is None:
            parts += [f"# {IN_FULL}"] if page.first else []
            continue
        parts += [f"## {_escape_markdown(section.title)}", *map(_escape_markdown, section.paragraphs)]
        parts += ["\n".join(f"- {_escape_markdown(item)}" for item in section.items)] if section.items else []
    return "\n\n".join(parts) + "\n"


def _escape_markdown(text: str) -> str:
    safe = escape(_printable(" ".join(text.split())), quote=False)
    for character in "\\`*_[]#|":
        safe = safe.replace(character, "\\" + character)
    return safe


def to_html(page: Page) -> str:
    """Return the page in HTML, which loads nothing."""
    parts = [_section_html(section) for section in page.first]
    parts += [f"<h1 class=full>{IN_FULL}</h1>"] if page.first else []
    parts += [_section_html(section) for section in page.sections]
    title = _html(page.title)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f"{head}<h1>{title}</h1>{''.join(parts)}</html>\n"


def _section_html(section: Section) -> str:
    items = "".join(f"<li>{_html(item)}</li>" for item in section.items)
    paragraphs = "".join(f"<p>{_html(text)}</p>" for text in section.paragraphs)
    return f"<h2>{_html(section.title)}</h2>{paragraphs}{f'<ul>{items}</ul>' if items else ''}"


def _html(text: str) -> str:
    return escape(_printable(text))
