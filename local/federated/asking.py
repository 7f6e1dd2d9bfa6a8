"""The platform asks institutions by NVFlare's tasks, and takes their reports in as those that come by HTTPS."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from accountant.home import Home
from dpserve_verify.errors import DpserveError, InputError, LedgerUnavailable
from dpserve_verify.formats.canonical import decode, exact_integer, exact_object, exact_text
from dpserve_verify.system.printable import printable
from local.campaign import campaigns, institution_campaigns, shared_campaigns
from local.federated.words import (
    ANSWER,
    ASK,
    BODY,
    CAMPAIGN,
    INVITATION,
    OFFER,
    PATH,
    ROUNDS,
    SEEN,
    SIZE,
    STATUS,
    TAKEN,
    WITNESSED,
)  # fmt: skip
from local.rounds.definition import RoundsDefinition

WAIT = 0.2
ROUND, LOOK = 2.0, 0.01  # seconds that a question waits for the answer of its round, and between two looks
LATE = 20.0  # seconds that institutions have to say that they are done, after the last round


class AskInstitutions(Controller):
    """Runs where the platform's home is (DPSERVE_HOME of NVFlare's server).

    Args:
        campaign: an open one.
        sites: names of institutions; their places here are their numbers as owners, so the order must stay the same.
        seconds: for which answers are waited for. Who comes later is asked by the same job again. Rounds of
            institutions are waited for as long as the campaign says.
    """

    def __init__(self, campaign: str, sites: list[str], seconds: int = 60) -> None:
        super().__init__()
        self.campaign, self.sites, self.seconds = campaign, list(sites), seconds
        self.taken: list[str] = []
        self.seen: dict[str, tuple[int, bool]] = {}

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Open the home; end the job where the campaign cannot be asked."""
        try:
            self.home = Home.open()
            self.offer = campaigns.offer(self.home, self.campaign)
            if len(set(self.sites)) != len(self.sites) or len(self.sites) > self.offer["owners"]:
                raise InputError(f"sites: must be different ones, at most the {self.offer['owners']} owners")
            self.in_rounds = isinstance(campaigns.load(self.home, self.campaign).definition, RoundsDefinition)
            if self.in_rounds:
                fl_ctx.get_engine().register_aux_message_handler(ASK, self._answer)
        except DpserveError as error:
            self.system_panic(f"campaign {self.campaign}: {error}", fl_ctx)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Ask each site what it has seen of the ledger, so that its offer continues from there; ask all sites at once
        for reports; tell the sites whose reports were taken in.
        """
        if self.in_rounds:
            return self._play(abort_signal, fl_ctx)
        for site in self.sites:  # a task for each: one for all would be over with the first reply
            task = Task(SEEN, Shareable(), timeout=self.seconds, result_received_cb=self._note)
            self.broadcast(task, fl_ctx, targets=[site])
        self._wait(abort_signal)
        for number, site in enumerate(self.sites):
            data = Shareable()
            data[CAMPAIGN] = self.campaign
            data[OFFER] = campaigns.offer(self.home, self.campaign, *self.seen.get(site, (0, False)))
            data[INVITATION] = campaigns.invitation(self.home, self.campaign, number)
            task = Task(ANSWER, data, timeout=self.seconds, result_received_cb=self._receive)
            self.broadcast(task, fl_ctx, targets=[site])
        self._wait(abort_signal)
        for site in self.taken:
            data = Shareable()
            data[CAMPAIGN] = self.campaign
            self.broadcast(Task(TAKEN, data, timeout=self.seconds), fl_ctx, targets=[site])
        self._wait(abort_signal)
        self._sum_up(fl_ctx)

    def _sum_up(self, fl_ctx: FLContext) -> None:
        self.log_info(fl_ctx, f"campaign {self.campaign}: {len(self.taken)} of {len(self.sites)} institutions answered")

    def _play(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Have each site answer all rounds by its own program, which asks here; until all have said that they are done,
        or, where one is lost, a little while after the last round.
        """

        def note_done(client_task: ClientTask, fl_ctx: FLContext) -> None:
            if client_task.result.get(TAKEN) is True:
                self.taken.append(client_task.client.name)

        for number, site in enumerate(self.sites):
            data = Shareable()
            data[CAMPAIGN], data[INVITATION] = self.campaign, campaigns.invitation(self.home, self.campaign, number)
            self.broadcast(Task(ROUNDS, data, result_received_cb=note_done), fl_ctx, targets=[site])
        left = LATE
        while self.get_num_standing_tasks() and not abort_signal.triggered and left > 0:
            time.sleep(WAIT)
            now = campaigns.state(self.home, self.campaign)
            if now["state"] != "open" or all(each["answered"] for each in now["aggregators"]):
                left -= WAIT
        self.cancel_all_tasks()
        self._sum_up(fl_ctx)

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Answer what an institution's program asks of this campaign, as the doors of the service do. Its invitation
        says who asks.
        """
        reply, body = make_reply(ReturnCode.OK), request.get(BODY)
        try:
            found = self._find(urlsplit(str(request.get(PATH))), body if isinstance(body, bytes) else b"")
            reply[STATUS] = 200
        except DpserveError as error:
            found, reply[STATUS] = (
                {"error": {"message": str(error)}},
                503 if isinstance(error, LedgerUnavailable) else 400,
            )
        reply[BODY] = json.dumps(found).encode()
        return reply

    def _find(self, asked: SplitResult, body: bytes) -> dict[str, Any]:
        match asked.path.rpartition("/")[2]:
            case "shares":
                until = time.monotonic() + ROUND
                while True:
                    found = institution_campaigns.receive_round(self.home, self.campaign, body)
                    if found["answer"] is not None or time.monotonic() > until:
                        return found
                    time.sleep(LOOK)
            case "answers":
                fields = exact_object(decode(body), ("invitation", "after"), "answers")
                if type(fields["after"]) is not int:
                    raise InputError("after: must be a whole number")
                invited = exact_text(fields["invitation"], "invitation")
                return institution_campaigns.read_answers(self.home, self.campaign, invited, fields["after"])
        query = parse_qs(asked.query)
        seen = query.get("seen", ["0"])[0]
        return campaigns.offer(
            self.home, self.campaign, int(seen) if seen.isdecimal() and len(seen) < 16 else 0, "witnessed" in query
        )

    def _wait(self, abort_signal: Signal) -> None:
        while self.get_num_standing_tasks() and not abort_signal.triggered:
            time.sleep(WAIT)

    def _note(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Note how many entries of the ledger an institution has seen, and whether it asks for witnesses."""
        size, witnessed = client_task.result.get(SIZE), client_task.result.get(WITNESSED)
        if not isinstance(size, int) or size < 0:
            self.log_error(fl_ctx, f"campaign {self.campaign}: {client_task.client.name}: did not say what it has seen")
            return
        self.seen[client_task.client.name] = size, witnessed is True

    def _receive(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Take in a site's report, or its shares; log why where they are refused. NVFlare has authenticated the site;
        the invitation in the report says that the report is the site's own.
        """
        site, body = client_task.client.name, client_task.result.get(BODY)
        try:
            if not isinstance(body, bytes):
                raise InputError("it did not answer")
            if self.offer["delta"] != "0":
                shared_campaigns.receive_shares(self.home, self.campaign, body)
            else:
                report = exact_object(decode(body), ("invitation", "report"), "report")
                invited, value = (
                    exact_text(report["invitation"], "invitation"),
                    exact_integer(report["report"], "report"),
                )
                campaigns.receive(self.home, self.campaign, invited, value)
            self.taken.append(site)
        except DpserveError as error:
            self.log_error(fl_ctx, f"campaign {self.campaign}: {site}: {printable(str(error))}")

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: nothing is held open here, and a campaign is closed by the person who opened it."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Drop a reply that comes too late. The site keeps it, and sends the same bytes when the job runs again."""
