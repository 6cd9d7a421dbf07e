"""What each tracker's tool holds of a sweep, in one form for all of them (`Written`): read in the tool's own way."""

import dataclasses
import json
import os
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARAMS: dict[str, Any] = {
    "train.learning_rate": 0.003,
    "train.steps": 5000,
    "train.schedule": 'a "b" ü/%',
    "flag": True,
    "none": None,
    "sizes": [64, {"a": None}],
}  # of every trial


class Written(dict[str, Any]):
    """What a tool holds of one trial: params, results, curve (name -> [[steps, value], ...]), facts, tags, ok, runs."""


def imported(place: Path) -> dict[str, Any]:
    """Reads MLflow's runs back as `protein import` does."""
    from protein.imports.mlflow import read
    from protein.imports.runs import Source

    url = os.environ.get("MLFLOW_TRACKING_URI") or str(place / "mlflow.db")
    found = read(Source(place=url, score="score"))
    return {"direction": found.direction, "env": found.env, "runs": [dataclasses.asdict(run) for run in found.runs]}


def _mlflow(place: Path) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("protein pong")
    assert experiment is not None
    runs = list(client.search_runs([experiment.experiment_id], max_results=1000))
    [parent] = [run for run in runs if "protein.sweep_key" in run.data.tags]
    assert parent.info.run_name == "s.1"
    found: dict[str, Any] = {}
    for run in runs:
        tags = run.data.tags
        if run is parent:
            continue
        assert tags["mlflow.parentRunId"] == parent.info.run_id
        number = tags["mlflow.runName"].rpartition(" ")[2]
        curve = {
            name.removeprefix("curve/"): sorted(
                [metric.step, metric.value] for metric in client.get_metric_history(run.info.run_id, name)
            )
            for name in run.data.metrics
            if name.startswith("curve/")
        }
        results: dict[str, Any] = {
            key: value for key, value in run.data.metrics.items() if not key.startswith("curve/")
        }
        results |= {
            key.removeprefix("protein.nonfinite."): value
            for key, value in tags.items()
            if key.startswith("protein.nonfinite.")
        }
        found[number] = Written(
            params=run.data.params,
            results=results,
            curve=curve,
            facts={key.removeprefix("protein."): value for key, value in tags.items() if key.startswith("protein.")},
            tags=[tag for tag in tags["protein.tags"].split(", ") if tag],
            status=run.info.status,
            runs=found.get(number, {"runs": 0})["runs"] + 1,
        )
    return found


def _tensorboard(place: Path) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util

    found: dict[str, Any] = {}
    for folder in sorted((place / "tensorboard" / "s.1").iterdir()):
        if not folder.is_dir():
            continue
        events = EventAccumulator(str(folder), {"scalars": 0, "tensors": 0}).Reload()
        scalars = {tag: [[one.step, one.value] for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        texts = {
            tag.removeprefix("facts/"): str(
                tensor_util.make_ndarray(events.Tensors(tag)[-1].tensor_proto).item(), "utf8"
            )
            for tag in events.Tags()["tensors"]
            if tag.startswith("facts/")
        }
        params: dict[str, Any] = {}
        statuses: list[int] = []
        plugin = events.summary_metadata
        for tag in plugin:
            if plugin[tag].plugin_data.plugin_name == "hparams":
                data = plugin_data_pb2.HParamsPluginData.FromString(plugin[tag].plugin_data.content)
                for key, value in data.session_start_info.hparams.items():
                    params[key] = getattr(value, str(value.WhichOneof("kind")))
                if data.HasField("session_end_info"):
                    statuses.append(int(data.session_end_info.status))
        results = {tag: value[-1][1] for tag, value in scalars.items() if not tag.startswith("curve/")}
        found[str(int(folder.name))] = Written(
            params=params,
            results={tag: value if abs(value) < float("inf") else str(value) for tag, value in results.items()},
            curve={tag.removeprefix("curve/"): values for tag, values in scalars.items() if tag.startswith("curve/")},
            facts=texts,
            tags=texts.pop("tags", "").split(", "),
            status=statuses,
            runs=max([1, *(len(values) for tag, values in scalars.items() if tag == "cost_seconds")]),
        )
    return found


def _trackio(place: Path) -> dict[str, Any]:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    found: dict[str, Any] = {}
    for run in trackio.Api().runs("protein"):
        number = str(run.name).rpartition(" ")[2]
        config = dict(run.config or {})
        assert config["_Group"] == "s.1"
        logs = SQLiteStorage.get_logs("protein", run.name, run_id=run.id)
        curve: dict[str, list[list[float]]] = defaultdict(list)
        results: dict[str, Any] = {}
        for row in logs:
            for key, value in row.items():
                if key.startswith("curve/"):
                    curve[key.removeprefix("curve/")].append([row["step"], value])
                elif key not in ("step", "timestamp"):
                    results[key] = value if not isinstance(value, float) or abs(value) < float("inf") else str(value)
        found[number] = Written(
            params={key: value for key, value in config.items() if key in PARAMS},
            results=results,
            curve=dict(curve),
            facts={key.removeprefix("trial."): value for key, value in config.items() if key.startswith("trial.")},
            tags=str(config["tags"]).split(", "),
            status=None,
            runs=found.get(number, {"runs": 0})["runs"] + 1,
        )
    return found


def _wandb(place: Path) -> dict[str, Any]:
    from wandb.proto import wandb_internal_pb2

    found: dict[str, Any] = {}
    for folder in sorted((place / "wandb").glob("offline-run-*")):
        [file] = folder.glob("run-*.wandb")
        records = [wandb_internal_pb2.Record.FromString(data) for data in leveldb_records(file.read_bytes())]
        [run] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        assert run.project == "protein"
        assert run.run_group == "s.1"
        number = run.display_name.rpartition(" ")[2]
        config = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in run.config.update}
        curve: dict[str, list[list[float]]] = defaultdict(list)
        results: dict[str, Any] = {}
        ends = []
        for record in records:
            kind = record.WhichOneof("record_type")
            if kind == "history":
                row = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
                }
                for key, value in row.items():
                    if key.startswith("curve/") and key != "curve/steps":
                        curve[key.removeprefix("curve/")].append([row["curve/steps"], value])
            elif kind == "summary":
                for item in record.summary.update:
                    results[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            elif kind == "exit":
                ends.append(record.exit.exit_code)
        found[number] = Written(
            params={key: value for key, value in config.items() if key in PARAMS},
            results={key: _text_of_odd(value) for key, value in results.items() if not key.startswith(("curve/", "_"))},
            curve=dict(curve),
            facts={key.removeprefix("trial."): value for key, value in config.items() if key.startswith("trial.")},
            tags=list(run.tags),
            status=ends,
            runs=found.get(number, {"runs": 0})["runs"] + 1,
        )
    return found


def _text_of_odd(value: Any) -> Any:
    words = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}
    if isinstance(value, str):
        return words.get(value, value)
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)


def leveldb_records(data: bytes) -> list[bytes]:
    """Returns the records of a log in the format of LevelDB, which W&B's files have after a head of 7 bytes."""
    block, records, parts = 32_768, [], b""
    at = 7
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            records.append(parts)
            parts = b""
    return records


def _neptune(place: Path) -> dict[str, Any]:
    from neptune.cli.utils import detect_offline_dir

    found: dict[str, Any] = {}
    for folder in sorted((place / ".neptune" / "offline").iterdir()):
        assert detect_offline_dir(folder.name)[0].value == "run"  # `neptune sync` finds it
        fields: dict[str, Any] = {}
        series: dict[str, list[list[float]]] = defaultdict(list)
        text, decoder = (folder / "data-1.log").read_text(), json.JSONDecoder()
        while text.strip():
            entry, end = decoder.raw_decode(text := text.lstrip())
            text = text[end:]
            operation, path = entry["obj"], "/".join(entry["obj"]["path"])
            if operation["type"] == "LogFloats":
                series[path] += [[value["step"], value["value"]] for value in operation["values"]]
            else:
                fields[path] = operation.get("value", operation.get("values"))
        number = str(fields["trial/number"])
        assert fields["sys/group_tags"] == ["s.1"]
        results = {key.removeprefix("results/"): value for key, value in fields.items() if key.startswith("results/")}
        odd = {key.removeprefix("nonfinite/"): value for key, value in fields.items() if key.startswith("nonfinite/")}
        found[number] = Written(
            params={
                key.removeprefix("parameters/").replace("/", "."): value
                for key, value in fields.items()
                if key.startswith("parameters/")
            },
            results={key.replace("/", "."): value for key, value in {**results, **odd}.items()},
            curve={key.removeprefix("curve/"): values for key, values in series.items()},
            facts={key.removeprefix("trial/"): value for key, value in fields.items() if key.startswith("trial/")},
            tags=fields["sys/tags"],
            status=fields["sys/failed"],
            runs=found.get(number, {"runs": 0})["runs"] + 1,
        )
    return found


READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "mlflow": _mlflow,
    "neptune": _neptune,
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "wandb": _wandb,
}
