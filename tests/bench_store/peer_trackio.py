"""trackio: logs into its SQLite file; reads by the functions its dashboard uses."""

import os

from work import VIEW_POINTS, Timed, best_ms, calls, job, num_bytes, read_lengths, tell

given = job()
os.environ["TRACKIO_DIR"] = given["folder"]

import trackio  # noqa: E402 - it reads its folder when it is imported
from trackio.sqlite_storage import SQLiteStorage  # noqa: E402

figures = {}
for name, num_steps, num_metrics in given["logging"] * 2:  # the better of two rounds, as ours
    made = calls(num_steps, num_metrics)
    project = f"log{name}{name in figures}"
    before = num_bytes(given["folder"])
    trackio.init(project=project, name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    found = Timed(lambda metrics, step: trackio.log(metrics, step=step)).run(made, trackio.finish)
    stored = SQLiteStorage.get_log_count(project, "run")
    assert stored == num_steps, (stored, num_steps)
    found["bytes_per_point"] = (num_bytes(given["folder"]) - before) / (num_steps * num_metrics)
    figures[name] = max(found, figures.get(name, found), key=lambda item: item["points_per_s"])
for length, values in read_lengths(given["lengths"]):
    project = f"read{length}"
    SQLiteStorage.bulk_log(project, "run", [{"loss": value} for value in values], steps=list(range(length)))
    whole = lambda: SQLiteStorage.get_metric_values(project, "run", "loss")
    view = lambda: SQLiteStorage.get_metric_values(project, "run", "loss", max_points=VIEW_POINTS)
    assert len(whole()) == length
    figures[f"read {length}"] = {"whole_ms": best_ms(whole), "view_ms": best_ms(view)}
tell(**figures)
