"""A home with a signed statement of worth and a profile, for what verifies them elsewhere."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import ledgers

from accountant.certificates.profile import PROFILE
from accountant.certificates.worth import WORTH
from accountant.home import Home
from training.jobs import job
from training.requests import EvaluationRequest, ProfileRequest


@lru_cache
def stated() -> tuple[Home, dict[str, tuple[bytes, bytes]], bytes]:
    """The home, the envelope and the proof of "worth" and of "profile", and the model that was measured."""
    home = Home.open(ledgers.place(ledgers.copy(ledgers.trained(), Path(tempfile.mkdtemp()) / "home")))
    worth = job.measure(home, EvaluationRequest("adult", "adult", "0.1", "training"), by="test")["job"]
    profile = job.measure(home, ProfileRequest("adult", "0.1", "0", columns=("age", "sex")), by="test")["job"]
    found = {"worth": WORTH.open(home, worth)[:2], "profile": PROFILE.open(home, profile)[:2]}
    return home, found, (home.models / "adult" / "1" / "model.onnx").read_bytes()
