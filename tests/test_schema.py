"""Variables and schemas: what they accept, what clashes, and the ways in and out."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab import HDF5Logger, open_run
from simlab.errors import MissingPackageError, RunNotFoundError, SchemaError, StorageError
from simlab.schema import Schema, Variable
from simlab.schema.files import as_schema
from simlab.schema.names import disk_name, is_kept, is_plain

# -- variables


def test_defaults() -> None:
    v = Variable("speed")
    assert (v.shape, v.dtype, v.kind, v.dims, v.units, v.compression) == ((), np.dtype("float32"), "continuous", (), "1", "inherit")


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "dims"),
    [
        ((), "int8", "discrete", ()),
        (4, "float32", "continuous", ("x_channel",)),
        ([11, 11], "uint8", "image", ("x_y", "x_x")),
        (np.array([11, 11, 3]), "float32", "image", ("x_y", "x_x", "x_channel")),
        ((np.int64(1), 9), "float32", "continuous", ("x_y", "x_x")),
        ((2, 3, 4, 5), bool, "boolean", ("x_axis0", "x_axis1", "x_axis2", "x_axis3")),
        ((), str, "text", ()),
        ((), "datetime64[s]", "time", ()),
    ],
)
def test_what_follows_from_shape_and_dtype(shape: Any, dtype: Any, kind: str, dims: tuple[str, ...]) -> None:
    v = Variable("x", shape, dtype)
    assert (v.kind, v.dims) == (kind, dims)
    assert v.has_natural_dims
    assert all(type(n) is int for n in v.shape)
    assert Variable.from_dict(json.loads(json.dumps(v.to_dict()))) == v


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "A variable's name is empty"),
        ({"name": 5}, "A variable's name must be text, not 5"),
        ({"name": "time"}, "the run keeps 'time' for itself. Choose another name, such as 'time_value'."),
        ({"name": "a\ud800"}, r"A variable cannot be called 'a\\ud800': '\\ud800' is half of a surrogate pair"),
        ({"shape": (1,) * 29}, "'x' has 29 axes; a file holds 28 at most"),
        ({"name": "logged_1"}, "the run keeps 'logged_1' for itself"),
        ({"shape": (0,)}, r"'x' has shape \(0,\); give a tuple of whole numbers above zero"),
        ({"shape": (2.0,)}, "has shape"),
        ({"shape": True}, "has shape True"),
        ({"shape": "3"}, "has shape '3'"),
        ({"dtype": "int33"}, "'x' has dtype 'int33', which numpy does not know"),
        ({"dtype": None}, "'x' has dtype None, which numpy does not know"),
        ({"dtype": "f4,("}, "'x' has dtype"),
        ({"dtype": object}, "'x' has dtype object, which a run cannot hold"),
        ({"dtype": "i4,f4"}, "which a run cannot hold"),
        ({"dtype": "(2,)f4"}, "which a run cannot hold"),
        ({"dtype": "datetime64"}, r"without a unit. Give it one: 'datetime64\[us\]'"),
        ({"kind": "picture"}, "has kind 'picture'; use one of"),
        ({"kind": "discret"}, "Did you mean 'discrete'"),
        ({"channels": ["a"]}, r"1 channel labels but shape \(\)"),
        ({"channels": ["a", "a"], "shape": 2}, "with a label twice"),
        ({"channels": "ab", "shape": 2}, "give a list of text"),
        ({"channels": ["a", ""], "shape": 2}, "with the label ''"),
        ({"channels": ["a", "b\0"], "shape": 2}, "with the label"),
        ({"categories": ["a"], "dtype": "float32"}, "categories name whole numbers"),
        ({"categories": [], "dtype": "int8"}, "give a list of text"),
        ({"categories": [True, False], "dtype": "int8"}, "In YAML the words yes, no, on and off need quotes"),
        ({"categories": [str(i) for i in range(129)], "dtype": "int8"}, "129 categories, more than int8 counts"),
        ({"every": 0}, "has every=0"),
        ({"every": True}, "has every=True"),
        ({"units": None}, "has units=None; give text"),
        ({"compression": True}, "has compression=True"),
        ({"low": 2, "high": 1}, "has low=2.0 above high=1.0"),
        ({"low": "a"}, "has low='a'; give a number"),
        ({"high": float("inf")}, "has high=inf"),
        ({"low": 0.5, "dtype": "int8"}, "which int8 cannot hold"),
        ({"high": 300, "dtype": "uint8"}, "which uint8 cannot hold"),
        ({"high": 1, "dtype": "bool"}, "bounds are for integers and floats"),
        ({"dims": ("a",)}, r"has shape \(\) and dims \('a',\); give one name for each axis"),
        ({"dims": "a", "shape": 1}, "give one name for each axis"),
        ({"dims": (None,), "shape": 1}, "give one name for each axis"),
        ({"dims": ("a", "a"), "shape": (1, 2)}, "all different"),
        ({"dims": ("time",), "shape": 1}, "has a dimension called 'time'"),
        ({"dims": ("a b",), "shape": 1}, "has a dimension called 'a b'"),
        ({"dims": ("",), "shape": 1}, "has a dimension called ''"),
    ],
)
def test_refused_variables(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Variable(**({"name": "x"} | arguments))


@given(st.text())
def test_one_rule_for_names(name: str) -> None:
    if not name:
        return
    stored = disk_name(name)
    assert is_plain(stored)
    assert disk_name(stored) == stored
    assert "/" not in stored
    stored.encode()


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("episode.r", "episode_.r"),
        ("camera.time", "camera.time_"),
        ("logged_1.agent.agent", "logged_1_.agent_.agent_"),
        ("agent id", "agent_id_"),
        ("logged.1", "logged_1_"),
        ("agents.timed", "agents.timed"),
        ("logged_" + "1" * 300, "logged_" + "1" * 192 + "_"),
        (".".join(["time"] * 40), "_".join(["time"] * 40)),
    ],
)
def test_kept_names_as_parts(name: str, stored: str) -> None:
    assert disk_name(name) == stored
    assert disk_name(stored) == stored
    assert is_plain(stored)
    assert Variable(name).name == name


@given(st.lists(st.sampled_from(["time", "agent", "agent_id", "logged_2", "x", "a b", "1", "+"]), min_size=2, max_size=60))
def test_one_rule_for_kept_names(parts: list[str]) -> None:
    stored = disk_name(".".join(parts))
    assert is_plain(stored)
    assert disk_name(stored) == stored
    assert not any(map(is_kept, stored.split(".")))


def test_most_axes(tmp_path: Path) -> None:
    shape = (1,) * 28
    with HDF5Logger(tmp_path / "run.h5", schema=Schema(observations=[Variable("x", shape), Variable("z", shape, "S")])) as log:
        log.log_agent_step("a", 0, {"x": np.ones(shape, "f4"), "z": np.full(shape, "ab")})
    with open_run(tmp_path / "run.h5") as ds:
        assert ds.x.values.shape == (1, 1, *shape)
        assert ds.z.values.item() == "ab"


# -- clashes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"observations": [Variable("a"), Variable("a")]},
            "'a' of observations and 'a' of observations clash: a variable's name is unique",
        ),
        ({"observations": Variable("a"), "environment": Variable("a")}, "'a' of observations and 'a' of environment clash"),
        ({"observations": [Variable("a/b"), Variable("a_b")]}, "clash: a variable's name, with '_' for what a file cannot hold"),
        ({"observations": [Variable("a.b"), Variable("a_b")]}, "clash"),
        ({"observations": [Variable("camera"), Variable("camera.rgb")]}, "one makes 'camera' a value, the other a group"),
        ({"actions": [Variable("actions"), Variable("message")]}, "'actions' cannot stand beside 'message'.*Call it 'action'"),
        ({"observations": [Variable("a", 3), Variable("a_channel")]}, "has a dimension or labels called 'a_channel'"),
        ({"observations": [Variable("a_channel"), Variable("a", 3)]}, "has a dimension or labels called 'a_channel'"),
        ({"observations": [Variable("a", 1, channels=["x"]), Variable("a_channel_label")]}, "labels called 'a_channel_label'"),
        ({"observations": Variable("x", 3, dims=("x",))}, "has a dimension or labels called 'x'"),
        ({"observations": [Variable("t", dtype=str), Variable("t_strlen")]}, "called 't_strlen'"),
        ({"observations": [Variable("z", dtype=complex), Variable("z_part")]}, "called 'z_part'"),
        ({"environment": [Variable("grid", (2, 2)), Variable("grid_time")]}, "called 'grid_time'"),
        (
            {"observations": [Variable("a", 3, dims=("d",)), Variable("b", 4, dims=("d",))]},
            "'d' the size 4, but 'a' of observations gives it 3",
        ),
        (
            {"observations": [Variable("a", 1, dims=("d",), channels=["x"]), Variable("b", 1, dims=("d",), channels=["y"])]},
            "label its entries differently",
        ),
        (
            {"observations": [Variable("a", 3), Variable("b", 3, dims=("a_channel",))]},
            "which is what 'a' of observations calls its own by default",
        ),
        ({"observations": Variable("a", every=3)}, "has every=3, which is for variables of the environment"),
        ({"observations": 5}, "observations is 5; give a Variable"),
        ({"observations": "vision"}, "observations is 'vision'"),
        ({"observations": ["vision"]}, r"observations\[0\] is 'vision'"),
        ({"observations": {"a": Variable("b")}}, "observations.a is a variable called 'b'"),
        ({"observations": {"a": {"name": "b"}}}, "observations.a is a declaration with the name 'b'"),
        ({"observations": {"a": 5}}, "observations maps 'a' to 5"),
        ({"populations": {"prey": Schema()}, "rewards": Variable("r")}, "Give populations=, or the variables of all agents"),
        ({"populations": {"agent": Schema()}}, "A population cannot be called 'agent'"),
        ({"populations": {"a b": Schema()}}, "A population cannot be called 'a b'"),
        ({"populations": {"prey": Schema(environment=Variable("e"))}}, "variables of agents only"),
        ({"populations": {"prey": Schema()}, "environment": Variable("prey")}, "clashes with the population 'prey'"),
        ({"populations": {"prey": Schema()}, "environment": Variable("prey_id")}, "clashes with the population 'prey'"),
        (
            {"populations": {"prey": Schema()}, "agents": {"pray": []}},
            "names the population 'pray'; the schema has 'prey'. Did you mean 'prey'",
        ),
        ({"populations": {"prey": Schema()}, "agents": {"prey": "prey_0"}}, "give a list of ids"),
        (
            {"populations": {"a": Schema(), "b": Schema()}, "agents": {"a": [1], "b": [1]}},
            "Agent 1 is listed in the populations 'a' and 'b'",
        ),
    ],
)
def test_clashes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema(**arguments)


def test_what_does_not_clash() -> None:
    Schema(
        observations=[Variable("a", 3, dims=("d",)), Variable("b", (2, 3), dims=("e", "d"), channels=["x", "y", "z"])],
        actions=[Variable("action"), Variable("message")],
        environment=Variable("c", 3, dims=("d",)),
    )
    Schema(populations={"prey": Schema(observations=Variable("v", 3)), "predator": Schema(observations=Variable("v", 4))})
    Schema(states=Variable("states", 3), rewards=Variable("rewards"))


def test_extended_checks_and_leaves_the_first_alone() -> None:
    schema = Schema(rewards=Variable("reward"), extensible=True)
    more = schema.extended([Variable("a", modality="observations")])
    assert [v.name for v in more.variables()] == ["reward", "a"]
    assert [v.name for v in schema.variables()] == ["reward"]
    with pytest.raises(SchemaError, match="clash"):
        more.extended([Variable("a", modality="environment")], None)
    assert more.extended([Variable("e", modality="environment")], None).environment[0].name == "e"
    assert more.extended([Variable("b", modality="states")], "prey").population_names == ("", "prey")


# -- dictionaries and files

FULL = Schema(
    populations={
        "prey": Schema(
            observations=[
                Variable("vision", (11, 11, 3), "uint8", channels=["walls", "food", "ünïts"]),
                Variable("camera.rgb", (2, 2), bool),
            ],
            actions=Variable("actions", dtype="int8", categories=["up", "down"], low=0, high=1),
            rewards=Variable("rewards", long_name="Reward", units="J"),
        ),
        "predator": Schema(states=Variable("memory", 4, "complex64", dims=("cell",), compression=None)),
    },
    agents={"prey": ["prey_0", 5, ("a", (1, 2))]},
    environment=[Variable("grid", (4, 4), "int32", every=20, compression=4), Variable("weather", dtype=str), Variable("t", dtype="M8[s]")],
    extensible=True,
)


def test_dict_round_trip() -> None:
    assert Schema.from_dict(FULL.to_dict()) == FULL
    assert Schema.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL
    assert Schema().to_dict() == {}
    assert as_schema({}) == Schema()


@pytest.mark.parametrize("ending", [".json", ".yaml", ".yml", ".JSON"])
def test_file_round_trip(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if ending.startswith(".y"):
        pytest.importorskip("yaml")
    FULL.to_file(tmp_path / f"schema{ending}")
    assert Schema.from_file(tmp_path / f"schema{ending}") == FULL
    assert as_schema(str(tmp_path / f"schema{ending}")) == FULL
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert Schema.from_file(f"~/schema{ending}") == FULL


def test_as_a_person_would_write_it(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    file = tmp_path / "schema.yaml"
    file.write_text(
        """
observations:
  vision: {shape: [11, 11, 3], dtype: uint8, channels: [walls, food, agents]}
  name:
actions: {name: actions, dtype: int8, categories: [left, right]}
environment:
  - name: grid
    shape: [64, 64]
    dtype: int32
    every: 20
""",
        encoding="utf-8",
    )
    assert Schema.from_file(file) == Schema(
        observations=[Variable("vision", (11, 11, 3), "uint8", channels=["walls", "food", "agents"]), Variable("name")],
        actions=Variable("actions", dtype="int8", categories=["left", "right"]),
        environment=Variable("grid", (64, 64), "int32", every=20),
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.json", "", "is empty; a schema is a mapping"),
        ("s.json", "[1]", "is a list; a schema is a mapping"),
        ("s.json", "{", "is not JSON: .* in line 1, column 2"),
        ("s.json", "[" * 100_000, "is nested too deeply"),
        ("s.json", '{"rewards": {"a": {}, "a": {}}}', "has the key 'a' twice"),
        ("s.json", '{"reward": []}', r"s.json: A schema has no key 'reward'; it has .*Did you mean 'rewards'\?"),
        (
            "s.json",
            '{"observations": [{"name": "a"}, {"shape": 3}]}',
            r"s.json: observations\[1\]: A variable is declared by a mapping with a 'name'",
        ),
        (
            "s.json",
            '{"observations": {"a": {"shap": 3}}}',
            r"s.json: observations.a: 'a' has a field 'shap'; known are .*Did you mean 'shape'\?",
        ),
        (
            "s.json",
            '{"populations": {"prey": {"rewards": {"r": {"dtype": "x"}}}}}',
            r"s.json: populations.prey.rewards.r: 'r' has dtype 'x'",
        ),
        ("s.json", '{"populations": {"prey": {"reward": 1}}}', r"s.json: populations.prey: a schema has no key 'reward'"),
        ("s.json", '{"populations": {"prey": 5}}', r"s.json: populations.prey is 5"),
        ("s.json", '{"populations": [1]}', r"s.json: populations is \[1\]; give a mapping"),
        ("s.json", '{"agents": {"": "ab"}}', r"give a list of ids"),
        ("s.json", '{"extensible": "yes"}', r"s.json: extensible is 'yes'; give true or false"),
        ("s.yaml", "", "is empty"),
        ("s.yaml", "a: [", "is not YAML: .*line 1"),
        ("s.yaml", "rewards:\n  a: {}\n  a: {}\n", "has the key 'a' twice in the mapping that starts in line 2"),
        ("s.yaml", "rewards: !!python/object/apply:os.getcwd []", "is not YAML: could not determine a constructor"),
        ("s.toml", "", "has the ending '.toml'; a schema file is called .json, .yaml or .yml"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    (tmp_path / name).write_text(text)
    with pytest.raises(SchemaError, match=message):
        Schema.from_file(tmp_path / name)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match=r"There is no schema file .*nope\.json.*the working folder is"):
        Schema.from_file(tmp_path / "nope.json")
    with pytest.raises(RunNotFoundError, match=r"There is no folder .*nope"):
        FULL.to_file(tmp_path / "nope" / "s.json")
    (tmp_path / "dir.json").mkdir()
    with pytest.raises(StorageError, match="could not be read"):
        Schema.from_file(tmp_path / "dir.json")
    with pytest.raises(StorageError, match="could not be written"):
        FULL.to_file(tmp_path / "dir.json")
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(SchemaError, match="is not text in UTF-8"):
        Schema.from_file(tmp_path / "latin.json")
    with pytest.raises(SchemaError, match="The schema is a int"):
        as_schema(5)  # type: ignore[arg-type]


def test_yaml_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_yaml(name: str, *args: Any, **more: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args, **more)

    (tmp_path / "s.yaml").write_text("{}")
    monkeypatch.setattr(builtins, "__import__", without_yaml)
    with pytest.raises(MissingPackageError, match=r'to read s\.yaml but is not installed.*"simlab\[yaml\]".*conda-forge pyyaml'):
        Schema.from_file(tmp_path / "s.yaml")
    with pytest.raises(MissingPackageError, match="to write a schema as YAML"):
        FULL.to_file(tmp_path / "t.yaml")
    assert not (tmp_path / "t.yaml").exists()


# -- spaces


def brief(variables: Any) -> list[tuple[Any, ...]]:
    return [(v.name, v.shape, "str" if v.is_text else str(v.dtype), v.kind, v.low, v.high) for v in variables]


def test_spaces() -> None:
    s = pytest.importorskip("gymnasium.spaces")
    space = s.Dict(
        camera=s.Dict(rgb=s.Box(0, 255, (84, 84, 3), np.uint8), depth=s.Box(0, np.inf, (84, 84))),
        position=s.Box(np.array([-1, -2], "f4"), np.array([1, 2], "f4")),
        choice=s.MultiDiscrete([3, 4]),
        bits=s.MultiBinary(4),
        word=s.Text(5),
        pair=s.Tuple([s.Discrete(3, start=2), s.Box(-1, 1, (2,))]),
    )
    schema = Schema.from_spaces(
        space,
        s.Discrete(2),
        names={"actions": ["left", "right"], "position": ["x", "y"]},
        environment=Variable("food"),
        states=[Variable("m")],
    )
    assert sorted(brief(schema.variables())) == sorted([
        ("camera.rgb", (84, 84, 3), "uint8", "image", 0, 255),
        ("camera.depth", (84, 84), "float32", "image", 0, None),
        ("position", (2,), "float32", "continuous", None, None),
        ("choice", (2,), "int64", "discrete", 0, None),
        ("bits", (4,), "int8", "discrete", 0, 1),
        ("word", (), "str", "text", None, None),
        ("pair.item_0", (), "int64", "discrete", 2, 4),
        ("pair.item_1", (2,), "float32", "continuous", -1, 1),
        ("actions", (), "int64", "discrete", 0, 1),
        ("rewards", (), "float64", "continuous", None, None),
        ("m", (), "float32", "continuous", None, None),
        ("terminated", (), "bool", "boolean", None, None),
        ("truncated", (), "bool", "boolean", None, None),
    ])  # fmt: skip
    by_name = {v.name: v for v in schema.variables()}
    assert by_name["actions"].categories == ("left", "right")
    assert by_name["position"].channels == ("x", "y")
    assert [v.name for v in schema.environment] == ["food"]
    assert Schema.from_dict(schema.to_dict()) == schema


def test_pictures_with_channels_first() -> None:
    s = pytest.importorskip("gymnasium.spaces")
    v = Schema.from_spaces(s.Box(0, 255, (3, 84, 80), np.uint8)).variables()[0]
    assert (v.name, v.kind, v.dims) == ("observation", "image", ("observation_channel", "observation_y", "observation_x"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: (s.Sequence(s.Discrete(3)),), "'observation' is a Sequence space: .* Pad it to a fixed length"),
        (lambda s: (s.Dict(net=s.Graph(s.Discrete(3), None)),), "'net' is a Graph space: .* Pad the nodes and edges"),
        (lambda s: (s.OneOf([s.Discrete(3)]),), "'observation' is a OneOf space"),
        (lambda s: (5,), "'observation' is int, which is no Gymnasium space"),
        (lambda s: (s.Dict(),), "is an empty Dict"),
        (lambda s: (s.Box(0, 1, (0, 3)),), r"is a Box of shape \(0, 3\), which holds nothing"),
        (lambda s: (s.Dict({"observation": s.Discrete(2), "agent": s.Discrete(3)}),), "'observation' a value, the other a group"),
        (lambda s: (s.Tuple([s.Discrete(2)]), s.Tuple([s.Discrete(2)])), "both have a part called 'item_0'"),
    ],
)
def test_spaces_that_do_not_fit(make: Callable[[Any], tuple[Any, ...]], message: str) -> None:
    s = pytest.importorskip("gymnasium.spaces")
    with pytest.raises(SchemaError, match=message):
        Schema.from_spaces(*make(s))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"action": ["a", "b"]}, r"names= has 'action'; the spaces have 'actions', 'observation'\. Did you mean 'actions'"),
        ({"actions": ["a"]}, "names= has 1 names for 'actions', which has 2 values"),
        ({"observation": ["a", "b"]}, "which start at 1"),
    ],
)
def test_names_that_do_not_fit(names: dict[str, list[str]], message: str) -> None:
    s = pytest.importorskip("gymnasium.spaces")
    with pytest.raises(SchemaError, match=message):
        Schema.from_spaces(s.Discrete(2, start=1), s.Discrete(2), names=names)


def test_gymnasium_environment() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("CartPole-v1")
    schema = Schema.from_env(env, names={"actions": ["left", "right"]}, rewards=Variable("reward"))
    assert [v.name for v in schema.variables()] == ["observation", "actions", "reward", "terminated", "truncated"]
    with pytest.raises(SchemaError, match=r"is a vector environment. Use the spaces of one of its 2"):
        Schema.from_env(gymnasium.make_vec("CartPole-v1", num_envs=2))
    with pytest.raises(SchemaError, match="int has no observation_space"):
        Schema.from_env(5)


def test_pettingzoo_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pursuit = pytest.importorskip("pettingzoo.sisl.pursuit_v5")
    parallel, aec = pursuit.parallel_env(), pursuit.env()
    schema = Schema.from_env(parallel)
    assert schema == Schema.from_env(aec)
    assert schema.population_names == ("",)
    assert brief(schema.variables())[0] == ("observation", (7, 7, 3), "float32", "image", 0, 30)
    assert schema.variables()[1].high == 4
    observations, _ = parallel.reset(seed=1)
    from simlab.schema.values import fit

    for observation in observations.values():
        assert not fit(observation, schema.variables()[0], str)[1]
    parallel.close()
    aec.close()


class Zoo:
    """A PettingZoo environment whose agents differ."""

    def __init__(self, spaces: dict[Any, Any]) -> None:
        self.spaces, self.possible_agents = spaces, list(spaces)

    def observation_space(self, agent: Any) -> Any:
        return self.spaces[agent]

    def action_space(self, agent: Any) -> Any:
        import gymnasium

        return gymnasium.spaces.Discrete(5)


def test_populations() -> None:
    s = pytest.importorskip("gymnasium.spaces")
    large, small = s.Box(0, 255, (3, 84, 84), np.uint8), s.Box(0, 255, (3, 42, 42), np.uint8)

    schema = Schema.from_env(Zoo({"wolf_0": large, "sheep_0": small, "sheep_1": small}), environment=Variable("grass"))
    assert schema.agents == {"wolf": ("wolf_0",), "sheep": ("sheep_0", "sheep_1")}
    assert schema.variables("sheep")[0].dims == ("sheep_observation_channel", "sheep_observation_y", "sheep_observation_x")
    assert [v.name for v in schema.environment] == ["grass"]
    assert Schema.from_dict(schema.to_dict()) == schema

    named = Schema.from_env(Zoo({"wolf_0": large, "sheep_0": small}), names={"actions": list("abcde")})
    assert named.variables("wolf")[1].categories == tuple("abcde")
    assert tuple(Schema.from_env(Zoo({"agent_0": large, "adversary_0": small})).agents) == ("agent_kind", "adversary")
    assert tuple(Schema.from_env(Zoo({"a_0": large, "a_1": small})).agents) == ("a_0", "a_1")
    assert tuple(Schema.from_env(Zoo({0: large, 1: small})).agents) == ("kind_0", "kind_1")
    with pytest.raises(SchemaError, match="names no agents"):
        Schema.from_env(Zoo({}))


def test_spaces_of_the_old_gym_and_without_any() -> None:
    class Box:
        low, high, shape, dtype = np.zeros(3), np.ones(3), (3,), np.dtype("float64")

    class Discrete:
        n, dtype = 4, np.dtype("int64")

    assert brief(Schema.from_spaces(Box(), Discrete()).variables())[:2] == [
        ("observation", (3,), "float64", "continuous", 0, 1),
        ("actions", (), "int64", "discrete", 0, 3),
    ]
