"""A new institution.toml: the person who makes it gives every line, for each says what rows may be asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from dpserve_verify.errors import InputError, KeyInvalid
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.system.files import PRIVATE, write_new
from local.campaign.settings_files import spell, write_settings
from local.institution.settings import INVITATIONS, read_settings
from local.rounds.definition import ROUND_ASKED

TRUST = "trust.json"
RULES = """\
# What is not said here is not agreed to. `dpserve institution status` says what was asked, charged and refused.
url = {url}
trust = {trust}
dataset = {dataset}
seen = "seen"
{more}
[policy]
largest_epsilon = {epsilon}
largest_delta = {delta}
aggregators = {aggregators}
learners = {learners}
least_institutions = {least}
least_worth = {worth}
"""


@dataclass(frozen=True)
class NewInstitution:
    """What a new institution decides. `trust`: a file of the pinned keys, as it was received."""

    url: str
    trust: Path
    dataset: str
    largest_epsilon: str
    largest_delta: str
    aggregators: tuple[str, ...]
    learners: tuple[str, ...]
    least_institutions: int
    least_worth: str
    ca: Path | None = None
    witnesses: Path | None = None


def found_institution(path: Path, new: NewInstitution) -> PublicKeys:
    """Write the settings, with the pinned keys beside them and a folder for invitations; return those keys, whose
    fingerprints are to be compared by another way. InputError, KeyInvalid where something is there already, or is not
    understood: then nothing was written.
    """
    for each in new.learners:
        if each not in ROUND_ASKED:
            raise InputError(f"learner={each}: campaigns of institutions are by one of {', '.join(ROUND_ASKED)}")
    for each in new.aggregators:
        if not re.fullmatch("[0-9a-f]{64}", each):
            raise InputError(f"aggregator={each:.80}: must be a fingerprint, 64 hex digits, as its own init prints it")
    try:
        raw = new.trust.read_bytes()
    except OSError as error:
        raise KeyInvalid(f"trust={new.trust}: cannot be read ({error.strerror})") from None
    keys, pinned = PublicKeys.from_json(raw), path.parent / TRUST
    if path.exists():
        raise InputError(f"{path}: is there already; give another name, or edit it")
    if pinned.exists() and pinned.read_bytes() != raw:
        raise InputError(f"{pinned}: holds other keys already; remove it if they are not to be believed any more")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = {"ca": new.ca, "witnesses": new.witnesses}
    text = RULES.format(
        url=spell(new.url), trust=spell(TRUST), dataset=spell(new.dataset), epsilon=spell(new.largest_epsilon),
        delta=spell(new.largest_delta), aggregators=spell(list(new.aggregators)), learners=spell(list(new.learners)),
        least=new.least_institutions, worth=spell(new.least_worth),
        more="".join(f"{name} = {spell(str(file.absolute()))}\n" for name, file in files.items() if file is not None),
    )  # fmt: skip
    write_settings(path, text, read_settings)
    if not pinned.exists():
        write_new(pinned, raw, PRIVATE)
    (path.parent / INVITATIONS).mkdir(mode=0o700, exist_ok=True)
    return keys
