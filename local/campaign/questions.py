"""The kinds of campaigns, told apart as their statements say."""

from __future__ import annotations

from functools import lru_cache

from dpserve_verify.errors import CertificateInvalid, InputError
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import exact_object
from local.reports import definition, shared
from local.reports.question import COMMON, FORECAST, LIMIT, STATEMENT_TYPE, Question, common_from_json
from local.rounds.definition import RoundsDefinition
from local.turns.definition import BOOSTED_LEARNERS, BoostedDefinition

LEARNERS = tuple(dict.fromkeys((*definition.LEARNERS, *BOOSTED_LEARNERS, *shared.SHARED_LEARNERS)))  # of owners
_Kind = type[definition.Definition] | type[BoostedDefinition] | type[shared.SharedDefinition] | type[RoundsDefinition]
_KINDS: dict[str, _Kind] = {
    definition.Definition.TYPE: definition.Definition,
    BoostedDefinition.TYPE: BoostedDefinition,
    shared.SharedDefinition.TYPE: shared.SharedDefinition,
    RoundsDefinition.TYPE: RoundsDefinition,
}


@lru_cache(maxsize=16)
def question_from_payload(payload: bytes) -> Question:
    """Read a `Question.payload`, strictly. CertificateInvalid names the first thing wrong."""
    try:
        top = exact_object(
            canonical.decode_canonical(payload, LIMIT), ("_type", "subject", "predicateType", "predicate"), "statement"
        )
        kind = _KINDS.get(str(top["predicateType"]))
        if top["_type"] != STATEMENT_TYPE or kind is None:
            raise InputError(f"predicateType={top['predicateType']!r:.80}: must be one of {', '.join(_KINDS)}")
        predicate = top["predicate"]
        forecast = (FORECAST,) if isinstance(predicate, dict) and FORECAST in predicate else ()
        body = exact_object(predicate, (*COMMON, *kind.OWN, *forecast), "campaign")
        question: Question = kind.of(common_from_json(body), body)
    except Exception as error:  # of a stranger's making: whatever is wrong with it, it is no definition
        raise CertificateInvalid(f"campaign: not a definition ({error!s:.200})") from error
    if question.payload != payload:
        raise CertificateInvalid("campaign: not in the one spelling of its definition")
    return question
