"""Text in Markdown."""

from __future__ import annotations


def plain(value: object) -> str:
    """Escape a value so that it stays text in Markdown, in its tables, and in HTML made from it."""
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character in "\\|`*_[]#":
        text = text.replace(character, "\\" + character)
    return text
