"""MLflow on SQLite: log_batch per step; reads by its client, in process, without the cost of its HTTP server."""

import time

import mlflow
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient
from work import Timed, best_ms, calls, job, num_bytes, read_lengths, tell

given = job()
client = MlflowClient(f"sqlite:///{given['folder']}/mlflow.db")
experiment = client.create_experiment("bench", artifact_location=f"{given['folder']}/artifacts")
figures = {}


def batched(run_id, pairs, size=1000):
    for start in range(0, len(pairs), size):
        part = pairs[start : start + size]
        client.log_batch(run_id, metrics=[Metric("loss", value, 1, step) for step, value in part])


for name, num_steps, num_metrics in given["logging"]:
    made = calls(num_steps, num_metrics)
    before = num_bytes(given["folder"])
    run_id = client.create_run(experiment).info.run_id

    def log(metrics, step, run_id=run_id):
        now = int(time.time() * 1000)
        client.log_batch(run_id, metrics=[Metric(key, value, now, step) for key, value in metrics.items()])

    figures[name] = Timed(log).run(made, lambda run_id=run_id: client.set_terminated(run_id))
    figures[name]["bytes_per_point"] = (num_bytes(given["folder"]) - before) / (num_steps * num_metrics)
for length, values in read_lengths(given["lengths"]):
    run_id = client.create_run(experiment).info.run_id
    batched(run_id, list(enumerate(values)))
    whole = lambda: client.get_metric_history(run_id, "loss")
    view = lambda: client._tracking_client.store.get_metric_history_bulk_interval_from_steps(
        run_id,
        "loss",
        list(range(0, length, max(1, length // 320))),
        320,
    )
    assert len(whole()) == length
    figures[f"read {length}"] = {"whole_ms": best_ms(whole), "view_ms": best_ms(view)}
if given["runs"]:
    other = client.create_experiment("runs", artifact_location=f"{given['folder']}/artifacts2")
    for number in range(given["runs"]):
        run_id = client.create_run(other).info.run_id
        client.log_batch(
            run_id, metrics=[Metric("acc", number / given["runs"], 1, 1)], params=[Param("lr", str(number % 7))]
        )
    search = lambda: client.search_runs([other], "metrics.acc > 0.5 and params.lr = '3'", max_results=50)
    assert len(search()) == 50
    figures["runs"] = {"num_runs": given["runs"], "search_ms": best_ms(search, 5)}
del mlflow
tell(**figures)
