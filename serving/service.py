"""The BentoML service, for `bentoml build` and `bentoml serve`. Everything is answered by one Starlette app that is
mounted in it; `predict` is a native API as well, so that BentoML's client and its builder know of it.
"""

from __future__ import annotations

from typing import Any

from accountant.system.quiet import import_quietly
from serving.process.workers.loading import loading

bentoml = import_quietly("bentoml")

with loading():
    from serving.app import make_app
    from serving.http.routes import Doors
    from serving.process.beside import worker_beside
    from serving.process.config.settings import ServerSettings
    from serving.process.watch.logs import set_up
    from serving.rest.models import answer_records

SETTINGS = ServerSettings()
CLIENT_PAGE = "/schema.json"  # for BentoML's client; BentoML's web page calls addresses outside and is not offered

set_up()
APP = make_app(worker_beside)


@bentoml.service(
    name="dpserve",
    workers=SETTINGS.workers if "workers" in SETTINGS.model_fields_set else "cpu_count",
    traffic={"timeout": 5},  # a timer per request is kept as long as this
    tracing={"excluded_urls": ".*"},  # the tracing layer costs more than all the rest, even when it is off
    metrics={"enabled": False},  # they label raw paths, without bound; ours are at the same address
    logging={"access": {"enabled": False}},
)
@bentoml.asgi_app(APP, path="/")
class DpserveService:
    """Models trained under differential privacy, served with their certificates."""

    @bentoml.api  # type: ignore[untyped-decorator]
    async def predict(self, model: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Predict records with a verified model: `adult`, `adult@champion` or `adult@2`."""
        served, answer = answer_records(APP.state.serving.registry.get, {"model": model, "records": records})
        plain = {name: answer[name].tolist() for name in ("probabilities",) if name in answer}
        return {**answer, "certificate": served.certificate, **plain}


SERVICE: Any = DpserveService  # the decorators return another type than they declare
SERVICE.add_asgi_middleware(Doors, ours=APP, theirs={CLIENT_PAGE})
