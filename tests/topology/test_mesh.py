from hypothesis import given, strategies as st

import pytest

from megalite.errors import ConfigError
from megalite.topology.mesh import AXES, Mesh

sizes = st.integers(1, 4)
meshes = st.builds(Mesh, tp=sizes, cp=sizes, dp=sizes, pp=sizes)


@given(meshes)
def test_coords_and_rank_of_are_inverse(mesh):
    ranks = [mesh.rank_of(**mesh.coords(rank)._asdict()) for rank in range(mesh.world_size)]
    assert ranks == list(range(mesh.world_size))


@given(meshes, st.sets(st.sampled_from(AXES)))
def test_groups_partition_the_world(mesh, axes):
    groups = mesh.groups(sorted(axes))
    assert sorted(rank for group in groups for rank in group) == list(range(mesh.world_size))
    assert {len(group) for group in groups} == {mesh.size(sorted(axes))}


def test_megatron_rank_order():
    """tp 2 x pp 4 x dp 2 of 16 ranks, as listed in Megatron-LM's documentation."""
    mesh = Mesh(tp=2, dp=2, pp=4)
    assert mesh.groups(["tp"]) == [(r, r + 1) for r in range(0, 16, 2)]
    assert mesh.groups(["dp"]) == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert mesh.groups(["pp"]) == [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]


def test_world_that_does_not_divide_names_all_numbers():
    with pytest.raises(
        ConfigError, match=r"world size \(3\) must be divisible by tensor \(2\) x pipeline \(1\) .*= 2: start 2, 4, 8"
    ):
        Mesh.from_world(3, tp=2)
    with pytest.raises(
        ConfigError, match=r"data-parallel size \(3\) must be divisible by expert_model_parallel_size \(2\)"
    ):
        Mesh.from_world(3, ep=2)
    assert Mesh.from_world(12, tp=2, pp=3).dp == 2
