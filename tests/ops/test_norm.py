import math

import pytest
import torch

from megalite.ops.norm import sum_of_squares


def test_accumulates_in_float64():
    # 2^24 ones after a large element: a float32 sum would stop growing at 2^24
    tensor = torch.ones(2**24 + 1)
    tensor[0] = 2.0**12
    assert sum_of_squares(tensor).item() == 2**24 + 2**24
    assert sum_of_squares(torch.full((2,), 3e38)).item() == pytest.approx(2 * 9e76, rel=1e-6)


def test_empty_and_low_precision():
    assert sum_of_squares(torch.empty(0)).item() == 0.0
    assert sum_of_squares(torch.full((300_000,), 3.0, dtype=torch.bfloat16)).item() == 2_700_000


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_one_bad_element_is_seen(value):
    tensor = torch.ones(300_000)
    tensor[-1] = value
    assert not math.isfinite(sum_of_squares(tensor).item())
