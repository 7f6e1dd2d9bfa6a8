"""JAX-Privacy beside the lines of docs/reference/claims.md: a private logistic regression, its noise, and its audit."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.beside.trials import name_versions, note, note_absences

ROWS, FEATURES, STEPS, BATCH, EPSILON, DELTA, CANARIES = 2_000, 8, 100, 200, 1.0, 1e-5, 200


def loss(weights: Any, x: Any, y: Any) -> Any:
    import jax.numpy as jnp

    return jnp.mean(jnp.logaddexp(0.0, -(2 * y - 1) * (x @ weights)))


def fit(x: np.ndarray, y: np.ndarray, multiplier: float, seed: int) -> np.ndarray:
    """Fit by noisy clipped gradients of Poisson batches; return (FEATURES,) weights."""
    import jax
    import jax.numpy as jnp
    from jax_privacy import clipping

    gradient = jax.jit(clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), keep_batch_dim=True))
    draw, weights = np.random.default_rng(seed), jnp.zeros(FEATURES)
    for _ in range(STEPS):
        chosen = np.flatnonzero(draw.random(len(x)) < BATCH / len(x))
        noise = multiplier * draw.standard_normal(FEATURES)
        weights = weights - 0.5 * (gradient(weights, jnp.asarray(x[chosen]), jnp.asarray(y[chosen])) + noise) / BATCH
    return np.asarray(weights)


def main() -> None:
    from jax_privacy import accounting, auditing

    name_versions("jax_privacy", "jax", "dp-accounting")
    account = accounting.DpsgdTrainingAccountant(dp_accountant_config=accounting.PldAccountantConfig())
    named = {"batch_sizes": BATCH, "num_updates": STEPS, "num_samples": ROWS}
    multiplier = accounting.calibrate_noise_multiplier(
        target_epsilon=EPSILON, accountant=account, target_delta=DELTA, **named
    )
    note("price", "accounting.calibrate_noise_multiplier(target_epsilon=1)", f"noise {multiplier:.3f}")
    draw = np.random.default_rng(0)
    x = draw.standard_normal((ROWS + CANARIES, FEATURES)).astype("float32")
    y = (x @ np.ones(FEATURES) + draw.standard_normal(len(x)) > 0).astype("float32")
    x[-CANARIES:], coins = 5 * np.sign(x[-CANARIES:]), draw.random(CANARIES) < 0.5
    y[-CANARIES:] = draw.random(CANARIES) < 0.5
    inside = np.concatenate([np.arange(ROWS), ROWS + np.flatnonzero(coins)])
    fits = [fit(x[inside], y[inside], multiplier, seed) for seed in (1, 2)]
    note("limit", "the same rows fitted twice at epsilon 1", f"{len(fits)} models; nothing adds them up")
    right = np.mean((x[:ROWS] @ fits[0] > 0) == y[:ROWS])
    note("worth", "the accuracy of rows that are given", f"{right:.3f}")
    scores = -np.logaddexp(0.0, -(2 * y[-CANARIES:] - 1) * (x[-CANARIES:] @ fits[0]))
    auditor = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
    for name in ("epsilon_one_run", "epsilon_one_run_fdp"):
        if hasattr(auditor, name):
            note("attack", f"CanaryScoreAuditor.{name}(.05, 1e-5)", f"{getattr(auditor, name)(0.05, DELTA):.3f}")
    note_absences(
        "jax_privacy",
        {
            "list": "ledger|audit.log",
            "derived": "certificate|attestation|in-toto",
            "cover": "conformal",
            "person": "data subject|article 15",
            "again": "transparency log|merkle",
            "elsewhere": "transparency log|merkle",
            "agents": "model context protocol|\\bmcp\\b",
            "sso": "openid.connect|oidc",
            "export": "onnx|tflite",
            "grpc": "ModelInfer",
        },
    )


if __name__ == "__main__":
    main()
