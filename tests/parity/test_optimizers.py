"""Every update rule at layouts that cut parameters in every way, float64, equal to one process."""

import pytest

from megalite import plugins
from tests.harness import run_world
from tests.parity.run import BASE, train
from tests.parity.test_grid import assert_equal_runs, reference

RULES = plugins.available("megalite.optim.rules")
SPLIT = {
    "tp2-sp-pp2": (4, {"tensor_model_parallel_size": 2, "sequence_parallel": True, "pipeline_model_parallel_size": 2}),
    "tp2-dp2-zero1": (4, {"tensor_model_parallel_size": 2, "use_distributed_optimizer": True}),
    "dp5-zero1": (5, {"use_distributed_optimizer": True, "overlap_param_gather": True}),
    "pp2-dp2-zero1": (4, {"pipeline_model_parallel_size": 2, "use_distributed_optimizer": True}),
}


@pytest.mark.parametrize("layout", SPLIT)
@pytest.mark.parametrize("rule", RULES)
def test_rule_equals_one_process(rule, layout):
    world_size, flags = SPLIT[layout]
    batch = 10 if layout.startswith("dp5") else 4
    config = BASE.replace(optimizer=rule, num_layers=2, vocab_size=101, global_batch_size=batch, ddp_bucket_size=1000)
    if rule == "lion":
        # The bias of the keys does not show in the softmax: its gradient is zero up to rounding; Lion takes its sign.
        config = config.replace(disable_bias_linear=True)
    got = run_world(train, world_size, config.replace(**flags))[0]
    assert_equal_runs(got, reference(config.replace(micro_batch_size=batch)), tolerance=1e-10)
