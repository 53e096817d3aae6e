"""The door: what simlab offers, that it is all there, and that it is all explained."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import simlab
from simlab import errors

PUBLIC = [(name, getattr(simlab, name)) for name in simlab.__all__]


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the public functions and properties of a class that are ours."""
    members = {
        name: member for base in reversed(cls.__mro__) if base.__module__.startswith("simlab") for name, member in vars(base).items()
    }
    for name, member in members.items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod))):
            yield f"{cls.__name__}.{name}", member


def accessor() -> type:
    """Return the class behind ``ds.sim``."""
    import xarray

    importlib.import_module("simlab.read.accessor")
    return xarray.Dataset.sim  # type: ignore[attr-defined, no-any-return]


def functions() -> list[tuple[str, object]]:
    """Return every public function, and every public method and property of the public classes."""
    out = [(name, thing) for name, thing in PUBLIC if inspect.isfunction(thing)]
    for thing in [*(thing for _, thing in PUBLIC if inspect.isclass(thing)), accessor()]:
        out += methods(thing)
    return out


def plain(member: object) -> object:
    """Return the function under a property, class method or static method."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def test_all_is_sorted_and_complete() -> None:
    assert simlab.__all__ == sorted(simlab.__all__, key=lambda name: (name[0].islower(), name))
    assert set(simlab.__all__) == set(simlab._HOMES)


def test_dir_shows_the_names() -> None:
    assert {n for n in dir(simlab) if not n.startswith("__")} == set(simlab.__all__)
    assert "__version__" in dir(simlab)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_rum'"):
        _ = simlab.open_rum


@pytest.mark.parametrize(("name", "thing"), PUBLIC)
def test_explained(name: str, thing: object) -> None:
    text = inspect.getdoc(thing) or ""
    assert len(text) > 40, f"{name} has no docstring"
    parameters = [p for p in inspect.signature(thing).parameters if p != "self"]  # type: ignore[arg-type]
    if parameters:
        assert "Parameters\n----------" in text, f"{name} does not explain its parameters"
    assert "Examples\n--------" in text, f"{name} has no example"


@pytest.mark.parametrize(("name", "member"), functions())
def test_parts_explained(name: str, member: object) -> None:
    function = plain(member)
    assert inspect.getdoc(function), f"{name} has no docstring"
    text = inspect.getdoc(function) or ""
    for parameter in list(inspect.signature(function).parameters)[0 if inspect.isfunction(member) and "." not in name else 1 :]:  # type: ignore[arg-type]
        assert parameter in text, f"{name} does not explain {parameter!r}"


@pytest.mark.parametrize(("name", "member"), functions())
def test_annotated(name: str, member: object) -> None:
    signature = inspect.signature(plain(member))  # type: ignore[arg-type]
    assert signature.return_annotation is not inspect.Signature.empty, f"{name} does not say what it returns"
    for parameter in signature.parameters.values():
        assert parameter.name in ("self", "cls") or parameter.annotation is not inspect.Parameter.empty, f"{name}: {parameter.name}"


def test_every_error_is_in_the_drawing() -> None:
    drawn = errors.__doc__ or ""
    for name, thing in vars(errors).items():
        if inspect.isclass(thing) and issubclass(thing, errors.SimlabError):
            assert name in drawn, f"{name} is missing in the tree at the top of simlab/errors.py"
            assert inspect.getdoc(thing)


def test_every_room_is_explained_and_loads() -> None:
    for info in pkgutil.walk_packages(simlab.__path__, "simlab."):
        if not info.name.endswith("__main__"):
            assert importlib.import_module(info.name).__doc__, f"{info.name} has no docstring"
