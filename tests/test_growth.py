"""Variables that come one by one while a run is recorded."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import SchemaError
from simlab.schema import Schema, Variable
from simlab.schema import clashes as clashes_room


@pytest.mark.parametrize("kind", ["agent", "dictionary", "arrays", "environment", "series"])
def test_a_variable_more_costs_no_look_at_those_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    looks: Counter[str] = Counter()
    disk_name = clashes_room.disk_name

    def counted(name: str) -> str:
        looks["names"] += 1
        return disk_name(name)

    monkeypatch.setattr(clashes_room, "disk_name", counted)
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(120):
            value = float(t)
            if kind == "agent":
                log.log_agent_step("a", t, {f"v{t}": value})
            elif kind == "dictionary":
                log.log_step(t, agents={"a": {f"v{t}": value}, "b": {"v0": value}})
            elif kind == "arrays":
                log.log_step(t, agents={f"v{t}": [value, value], "v0": [value, -value]}, agent_ids=["a", "b"])
            else:
                log.log_env_step(t, {f"v{t}": value if kind == "environment" else np.full(2, value)})
    assert looks["names"] < 120 * 10
    with simlab.open_run(tmp_path / "run.h5") as ds:
        for t in (0, 1, 60, 119):
            found = ds[f"v{t}"].values
            row = found[0] if kind in ("agent", "dictionary", "arrays") else found
            assert float(np.ravel(row)[0 if kind == "series" else t]) == float(t)


def test_growth_in_the_middle_of_a_dictionary(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(6):
            each: dict[str, dict[str, Any]] = {a: {"x": float(t), "y": 2 * t} for a in "abcd"}
            if t == 4:
                each["c"]["late"] = "word"
            log.log_step(t, agents=each, environment={"n": t} | ({"m": 1} if t == 4 else {}))
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.x.values.tolist() == [[float(t) for t in range(6)]] * 4
        assert ds.y.values.tolist() == [[2 * t for t in range(6)]] * 4
        assert ds.late.values[2, 4] == "word"
        assert ds.n.values.tolist() == list(range(6))
    assert log.report.values == 6 * 8 + 1 + 7


def test_schema_clashes_in_whatever_order_it_grows() -> None:
    """One by one or at once, in any order: the same sets of variables are refused."""
    dice, refused = random.Random(1), 0
    names = ["a", "b", "a.b", "a_b", "a/b", "a_x", "a_channel", "a_time", "prey.x", "prey_id", "actions", "rewards", "x", "d"]

    def variable(modality: str) -> Variable:
        shape = dice.choice([(), (), (2,), (3,), (2, 2)])
        dims = dice.choice([None, None, tuple(dice.sample(["d", "a_y", "a_channel", "x", "e"], len(shape)))])
        return Variable(dice.choice(names), shape, dice.choice(["float32", "str", "complex64"]), dims=dims, modality=modality)

    for _ in range(1500):
        agents = [variable(dice.choice(["observations", "actions"])) for _ in range(dice.randrange(4))]
        environment = [variable("environment") for _ in range(dice.randrange(3))]
        outcomes = set()
        for _ in range(3):
            steps: list[tuple[Variable, str | None]] = [(v, "prey") for v in agents] + [(v, None) for v in environment]
            dice.shuffle(steps)
            schema = Schema(extensible=True)
            try:
                schema = schema.extended([], "prey")
                for v, population_name in steps:
                    schema = schema.extended([v], population_name)
                outcomes.add("taken")
            except SchemaError:
                outcomes.add("refused")
        try:
            Schema(
                populations={
                    "prey": Schema(
                        observations=[v for v in agents if v.modality == "observations"],
                        actions=[v for v in agents if v.modality == "actions"],
                    )
                },
                environment=environment,
            )
            outcomes.add("taken")
        except SchemaError:
            outcomes.add("refused")
        assert len(outcomes) == 1
        refused += outcomes == {"refused"}
    assert 300 < refused < 1400


def test_an_older_schema_may_be_extended_again() -> None:
    first = Schema(extensible=True).extended([Variable("a", modality="observations")])
    second = first.extended([Variable("b", modality="observations")])
    again = first.extended([Variable("b", 3, modality="states"), Variable("c", modality="states")])
    assert [v.name for v in second.variables()] == ["a", "b"]
    assert [v.name for v in again.variables()] == ["a", "b", "c"]
    for schema in (first, second, again):
        with pytest.raises(SchemaError, match="clash"):
            schema.extended([Variable("a", modality="environment")], None)
    assert [v.name for v in second.extended([Variable("c", modality="observations")]).variables()] == ["a", "b", "c"]
