"""Update rules of one parameter as their papers or torch.optim write them: the truth for ``megalite/optim/rules``."""

from typing import Callable

import torch

from megalite.config import OptimizerConfig

LR, EPS, BETA1, BETA2, MOMENTUM = 0.01, 1e-8, 0.8, 0.9, 0.7
CONFIG = OptimizerConfig(
    lr=LR, adam_beta1=BETA1, adam_beta2=BETA2, adam_eps=EPS, sgd_momentum=MOMENTUM, lion_beta1=BETA1, lion_beta2=BETA2
)

Step = Callable[[], object]


def adam(param: torch.nn.Parameter, weight_decay: float) -> Step:
    betas = (BETA1, BETA2)
    return torch.optim.AdamW([param], lr=LR, betas=betas, eps=EPS, weight_decay=weight_decay, foreach=False).step


def sgd(param: torch.nn.Parameter, weight_decay: float) -> Step:
    return torch.optim.SGD([param], lr=LR, momentum=MOMENTUM, weight_decay=weight_decay, foreach=False).step


def adafactor(param: torch.nn.Parameter, weight_decay: float) -> Step:
    # torch takes the smaller of lr and 1/sqrt(step); tests stay below the 10^4 steps at which that begins to differ
    return torch.optim.Adafactor([param], lr=LR, weight_decay=weight_decay, foreach=False).step


def lion(param: torch.nn.Parameter, weight_decay: float) -> Step:
    momentum = torch.zeros_like(param)

    def step() -> None:
        direction = torch.sign(BETA1 * momentum + (1 - BETA1) * param.grad)
        param.data -= LR * (direction + weight_decay * param.data)
        momentum.copy_(BETA2 * momentum + (1 - BETA2) * param.grad)

    return step


def lamb(param: torch.nn.Parameter, weight_decay: float) -> Step:
    mean, mean_square, number = torch.zeros_like(param), torch.zeros_like(param), 0

    def step() -> None:
        nonlocal number
        number += 1
        mean.copy_(BETA1 * mean + (1 - BETA1) * param.grad)
        mean_square.copy_(BETA2 * mean_square + (1 - BETA2) * param.grad**2)
        ratio = mean / (1 - BETA1**number) / (torch.sqrt(mean_square / (1 - BETA2**number)) + EPS)
        direction = ratio + weight_decay * param.data
        trust = torch.linalg.norm(param.data) / torch.linalg.norm(direction)
        param.data -= LR * trust * direction

    return step


PLAIN = {"adam": adam, "sgd": sgd, "adafactor": adafactor, "lion": lion, "lamb": lamb}
