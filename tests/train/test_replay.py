import numpy as np
import pytest

from train.replay import Replay, SumTree


def replay(**options):
    """Ten slots of one environment whose observation at step t is t and whose reward there is 10ᵗ mod 1000."""
    settings = {"capacity": 10, "num_envs": 1, "obs_shape": (1,), "obs_dtype": "float32", "n_steps": 1, "gamma": 0.5}
    return Replay(**{**settings, **options})


def append(memory, obs, reward=1.0, *, terminated=False, truncated=False, valid=True):
    memory.append(
        obs=np.array([[obs]], np.float32),
        action=np.array([int(obs)]),
        reward=np.array([reward]),
        terminated=np.array([terminated]),
        done=np.array([terminated or truncated]),
        valid=np.array([valid]),
    )


def by_obs(memory, size=400):
    """Every transition that comes up, by its observation."""
    sample = memory.sample(size, np.random.default_rng(0))
    rows = zip(sample.obs[:, 0], sample.returns, sample.next_obs[:, 0], sample.discounts, strict=True)
    return {float(obs): (float(ret), float(following), float(discount)) for obs, ret, following, discount in rows}


def test_one_step_transitions_hold_the_observation_behind_them():
    memory = replay()
    for step in range(4):
        append(memory, step, reward=step + 1)
    assert by_obs(memory) == {0: (1, 1, 0.5), 1: (2, 2, 0.5), 2: (3, 3, 0.5)}


def test_n_step_returns_are_the_sums_by_hand():
    memory = replay(n_steps=3)
    for step in range(6):
        append(memory, step, reward=step + 1)
    assert by_obs(memory)[0] == (1 + 0.5 * 2 + 0.25 * 3, 3, 0.125)
    assert set(by_obs(memory)) == {0, 1, 2}


@pytest.mark.parametrize(("terminated", "discount"), [(True, 0.0), (False, 0.25)])
def test_n_step_returns_stop_at_an_episodes_end(terminated, discount):
    memory = replay(n_steps=3)
    append(memory, 0, reward=1)
    append(memory, 1, reward=2, terminated=terminated, truncated=not terminated)
    append(memory, 2, reward=0, valid=False)
    for step in (50, 51, 52, 53):
        append(memory, step, reward=1000)
    transitions = by_obs(memory)
    assert transitions[0] == (1 + 0.5 * 2, 2, discount)
    assert transitions[1] == (2, 2, 0.0 if terminated else 0.5)
    assert 2 not in transitions


def test_a_cut_episode_bootstraps_from_the_observation_it_was_cut_at():
    memory = replay(n_steps=2)
    append(memory, 0, reward=1)
    append(memory, 1, reward=2)
    memory.cut(np.array([[2.0]], np.float32))
    append(memory, 70, reward=1000)
    assert by_obs(memory) == {0: (1 + 0.5 * 2, 2, 0.25), 1: (2, 2, 0.5)}


def test_the_ring_forgets_the_oldest_and_mixes_nothing_at_its_seam():
    memory = replay(n_steps=2)
    for step in range(27):
        append(memory, step, reward=step)
    transitions = by_obs(memory)
    assert set(transitions) == {float(step) for step in range(17, 25)}
    for step, (ret, following, _) in transitions.items():
        assert (ret, following) == (step + 0.5 * (step + 1), step + 2)


def test_uniform_sampling_is_uniform():
    memory = replay(capacity=40)
    for step in range(41):
        append(memory, step, valid=step % 2 == 0)
    drawn = memory.sample(40_000, np.random.default_rng(0)).obs[:, 0].astype(int)
    counts = np.bincount(drawn, minlength=41)[2:40:2]
    assert counts == pytest.approx(np.full(len(counts), counts.mean()), rel=0.1)
    assert not np.bincount(drawn)[1::2].any()


def test_priorities_decide_frequencies_and_weights_undo_them():
    memory = replay(exponent=0.6)
    for step in range(5):
        append(memory, step)
    memory.update_priorities(np.arange(4), np.array([1.0, 2.0, 4.0, 8.0]))
    sample = memory.sample(100_000, np.random.default_rng(0), beta=1.0)
    expected = np.array([1.0, 2.0, 4.0, 8.0]) ** 0.6
    assert np.bincount(sample.rows, minlength=4)[:4] / 100_000 == pytest.approx(expected / expected.sum(), abs=0.005)
    by_row = {int(row): float(weight) for row, weight in zip(sample.rows, sample.weight, strict=True)}
    assert [by_row[row] for row in range(4)] == pytest.approx(expected[0] / expected, rel=1e-5)


def test_a_new_transition_has_the_largest_priority_so_far():
    memory = replay(exponent=1.0)
    for step in range(3):
        append(memory, step)
    memory.update_priorities(np.array([0, 1]), np.array([9.0, 1.0]))
    append(memory, 3)
    rows = memory.sample(19_000, np.random.default_rng(0)).rows
    assert np.bincount(rows, minlength=3)[:3] == pytest.approx([9_000, 1_000, 9_000], rel=0.05)


@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_a_restored_replay_samples_the_same(exponent):
    memory, other = replay(exponent=exponent), replay(exponent=exponent)
    for step in range(27):
        append(memory, step)
    memory.update_priorities(np.array([0, 3]), np.array([5.0, 0.1]))
    other.restore(memory.state())
    for each in (memory, other):
        append(each, 27)
    first, second = (each.sample(64, np.random.default_rng(3), 0.5) for each in (memory, other))
    assert (first.rows == second.rows).all()
    assert (first.weight == second.weight).all()
    assert (first.next_obs == second.next_obs).all()


def test_a_sum_tree_finds_each_leaf_by_its_part_of_the_total():
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([1.0, 0.0, 2.0, 3.0, 0.0]))
    assert tree.total == 6
    assert tree.find(np.array([0.0, 0.99, 1.0, 2.99, 3.0, 5.99])).tolist() == [0, 0, 2, 2, 3, 3]
