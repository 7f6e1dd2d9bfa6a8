"""What a certificate says of a model that a program made which read rows: by whose word it keeps its price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpserve_verify.certificates.releases import VOUCHED
from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.privacy.declared import DECLARED
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


def taken_at_word(not_covered: Sequence[str]) -> list[str]:
    """List what of a statement's sentences is taken at somebody's word: a program's price, a declared sensitivity."""
    return [sentence for sentence in not_covered if sentence.startswith((NOT_COVERED.partition(":")[0], DECLARED))]


def check_randomness(randomness: Mapping[str, Any]) -> None:
    """Raise CertificateInvalid unless noise is said to be unseeded, or to be a program's own, of which nothing is."""
    if ("seeded" in randomness) is (randomness["source"] == OWN):
        raise CertificateInvalid("randomness: seeded must be false, and is left out of noise that is a program's own")


def words_of(word: str) -> dict[str, str]:
    """Return the sentences that are others where the price is somebody's word, by where they stand."""
    if not word:
        return {}
    return {"claim.release": f"model, at a price {word}", "randomness.source": OWN, "implementation.floats": OWN}
