"""``simlab view RUN``: the viewer in a browser, from a server that only this machine reaches."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from typing import Any, Final

import simlab
from simlab.cli.export import named_agents
from simlab.cli.terminal import escape
from simlab.errors import MissingPackageError, NotInRunError, StorageError
from simlab.storage.opening import absolute_path

_NAME: Final = "viewer.ipynb"
_PATIENCE: Final = 60.0
_LOCAL: Final = "127.0.0.1"


def run(given: argparse.Namespace) -> int:
    """Start the server, open the browser, wait for Ctrl-C."""
    program = _program(given.program)
    with simlab.open_run(given.file, simulation=given.simulation) as ds:
        agents = named_agents(given.agents, ds.sim.agents)
        agents = list(ds.sim.agents) if agents == "all" else agents
        known = [int(k) for k in ds.sim.episodes["episode"].values]
    episode = known[given.episode] if -len(known) <= given.episode < 0 else given.episode
    if episode not in known:
        raise NotInRunError(f"There is no episode {given.episode}; the run has {len(known)} episodes.")
    with tempfile.TemporaryDirectory(prefix="simlab-view-") as folder:  # only its owner may look into it
        with open(os.path.join(folder, _NAME), "w", encoding="utf-8") as out:
            json.dump(_notebook(absolute_path(given.file), given.simulation, episode, agents), out)
        return _serve(program, folder, given.port or _free_port(), not given.no_browser)


def _program(wanted: str | None) -> str:
    """Return what shows the viewer: the program that was asked for, or Voilà, or JupyterLab."""
    for name in [wanted] if wanted else ["voila", "lab"]:
        if importlib.util.find_spec("voila" if name == "voila" else "jupyterlab") is not None:
            return name
    if wanted == "voila":
        raise MissingPackageError("voila", "to show the viewer in a browser")
    raise MissingPackageError("jupyterlab", "to show the viewer in a browser", extra="lab")


def _notebook(path: str, simulation: str | None, episode: int, agents: Any) -> dict[str, Any]:
    options = f"episode={episode!r}" + (f", agents={list(agents)!r}" if agents is not None else "")
    source = f"import simlab\n\nds = simlab.open_run({path!r}" + (f", simulation={simulation!r}" if simulation else "")
    source += f")\nviewer = ds.sim.view({options})\nviewer"
    cell: dict[str, Any] = {"cell_type": "code", "id": "viewer", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOCAL, 0))
        return int(probe.getsockname()[1])


def _serve(program: str, folder: str, port: int, browser: bool) -> int:
    token = secrets.token_urlsafe(32)
    config = os.path.join(folder, "config")
    os.mkdir(config)
    # The token goes through a file and the environment: other users of the machine can read command lines.
    with open(os.path.join(config, "voila.json"), "w", encoding="utf-8") as out:
        json.dump({"Voila": {"token": token, "ip": _LOCAL}}, out)
    if program == "voila":
        command = ["voila", "--no-browser", f"--port={port}", "--Voila.port_retries=0", os.path.join(folder, _NAME)]
        url = f"http://{_LOCAL}:{port}/?token={token}"
    else:
        command = ["jupyterlab", "--no-browser", f"--ServerApp.ip={_LOCAL}", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
        command += [f"--ServerApp.root_dir={folder}", *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
        url = f"http://{_LOCAL}:{port}/lab/tree/{_NAME}?token={token}"
    places = [config, os.environ.get("JUPYTER_CONFIG_PATH", "")]
    environment = {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": os.pathsep.join(p for p in places if p)}
    log = os.path.join(folder, "server.log")
    with open(log, "wb") as out:
        server = subprocess.Popen([sys.executable, "-m", *command], env=environment, stdout=out, stderr=subprocess.STDOUT, cwd=os.getcwd())
    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this command ends the server too
    try:
        _wait(server, port, log)
        print(
            f"{url}\nCtrl-C ends the server." + (" Run the cell of the notebook to see the viewer." if program == "lab" else ""), flush=True
        )
        if browser:
            webbrowser.open(url)
        server.wait()
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    return 0


def _wait(server: subprocess.Popen[bytes], port: int, log: str) -> None:
    """Wait until the server answers; tell what it said if it does not."""
    end = time.monotonic() + _PATIENCE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < end and server.poll() is None:
        try:
            opener.open(f"http://{_LOCAL}:{port}/", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # it answers, and wants its token
        except OSError:
            time.sleep(0.2)
    with open(log, encoding="utf-8", errors="replace") as file:
        told = file.read()[-1500:]
    raise StorageError(f"The server did not start on port {port}. It said: {escape(told)}")
