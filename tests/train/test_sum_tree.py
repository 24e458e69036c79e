import numpy as np
import pytest

from train.sum_tree import SumTree


def test_a_sum_tree_finds_each_leaf_by_its_part_of_the_total():
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([1.0, 0.0, 2.0, 3.0, 0.0]))
    assert tree.total == 6
    assert tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 5.99])).tolist() == [0, 0, 2, 2, 3, 3]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 256, 257, 5000, 70_000])
def test_a_sum_tree_agrees_with_a_running_total_of_its_leaves(size):
    rng = np.random.default_rng(size)
    values = np.zeros(size)
    tree = SumTree(size)
    for _ in range(20):
        leaves = rng.integers(size, size=40)
        new = np.round(rng.random(40) * 8) * (rng.random(40) < 0.7)  # whole numbers: sums are exact in any order
        tree.set(leaves, new)
        values[leaves] = new
    assert (tree.leaves(size) == values).all()
    assert tree.total == values.sum()
    sums = np.append(np.arange(values.sum()), values.sum() - 0.5)
    assert (tree.find(sums) == np.searchsorted(values.cumsum(), sums, side="right")).all()


@pytest.mark.parametrize("size", [3, 300, 20_000])
def test_a_leaf_of_no_value_is_never_found_whatever_rounding_does(size):
    rng = np.random.default_rng(size)
    values = rng.random(size) ** 20 * (rng.random(size) < 0.4)
    values[size // 2] = 1e-9
    tree = SumTree(size)
    tree.set(np.arange(size), values)
    sums = np.concatenate([rng.random(2000), [0, 1 - 1e-16, 1, 1 + 1e-9]]) * tree.total
    assert (values[tree.find(sums)] > 0).all()
