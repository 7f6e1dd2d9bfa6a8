"""Campaigns: what owners and institutions were asked, and how many answered."""

from __future__ import annotations

from typing import Annotated, Literal

from dpserve_verify.entries.entry import Count, EntryForm, Hex, Index
from dpserve_verify.formats.forms import Limits


class CampaignForm(EntryForm):
    """An entry about the campaign of a job, which has this definition."""

    reservation: Index
    definition: Hex


class CampaignOpened(CampaignForm):
    """Owners are asked."""

    type: Literal["campaign-opened"]


class CampaignClosed(CampaignForm):
    """No more reports are taken."""

    type: Literal["campaign-closed"]
    reports: Annotated[int, Limits(low=0)]


class CampaignRound(CampaignForm):
    """A turn is over."""

    type: Literal["campaign-round"]
    round: Count
    reports: Count
    ensemble: Hex


class CampaignAnswered(CampaignForm):
    """One of the two aggregators has an answer, and sends no other."""

    type: Literal["campaign-answered"]
    aggregator: Annotated[Literal[1, 2], Limits(refusal="must be 1 or 2")]
    answer: Hex
