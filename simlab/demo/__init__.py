"""A small multi-agent grid world of our own, for the README, the notebooks and the tests to record."""

from simlab.demo.recording import demo_schema, record_demo, record_step, simulate
from simlab.demo.world import Forager, World

__all__ = ["Forager", "World", "demo_schema", "record_demo", "record_step", "simulate"]
