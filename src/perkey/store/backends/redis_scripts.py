"""The Lua of the Redis store: each script is one atomic step of the server.

Keys of one store share a hash tag, so a cluster keeps them in one slot; scripts may therefore
build the names of further keys from the tag.

    {name}:h:KEY    string: "VERSION OP\\n" and the packed record: the head
    {name}:s:KEY    stream, entry VERSION-0: the kept versions
    {name}:live     sorted set, all scores 0: the keys that are not deleted, in byte order
    {name}:log      stream: one entry for each kept version, in order of commits
    {name}:gone     hash, KEY -> the last entry of the log that retention dropped; "" -> of all
"""

from __future__ import annotations

HEADS = """
local heads = {}
for i, key in ipairs(KEYS) do heads[i] = redis.call('GET', key) end
return {redis.call('TIME'), heads}
"""
"""KEYS: head strings.  Returns {time, heads}."""

COMMIT = """
local tag, keep, oldest, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
for i = 1, n do
  local mark = ARGV[4 + i]
  if mark == '' then
    if redis.call('EXISTS', KEYS[i]) == 1 then return 0 end
  elseif redis.call('GETRANGE', KEYS[i], 0, #mark - 1) ~= mark then
    return 0
  end
end

local live, log, gone = tag .. ':live', tag .. ':log', tag .. ':gone'

local function drop(key, stream, floor)
  local last
  while true do
    local some = redis.call('XRANGE', stream, '-', floor .. '-0', 'COUNT', 100)
    if #some == 0 then break end
    for _, entry in ipairs(some) do
      last = entry[2][2]
      redis.call('XDEL', log, last)
      redis.call('XDEL', stream, entry[1])
    end
  end
  if last then
    redis.call('HSET', gone, key, last)
    redis.call('HSET', gone, '', last)
  end
end

local function drop_old(key, stream, version)
  local floor = 0
  while true do
    local some = redis.call('XRANGE', stream, '(' .. floor .. '-0', '+', 'COUNT', 100)
    local found = false
    for _, entry in ipairs(some) do
      local this = tonumber(string.match(entry[1], '^%d+'))
      if this >= version or tonumber(entry[2][4]) >= oldest then break end
      floor, found = this, true
    end
    if not found then break end
  end
  if floor > 0 then drop(key, stream, floor) end
end

for i = 5 + n, #ARGV, 6 do
  local key, kind, version, at, packed = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  if string.find(kind, 'k') then
    local stream = tag .. ':s:' .. key
    local id = redis.call('XADD', log, '*', 'k', key, 'v', version)
    redis.call('XADD', stream, version .. '-0', 'i', id, 'a', at, 'r', packed)
    if tonumber(version) > keep then drop(key, stream, version - keep) end
    if oldest > 0 then drop_old(key, stream, tonumber(version)) end
  end
  if string.find(kind, 'h') then
    redis.call('SET', tag .. ':h:' .. key, ARGV[i + 5] .. packed)
    if string.find(kind, 'd') then
      redis.call('ZREM', live, key)
    else
      redis.call('ZADD', live, 0, key)
    end
  end
end
return 1
"""
"""KEYS: head strings to compare.  ARGV: tag, versions to keep, the oldest time to keep or 0, how
many marks, a mark for each key ('' for none yet), then six for each record: key, kind (k: keep
it in history; h: it is the head; d: deleted), version, time, packed record, mark.
Returns 1, or 0 where a key had moved."""

SCAN = """
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
local found = {}
for i, key in ipairs(keys) do found[i] = redis.call('GET', ARGV[1] .. ':h:' .. key) end
return found
"""
"""KEYS: the set of live keys.  ARGV: tag, lower and upper bound, limit.  Returns heads."""

WALK = """
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local heads = {}
for i, name in ipairs(page[2]) do heads[i] = redis.call('GET', name) end
return {page[1], heads}
"""
"""KEYS: one head, by which a cluster finds the server.  ARGV: the server's own cursor, the
pattern of all heads, about how many.  Returns {cursor, heads}."""

CHANGES = """
local entries = redis.call('XRANGE', KEYS[1], ARGV[2], '+', 'COUNT', ARGV[3])
local limit, prefix = tonumber(ARGV[4]), ARGV[5]
local found, last, live = {}, ARGV[6], #entries < tonumber(ARGV[3])
for _, entry in ipairs(entries) do
  local key, version = entry[2][2], entry[2][4]
  if string.sub(key, 1, #prefix) == prefix then
    if #found == limit then
      live = false
      break
    end
    local kept = redis.call('XRANGE', ARGV[1] .. ':s:' .. key, version .. '-0', version .. '-0')
    if kept[1] then found[#found + 1] = {entry[1], kept[1][2][6]} end
  end
  last = entry[1]
end
local dropped = redis.call('HGET', ARGV[1] .. ':gone', '')
return {found, last, live and 1 or 0, dropped or ''}
"""
"""KEYS: the log.  ARGV: tag, where to begin, how many entries to look at, limit, prefix, the
cursor.  Returns {{{id, record}, ...}, the last id looked at, whether that was all, the last id
that retention dropped}."""
