-- What a script may see, and how the rows it plans reach Python. Run once a pass, with what Python lends it.
--
-- Functions of the script are never compiled, so that the hook below can stop it at any moment; those here may be.

local host, allowed = ...

local assert, error, getmetatable, ipairs, next, pairs = assert, error, getmetatable, ipairs, next, pairs
local rawequal, rawget, rawset, select, setmetatable = rawequal, rawget, rawset, select, setmetatable
local tonumber, tostring, type, unpack = tonumber, tostring, type, unpack
local pcall, xpcall, load, concat, floor = pcall, xpcall, load, table.concat, math.floor
local byte, sub, format, lower, match = string.byte, string.sub, string.format, string.lower, string.match
local traceback, sethook = debug.traceback, debug.sethook
local resume, wrapped, create, status = coroutine.resume, coroutine.wrap, coroutine.create, coroutine.status
local bit, ffi, jit = require("bit"), require("ffi"), require("jit")

local MOST = 2 ^ 53
local MOST_KEYS = 10000  -- that are known by number; where rows have keys of their own, numbers begin anew

-- Stopping -----------------------------------------------------------------------------------------------------------

local STOPPED = "the script was stopped"
local stopped = false

local function look()
    if not stopped and host.stopped() then stopped = true end
    if stopped then error(STOPPED, 0) end
end

-- What was caught is raised again once the script is to end: no pcall outlives it.
local function passed(...)
    if stopped then error(STOPPED, 0) end
    return ...
end

local function safe_pcall(...) return passed(pcall(...)) end

-- The script's handler is not run once it is to end: it would be within the hook, where no other hook can stop it.
local function safe_xpcall(body, handler, ...)
    if type(handler) ~= "function" then error("xpcall: the handler is a function, not " .. tostring(handler), 2) end
    return passed(xpcall(body, function(...)
        if stopped then return STOPPED end
        return handler(...)
    end, ...))
end

local function safe_resume(...) return passed(resume(...)) end

-- Rows ---------------------------------------------------------------------------------------------------------------
-- An entry is four whole numbers: the file (-1: bytes of the script's own), where, how many, the number of its key.

local room, used = 1024, 0
local numbers = ffi.new("int64_t[?]", 4 * room)
local counts, rows, in_row = {}, 0, 0
local keys, key_numbers, new_keys = 0, {}, {}
local literals = {}
local in_this_row = {}
local planned, planned_rows, most_rows = 0, 0, 1
local closing = {}  -- numbers of files that are closed when what was planned of them is asked for

-- What is known of a file, by its handle: a script may write into a handle, and make tables that look like one.
local files = setmetatable({}, { __mode = "k" })
local Handle = { __tostring = function(handle) return "file " .. files[handle].path end, __metatable = false }

local function deliver_rows()
    for i, count in ipairs(counts) do numbers[4 * used + i - 1] = count end
    local said = host.deliver(ffi.string(numbers, 32 * used + 8 * rows), used, new_keys, literals, keys == #new_keys)
    if said then
        stopped = true  -- rows are lost: no pcall of the script's may go on behind that
        error(said, 0)
    end
    look()
    used, rows, planned, counts, new_keys, literals = 0, 0, 0, {}, {}, {}
    most_rows = most_rows < 128 and most_rows * 2 or most_rows
    if keys > MOST_KEYS then keys, key_numbers = 0, {} end
end

-- Between two rows alone: the entries of one that is being planned are not to be torn apart.
local function deliver()
    if rows > 0 then deliver_rows() end
    local closed = closing
    closing = {}
    for _, number in ipairs(closed) do
        local _, why = host.close(number)
        if why then error(why, 0) end
    end
end

local function reserve(count)
    if count <= 4 * room then return end
    room = room * 2
    local larger = ffi.new("int64_t[?]", 4 * room)
    ffi.copy(larger, numbers, 32 * used)
    numbers = larger
end

local loader = {}

local function method(name, self)
    if not rawequal(self, loader) then
        error(name .. " is called with a colon: g_loader:" .. name .. "(...)", 3)
    end
end

local function whole(name, what, value)
    if type(value) == "cdata" then value = tonumber(value) end
    if type(value) ~= "number" or value < 0 or value > MOST or value ~= floor(value) then
        error(format("%s: the %s is a whole number from 0 up, not %s", name, what, tostring(value)), 3)
    end
    return value
end

local function add(name, key, file, offset, size)
    if type(key) ~= "string" then error(format("%s: the key is a string, not %s", name, tostring(key)), 3) end
    if in_this_row[key] then error(format("%s: the row has an entry %q already", name, key), 3) end
    in_this_row[key] = true
    local number = key_numbers[key]
    if not number then
        number, keys = keys, keys + 1
        key_numbers[key] = number
        new_keys[#new_keys + 1] = key
    end
    reserve(4 * (used + 1) + rows + 1)
    local at = 4 * used
    numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3] = file, offset, size, number
    used, in_row, planned = used + 1, in_row + 1, planned + size
end

function loader:open_file(path)
    method("open_file", self)
    if type(path) ~= "string" then error("open_file: the path is a string, not " .. tostring(path), 2) end
    local number, size = host.open(path)
    if not number then error(size, 2) end
    local handle = setmetatable({}, Handle)
    files[handle] = { number = number, size = size, path = path }
    return handle
end

local function opened(name, handle)
    local file = handle ~= nil and files[handle]
    if not file then error(name .. ": the handle is what open_file gave, not " .. tostring(handle), 3) end
    if file.closed then error(name .. ": " .. file.path .. " was closed", 3) end
    return file
end

function loader:add_entry(handle, key, offset, size)
    method("add_entry", self)
    local file = opened("add_entry", handle)
    offset, size = whole("add_entry", "offset", offset), whole("add_entry", "size", size)
    if offset + size > file.size then
        error(format("add_entry: bytes %.0f to %.0f of %s, which has %.0f", offset, offset + size, file.path,
            file.size), 2)
    end
    add("add_entry", key, file.number, offset, size)
end

function loader:add_entry_bytes(key, data)
    method("add_entry_bytes", self)
    if type(data) ~= "string" then error("add_entry_bytes: the data is a string, not " .. tostring(data), 2) end
    add("add_entry_bytes", key, -1, #literals, #data)
    literals[#literals + 1] = data
end

function loader:finish_row()
    method("finish_row", self)
    rows, planned_rows = rows + 1, planned_rows + 1
    counts[rows] = in_row
    reserve(4 * used + rows + 1)
    in_row, in_this_row = 0, {}
    if rows >= most_rows or planned >= 1048576 or #closing > 0 then deliver() end
end

function loader:close_file(handle)
    method("close_file", self)
    local file = opened("close_file", handle)
    file.closed = true
    closing[#closing + 1] = file.number
    if in_row == 0 then deliver() end
end

loader = setmetatable(loader, {
    __newindex = function() error("g_loader is not to be changed", 2) end,
    __index = function(_, name) error("g_loader has no " .. tostring(name), 2) end,
    __metatable = false,
})

-- MessagePack --------------------------------------------------------------------------------------------------------

local u8p = ffi.typeof("const uint8_t *")
local swap = ffi.new("union { uint8_t b[8]; double d; float f; int8_t i1; int16_t i2; int32_t i4; int64_t i8; "
    .. "uint16_t u2; uint32_t u4; uint64_t u8; }")
local SHORT = {}  -- what is missing comes with the next piece of the file

local function number_at(p, at, size, field, limit)
    if at + size > limit then error(SHORT, 0) end
    for i = 0, size - 1 do swap.b[size - 1 - i] = p[at + i] end
    return tonumber(swap[field])
end

local decode

local function text_at(p, at, size, limit)
    if at + size > limit then error(SHORT, 0) end
    return ffi.string(p + at, size), at + size
end

local function list_at(p, at, count, limit, depth)
    local list = {}
    for i = 1, count do list[i], at = decode(p, at, limit, depth + 1) end
    return list, at
end

local function map_at(p, at, count, limit, depth)
    local map = {}
    for _ = 1, count do
        local key, value
        key, at = decode(p, at, limit, depth + 1)
        value, at = decode(p, at, limit, depth + 1)
        if key ~= nil and key == key then map[key] = value end
    end
    return map, at
end

local WIDE = {
    [0xca] = { 4, "f" }, [0xcb] = { 8, "d" }, [0xcc] = { 1, "b" }, [0xcd] = { 2, "u2" }, [0xce] = { 4, "u4" },
    [0xcf] = { 8, "u8" }, [0xd0] = { 1, "i1" }, [0xd1] = { 2, "i2" }, [0xd2] = { 4, "i4" }, [0xd3] = { 8, "i8" },
}
local SIZED = {
    [0xc4] = { 1, text_at }, [0xc5] = { 2, text_at }, [0xc6] = { 4, text_at },
    [0xd9] = { 1, text_at }, [0xda] = { 2, text_at }, [0xdb] = { 4, text_at },
    [0xdc] = { 2, list_at }, [0xdd] = { 4, list_at }, [0xde] = { 2, map_at }, [0xdf] = { 4, map_at },
}
local FIELDS = { [1] = "u1", [2] = "u2", [4] = "u4" }

function decode(p, at, limit, depth)
    if at >= limit then error(SHORT, 0) end
    if depth > 64 then error("it is nested more than 64 levels deep", 0) end
    local kind = p[at]
    at = at + 1
    if kind < 0x80 then return kind, at end
    if kind < 0x90 then return map_at(p, at, kind - 0x80, limit, depth) end
    if kind < 0xa0 then return list_at(p, at, kind - 0x90, limit, depth) end
    if kind < 0xc0 then return text_at(p, at, kind - 0xa0, limit) end
    if kind >= 0xe0 then return kind - 0x100, at end
    if kind == 0xc0 then return nil, at end
    if kind == 0xc2 or kind == 0xc3 then return kind == 0xc3, at end
    local wide = WIDE[kind]
    if wide then
        if kind == 0xcc then
            if at >= limit then error(SHORT, 0) end
            return p[at], at + 1
        end
        return number_at(p, at, wide[1], wide[2], limit), at + wide[1]
    end
    local sized = SIZED[kind]
    if sized then
        local size
        if sized[1] == 1 then
            if at >= limit then error(SHORT, 0) end
            size = p[at]
        else
            size = number_at(p, at, sized[1], FIELDS[sized[1]], limit)
        end
        return sized[2](p, at + sized[1], size, limit, depth)
    end
    error(format("byte 0x%02x begins nothing that is understood here", kind), 0)
end

-- Rows of a file of MessagePack values, read a piece at a time.
local function iterated(path, first)
    local data, from, at = first, 0, 0
    local size, unknown = host.size(path)
    if not size then error(unknown, 2) end
    return function()
        while true do
            if at >= #data and from + #data >= size then return nil end
            local value, behind
            local fine, said = pcall(function() value, behind = decode(ffi.cast(u8p, data), at, #data, 0) end)
            if fine then
                if value == nil then
                    error(format("%s: byte %.0f: a nil, which would end the iteration", path, from + at), 2)
                end
                at = behind
                return value
            end
            if not rawequal(said, SHORT) then
                error(format("%s: byte %.0f: %s", path, from + at, tostring(said)), 2)
            end
            local more, why = host.read(path, from + #data, 1048576)
            if not more then error(why, 2) end
            if #more == 0 then error(format("%s: byte %.0f: the file ends within a value", path, from + at), 2) end
            data, from, at = sub(data, at + 1) .. more, from + at, 0
        end
    end
end

-- A brace begins no MessagePack that anyone would write; any other first byte of JSON does, so that the name decides.
local JSON_LINES = { json = true, jsonl = true, ndjson = true }

local function is_lines(path, first)
    return byte(first, 1) == 123 or JSON_LINES[match(lower(path), "%.(%w+)$") or ""]
end

local function unpacker(path)
    if type(path) ~= "string" then error("the path is a string, not " .. tostring(path), 2) end
    local first, why = host.read(path, 0, 1048576)
    if not first then error(why, 2) end
    return {
        iter = function()
            if is_lines(path, first) then
                local row, unread = host.lines(path)
                if not row then error(unread, 2) end
                return function()
                    local value, said = row()
                    if said then error(said, 2) end
                    return value
                end
            end
            return iterated(path, first)
        end,
    }
end

local function scan_dir(path)
    if type(path) ~= "string" then error("the path is a string, not " .. tostring(path), 2) end
    local found, why = host.list(path)
    if not found then error(why, 2) end
    return {
        iter = function()
            local i = 0
            return function()
                i = i + 1
                return found[i]
            end
        end,
    }
end

-- The script's world -------------------------------------------------------------------------------------------------

local function copied(library, without)
    local copy = {}
    for name, value in pairs(library) do
        if not (without and without[name]) then copy[name] = value end
    end
    return copy
end

local env = {
    _VERSION = _VERSION, assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next,
    pairs = pairs, pcall = safe_pcall, xpcall = safe_xpcall, rawequal = rawequal, rawget = rawget, rawset = rawset,
    select = select, setmetatable = setmetatable, tonumber = tonumber, tostring = tostring, type = type,
    unpack = unpack, bit = copied(bit), math = copied(math), table = copied(table),
    string = copied(string, { dump = true }),
    coroutine = copied(coroutine), os = { clock = os.clock, date = os.date, difftime = os.difftime, time = os.time },
    g_loader = loader, g_config = host.config, g_epoch = host.epoch,
    msgpack_unpacker = unpacker, scan_dir = scan_dir,
}
env._G = env
env.coroutine.resume = safe_resume

-- A coroutine that fails ends its caller too, as coroutine.wrap does.
function env.coroutine.wrap(body)
    local thread = create(body)
    local function result(fine, ...)
        if not fine then error((...), 0) end
        return ...
    end
    return function(...) return result(safe_resume(thread, ...)) end
end

function env.print(...)
    local said = {}
    for i = 1, select("#", ...) do said[i] = tostring((select(i, ...))) end
    local _, why = host.print(concat(said, "\t"))
    if why then error(why, 2) end
end

-- Text alone is loaded, never bytecode, which could do anything.
local function loaded(source, name, scope)
    local made, why = load(source, name, "t", scope or env)
    if made then jit.off(made, true) end
    return made, why
end

function env.loadstring(source, name)
    if type(source) ~= "string" then error("loadstring: a string is needed", 2) end
    return loaded(source, name or source)
end

function env.load(source, name, _, scope)
    if type(source) == "function" then
        local parts = {}
        for part in source do
            if part == nil or part == "" then break end
            parts[#parts + 1] = part
        end
        source = concat(parts)
    end
    if type(source) ~= "string" then error("load: a string or a function is needed", 2) end
    return loaded(source, name or source, scope)
end

local modules = {
    ["ultar.loader"] = loader,
    ["ultar.utix"] = { open = unpacker },
    ["ultar.scandir"] = { open = scan_dir },
    bit = env.bit, math = env.math, string = env.string, table = env.table, coroutine = env.coroutine,
}

for name in pairs(allowed) do
    if name == "os" or name == "io" or name == "debug" or name == "package" then
        env[name] = _G[name]
        modules[name] = _G[name]
    elseif name == "ffi" then
        modules.ffi = ffi
    end
end

function env.require(name)
    local module = modules[name]
    if module == nil then
        error(format("require(%q): scripts have ultar.loader, ultar.utix and ultar.scandir%s", tostring(name),
            (name == "io" or name == "os" or name == "ffi") and "; LuaLoader(allow=...) gives more" or ""), 2)
    end
    return module
end

local function explained(said)
    if rawequal(said, STOPPED) then return said end
    return traceback(tostring(said), 1)
end

sethook(look, "", 100000)

-- Runs the whole script; what it returns is nothing, or what went wrong with a traceback.
return function(source, name, rank, world_size)
    local fine, said = xpcall(function()
        local script, why = loaded(source, name)
        if not script then error(why, 0) end
        local plan = script()
        if type(plan) ~= "table" then
            error("the script returns a table with init_ctx and row_generator, not " .. tostring(plan), 0)
        end
        for _, part in ipairs({ "init_ctx", "row_generator" }) do
            if type(plan[part]) ~= "function" then
                error(format("the script's table has %s as %s, where a function is needed", tostring(plan[part]), part), 0)
            end
        end
        plan.row_generator(plan.init_ctx(rank, world_size, env.g_config))
        if in_row > 0 then
            error(format("row_generator ended with %d entries and no finish_row() behind them", in_row), 0)
        end
        deliver()
    end, explained)
    if not fine and not stopped then
        in_row = 0
        pcall(deliver)  -- rows that were finished come before what went wrong
    end
    sethook()
    if not fine then return tostring(said) end
end
