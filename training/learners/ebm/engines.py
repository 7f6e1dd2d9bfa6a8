"""How `ebm` learns the curves of features: in epochs of sums, or at once as the noisy minimum of a convex loss."""

from __future__ import annotations

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Relation
from models.features.features import share_of_categories
from training.learners.base.checks import check_word
from training.learners.ebm.blocks import Layout
from training.learners.ebm.convex import is_sure
from training.learners.ebm.defaults import strength
from training.session.session import Public

EPOCHS, CONVEX, AUTO = "epochs", "convex", "auto"
CONVEX_FROM = 5_000.0  # strength from which one convex fit is ahead: studies/dpebm/engines.md
NUMBERS_FROM = 10_000.0  # the same where most features are numbers
MOST_ROWS = 1 << 31  # whose slopes 64 bits hold the sums of


def engine_rule(public: Public, balance: float | None) -> str:
    """Choose the engine where none is asked for: one convex fit where it is proved and there is much to tell, and more
    where most features are numbers, whose curves are learnt as well in epochs.
    """
    least = CONVEX_FROM if share_of_categories(public.features) > 0.5 else NUMBERS_FROM
    return CONVEX if strength(public) >= least and _lacking(public, balance) is None else EPOCHS


def check_engine(engine: object, public: Public, balance: float | None) -> None:
    """Raise InputError where a convex fit is asked for and is not to be had."""
    check_word("engine", engine, (AUTO, EPOCHS, CONVEX))
    lacking = _lacking(public, balance) if engine == CONVEX else None
    if lacking is not None:
        raise InputError(f"engine=convex: {lacking}; leave it out, or say engine=epochs")


def _lacking(public: Public, balance: float | None) -> str | None:
    """Say what a convex fit is not proved for; None where it is."""
    if public.classes is None or len(public.classes) != 2:
        return "it takes two classes"
    if public.pure:
        return "it has no price at delta 0"
    if public.shared:
        return "institutions share sums, and nobody could find its minimum of them"
    if public.relation is not Relation.ADD_REMOVE:
        return "it is proved for records that are added or removed, and not for replaced ones"
    if public.contributions != 1:
        return "it is proved for one record of each unit of privacy, and not for several"
    if balance:
        return "it takes no class weights"
    if public.parts != 1:
        return "it is proved for rows that all weigh the same"
    widest = Layout.of(public.features, [feature.bins for feature in public.features])
    fits = public.most <= MOST_ROWS and is_sure(widest, public.most)
    return None if fits else "it takes fewer records"
