"""The attack on a model that was registered with its training: how it stands, and what it shows."""

from __future__ import annotations

from typing import Any

from accountant.certificates.attack import ATTACK
from accountant.home import Home
from accountant.ledger import attacks
from dpserve_verify.certificates.attack import is_above
from dpserve_verify.keys import dsse

REGISTERED, BEGUN, STATED = "registered", "begun", "stated"


def attack_of(home: Home, job: int) -> dict[str, Any] | None:
    """Return how the attack stands that was registered with this job, by the ledger, and what it shows where its
    statement is here; None where none was.
    """
    count = home.ledger.reservation(job).value.get("attack")
    if count is None:
        return None
    entries = {each["type"]: each for each in attacks.attacks(home.ledger) if each["reservation"] == job}
    if attacks.STARTED not in entries:
        return {"state": REGISTERED, "runs": count}
    if attacks.ENDED not in entries:
        return {"state": BEGUN, "runs": count, "entry": entries[attacks.STARTED]["entry"]}
    stated = entries[attacks.ENDED]
    body = {"state": STATED, "runs": count, "entry": stated["entry"], "refuted": stated.get("refuted", False)}
    path = ATTACK.file(home, job)
    return body | (
        attack_to_json(ATTACK.read(dsse.parse(path.read_bytes()).payload)[1].predicate) if path.exists() else {}
    )


def attack_to_json(predicate: Any) -> dict[str, Any]:
    """Return what a statement shows, for programs."""
    found = predicate.attack
    return {
        "model": predicate.model.name,
        "runs": found.runs,
        "copies": found.copies,
        "right": found.right,
        "chance": {"least": found.least, "claimed": found.claimed},
        "epsilon": {"least": found.least_epsilon, "claimed": predicate.claim.epsilon},
        "level": predicate.level,
        "refuted": is_above(found),
    }


def attack_words(body: dict[str, Any]) -> str:
    """Say in one line what `attack_of` returns."""
    if body["state"] == REGISTERED:
        return f"registered with {body['runs']} runs, not made: dpserve evaluate MODEL --attack"
    if "right" not in body:
        return f"entry {body['entry']}; its statement is not here"
    shown = "ABOVE THE CLAIM: do not rely on it" if body["refuted"] else "not above the claim"
    return f"{right_words(body)}: {chance_words(body)}; {shown}; entry {body['entry']}"


def right_words(body: dict[str, Any]) -> str:
    """Say how many guesses of an attack are right."""
    return f"{body['right']} of {body['runs']} guesses right, whether {body['copies']} copies of a canary are there"


def chance_words(body: dict[str, Any]) -> str:
    """Say what an attack shows beside what is claimed, in hundredths."""
    least, claimed = (f"{100 * float(body['chance'][name]):.4g} %" for name in ("least", "claimed"))
    return f"right in more than {least} (with {100 * float(body['level']):g} %), claimed at most {claimed}"
