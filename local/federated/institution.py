"""An institution of a federation answers campaigns: by the `owner.toml` beside its own NVFlare settings, by nothing
that a job brings.
"""

from __future__ import annotations

from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from dpserve_verify.system.printable import printable
from local.campaign.asking import read_pinned_keys
from local.federated.words import ANSWER, BODY, CAMPAIGN, INVITATION, OFFER, SEEN, SETTINGS, SIZE, TAKEN, WITNESSED
from local.owner import program
from local.owner.own_ledger import OwnLedger
from local.owner.settings import read_settings


class Institution(Executor):
    """Takes no argument, for a job that could give it one would decide what is charged to whom.

    A refusal says nothing but that, and follows from what is public alone, never from rows; why, and how much of the
    budget is left, stands in the institution's own log.
    """

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the stored bytes of this campaign's one report; or that there is none."""
        if task_name not in (SEEN, ANSWER, TAKEN):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        place = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
        reply, name = make_reply(ReturnCode.OK), printable(str(shareable.get(CAMPAIGN))[:80])
        try:
            settings = read_settings(place / SETTINGS)
            if task_name == SEEN:
                checkpoints = settings.seen.read(read_pinned_keys(settings))
                reply[SIZE], reply[WITNESSED] = (
                    0 if checkpoints is None else checkpoints.head.size,
                    bool(settings.seen.witnesses),
                )
                return reply
            if task_name == TAKEN:
                OwnLedger(settings.ledger).confirm(name)
                return reply
            offer, invitation = shareable.get(OFFER), str(shareable.get(INVITATION))
            line = program.prepare(settings, offer if isinstance(offer, dict) else {}, name, invitation)
            reply[BODY] = line.body
            self.log_info(fl_ctx, f"campaign {name}: answered; {printable(program.words(line))}")
        except Exception as error:  # whatever a job brings, its reply is the same
            self.log_error(fl_ctx, f"campaign {name}: not answered: {printable(str(error))}")
        return reply
