"""What can be expected of what is paid, said before it is: one sentence with a verdict, of a model, an evaluation,
counts, a profile and the synthetic rows that follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NO_BETTER = "no better than guessing"
LADDER = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # epsilons of which one may be enough


@dataclass(frozen=True)
class Forecast:
    """`expects`: what it comes to, in words, and `by` what that is known; `why`: what makes it no better than guessing,
    empty where it is better; `least`: the epsilon from which it would be, or would tell much; `there`: what is expected
    from there on, empty where that is not said; `figures`: the same in numbers, for programs.
    """

    expects: str
    by: str = ""
    why: str = ""
    least: float | None = None
    there: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def better(self) -> bool:
        """Tell whether it is expected to tell more than a guess."""
        return not self.why

    @property
    def says(self) -> str:
        """Say it in one sentence: the verdict where it is a bad one, what is expected, and the way out."""
        known = f", {self.by}" if self.by else ""
        way_out = f"; {self.there} from epsilon {self.least:g}" if self.there and self.least is not None else ""
        return f"{self.expects}{known}{way_out}" if self.better else f"{NO_BETTER}: {self.why}{way_out}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; `short`: the verdict, or what is expected, and no more."""
        short = self.expects if self.better else NO_BETTER
        return {
            **self.figures, "better": self.better, "least_epsilon": self.least, "short": short, "says": self.says,
        }  # fmt: skip


def next_rung(epsilon: float, is_enough: Callable[[float], bool]) -> float | None:
    """Return the first epsilon of the ladder above this one that is enough; None where none is."""
    return next((rung for rung in LADDER if rung > epsilon and is_enough(rung)), None)


def forecast_counts(within: float, rows: float, epsilon: float) -> Forecast:
    """Say what to expect of a query's counts: within how many rows one is right, of a group of about `rows`. Their
    noise falls as epsilon rises.
    """
    share = 100 * within / rows
    percent = f"{share:.0f}" if share >= 10 else f"{share:.2g}"
    about = f"about {rows:,.0f} rows"
    if within < rows:
        expects = f"counts right within {within:,.1f}, {percent} % of {about} in a group"
        return Forecast(expects, "with a chance of 95 %")
    least = next_rung(epsilon, lambda rung: within * epsilon / rung < rows)
    there = "" if least is None else f"within {within * epsilon / least:,.1f}"
    return Forecast("", "", f"counts right within {within:,.1f}, and a group has {about}", least, there)
