"""Whether the device that a run asks for is there, found out before anything is made or started."""


def require_device(name: str) -> None:
    """Raises `trainer.errors.ConfigError` where `train.device` is not there; `auto` and `cpu` always are."""
    if name not in ("auto", "cpu"):
        from protein.trainer.machine.precision import resolve_device  # torch takes seconds to import

        resolve_device(name)
