"""What can be chosen: each option with its default and its meaning, which is the command's help too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from paddleport.options import Flag

Schedule: TypeAlias = Literal["constant", "linear"]


@dataclass(frozen=True)
class RunOptions:
    """What every algorithm is told."""

    algo: Literal["ppo", "a2c", "dqn"] = "ppo"
    """How to learn: ppo and a2c take every kind of action, dqn takes Discrete ones."""
    env: str = "CartPole-v1"
    """A Gymnasium id, module:Id where a module of yours registers it, or path/to/file.py:ClassName.
    gym:Id is made by classic gym. A relative path is relative to the current folder."""
    seed: int = 0
    """Seed of everything random. The same seed gives the same weights on the same machine."""
    total_steps: int = 100_000
    """Environment steps to train for, those of all environments together. A training ends with the
    iteration that reaches them: a rollout of PPO, 256 steps or more of A2C and DQN.
    With --normalize-obs the first rollout only shows the normaliser what there is, and its steps count."""
    run_dir: str = ""
    """Folder for the run, new or empty; left out, runs/<algo>-<env>-<seed>."""
    checkpoint_every: int = 0
    """Steps between checkpoints, each with an evaluation; 0 is a tenth of the total."""
    keep_checkpoints: int = 5
    """How many of the newest to keep, two or more, beside the best one and those that were quantized; 0 keeps all.
    Two are the least, since a damaged last one falls back to the one before it.
    It can be changed with --resume."""
    evaluation_episodes: int = 10
    """Episodes that each checkpoint is evaluated on, to choose the best one."""
    engine: Literal["auto", "compiled", "eager"] = "auto"
    """How updates run: as one compiled program, or in Paddle's eager mode.
    auto takes compiled on a CPU; eager on a GPU, for --amp and for --recompute."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where updates run; auto takes a GPU where Paddle sees one."""
    vector: Literal["auto", "sync", "async", "own", "envpool"] = "auto"
    """How environments step together: sync in turn, async in a process each (for slow ones), envpool in EnvPool.
    own takes the environment's own vector form.
    auto is sync, and for Atari ale-py's own."""
    step_limit_seconds: float = 60.0
    """Seconds that one environment step may take before the run stops with a message; 0 waits for ever."""
    amp: Literal["off", "O1", "O2"] = "off"
    """Mixed precision on a GPU, in the eager engine: O1 computes matrix products and convolutions in 16 bits.
    O2 keeps the weights in 16 bits too, beside float32 masters.
    Losses, advantages and the optimizer stay float32."""
    amp_dtype: Literal["float16", "bfloat16"] = "float16"
    """The 16 bits of --amp: float16 is finer, and its loss is scaled against underflow.
    bfloat16 has the range of float32 and needs a GPU of compute capability 8 or higher."""
    recompute: Flag = False
    """Compute the trunks' activations again in the backward pass, in the eager engine, instead of keeping them.
    Less memory, more time, the same gradients."""
    threads: int = 1
    """Threads within one operator on the CPU; more than one pays from about 256 units wide."""
    resume: Flag = False
    """Continue the run in --run-dir from its last checkpoint, exactly."""
    trust_code: Flag = False
    """With --resume, import the trunk that the run names, where it names one of its maker's own: that runs its code.
    Whoever names it with --trunk-class trusts it."""
    json: Flag = False
    """Print the result as JSON on stdout; progress goes to stderr."""


@dataclass(frozen=True)
class OnPolicyConfig:
    """What algorithms share that learn from what the present policy does, once, and forget it."""

    num_envs: int = 8
    """Environments that step side by side."""
    n_steps: int = 128
    """Steps that each environment takes between updates."""
    gamma: float = 0.99
    """Discount: what a reward is worth that comes one step later."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation; 1 is the n-step return."""
    learning_rate: float = 3e-4
    """The optimizer's step size at the start."""
    learning_rate_schedule: Schedule = "constant"
    """Whether the learning rate stays or falls linearly to zero."""
    value_coef: float = 0.5
    """Weight of the squared value error in the loss."""
    entropy_coef: float = 0.0
    """Weight of the entropy in the loss; more of it keeps the policy trying."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this global norm."""
    normalize_advantage: bool = True
    """Whether advantages are standardised within each minibatch."""
    normalize_obs: bool = True
    """Whether the policy normalises observations by their running mean and variance; images and choices never are."""
    normalize_reward: bool = False
    """Whether learning sees rewards divided by the running deviation of discounted returns.
    What is reported is not divided."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of the actor's and of the critic's network; behind the convolutions for images."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity after each hidden layer."""
    trunk: Literal["auto", "separate", "shared"] = "auto"
    """Whether actor and critic have a network each or one for both; auto shares it where there are images."""
    trunk_class: str = ""
    """A trunk of your own, module:Class: a paddle.nn.Layer, of which docs/training.md shows one.
    Commands that read the run import it only with --trust-code."""
    squash: bool = False
    """Whether Box actions go through tanh instead of being clipped at their bounds."""
    log_std_init: float = 0.0
    """Logarithm of the Gaussian's standard deviation at the start, in [-1, 1] coordinates."""


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al. 2017)."""

    batch_size: int = 256
    """Rows in a minibatch, at most num-envs × n-steps."""
    epochs: int = 10
    """Passes over each rollout."""
    clip_range: float = 0.2
    """How far the probability ratio may move, at the start."""
    clip_range_schedule: Schedule = "constant"
    """Whether the clip range stays or falls linearly to zero."""
    value_clip_range: float = 0.0
    """How far a value may move in an update of its rollout; 0 leaves it free."""
    target_kl: float = 0.0
    """A rollout's updates end when the approximate KL divergence is half again as large as this; 0 never ends them."""
    adam_epsilon: float = 1e-5
    """Adam's ε."""


@dataclass(frozen=True)
class A2CConfig(OnPolicyConfig):
    """Advantage actor-critic, the synchronous form of A3C (Mnih et al. 2016)."""

    n_steps: int = 5
    """Steps that each environment takes between updates."""
    gae_lambda: float = 1.0
    """λ of generalised advantage estimation; 1 is the n-step return."""
    learning_rate: float = 7e-4
    """The optimizer's step size at the start."""
    normalize_advantage: bool = False
    """Whether advantages are standardised within each update."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """RMSProp as in the paper, or Adam."""
    rmsprop_decay: float = 0.99
    """Decay of RMSProp's mean square."""
    optimizer_epsilon: float = 1e-5
    """The optimizer's ε."""


@dataclass(frozen=True)
class DQNConfig:
    """Deep Q-learning (Mnih et al. 2015) with the double, dueling, n-step and prioritised forms."""

    num_envs: int = 1
    """Environments that step side by side."""
    train_every: int = 4
    """Environment steps between learning phases, rounded up to whole steps of all environments."""
    gradient_steps: int = -1
    """Updates in a learning phase; -1 is one for each environment step."""
    batch_size: int = 64
    """Transitions in an update."""
    gamma: float = 0.99
    """Discount: what a reward is worth that comes one step later."""
    n_steps: int = 1
    """Steps that a return looks ahead."""
    learning_rate: float = 6.3e-4
    """Adam's step size at the start."""
    learning_rate_schedule: Schedule = "constant"
    """Whether the learning rate stays or falls linearly to zero."""
    target_every: int = 100
    """Environment steps between updates of the network that targets come from."""
    target_tau: float = 1.0
    """How far it then moves to the network that learns: 1 copies it, less is a soft update."""
    learning_starts: int = 1000
    """Environment steps before the first update."""
    exploration_start: float = 1.0
    """Share of random actions at the start."""
    exploration_end: float = 0.05
    """Share of random actions in the end."""
    exploration_fraction: float = 0.1
    """Share of the training over which it falls, linearly."""
    double: bool = True
    """Whether the network that learns chooses the next action and the target network values it."""
    dueling: bool = False
    """Whether Q-values are a state's value plus each action's advantage over the mean."""
    replay_capacity: int = 1_000_000
    """Transitions that the replay memory holds; memory is taken as it fills."""
    prioritized: bool = False
    """Whether transitions are drawn in proportion to their TD errors."""
    priority_exponent: float = 0.6
    """α: how much priorities count, with --prioritized; 0 draws uniformly."""
    importance_start: float = 0.4
    """β at the start: how far importance weights undo the priorities; it rises linearly to 1."""
    max_grad_norm: float = 10.0
    """Gradients are scaled down to this global norm."""
    adam_epsilon: float = 1e-8
    """Adam's ε."""
    normalize_obs: bool = False
    """Whether the policy normalises observations by their running mean and variance; images and choices never are."""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; behind the convolutions for images."""
    activation: Literal["tanh", "relu"] = "relu"
    """Non-linearity after each hidden layer."""
    trunk_class: str = ""
    """A trunk of your own, module:Class: a paddle.nn.Layer, of which docs/training.md shows one.
    Commands that read the run import it only with --trust-code."""


AlgorithmConfig: TypeAlias = PPOConfig | A2CConfig | DQNConfig
C = TypeVar("C", bound=AlgorithmConfig, covariant=True)


@dataclass(frozen=True)
class TrainConfig(Generic[C]):
    """A training run, fully resolved."""

    run: RunOptions
    algorithm: C


ALGORITHMS: dict[str, type[AlgorithmConfig]] = {"ppo": PPOConfig, "a2c": A2CConfig, "dqn": DQNConfig}
