"""What a client asks of edits: the curves of a released model, and a version in which people changed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpserve.transport import Asking, segment
from dpserve.types import Json


class Edited(Asking):
    """Reading takes any scope on the model; an edit takes train on a name of one's own, else promote."""

    def curve(self, reference: str, feature: str | None = None, label: str | int | None = None) -> Json:
        """What every bin of a feature, or of a pair `age & hours`, adds; of the first feature when left out. `terms`:
        what else has a curve. Of three classes or more each has a curve: `label` says which, else it is the first.

        Raises:
            BadInput: The model has no curves, or no such one.
        """
        query = {"feature": feature, "class": None if label is None else str(label)}
        found: Json = self._get(f"/v1/models/{segment('model', reference)}/curve", **query)
        return found

    def edit(
        self,
        reference: str,
        edits: Sequence[Mapping[str, Any]],
        reason: str | None = None,
        *,
        entry: int | None = None,
        promote: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """A new version of the model with these edits, certified; costs no privacy. `changed` has both figures of each
        bin, `model` the new version.

        Args:
            reference: What is edited: `adult`, or `adult@2`.
            edits: As in the file of `dpserve model edit --file`: each `{"feature": "age", "zero": "..25"}`, say; of
                three classes or more with `"class": "setosa"`.
            reason: It stays in the model, its certificate and the ledger permanently; a dry run needs none.
            entry: Of its certificate, as it was looked at: refused (409) where `reference` means another by now.
            promote: Make it champion at once; else it is a candidate.
            dry_run: Say what would change, and make nothing.

        Raises:
            NotAllowed: The name is another's, and no grant to promote it is held.
            BadInput: An edit is wrong, or (409) a version has these very edits already: `details["model"]`.
        """
        body: Json = {"edits": [dict(each) for each in edits], "promote": promote, "dry_run": dry_run}
        body = {**body, **{key: each for key, each in (("reason", reason), ("entry", entry)) if each is not None}}
        path = f"/v1/models/{segment('model', reference)}/edits"
        made: Json = self._transport.ask("POST", path, again=dry_run, body=body)
        return made
