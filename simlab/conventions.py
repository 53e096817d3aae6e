"""Every name and attribute that reaches the disk, and the version of the format.

docs/reference/file-format.md describes the file; this room is the only place that spells its words.
"""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = "1.0"
CF_CONVENTIONS: Final = "CF-1.11"

# -- the root and a simulation's own attributes
ATTR_CONVENTIONS: Final = "Conventions"
ATTR_FORMAT: Final = "simlab_format"
ATTR_SOURCE: Final = "source"
ATTR_HISTORY: Final = "history"
ATTR_SEED: Final = "seed"
ATTR_CONFIG: Final = "config"
ATTR_DATE: Final = "date"
ATTR_ENVIRONMENT_TYPE: Final = "environment_type"
ATTR_STEP_DURATION: Final = "step_duration"
ATTR_SCHEMA: Final = "simlab_schema"
"""The schema of the run as JSON."""
ATTR_RESUMED: Final = "resumed"
"""Where another writer went on with the run: a JSON list, one entry for each."""
ATTR_JSON_ATTRIBUTES: Final = "json_attributes"
"""Names of the attributes whose text is JSON: lists, booleans, None, dates (a JSON list of names)."""

# -- groups
GROUP_AGENTS: Final = "agents"
GROUP_ENVIRONMENT: Final = "environment"
GROUP_EPISODES: Final = "episodes"
GROUP_ATTACHMENTS: Final = "attachments"
GROUP_REPORT: Final = "report"

# -- dimensions and bookkeeping variables
TIME: Final = "time"
STEP: Final = "step"
EPISODE: Final = "episode"
AGENT: Final = "agent"
LOGGED: Final = "logged"
COMMITTED: Final = "committed"
COMPLETE: Final = "complete"
ID_SUFFIX: Final = "_id"
KEY_SUFFIX: Final = "_key"
"""``agent_key(agent, agent_key_strlen)``: the id as JSON, present once one id is not text."""
STRLEN_SUFFIX: Final = "_strlen"
LABEL_SUFFIX: Final = "_label"
TIME_SUFFIX: Final = "_time"
GROUP_COUNT: Final = "group_count"
"""A number in a group that holds groups only: Octave's ``ncinfo`` wants a variable in each group if its neighbours have some."""

RESERVED_NAMES: Final = frozenset(
    {TIME, STEP, EPISODE, AGENT, AGENT + ID_SUFFIX, AGENT + KEY_SUFFIX, LOGGED, COMMITTED, COMPLETE, GROUP_COUNT}
)

# -- modalities: what a variable of an agent is to the agent
OBSERVATIONS: Final = "observations"
ACTIONS: Final = "actions"
REWARDS: Final = "rewards"
STATES: Final = "states"
TERMINATIONS: Final = "terminations"
ENVIRONMENT: Final = "environment"
AGENT_MODALITIES: Final = (OBSERVATIONS, ACTIONS, REWARDS, STATES, TERMINATIONS)

FLAT_NAMES: Final = {
    "action": ACTIONS,
    "actions": ACTIONS,
    "reward": REWARDS,
    "rewards": REWARDS,
    "state": STATES,
    "states": STATES,
    "terminated": TERMINATIONS,
    "termination": TERMINATIONS,
    "terminations": TERMINATIONS,
    "truncated": TERMINATIONS,
    "truncation": TERMINATIONS,
    "truncations": TERMINATIONS,
    "done": TERMINATIONS,
    "dones": TERMINATIONS,
}
"""In a flat dictionary these names are what they say; any other name is an observation."""

# -- attributes of a variable
ATTR_MODALITY: Final = "modality"
ATTR_KIND: Final = "kind"
ATTR_LOGGED_DTYPE: Final = "simlab_dtype"
"""The dtype that was logged, where the file stores another one."""
ATTR_BOOL: Final = "dtype"
"""xarray's own convention: an int8 variable with ``dtype = "bool"``."""
ATTR_ORIGINAL_NAME: Final = "original_name"
ATTR_EVERY: Final = "every"
ATTR_ENCODING: Final = "_Encoding"

NOT_A_VARIABLE: Final = b"This is a netCDF dimension but not a netCDF variable.%10d"
"""What netCDF-4 writes as the NAME of a dimension without a coordinate variable."""
