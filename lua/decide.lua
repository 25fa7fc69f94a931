--
-- Decides over all layers of one or more requests, all or nothing, as
-- src/core/iap_decide.c does over the zone; t/redis/parity.pl runs both on
-- the same random sequences.
--
-- A check is one layer of one request: a key, and the rule that it is held
-- to.  A rule is told once per call, however many checks it serves.
--
-- KEYS   one key per check, in order, over all decisions of the call.  The
--        keys of one decision differ from each other.
-- ARGV   the number of rules, then three for each rule:
--            kind: "b" bucket, "d" distinct users, "w" window; followed by
--                "D" if the layer is in dry run
--            b: interval    d: part     w: limit
--            b: burst       d: users    w: length
--        then, for each decision:
--            one byte for each check: 32 + the number of its rule, 1 to 223
--            the member's text, for each check of kind "d"
--        Times are in ticks of 50 ns (src/core/iap_core.h), all numbers
--        integers below 2^53.
-- reply  the moment of the call, in ticks since 2025, which refund.lua wants
--        back; then three for each decision:
--            one letter for each check:
--                -  not looked at: a check before it refused
--                A  admitted
--                N  admitted, and the member is new
--                R  refused
--                E  broken: the layer's on_error decides
--            the wait in ticks until the check that refused would admit; if
--                none did, of the first that would have but for its dry
--                run; else 0
--            the first token of the first error, or ""
--        The first R of a layer that is not in dry run refused the request,
--        and nothing was charged.  Without one, each A and N was.
--
-- The decisions of a call are taken one after the other; each sees what
-- those before it charged.  What fails breaks its own layer only.  So does a
-- key of another type, or with a value that this script never writes: a
-- spent key must not turn into a fresh one.
--
-- Keys   b  string  "tat", the moment when the bucket is full again
--        w  string  "start count"
--        d  zset    member -> number of the part that it was last seen in
--
-- A key expires when it says nothing any more, at a moment (PXAT): a span
-- would be added to another reading of the clock.  A rule's part or length
-- belongs into the name of its keys: under the same name a longer window may
-- lose what a shorter one counted, and users of another part are forgotten.
--
-- The clock is the server's, and may be set back, which the C's never is:
--     b  as in C, a bucket never lacks more than its burst.
--     w  a span that begins more than a length ahead counts as the present
--        one.  The C would wait until then.
--     d  set back by more than a window, the set begins afresh.  In C it
--        does, too, but those who were in it are let in for a while.
--
-- Needs Redis 6.2 (PXAT), and the right to call TIME, GET, SET, ZRANGE,
-- ZSCORE, ZCOUNT, ZADD, ZREM, ZREMRANGEBYSCORE and PEXPIREAT.
--

local KEYS, ARGV = KEYS, ARGV
local pcall = redis.pcall
local byte, find, format, match =
  string.byte, string.find, string.format, string.match
local floor, max, concat = math.floor, math.max, table.concat

-- An integer in full.  Lua's own conversion, and %.0f, cost as much as the
-- command that it is for; but %d is a C long.

local INTEGER = format('%d', 1099511627776) == '1099511627776' and '%d'
                or '%.0f'
local INTEGERS = INTEGER .. ' ' .. INTEGER

local TICKS_PER_MS = 20000
local EPOCH_MS = 1735689600000
local PARTS = 6
local AHEAD_MAX = 6
local BUCKET, WINDOW, DISTINCT, DRY_RUN =
  byte('b'), byte('w'), byte('d'), byte('D')

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 20000000 + time[2] * 20

-- beyond 2^53 a number is not exact

if now < 0 or now >= 9007199254740992 then
  return redis.error_reply('ERR the clock is not between 2025 and 2039')
end


-- The first token of a command's error, or nothing if it did not fail.
-- Before Redis 7 the place in the script stands in front of the token.  Where
-- the reply is a table if it is no error, .err alone tells, and for less.

local function failed(done)
  if type(done) == 'table' and done.err then
    return match(done.err, '%u%u[%u%d_]*') or 'ERR'
  end
end


-- the first whole millisecond that is not before the moment

local function expiry(moment)
  moment = moment + TICKS_PER_MS - 1

  return format(INTEGER, EPOCH_MS + (moment - moment % TICKS_PER_MS)
                                    / TICKS_PER_MS)
end


-- Each kind has a look and a charge.  A look changes nothing but what the
-- clock left behind when it was set back.  It returns the letter and, by
-- letter, what the charge is to be told (A, N), the wait (R) or the token
-- (E).  A charge returns the token if it fails.

local function bucket_charge(k, tat)
  local done = pcall('SET', KEYS[k], format(INTEGER, tat),
                     'PXAT', expiry(tat))
  return done.err and failed(done)
end


local function bucket_look(k, interval, burst)
  local stored = pcall('GET', KEYS[k])
  local missing = 0

  if stored then
    local tat = tonumber(stored)

    if not tat then
      return 'E', failed(stored) or 'WRONGVALUE'
    end

    missing = tat - now

    if not (missing >= 0) then

      -- It should have expired.  What only looks like a number to Lua does
      -- no harm ahead of now, but must not be a full bucket.

      if find(stored, '%D') then
        return 'E', 'WRONGVALUE'
      end

      missing = 0

    elseif missing > burst then

      -- The clock was set back, or the capacity lowered: it is an empty
      -- one from now on.  Clamped afresh at each look it would never refill.

      missing = burst

      local err = bucket_charge(k, now + missing)
      if err then
        return 'E', err
      end
    end
  end

  local wait = missing - (burst - interval)

  if wait > 0 then
    return 'R', wait
  end

  return 'A', now + missing + interval
end


-- Often one window is that of all decisions of the call.  So it is read once
-- and written twice: at the first charge, where what can fail fails, and in
-- the end.  By key: what it holds, when the span ends that it was written
-- for, and its check if it is to be written once more.

local starts, counts, ends, unwritten = {}, {}, {}, {}


local function window_write(k)
  local key = KEYS[k]
  local done = pcall('SET', KEYS[k],
                     format(INTEGERS, starts[key], counts[key]),
                     'PXAT', expiry(ends[key]))

  if done.err then
    starts[key], ends[key], unwritten[key] = nil, nil, nil
    return failed(done)
  end
end


local function window_read(k)
  local key = KEYS[k]
  local stored = pcall('GET', KEYS[k])
  local start, count = 0, 0

  if stored then
    local err = failed(stored)
    if err then
      return err
    end

    start, count = match(stored, '^(%d+) (%d+)$')

    if not start then
      return 'WRONGVALUE'
    end
  end

  starts[key], counts[key] = tonumber(start), tonumber(count)
end


local function window_look(k, limit, length)
  local key = KEYS[k]
  local err

  if not starts[key] then
    err = window_read(k)
    if err then
      return 'E', err
    end
  end

  local span = now - now % length

  if starts[key] > now + length then

    -- the clock was set back

    starts[key], ends[key] = span, span + length

    err = window_write(k)
    if err then
      return 'E', err
    end

  elseif starts[key] > now then
    span = starts[key] - starts[key] % length
  end

  if starts[key] >= span and counts[key] >= limit then
    return 'R', span + length - now
  end

  return 'A', span
end


local function window_charge(k, span, length)
  local key = KEYS[k]

  if starts[key] < span then
    starts[key], counts[key] = span, 0
  end

  counts[key] = counts[key] + 1

  if ends[key] == span + length then
    unwritten[key] = k
    return
  end

  ends[key] = span + length

  return window_write(k)
end


-- The window is the latest part and the five before it.  The latest is the
-- one that now falls into or, if the clock was set back a bit, the set's own:
-- one for all decisions of the call.  By key: the length of a part, the
-- latest part, the set's latest (false if it has none in the window), the
-- number of users once it is known, and whether the expiry was set.

local parts, latests, lasts, users, kept = {}, {}, {}, {}, {}


local function distinct_read(k, part)
  local key = KEYS[k]
  local newest = pcall('ZRANGE', KEYS[k], '-1', '-1', 'WITHSCORES')

  if newest.err then
    return failed(newest)
  end

  local latest = floor(now / part)
  local last = tonumber(newest[2])

  if last and last > latest + AHEAD_MAX then

    -- the clock was set back by more than a window

    local err = failed(pcall('ZREMRANGEBYSCORE', KEYS[k], '-inf', '+inf'))
    if err then
      return err
    end

    last = nil
  end

  if last and last <= latest - PARTS then
    last = nil
  end

  parts[key], kept[key] = part, false

  if last then
    latests[key], lasts[key], users[key] = max(latest, last), last, nil
  else
    latests[key], lasts[key], users[key] = latest, false, 0
  end
end


local function distinct_look(k, part, limit, member)
  local key = KEYS[k]
  local err

  if parts[key] ~= part then
    err = distinct_read(k, part)
    if err then
      return 'E', err
    end
  end

  local latest = latests[key]

  if lasts[key] then
    local stored = pcall('ZSCORE', KEYS[k], member)

    if stored then
      local score = tonumber(stored)

      if not score then
        return 'E', failed(stored)
      end

      if score > latest - PARTS then
        return 'A', score ~= latest
      end
    end

    if not users[key] then
      local count = pcall('ZCOUNT', KEYS[k],
                          format(INTEGER, latest - PARTS + 1), '+inf')

      err = failed(count)
      if err then
        return 'E', err
      end

      users[key] = count
    end
  end

  if users[key] < limit then
    return 'N', true
  end

  local oldest = pcall('ZRANGE', KEYS[k],
                       format(INTEGER, latest - PARTS + 1), '+inf',
                       'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')

  if oldest.err then
    return 'E', failed(oldest)
  end

  return 'R', ((tonumber(oldest[2]) or latest) + PARTS) * part - now
end


-- unseen: in the window the member is not yet

local function distinct_charge(k, part, member, unseen)
  local key = KEYS[k]
  local latest = latests[key]
  local err = failed(pcall('ZADD', KEYS[k], format(INTEGER, latest), member))

  if err then
    return err
  end

  if lasts[key] ~= latest then
    err = failed(pcall('ZREMRANGEBYSCORE', KEYS[k], '-inf',
                       format(INTEGER, latest - PARTS)))
  end

  if not err and not kept[key] then
    err = failed(pcall('PEXPIREAT', KEYS[k],
                       expiry((latest + PARTS) * part)))
  end

  if err then

    -- no half of it stays, least of all a key that never expires

    if unseen then
      pcall('ZREM', KEYS[k], member)
    end

    parts[key] = nil
    return err
  end

  lasts[key], kept[key] = latest, true

  if unseen and users[key] then
    users[key] = users[key] + 1
  end
end


-- The rules, by number.

local kinds, dry_runs, firsts, seconds = {}, {}, {}, {}
local nrules = tonumber(ARGV[1])
local a = 2

for r = 1, nrules do
  kinds[r] = byte(ARGV[a])
  dry_runs[r] = byte(ARGV[a], 2) == DRY_RUN
  firsts[r] = tonumber(ARGV[a + 1])
  seconds[r] = tonumber(ARGV[a + 2])
  a = a + 3
end


-- The decisions, one after the other: k is the number of checks before it.

local reply, filled = { now }, 1
local rules, members, letters, found = {}, {}, {}, {}
local nargs, k = #ARGV, 0

while a <= nargs do
  local checks = ARGV[a]
  local n = #checks
  local refused, wait, err = false, 0, ''

  a = a + 1

  for i = 1, n do
    local r = byte(checks, i) - 32
    local kind = kinds[r]
    local letter, value = '-', nil

    rules[i] = r

    if kind == DISTINCT then
      members[i] = ARGV[a]
      a = a + 1
    end

    if not refused then
      if kind == BUCKET then
        letter, value = bucket_look(k + i, firsts[r], seconds[r])

      elseif kind == WINDOW then
        letter, value = window_look(k + i, firsts[r], seconds[r])

      else
        letter, value = distinct_look(k + i, firsts[r], seconds[r],
                                      members[i])
      end

      if letter == 'R' then
        refused = not dry_runs[r]

        if refused or wait == 0 then
          wait = value
        end

      elseif letter == 'E' and err == '' then
        err = value
      end
    end

    letters[i], found[i] = letter, value
  end

  if not refused then
    for i = 1, n do
      local letter = letters[i]

      if letter == 'A' or letter == 'N' then
        local r = rules[i]
        local kind = kinds[r]
        local failure

        if kind == BUCKET then
          failure = bucket_charge(k + i, found[i])

        elseif kind == WINDOW then
          failure = window_charge(k + i, found[i], seconds[r])

        elseif found[i] then
          failure = distinct_charge(k + i, firsts[r], members[i],
                                    letter == 'N')
        end

        if failure then
          letters[i] = 'E'
          err = err ~= '' and err or failure
        end
      end
    end
  end

  reply[filled + 1] = concat(letters, '', 1, n)
  reply[filled + 2] = wait
  reply[filled + 3] = err
  filled = filled + 3
  k = k + n
end

for _, check in pairs(unwritten) do
  window_write(check)
end

return reply
