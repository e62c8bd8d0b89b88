"""The parity grid: layouts crossed with everything that must not change the numbers, and with what does.

The full product has tens of thousands of cases. Each layout gets a few, chosen so that together they cover every pair
of values of any two dimensions (a covering array, picked greedily with a fixed seed).
"""

import itertools
import random
from dataclasses import dataclass

from megalite.config import Config
from tests.parity.run import BASE

NUMBERS = {  # what changes the numbers: one reference run for each combination
    "style": ("gpt2", "llama"),
    "tied": (True, False),
    "vocab_size": (101, 128),
    "dropout": (0.0, 0.1),
    "documents": (False, True),
}
HOW = {  # what must not
    "num_microbatches": (1, 2, 3, 5, 8),
    "micro_batch_size": (1, 2),
    "sequence_parallel": (False, True),
    "zero": (0, 1),
    "recompute": (None, "selective", "uniform", "block"),
}
STYLES = {
    "gpt2": {},
    "llama": {
        "normalization": "RMSNorm",
        "position_embedding_type": "rope",
        "swiglu": True,
        "ffn_hidden_size": 24,
        "disable_bias_linear": True,
        "group_query_attention": True,
        "num_query_groups": 4,
        "qk_layernorm": True,
    },
}
RECOMPUTE = {
    None: {},
    "selective": {"recompute_granularity": "selective"},
    "uniform": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 2},
    "block": {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1},
}
LAYOUTS = [
    {"tp": tp, "pp": pp, "dp": dp, "virtual": virtual}
    for tp, pp, dp in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 3))
    if tp * pp * dp <= 8
    for virtual in (1, 2)
]
CASES_PER_LAYOUT = 2


@dataclass(frozen=True)
class Case:
    """One cell of the grid."""

    layout: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, object], ...]

    @property
    def world_size(self) -> int:
        layout = dict(self.layout)
        return layout["tp"] * layout["pp"] * layout["dp"]

    @property
    def values(self) -> frozenset:
        return frozenset(self.layout + self.options)

    @property
    def cost(self) -> int:
        """Rough time of the run: micro-batches x layers on every rank, and what tensor parallelism communicates."""
        layout, options = dict(self.layout), dict(self.options)
        layers = max(2, layout["pp"] * layout["virtual"])
        return self.world_size * options["num_microbatches"] * layers // layout["pp"] * (3 if layout["tp"] > 1 else 1)

    def config(self) -> Config:
        """The run of this cell."""
        layout, options = dict(self.layout), dict(self.options)
        return self._numbers().replace(
            tensor_model_parallel_size=layout["tp"],
            pipeline_model_parallel_size=layout["pp"],
            num_virtual_stages_per_pipeline_rank=layout["virtual"],
            micro_batch_size=options["micro_batch_size"],
            sequence_parallel=options["sequence_parallel"],
            use_distributed_optimizer=options["zero"] == 1,
            overlap_param_gather=options["zero"] == 1 and options["num_microbatches"] % 2 == 0,
            overlap_grad_reduce=options["num_microbatches"] % 3 != 0,
            ddp_bucket_size=1000,
            **RECOMPUTE[options["recompute"]],
        )

    def reference(self) -> Config:
        """The same numbers from one process and one micro-batch."""
        config = self._numbers()
        return config.replace(micro_batch_size=config.training.global_batch_size)

    def _numbers(self) -> Config:
        layout, options = dict(self.layout), dict(self.options)
        return BASE.replace(
            num_layers=max(2, layout["pp"] * layout["virtual"]),
            global_batch_size=layout["dp"] * options["num_microbatches"] * options["micro_batch_size"],
            vocab_size=options["vocab_size"],
            untie_embeddings_and_output_weights=not options["tied"],
            hidden_dropout=options["dropout"],
            attention_dropout=options["dropout"],
            reset_attention_mask=options["documents"],
            **STYLES[options["style"]],
        )

    def __str__(self) -> str:
        return "-".join(f"{name}={value}" for name, value in self.layout + self.options)


def covering_cases() -> list[Case]:
    """``CASES_PER_LAYOUT`` cases of every layout, each the one of many random ones that adds most uncovered pairs for
    its cost."""
    dice = random.Random(0)
    dimensions = NUMBERS | HOW
    covered: set[frozenset] = set()
    cases = []
    for layout in LAYOUTS * CASES_PER_LAYOUT:
        candidates = []
        for _ in range(60):
            options = {name: dice.choice(values) for name, values in dimensions.items()}
            options["sequence_parallel"] &= layout["tp"] > 1
            candidates.append(Case(tuple(layout.items()), tuple(options.items())))
        best = max(candidates, key=lambda case: len(_pairs(case) - covered) - case.cost / 120)
        covered |= _pairs(best)
        cases.append(best)
    return cases


def five_replicas() -> list[Case]:
    """Both strategies at a number of ranks that divides nothing, outside the covering array."""
    layout = {"tp": 1, "pp": 1, "dp": 5, "virtual": 1}
    common = {"tied": True, "vocab_size": 101, "dropout": 0.1, "documents": True}
    common |= {"micro_batch_size": 1, "sequence_parallel": False}
    ways = (
        {"style": "gpt2", "zero": 0, "recompute": "uniform", "num_microbatches": 2},
        {"style": "llama", "zero": 1, "recompute": "block", "num_microbatches": 2},
    )
    return [Case(tuple(layout.items()), tuple((common | way).items())) for way in ways]


def _pairs(case: Case) -> set[frozenset]:
    return {frozenset(pair) for pair in itertools.combinations(sorted(case.values, key=str), 2)}


def uncovered_pairs(cases: list[Case]) -> set[frozenset]:
    """Pairs of values of two dimensions that no case has, though some layout allows them."""
    dimensions = NUMBERS | HOW | {axis: tuple({layout[axis] for layout in LAYOUTS}) for axis in LAYOUTS[0]}
    wanted = set()
    for (first, ones), (second, others) in itertools.combinations(dimensions.items(), 2):
        wanted |= {frozenset(((first, a), (second, b))) for a in ones for b in others}
    impossible = {
        pair
        for pair in wanted
        for axes in [dict(pair)]
        if not _possible(axes)
    }
    return wanted - impossible - set().union(*(_pairs(case) for case in cases))


def _possible(axes: dict) -> bool:
    if axes.get("sequence_parallel") and axes.get("tp") == 1:
        return False
    sizes = [axes.get(axis, 1) for axis in ("tp", "pp", "dp")]
    return sizes[0] * sizes[1] * sizes[2] <= 8
