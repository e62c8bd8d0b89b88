"""Normal numbers from random words (Box and Muller 1958) that are the same bits on every machine.

Libraries differ in the last bits of log, cos and sin. Here these are computed in float64 from additions,
multiplications, divisions and square roots alone, each of which IEEE 754 rounds correctly: so a GPU, another CPU and
the native kernel (csrc/cpu/kernels/philox.cpp) agree. The order of operations is part of the definition, and no two may
be fused.
"""

import math

import torch

_ATANH = [2 / k for k in range(1, 24, 2)]
"""2 atanh(s) = s * sum of _ATANH[k] * s^2k."""
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]
_LOG_2 = 0.6931471805599453
_TURN = 6.283185307179586 * 2.0**-32
"""One turn is 2^32 units of angle."""


def box_muller(words: torch.Tensor) -> torch.Tensor:
    """Standard normals, float64, from 32-bit words (int64 [..., 4]): two pairs of a radius word and an angle word.

    With u = word + 1, the radius is sqrt(-2 ln(u / 2^32)) and the angle u / 2^32 of a turn; a pair gives the radius
    times the cosine, and times the sine.
    """
    units = words.view(*words.shape[:-1], 2, 2) + 1
    radius = _radius(units[..., 0])
    cos, sin = _cos_sin(units[..., 1])
    return torch.stack((radius * cos, radius * sin), dim=-1).flatten(-2)


def _radius(u: torch.Tensor) -> torch.Tensor:
    """sqrt(-2 ln(u / 2^32)): u = m 2^e with m in [0.75, 1.5), and ln(m) = 2 atanh((m - 1) / (m + 1))."""
    bits = u.double().view(torch.int64)
    above = (bits >> 51) & 1  # the mantissa is 1.5 or more
    exponent = (bits >> 52) - 1023 + above
    m = ((bits & 0xFFFFFFFFFFFFF) | ((1023 - above) << 52)).view(torch.float64)
    s = (m - 1).div_(m + 1)
    log = (exponent.double() - 32).mul_(_LOG_2).add_(_polynomial(_ATANH, s * s).mul_(s))
    return log.mul_(-2).sqrt_()


def _cos_sin(u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of u / 2^32 of a turn: whole quarters, and a rest within an eighth of a turn."""
    quarter = (u + (1 << 29)) >> 30
    x = (u - (quarter << 30)).double().mul_(_TURN)
    square = x * x
    cos, sin = _polynomial(_COS, square), _polynomial(_SIN, square).mul_(x)
    odd = (quarter & 1) != 0
    cos, sin = torch.where(odd, sin, cos), torch.where(odd, cos, sin)
    cos = torch.where(((quarter + 1) & 2) != 0, -cos, cos)
    return cos, torch.where((quarter & 2) != 0, -sin, sin)


def _polynomial(terms: list[float], x: torch.Tensor) -> torch.Tensor:
    total = torch.full_like(x, terms[-1])
    for term in reversed(terms[:-1]):
        total.mul_(x).add_(term)
    return total
