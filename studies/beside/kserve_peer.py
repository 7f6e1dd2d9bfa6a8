"""KServe's Python server beside the lines of docs/reference/claims.md; not its controller, which needs a cluster."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request

import numpy as np

from studies.beside.trials import find_port, name_versions, note, note_absences, wait_for


def serve() -> None:
    """Serve a model that answers the sum of each row, at the ports of the command line."""
    from kserve import InferRequest, InferResponse, Model, ModelServer
    from kserve.model_server import parser
    from kserve.utils.utils import get_predict_response

    class Sums(Model):
        def predict(self, payload: object, headers: object = None, response_headers: object = None) -> InferResponse:
            asked = payload.inputs[0].as_numpy() if isinstance(payload, InferRequest) else payload["instances"]
            return get_predict_response(payload, np.asarray(asked).sum(axis=1), self.name)

    model, (args, _) = Sums("sums"), parser.parse_known_args()
    model.ready = True
    ModelServer(http_port=args.http_port, grpc_port=args.grpc_port, workers=1).start([model])


async def ask(port: int) -> str:
    from kserve import InferenceGRPCClient, InferInput, InferRequest

    rows = InferInput("rows", [2, 2], "FP64")
    rows.set_data_from_numpy(np.array([[1.0, 2.0], [3.0, 4.0]]), binary_data=False)
    client = InferenceGRPCClient(f"127.0.0.1:{port}")
    answer = await client.infer(InferRequest(model_name="sums", infer_inputs=[rows]))
    return str(answer.outputs[0].as_numpy().tolist())


def main() -> None:
    name_versions("kserve")
    http, grpc = find_port(), find_port()
    command = [
        sys.executable,
        "-m",
        "studies.beside.kserve_peer",
        "serve",
        f"--http_port={http}",
        f"--grpc_port={grpc}",
    ]
    server = subprocess.Popen(command, stdout=sys.stderr)
    try:
        wait_for(f"http://127.0.0.1:{http}/v2/health/ready")
        body = json.dumps({"instances": [[1.0, 2.0], [3.0, 4.0]]}).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{http}/v1/models/sums:predict", body, {"Content-Type": "application/json"}
        )
        note("serve", "POST /v1/models/sums:predict", urllib.request.urlopen(asked).read().decode())
        note("grpc", "InferenceGRPCClient.infer", asyncio.run(ask(grpc)))
    finally:
        server.terminate()
        server.wait()
    note_absences(
        "kserve",
        {
            "limit": "epsilon|privacy.budget",
            "price": "differential(ly)? priva",
            "list": "append.only|audit.log",
            "derived": "certificate of|attestation|in-toto",
            "worth": "accuracy_score|evaluate\\(",
            "attack": "canary_score|membership inference",
            "cover": "conformal",
            "person": "data subject|article 15",
            "again": "transparency log|merkle",
            "elsewhere": "transparency log|merkle",
            "agents": "model context protocol|\\bmcp\\b",
            "sso": "openid.connect|oidc",
            "export": "to_sql|to_c\\b",
        },
    )


if __name__ == "__main__":
    serve() if sys.argv[1:2] == ["serve"] else main()
