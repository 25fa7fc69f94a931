--
-- Writes changes of bans into the log that all machines read with bans.lua.
--
-- KEYS   the log, "PREFIX:{bans}:log": a stream.
-- ARGV   the number of the machine that writes
--        0; or, if changes may have been written by an earlier call whose
--            answer did not come, how many of the latest entries to look
--            through for these, which are not written again then
--        then six for each change, in the order in which they were made:
--            its number, which no other change of the machine has
--            "ban" or "lift"
--            the guard
--            the layer
--            the key
--            ban: how long it still lasts, in ms, an integer
--            lift: "0"
--        In a lift, what is empty matches any.
-- reply  the number of changes that were written now; or the first token of
--        the first error, and then a part of them may have been
--
-- An entry has the fields machine, change, op, guard, layer, key and, in a
-- ban, "until": the end, in ms by the server's own clock.  It is cut off when the
-- log has some more entries than LOG_MAX ("~": whole nodes only, which costs
-- next to nothing).  That takes nothing from a machine that reads twice a
-- second; one that starts later does not learn of bans that old.
--
-- The log expires when no ban in it is in force any more.  A lift does not
-- prolong that, but keeps the log for LIFT_MS at least: what it lifts may be
-- known to other machines only.  A log without an expiry, which this script
-- never leaves, gets the longest that a ban can need.
--
-- A ban that is written again may undo a lift that came in between, and a
-- lift a ban; hence the numbers.
--
-- Needs Redis 6.2, and the right to call TIME, PTTL, XADD, XREVRANGE and
-- PEXPIREAT.
--

local KEYS, ARGV = KEYS, ARGV
local pcall = redis.pcall
local find, format, match = string.find, string.format, string.match
local floor, max = math.floor, math.max

local LOG_MAX = '65536'
local LIFT_MS = 600000
local BAN_MAX_MS = 31536000000
local WORDS = 6

local time = redis.call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)


-- the first token of a command's error, or nothing if it did not fail

local function failed(done)
  if type(done) == 'table' and done.err then

    -- a right that whoever calls the script lacks is an "ERR": Redis 6.2 and
    -- 7.0 say the one, later ones and Valkey the other

    if find(done.err, "can't run this command", 1, true)
       or find(done.err, 'ACL failure', 1, true)
    then
      return 'NOPERM'
    end

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


-- the changes of this machine that are there already: { [number] = true }

local function written_before(count)
  local known = {}

  if count == '0' then
    return known
  end

  local entries = pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', count)
  local err = failed(entries)

  if err then
    return known, err
  end

  for e = 1, #entries do
    local fields = entries[e][2]

    -- as this script writes them; anybody else's do not matter

    if fields[1] == 'machine' and fields[2] == ARGV[1]
       and fields[3] == 'change'
    then
      known[fields[4]] = true
    end
  end

  return known
end


local function write(a)
  if ARGV[a + 1] == 'ban' then
    return pcall('XADD', KEYS[1], 'MAXLEN', '~', LOG_MAX, '*',
                 'machine', ARGV[1], 'change', ARGV[a], 'op', 'ban',
                 'guard', ARGV[a + 2], 'layer', ARGV[a + 3],
                 'key', ARGV[a + 4],
                 'until', format('%.0f', now + ARGV[a + 5]))
  end

  return pcall('XADD', KEYS[1], 'MAXLEN', '~', LOG_MAX, '*',
               'machine', ARGV[1], 'change', ARGV[a], 'op', 'lift',
               'guard', ARGV[a + 2], 'layer', ARGV[a + 3],
               'key', ARGV[a + 4])
end


local ends, err = expiry()
local written = 0
local known

if not err then
  known, err = written_before(ARGV[2])
end

for a = 3, #ARGV, WORDS do
  if err then
    break
  end

  if not known[ARGV[a]] then
    err = failed(write(a))

    if not err then
      written = written + 1
      ends = max(ends,
                 now + (ARGV[a + 1] == 'ban' and ARGV[a + 5] or LIFT_MS))
    end
  end
end

-- also of what was written before an error

if written > 0 then
  local kept = failed(pcall('PEXPIREAT', KEYS[1], format('%.0f', ends)))
  err = err or kept
end

return err or written
