--
-- Writes changes of bans into the log that all machines read with bans.lua.
--
-- KEYS   the log, "PREFIX:{bans}:log": a stream.
-- ARGV   the number of the machine that writes, then five for each change,
--        in the order in which they were made:
--            "ban" or "lift"
--            the guard
--            the layer
--            the key
--            ban: how long it still lasts, in ms, an integer
--            lift: "0"
--        In a lift, what is empty matches any.
-- reply  the number of changes written; or the first token of the first
--        error, and then a part of them may have been: bans and lifts that
--        are written again do no harm.
--
-- An entry has the fields machine, op, guard, layer, key and, in a ban,
-- "until": the end, in ms by the server's own clock.  It is cut off when the
-- log has some more entries than LOG_MAX ("~": whole nodes only, which costs
-- next to nothing).  That takes nothing from a machine that reads twice a
-- second; one that starts later does not learn of bans that old.
--
-- The log expires when no ban in it is in force any more.  A lift does not
-- prolong that, but keeps the log for LIFT_MS at least: what it lifts may be
-- known to other machines only.  A log without an expiry, which this script
-- never leaves, gets the longest that a ban can need.
--
-- Needs Redis 6.2, and the right to call TIME, PTTL, XADD and PEXPIREAT.
--

local KEYS, ARGV = KEYS, ARGV
local pcall = redis.pcall
local format, match = string.format, string.match
local floor, max = math.floor, math.max

local LOG_MAX = '65536'
local LIFT_MS = 600000
local BAN_MAX_MS = 31536000000
local WORDS = 5

local time = redis.call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)


-- the first token of a command's error, or nothing if it did not fail

local function failed(done)
  if type(done) == 'table' and done.err then
    return match(done.err, '%u%u[%u%d_]*') or 'ERR'
  end
end


-- when the log expires as it is: now, if there is none yet

local function expiry()
  local left = pcall('PTTL', KEYS[1])
  local err = failed(left)

  if err then
    return now, err
  end

  if left == -1 then
    return now + BAN_MAX_MS
  end

  return now + max(left, 0)
end


local function write(a)
  if ARGV[a] == 'ban' then
    return pcall('XADD', KEYS[1], 'MAXLEN', '~', LOG_MAX, '*',
                 'machine', ARGV[1], 'op', 'ban', 'guard', ARGV[a + 1],
                 'layer', ARGV[a + 2], 'key', ARGV[a + 3],
                 'until', format('%.0f', now + ARGV[a + 4]))
  end

  return pcall('XADD', KEYS[1], 'MAXLEN', '~', LOG_MAX, '*',
               'machine', ARGV[1], 'op', 'lift', 'guard', ARGV[a + 1],
               'layer', ARGV[a + 2], 'key', ARGV[a + 3])
end


local ends, err = expiry()
local written = 0

for a = 2, #ARGV, WORDS do
  if err then
    break
  end

  err = failed(write(a))

  if not err then
    written = written + 1
    ends = max(ends, now + (ARGV[a] == 'ban' and ARGV[a + 4] or LIFT_MS))
  end
end

-- also of what was written before an error

if written > 0 then
  local kept = failed(pcall('PEXPIREAT', KEYS[1], format('%.0f', ends)))
  err = err or kept
end

return err or written
