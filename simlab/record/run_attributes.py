"""The attributes of a simulation: its seed, configuration, date, and what else the caller says of it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from simlab.conventions import (
    ATTR_CONFIG,
    ATTR_DATE,
    ATTR_ENVIRONMENT_TYPE,
    ATTR_JSON_ATTRIBUTES,
    ATTR_SEED,
    ATTR_STEP_DURATION,
)
from simlab.errors import InputError, MetadataError
from simlab.metadata import split_attributes, to_json
from simlab.metadata.encoding import is_utf8


def run_attributes(
    seed: int | None, config: Any, environment_type: str | None, step_duration: float | None, metadata: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the attributes of the simulation's group."""
    own: dict[str, Any] = {ATTR_DATE: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if seed is not None:
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not -(2**63) <= int(seed) < 2**63:
            raise MetadataError(f"seed={seed!r} is no whole number of 64 bits. Several seeds go into config or metadata.")
        own[ATTR_SEED] = np.int64(seed)
    if config is not None:
        own[ATTR_CONFIG] = to_json(config, "config")
    if environment_type is not None:
        if not isinstance(environment_type, str) or "\0" in environment_type or not is_utf8(environment_type):
            raise MetadataError(f"environment_type={environment_type!r} is no text.")
        own[ATTR_ENVIRONMENT_TYPE] = environment_type
    if step_duration is not None:
        if not isinstance(step_duration, (int, float, np.number)) or not 0 < float(step_duration) < float("inf"):
            raise InputError(f"step_duration={step_duration!r} is no time. Give a number above zero.")
        own[ATTR_STEP_DURATION] = np.float64(step_duration)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise MetadataError(f"metadata={metadata!r} is no dictionary.")
    native, as_json = split_attributes(metadata or {}, "metadata")
    own |= native
    if as_json:
        own[ATTR_JSON_ATTRIBUTES] = to_json(as_json, "metadata")
    return own
