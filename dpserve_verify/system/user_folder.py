"""Folders of this user, where no setting names another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dpserve_verify.errors import InputError


def user_folder(variable: str, below: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that `variable` names, else the one `below` this user's home. InputError where there is
    neither: a number that no list of users knows has no home.
    """
    if environment.get(variable):
        return Path(environment[variable])
    try:
        return Path.home() / below
    except RuntimeError:
        raise InputError(
            f"{variable}: must name a folder; this user ({os.getuid()}) has no home, and HOME is not set"
        ) from None
