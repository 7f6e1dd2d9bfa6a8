"""By which query rows were read from a database, as entries and certificates state it: its digest, and never its text,
which may hold constants about people.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpserve_verify.errors import InputError

LONGEST = 200  # characters of a reason
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class RowQuery:
    """A query that rows were read by. `sha256`: of its text in UTF-8, in hex; `reason` and `by`: where nobody can see
    from the query that each of its rows is about one person alone, why that holds, and who says so. InputError where
    one of them has another form.
    """

    sha256: str
    reason: str | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or not _DIGEST.fullmatch(self.sha256):
            raise InputError("query: sha256 must be 64 hex digits")
        if (self.reason is None) != (self.by is None):
            raise InputError("query: a reason and who gave it stand together")
        for name, text in (("query-reason", self.reason), ("by", self.by)):
            if text is None:
                continue
            if not isinstance(text, str) or not text.strip() or len(text) > LONGEST or not text.isprintable():
                raise InputError(f"{name}: must be 1 to {LONGEST} printable characters")

    @classmethod
    def of(cls, text: str, reason: str | None = None, by: str | None = None) -> RowQuery:
        """Digest a query. `by` counts only beside a reason."""
        return cls(hashlib.sha256(text.encode()).hexdigest(), reason, None if reason is None else by)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RowQuery:
        """Read what `to_json` wrote; InputError for anything else."""
        if not isinstance(body, Mapping) or body.keys() - {"reason", "by"} != {"sha256"}:
            raise InputError("query: must have sha256, and reason and by where a reason was given")
        return cls(body["sha256"], body.get("reason"), body.get("by"))

    def to_json(self) -> dict[str, str]:
        """Write it as entries have it."""
        return {
            "sha256": self.sha256,
            **({} if self.reason is None or self.by is None else {"reason": self.reason, "by": self.by}),
        }

    def to_certificate(self) -> dict[str, str]:
        """Write it as statements have it: who gave the reason stands in the entry."""
        return {name: text for name, text in self.to_json().items() if name != "by"}
