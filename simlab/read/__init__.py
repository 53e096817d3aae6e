"""The analysis side: runs as lazy, labelled Datasets."""

from simlab.staging.live import Unfinished
from simlab.storage.handles import show_unfinished_with

show_unfinished_with(Unfinished())
