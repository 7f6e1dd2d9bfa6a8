"""Whole programs of others that read rows themselves, at a price that is the word of whoever admitted them.

One run is one release: it is charged before it starts, and its model alone comes out. The model, or that there is none,
is handed on when the program has had its seconds to the full, so that how long it took says nothing. dpserve proves
nothing of what it does with the rows: the promise is its voucher's (docs/reference/others.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from time import monotonic, sleep
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountant.home import settings
from accountant.ledger import learner_admissions
from accountant.noise.mechanisms import DiscreteGaussian
from accountant.privacy.claims import BOUNDS
from dpserve_platform.outside.forms import read_model
from dpserve_platform.outside.process import OutsideFailed, SealedProcess
from dpserve_platform.outside.sandbox import OutsideLearner, public_facts
from dpserve_verify.certificates.releases import VOUCHED
from dpserve_verify.certificates.vouched import MECHANISM
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import NANO, Relation, from_nano, nano
from dpserve_verify.privacy.events import Gaussian, PureDp
from models.forms.ensemble import Ensemble
from training.rows.partitions.rows import Rows
from training.session.learner import Recipe
from training.session.session import EPSILON, MU, Public, Releaser, Source, Vouch

MEMORY = 4 << 30
STEPS = 10**9  # sensitivity that is stated: so fine a grid that a claim by Gaussian DP loses nothing to rounding
FAILED = "learner: it returned no model within its time"  # whatever it was


@dataclass(frozen=True)
class VouchedRun:
    """A run of a program at this price. No noise of dpserve's is in what comes back."""

    name: ClassVar[str] = MECHANISM
    norm: ClassVar[str] = "declared"
    event: PureDp | Gaussian

    @property
    def price(self) -> dict[str, str]:
        """Return the price as the program is handed it, in the unit of its promise; mu is rounded down."""
        if isinstance(self.event, PureDp):
            return {EPSILON: decimal_string(self.event.epsilon)}
        return {MU: decimal_string(from_nano(NANO * NANO // nano(self.event.noise_multiplier)))}

    def draw(self, values: Callable[[], NDArray[np.int64]], sensitivity: int) -> NDArray[np.int64]:
        """Run it, and return its model as whole numbers."""
        return values()


@dataclass(frozen=True)
class Program:
    """What is asked of rows: the program, with all that it is handed beside them."""

    source: Source
    vouch: Vouch
    body: Mapping[str, Any]
    norm: ClassVar[str] = VouchedRun.norm
    purpose: ClassVar[str] = VOUCHED
    size: ClassVar[int] = 1

    def sensitivity(self, relation: Relation) -> int:
        """Return the grid's steps: how far a row moves what comes out is the voucher's word."""
        return STEPS

    def __call__(self, rows: Rows) -> Callable[[], NDArray[np.int64]]:
        """Return what runs it, once: nothing is read before that."""
        return partial(self.run, rows)

    def run(self, rows: Rows) -> NDArray[np.int64]:
        """Run it on rows, and return its model's JSON, blanks behind it, as whole numbers, when its seconds are over.
        OutsideFailed says one thing for all that can fail.
        """
        with suppress(Exception), self._started() as (process, end):
            try:
                text = json.dumps(self._model(process, rows, end)).encode()
                return np.frombuffer(text + b" " * (-len(text) % 8), "<i8").astype(np.int64)
            finally:
                sleep(max(0.0, end - monotonic()))
        raise OutsideFailed(FAILED)

    def attempt(self, rows: Rows) -> Any:
        """Run it on rows that are nobody's, and return what it returns. OutsideFailed says what failed."""
        with self._started() as (process, end):
            return self._model(process, rows, end)

    @contextmanager
    def _started(self) -> Iterator[tuple[SealedProcess, float]]:
        """Give a sealed process, and when its seconds are over by the monotonic clock: from when it is sealed."""
        with SealedProcess(self.source.modules, MEMORY, self.vouch.seconds) as process:
            yield process, monotonic() + self.vouch.seconds

    def _model(self, process: SealedProcess, rows: Rows, end: float) -> Any:
        process.send({"source": self.source.text, "kind": self.source.kind, **self.body}, rows)
        said = process.read(end)
        if "model" not in said:
            raise OutsideFailed(f"learner: it failed ({said.get('failed')!r:.300})")
        return said["model"]


@dataclass(frozen=True)
class VouchedLearner(OutsideLearner):
    """A program of others that reads rows, as dpserve's own learners are driven: one release, whose price is all that
    the budget buys.
    """

    name: ClassVar[str] = learner_admissions.VOUCHED

    def learn(self, session: Releaser) -> Ensemble:
        """Run it once and return its model. OutsideFailed where it returns none."""
        answer = session.release(*self.program(session.public, session.unit))
        if not answer.any():  # of a rehearsal
            classes = len(session.public.classes or ())
            nothing: int | list[int] = 0 if classes <= 2 else [0] * classes
            terms = [[nothing] * feature.bins for feature in session.public.features]
            return read_model({"terms": terms, "constant": nothing, "link": 1.0}, session.public)
        with suppress(Exception):
            return read_model(json.loads(answer.astype("<i8").tobytes()), session.public)
        raise OutsideFailed(FAILED)

    def program(self, public: Public, unit: Decimal) -> tuple[Program, VouchedRun]:
        """Return what is asked of rows, and at which price."""
        source = self.source or public.code
        if source is None or source.vouch is None:
            raise InputError("learner: none was vouched for this job")
        pure = source.vouch.promise == EPSILON
        run = VouchedRun(PureDp(unit) if pure else DiscreteGaussian.of_unit(unit).event)
        own = {
            key: value for key, value in self.parameters.items() if self.source or key not in learner_admissions.ENTERED
        }
        facts = {**public_facts(public), "price": run.price, "contributions": public.contributions}
        return Program(source, source.vouch, {"parameters": own, "public": facts}), run

    def recipe(self, public: Public, bounds: tuple[str, ...] = BOUNDS) -> Recipe:
        """Refuse what nobody promised, and calibrate the one release to the budget."""
        vouch = public.code.vouch if public.code else None
        if vouch is None:
            raise InputError("learner: none was vouched for this job")
        if public.relation is not vouch.relation or public.contributions != 1:
            raise InputError(
                f"learner={self.name}: its promise is to one row under {vouch.relation}, and this dataset protects "
                f"{public.contributions} rows of a unit under {public.relation}; use a learner that dpserve proves"
            )
        if vouch.promise == MU and not public.budget.delta:
            raise InputError("delta=0: a program that keeps mu has no price at 0; ask for a delta above 0")
        return super().recipe(public, bounds)


def check_runs(source: Source) -> None:
    """Start a sealed process with the modules of a program, and no rows; of any other learner the rehearsal starts one.
    InputError where that cannot be here, or the rows lie on a cluster.
    """
    if source.vouch is None:
        return
    if (engine := settings()["DPSERVE_ENGINE"].value) != "local":
        raise InputError(f"DPSERVE_ENGINE={engine[:80]}: a program that reads rows runs where they are: local")
    with SealedProcess(source.modules, MEMORY):
        return
