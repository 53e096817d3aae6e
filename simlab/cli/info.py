"""``simlab info FILE``: tell what is in a file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from simlab.cli.facts import file_facts
from simlab.cli.terminal import count, escape, ratio, short, size, table

_MOST_ENTRIES = 60
_MOST_SIMULATIONS = 200
_MOST_CONFIG = 20
_STATES = {
    "finalized": "",
    "being recorded": "   (being recorded)",
    "not finalized": "   (not finalized: its program ended early; simlab repair makes it a finished file)",
}


def run(given: argparse.Namespace) -> int:
    """Print the facts of a file, for people or as JSON."""
    facts = file_facts(given.file, given.simulation)
    if given.json:
        json.dump(facts, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print("\n".join(lines(facts)))
    return 0


def lines(facts: dict[str, Any]) -> list[str]:
    """Return the facts of a file as text."""
    if facts["kind"] != "simlab":
        return _foreign(facts)
    head = f"{escape(facts['path'])}: a simlab run, format {escape(facts['format'])}, {size(facts['file_bytes'])}"
    simulations = facts["simulations"]
    if not simulations:
        return [head, "", "No simulation was recorded in it yet."]
    path = escape(facts["path"])
    if len(simulations) == 1:
        name = simulations[0]["name"]
        more = "" if name == "simulation_0001" else f", simulation={name!r}"
        return [head, "", *simulation_lines(simulations[0]), "", f"Open it: simlab.open_run({path!r}{escape(more)})"]
    return [
        f"{head}, {count(len(simulations), 'simulation')}",
        "",
        *_list(simulations),
        "",
        f"More about one: simlab info {path} --simulation {escape(simulations[0]['name'])}",
        f"Open one: simlab.open_run({path!r}, simulation={escape(simulations[0]['name'])!r})",
    ]


def _list(simulations: list[dict[str, Any]]) -> list[str]:
    rows = [["simulation", "episodes", "rows", "agents", "seed", "stored", "ratio", ""]]
    for s in simulations[:_MOST_SIMULATIONS]:
        if "rows" not in s:
            rows.append([short(s["name"], 50), "-", "-", "-", "-", "-", "-", f"cannot be read: {short(s['problems'][0], 300)}"])
            continue
        seed = "-" if s["seed"] is None else short(s["seed"], 20)
        rows.append(
            [
                short(s["name"], 50), f"{s['episodes']:,}", f"{s['rows']:,}", f"{s['agents']:,}", seed,
                size(s["stored_bytes"]), ratio(_logged_bytes(s), s["stored_bytes"]), ", ".join(_state(s)),
            ]
        )  # fmt: skip
    more = [f"  ... and {len(simulations) - _MOST_SIMULATIONS} more"] if len(simulations) > _MOST_SIMULATIONS else []
    return table(rows, right=range(1, 7)) + more


def _state(simulation: dict[str, Any]) -> list[str]:
    damaged = len(simulation["problems"])
    return ([] if simulation["complete"] else [simulation["state"]]) + ([f"damaged: {count(damaged, 'problem')}"] if damaged else [])


def simulation_lines(facts: dict[str, Any]) -> list[str]:
    """Return the facts of one simulation as text."""
    if "rows" not in facts:
        return [escape(facts["name"]), *_problems(facts["problems"])]
    lengths = facts["episode_lengths"]
    span = "" if not lengths else f" of {lengths[0]:,} steps" if lengths[0] == lengths[1] else f" of {lengths[0]:,} to {lengths[1]:,} steps"
    agents = count(facts["agents"], "agent")
    if facts["populations"]:
        agents += " (" + ", ".join(f"{n:,} {escape(name)}" for name, n in facts["populations"].items()) + ")"
    raw, stored = _logged_bytes(facts), facts["stored_bytes"]
    smaller = (
        "" if not raw or not stored else f" ({raw / stored:.1f} times smaller)" if raw >= stored else " (larger: there is little in it)"
    )
    out = [
        escape(facts["name"]) + _STATES[facts["state"]],
        f"  {count(facts['episodes'], 'episode')}{span}, {count(facts['rows'], 'row')}, {agents}",
        f"  {size(raw)} of values in {size(stored)}{smaller}",
        "",
    ]
    return [*out, *_metadata(facts), "", *_variables(facts["variables"]), *_report(facts["report"]), *_problems(facts["problems"])]


def _problems(problems: list[str]) -> list[str]:
    more = [f"    ... and {len(problems) - _MOST_ENTRIES} more"] if len(problems) > _MOST_ENTRIES else []
    return ["", "  damaged:", *(f"    {short(problem, 500)}" for problem in problems[:_MOST_ENTRIES]), *more] if problems else []


def _logged_bytes(facts: dict[str, Any]) -> int:
    """Return the bytes of what was logged, as the logger counted them; of a run that was not finalized, of all its arrays."""
    return int(facts["report"].get("bytes_raw") or facts["raw_bytes"])


def _metadata(facts: dict[str, Any]) -> list[str]:
    rows = [[key, short(facts[key])] for key in ("environment_type", "seed", "date") if facts[key] is not None]
    config = facts["config"]
    if isinstance(config, dict):
        items = list(config.items())
        rows += [[f"config.{short(key, 30)}", short(value)] for key, value in items[:_MOST_CONFIG]]
        rows += [["config", f"... and {len(items) - _MOST_CONFIG} more"]] if len(items) > _MOST_CONFIG else []
    elif config is not None:
        rows.append(["config", short(config)])
    attributes = list(facts["attributes"].items())
    rows += [[short(key, 40), short(value)] for key, value in attributes[:_MOST_ENTRIES]]
    rows += [["...", f"and {len(attributes) - _MOST_ENTRIES} more"]] if len(attributes) > _MOST_ENTRIES else []
    for key in ("episode_fields", "attachments"):
        if facts[key]:
            rows.append([key.replace("_", " "), short(", ".join(facts[key]))])
    return table(rows)


def _variables(variables: list[dict[str, Any]]) -> list[str]:
    rows = [["variable", "type", "dimensions", "chunks", "filters", "array", "stored", "ratio"]]
    for v in variables[: 4 * _MOST_ENTRIES]:
        lacking = f" ({', '.join(v['missing_filters'])} is not installed)" if v["missing_filters"] else ""
        kind = v["dtype"] if v["dtype"] in (v["stored_dtype"], "str") else f"{v['dtype']} as {v['stored_dtype']}"
        rows.append(
            [
                short(v["name"], 40), short(kind, 30), _dims(v), "×".join(map(str, v["chunks"] or ["-"])),
                escape("+".join(v["filters"]) or "none") + lacking, size(v["raw_bytes"]), size(v["stored_bytes"]),
                ratio(v["raw_bytes"], v["stored_bytes"]),
            ]
        )  # fmt: skip
    more = [f"  ... and {len(variables) - 4 * _MOST_ENTRIES} more"] if len(variables) > 4 * _MOST_ENTRIES else []
    return table(rows, right=(5, 6, 7)) + more if variables else ["  no variables"]


def _dims(variable: dict[str, Any]) -> str:
    """Return "agent 24 × time 1341 × y 11": a variable's own dimensions without its name in front."""
    stem = variable["name"].replace(".", "_") + "_"
    return " × ".join(
        f"{short(dim.removeprefix(stem), 30)} {n}" for dim, n in zip(variable["dims"], variable["shape"], strict=True)
    ) or "-"  # fmt: skip


def _report(report: dict[str, Any]) -> list[str]:
    odd = [f"{report[key]:,} {key}" for key in ("overwritten", "coerced", "late", "dropped") if report.get(key)]
    seconds = report.get("seconds_logging")
    told = [f"{seconds:.3g} s in the logger"] if seconds else []
    return ["", f"  report: {', '.join(told + odd) or 'nothing unusual'}"] if report else []


def _foreign(facts: dict[str, Any]) -> list[str]:
    word, opener = _FOREIGN[facts["kind"]]
    root = facts["root"]
    out = [f"{escape(facts['path'])}: {word}, not written by simlab, {size(facts['file_bytes'])}", ""]
    if not (root["groups"] or root["datasets"] or root["links"]):
        out.append("It holds no groups and no arrays.")
    _group(root, "", out)
    if not facts["everything_shown"]:
        out.append("  ... (the file holds more than is shown)")
    return [*out, "", f"Open it: {opener}({escape(facts['path'])!r})"]


_FOREIGN = {
    "hdf5": ("HDF5", "h5py.File"),
    "netcdf4": ("netCDF-4", "xarray.open_datatree"),
    "netcdf3": ("netCDF-3", "xarray.open_dataset"),
}
"""What files of others are called, and what opens them."""


def _group(group: dict[str, Any], indent: str, out: list[str]) -> None:
    out += [f"{indent}  @{short(key, 40)} = {short(value)}" for key, value in list(group["attributes"].items())[:12]]
    shown = [d for d in group["datasets"] if not d["is_dimension"]]
    rows = [
        [
            short(d["name"], 40), short(d["dtype"], 40), _shape(d), "×".join(map(str, d["chunks"])) if d["chunks"] else "-",
            escape("+".join(f["name"] + ("" if f["available"] else " (not installed)") for f in d["filters"]) or "none"),
            size(d["stored_bytes"]), ratio(d["raw_bytes"], d["stored_bytes"]), d["elsewhere"],
        ]
        for d in shown[:_MOST_ENTRIES]
    ]  # fmt: skip
    out += table(rows, indent + "  ", right=(5, 6))
    if len(shown) > _MOST_ENTRIES:
        out.append(f"{indent}  ... and {len(shown) - _MOST_ENTRIES:,} more arrays")
    out += [f"{indent}  {short(link['name'], 40)} -> {short(link['target'])} ({link['kind']})" for link in group["links"][:_MOST_ENTRIES]]
    for inner in group["groups"][:_MOST_ENTRIES]:
        out.append(f"{indent}  {short(inner['name'], 60)}/")
        _group(inner, indent + "  ", out)
    if len(group["groups"]) > _MOST_ENTRIES:
        out.append(f"{indent}  ... and {len(group['groups']) - _MOST_ENTRIES:,} more groups")
    if group["left_out"]:
        out.append(f"{indent}  ... and {group['left_out']:,} more entries")


def _shape(dataset: dict[str, Any]) -> str:
    shape, dims = dataset["shape"], dataset["dims"]
    if shape is None:
        return "no data"
    if dims and len(dims) == len(shape):
        return " × ".join(f"{short(d, 30)} {n}" if d else str(n) for d, n in zip(dims, shape, strict=True)) or "-"
    return " × ".join(map(str, shape)) or "single value"
