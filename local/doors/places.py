"""Where the navigation leads to campaigns."""

from __future__ import annotations

from serving.pages.parts.places import Place

PLACES = (
    Place("/ui/campaigns", "Campaigns", ("train", "audit"), "Owners who keep their rows, and how many answered", True,
          later=True, help="owners"),
)  # fmt: skip
