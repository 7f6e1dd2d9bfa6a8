"""BentoML as its own first page shows it: a class, an API with types, every setting as it comes.

MODEL=model.onnx bentoml serve plain:Plain
"""

from __future__ import annotations

import os
from typing import Any

import bentoml
import numpy as np
import onnxruntime


@bentoml.service
class Plain:
    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options)
        self.inputs = [
            (each.name, np.float64 if each.type == "tensor(double)" else np.object_)
            for each in self.session.get_inputs()
        ]

    @bentoml.api
    async def predict(self, model: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        feed = {name: np.array([record[name] for record in records], kind)[:, None] for name, kind in self.inputs}
        label, probabilities = self.session.run(["label", "probabilities"], feed)
        return {"predictions": label.tolist(), "probabilities": probabilities.tolist()}
