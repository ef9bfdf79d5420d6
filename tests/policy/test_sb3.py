"""Stable-Baselines3: archives and statistics made here, and real ones where it is installed."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.policy.formats import read_network, read_sb3, with_vecnormalize
from policyproof.policy.formats.sb3 import Sb3Policy
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.policy.lookalikes import (
    Instance,
    Tensor,
    box,
    class_pickle,
    discrete,
    multi_binary,
    multi_discrete,
    pickled,
    sb3_bytes,
    serialized,
    state_dict,
    torch_bytes,
    vecnormalize_bytes,
    written,
    zip_bytes,
)
from tests.policy.networks import assert_same_layers, outputs, random_inputs, random_network

DQN = "stable_baselines3.dqn.policies.DQNPolicy"
ACTOR = "stable_baselines3.common.policies.ActorCriticPolicy"
MASKABLE = "sb3_contrib.common.maskable.policies.MaskableActorCriticPolicy"
PPO_DATA = {"clip_range": {":type:": "<class>"}}
OBSERVED = box(np.full(3, -1, np.float32), np.full(3, 1, np.float32))


def q_tensors(network: Network) -> OrderedDict[str, Tensor]:
    tensors = state_dict(network, prefix="q_net.q_net.")
    tensors.update(state_dict(random_network(9), prefix="q_net_target.q_net."))
    return tensors


def actor_tensors(network: Network, shared: int = 0) -> OrderedDict[str, Tensor]:
    *hidden, last = [layer for layer in network.layers if isinstance(layer, Affine)]
    tensors: OrderedDict[str, Tensor] = OrderedDict(log_std=Tensor(np.zeros(2, np.float32)))
    for number, layer in enumerate(hidden):
        net = "shared_net" if number < shared else "policy_net"
        place = f"mlp_extractor.{net}.{2 * (number if number < shared else number - shared)}"
        tensors[f"{place}.weight"] = Tensor(layer.weights.astype(np.float32))
        tensors[f"{place}.bias"] = Tensor(layer.bias.astype(np.float32))
    tensors["mlp_extractor.value_net.0.weight"] = Tensor(np.ones((7, 3), np.float32))
    tensors["mlp_extractor.value_net.0.bias"] = Tensor(np.ones(7, np.float32))
    tensors["action_net.weight"] = Tensor(last.weights.astype(np.float32))
    tensors["action_net.bias"] = Tensor(last.bias.astype(np.float32))
    tensors["value_net.weight"] = Tensor(np.ones((1, 7), np.float32))
    tensors["value_net.bias"] = Tensor(np.ones(1, np.float32))
    return tensors


def read(tmp_path: Path, *arguments: Any, **more: Any) -> Sb3Policy:
    return read_sb3(written(tmp_path / "model.zip", sb3_bytes(*arguments, **more)))


def test_defaults_of_the_algorithms(tmp_path: Path) -> None:
    rectified, tanh = random_network(1), random_network(1, activation=Activation("tanh"))
    cases = [
        (DQN, q_tensors(rectified), {}, "DQN", rectified),
        (ACTOR, actor_tensors(tanh), PPO_DATA, "PPO", tanh),
        (ACTOR, actor_tensors(tanh), {}, "A2C", tanh),
        (ACTOR, actor_tensors(tanh), {"cg_max_steps": 15}, "TRPO", tanh),
        (MASKABLE, actor_tensors(tanh), PPO_DATA, "MaskablePPO", tanh),
        # Version 1 had layers that policy and value shared.
        (ACTOR, actor_tensors(tanh, shared=1), PPO_DATA, "PPO", tanh),
    ]
    for policy_class, tensors, data, algorithm, expected in cases:
        policy = read(tmp_path, policy_class, tensors, OBSERVED, discrete(2), data=data)
        assert (policy.algorithm, policy.kind, policy.observation) == (algorithm, "labels", "Box of shape [3]")
        assert_same_layers(policy.network, expected)
        assert any("filter" in note for note in policy.notes) == (algorithm == "MaskablePPO")
        assert_same_layers(read_network(tmp_path / "model.zip"), expected)


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("ReLU", Activation("relu")),
        ("Tanh", Activation("tanh")),
        ("Sigmoid", Activation("sigmoid")),
        ("LeakyReLU", Activation("leaky_relu", 0.01)),
    ],
)
def test_activations_that_are_named(tmp_path: Path, name: str, activation: Activation) -> None:
    network = random_network(1, activation=activation)
    settings = {"net_arch": [5, 4], "activation_fn": f"<class 'torch.nn.modules.activation.{name}'>"}
    for policy_class, tensors in ((DQN, q_tensors(network)), (ACTOR, actor_tensors(network))):
        assert_same_layers(read(tmp_path, policy_class, tensors, OBSERVED, discrete(2), settings).network, network)


def test_continuous_actions(tmp_path: Path) -> None:
    network = random_network(1, activation=Activation("tanh"))
    # The readable texts beside the pickles would round 0.1 and 1/3.
    low, high = np.array([-1, 0.1], np.float32), np.array([1 / 3, np.inf], np.float32)
    policy = read(tmp_path, ACTOR, actor_tensors(network), OBSERVED, box(low, high))
    clip = Clip(low.astype(float), high.astype(float))
    assert policy.kind == "values"
    assert_same_layers(policy.network, Network((*network.layers, clip), 3))
    assert policy.notes == ("the outputs are mean actions, clipped to the bounds (some are infinite)",)
    high[1] = 2
    policy = read(tmp_path, ACTOR, actor_tensors(network), OBSERVED, box(low, high), {"squash_output": True})
    inputs = random_inputs(network)
    expected = low + 0.5 * (np.tanh(outputs(network, inputs)) + 1) * (high.astype(float) - low)
    np.testing.assert_allclose(outputs(policy.network, inputs), expected, rtol=1e-12, atol=1e-12)


def test_observations(tmp_path: Path) -> None:
    network = random_network(1, (6, 2))
    square = box(np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32))
    cases = [
        (discrete(6), "Discrete(6), one-hot", "one-hot"),
        (multi_discrete([2, 4]), "MultiDiscrete([2, 4]), one-hot", "component by component"),
        (multi_binary(6), "MultiBinary of shape [6]", None),
        (square, "Box of shape [2, 3]", "row by row"),
    ]
    for space, text, note in cases:
        policy = read(tmp_path, DQN, state_dict(network, prefix="q_net.q_net."), space, discrete(2))
        assert policy.observation == text
        assert note is None if not policy.notes else note in policy.notes[0]
    with pytest.raises(InvalidInput, match=r"6 inputs, observations \(MultiDiscrete\(\[2, 3\]\)\) are 5 numbers"):
        read(tmp_path, DQN, state_dict(network, prefix="q_net.q_net."), multi_discrete([2, 3]), discrete(2))
    with pytest.raises(InvalidInput, match=r"2 outputs, the action space \(Discrete\(3\)\) needs 3"):
        read(tmp_path, DQN, state_dict(network, prefix="q_net.q_net."), square, discrete(3))
    policy = read(tmp_path, DQN, state_dict(network, prefix="q_net.q_net."), square, discrete(2, start=4))
    assert "starts at 4" in policy.notes[-1]


def test_everything_unsupported_is_listed(tmp_path: Path) -> None:
    network = random_network(1)
    image = box(np.zeros((3, 8, 8), np.uint8), np.full((3, 8, 8), 255, np.uint8))
    settings = {
        "activation_fn": "functools.partial(<class 'torch.nn.modules.activation.LeakyReLU'>, 0.2)",
        "features_extractor_class": "<class 'agents.Extractor'>",
    }
    with pytest.raises(UnsupportedFeature) as caught:
        read(
            tmp_path,
            "sb3_contrib.qrdqn.policies.QRDQNPolicy",
            q_tensors(network),
            image,
            multi_discrete([2, 2]),
            settings,
        )
    text = str(caught.value)
    for expected in ("QRDQN", "functools.partial", "agents.Extractor", "image observations", "several components"):
        assert expected in text
    assert len(caught.value.features) == 5
    dictionary = Instance("gymnasium.spaces.dict.Dict", {"spaces": {}})
    for policy_class, space, expected in (
        ("stable_baselines3.common.policies.MultiInputActorCriticPolicy", dictionary, "MultiInputActorCriticPolicy"),
        (
            "stable_baselines3.common.policies.MultiInputActorCriticPolicy",
            dictionary,
            "observation_space of the kind Dict",
        ),
        ("stable_baselines3.dqn.policies.CnnPolicy", image, "CnnPolicy"),
        ("sb3_contrib.common.recurrent.policies.RecurrentActorCriticPolicy", OBSERVED, "RecurrentPPO"),
        (DQN, discrete(3, start=1), "do not start at 0"),
    ):
        with pytest.raises(UnsupportedFeature, match=expected):
            read(tmp_path, policy_class, q_tensors(network), space, discrete(2))
    own = serialized(pickled(Instance("agents.Policy", {})), __module__="agents")
    with pytest.raises(UnsupportedFeature, match="a policy class of its own, from the module 'agents'"):
        read(tmp_path, DQN, q_tensors(network), OBSERVED, discrete(2), data={"policy_class": own})
    with pytest.raises(UnsupportedFeature, match=r"the layer features_extractor\.0\.weight"):
        tensors = q_tensors(network)
        tensors["features_extractor.0.weight"] = Tensor(np.ones((2, 2), np.float32))
        read(tmp_path, DQN, tensors, OBSERVED, discrete(2))


def test_damaged_archives(tmp_path: Path) -> None:
    def unreadable(members: dict[str, bytes], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            read_sb3(written(tmp_path / "a.zip", zip_bytes(members)))

    weights = torch_bytes(q_tensors(random_network(1)))
    unreadable({"data": b"{}"}, "not a model that Stable-Baselines3 saved")
    unreadable({"data": b"{", "policy.pth": weights}, "not valid JSON")
    unreadable({"data": b"[" * 100_000, "policy.pth": weights}, "nested too deeply")
    unreadable({"data": b"[]", "policy.pth": weights}, "expected an object")
    unreadable({"data": b"{}", "policy.pth": weights}, "expected an object under 'policy_class'")
    good: dict[str, Any] = {
        "policy_class": serialized(class_pickle(DQN)),
        "policy_kwargs": {},
        "observation_space": serialized(pickled(OBSERVED)),
        "action_space": serialized(pickled(discrete(2))),
    }
    for key, value, message in (
        ("policy_class", {":serialized:": "&&"}, "the pickle under 'policy_class' is damaged"),
        ("action_space", serialized(pickled({"n": 2})), "action_space: expected a space"),
        (
            "action_space",
            serialized(pickled(Instance("gymnasium.spaces.discrete.Discrete", {"dtype": None}))),
            "expected an array",
        ),
        ("observation_space", serialized(pickled(multi_discrete([]))), "expected a space|not a list of integers"),
        (
            "observation_space",
            serialized(pickled(Instance("gymnasium.spaces.box.Box", {"dtype": None}))),
            "without a shape",
        ),
        ("policy_kwargs", None, "expected an object under 'policy_kwargs'"),
    ):
        data = json.dumps({**good, key: value}).encode()
        unreadable({"data": data, "policy.pth": weights}, message)
    unreadable({"data": json.dumps(good).encode(), "policy.pth": weights[:-30]}, "not a zip archive")
    wrong = box(np.zeros(2, np.float32), np.ones(2, np.float32))
    wrong.state["_shape"] = (3,)
    data = json.dumps({**good, "observation_space": serialized(pickled(wrong))}).encode()
    unreadable({"data": data, "policy.pth": weights}, r"bounds whose shape is not \[3\]")


# VecNormalize


def test_statistics_come_before_the_network(tmp_path: Path) -> None:
    network = random_network(1)
    mean, variance = np.array([0.5, -1, 2]), np.array([0.1, 2.0, 1e-12])
    path = written(tmp_path / "vecnormalize.pkl", vecnormalize_bytes(mean, variance, clip_obs=1.5, epsilon=1e-4))
    found = with_vecnormalize(network, path)
    assert [type(layer) for layer in found.layers[:2]] == [Normalise, Clip]
    inputs = random_inputs(network)
    normal = np.clip((inputs - mean) / np.sqrt(variance + 1e-4), -1.5, 1.5)
    np.testing.assert_array_equal(outputs(found, inputs), outputs(network, normal))
    model = written(tmp_path / "a.zip", sb3_bytes(DQN, q_tensors(network), OBSERVED, discrete(2)))
    assert_same_layers(read_network(model, vecnormalize=path), found)
    unused = written(tmp_path / "b.pkl", vecnormalize_bytes(mean, variance, norm_obs=False))
    assert_same_layers(with_vecnormalize(network, unused), network)


def test_damaged_statistics(tmp_path: Path) -> None:
    network = random_network(1)
    one = np.ones(3)

    def unreadable(content: bytes, message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            with_vecnormalize(network, written(tmp_path / "a.pkl", content))

    unreadable(vecnormalize_bytes(np.ones(2), np.ones(2)), "of 2 observed values, but the network has 3 inputs")
    unreadable(vecnormalize_bytes(one, -one), "expected positive variances")
    unreadable(vecnormalize_bytes(one, one * np.nan), "expected positive variances")
    unreadable(vecnormalize_bytes(one * np.nan, one), "subtract.* is nan")
    unreadable(vecnormalize_bytes(one, one, clip_obs=-1.0), "clip_obs that is not negative")
    unreadable(vecnormalize_bytes(one, one, clip_obs="wide"), "clip_obs: expected an array")
    unreadable(vecnormalize_bytes(one, one, obs_rms=None), "without statistics of observations")
    unreadable(pickled(OBSERVED), "not a pickle of VecNormalize")
    unreadable(vecnormalize_bytes(one, one)[:-20], "damaged pickle")
    with pytest.raises(UnsupportedFeature, match="dictionary observations"):
        with_vecnormalize(network, written(tmp_path / "a.pkl", vecnormalize_bytes(one, one, obs_rms={})))
    with pytest.raises(InvalidInput, match="no such file"):
        with_vecnormalize(network, tmp_path / "missing.pkl")


# Against Stable-Baselines3 itself


def environment(observation: Any, action: Any) -> Any:
    gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium is not installed: no real policies")

    class Environment(gymnasium.Env):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.observation_space, self.action_space = observation(gymnasium.spaces), action(gymnasium.spaces)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), 0.0, False, False, {}

    return Environment()


def plain_box(spaces: Any) -> Any:
    return spaces.Box(-1, 1, (4,), np.float32)


def three(spaces: Any) -> Any:
    return spaces.Discrete(3)


def actions_box(spaces: Any) -> Any:
    return spaces.Box(np.array([-0.1, -0.3], np.float32), np.array([0.1, 0.7], np.float32))


def one_hot(space: Any, observation: Any) -> np.ndarray:
    if type(space).__name__ == "Discrete":
        return np.eye(int(space.n))[int(observation)]
    if type(space).__name__ == "MultiDiscrete":
        return np.concatenate([np.eye(int(n))[int(i)] for n, i in zip(space.nvec, observation, strict=True)])
    return np.asarray(observation, dtype=float).ravel()


REAL: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("DQN", plain_box, three, {"buffer_size": 10}),
    (
        "DQN",
        lambda spaces: spaces.Discrete(5),
        three,
        {"buffer_size": 10, "policy_kwargs": {"net_arch": [6], "activation_fn": "Tanh"}},
    ),
    ("PPO", plain_box, three, {"policy_kwargs": {"net_arch": {"pi": [7, 5], "vf": [4]}, "activation_fn": "LeakyReLU"}}),
    ("PPO", lambda spaces: spaces.MultiDiscrete([3, 4]), three, {}),
    ("PPO", lambda spaces: spaces.Box(-2, 2, (2, 3), np.float32), actions_box, {}),
    ("PPO", plain_box, actions_box, {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    ("A2C", lambda spaces: spaces.MultiBinary(4), three, {"policy_kwargs": {"net_arch": []}}),
    ("A2C", plain_box, actions_box, {"use_sde": True}),
    ("MaskablePPO", plain_box, three, {"policy_kwargs": {"activation_fn": "ReLU"}}),
]


@pytest.mark.parametrize(("algorithm", "observation", "action", "options"), REAL)
def test_real_models(tmp_path: Path, algorithm: str, observation: Any, action: Any, options: dict[str, Any]) -> None:
    baselines = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: no real models")
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed: no real models")
    torch = pytest.importorskip("torch", reason="Torch is not installed: no real models")
    settings = dict(options.get("policy_kwargs", {}))
    if "activation_fn" in settings:
        settings["activation_fn"] = getattr(torch.nn, settings["activation_fn"])
    kind = getattr(baselines, algorithm, None) or getattr(contrib, algorithm)
    made = environment(observation, action)
    model = kind("MlpPolicy", made, seed=1, **{**options, "policy_kwargs": settings})
    with torch.no_grad():
        # As initialised, actions are far from any bound and Q-values nearly equal.
        for parameter in model.policy.parameters():
            parameter.mul_(3).add_(0.05)
    model.save(tmp_path / "model")
    policy = read_sb3(tmp_path / "model.zip")
    assert policy.algorithm == algorithm
    samples = [made.observation_space.sample() for _ in range(100)]
    theirs = np.array([model.predict(sample, deterministic=True)[0] for sample in samples])
    ours = outputs(policy.network, np.array([one_hot(made.observation_space, sample) for sample in samples]))
    if policy.kind == "values":
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(ours.argmax(axis=1), theirs)


def test_real_statistics(tmp_path: Path) -> None:
    baselines = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: no real models")
    vectorised = baselines.common.vec_env
    normaliser = vectorised.VecNormalize(vectorised.DummyVecEnv([lambda: environment(plain_box, three)]), clip_obs=1.0)
    normaliser.reset()
    for _ in range(20):
        normaliser.step([0])
    normaliser.save(str(tmp_path / "statistics.pkl"))
    identity = Network((Affine(np.eye(4), np.zeros(4)),), 4)
    found = with_vecnormalize(identity, tmp_path / "statistics.pkl")
    inputs = random_inputs(identity)
    expected = [normaliser.normalize_obs(row) for row in inputs]
    np.testing.assert_allclose(outputs(found, inputs), expected, rtol=1e-6, atol=1e-6)
