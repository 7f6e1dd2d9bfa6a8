"""The commands of `dpserve learner` that are about learners of others, as the tree of commands names them."""

from __future__ import annotations

from collections.abc import Mapping

from serving.cli.backends.choice import Needs
from serving.cli.tree import Leaf

PACKAGE = "dpserve_platform.commands"
TREE: Mapping[str, Leaf] = {
    "check": Leaf("learners:check_learner", needs=Needs.NOTHING, package=PACKAGE),
    "admit": Leaf("learners:admit_learner", instead="The steward admits it there", package=PACKAGE),
    "remove": Leaf("learners:remove_learner", instead="The steward removes it there", package=PACKAGE),
}
