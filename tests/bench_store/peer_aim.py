"""Aim: tracks into its repository; reads the sequences of its runs, whole and by its sampling."""

from aim import Repo, Run
from aim.storage.context import Context
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

    def metric(run=run):
        """By the run that wrote it: neither its query nor a run opened to read finds what this process just closed."""
        return run.get_metric("loss", Context({}))

    assert len(metric().values.sparse_numpy()[0]) == length
    whole = lambda: metric().values.sparse_numpy()
    view = lambda: metric().data.sample(VIEW_POINTS).numpy()
    figures[f"read {length}"] = {"whole_ms": best_ms(whole, 1), "view_ms": best_ms(view, 1)}
    run.close()
tell(**figures)
