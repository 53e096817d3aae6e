"""The grid world of the demo: foragers that look for food on a torus with walls.

Foragers see 11×11 cells around themselves, walk to the nearest food they can reach, remember where they last saw some,
have offspring when they are well fed and die when they starve. Everything follows from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from simlab.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

ACTIONS: Final = ("up", "down", "left", "right", "stay")
CHANNELS: Final = ("walls", "food", "agents")
HEIGHT, WIDTH, SIGHT = 32, 48, 5
SNAPSHOT_EVERY: Final = 20
_MOVES: Final = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)])
_FAR: Final = 99
_STAY: Final = 4
SEASONS: Final = (("plenty", 0.010), ("lean", 0.0045), ("drought", 0.0005))


@dataclass(eq=False)
class Forager:
    """One agent: where it is, what it saw, did and got in the latest step."""

    id: str
    y: int
    x: int
    energy: float
    heading: int = _STAY
    age: int = 0
    target: tuple[float, float] = (0.0, 0.0)
    confidence: float = 0.0
    view: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((2 * SIGHT + 1, 2 * SIGHT + 1, 3), np.uint8))
    body: NDArray[np.float32] = field(default_factory=lambda: np.zeros(4, np.float32))
    abstract: NDArray[np.float32] = field(default_factory=lambda: np.zeros(4, np.float32))
    memory: NDArray[np.float32] = field(default_factory=lambda: np.zeros(4, np.float32))
    action: int = _STAY
    reward: float = 0.0
    terminated: bool = False


class World:
    """One episode of the grid world.

    Parameters
    ----------
    seed : int or sequence of int
        Everything random follows from it.
    season : {"plenty", "lean", "drought"}, optional
        How fast food grows back.
    foragers : int, optional
        How many there are at the start.
    walls : ndarray of bool, shape (32, 48), optional
        Where nobody can go; left out, rooms with doors.

    Attributes
    ----------
    agents : list of Forager
        Those who took part in the latest step, the ones that died in it included (``terminated``).
    grid : ndarray of uint8, shape (32, 48, 3)
        Walls, food and agents, as the agents see them.
    food : int
        Cells that hold food.
    time : int
        Steps done.

    Examples
    --------
    >>> world = World(seed=1, season="plenty")
    >>> for _ in range(20):
    ...     world.step()
    >>> world.time, len(world.agents) >= 8, world.grid.shape
    (20, True, (32, 48, 3))
    """

    def __init__(self, seed: int | list[int], season: str = "plenty", foragers: int = 8, walls: NDArray[np.bool_] | None = None) -> None:
        seasons = dict(SEASONS)
        if season not in seasons:
            raise InputError(f"The world has no season {season!r}; choose one of {', '.join(seasons)}.{did_you_mean(season, seasons)}")
        self.season, self.growth = season, seasons[season]
        self._rng = np.random.default_rng(seed)
        self.walls = rooms() if walls is None else walls
        self.fertility = self._groves()
        self.grid: NDArray[np.uint8] = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self.grid[..., 0] = np.where(self.walls, 255, 0)
        self._grow(0.55)
        self.time = self._born = 0
        self.agents: list[Forager] = []
        self._newborn: list[Forager] = []
        free = np.argwhere(~self.walls & (self.grid[..., 1] == 0))
        for y, x in free[self._rng.choice(len(free), foragers, replace=False)]:
            self.agents.append(self._forager(int(y), int(x), 45.0))
        self._place_agents()

    @property
    def food(self) -> int:
        """Cells that hold food."""
        return int(np.count_nonzero(self.grid[..., 1]))

    @property
    def extinct(self) -> bool:
        """Whether nobody is left for another step."""
        return not self._newborn and all(agent.terminated for agent in self.agents)

    def step(self) -> None:
        """Let every agent see, decide and act once; then food grows."""
        self.agents = [agent for agent in self.agents if not agent.terminated] + self._newborn
        self._newborn = []
        self._place_agents()
        self._look()
        for agent in (self.agents[i] for i in self._rng.permutation(len(self.agents))):
            self._act(agent)
        self._grow(self.growth)
        self._place_agents()
        self.time += 1

    def _look(self) -> None:
        """Fill in what every agent sees, feels and knows, and choose its action."""
        if not self.agents:
            return
        padded = np.pad(self.grid, ((SIGHT, SIGHT), (SIGHT, SIGHT), (0, 0)), mode="wrap")
        side = 2 * SIGHT + 1
        views = np.stack([padded[a.y : a.y + side, a.x : a.x + side] for a in self.agents])
        views[:, SIGHT, SIGHT, 2] = 0  # an agent does not see itself
        away = _steps_to_food(views)
        for agent, view, distance in zip(self.agents, views, away, strict=True):
            agent.view = view
            self._decide(agent, distance)
            hunger = float(np.clip(1 - agent.energy / 60, 0, 1))
            agent.body = np.array([agent.x, agent.y, agent.energy, agent.age], np.float32)
            agent.memory = np.array([hunger, *agent.target, agent.confidence], np.float32)

    def _decide(self, agent: Forager, distance: NDArray[np.int64]) -> None:
        here = int(distance[SIGHT, SIGHT])
        seen = here < _FAR
        if seen:  # walk downhill on the map of steps to food, and remember where that food is
            next_to = [int(distance[SIGHT + dy, SIGHT + dx]) for dy, dx in _MOVES[:4]]
            agent.action = _STAY if here == 0 else int(np.argmin(next_to))
            cells = np.argwhere(agent.view[..., 1] > 0) - SIGHT
            dy, dx = cells[np.argmin(np.abs(cells).sum(1))]
            agent.target, agent.confidence = (float(dx), float(dy)), 1.0
        else:
            agent.action = self._search(agent)
        bearing = float(np.arctan2(-agent.target[1], agent.target[0])) if seen else 0.0
        others = np.count_nonzero(agent.view[..., 2])
        agent.abstract = np.array([seen, min(here, 4 * SIGHT), bearing, others], np.float32)

    def _search(self, agent: Forager) -> int:
        """Follow the memory while it lasts; then walk straight on and turn now and then."""
        agent.confidence = 0.93 * agent.confidence if agent.confidence > 0.1 else 0.0
        open_ = [i for i, (dy, dx) in enumerate(_MOVES[:4]) if not agent.view[SIGHT + dy, SIGHT + dx, 0]]
        if not open_:
            return _STAY
        dx, dy = agent.target
        if agent.confidence and (dx or dy):
            wish = (3 if dx > 0 else 2) if abs(dx) >= abs(dy) else (1 if dy > 0 else 0)
            if wish in open_:
                return wish
        agent.target = (0.0, 0.0) if not agent.confidence else agent.target
        if agent.heading in open_ and self._rng.random() > 0.08:
            return agent.heading
        onward = [i for i in open_ if i != (agent.heading ^ 1)] or open_  # 0-1 and 2-3 are opposite
        return int(self._rng.choice(onward))

    def _act(self, agent: Forager) -> None:
        dy, dx = (int(d) for d in _MOVES[agent.action])
        y, x = (agent.y + dy) % HEIGHT, (agent.x + dx) % WIDTH
        if (dy or dx) and not self.walls[y, x]:
            agent.y, agent.x, agent.heading = y, x, agent.action
            agent.target = (agent.target[0] - dx, agent.target[1] - dy)
        eaten = float(self.grid[agent.y, agent.x, 1]) / 255
        self.grid[agent.y, agent.x, 1] = 0
        agent.reward = round(eaten - 0.05, 4)
        agent.energy = agent.energy + 9 * eaten - (1.0 if agent.action != _STAY else 0.5)
        agent.age += 1
        agent.terminated = agent.energy <= 0
        if agent.energy > 100:
            agent.energy /= 2
            self._newborn.append(self._forager(agent.y, agent.x, agent.energy))

    def _forager(self, y: int, x: int, energy: float) -> Forager:
        self._born += 1
        return Forager(f"agent_{self._born - 1}", y, x, energy, heading=int(self._rng.integers(4)))

    def _groves(self) -> NDArray[np.float64]:
        """Food grows in groves: soft round patches, a few to a world."""
        y, x = np.mgrid[:HEIGHT, :WIDTH]
        fertility = np.zeros((HEIGHT, WIDTH))
        for _ in range(7):
            cy, cx, size = self._rng.integers(HEIGHT), self._rng.integers(WIDTH), self._rng.uniform(2.0, 3.6)
            dy, dx = (np.minimum(abs(d), n - abs(d)) for d, n in ((y - cy, HEIGHT), (x - cx, WIDTH)))
            fertility = np.maximum(fertility, np.exp(-(dy**2 + dx**2) / (2 * size**2)))
        return np.where(self.walls | (fertility < 0.08), 0.0, fertility)

    def _grow(self, rate: float) -> None:
        sprouts = (self._rng.random((HEIGHT, WIDTH)) < rate * self.fertility) & (self.grid[..., 1] == 0)
        ripe = 105 + 150 * self.fertility
        self.grid[..., 1] = np.where(sprouts, ripe.astype(np.uint8), self.grid[..., 1])

    def _place_agents(self) -> None:
        self.grid[..., 2] = 0
        for agent in self.agents:
            if not agent.terminated:
                self.grid[agent.y, agent.x, 2] = 255


def _steps_to_food(views: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return, for every cell of every view, the steps to the nearest food around the walls; 99 where none can be reached."""
    wall = views[..., 0] > 0
    away = np.where(views[..., 1] > 0, 0, _FAR).astype(np.int64)
    for _ in range(4 * SIGHT):
        edged = np.pad(away, ((0, 0), (1, 1), (1, 1)), constant_values=_FAR)
        nearest = np.minimum(np.minimum(edged[:, :-2, 1:-1], edged[:, 2:, 1:-1]), np.minimum(edged[:, 1:-1, :-2], edged[:, 1:-1, 2:]))
        better = np.where(wall, _FAR, np.minimum(away, nearest + 1))
        if np.array_equal(better, away):
            break
        away = better
    return np.minimum(away, _FAR)


def rooms() -> NDArray[np.bool_]:
    """Return the walls: six rooms with doors, and pillars."""
    walls = np.zeros((HEIGHT, WIDTH), bool)
    walls[[0, 16], :] = True
    walls[:, [0, 16, 32]] = True
    for middle in (8, 24):
        walls[middle - 2 : middle + 2, [0, 16, 32]] = False
    for middle in (8, 24, 40):
        walls[[0, 16], middle - 2 : middle + 2] = False
    walls[[5, 26], 21:28] = True
    walls[20:28, 40] = True
    walls[11:13, 7:9] = True
    return walls
