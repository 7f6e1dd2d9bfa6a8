"""What `dpserve verify` says of the ledger behind a certificate: how it stands to what was seen here before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpserve_verify.errors import InputError, LedgerUnavailable
from dpserve_verify.formats import canonical
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.cosignature import cosignatures
from dpserve_verify.log.notes import parse_note
from dpserve_verify.log.proofs import PROOF_LIMIT, parse_proof
from dpserve_verify.log.seen_checkpoints import Growth, Prover, SeenCheckpoints, Standing, read_growth
from dpserve_verify.log.witness_policy import read_witness_policy
from dpserve_verify.system.files import read_beginning

FILE_LIMIT = 65_536  # bytes of a consistency proof
PROOF = ".tlog-proof"
_WORDS = {
    Standing.FIRST: "not seen here before; its checkpoint of {size} entries is kept, and what comes must continue it",
    Standing.SAME: "",
    Standing.CONTINUES: "",
    Standing.BEGINNING: "",
    Standing.NEWER: "has {size} entries, and {kept} were seen here; that it continues them is noted, not proved: get "
    "`dpserve ledger consistency --from {kept} --to {size} --json` from who runs it, and give it as --consistency FILE",
    Standing.OLDER: "has {size} entries, and {kept} were seen here; that these continue it is noted, not proved: get "
    "`dpserve ledger consistency --from {size} --to {kept} --json` from who runs it, and give it as --consistency FILE",
}
UNKEPT = "unkept"


@dataclass(frozen=True)
class Look:
    """How the history of a ledger is looked at.

    folder: where the checkpoints that this user has seen are kept.
    witnesses: a file of a policy, whose quorum must have cosigned.
    consistency: a file of a proof between the checkpoint of a model and the one that was seen.
    prover: of a ledger's name, who can be asked for such proofs; None where nobody is.
    """

    folder: Path
    witnesses: Path | None = None
    consistency: Path | None = None
    prover: Callable[[str], Prover] | None = None

    def at(self, path: Path, keys: PublicKeys) -> tuple[dict[str, Any], str]:
        """Compare the checkpoints in the proofs of what was verified at `path` with those that this user has seen.
        Return the result as JSON, and as a line for people, which is empty where there is nothing to say.

        OtherHistory where there are two histories; LedgerInvalid where the `witnesses` have not cosigned. A folder that
        cannot be written is no fault of the certificate, and is said.
        """
        policy = None if self.witnesses is None else read_witness_policy(self.witnesses)
        checkpoints, growth = SeenCheckpoints(self.folder, policy), _read(self.consistency)
        prover = None if self.prover is None else self.prover(keys.origin)
        result: dict[str, Any] = {}
        line = ""
        for at, file in enumerate(_proofs(path)):
            note = parse_proof(read_beginning(file, PROOF_LIMIT).decode("utf-8", "replace")).checkpoint_note
            has_proof = growth is not None and at == 0  # a file of a proof is about the model
            try:
                head, standing, stored_size = checkpoints.compare(
                    note, keys, (lambda *_: growth) if has_proof else prover
                )
            except LedgerUnavailable as error:
                return {"ledger": keys.origin, "size": None, "seen": UNKEPT}, error.message
            if at == 0:
                result = {"ledger": keys.origin, "size": head.size, "seen": standing.value}
                words = _WORDS[standing].format(size=head.size, kept=stored_size)
                if policy is not None:
                    by = cosignatures(parse_note(note), policy)
                    result["seen_by"] = [each.to_json() for each in by]
                    seen = f"its first {head.size} entries were seen by {', '.join(each.words for each in by)}"
                    words = "; ".join(filter(None, [seen if by else "", words]))
                line = words and f"the ledger {keys.origin}: {words}"
        return result, line


def _proofs(path: Path) -> list[Path]:
    """Return the files with proofs, the model's own first."""
    if path.is_dir():
        return sorted(path.glob(f"*{PROOF}"), key=lambda file: (file.name != f"model.onnx{PROOF}", file.name))
    if path.name.endswith(".dsse.json"):
        return [path.with_name(path.name.replace(".dsse.json", PROOF))]
    return [Path(f"{path}{PROOF}")]


def _read(path: Path | None) -> Growth | None:
    """Read the proof in a file; None where there is no file."""
    try:
        return None if path is None else read_growth(canonical.decode(read_beginning(path, FILE_LIMIT), FILE_LIMIT))
    except (OSError, canonical.CanonicalError) as error:
        raise InputError(f"consistency={path}: cannot be read ({error!s:.200})") from None
