"""A verified certificate in plain words: one page on what is promised and what is not, with the numbers.

It is made from a `Certificate`, which only verification makes, and from nothing else. Bounds are rounded up. The first
page is for anybody; what follows it says all, for who has to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.certificates.chances import belief, best_guess, factor
from dpserve_verify.certificates.predicate import DatasetForm, EventForm, FamilyForm
from dpserve_verify.certificates.sentences import GROWTH, Growth
from dpserve_verify.certificates.written_page import Page, Section
from dpserve_verify.formats.canonical import decimal_string, encode_base64
from dpserve_verify.privacy.budget import Budget, short_delta, used_words
from dpserve_verify.privacy.events import event_from_json
from dpserve_verify.privacy.filter import Filter, price_from_json

NOISE = {
    "discrete-gaussian": "Gaussian noise",
    "discrete-laplace": "Laplace noise",
    "exponential": "a choice by chance",
    "permute-and-flip": "a choice by chance",
    "objective-perturbation": "noise in what is minimised",
    "private-selection": "the best of a random number of runs",
}
PRIORS = (Decimal("0.1"), Decimal("0.01"))
NOT_PROMISED = (
    "That the model is right. No accuracy is stated: measured on private rows, it would cost budget.",
    "That what is true of many stays secret. A model shows what a group has in common.",
    "That the records sent to the model for an answer are hidden from whoever runs it.",
)


def plain(certificate: Certificate, since: Sequence[str] = (), verifier: str = "") -> Page:
    """Put a verified certificate on a page. `since`: what the ledger says came after it (`growth_since`); `verifier`:
    the file of the program that checks it, and its digest, where that is known.
    """
    sections = (
        _who(certificate),
        *([Section("What came since it was issued", tuple(since))] if since else []),
        _promise(certificate),
        _spent(certificate),
        *_sources_section(certificate),
        *_edits_section(certificate),
        Section("What is not promised", items=(*NOT_PROMISED, *map(_sentence, certificate.form.not_covered))),
        _checks_section(certificate),
        _levels(certificate),
    )
    first = _first_page(certificate, bool(since), verifier)
    return Page(f"Privacy certificate of the model {certificate.model}", sections, first)


def _first_page(certificate: Certificate, has_more: bool, verifier: str) -> tuple[Section, ...]:
    """Return what everybody should know, in 300 words at most."""
    return (
        Section("Whose data", (_whose(certificate),)),
        Section("The promise", _promise_in_short(certificate)),
        Section("Not promised", items=NOT_PROMISED_IN_SHORT),
        Section("Who checks it", _checkers(certificate, has_more, verifier)),
    )


def _whose(certificate: Certificate) -> str:
    form = certificate.form
    learns = "" if form.public.target is None else f" what {form.public.target} is"
    unit, shared = form.claim.unit.name, form.claim.trust_model.startswith("two-aggregators:")
    match certificate.relation, shared:
        case _, True:
            kept = (
                "What each contributed is protected if one of the two aggregators is honest; who took part is public."
            )
        case "add-remove", _:
            kept = "Even whether it is among the data is protected."
        case _:
            kept = "What it says is protected; how many there are is public."
    return (
        f"The model {certificate.model} learnt{learns} from the data called {form.dataset.name}. Protected is any one "
        f"{unit}. {kept} The ledger {form.ledger.origin} keeps count of all that these data give away."
    )


def _promise_in_short(certificate: Certificate) -> tuple[str, ...]:
    form, (epsilon, delta) = certificate.form, certificate.headline
    guesses, answer = everyday(epsilon, delta, form.claim.unit.name, certificate.relation, "the model")
    families = form.dataset.families or []
    used = _used(families[0] if families else form.dataset) if len(families) < 2 else None
    budget = f" When this was written, {used}." if used else ""
    others = " It was made from earlier releases; the figures are of all together." if certificate.parts else ""
    edited = " People edited it afterwards, without the data." if certificate.ancestors else ""
    word = f" All of this is {certificate.word}." if certificate.word else ""
    return (
        f"{guesses}{others}",
        f"{answer}{word}",
        f"It holds permanently, whatever computers or other sources somebody has. Experts say: "
        f"({epsilon:f}, {short_delta(delta)})-differential privacy.{budget}{edited}",
        GROWTH_IN_SHORT[certificate.growth],
    )


def everyday(epsilon: Decimal, delta: Decimal, unit: str, relation: str, what: str) -> tuple[str, str]:
    """Say a bound in everyday words: how many guesses are right of one who has `what`, and as what single answer."""
    guess = best_guess(epsilon, delta)
    about = f"whether one {unit} was there" if relation == "add-remove" else f"what one {unit} says"
    return (
        f"Who has {what}, and knows everything else, still guesses {about}. At most {guess:f} of 100 such "
        "guesses are right; by tossing a coin 50 are.",
        f"In everyday words: it tells about one {unit} no more than a single answer, yes or no, that is a lie "
        f"{100 - guess:f} times in 100.",
    )


def _checkers(certificate: Certificate, has_more: bool, verifier: str) -> tuple[str, ...]:
    seen = (
        f"Others saw the same ledger: {', '.join(each.words for each in certificate.witnesses)}."
        if certificate.witnesses
        else "That everybody is shown the same ledger is its operator's word: no witness was asked."
    )
    return (
        "A program wrote this page after it had checked the signature, the ledger and every sum. Anybody can repeat "
        f"that, and has to ask nobody: dpserve-verify FOLDER --trust trust.json{f' ({verifier})' if verifier else ''}.",
        f"{seen}{' What came since it was issued stands first on the next page.' if has_more else ''}",
    )


GROWTH_IN_SHORT: Mapping[Growth, str] = {
    "fixed": "The data cannot grow.",
    "records": "If the data grow, it holds for each row by itself; what several rows of one person give away adds up.",
    "person-total": "Over all parts by which the data grow, one total holds for one person.",
    "person-total-by-default": (
        "If the data grow, one total holds for one person over all of them, unless a reasoned entry of the ledger "
        "says otherwise."
    ),
    "each-block": "It holds for each part by which the data grow; for one who stands in several, they add up.",
}
NOT_PROMISED_IN_SHORT = (
    "That the model is right. No accuracy is stated here.",
    "That habits of groups stay secret: what is true of many may show.",
    "Anything that others publish about the same people, or steal.",
    "That questions put to the model are hidden from whoever runs it.",
)


def meaning(total: Budget, relation: str = "add-remove", unit: str | None = None, person: Budget | None = None) -> str:
    """Say what a total of a dataset promises, to a steward who sets it.

    Args:
        total: of the family, and so of each block.
        relation: "add-remove", or "replace-one", under which no dataset grows.
        unit: "record", the column that names people, or None where that is not chosen yet.
        person: the total for one person over all blocks, where one is declared.
    """
    reader = "Worst case: an attacker who sees all that is ever released is right at most"
    guess = best_guess(total.epsilon, total.delta)
    if relation == "replace-one":
        whose = "row" if unit in (None, "record") else "person"
        return (
            f"{reader} {guess} times in 100 which of two things one {whose} says (chance alone: 50). {ONCE} Such a "
            "dataset cannot grow."
        )
    record = f"{reader} {guess} times in 100 whether one row was in it (chance alone: 50). {ONCE} {OF_RECORDS}"
    if unit == "record":
        return record
    most = best_guess(person.epsilon, person.delta) if person else guess
    over = " in however many blocks" if person else ""
    people = (
        f"{reader} {most} times in 100 whether one person's rows were in it{over} (chance alone: 50). {ONCE} "
        f"{OF_A_TOTAL.format(guess=guess) if person else OF_PEOPLE}"
    )
    return people if unit else f"{people} Where each row is taken for another person: {OF_RECORDS}"


ONCE = "It is given once, for all jobs together, permanently."
OF_PEOPLE = (
    "If the dataset grows, it holds for one person over all blocks together, unless you say otherwise then, with a "
    "reason that stays in the ledger."
)
OF_A_TOTAL = "If the dataset grows, that is promised over all blocks; of one who stands in one block alone: {guess}."
OF_RECORDS = (
    "If the dataset grows, each row keeps the total of its own block, and several rows of one person are not told to "
    "be one person's."
)


def _who(certificate: Certificate) -> Section:
    form = certificate.form
    unit = form.claim.unit
    bounded = "" if unit.bounding.startswith("none") else f" Used are {unit.bounding}, and no others."
    if (weight := form.dataset.weight) is not None:
        bounded += f" A record counts by its weight, {weight.column}, as at most one of weight {weight.most}."
    first = f"The unit of privacy is one {unit.name} of the dataset {form.dataset.name}.{bounded}"
    if form.claim.trust_model.startswith("two-aggregators:"):
        second = (
            f"The promise compares the sums with and without any one {unit.name}'s contribution: what it says is "
            "protected. Who took part is public. It rests on one of the two aggregators: which one need not be known."
        )
    elif certificate.relation == "add-remove":
        second = (
            f"The promise compares the data with and without any one {unit.name}: even whether it is there is "
            "protected, and with it how many there are."
        )
    else:
        units = "owners" if form.claim.trust_model.startswith("local:") else "records"
        count = "" if form.dataset.records is None else f" ({form.dataset.records} {units})"
        second = (
            f"The promise compares the data with any one {unit.name} as it is and replaced by any other: what it says "
            f"is protected. How many there are is public{count}."
        )
    return Section("Who is protected", (first, second, _growth(certificate)))


def _growth(certificate: Certificate) -> str:
    """Say what becomes of the promise where the dataset grows, and of which blocks the model is."""
    state, blocks = certificate.growth, certificate.form.dataset.blocks
    if blocks is None:
        return _sentence(GROWTH[state])
    which = f"block {blocks.first}" if blocks.first == blocks.last else f"blocks {blocks.first} to {blocks.last}"
    return f"The model was learnt from {which} of {blocks.of}. {_sentence(GROWTH[state])}"


def _sources_section(certificate: Certificate) -> tuple[Section, ...]:
    """Return the section of a model that was made from other releases."""
    if not certificate.parts:
        return ()
    dataset, lines = certificate.form.dataset, ["Releases of rows that were there before are in this model:"]
    if dataset.together is not None:
        both = dataset.together
        lines.append(
            f"One who has the model has together epsilon {both.epsilon} at delta {both.delta} of any one "
            f"{certificate.form.claim.unit.name}, which is what is promised above: {both.sum}."
        )
    return (Section("What it was made from", tuple(lines), tuple(map(_sentence, certificate.parts))),)


def _promise(certificate: Certificate) -> Section:
    epsilon, delta = certificate.headline
    unit = certificate.form.claim.unit.name
    add_remove = certificate.relation == "add-remove"
    worlds = f"with any one {unit} {'added or removed' if add_remove else 'replaced'}"
    but = f", and {short_delta(delta)} (1 in {int(1 / delta):,}) on top" if delta else ""
    shared = certificate.form.claim.trust_model.startswith("two-aggregators:")
    worlds = f"with any one {unit}'s contribution left out" if shared else worlds
    contribution = "'s contribution" if shared else ""
    about = (
        f"whether a given {unit}{contribution} was in the data"
        if add_remove
        else f"which of two things a given {unit} says"
    )
    exception = f" With a probability of {short_delta(delta)} this may fail." if delta else ""
    beliefs = "; ".join(
        f"{(100 * prior).normalize():f} in 100 into at most {belief(epsilon, prior):f} in 100" for prior in PRIORS
    )
    return Section(
        "What is promised",
        (
            *([f"All of this is {certificate.word}: a program read the rows."] if certificate.word else []),
            f"({epsilon:f}, {short_delta(delta)})-differential privacy. Whatever is made of this model, its chance is "
            f"at most e^{epsilon:f} = {factor(epsilon):f} times what it would have been {worlds}{but}. Figures are "
            "rounded up.",
            f"Asked {about}, an attacker who has the model, and knows everything else, answers right at most "
            f"{best_guess(epsilon, delta):f} times in 100 (chance alone: 50).",
            f"In beliefs: the model can turn a chance of {beliefs}.{exception}",
            f"It holds permanently, and against {certificate.form.claim.adversary}.",
        ),
    )


def _spent(certificate: Certificate) -> Section:
    form = certificate.form
    dataset, count = form.dataset, sum(run.count for run in form.mechanisms)
    answers = "answer" if count == 1 else "answers"
    target = form.public.target
    about = "" if target is None else f", one of several targets, to learn {target}"
    cost = (
        f"This model took {count} noisy {answers} from the data{about}, together epsilon "
        f"{certificate.epsilon:f} at delta {short_delta(certificate.delta)}."
    )
    families = dataset.families or []
    accounts = [_account(family) for family in families] or [_account(dataset)]
    note = (
        f"A family is all datasets that hold the same people. {bound_of(certificate)} A total is changed only by a "
        "reasoned entry of the ledger. What the ledger takes at somebody's word (releases made elsewhere, programs "
        "that read rows, queries of declared sensitivity) counts as it is stated there. Costs add up as Rényi curves, "
        "so epsilons of single models do not simply sum."
    )
    return Section("What was spent, and what is left", (cost, note), tuple(accounts))


def bound_of(certificate: Certificate) -> str:
    """Say within what all stays that is ever learnt about one unit."""
    dataset, name = certificate.form.dataset, certificate.form.claim.unit.name.removesuffix(" in a block")
    everything, largest = f"All that is ever learnt about any one {name}", "the largest total that was ever in force"
    match certificate.growth:
        case "fixed":
            return f"{everything} stays within {largest}."
        case "records":
            return f"{everything} stays within {largest} for the block in which it stands; at first there is one block."
        case "person-total" if dataset.person is not None:
            total = dataset.person.budget
            largest = dataset.person.largest or total.epsilon
            return (
                f"{everything}, over all blocks together, stays within the largest total for one person that was ever "
                f"in force, which was epsilon {largest} at delta {total.delta} when this was written."
            )
        case "person-total-by-default":
            return (
                f"{everything} stays within {largest}; if the dataset grows, within one person's total over all blocks "
                "together, which is the family's unless a reasoned entry gives another one, or says that each block "
                "promises for itself alone."
            )
    if dataset.blocks is None:
        return f"{everything} from the dataset's first block stays within {largest}."
    blocks, most = dataset.blocks.of, Decimal(dataset.largest or dataset.budget.epsilon)
    return (
        f"{everything} from one block stays within {largest} for that block, and nothing bounds one {name} over all of "
        f"them but the sum: for one who stands in all {blocks} that there were, epsilon {(blocks * most):f}."
    )


def _edits_section(certificate: Certificate) -> tuple[Section, ...]:
    """Return the section of a model that was edited after its release."""
    chain, edits = certificate.ancestors, certificate.form.public.edits
    if not chain:
        return ()
    first = (
        f"People edited this model after its release (entry {chain[0].entry} of the ledger), without the data. That "
        "costs no privacy: all of the above holds for it as for the released one. Whether the edits are right is "
        "another matter."
    )
    too_many = ("The edits are too many to be listed here; all stand in ensemble.json.",) if edits is None else ()
    changes = tuple(f"{edit.feature}, by {edit.by} at {edit.at}: {edit.why} ({edit.what})" for edit in edits or ())
    return (Section("What was edited", (first, *too_many), changes),)


def _account(account: FamilyForm | DatasetForm) -> str:
    after, total = account.after, account.budget
    balance = _used(account) or f"the sum of pure figures was {after.pure}"
    largest = "" if account.largest in (None, total.epsilon) else f" (the largest ever in force: {account.largest})"
    total_taken = " This model took the whole of it: nothing else was learnt about these people, or will be."
    return (
        f"Family {account.family}: total epsilon {total.epsilon} at delta {short_delta(total.delta)}{largest}; when "
        f"this certificate was written, {balance}.{total_taken if account.whole else ''}"
    )


def _used(account: FamilyForm | DatasetForm) -> str | None:
    """Say how much of the budget was used, as every door says it; None where the certificate does not tell. A total
    that was changed has the filter of the first one, which it does not state: then the sums, converted.
    """
    after, total = account.after, account.budget
    if account.whole:
        return used_words(0.0)
    design = Filter.design(Budget.of(total.epsilon, total.delta, total.outside or 0))
    if {*after.rdp} == {*map(decimal_string, design.orders)}:
        return used_words(1 - design.share(price_from_json(after.to_json(), design.orders)))
    return None if after.epsilon is None else f"epsilon {after.epsilon} of it was used"


def _checks_section(certificate: Certificate) -> Section:
    form = certificate.form
    keys = " and ".join(certificate.issuers)
    witnessed = (
        f"Witnesses that saw this tree, by their own clocks: {', '.join(each.words for each in certificate.witnesses)}."
        if certificate.witnesses
        else "No witness was asked: that the ledger shows everybody the same history is the operator's word alone."
    )
    items = (
        f"The model's bytes have the sha256 {certificate.sha256}; the certificate speaks of exactly these.",
        f"The certificate is signed by the issuer key {keys}, which may speak for entry {certificate.issued}.",
        f"Epsilon was computed again from the listed answers. {form.claim.conversion}",
        f"Entry {certificate.reservation} of the ledger {form.ledger.origin} reserved the budget before any row was "
        f"read; entry {certificate.issued} names this certificate (time, by the operator's clock: "
        f"{certificate.entry.get('time', 'not stated')}).",
        f"Entry {certificate.issued} is in the tree of {certificate.checkpoint_size} entries with root "
        f"{encode_base64(certificate.root)}, signed by the log key {certificate.log}.",
        witnessed,
    )
    again = "Check it yourself: dpserve verify FOLDER --trust trust.json; with other tools: docs/audit.md."
    return Section("How this was checked", (again,), items)


def _levels(certificate: Certificate) -> Section:
    """Return the levels of NIST SP 800-226's pyramid: each is worth what those below it are worth."""
    form, (epsilon, delta) = certificate.form, certificate.headline
    sources = "; ".join(
        f"{run.count} x {run.purpose} ({NOISE.get(run.mechanism, run.mechanism)}, {event_text(run.event)})"
        for run in form.mechanisms[:8]
    )
    rest = "" if len(form.mechanisms) <= 8 else f"; and {len(form.mechanisms) - 8} more lines of the certificate"
    items = (
        f"Top, the measure: epsilon {epsilon:f}, delta {delta:f}, unit one "
        f"{form.claim.unit.name}, neighbours by {certificate.relation}.",
        f"Middle, the algorithms: {sources}{rest}. {_sentence(form.accounting.composition)}",
        f"Middle, tuning: {_sentence(form.accounting.tuning or 'not stated')} Preprocessing: "
        f"{_sentence(form.preprocessing)}",
        f"Middle, the implementation: {_sentence(form.implementation.get('floats', 'not stated'))} Randomness: "
        f"{form.randomness.source}.",
        f"Middle, trust: {_sentence(form.claim.trust_model)} Security and access control of the platform are its "
        "operator's, and not certified.",
        "Bottom, data collection: how the records were gathered, and who else holds them, is not certified.",
    )
    return Section("By the levels of NIST SP 800-226", items=items)


def event_text(event: EventForm) -> str:
    """Return the cost of one release, in a few words."""
    return event_from_json(event.to_json()).words


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
