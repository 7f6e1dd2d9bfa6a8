"""Names that people give: of datasets, models and tokens. They become folder names and metric labels, so they are
narrow.
"""

from __future__ import annotations

import re

from accountant.errors import InputError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)


def check_name(what: str, name: str) -> str:
    """`name`, if it is 1 to 64 of a-z 0-9 . _ - and begins with a letter or digit; else InputError."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise InputError(
            f"{what}={name!r:.80}: must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        )
    return name
