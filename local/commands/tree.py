"""The commands of several parties, as the tree of commands names them: nothing that they need is loaded."""

from __future__ import annotations

from functools import partial

from serving.cli.backends.choice import Needs
from serving.cli.tree import Branch, Leaf, Nodes

AT_HOME = "It is for whoever has the home; dpserve campaign show works from here"
OWN_HOME = "An institution's rows are in a home of its own"
command = partial(Leaf, package="local.commands")
EITHER, NOTHING = Needs.EITHER, Needs.NOTHING

TREE: Nodes = {
    "campaign": Branch(
        "Campaigns: learn from owners who keep their rows, one random report of each.",
        {
            "population": command("campaigns:register_population", instead=AT_HOME),
            "open": command("campaigns:open_campaign", instead=AT_HOME),
            "next": command("campaigns:end_turn", needs=EITHER),
            "close": command("campaigns:close", needs=EITHER),
            "give-up": command("campaigns:give_up", needs=EITHER),
            "show": command("campaigns:show_campaign", needs=EITHER),
        },
    ),
    "aggregator": Branch(
        "One of two who add up what owners send in shares: make keys, answer a campaign once.",
        {
            "init": command("aggregator:init", needs=NOTHING),
            "answer": command("aggregator:answer", needs=NOTHING),
            "show": command("aggregator:show_aggregator", needs=NOTHING),
        },
    ),
    "institution": Branch(
        "An institution's own side: answer campaigns round by round, charged to a dataset of the home.",
        {
            "init": command("institution:init", instead=OWN_HOME),
            "start": command("institution:start", instead=OWN_HOME),
            "status": command("institution:show_status", instead=OWN_HOME),
            "answer": command("institution:answer", instead=OWN_HOME),
        },
    ),
    "owner": Branch(
        "An owner's own side: say what may be asked, answer a campaign once, see what was sent and what it cost.",
        {
            "init": command("owner:init", needs=NOTHING),
            "check": command("owner:check", needs=NOTHING),
            "answer": command("owner:answer", needs=NOTHING),
            "show": command("owner:show_owner", needs=NOTHING),
            "verify": command("owner:verify_model", needs=NOTHING),
        },
    ),
}
