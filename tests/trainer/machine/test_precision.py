import pytest
import torch

from protein.trainer.errors import ConfigError
from protein.trainer.machine import precision
from protein.trainer.machine import precision as arithmetic
from protein.trainer.machine.precision import Arithmetic

CPU = torch.device("cpu")


def test_threads_and_kernels_follow_from_the_size_of_the_work_and_are_restored() -> None:
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    with Arithmetic(CPU, threads=2) as arithmetic:
        arithmetic.prepare(samples=64, weights=64 * 64)
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (1, "highest")
        arithmetic.prepare(samples=8192, weights=256 * 256)
        assert torch.get_num_threads() == 2
        assert torch.get_float32_matmul_precision() == ("medium" if arithmetic.allowed else "highest")
        arithmetic.prepare(samples=64, weights=64 * 64)
        assert torch.get_num_threads() == 1
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before


def test_large_products_keep_the_precision_of_float32() -> None:
    """Whatever this machine's kernels do: float32 rounds to 1e-7, bfloat16 would to 1e-2."""
    x, w = torch.rand(8192, 64), torch.rand(64, 64)
    with Arithmetic(CPU, threads=1) as arithmetic:
        arithmetic.prepare(samples=8192, weights=64 * 64)
        for product, exact in ((x @ w, x.double() @ w.double()), (x.t() @ x, x.t().double() @ x.double())):
            assert ((product - exact).abs().max() / exact.abs().max()).item() < 1e-5


def test_kernels_that_lose_precision_are_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_probe_error", lambda: 1e-3)
    with Arithmetic(CPU, threads=1) as arithmetic:
        arithmetic.prepare(samples=8192, weights=256 * 256)
        assert torch.get_float32_matmul_precision() == "highest"


def test_convolutions_are_in_bfloat16_only_where_the_processor_has_its_products(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for there in (True, False):
        monkeypatch.setattr(precision, "has_bf16_products", lambda _, there=there: there)
        assert precision.half_convolutions(CPU, "auto") is there
        assert not precision.half_convolutions(CPU, "fp32")
        assert not precision.half_convolutions(torch.device("cuda"), "auto")


def test_a_card_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    line = "train.device 'cuda:1' is not available on this machine: use 'auto', 'cuda:0' or 'cpu'"
    with pytest.raises(ConfigError, match=f"^{line}$"):
        precision.resolve_device("cuda:1")
    assert precision.resolve_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ConfigError, match="'mps' is not available"):
        precision.resolve_device("mps")


def test_devices() -> None:
    assert precision.resolve_device("cpu") == CPU
    assert precision.resolve_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(ConfigError, match="'cuda:99' is not available on this machine: use 'auto' or 'cpu'"):
        precision.resolve_device("cuda:99")
    assert precision.resolve_threads(3) == 3
    assert precision.resolve_threads(0) >= 1


def test_on_cuda_tensor_cores_are_used_unless_full_precision_is_asked_for() -> None:
    """The settings are PyTorch's own, so this needs no GPU."""

    def now() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = now()
    for wanted, expected in (("auto", ("high", True)), ("tf32", ("high", True)), ("fp32", ("highest", False))):
        with Arithmetic(torch.device("cuda"), threads=1, precision=wanted):
            assert now() == expected
        assert now() == before
    with Arithmetic(CPU, threads=1, precision="auto"):
        assert now() == ("highest", before[1])


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
