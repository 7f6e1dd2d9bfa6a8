"""What `tests/vectors` expects of whoever verifies: each judges the layers that it knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpserve_verify.keys.trust import PublicKeys

FOLDER = Path(__file__).resolve().parents[1] / "vectors"
EXPECTED: dict[str, dict[str, Any]] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*/expected.json"))
}


def concerning(kind: str, *layers: str, needs: bool = True) -> list[str]:
    """The vectors of a kind that say something of one of these layers; unless `needs`, those that all can judge."""
    return [
        name
        for name, each in EXPECTED.items()
        if each["kind"] == kind and set(layers) & set(each["layers"]) and (needs or not each.get("needs"))
    ]


def accepts(name: str, *layers: str) -> bool:
    """Whether a verifier that judges these layers has to accept the vector."""
    return all(EXPECTED[name]["layers"].get(layer, "sound") == "sound" for layer in layers)


def trust_of(name: str) -> PublicKeys:
    """The pinned keys that it is judged by."""
    return PublicKeys.from_json((FOLDER / name / "trust.json").read_bytes())
