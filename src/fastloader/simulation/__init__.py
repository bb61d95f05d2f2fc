"""What a world of ranks would read, told from tables alone: bytes, requests, room for a cache, how well orders mix."""

from fastloader.simulation.layout import Layout
from fastloader.simulation.mixing import Mixing
from fastloader.simulation.simulation import Link, RankFigures, Simulation, simulate

__all__ = ["Layout", "Link", "Mixing", "RankFigures", "Simulation", "simulate"]
