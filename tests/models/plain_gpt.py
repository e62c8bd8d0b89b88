"""GPT in plain PyTorch on one device, a function of a dict of whole parameters: the truth for models/gpt.py."""

import math

import torch
import torch.nn.functional as F


def _norm(x, params, name, model):
    weight = params[f"{name}.weight"]
    if model.normalization == "RMSNorm":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.norm_epsilon) * weight
    return F.layer_norm(x, (x.shape[-1],), weight, params[f"{name}.bias"], model.norm_epsilon)


def _rotate(x, positions, model):
    """x [b, heads, s, d], half-rotated."""
    half = x.shape[-1] // 2
    angles = positions[:, None, :, None].double() * model.rotary_base ** -(
        torch.arange(half, dtype=torch.float64) / half
    )
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


def _attention(x, params, name, model, batch):
    heads, groups, d = model.num_attention_heads, model.query_groups, model.head_dim
    per_group = heads // groups
    qkv = torch.einsum("bsh,gedh->bgesd", x, params[f"{name}.qkv.weight"])
    if f"{name}.qkv.bias" in params:
        qkv = qkv + params[f"{name}.qkv.bias"][None, :, :, None]
    query, key, value = qkv[:, :, :per_group].flatten(1, 2), qkv[:, :, per_group], qkv[:, :, per_group + 1]
    if model.qk_layernorm:
        query, key = _norm(query, params, f"{name}.q_norm", model), _norm(key, params, f"{name}.k_norm", model)
    if model.position_embedding_type == "rope":
        query, key = _rotate(query, batch["position_ids"], model), _rotate(key, batch["position_ids"], model)
    key, value = key.repeat_interleave(per_group, 1), value.repeat_interleave(per_group, 1)
    scores = query @ key.mT / math.sqrt(d)
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    if "document_ids" in batch:
        ids = batch["document_ids"]
        hidden = hidden | (ids[:, :, None] != ids[:, None, :])[:, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return _linear((weights @ value).transpose(1, 2).flatten(2), params, f"{name}.out")


def _linear(x, params, name):
    return F.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))


def _mlp(x, params, name, model):
    weight, bias = params[f"{name}.up.weight"], params.get(f"{name}.up.bias")
    if model.swiglu:
        gate, up = (F.linear(x, weight[half], None if bias is None else bias[half]) for half in (0, 1))
        return _linear(F.silu(gate) * up, params, f"{name}.down")
    inner = F.linear(x, weight, bias)
    inner = (
        F.relu(inner) ** 2 if model.squared_relu else F.relu(inner) if model.relu else F.gelu(inner, approximate="tanh")
    )
    return _linear(inner, params, f"{name}.down")


def loss_sum(params, model, batch):
    """Sum of the unmasked tokens' losses; params by canonical name, whole; batch fields [b, s]."""
    x = params["embedding.word.weight"][batch["tokens"]]
    if model.position_embedding_type == "learned_absolute":
        x = x + params["embedding.position.weight"][batch["position_ids"]]
    for i in range(model.num_layers):
        x = x + _attention(_norm(x, params, f"layers.{i}.norm1", model), params, f"layers.{i}.attention", model, batch)
        x = x + _mlp(_norm(x, params, f"layers.{i}.norm2", model), params, f"layers.{i}.mlp", model)
    output = params["embedding.word.weight" if model.tied else "head.weight"]
    logits = F.linear(_norm(x, params, "final_norm", model), output)
    losses = F.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), reduction="none", label_smoothing=model.label_smoothing
    )
    return (losses * batch["loss_mask"].flatten()).sum()
