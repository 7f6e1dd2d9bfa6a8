"""A job that counts how the rows of a dataset are spread."""

from __future__ import annotations

from typing import Any, ClassVar

from accountant.certificates.profile import PROFILE, Counted, Profile, ProfileKind
from accountant.home import Home
from accountant.ledger.families.families import Started
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.privacy.events import plan_from_json
from models.profile.stated import check, chosen_figures, figures, noise_of
from training.kinds.job_steps import Learn
from training.kinds.stated_steps import StatedSteps
from training.measuring.profile import profile
from training.measuring.profile.counts import GRID
from training.measuring.profile.profile import PlannedProfile, pairs_of, parents_of, profiler_of
from training.measuring.profile.release import profile_of, profile_to_json
from training.measuring.profile.table_rows import open_table
from training.measuring.worth.evaluate import part_of
from training.requests import ProfileRequest
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, schema_of


class ProfileSteps(StatedSteps):
    """Count rows by bin, and state what follows of each column."""

    asks = ProfileRequest
    kind: ClassVar[ProfileKind] = PROFILE
    folder = "profiles"

    @classmethod
    def plan(cls, home: Home, asked: ProfileRequest, by: str | None = None) -> PlannedProfile:
        """Rehearse and price. BudgetRefused where it would not be admitted now. Spends nothing."""
        return profile.plan(home, asked, by)

    def question(self, schema: Schema) -> Schema:
        """Ask for the first target, which stands for none: every column is counted alike."""
        return schema.question(schema.target_names[0], self.request.parameters)

    def learner(self, schema: Schema) -> Learn:
        """Return what counts."""
        return profiler_of(schema, self.request.parameters)[0].learn

    def open_rows(self, started: Started, schema: Schema) -> Rows:
        """Open the columns of the profile, in bins."""
        columns = profiler_of(schema, self.request.parameters)[1]
        return open_table(self.home, started, schema, [column.name for column in columns])

    def statement(self, counts: list[int]) -> bytes:
        """State how the rows are spread."""
        home, request = self.home, self.request
        plan = plan_from_json(home.ledger.reservation(self.seq).value["plan"])
        dataset = home.ledger.dataset_of(self.seq)
        _, columns = profiler_of(schema_of(home, dataset), request.parameters)
        registration = dataset.registration
        records = registration.records if registration.relation is Relation.REPLACE_ONE else None
        around = request.parameters.get("around")
        noise = noise_of(plan, GRID, registration.draws)
        stated = (
            figures(columns, pairs_of(request.parameters), counts, noise, records, GRID)
            if around is None
            else chosen_figures(columns, str(around), parents_of(request.parameters), counts, plan, records, GRID)
        )
        counted = Counted(part_of(dataset), records, GRID, stated)
        return self.kind.statement(counted, dataset, request, plan, self.in_log())

    def check_figures(self, stated: Profile) -> None:
        """Make every figure of every column again."""
        check(stated)

    def result(self) -> dict[str, Any]:
        """Return how the rows are spread."""
        return {"profile": profile_to_json(self.seq, profile_of(self.home, self.seq)[2])}
