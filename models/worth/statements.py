"""The statements of worth of this home: read, verified, and what they come to for whoever promotes or looks on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from accountant.certificates.worth import WORTH, Worth
from accountant.errors import UnknownName, WrongState
from accountant.home import Home
from accountant.ledger import evaluations
from dpserve_verify.errors import VerificationError
from models.worth.judging import covers, judge
from models.worth.words import verdict


def worths(home: Home, issued: int) -> list[dict[str, Any]]:
    """Return what is known of the worth of the model that this entry certifies, the newest first: for pages and
    programs.
    """
    statements = []
    for seq in evaluations.by_model(home.ledger.log.database).get(issued, ()):
        try:
            statements.append(worth_to_json(seq, WORTH.open(home, seq)[2]))
        except UnknownName:  # in another home of the same ledger
            continue
    return statements


def worth_to_json(seq: int, worth: Worth) -> dict[str, Any]:
    """Return a verified statement for programs."""
    form = worth.form
    other, metrics = form.against, [metric.to_json() for metric in form.metrics]
    return {
        "job": seq,
        "entry": worth.entry,
        "model": worth.name,
        "certificate": form.model.certificate,
        **({} if other is None else {"against": {"model": other.name, "certificate": other.certificate}}),
        "dataset": form.rows.dataset,
        "part": form.rows.part,
        "seen": form.rows.seen,
        **({"seen_by_bins": form.rows.seen_by_bins} if form.rows.seen_by_bins else {}),
        "epsilon": form.claim.epsilon,
        "delta": form.claim.delta,
        "level": form.level,
        "better": form.better,
        "outcome": judge(form.histogram.kind, metrics),
        "metrics": metrics,
        "histogram": form.histogram.to_json(),
    }


def pick_judgement(statements: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Pick, from what `worths` gives, the statement that a model is judged by: the newest on rows that it did not learn
    from, else the newest on others; comparisons with another model, and how its answers cover, left out. None where it
    was not evaluated.
    """
    of_one_model = [statement for statement in statements if _judges(statement)]
    return next(
        (statement for statement in of_one_model if not statement["seen"]), of_one_model[0] if of_one_model else None
    )


def _judges(statement: dict[str, Any]) -> bool:
    return "against" not in statement and not is_cover(statement)


def is_cover(statement: dict[str, Any]) -> bool:
    """Return whether a statement is of how answers cover the truth."""
    return covers(statement["histogram"]["kind"])


def cover_levels(statement: dict[str, Any]) -> list[int]:
    """Return at which of the levels that a statement tells of answers are given, in hundredths: in some group at least,
    where it was counted by groups.
    """
    grouped = "groups" in statement["histogram"]
    given = [each for each in statement["metrics"] if each["value"] is not None and ("group" in each) is grouped]
    return sorted({int(end) for each in given if (end := each["metric"].rpartition("_")[2]).isdigit()})


def find_cover(home: Home, issued: int, column: str | None) -> dict[str, Any] | None:
    """Return the newest statement of how answers of the model that this entry certifies cover, on rows that it did not
    learn from: by the groups of the column, or of all records alike. None where there is none.
    """
    jobs = evaluations.by_model(home.ledger.log.database).get(issued, ())
    found = (each for seq in jobs if (each := quick(home, seq)) is not None and not each["seen"])
    of_cover = filter(is_cover, found)
    return next((each for each in of_cover if each["histogram"].get("groups", {}).get("column") == column), None)


def mark(home: Home, lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines of versions with `better`, whether each is shown to be better than a constant answer, and the
    `outcome`, by what it is judged by; None where nobody evaluated it, or its certificate is not known here.
    """
    return [
        {**line, **{key: None if judgement is None else judgement[key] for key in ("better", "outcome")}}
        for line, judgement in judgements(home, lines)
    ]


def judgements(home: Home, lines: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Yield each line of a version with the statement that it is judged by."""
    by_model = evaluations.by_model(home.ledger.log.database)
    for line in lines:
        jobs = by_model.get(line["certificate"]["entry"], ()) if line["certificate"] else ()
        yield line, pick_judgement([each for seq in jobs if (each := quick(home, seq)) is not None])


def quick(home: Home, seq: int) -> dict[str, Any] | None:
    """Return a statement that was verified since its file changed; None where there is none, or it does not verify."""
    path = WORTH.file(home, seq)
    try:
        at = str(path), path.stat().st_mtime_ns
        if at not in _KEPT:
            _KEPT[at] = worth_to_json(seq, WORTH.open(home, seq)[2])
        return _KEPT[at]
    except (OSError, UnknownName, VerificationError):
        return None


_KEPT: dict[tuple[str, int], dict[str, Any]] = {}  # a file's path and time -> what its statement says


def require_worth(
    home: Home, reference: str, issued: int, champion: tuple[str, int] | None, if_better: bool, although: bool
) -> int | None:
    """Return the entry of the statement that speaks for promoting the model certified by entry `issued`, if one must or
    does.

    `champion`: what it takes the place of, and by which entry that is certified. With `if_better` the newest comparison
    of the two, on rows that the model did not learn from, must say that it is better; where there is no champion, its
    own evaluation must. Without, a model that was evaluated and not shown to be better than a constant answer is
    promoted only `although` that is so. WrongState says what to run.
    """
    found = worths(home, issued)
    own = pick_judgement(found)
    if not if_better:
        if own is not None and not own["better"] and not although:
            shows = verdict(own)
            raise WrongState(
                f"model={reference}: its evaluation, entry {own['entry']}, says: {shows}. To promote it all the same: "
                f"dpserve model promote {reference} --although-not-better",
                statement=own["entry"],
                command=f"dpserve model promote {reference} --although-not-better",
            )
        return None if own is None or not own["better"] else int(own["entry"])
    against = "" if champion is None else f" --against {champion[0]}"
    fair = [each for each in found if not each["seen"]]
    of_both = [each for each in fair if champion and each.get("against", {}).get("certificate") == champion[1]]
    alone = [each for each in fair if _judges(each)]
    speaks = next(iter(alone if champion is None else of_both), None)
    if speaks is None or not speaks["better"]:
        command = f"dpserve evaluate {reference}{against} --dataset NAME --epsilon E"
        than = "a constant answer" if champion is None else champion[0]
        why = "no statement compares the two" if speaks is None else f"entry {speaks['entry']} says: {verdict(speaks)}"
        why = "it was not evaluated" if speaks is None and champion is None else why
        raise WrongState(
            f"model={reference}: is not shown to be better than {than}: {why}. On rows that were kept aside: {command}",
            statement=None if speaks is None else speaks["entry"],
            command=command,
        )
    return int(speaks["entry"])
