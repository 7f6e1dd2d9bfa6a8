"""MLServer with a model of one's own, its documented way to any runtime; asked by the open inference protocol.

`mlserver start FOLDER` with settings.json and model-settings.json that name `seldon.Onnx`.
"""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Onnx(MLModel):  # type: ignore[misc]
    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["MODEL"], options)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feed = {}
        for given in payload.inputs:
            if given.datatype == "BYTES":
                feed[given.name] = np.array(StringCodec.decode_input(given), np.object_)[:, None]
            else:
                feed[given.name] = NumpyCodec.decode_input(given).reshape(-1, 1)
        label, probabilities = self.session.run(["label", "probabilities"], feed)
        outputs = [
            StringCodec.encode_output("label", label.tolist()),
            NumpyCodec.encode_output("probabilities", probabilities),
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
