import pytest
import torch

from megalite.ops.adamw import AdamW, adamw_, reference_adamw_

NUMBERS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


def train(update, dtype, factor, steps=20, size=1003):
    """Final parameters, and those of torch.optim.AdamW in float64 on the same gradients."""
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(size, dtype=torch.float64, generator=generator)
    grads = torch.randn(steps, size, dtype=torch.float64, generator=generator).to(dtype)
    param, moments = start.to(dtype), (torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype))
    truth = torch.nn.Parameter(start.to(dtype).double())
    optimizer = torch.optim.AdamW([truth], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    for step in range(1, steps + 1):
        update(param, grads[step - 1].clone(), moments, AdamW(**NUMBERS, step=step, grad_factor=factor))
        truth.grad = grads[step - 1].double() * factor
        optimizer.step()
    return param.double(), truth.detach()


@pytest.mark.parametrize("factor", [1.0, 1 / 3, 1e-4])
@pytest.mark.parametrize("update", [adamw_, reference_adamw_])
def test_equals_torch_in_float64(update, factor):
    actual, expected = train(update, torch.float64, factor)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("factor", [1.0, 1 / 3])
def test_float32_is_as_exact_as_plain_torch(factor):
    fused, expected = train(adamw_, torch.float32, factor)
    plain, _ = train(reference_adamw_, torch.float32, factor)
    assert (fused - expected).abs().max() <= 2 * (plain - expected).abs().max()
    torch.testing.assert_close(fused, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1 / 3])
def test_the_kernel_is_as_exact_as_plain_torch(isa, factor):
    fused, expected = train(adamw_, torch.float32, factor)
    plain, _ = train(reference_adamw_, torch.float32, factor)
    assert (fused - expected).abs().max() <= 2 * (plain - expected).abs().max()
    torch.testing.assert_close(fused, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 15, 17, 70_001])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_copy_is_the_rounded_parameter(implementation, size, dtype):
    tensors, copy = [torch.rand(size) for _ in range(4)], torch.zeros(size, dtype=dtype)
    adamw_(tensors[0], tensors[1], (tensors[2], tensors[3]), AdamW(**NUMBERS, step=2, grad_factor=0.5), copy)
    assert torch.equal(copy, tensors[0].to(dtype))


def test_result_of_an_element_does_not_depend_on_the_aligned_slice_it_is_in():
    # Buckets and their slices are multiples of 64 elements, so that no element falls in the scalar tail of PyTorch's.
    def update(start, stop):
        generator = torch.Generator().manual_seed(2)
        tensors = [torch.rand(4096, generator=generator)[start:stop] for _ in range(4)]
        adamw_(tensors[0], tensors[1], (tensors[2], tensors[3]), AdamW(**NUMBERS, step=3, grad_factor=0.3))
        return torch.stack([tensors[0], tensors[2], tensors[3]])

    parts = [update(start, stop) for start, stop in ((0, 64), (64, 192), (192, 1024), (1024, 4096))]
    assert torch.equal(torch.cat(parts, dim=1), update(0, 4096))


def test_zeros_stay_zero():
    tensors = [torch.zeros(70) for _ in range(4)]
    adamw_(tensors[0], tensors[1], (tensors[2], tensors[3]), AdamW(**NUMBERS, step=1, grad_factor=0.5))
    assert all((tensor == 0).all() for tensor in tensors)
