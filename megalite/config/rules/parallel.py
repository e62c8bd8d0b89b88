"""Rules of the layout over ranks."""

from typing import Iterator

from megalite.config.report import nearest_multiples
from megalite.config.root import Config
from megalite.errors import ConfigError


def layout_fills_the_world(config: Config, world_size: int) -> Iterator[str]:
    parallel = config.parallel
    tp, pp = parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size
    cp = parallel.context_parallel_size
    model = tp * pp * cp
    if world_size % model:
        yield (
            f"the number of processes ({world_size}) must be divisible by tensor_model_parallel_size ({tp}) x "
            f"pipeline_model_parallel_size ({pp}) x context_parallel_size ({cp}) = {model}: start "
            f"{nearest_multiples(world_size, model)} processes (torchrun --nproc-per-node), or change the sizes."
        )


def no_context_parallelism_yet(config: Config, world_size: int) -> Iterator[str]:
    if config.parallel.context_parallel_size != 1:
        yield (
            f"context_parallel_size must be 1, because sequences are not split over ranks yet; given "
            f"{config.parallel.context_parallel_size}: use tensor_model_parallel_size with --sequence-parallel."
        )


def no_expert_parallelism_yet(config: Config, world_size: int) -> Iterator[str]:
    if config.parallel.expert_model_parallel_size != 1:
        yield (
            f"expert_model_parallel_size must be 1, because there are no experts yet; given "
            f"{config.parallel.expert_model_parallel_size}: drop the flag."
        )


def sequence_parallel_divides_sequence(config: Config, world_size: int) -> Iterator[str]:
    length, tp = config.model.seq_length, config.parallel.tensor_model_parallel_size
    if config.parallel.sequence_parallel and length % tp:
        yield (
            f"seq_length ({length}) must be divisible by tensor_model_parallel_size ({tp}) under sequence_parallel: "
            f"use {nearest_multiples(length, tp)}."
        )


def one_way_to_virtual_stages(config: Config, world_size: int) -> Iterator[str]:
    parallel = config.parallel
    ways = {
        "num_layers_per_virtual_pipeline_stage": parallel.num_layers_per_virtual_pipeline_stage,
        "num_virtual_stages_per_pipeline_rank": parallel.num_virtual_stages_per_pipeline_rank,
        "pipeline_model_parallel_layout": parallel.pipeline_model_parallel_layout,
    }
    given = [f"{name} {value}" for name, value in ways.items() if value is not None]
    if len(given) > 1:
        yield f"virtual pipeline stages must be set in one way; given {', '.join(given)}: keep one."


def virtual_stages_come_out_even(config: Config, world_size: int) -> Iterator[str]:
    try:
        config.virtual_stages
    except ConfigError as error:
        yield str(error)


def microbatch_groups_need_virtual_stages(config: Config, world_size: int) -> Iterator[str]:
    parallel = config.parallel
    size = parallel.microbatch_group_size_per_virtual_pipeline_stage
    interleaved = parallel.num_layers_per_virtual_pipeline_stage or parallel.pipeline_model_parallel_layout
    if size is not None and not interleaved and (parallel.num_virtual_stages_per_pipeline_rank or 1) == 1:
        yield (
            f"microbatch_group_size_per_virtual_pipeline_stage ({size}) needs several virtual stages per rank: add "
            "--num-virtual-stages-per-pipeline-rank, or drop it."
        )


def parameter_gather_needs_sharded_optimizer(config: Config, world_size: int) -> Iterator[str]:
    if config.parallel.overlap_param_gather and not config.parallel.use_distributed_optimizer:
        yield "overlap_param_gather needs use_distributed_optimizer: add --use-distributed-optimizer, or drop it."
