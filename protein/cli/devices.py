"""Checks that the device of a run exists, before anything is created or started."""


def require_device(name: str) -> None:
    """Raises `trainer.errors.ConfigError` where `train.device` does not exist; `auto` and `cpu` always do."""
    if name not in ("auto", "cpu"):
        from protein.trainer.machine.precision import resolve_device  # torch takes seconds to import

        resolve_device(name)
