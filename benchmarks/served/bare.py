"""The least there is: one Starlette route, uvloop and httptools, orjson, ONNX Runtime. No token, no check of a record,
no metric.

    MODEL=model.onnx PORT=3000 python bare.py
"""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.intra_op_num_threads = 1
SESSION = onnxruntime.InferenceSession(os.environ["MODEL"], OPTIONS)
INPUTS = [(each.name, np.float64 if each.type == "tensor(double)" else np.object_) for each in SESSION.get_inputs()]


async def predict(request: Request) -> Response:
    records = orjson.loads(await request.body())["records"]
    feed = {name: np.array([record[name] for record in records], kind)[:, None] for name, kind in INPUTS}
    label, probabilities = SESSION.run(["label", "probabilities"], feed)
    answer = {"predictions": label.tolist(), "probabilities": probabilities}
    return Response(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


async def ready(request: Request) -> Response:
    return Response(b"{}", media_type="application/json")


if __name__ == "__main__":
    app = Starlette(routes=[Route("/predict", predict, methods=["POST"]), Route("/readyz", ready)])
    uvicorn.run(
        app, port=int(os.environ["PORT"]), loop="uvloop", http="httptools", log_level="warning", access_log=False
    )
