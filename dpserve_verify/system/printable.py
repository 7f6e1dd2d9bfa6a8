"""Text of others, made fit for a terminal and a spreadsheet: in the one it can move no cursor, set no title or colour,
and turn no line around; in the other it is no formula.
"""

from __future__ import annotations

import json
import re
import unicodedata

_ODD = re.compile(r"[^\x20-\x7e\n\t]")  # everything that has to be looked at
_SPACE = "Zs"
_COMPUTED = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)


def printable(text: str) -> str:
    """Return `text` on one line: characters that do not print (control characters, line ends, marks that change the
    direction of text, unassigned code points) are spelled as `\\x1b` or `\\u202e`.
    """
    return printable_lines(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_lines(text: str) -> str:
    """Return `text` as `printable` does, with line ends and tabs as they are."""
    return _ODD.sub(lambda match: match[0] if _prints(match[0]) else ascii(match[0])[1:-1], text)


def printable_json(text: str) -> str:
    """Return the same JSON document, with what does not print in its strings spelled as JSON does, `\\u202e`."""
    return _ODD.sub(lambda match: match[0] if _prints(match[0]) else json.dumps(match[0])[1:-1], text)


def uncomputed(text: str) -> str:
    """Return `text` as a cell that no spreadsheet computes: what could be a formula, and is no number, gets an
    apostrophe in front, also where it has some already. So cells that begin with apostrophes and one of =+-@, tab or
    return are read back by leaving out the first.
    """
    return f"'{text}" if _COMPUTED.match(text) and not _NUMBER.fullmatch(text) else text


def _prints(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == _SPACE
