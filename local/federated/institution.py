"""An institution of a federation answers campaigns: by the `owner.toml` or the `institution.toml` beside its own
NVFlare settings, by nothing that a job brings.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from accountant.errors import WrongState
from accountant.home import Home
from accountant.system.bounded_http import Reply
from dpserve_verify.errors import LedgerUnavailable
from dpserve_verify.system.printable import printable
from local.campaign.asking import JSON, Carry, read_pinned_keys
from local.federated.words import (
    ANSWER,
    ASK,
    BODY,
    CAMPAIGN,
    INVITATION,
    OF_ROUNDS,
    OFFER,
    PATH,
    ROUNDS,
    SEEN,
    SETTINGS,
    SIZE,
    STATUS,
    TAKEN,
    WITNESSED,
)  # fmt: skip
from local.institution.answering import answer_noted
from local.institution.settings import read_settings as read_institution
from local.owner import program
from local.owner.own_ledger import OwnLedger
from local.owner.settings import read_settings

SECONDS = 30.0  # for one answer of the server


class Institution(Executor):
    """Takes no argument, for a job that could give it one would decide what is charged to whom.

    A refusal says nothing but that, and follows from what is public alone, never from rows; why, and how much of the
    budget is left, stands in the institution's own log.
    """

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the stored bytes of this campaign's one report, or that there is none; or answer all of its rounds."""
        if task_name not in (SEEN, ANSWER, TAKEN, ROUNDS):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        place = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir())
        reply, name = make_reply(ReturnCode.OK), printable(str(shareable.get(CAMPAIGN))[:80])
        try:
            if task_name == ROUNDS:
                reply[TAKEN] = self._play(place / OF_ROUNDS, name, str(shareable.get(INVITATION)), fl_ctx, abort_signal)
                return reply
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

    def _play(self, path: Path, name: str, invitation: str, fl_ctx: FLContext, abort_signal: Signal) -> bool:
        """Answer a campaign of institutions to its last round, from the home of this process (DPSERVE_HOME)."""
        settings = replace(read_institution(path), carry=_carry(fl_ctx, abort_signal))
        by = f"nvflare:{fl_ctx.get_identity_name()}"
        body = answer_noted(Home.open(), settings, name, invitation, by)
        self.log_info(fl_ctx, f"campaign {name}: answered {body['rounds']} rounds, charged as job {body['job']}")
        return True


def _carry(fl_ctx: FLContext, abort_signal: Signal) -> Carry:
    """Return what takes the requests of an institution's program to the server by NVFlare's own messages."""

    def ask(method: str, path: str, body: bytes) -> Reply:
        if abort_signal.triggered:
            raise WrongState("the federation's job was ended; answer the next one")
        request = Shareable()
        request[PATH], request[BODY] = path, body
        replies = fl_ctx.get_engine().send_aux_request(None, ASK, request, SECONDS, fl_ctx)
        for reply in replies.values():
            status, found = reply.get(STATUS), reply.get(BODY)
            if isinstance(status, int) and isinstance(found, bytes):
                return Reply(status, JSON, found)
        raise LedgerUnavailable("NVFlare's server did not answer")

    return ask
