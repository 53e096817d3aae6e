"""Jupyter servers for the tests: on loopback, without news, with nothing of the user's configuration."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


@dataclass
class Server:
    """A running server.

    Attributes
    ----------
    url : str
        Where it answers.
    folder : Path
        What it serves.
    """

    process: subprocess.Popen[bytes]
    url: str
    folder: Path
    log: Path

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a server that knows nothing but the virtual environment and this repository."""
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}
    for place in places.values():
        (home / place).mkdir(parents=True, exist_ok=True)
    out = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT), **{name: str(home / place) for name, place in places.items()}}
    return {name: value for name, value in out.items() if "proxy" not in name.lower()}


def start(program: str, folder: Path, home: Path) -> Server:
    """Start JupyterLab, Notebook 7 or Voilà and wait until it answers.

    Parameters
    ----------
    program : {"lab", "notebook", "voila"}
        Which one.
    folder, home : Path
        What it serves, and where its own files go.
    """
    port = free_port()
    settings = home / "app_settings"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "overrides.json").write_text(json.dumps(OVERRIDES))
    common = [
        "--no-browser", "--allow-root", f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1",
        "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}",
    ]  # fmt: skip
    lab = [
        "--expose-app-in-browser", "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        f"--LabApp.user_settings_dir={home / 'user'}", f"--LabApp.workspaces_dir={home / 'workspaces'}",
        f"--LabApp.app_settings_dir={settings}",
    ]  # fmt: skip
    commands = {
        "lab": ["jupyterlab", *common, *lab],
        "notebook": ["notebook", *common, "--JupyterNotebookApp.expose_app_in_browser=True"],
        "voila": ["voila", "--no-browser", f"--port={port}", "--Voila.ip=127.0.0.1", "--strip_sources=True", str(folder)],
    }
    log = home / f"{program}.log"
    with open(log, "wb") as out:
        command = [sys.executable, "-m", *commands[program]]
        process = subprocess.Popen(command, cwd=folder, env=environment(home), stdout=out, stderr=subprocess.STDOUT)
    server = Server(process, f"http://127.0.0.1:{port}", folder, log)
    probe = f"{server.url}/api/status" if program != "voila" else server.url
    for _ in range(240):
        if process.poll() is not None:
            raise RuntimeError(f"{program} ended: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(probe, timeout=5):
                return server
        except OSError:
            time.sleep(0.25)
    server.stop()
    raise RuntimeError(f"{program} does not answer: {log.read_text()[-2000:]}")


def notebook(path: Path, *cells: str) -> Path:
    """Write a notebook of code cells."""
    code = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "execution_count": None, "outputs": [], "source": cell}
        for i, cell in enumerate(cells)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    path.write_text(json.dumps({"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}))
    return path
