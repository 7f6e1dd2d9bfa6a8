"""The part of a prediction's interval that noise makes, of a model in a home: from its certificate, the ledger's plan
and the dataset's schema, all public. Nothing is spent, and no row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from accountant.errors import RowsUnavailable
from accountant.home import Home
from accountant.ledger.families.records import request_from_entry
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.events import plan_from_json
from models.features.features import RawColumns
from models.forms.additive import AdditiveEnsemble
from models.forms.ensemble import Ensemble
from models.parts.other_noise import Floats, noise_interval
from training.calibration.calibrate import rehearse
from training.learners.ebm.ebm import DPEBM
from training.learners.ebm.refits import refits
from training.learners.job_words import TUNING
from training.planning import starts
from training.planning.plans import public_of
from training.planning.starts import StartMissing
from training.rows.schema.schema import schema_of
from training.tuning.tune import fits_of

REFITS = 20
WITHOUT = "ask for the prediction without an interval"


@dataclass
class OtherNoise:
    """What a model might have been under other noise; `so_far`: the refits that were made already."""

    model: AdditiveEnsemble
    made: Iterator[AdditiveEnsemble]
    so_far: list[AdditiveEnsemble] = field(default_factory=list)

    @classmethod
    def of(cls, home: Home, model: Ensemble, certificate: Certificate) -> OtherNoise:
        """Return it before the first refit. InputError, with a remedy, where the noise of a model cannot be told."""
        name = certificate.form.public.learner
        if certificate.ancestors:
            base = f"entry {certificate.ancestors[-1].entry}"
            raise InputError(f"interval: the model was edited by hand; ask the version that it came from ({base})")
        if name != DPEBM.name or not isinstance(model, AdditiveEnsemble):
            many = f" of {len(model.classes)} classes" if len(model.classes) > 2 else ""
            raise InputError(
                "interval: told of models of ebm with two classes or a number, and this is one of "
                f"{name}{many}; {WITHOUT}"
            )
        entry = home.ledger.reservation(certificate.reservation).value
        request = request_from_entry(entry)
        if TUNING in request.parameters:
            raise InputError(
                "interval: the model is the best of several runs, and what noise does to the choice among them is not "
                f"told; {WITHOUT}"
            )
        if certificate.form.claim.trust_model.startswith("institutions:"):
            raise InputError(f"interval: is not told of models of institutions, whose sums have two noises; {WITHOUT}")
        learner = fits_of(name, request.parameters)
        assert isinstance(learner, DPEBM)
        unit = Decimal(entry["unit"])
        try:
            dataset = home.ledger.dataset_of(certificate.reservation)
            schema = schema_of(home, dataset).question(request.target, request.parameters)
            public = public_of(dataset, schema, request.budget)
            public = starts.begin(home, public, name, request.parameters)
            as_planned = rehearse(learner, public, unit) == plan_from_json(entry["plan"])
        except StartMissing as error:
            raise InputError(f"interval: {error.message}; {WITHOUT}") from None
        except RowsUnavailable as error:
            raise InputError(f"interval: {error.message}; {WITHOUT}, or a server that has the schema") from None
        except DpserveError:
            as_planned = False
        if not as_planned or [each.name for each in public.features] != [each.name for each in model.features]:
            raise InputError(f"interval: the model was made by another version of dpserve; {WITHOUT}")
        return cls(model, refits(learner, public, unit, model))

    def interval(
        self, columns: RawColumns, level: float, check: Callable[[int, int], None] = lambda done, of: None
    ) -> Floats:
        """Return the ends for each record, as `noise_interval` does: (n, 2). `check(done, of)` is called before each
        refit, and may raise: what was made until then is there when it is asked for again.
        """
        while len(self.so_far) < REFITS:
            check(len(self.so_far), REFITS)
            self.so_far.append(next(self.made))
        return noise_interval(self.model, self.so_far, columns, level)
