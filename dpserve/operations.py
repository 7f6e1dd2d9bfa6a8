"""What a service is asked by its operations. Made from them: `python tests/helpers/client_methods.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict, Unpack, cast

from dpserve.ledger_reader import LedgerReader
from dpserve.transport import request_body, segment
from dpserve.types import ChargeFields, Json, Number, ScheduleFields


class PersonAnswer(TypedDict):
    """What one person's rows could have moved, and by how much at most."""

    dataset: str
    epsilon: str
    delta: str
    relation: str
    person: dict[str, Any]
    page: str
    envelope: dict[str, Any]


class Total(TypedDict):
    """A dataset, and the budget of its family."""

    dataset: str
    budget: dict[str, Any]


class Quota(TypedDict):
    """What an analyst may use of a budget, and has used."""

    analyst: str
    quota: str | None
    used: str


class Quotas(TypedDict):
    """A dataset, and the quotas of its analysts."""

    dataset: str
    quotas: list[Quota]


class Charged(TypedDict):
    """A dataset that was charged, and the budget then."""

    dataset: str
    entry: int
    budget: dict[str, Any]
    releases: NotRequired[list[dict[str, Any]]]


class Charging(TypedDict):
    """A dataset, and the budget that a charge would leave."""

    dataset: str
    budget: dict[str, Any]
    releases: NotRequired[list[dict[str, Any]]]


class Withdrawn(TypedDict):
    """A dataset whose registration ended."""

    dataset: str
    withdrawn: bool
    entry: int


class Archived(TypedDict):
    """A dataset, and whether it takes no further job."""

    dataset: str
    archived: bool
    entry: int


class DatasetNote(TypedDict):
    """What people wrote of a dataset."""

    dataset: str
    text: str
    tags: list[str]


class ModelNote(TypedDict):
    """What people wrote of a model, of all its versions together."""

    model: str
    text: str
    tags: list[str]


class GrantAnswer(TypedDict):
    """A grant: `grant` is the entry that made it."""

    grant: int
    principal: str
    scope: str
    on: Any
    expires: str | None
    revoked: int | None


class GrantList(TypedDict):
    """A part of the list of grants."""

    grants: list[GrantAnswer]
    next: str | None


class Stops(TypedDict):
    """What would stop with a grant."""

    tokens: list[str]
    still: int | None
    jobs: list[int]


class StoppingGrant(TypedDict):
    """A grant, and what would stop with it."""

    grant: int
    principal: str
    scope: str
    on: Any
    expires: str | None
    revoked: int | None
    stops: Stops


class TokenAnswer(TypedDict):
    """A token; of the secret, the sha256 alone."""

    name: str
    principal: str
    scopes: list[str]
    hash: str
    limits: dict[str, int | None]
    created: int
    revoked: int | None


class TokenList(TypedDict):
    """A part of the list of tokens."""

    tokens: list[TokenAnswer]
    next: str | None


class Operations(LedgerReader):
    """A service that is asked over `ask`: one method for each operation."""

    def show_person(self, name: str, *, blocks: str | None = None) -> PersonAnswer:
        """State, signed, which releases one person's rows could have moved; not whether anybody is in the data.

        Scope: steward or audit.
        """
        return cast(
            PersonAnswer, self.ask("GET", f"/v1/datasets/{segment('dataset', name)}/person", query={"blocks": blocks})
        )

    def list_schedules(self, *, q: str | None = None, after: str | None = None, limit: int | None = None) -> Json:
        """List schedules: your own, and those on datasets that you audit or are steward of.

        Scope: train or audit or steward.
        """
        return self.ask("GET", "/v1/schedules", query={"q": q, "after": after, "limit": limit})

    def add_schedule(self, name: str, dataset: str, epsilon: Number, **more: Unpack[ScheduleFields]) -> Json:
        """Begin a schedule, whose job must be admitted now; nothing is spent. It ends with the token that asks.

        Scope: train.
        """
        return self.ask("POST", "/v1/schedules", request_body(name=name, dataset=dataset, epsilon=epsilon, **more))

    def remove_schedule(self, schedule: str) -> Json:
        """Remove a schedule; the jobs that it submitted stay.

        Scope: train or steward.
        """
        return self.ask("DELETE", f"/v1/schedules/{segment('schedule', schedule)}")

    def change_budget(self, name: str, reason: str, epsilon: str) -> Total:
        """Change the total of a dataset's family, by an entry with a reason; what was spent stays spent.

        Scope: steward.
        """
        return cast(
            Total,
            self.ask(
                "POST", f"/v1/datasets/{segment('dataset', name)}/budget", request_body(reason=reason, epsilon=epsilon)
            ),
        )

    def set_quota(self, name: str, reason: str, analyst: str, share: str) -> Quotas:
        """Set how much of the budget an analyst may use; what they used already counts.

        Scope: steward.
        """
        return cast(
            Quotas,
            self.ask(
                "POST",
                f"/v1/datasets/{segment('dataset', name)}/quotas",
                request_body(reason=reason, analyst=analyst, share=share),
            ),
        )

    def charge(self, name: str, mechanism: str, why: str, **more: Unpack[ChargeFields]) -> Charged:
        """Charge a release that was made elsewhere. It stays spent; more than is left is refused.

        Scope: steward.
        """
        return cast(
            Charged,
            self.ask(
                "POST",
                f"/v1/datasets/{segment('dataset', name)}/charges",
                request_body(mechanism=mechanism, why=why, **more),
            ),
        )

    def plan_charge(self, name: str, mechanism: str, why: str, **more: Unpack[ChargeFields]) -> Charging:
        """Show what a charge would leave; spends nothing.

        Scope: steward.
        """
        return cast(
            Charging,
            self.ask(
                "POST",
                f"/v1/datasets/{segment('dataset', name)}/charges/plan",
                request_body(mechanism=mechanism, why=why, **more),
                again=True,
            ),
        )

    def withdraw_dataset(self, name: str, reason: str) -> Withdrawn:
        """Withdraw a registration that nothing was spent on.

        Scope: steward.
        """
        return cast(
            Withdrawn,
            self.ask("POST", f"/v1/datasets/{segment('dataset', name)}/withdraw", request_body(reason=reason)),
        )

    def retire_dataset(self, name: str, reason: str) -> Archived:
        """Let a dataset take no further job, schedule or block.

        Scope: steward.
        """
        return cast(
            Archived, self.ask("POST", f"/v1/datasets/{segment('dataset', name)}/retire", request_body(reason=reason))
        )

    def restore_dataset(self, name: str, reason: str) -> Archived:
        """Take a retired dataset up again.

        Scope: steward.
        """
        return cast(
            Archived, self.ask("POST", f"/v1/datasets/{segment('dataset', name)}/restore", request_body(reason=reason))
        )

    def show_dataset_note(self, name: str) -> DatasetNote:
        """Show the note and the tags of a dataset; an empty one where nobody wrote any.

        Scope: train or evaluate or audit or steward.
        """
        return cast(DatasetNote, self.ask("GET", f"/v1/datasets/{segment('dataset', name)}/note"))

    def write_dataset_note(
        self, name: str, *, text: str | None = None, tags: Sequence[str] | None = None
    ) -> DatasetNote:
        """Write a dataset's note or tags.

        Scope: steward.
        """
        return cast(
            DatasetNote,
            self.ask("PUT", f"/v1/datasets/{segment('dataset', name)}/note", request_body(text=text, tags=tags)),
        )

    def show_model_note(self, name: str) -> ModelNote:
        """Show the note and the tags of a model; an empty one where nobody wrote any.

        Scope: predict or train or evaluate or promote or audit or steward or admin.
        """
        return cast(ModelNote, self.ask("GET", f"/v1/models/{segment('model', name)}/note"))

    def write_model_note(self, name: str, *, text: str | None = None, tags: Sequence[str] | None = None) -> ModelNote:
        """Write a model's note or tags.

        Scope: promote.
        """
        return cast(
            ModelNote, self.ask("PUT", f"/v1/models/{segment('model', name)}/note", request_body(text=text, tags=tags))
        )

    def list_grants(
        self, *, q: str | None = None, after: str | None = None, limit: int | None = None, principal: str | None = None
    ) -> GrantList:
        """List grants: who may do what, ended ones too, the oldest first.

        Scope: admin.
        """
        return cast(
            GrantList,
            self.ask("GET", "/v1/grants", query={"q": q, "after": after, "limit": limit, "principal": principal}),
        )

    def add_grant(self, principal: str, scope: str, on: Any, *, expires: str | None = None) -> GrantAnswer:
        """Grant a scope. Where the same holds already, that is the answer.

        Scope: admin.
        """
        return cast(
            GrantAnswer,
            self.ask(
                "POST", "/v1/grants", request_body(principal=principal, scope=scope, on=on, expires=expires), again=True
            ),
        )

    def show_grant(self, grant: int) -> StoppingGrant:
        """Show a grant, and what would stop with it.

        Scope: admin.
        """
        return cast(StoppingGrant, self.ask("GET", f"/v1/grants/{grant:d}"))

    def revoke_grant(self, grant: int, reason: str) -> GrantAnswer:
        """End a grant, permanently. A second time gets the same answer.

        Scope: admin.
        """
        return cast(
            GrantAnswer, self.ask("POST", f"/v1/grants/{grant:d}/revoke", request_body(reason=reason), again=True)
        )

    def list_tokens(self, *, q: str | None = None, after: str | None = None, limit: int | None = None) -> TokenList:
        """List the tokens that there ever were, revoked ones too, the oldest first.

        Scope: admin.
        """
        return cast(TokenList, self.ask("GET", "/v1/tokens", query={"q": q, "after": after, "limit": limit}))
