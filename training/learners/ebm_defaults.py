"""The public default rule of `ebm`: what is used where a parameter is not given, of public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

from training.session import Public


@dataclass(frozen=True)
class EbmDefaults:
    """`epochs` over all features; `leaves` of a random public partition (0: every bin its own leaf); `rate` of a step;
    `ridge`, in units of the noise's standard deviation, added to what a sum is divided by; `share` of mu^2 for the
    histograms; `clip` of a number's residuals, in half ranges.
    """

    epochs: int
    leaves: int
    rate: float
    ridge: float
    share: float
    clip: float = 1.0


def ebm_defaults(public: Public) -> EbmDefaults:
    """The rule: records, epsilon, relation, features and kind of target."""
    return EbmDefaults(epochs=4, leaves=8, rate=0.5, ridge=1.0, share=0.03)
