--
-- Reads the log of bans that ban.lua writes, from where it was last read.
--
-- KEYS   the log, "PREFIX:{bans}:log": a stream.
-- ARGV   the id that it was read up to, as an earlier reply had it; "0-0"
--            for all of it
--        how many entries to read at most
-- reply  the id that it is read up to now
--        1 if there may be more, else 0
--        then seven for each entry, in the order in which they were written:
--            the number of the machine that wrote it
--            "ban" or "lift"
--            the guard
--            the layer
--            the key
--            ban: how long it still lasts, in ms; lift: 0
--            how long ago it was written, in ms; 0 if that was later, by this
--                server's clock, which may be behind another master's
--        or, in place of all that, the first token of an error
--
-- In a lift, what is empty matches any.  An entry that ban.lua would not
-- have written is passed over, and so is a ban that has ended.
--
-- If the entry that was last read is not there, the log is another than it
-- was: it has expired, was flushed, or a replica has taken over that had not
-- got all of it, and whose clock may be behind.  Ids tell nothing then, and
-- all of it is read again, which does no harm: who has read all of it knows
-- what it says in the end.  If the entry was just cut off by age, what is
-- left is what comes after it.
--
-- Needs Redis 6.2 ("(" in XRANGE), and the right to call TIME and XRANGE.
--

local KEYS, ARGV = KEYS, ARGV
local pcall = redis.pcall
local find, match = string.find, string.match
local floor, max = math.floor, math.max

local GUARD_MAX, LAYER_MAX, KEY_MAX = 64, 32, 64
local UNTIL_DIGITS_MAX = 15

local time = redis.call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)


-- the first token of a command's error, or nothing if it did not fail; of
-- those who only read, an answer is a table as well

local function failed(done)
  if done.err then

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


local function is_text(text, longest)
  return text and #text <= longest
end


-- Appends an entry, whose fields may be anything, to the reply.

local function tell(reply, id, fields)
  local entry, left = {}, 0

  for f = 1, #fields, 2 do
    entry[fields[f]] = fields[f + 1]
  end

  if not (entry.machine and find(entry.machine, '^%d+$')
          and #entry.machine <= 20
          and is_text(entry.guard, GUARD_MAX)
          and is_text(entry.layer, LAYER_MAX)
          and is_text(entry.key, KEY_MAX)
          and find(entry.key, '^[!-~]*$'))
  then
    return
  end

  if entry.op == 'ban' then
    if entry.guard == '' or entry.layer == '' or entry.key == ''
       or not entry['until']
       or not find(entry['until'], '^%d+$')
       or #entry['until'] > UNTIL_DIGITS_MAX
    then
      return
    end

    left = entry['until'] - now

    if left <= 0 then
      return
    end

  elseif entry.op ~= 'lift'
         or entry.guard == '' and entry.layer == '' and entry.key == ''
  then
    return
  end

  local n = #reply

  reply[n + 1], reply[n + 2], reply[n + 3] = entry.machine, entry.op,
                                             entry.guard
  reply[n + 4], reply[n + 5], reply[n + 6] = entry.layer, entry.key, left
  reply[n + 7] = max(now - match(id, '^%d+'), 0)
end


local after, count = ARGV[1], ARGV[2]

if after ~= '0-0' then
  local last = pcall('XRANGE', KEYS[1], after, after)
  local err = failed(last)

  if err then
    return err
  end

  if #last == 0 then
    after = '0-0'
  end
end

local entries = pcall('XRANGE', KEYS[1], '(' .. after, '+', 'COUNT', count)
local err = failed(entries)

if err then
  return err
end

local n = #entries
local reply = { n > 0 and entries[n][1] or after,
                n == tonumber(count) and 1 or 0 }

for e = 1, n do
  tell(reply, entries[e][1], entries[e][2])
end

return reply
