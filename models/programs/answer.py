"""From scores to answers, as `models.parts.answers` says it, in the expressions of a language; all in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf

from models.onnx.export import LABEL, NUMBER, Exportable
from models.parts.answers import middle, pieces_of
from models.programs.languages import EXP_MOST, Language, together
from models.programs.score import Line, Lines, ScoreWriter, Tensor


@dataclass(frozen=True)
class Program:
    """The lines of a model, and which of them are answers.

    read: the features that are read, by name, in their order.
    answers: of each output its expressions: a label and probabilities, or a value.
    """

    lines: tuple[Line, ...]
    read: tuple[str, ...]
    answers: dict[str, tuple[str, ...]]


def program_of(ensemble: Exportable, model_bytes: bytes, language: Language, inputs: Mapping[str, str]) -> Program:
    """Write a model in a language. `inputs`: for each feature the expression of a number, or of a text, that a record
    has there, missing where it is none.
    """
    lines = Lines(language)
    writer = ScoreWriter(lines, model_bytes)
    read = [feature.name for feature in ensemble.features if feature.name in writer.features_read]
    scores = writer.write({name: lines.add(inputs[name], ()) for name in read})
    answers = _Answers(writer, ensemble, scores).write()
    return Program(tuple(lines.lines), tuple(read), answers)


class _Answers:
    def __init__(self, writer: ScoreWriter, ensemble: Exportable, scores: Tensor) -> None:
        self.writer, self.ensemble, self.scores = writer, ensemble, scores
        self.lines, self.language = writer.lines, writer.language

    def write(self) -> dict[str, tuple[str, ...]]:
        language = self.language
        if self.ensemble.target_range is not None:
            product = self.lines.add(f"{self.scores[0]} * {language.number(self.ensemble.link)}", self.scores)
            centre = language.number(middle(self.ensemble.target_range))
            moved = self.lines.add(f"{product} + {centre}", (product,))
            return {NUMBER[0]: (self._held(moved, *self.ensemble.target_range),)}
        labels = [language.label(each) for each in self.ensemble.classes]
        if len(labels) > 2:
            most = self.writer.largest(self.scores)
            label, _ = self.writer.first_of_the_largest(self.scores, most, labels)
            return {LABEL[0]: (label,), LABEL[1]: self._shares(most)}
        (score,) = self.scores
        label = language.choose([(language.compare(score, ">", language.number(0.0)), labels[1])], labels[0])
        return {LABEL[0]: (label,), LABEL[1]: self._two(score)}

    def _held(self, one: str, low: float, high: float) -> str:
        """Write a number that is kept within two ends, where these are finite."""
        language, cases = self.language, []
        if not isinf(low):
            cases.append((language.compare(language.number(low), ">", one), language.number(low)))
        if not isinf(high):
            cases.append((language.compare(one, ">", language.number(high)), language.number(high)))
        return self.lines.add(language.choose(cases, one), (one,)) if cases else one

    def _two(self, score: str) -> tuple[str, str]:
        """Write the probabilities of two classes, each by itself, so that neither loses digits."""
        language = self.language
        pieces, moved = pieces_of(self.ensemble.link, self.ensemble.bends)
        parts = [f"{self._held(score, low, high)} * {language.number(slope)}" for low, high, slope in pieces]
        names = [self.lines.add(part, [line.name for line in self.lines.lines]) for part in parts]
        odds = self.lines.add(together([*names, language.number(moved)], "({} + {})".format), names)
        power = self._held(odds, -EXP_MOST, EXP_MOST)
        one = language.number(1.0)
        return (
            f"{one} / ({one} + {language.exponential(power)})",
            f"{one} / ({one} + {language.exponential(f'-{power}')})",
        )

    def _shares(self, most: str) -> tuple[str, ...]:
        language, powers = self.language, []
        for score in self.scores:
            behind = self.lines.add(f"({score} - {most}) * {language.number(self.ensemble.link)}", (score, most))
            held = self._held(behind, -EXP_MOST, EXP_MOST)
            powers.append(self.lines.add(language.exponential(held), (held,)))
        total = self.lines.add(together(powers, "({} + {})".format), powers)
        return tuple(f"{power} / {total}" for power in powers)
