"""What a certificate says of a model that a program made which read rows: by whose word it keeps its price."""

from __future__ import annotations

from dpserve_verify.certificates.releases import VOUCHED
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.events import Plan

MECHANISM = "vouched-program"  # draws by itself
OWN = "the program's own, unknown to dpserve"
NOT_COVERED = "that the program keeps its price: it read rows, and its noise is its own; the price is {word}"
PREPROCESSING = (
    "; the learner is a whole program of others that read rows in a sealed process, its output alone let out: "
    "public.hyperparameters has its sha256 (code) and who wrote it (author). That it keeps its price is {word}"
)


def word_of(plan: Plan, voucher: str) -> str:
    """Say by whose word the price is; "" where no program read rows. InputError where it is nobody's, or more ran."""
    if not any(release.purpose == VOUCHED or release.mechanism == MECHANISM for release, _ in plan.runs):
        return ""
    ((release, count), *others) = plan.runs
    if others or count != 1 or (release.purpose, release.mechanism) != (VOUCHED, MECHANISM) or not voucher.strip():
        raise InputError(
            f"mechanisms: {MECHANISM} is one release, alone, by the word of public.hyperparameters' admitted_by"
        )
    return f"by the word of {voucher}; not proved by dpserve"


def words_of(word: str) -> dict[str, str]:
    """Return the sentences that are others where the price is somebody's word, by where they stand."""
    if not word:
        return {}
    return {"claim.release": f"model, at a price {word}", "randomness.source": OWN, "implementation.floats": OWN}
