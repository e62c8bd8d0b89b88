"""The table of parameters, against the models that are built."""

import pytest
import torch

from megalite.convert.parameters import parameter_shapes
from megalite.models import gpt
from megalite.nn.context import LayerContext
from tests.models.cases import gpt2, llama

MODELS = [
    gpt2(),
    gpt2(disable_bias_linear=True, add_qkv_bias=True, position_embedding_type="none", qk_layernorm=True),
    llama(),
    llama(num_query_groups=1, untie_embeddings_and_output_weights=False, qk_layernorm=True, kv_channels=6),
    llama(disable_bias_linear=False, normalization="LayerNorm", position_embedding_type="learned_absolute"),
]


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
def test_names_and_shapes_are_those_of_the_built_model(model):
    context = LayerContext(device=torch.device("meta"))
    specs = [parameter.spec for unit in gpt.units(model) for parameter in unit.build(context, {}).parameters()]
    assert parameter_shapes(model) == {spec.name: spec.global_shape for spec in specs}
    assert sum(torch.Size(shape).numel() for shape in parameter_shapes(model).values()) == gpt.num_parameters(model)
