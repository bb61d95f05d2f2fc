"""Rows planned by a Lua script and read by the engine: the script decides, and never waits for a disk."""

from fastloader.lua.loader import LuaLoader
from fastloader.lua.rows import Row
from fastloader.lua.script import LuaError

__all__ = ["LuaError", "LuaLoader", "Row"]
