"""A campaign of shares: a population, two aggregators with folders of their own, and what owners would send."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import owners

from accountant.home import Home
from accountant.noise import shares
from local.aggregator.settings import PUBLIC, create_folder
from local.campaign import campaigns, shared_campaigns
from local.campaign.defining import CampaignRequest
from local.owner.own_rows import labels
from local.reports.shared import SharedDefinition
from models.features.features import encode_columns

POLICY = """\
url = "{url}"
trust = "{trust}"
{ca}
[policy]
largest_epsilon = "5"
largest_delta = "0.001"
least_owners = 2
"""


MOST = 160  # owners of a population, whichever campaign is the first


def aggregators(folder: Path, home: Home, url: str, ca: Path | None = None) -> tuple[Path, Path]:
    """The folders of two, who agree to what the tests ask."""
    made = []
    for name in ("first", "second"):
        create_folder(folder / name, name, url)
        line = "" if ca is None else f'ca = "{ca}"\n'
        text = POLICY.format(url=url, trust=home.path / "trust.json", ca=line)
        (folder / name / "aggregator.toml").write_text(text)
        made.append(folder / name)
    return made[0], made[1]


def asking(
    folder: Path, home: Home, whom: tuple[Path, Path], count: int, least: int, name: str = "census", **more: str
) -> SharedDefinition:
    """An open campaign of shares among a population of its own kind."""
    schema = folder / "shared.yaml"
    schema.write_text(more.pop("schema", owners.SCHEMA))
    population = more.pop("population", "crowd")
    if not any(each.registration.name == population for each in home.ledger.datasets()):
        campaigns.found_population(home, population, schema, max(count, MOST), "50", None, "0.0001")
    asked = CampaignRequest(
        name, population, "shared-additive", more.get("epsilon", "2"), count, None, least, None, "0.00001",
        tuple(each / PUBLIC for each in whom), 8,
    )  # fmt: skip
    owners.open_anyway(home, asked)
    found = campaigns.load(home, name).definition
    assert isinstance(found, SharedDefinition)
    return found


def sealed(definition: SharedDefinition, owner: int, columns: dict[str, np.ndarray]) -> bytes:
    """What an owner of these rows sends, but for the invitation."""
    codes = encode_columns(definition.features, columns)
    y, _ = labels(columns["answer"].tolist(), definition.classes)
    halves = shares.split(definition.layout.statistic(codes, y), definition.layout.sensitivity)
    return b"".join(
        shares.seal(shares.to_bytes(half), bytes.fromhex(whom.seal), definition.about(owner, at))
        for at, (half, whom) in enumerate(zip(halves, definition.aggregators, strict=True))
    )


def send(home: Home, definition: SharedDefinition, owner: int, body: bytes) -> dict[str, object]:
    """Straight into the store, as the door does."""
    invitation = campaigns.invitation(home, definition.campaign, owner)
    return shared_campaigns.receive_shares(home, definition.campaign, invitation.encode() + b"\n" + body)
