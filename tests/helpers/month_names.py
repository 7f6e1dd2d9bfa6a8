"""The names of the months in LANGUAGES, of Unicode's CLDR by babel: `python tests/helpers/month_names.py` writes
models/features/month_names.py anew.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from babel.dates import get_month_names

from models.features.date_patterns import plain_name

PATH = Path(__file__).parents[2] / "models" / "features" / "month_names.py"
# With those of a country where it has names of its own.
LANGUAGES = "en en_AU de de_AT fr fr_CA es es_PE it pt pt_PT nl sv nb da fi pl cs sk hu ro tr ru uk el"
ALSO = {"jaenner": 1, "maerz": 3, "mrz": 3}  # as people write them, and CLDR does not
HEAD = """\
\"\"\"Names of the months in twenty languages, in full and short, alone and in a date: small letters, no accents.

Made of Unicode's CLDR by tests/helpers/month_names.py.
\"\"\"

MONTHS = (
"""


def names_of_cldr() -> dict[str, int]:
    """Return the month of each name, as `plain_name` spells it. ValueError where a name is of two months."""
    names = dict(ALSO)
    for name, month in _each():
        if names.setdefault(plain_name(name), month) != month:
            raise ValueError(f"{name}: of two months")
    return names


def _each() -> Iterator[tuple[str, int]]:
    for language in LANGUAGES.split():
        for width in ("wide", "abbreviated"):
            for stands in ("format", "stand-alone"):
                for month, name in get_month_names(width, stands, language).items():
                    yield name.strip(". "), month


def text() -> str:
    """Return the module."""
    names = names_of_cldr()
    lines = []
    for month in range(1, 13):
        words = " ".join(sorted(name for name, of in names.items() if of == month))
        parts = textwrap.wrap(words, 104)
        lines += [f'    "{part} "' for part in parts[:-1]] + [f'    "{parts[-1]}",']
    return HEAD + "\n".join(lines) + "\n)\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
