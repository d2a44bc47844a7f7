"""Aim: tracks into its repository; reads by its own query object, whole and by its sampling."""

from aim import Repo, Run
from work import VIEW_POINTS, Timed, best_ms, calls, job, num_bytes, read_lengths, tell

given = job()
repo = Repo.from_path(given["folder"], init=True)
figures = {}


def new_run():
    return Run(repo=repo, system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False)


for name, num_steps, num_metrics in given["logging"]:
    made = calls(num_steps, num_metrics)
    before = num_bytes(given["folder"])
    run = new_run()
    figures[name] = Timed(lambda metrics, step, run=run: run.track(metrics, step=step)).run(made, run.close)
    figures[name]["bytes_per_point"] = (num_bytes(given["folder"]) - before) / (num_steps * num_metrics)
for length, values in read_lengths(given["lengths"]):
    run = new_run()
    for step, value in enumerate(values):
        run.track(value, name="loss", step=step)
    run.close()
    run_hash = run.hash

    def metric(run_hash=run_hash):
        found = repo.query_metrics(f"run.hash == '{run_hash}' and metric.name == 'loss'").iter()
        return next(iter(found), None)

    if metric() is None:
        break  # its query does not find what was just closed: only its logging is compared
    whole = lambda: metric().values.sparse_numpy()
    view = lambda: metric().values.sample(VIEW_POINTS).numpy()
    figures[f"read {length}"] = {"whole_ms": best_ms(whole, 1), "view_ms": best_ms(view, 1)}
tell(**figures)
