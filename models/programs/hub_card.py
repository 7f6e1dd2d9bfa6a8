"""A model's card as Hugging Face reads it: the card that travels, below a head."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from models.parts.released import Released


def hub_card(ensemble: Released, card: str, about: Mapping[str, str]) -> str:
    """Return a model's card with a head as Hugging Face reads it: what the model is for, and what is certified.
    `about`: what the head says under `dpserve`.
    """
    task = "tabular-classification" if ensemble.classes else "tabular-regression"
    head = {
        "library_name": "onnx",
        "pipeline_tag": task,
        "tags": ["differential-privacy", "onnx", task, "dpserve"],
        "dpserve": dict(about),
    }
    return f"---\n{yaml.safe_dump(head, allow_unicode=True, sort_keys=False)}---\n\n{card}"
