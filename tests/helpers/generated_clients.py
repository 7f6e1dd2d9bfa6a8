"""Run in the environment of `make clients-test`: plan, train, wait, predict and read by a client that was generated.

`python generated_clients.py KIND FOLDER URL TOKEN RECORDS`: the client's package is called `made` and lies in FOLDER.
Prints what it was told, as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from contextlib import suppress

JOB = {
    "dataset": "adult",
    "learner": "lazybb",
    "epsilon": "0.5",
    "parameters": {"rounds": 5, "cuts": "declared", "order": "none"},
    "model": "made",
}
TOO_MUCH = {**JOB, "epsilon": "90"}
ENDS = ("issued", "failed", "burned", "refunded")


class PythonClient:
    """By openapi-python-client: a function for each door."""

    def __init__(self, url, token):
        import made

        self.client = made.AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)
        self.bodies = importlib.import_module("made.models")

    def _ask(self, door, *arguments, **more):
        return importlib.import_module(f"made.api.{door}").sync(*arguments, client=self.client, **more)

    def plan(self, asked):
        return self._ask("plans.post_v1_plans", body=self.bodies.PostV1PlansBody.from_dict(asked))

    def submit(self, asked):
        return self._ask("jobs.post_v1_jobs", body=self.bodies.PostV1JobsBody.from_dict(asked))

    def job(self, number):
        return self._ask("jobs.get_v1_jobs_job", number)

    def refusal(self, asked):
        return self.submit(asked).error

    def predict(self, asked):
        return self._ask("predict.post_predict", body=self.bodies.PostPredictJsonBody.from_dict(asked)).predictions

    def dataset(self, name):
        return self._ask("datasets.get_v1_datasets_name", name)

    def entries(self):
        return self._ask("ledger.get_v1_ledger", after=0).entries


class Generator:
    """By openapi-generator: a class for each part of the description."""

    def __init__(self, url, token):
        import made

        self.made, self.client = made, made.ApiClient(made.Configuration(host=url, access_token=token))

    def plan(self, asked):
        return self.made.PlansApi(self.client).post_v1_plans(self.made.PostV1PlansRequest.from_dict(asked))

    def submit(self, asked):
        return self.made.JobsApi(self.client).post_v1_jobs(self.made.PostV1JobsRequest.from_dict(asked))

    def job(self, number):
        return self.made.JobsApi(self.client).get_v1_jobs_job(str(number))

    def refusal(self, asked):
        try:
            self.submit(asked)
        except self.made.ApiException as error:
            return error.data.error.actual_instance

    def predict(self, asked):
        answer = self.made.PredictApi(self.client).post_predict(self.made.PostPredictRequest.from_dict(asked))
        return [label.actual_instance for label in answer.predictions]

    def dataset(self, name):
        return self.made.DatasetsApi(self.client).get_v1_datasets_name(name)

    def entries(self):
        return self.made.LedgerApi(self.client).get_v1_ledger(after=0).entries


def main(kind, folder, url, token, records):
    sys.path.insert(0, folder)
    client = {"python-client": PythonClient, "generator": Generator}[kind](url, token)
    plan, job = client.plan(JOB), client.submit(JOB)
    for _ in range(600):
        state = str(getattr(state := client.job(job.job).state, "value", state))
        if state in ENDS:
            break
        time.sleep(0.1)
    with open(records) as file:
        asked = {"model": "made", "records": json.load(file)}
    labels = None
    for _ in range(300):  # a new version is served a moment after it was issued
        with suppress(Exception):
            labels = client.predict(asked)
            break
        time.sleep(0.1)
    refusal = client.refusal(TOO_MUCH)
    print(
        json.dumps(
            {
                "rounds": plan.rounds,
                "state": state,
                "predictions": labels,
                "refused": refusal.code,
                "total": client.dataset("adult").budget.total.epsilon,
                "entries": [json.loads(entry.body)["type"] for entry in client.entries() if entry.index],
            }
        )
    )


main(*sys.argv[1:])
