"""TensorBoard: writes event files; reads them with its accumulator, whole, and the 1,000 points it keeps."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from work import Timed, best_ms, calls, job, num_bytes, read_lengths, tell

given = job()
figures = {}


def writer_in(name):
    folder = str(Path(given["folder"]) / name)
    return folder, EventFileWriter(folder)


def scalar(writer, name, value, step):
    summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
    writer.add_event(Event(wall_time=1.0 + step, step=step, summary=summary))


for name, num_steps, num_metrics in given["logging"]:
    made = calls(num_steps, num_metrics)
    folder, writer = writer_in(name)

    def log(metrics, step, writer=writer):
        for key, value in metrics.items():
            scalar(writer, key, value, step)

    figures[name] = Timed(log).run(made, writer.close)
    figures[name]["bytes_per_point"] = num_bytes(folder) / (num_steps * num_metrics)
for length, values in read_lengths(given["lengths"]):
    folder, writer = writer_in(f"read{length}")
    for step, value in enumerate(values):
        scalar(writer, "loss", value, step)
    writer.close()

    def load(size, folder=folder):
        events = EventAccumulator(folder, size_guidance={"scalars": size})
        events.Reload()
        return events

    assert len(load(0).Scalars("loss")) == length
    loaded = load(1000)  # its server has loaded before it is asked
    figures[f"read {length}"] = {
        "whole_ms": best_ms(lambda: load(0).Scalars("loss"), 1),
        "view_ms": best_ms(lambda: loaded.Scalars("loss")),
        "load_ms": best_ms(lambda: load(1000), 1),
    }
tell(**figures)
