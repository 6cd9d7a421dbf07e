import pytest
import torch

from protein.trainer.machine import precision as arithmetic


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_peak_is_the_operations_of_the_fastest_product(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that gives every second product 2 ms and the others 1 ms."""
    ticks = iter([0.0, 0.002, 1.0, 1.001] * 100)
    monkeypatch.setattr("protein.trainer.machine.precision.time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr(arithmetic, "CPU_SIZE", 512)
    assert arithmetic.peak_flops(torch.device("cpu"), precision) == pytest.approx(2 * 512**3 / 0.001)


def test_slow_products_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr("protein.trainer.machine.precision.time.perf_counter", lambda: float(next(ticks)))
    assert arithmetic.peak_flops(torch.device("cpu"), "fp16") == 2 * arithmetic.FIRST_SIZE**3
