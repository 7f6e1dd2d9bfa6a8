"""Whether a schema names the profiles that it was refined from as the ledger has them: asked before a row is read."""

from __future__ import annotations

from collections.abc import Collection

from accountant.errors import SchemaError
from accountant.home import Home
from accountant.ledger.refined import require_profiles
from training.rows.schema.schema import MARK, Schema


def check_refined(home: Home, raw: bytes, schema: Schema, families: Collection[str]) -> None:
    """Compare the profiles that the schema file `raw` names with the ledger; `families`: those that its dataset joins.

    SchemaError where a file that was refined names none, for somebody took it out;
    InputError where the ledger says otherwise.
    """
    if raw.startswith(MARK.encode()) and not schema.refined:
        raise SchemaError(
            "schema: was refined from a profile, and does not name it under `refined`; refine it again (dpserve schema "
            "refine), so that certificates name the profile with its price"
        )
    with home.ledger.log.database.reading() as connection:  # and again in the transaction that enters the dataset
        require_profiles(connection, schema.refined, families)
