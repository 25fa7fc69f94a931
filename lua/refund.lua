--
-- Gives back what decide.lua charged, where a layer whose key lives on
-- another node refused, or broke and its on_error refuses.
--
-- KEYS   one key for each check to give back: one that had the letter A or
--        N, of kind "d" only N, in a decision of this node that nothing
--        refused.
-- ARGV   three for each check:
--            kind: "b", "d" or "w"; what follows is ignored
--            b: interval    d: the member's text    w: length
--            b: burst       d: ""                   w: the moment of the
--                                                      call that charged
--        Times are in ticks of 50 ns, moments since 2025, as in decide.lua.
-- reply  one letter for each check:
--            G  given back
--            -  there was nothing left to give back
--            E  broken: it was not given back
--        then the first token of the first error, or ""
--
-- Not idempotent: whoever does not know whether a call was carried out must
-- not repeat it, since a second one would give back somebody else's token or
-- place in the window.  A token that is not given back refills by itself;
-- so what fails here is only to be counted.  For "d" a repetition is
-- harmless.
--
-- Nothing is made up: a bucket gets no fuller than full, a window is counted
-- down only in the span that was charged, and not below zero, and where the
-- key is gone, nothing is done.  A member goes only as long as it is
-- provisional: as no other decision has met it in the meantime.
--
-- Needs Redis 6.2 (PXAT, ZMSCORE), and the right to call TIME, GET, SET, DEL,
-- ZMSCORE and ZREM.
--

local KEYS, ARGV = KEYS, ARGV
local pcall = redis.pcall
local byte, find, format, match =
  string.byte, string.find, string.format, string.match

-- as in decide.lua

local INTEGER = format('%d', 1099511627776) == '1099511627776' and '%d'
                or '%.0f'
local INTEGERS = INTEGER .. ' ' .. INTEGER

local TICKS_PER_MS = 20000
local EPOCH_MS = 1735689600000
local BUCKET, WINDOW = byte('b'), byte('w')

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 20000000 + time[2] * 20


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


-- the first whole millisecond that is not before the moment

local function expiry(moment)
  moment = moment + TICKS_PER_MS - 1

  return format(INTEGER, EPOCH_MS + (moment - moment % TICKS_PER_MS)
                                    / TICKS_PER_MS)
end


local function outcome(done)
  local err = failed(done)

  if err then
    return 'E', err
  end

  return 'G'
end


local function bucket_refund(k, interval, burst)
  local stored = pcall('GET', KEYS[k])

  if not stored then
    return '-'
  end

  local tat = tonumber(stored)

  if not tat or find(stored, '%D') then
    return 'E', failed(stored) or 'WRONGVALUE'
  end

  -- never further ahead than an empty one's

  if tat > now + burst then
    tat = now + burst
  end

  tat = tat - interval

  if tat <= now then
    return outcome(pcall('DEL', KEYS[k]))
  end

  return outcome(pcall('SET', KEYS[k], format(INTEGER, tat),
                       'PXAT', expiry(tat)))
end


local function window_refund(k, length, charged)
  local stored = pcall('GET', KEYS[k])

  if not stored then
    return '-'
  end

  local err = failed(stored)
  if err then
    return 'E', err
  end

  local start, count = match(stored, '^(%d+) (%d+)$')

  if not start then
    return 'E', 'WRONGVALUE'
  end

  start, count = tonumber(start), tonumber(count)

  -- A start further ahead is the next span's, or was counted into by a clock
  -- that was ahead: which of the two can't be told.

  local span = charged - charged % length

  if start < span or start >= span + length or count == 0 then
    return '-'
  end

  return outcome(pcall('SET', KEYS[k], format(INTEGERS, start, count - 1),
                       'PXAT', expiry(span + length)))
end


-- the set's expiry may stay: it is late at worst

local function distinct_refund(k, member)
  local scores = pcall('ZMSCORE', KEYS[k], member)

  if scores.err then
    return 'E', failed(scores)
  end

  if not scores[1] or tonumber(scores[1]) % 1 == 0 then
    return '-'
  end

  return outcome(pcall('ZREM', KEYS[k], member))
end


local letters, err = {}, ''

for k = 1, #KEYS do
  local kind = byte(ARGV[3 * k - 2])
  local first, second = ARGV[3 * k - 1], ARGV[3 * k]
  local failure

  if kind == BUCKET then
    letters[k], failure = bucket_refund(k, tonumber(first), tonumber(second))

  elseif kind == WINDOW then
    letters[k], failure = window_refund(k, tonumber(first), tonumber(second))

  else
    letters[k], failure = distinct_refund(k, first)
  end

  if failure and err == '' then
    err = failure
  end
end

return { table.concat(letters), err }
