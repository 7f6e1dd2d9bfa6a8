"""Where the navigation leads to learners of others."""

from __future__ import annotations

from serving.http.rights import READS
from serving.pages.parts.places import Place

PLACES = (
    Place("/ui/learners", "Learners of others", READS, "Texts of others that jobs may run, and who admitted them",
          later=True, help="reference/others"),
)  # fmt: skip
