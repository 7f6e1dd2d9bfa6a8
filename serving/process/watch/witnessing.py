"""The newest checkpoint goes to the witnesses of DPSERVE_WITNESS_POLICY, again and again, by a process of its own: no
request and no job waits for one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from accountant.home import Home, settings
from dpserve_verify.errors import DpserveError, LedgerInvalid
from dpserve_verify.log.cosignature import require_quorum
from dpserve_verify.log.notes import parse_note
from dpserve_verify.log.witness_policy import WitnessPolicy, read_witness_policy
from dpserve_verify.log.witnessed import read_witnessed

LOG = logging.getLogger("dpserve.witnesses")
WITNESS_SECONDS = 60.0  # from one look at whether something was entered to the next
RENEW_SECONDS = 3600  # what is unchanged is cosigned anew: the time says that nobody was shown more


def asked_policy(environment: Mapping[str, str] = os.environ) -> WitnessPolicy | None:
    """Return the policy of the setting; None where there is none, or none of its witnesses has an address. InputError
    where it cannot be read.
    """
    path = settings(environment)["DPSERVE_WITNESS_POLICY"].value
    policy = read_witness_policy(Path(path)) if path else None
    return policy if policy is not None and any(witness.url for witness in policy.witnesses) else None


def ask_witnesses() -> None:
    """Ask the witnesses to cosign the home's newest checkpoint, unless enough of them did not long ago. What goes wrong
    is logged: the ledger goes on without them.
    """
    from accountant.log.collect import cosign, keep  # which most processes do without

    try:
        home, policy = Home.open(), asked_policy()
        kept = read_witnessed(home.path)
        if policy is None or (kept is not None and _is_fresh(kept, home.ledger.log.checkpoint(), policy)):
            return
        cosigned = cosign(home.ledger.log.database, home.trust, policy, kept)
        keep(home.path, cosigned.note)
        LOG.info(
            "the first %d entries are witnessed; %s", cosigned.size, "; ".join(each.said for each in cosigned.answers)
        )
    except (DpserveError, OSError) as error:
        LOG.error("the newest checkpoint is not witnessed: %s", error)


def _is_fresh(kept: str, newest: str, policy: WitnessPolicy) -> bool:
    """Return whether what was cosigned is the newest checkpoint, by the quorum, and lately."""
    try:
        times = [each.time for each in require_quorum(kept, policy)]
    except LedgerInvalid:
        return False
    return parse_note(kept).text == parse_note(newest).text and time.time() - min(times, default=0) < RENEW_SECONDS
