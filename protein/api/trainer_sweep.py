"""A sweep that runs the trainer: its definition from the layers of configuration, and its designer."""

from protein.api.definition import NAME_LENGTH, check_name
from protein.config.layers import Layers, flatten
from protein.config.resolve import file_name, make_space
from protein.config.settings import SweepConfig
from protein.engine.settings import EngineSettings
from protein.ports import Designer
from protein.space import Space
from protein.sweep import provenance, source_snapshot
from protein.sweep.methods import make_designer
from protein.trainer import environments
from protein.trainer.config import check_batch
from protein.types import SweepSpec


def define(env: str, layers: Layers, settings: SweepConfig, name: str | None) -> SweepSpec:
    """Returns what defines the sweep; it has no warm start yet.

    Args:
        env: the environment.
        layers: the configuration of its runs.
        settings: how to search.
        name: of the sweep; None: the environment's.

    Raises:
        UsageError: the name cannot be used.
        ConfigError: a value or a range cannot be used (`trainer.errors.ConfigError` for what the trainer refuses).
    """
    config = layers.run_config()
    check_batch(config, environments.spec(env, config.env.args).agents_per_env)
    space = make_space(layers)
    if name is None:
        name = file_name(env)[:NAME_LENGTH]
    check_name(name, "--name")
    nested = config.to_dict()
    return SweepSpec(
        name=name,
        env=env,
        method=settings.method,
        seed=settings.seed,
        space=space.to_dict(),
        config=nested,
        provenance=provenance.collect(nested),
    )


def designer(spec: SweepSpec, settings: SweepConfig) -> Designer:
    """Returns the designer of a sweep; it tries the configured values first. Raises `UsageError` as `make_designer`."""
    space = Space.from_dict(spec.space)
    values = flatten(spec.config)
    return make_designer(
        spec.method,
        space,
        {name: values[name] for name in space.names},
        seed=spec.seed,
        settings=EngineSettings(early_stopping=settings.early_stopping),
        warm_start=source_snapshot.observations(spec.warm_start),
    )
