"""The analysis side: run files as lazy xarray objects."""

from simlab.staging.recovery import open_unfinished
from simlab.storage.opening import show_unfinished_with

show_unfinished_with(open_unfinished)
