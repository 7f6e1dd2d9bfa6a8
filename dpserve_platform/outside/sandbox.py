"""Run somebody else's learner in a sealed process that has no rows, and release what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from accountant.ledger.learner_admissions import ENTERED, OUTSIDE
from accountant.privacy.claims import BOUNDS
from dpserve_platform.outside.forms import read_model
from dpserve_platform.outside.own import Answering
from dpserve_platform.outside.process import OutsideFailed, SealedProcess
from dpserve_platform.outside.requests import read_request
from dpserve_verify.errors import InputError
from models.forms.ensemble import Ensemble
from training.calibration.calibrate import calibrate, rehearse
from training.calibration.plan_warnings import check_exportable
from training.rows.partitions.partition import TARGET_GRID
from training.session.learner import Recipe
from training.session.session import Public, Releaser, Source

MOST_RELEASES = 10_000


@dataclass(frozen=True)
class OutsideLearner:
    """Somebody else's learner, as dpserve's own are driven: `learn` is a process of its own each time. `source`: None
    in a job, which runs what was admitted for it, `Public.code`.
    """

    source: Source | None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    name: ClassVar[str] = OUTSIDE

    def learn(self, session: Releaser) -> Ensemble:
        """Run it sealed, release what it asks for, and return its model. OutsideFailed where it does not keep to the
        rules; InputError where this system cannot seal it.
        """
        source = self.source or session.public.code
        if source is None:
            raise InputError("learner: none was admitted for this job")
        own = {key: value for key, value in self.parameters.items() if self.source or key not in ENTERED}
        waits = self.source is None  # in a job
        with SealedProcess(source.modules) as process, Answering(source, waits) as answering:
            process.send({
                "source": source.text, "kind": source.kind, "parameters": own,
                "public": public_facts(session.public),
            })  # fmt: skip
            for _ in range(MOST_RELEASES):
                said = process.read()
                if "model" in said:
                    return read_model(said["model"], session.public)
                if "failed" in said:
                    raise OutsideFailed(f"learner: it failed ({said['failed']!r:.300})")
                query, mechanism = read_request(said, session, source, answering)
                process.send({"answer": np.asarray(session.release(query, mechanism)).tolist()})
        raise OutsideFailed(f"learner: more than {MOST_RELEASES} releases")

    def recipe(self, public: Public, bounds: tuple[str, ...] = BOUNDS) -> Recipe:
        """Rehearse and calibrate to the public budget, as dpserve's own are. `bounds`: that a claim may come from."""
        recipe = calibrate(self, public, public.budget, None, bounds)
        check_exportable(self, public, recipe.blank)
        return replace(recipe, blank=None)

    def check(self, public: Public) -> None:
        """Refuse nothing: what does not fit shows in the rehearsal."""

    def guess(self, public: Public) -> Decimal | None:
        """Return None: no unit is known before."""
        return None

    def rounds_for(self, public: Public) -> int:
        """Count the releases of a rehearsal."""
        return len(rehearse(self, public, Decimal(1)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what its constructor is given, and in a job what names it."""
        return dict(self.parameters)


def public_facts(public: Public) -> dict[str, Any]:
    """Return what a learner may know, as its process is sent it."""
    return {
        "features": [{"name": feature.name, "kind": feature.kind, "bins": feature.bins} for feature in public.features],
        "target": public.target,
        "classes": None if public.classes is None else list(public.classes),
        "target_range": public.target_range,
        "step": public.target_range and (public.target_range[1] - public.target_range[0]) / 2 / TARGET_GRID,
        "records": public.records,
        "relation": public.relation.value,
        "epsilon": str(public.budget.epsilon),
        "delta": str(public.budget.delta),
        "prevalence": list(public.prevalence),
    }
