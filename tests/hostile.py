"""Run files that were damaged, or made to do harm, one way each; and everything that a reader can ask of them.

Each mutation takes the open file of a recorded run and changes one thing. `ask_everything` then reads the file in every way that there
is, and returns what became of each: the value, the gap that was told, or the error.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

SIMULATION = "simulation_0001"
Mutation = Callable[[h5py.File], None]
MUTATIONS: dict[str, Mutation] = {}
ODD_VALUES: dict[str, Any] = {
    "text": "no number",
    "empty_text": "",
    "empty": h5py.Empty("f4"),
    "float": 1.5,
    "nan": np.nan,
    "array": np.arange(3),
    "one_entry": np.arange(1),
    "no_entries": np.zeros(0, "f4"),
    "square": np.zeros((2, 2)),
    "texts": np.array([b"a", b"b"]),
    "compound": np.zeros((), [("a", "i4"), ("b", "f4")]),
    "bytes_not_utf8": np.bytes_(b"a\xff\xfe"),
    "huge": np.uint64(2**64 - 1),
    "bool": np.bool_(True),
}


def mutation(change: Mutation) -> Mutation:
    MUTATIONS[change.__name__] = change
    return change


def put_attribute(obj: h5py.HLObject, name: str, value: Any) -> None:
    if name in obj.attrs:
        del obj.attrs[name]
    obj.attrs[name] = value


def replace_dataset(file: h5py.File, path: str, data: Any, **options: Any) -> None:
    """Put other data in the place of a dataset, with the attributes that it had."""
    old = file[path]
    kept = {k: old.attrs[k] for k in old.attrs if k not in ("DIMENSION_LIST", "CLASS", "NAME", "_FillValue")}
    references = [list(axis) for axis in old.attrs["DIMENSION_LIST"]] if "DIMENSION_LIST" in old.attrs else []
    is_scale, name = old.is_scale, old.name
    del file[path]
    new = file.create_dataset(name, data=data, **options)
    for key, value in kept.items():
        new.attrs[key] = value
    if is_scale and new.shape:
        new.make_scale(name.rsplit("/", 1)[-1])
    elif new.shape:
        lists = np.empty(new.ndim, dtype=object)
        for i in range(new.ndim):
            lists[i] = np.array(references[i] if i < len(references) else [], dtype=h5py.ref_dtype)
        new.attrs.create("DIMENSION_LIST", lists, dtype=h5py.vlen_dtype(h5py.ref_dtype))


def _attributes_of_odd_values() -> None:
    places = {
        "seed": SIMULATION, "config": SIMULATION, "date": SIMULATION, "environment_type": SIMULATION, "step_duration": SIMULATION,
        "json_attributes": SIMULATION, "simlab_format": "/", "source": "/",
    }  # fmt: skip
    variables = {
        "modality": "agents/rewards", "simlab_dtype": "agents/rewards", "dtype": "agents/terminated", "original_name": "agents/rewards",
        "units": "agents/rewards", "kind": "agents/observations/vision", "_FillValue": "agents/rewards",
        "every": "environment/state_snapshots",
        "flag_masks": "agents/logged", "flag_meanings": "agents/logged", "DIMENSION_LIST": "agents/rewards", "CLASS": "time",
        "NAME": "time",
        "_Encoding": "agent_id",
    }  # fmt: skip
    for name, place in {**places, **{k: f"{SIMULATION}/{v}" for k, v in variables.items()}}.items():
        for word, value in ODD_VALUES.items():
            MUTATIONS[f"attribute_{name}_{word}"] = lambda file, p=place, n=name, v=value: put_attribute(file[p], n, v)


def _datasets_of_odd_kinds() -> None:
    paths = (
        "committed", "complete", "time", "step", "episode", "agent", "agent_id", "agents/logged", "agents/rewards",
        "agents/observations/vision",
        "environment/resource_count", "environment/state_snapshots", "environment/state_snapshots_time", "environment/logged",
        "episodes/start",
        "episodes/length", "episodes/episode", "episodes/outcome", "episodes/logged", "attachments/world/walls", "attachments/world/note",
        "agents/observations/vision_channel_label",
    )  # fmt: skip
    enum = h5py.enum_dtype({"A": 0, "B": 1}, basetype="i1")
    kinds: dict[str, Callable[[h5py.File], Any]] = {
        "scalar": lambda file: np.int32(7),
        "negative": lambda file: np.int64(-5),
        "float_array": lambda file: np.linspace(-1, 1, 40),
        "too_large": lambda file: np.uint64(2**63 + 5),
        "short": lambda file: np.arange(3, dtype="i4"),
        "square": lambda file: np.zeros((2, 3), "i2"),
        "five_axes": lambda file: np.zeros((1, 2, 1, 2, 1), "u1"),
        "compound": lambda file: np.zeros(4, [("a", "i4"), ("b", "S3")]),
        "enum": lambda file: np.zeros(4, enum),
        "references": lambda file: np.array([file.ref, file.ref], dtype=h5py.ref_dtype),
        "texts": lambda file: np.array(["a", "é", ""], dtype=h5py.string_dtype()),
        "fixed_text": lambda file: np.array([b"abc", b"d\xff"], "S3"),
        "without_data": lambda file: h5py.Empty("f4"),
        "opaque": lambda file: np.zeros(3, h5py.opaque_dtype(np.dtype("V4"))),
        "nothing": lambda file: np.zeros(0, "i8"),
        "complex": lambda file: np.zeros(4, "c8"),
        "lists": lambda file: np.array([np.arange(2), np.arange(3)], dtype=h5py.vlen_dtype("i4")),
        "bool": lambda file: np.ones(4, bool),
    }
    for path in paths:
        for word, make in kinds.items():
            MUTATIONS[f"{path}_is_{word}"] = lambda file, p=f"{SIMULATION}/{path}", m=make: replace_dataset(file, p, m(file))

        def group(file: h5py.File, p: str = f"{SIMULATION}/{path}") -> None:
            del file[p]
            file.create_group(p)

        def gone(file: h5py.File, p: str = f"{SIMULATION}/{path}") -> None:
            del file[p]

        MUTATIONS[f"{path}_is_a_group"] = group
        MUTATIONS[f"{path}_is_gone"] = gone
    for path in ("agents", "agents/observations", "environment", "episodes", "attachments", "attachments/world", "report"):

        def array(file: h5py.File, p: str = f"{SIMULATION}/{path}") -> None:
            del file[p]
            file[p] = np.arange(5)

        def missing(file: h5py.File, p: str = f"{SIMULATION}/{path}") -> None:
            del file[p]

        MUTATIONS[f"{path}_is_an_array"] = array
        MUTATIONS[f"{path}_is_gone"] = missing


def _resized() -> None:
    paths = (
        "time", "step", "episode", "agent", "agent_id", "agents/logged", "agents/rewards", "agents/observations/vision",
        "environment/resource_count", "environment/state_snapshots", "environment/state_snapshots_time", "episodes/start",
        "episodes/outcome",
        "episodes/episode", "episodes/seed",
    )  # fmt: skip
    for path in paths:
        for axis in (0, 1):
            for word, size in (("cut", 2), ("emptied", 0), ("endless", 1 << 40)):

                def resize(file: h5py.File, p: str = f"{SIMULATION}/{path}", a: int = axis, n: int = size) -> None:
                    if file[p].ndim > a:
                        file[p].resize(min(n, file[p].maxshape[a] or n), axis=a)

                MUTATIONS[f"{path}_axis_{axis}_{word}"] = resize


_attributes_of_odd_values()
_datasets_of_odd_kinds()
_resized()


@mutation
def a_clock_that_never_ends(file: h5py.File) -> None:
    for name in ("time", "step", "episode"):
        file[f"{SIMULATION}/{name}"].resize((1 << 40,))
    file[f"{SIMULATION}/committed"][()] = 1 << 40


@mutation
def names_that_are_no_utf8(file: h5py.File) -> None:
    for path in ("/", SIMULATION, f"{SIMULATION}/agents", f"{SIMULATION}/attachments"):
        where = file[path].id
        h5py.h5g.create(where, b"group\xff")
        h5py.h5d.create(where, b"array\xff", h5py.h5t.NATIVE_INT32, h5py.h5s.create(h5py.h5s.SCALAR))
        h5py.h5a.create(where, b"attribute\xff", h5py.h5t.NATIVE_INT32, h5py.h5s.create(h5py.h5s.SCALAR)).write(np.array(4, "i4"))


@mutation
def text_of_varying_length_that_is_no_utf8(file: h5py.File) -> None:
    kind = h5py.h5t.py_create(h5py.string_dtype("ascii"))
    for path in (SIMULATION, f"{SIMULATION}/agents/rewards"):
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file[path].id, b"odd", kind, space).write(np.array(b"a\xff\xfe", dtype=h5py.string_dtype("ascii")))


@mutation
def circles(file: h5py.File) -> None:
    run = file[SIMULATION]
    for name in ("agents", "environment", "episodes", "attachments"):
        for i in range(3):
            run[f"{name}/circle_{i}"] = run[name]
    run["attachments/world/back"] = run["attachments"]
    file["back"] = file["/"]


@mutation
def links_that_lead_away(file: h5py.File) -> None:
    for path in ("/", SIMULATION, f"{SIMULATION}/agents", f"{SIMULATION}/attachments/world"):
        file[path]["outside"] = h5py.ExternalLink("/etc/passwd", "/x")
        file[path]["nowhere"] = h5py.SoftLink("/nowhere")


@mutation
def dimensions_that_are_the_same(file: h5py.File) -> None:
    rewards = file[f"{SIMULATION}/agents/rewards"]
    lists = np.empty(2, dtype=object)
    lists[:] = [np.array([file[f"{SIMULATION}/time"].ref], dtype=h5py.ref_dtype)] * 2
    put_attribute(rewards, "DIMENSION_LIST", "x")
    del rewards.attrs["DIMENSION_LIST"]
    rewards.attrs.create("DIMENSION_LIST", lists, dtype=h5py.vlen_dtype(h5py.ref_dtype))


@mutation
def dimensions_that_were_deleted(file: h5py.File) -> None:
    for name in ("vision_y", "vision_channel"):
        del file[f"{SIMULATION}/agents/observations/{name}"]


@mutation
def no_dimensions_at_all(file: h5py.File) -> None:
    def strip(_: str, obj: Any) -> None:
        if "DIMENSION_LIST" in obj.attrs:
            del obj.attrs["DIMENSION_LIST"]

    file.visititems(strip)


@mutation
def agents_with_keys_that_are_no_json(file: h5py.File) -> None:
    run = file[SIMULATION]
    n = run["agent"].shape[0]
    keys = np.array([b'{"a"', b'"ok"', b"[[[]", b"{}", b'{"$type": "array"}', b"NaN"] * n, "S30")[:n]
    run.create_dataset("agent_key", data=keys.view("S1").reshape(n, 30))
    scale = run.create_dataset("agent_key_strlen", data=np.zeros(30, ">f4"))
    scale.make_scale("This is a netCDF dimension but not a netCDF variable.        30")
    run["agent_key"].dims[0].attach_scale(run["agent"])
    run["agent_key"].dims[1].attach_scale(scale)


@mutation
def bits_for_half_of_the_variables(file: h5py.File) -> None:
    logged = file[f"{SIMULATION}/agents/logged"]
    put_attribute(logged, "flag_masks", logged.attrs["flag_masks"][::2])


@mutation
def masks_that_are_no_bits(file: h5py.File) -> None:
    logged = file[f"{SIMULATION}/agents/logged"]
    put_attribute(logged, "flag_masks", -np.arange(logged.attrs["flag_masks"].size, dtype="i8") * 2**40)


@mutation
def a_variable_named_as_its_dimension(file: h5py.File) -> None:
    put_attribute(file[f"{SIMULATION}/agents/rewards"], "original_name", "time")
    put_attribute(file[f"{SIMULATION}/agents/actions"], "original_name", "vision_y")
    put_attribute(file[f"{SIMULATION}/agents/observations/vision"], "original_name", "vision_channel")


@mutation
def a_simulation_beside_that_is_broken(file: h5py.File) -> None:
    file.create_group("simulation_0002")["committed"] = np.int64(4)
    file.create_group("simulation_0003").create_group("committed")


@mutation
def deep_groups(file: h5py.File) -> None:
    group = file[f"{SIMULATION}/attachments/world"]
    for _ in range(200):
        group = group.create_group("d")


@mutation
def json_that_is_nested_too_deeply(file: h5py.File) -> None:
    put_attribute(file[SIMULATION], "config", "[" * 20_000)
    put_attribute(file[SIMULATION], "json_attributes", "[" * 20_000)


@mutation
def a_version_of_too_many_digits(file: h5py.File) -> None:
    put_attribute(file, "simlab_format", "1" * 5000 + ".0")


@mutation
def a_version_of_odd_digits(file: h5py.File) -> None:
    put_attribute(file, "simlab_format", "²")


@mutation
def virtual_data(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(file[f"{SIMULATION}/agents/rewards"].shape, "f4")
    layout[...] = h5py.VirtualSource("/nowhere.h5", "x", layout.shape)
    del file[f"{SIMULATION}/agents/rewards"]
    file.create_virtual_dataset(f"{SIMULATION}/agents/rewards", layout)


@mutation
def data_in_another_file(file: h5py.File) -> None:
    del file[f"{SIMULATION}/agents/rewards"]
    file.create_dataset(f"{SIMULATION}/agents/rewards", (2, 3), "f4", external=[("/nowhere.bin", 0, 24)])


def _flipped_chunks() -> None:
    paths = (
        "time", "step", "episode", "agent_id", "agents/logged", "agents/rewards", "agents/observations/vision",
        "environment/resource_count",
        "environment/state_snapshots", "environment/state_snapshots_time", "episodes/start", "episodes/outcome", "attachments/world/walls",
    )  # fmt: skip
    for path in paths:

        def scramble(file: h5py.File, p: str = f"{SIMULATION}/{path}") -> None:
            dataset = file[p]
            if dataset.chunks is None:
                data = dataset[...]
                replace_dataset(file, p, data, chunks=data.shape, compression="gzip")
                dataset = file[p]
            if dataset.id.get_num_chunks():
                offset = dataset.id.get_chunk_info(0).chunk_offset
                mask, raw = dataset.id.read_direct_chunk(offset)
                dataset.id.write_direct_chunk(offset, bytes([*raw[:2], *(b ^ 0x5A for b in raw[2:])]), mask)

        MUTATIONS[f"{path}_has_a_flipped_chunk"] = scramble


_flipped_chunks()


# -- what a reader can ask


def _plain(value: Any) -> Any:
    """Return values that compare by ==, NaN equal to NaN."""
    if isinstance(value, np.ndarray):
        octets = repr(value.tolist()).encode() if value.dtype.kind == "O" else value.tobytes()
        return (str(value.dtype), value.shape, hashlib.sha1(octets).hexdigest())
    return repr(value)


def _leaves(value: Any) -> Any:
    return {k: _leaves(v) for k, v in value.items()} if isinstance(value, dict) else _plain(value)


def questions(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield everything that can be asked of a run file, by name."""
    import simlab
    from simlab import cli
    from simlab.cli.facts import file_facts
    from simlab.storage.finding import find_simulations

    def told(*arguments: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(["info", str(path), *arguments])
        assert code in (0, 1), code
        assert (code == 1) == bool(err.getvalue())
        return out.getvalue() + err.getvalue()

    yield "info", told
    yield "info --json", lambda: json.dumps(file_facts(str(path)), allow_nan=False)
    yield "list_runs", lambda: repr(simlab.list_runs(path))
    yield "find_simulations", lambda: find_simulations(str(path))

    def tree() -> Any:
        with simlab.open_tree(path) as opened:
            repr(opened)
            opened._repr_html_()
            for node in opened.subtree:
                yield from ((f"tree {node.path}/{name}", lambda v=v: _plain(np.asarray(v.values))) for name, v in node.variables.items())

    yield from _opened("open_tree", tree)

    def run() -> Any:
        with simlab.open_run(path, simulation=SIMULATION) as ds:
            yield "repr", lambda: repr(ds) and ds._repr_html_() and None
            yield "attrs", lambda: repr({k: v for k, v in ds.attrs.items() if k not in ("source", "history")})
            yield "sizes", lambda: dict(ds.sizes)
            yield "pickle", lambda: pickle.loads(pickle.dumps(ds)).sizes and None
            for name, variable in ds.variables.items():
                yield f"variable {name}", lambda v=variable: (v.dims, _plain(np.asarray(v.values)))
                yield f"part of {name}", lambda v=variable: _plain(np.asarray(v[(slice(None, None, 7),) * v.ndim].values))
            for name in [str(n) for n in ds.data_vars]:
                yield f"present {name}", lambda n=name: _plain(ds.sim.present(n).values)
            for name in ("agents", "modalities", "episodes", "attributes", "config", "attachments", "report"):
                yield name, lambda n=name: repr(getattr(ds.sim, n))
            yield "episode", lambda: dict(ds.sim.episode(0).sizes)
            yield "agent", lambda: dict(ds.sim.agent(ds.sim.agents[0]).sizes) if ds.sim.agents else None
            yield "load", lambda: dict(ds.sim.load(modality="rewards", start=0, end=20).sizes)
            yield "snapshot", lambda: _plain(ds.sim.snapshot("state_snapshots", 25).values)
            yield "transitions", lambda: {k: _plain(v.values) for k, v in ds.sim.transitions().variables.items()}
            yield "attachment", lambda: _leaves(ds.sim.attachment("world"))

    yield from _opened("open_run", run)


def _opened(word: str, asked: Callable[[], Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what can be asked of something that is opened first; an error of the opening is the only answer then."""
    inner = asked()
    while True:
        failed: list[BaseException] = []
        try:
            item = next(inner)
        except StopIteration:
            return
        except Exception as error:
            failed.append(error)
        if failed:

            def fail(error: BaseException = failed[0]) -> None:
                raise error

            yield word, fail
            return
        yield item


def ask_everything(path: Path) -> dict[str, tuple[str, Any]]:
    """Read a run file in every way, and return for each what came of it: ("value", v), ("told", message) or ("raw", error)."""
    from simlab.errors import DamageWarning, SimlabError

    out: dict[str, tuple[str, Any]] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, ask in questions(path):
            before = len(caught)
            try:
                value = ask()
            except SimlabError as error:
                out[name] = ("told", str(error))
                continue
            except Exception as error:
                out[name] = ("raw", f"{type(error).__name__}: {error}")
                continue
            told = [str(w.message) for w in caught[before:] if issubclass(w.category, DamageWarning)]
            out[name] = ("told", "\n".join(told)) if told else ("value", value)
        for warning in caught:
            if not issubclass(warning.category, DamageWarning):
                out[f"warning {warning.message}"] = ("raw", f"{warning.category.__name__}: {warning.message}")
        opening = [str(w.message) for w in caught if issubclass(w.category, DamageWarning)]
    out["warnings"] = ("told", "\n".join(dict.fromkeys(opening))) if opening else ("value", "")
    return out


def small_run(path: Path) -> None:
    """Record a run that has everything that the mutations change, and is quick to read."""
    from simlab.demo import record_demo

    record_demo(path, episodes=2, steps=12)


def judge(path: Path) -> list[tuple[str, str]]:
    """Return the questions that ended in a raw error, and the error."""
    return [(question, str(value)) for question, (kind, value) in ask_everything(path).items() if kind == "raw"]


def try_mutation(folder: str, source: str, name: str) -> list[tuple[str, str]]:
    """Change a copy of a run in one way, ask everything of it, and return what ended in a raw error."""
    path = Path(folder, "run.h5")
    shutil.copy(source, path)
    with h5py.File(path, "r+") as file:
        MUTATIONS[name](file)
    return judge(path)
