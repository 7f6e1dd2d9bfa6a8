"""Searching the documentation: sections in a full-text index of SQLite's (FTS5, BM25), what people call things beside
what the pages call them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from serving.pages.parts.render import manual, markdown_of, slug

MOST_PAGES = 20
# How much a match is worth beside one in a guide: nobody who asks in words looks for a list that was made from code.
MADE = ("access", "alerts", "commands", "errors", "learners", "metrics", "python", "rest", "settings")
WEIGHTS = {f"reference/{name}": 0.35 for name in MADE} | {
    "reference/": 0.9, "privacy/": 0.5, "results/": 0.6, "changelog": 0.25, "vectors": 0.35, "decisions": 0.4
}  # fmt: skip
TITLE, HEADING, TEXT = 8.0, 6.0, 1.0  # how much a word counts there
# What stands in each is the same to who asks. A word of several is looked for as a phrase.
SAME: tuple[tuple[str, ...], ...] = (
    ("gdpr", "dsgvo", "erase", "erasure", "forget", "delete", "right to be forgotten"),
    ("month", "monthly", "week", "weekly", "append", "grow", "every month"),
    ("price", "cost", "costs", "pay", "charge"),
    ("runs out", "run out", "used up", "exhausted", "end of the budget"),
    ("excel", "xlsx", "workbook", "spreadsheet"),
    ("password", "token", "sign in", "login"),
    ("k8s", "kubernetes", "helm"),
    ("docker", "container", "image", "compose"),
    ("postgres", "postgresql", "database"),
    ("jupyter", "notebook", "notebooks"),
    ("sklearn", "scikit-learn", "estimator"),
    ("classification", "classes", "target"),
    ("accuracy", "auroc", "worth", "evaluation", "evaluate"),
    ("restore", "backup", "disaster"),
    ("audit", "auditor", "verify", "check"),
    ("synthetic", "synthesize", "artificial"),
    ("weights", "weight", "sample_weight"),
    ("federated", "institutions", "hospitals", "nvflare"),
    ("prometheus", "grafana", "metrics", "monitoring", "alerts"),
    ("upgrade", "migrate", "update"),
    ("rotate", "key", "keys"),
    ("sql", "count", "counts", "query", "querying"),
    ("regression", "regressor", "learning a number"),
    ("write a learner", "own learner", "custom learner", "learner of your own"),
)
UNASKED = """
a an and are as at be by can do does for from has have how i if in is it my of on or so that the their there this to was
what when where which who will with you your
"""  # words that nobody looks for
MARKS = ("\x02", "\x03")


@dataclass(frozen=True)
class Match:
    """A section that answers: the address below /docs, the titles of its page and of itself, and an excerpt in which
    the words that were looked for are marked.
    """

    address: str
    title: str
    section: str
    excerpt: Markup


def search(text: str) -> list[Match]:
    """Return the best section of each page that holds every word of a text, or what is the same; then of those that
    hold some. At most MOST_PAGES, the best first.
    """
    terms = _terms(text.lower())
    matches: dict[str, Match] = {}
    with closing(sqlite3.connect(":memory:")) as index:
        index.deserialize(_index())
        for query in (" AND ".join(terms), " OR ".join(terms)) if terms else ():
            rows = index.execute(
                "select name, anchor, title, heading, snippet(sections, 4, ?, ?, ' … ', 28) from sections "
                "where sections match ? order by bm25(sections, 0, 0, ?, ?, ?) * weight limit 200",
                (*MARKS, query, TITLE, HEADING, TEXT),
            )
            for name, anchor, title, heading, excerpt in rows:
                marked = str(escape(excerpt)).replace(MARKS[0], "<mark>").replace(MARKS[1], "</mark>")
                address = f"{name}#{anchor}" if anchor else name
                matches.setdefault(name, Match(address, title, heading, Markup(marked)))
    return list(matches.values())[:MOST_PAGES]


def _terms(text: str) -> list[str]:
    """Return what is looked for, as FTS5 has it: each word or phrase of a text or one that is the same."""
    wanted: list[tuple[str, ...]] = []
    for group in SAME:
        for phrase in group:
            if " " in phrase and phrase in text:
                text = text.replace(phrase, " ")
                wanted.append(group)
    words = [word for word in re.findall(r"[\w.-]+", text) if word.strip("._-")]
    for word in [word for word in words if word not in UNASKED.split()] or words:
        wanted.append(next((group for group in SAME if word in group), (word,)))
    # letters, digits, points and strokes alone: nothing of it means something to FTS5 between quotation marks
    return [
        " OR ".join(f'"{each}"' + "*" * (len(each) > 2) for each in group).join("()") for group in dict.fromkeys(wanted)
    ]


@cache
def _index() -> bytes:
    """Return the index of all sections, as a database of SQLite's. Each search opens it anew: threads share no
    connection.
    """
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute(
            "create virtual table sections using fts5(name unindexed, anchor unindexed, title, heading, text, "
            "weight unindexed, tokenize='porter unicode61')"
        )
        for name in manual().pages:
            weight = next((value for start, value in WEIGHTS.items() if name.startswith(start)), 1.0)
            rows = ((name, anchor, title, heading, text, weight) for anchor, title, heading, text in _sections(name))
            index.executemany("insert into sections values (?, ?, ?, ?, ?, ?)", rows)
        index.commit()
        return index.serialize()


def _sections(name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the sections of a page: anchor, title of the page and of the part that a section lies in, heading, text.
    The first has no heading.
    """
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown_of(name))
    title, part, heading, text, level = name, "", "", list[str](), ""
    for token in tokens:
        if token.type == "heading_open":
            level = token.tag
        elif token.type == "inline":
            words = " ".join(child.content for child in token.children or () if child.content)
            if level == "h1":
                title = words
            elif level:
                yield slug(heading), title + part, heading, " ".join(text)
                part = "" if level == "h2" else part or f" · {heading}"
                heading, text = words, []
            else:
                text.append(words)
            level = ""
        elif token.type in ("fence", "code_block"):
            text.append(token.content)
    yield slug(heading), title + part, heading, " ".join(text)
