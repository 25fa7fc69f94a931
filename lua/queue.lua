--
-- A queue of the shared ledger: whatever is asked of it, as one of
-- src/event/ngx_iap_ledger.h's operations, is carried out whole or not at all.
--
-- KEYS   all keys of one queue, "PREFIX:{q:NAME}:" and
--        1   entry     hash  ticket -> the entry, packed (cmsgpack)
--        2   record    hash  ticket -> the sealed record
--        3   result    hash  ticket -> the result
--        4   key       hash  idempotency key -> ticket
--        5   due       zset  ticket -> when it is due; waits for that
--        6   ready     zset  "what user \0 due ticket"; those that are due,
--                            ordered by their bytes (all of score 0)
--        7   turn      zset  user -> its latest turn; of those who have
--                            work in "ready"
--        8   lease     zset  ticket -> until when somebody has it
--        9   ended     zset  ticket -> when it ended; no callback is due
--        10  count     hash  next, turn; pending, verified, ..., callbacks
--        11 to 15  status  zset  ticket -> number; of pending, verified,
--                            rejected, parked, dead
--        16  pace      string  when the next call at `rate` may be made
--        17  turnc     zset  as "turn", of callbacks
-- ARGV   the operation, then
--        put     ticket, key, user, max, record
--        alias   ticket, other: the first is another name of the second
--        find    ticket
--        take    what ("w" work, "c" callbacks), machine, session, count,
--                    interval, retry_max, lease (all in ms), bytes
--        renew   machine, session, lease
--        back    machine, session, ticket or ""
--        settle  machine, session, ticket, work, status, delay, callback
--                    ("1" or "0"), result
--        deliver machine, session, ticket, callback, delay
--        count
--        list    status or "", after, count
--        retry   ticket or "", count
--        sweep   keep, count
-- reply  a word, then
--        put     "ok", "duplicate" or "full"; the ticket
--        alias   "ok"
--        find    "ok" and an entry, or "none"
--        take    "ok", ms until something is due, entries
--        renew, back  "ok", how many
--        settle, deliver  "ok", or "none": the session has it no more
--        count   "ok", pending, verified, rejected, parked, dead, callbacks,
--                    when the oldest pending one was put, now
--        list    "ok", entries
--        retry, sweep  "ok", how many
--        An entry is 14 words: number, ticket, key, user, status, work,
--        created, ended, due, leases, callback, deliveries, result, record.
--        What does not belong to the operation is empty.
--        An error is an error reply.
--
-- Moments are UNIX milliseconds of the server's clock.  If that is set back,
-- what is due later than retry_max from now is due.  Status and callback are
-- numbers, as in C.  A machine and a session are words.
--
-- Needs the right to call TIME, HGET, HSET, HDEL, HINCRBY, HMGET, HLEN,
-- ZADD, ZREM, ZSCORE, ZCARD, ZRANGE, ZRANGEBYSCORE, ZRANGEBYLEX, GET and SET.
--

local KEYS, ARGV = KEYS, ARGV
local call = redis.call
local pack, unpack = cmsgpack.pack, cmsgpack.unpack
local floor, max, min = math.floor, math.max, math.min
local format = string.format

local ENTRY, RECORD, RESULT, KEY, DUE, READY, LEASE, ENDED, COUNT =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[8], KEYS[9],
  KEYS[10]
local STATUS = 11
local PACE = KEYS[16]

-- work and callbacks take turns of their own
local TURN = { w = KEYS[7], c = KEYS[17] }

-- names of the counters, by status
local NAMES = { [0] = 'pending', 'verified', 'rejected', 'parked', 'dead' }

local PENDING, REJECTED, PARKED, DEAD = 0, 2, 3, 4
local CALLBACK_NONE, CALLBACK_DUE = 0, 1

-- looked at by one take, besides what it returns
local STEPS = 256

-- a take may be late by so much without losing calls
local PACE_SLACK_MS = 100

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)


local function integer(n)
  return format('%.0f', n)
end


local function load(ticket)
  local packed = call('HGET', ENTRY, ticket)

  -- another name leads to the entry itself

  if packed and packed:sub(1, 1) == '=' then
    packed = call('HGET', ENTRY, packed:sub(2))
  end

  return packed and unpack(packed)
end


local function store(e)
  call('HSET', ENTRY, e.ticket, pack(e))
end


local function count(name, by)
  call('HINCRBY', COUNT, name, by)
end


local function lane(e)
  return e.status == PENDING and 'w' or 'c'
end


local function ready_name(e)
  return lane(e) .. e.user .. '\0' .. format('%020.0f', e.due) .. e.ticket
end


-- from "due", or from a lease, to those who have their turn

local function make_ready(e)
  call('ZADD', READY, 0, ready_name(e))

  local turn = TURN[lane(e)]

  if not call('ZSCORE', turn, e.user) then
    call('ZADD', turn, integer(call('HINCRBY', COUNT, 'turn', 1)), e.user)
  end
end


-- waits until it is due, or is ready at once

local function wait(e)
  if e.due > now then
    call('ZADD', DUE, integer(e.due), e.ticket)
  else
    make_ready(e)
  end
end


-- out of wherever it waits

local function unwait(e)
  call('ZREM', DUE, e.ticket)
  call('ZREM', LEASE, e.ticket)
  call('ZREM', READY, ready_name(e))
end


local function set_status(e, status)
  call('ZREM', KEYS[STATUS + e.status], e.ticket)
  count(NAMES[e.status], -1)
  e.status = status
  call('ZADD', KEYS[STATUS + status], integer(e.number), e.ticket)
  count(NAMES[status], 1)
end


local function set_callback(e, callback)
  if e.callback == CALLBACK_DUE then
    count('callbacks', -1)
  end

  e.callback = callback

  if callback == CALLBACK_DUE then
    count('callbacks', 1)
  end
end


local function tell(reply, e, result, record)
  local n = #reply

  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] =
    integer(e.number), e.ticket, e.key, e.user
  reply[n + 5], reply[n + 6], reply[n + 7], reply[n + 8] =
    integer(e.status), e.work, integer(e.created), integer(e.ended)
  reply[n + 9], reply[n + 10], reply[n + 11], reply[n + 12] =
    integer(e.due), integer(e.leases), integer(e.callback),
    integer(e.deliveries)
  reply[n + 13], reply[n + 14] = result or '', record or ''
end


-- whose the lease is: its own entry, or nothing

local function owned(machine, session, ticket)
  local e = load(ticket)

  if e and e.machine == machine and e.session == session
     and call('ZSCORE', LEASE, e.ticket)
  then
    return e
  end
end


local function give_back(e, uncounted)
  call('ZREM', LEASE, e.ticket)
  e.leases = max(e.leases - uncounted, 0)
  e.machine, e.session = '', ''
  store(e)
  wait(e)
end


local function put()
  local ticket, key, user, most, record =
    ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

  local known = call('HGET', KEY, key)

  if known then
    return { known == ticket and 'ok' or 'duplicate', known }
  end

  if tonumber(call('HGET', COUNT, 'pending') or 0) >= most then
    return { 'full', ticket }
  end

  local e = { number = call('HINCRBY', COUNT, 'next', 1), ticket = ticket,
              key = key, user = user, status = PENDING, work = '',
              created = now, ended = 0, due = now, leases = 0,
              callback = CALLBACK_NONE, deliveries = 0, machine = '',
              session = '' }

  call('HSET', KEY, key, ticket)
  call('HSET', RECORD, ticket, record)
  call('ZADD', KEYS[STATUS], integer(e.number), ticket)
  count('pending', 1)
  store(e)
  wait(e)

  return { 'ok', ticket }
end


local function alias()
  if ARGV[2] ~= ARGV[3] then
    call('HSET', ENTRY, ARGV[2], '=' .. ARGV[3])

    -- goes with the entry
    local e = load(ARGV[3])

    if e then
      e.names = e.names or {}
      e.names[#e.names + 1] = ARGV[2]
      store(e)
    end
  end

  return { 'ok' }
end


local function find()
  local e = load(ARGV[2])

  if not e then
    return { 'none' }
  end

  local reply = { 'ok' }

  tell(reply, e, call('HGET', RESULT, e.ticket))

  return reply
end


-- What a session of this machine that is gone, or a lease that is over, has
-- left, waits again.

local function take_lost(machine, session, lease)
  local leased = call('ZRANGE', LEASE, 0, STEPS - 1, 'WITHSCORES')

  for l = 1, #leased, 2 do
    local e, untill = load(leased[l]), tonumber(leased[l + 1])

    if not e then
      call('ZREM', LEASE, leased[l])

    elseif not (e.machine == machine and e.session == session)
           and (e.machine == machine or untill <= now or untill > now + lease)
    then
      give_back(e, 0)
    end
  end
end


local function take_due(from, to)
  local due = call('ZRANGEBYSCORE', DUE, from, to, 'LIMIT', 0, STEPS)

  for d = 1, #due do
    local e = load(due[d])

    call('ZREM', DUE, due[d])

    if e then
      make_ready(e)
    end
  end
end


-- How many calls may be made now, of those that are wanted, by the rate that
-- all machines have together; and the moment that is to be stored for one.

local function paced(wanted, interval)
  if interval <= 0 then
    return wanted
  end

  local next_call = tonumber(call('GET', PACE) or 0)

  if next_call > now + 1000 + interval then
    -- the clock was set back
    next_call = now
  end

  next_call = max(next_call, now - PACE_SLACK_MS)

  if next_call > now then
    return 0, next_call
  end

  return min(wanted, floor((now - next_call) / interval) + 1), next_call
end


-- the first of the user whose turn was longest ago

local function take_next(what)
  local turn = TURN[what]

  for step = 1, STEPS do
    local user = call('ZRANGE', turn, 0, 0)[1]

    if not user then
      return
    end

    local lane_user = what .. user
    local names = call('ZRANGEBYLEX', READY, '[' .. lane_user .. '\0',
                       '(' .. lane_user .. '\1', 'LIMIT', 0, 2)

    if #names < 2 then
      call('ZREM', turn, user)
    else
      call('ZADD', turn, integer(call('HINCRBY', COUNT, 'turn', 1)), user)
    end

    if #names > 0 then
      call('ZREM', READY, names[1])

      -- behind the zero byte and 20 digits
      local e = load(names[1]:sub(#lane_user + 22))

      if e then
        return e
      end
    end
  end
end


local function until_due()
  local first = call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
  local wait_ms = 1000

  if first[2] then
    wait_ms = min(wait_ms, max(first[2] - now, 1))
  end

  return wait_ms
end


local function take()
  local what, machine, session = ARGV[2], ARGV[3], ARGV[4]
  local wanted, interval = tonumber(ARGV[5]), tonumber(ARGV[6])
  local far, lease, bytes = tonumber(ARGV[7]), tonumber(ARGV[8]),
                            tonumber(ARGV[9])

  take_lost(machine, session, lease)
  take_due('-inf', integer(now))
  take_due('(' .. integer(now + far), '+inf')

  local may, next_call = paced(wanted, what == 'w' and interval or 0)
  local reply, taken = { 'ok', '1' }, 0

  while taken < may and bytes > 0 do
    local e = take_next(what)

    if not e then
      break
    end

    local result = what == 'c' and call('HGET', RESULT, e.ticket) or ''
    local record = what == 'w' and call('HGET', RECORD, e.ticket) or ''

    e.leases, e.machine, e.session = e.leases + 1, machine, session
    store(e)
    call('ZADD', LEASE, integer(now + lease), e.ticket)
    tell(reply, e, result, record)

    bytes = bytes - #result - #record
    taken = taken + 1
  end

  if next_call and taken > 0 then
    call('SET', PACE, integer(next_call + taken * interval), 'PX',
         integer(2000 + taken * interval))
  end

  reply[2] = integer(may == 0 and next_call and max(next_call - now, 1)
                     or until_due())

  return reply
end


local function renew()
  local machine, session, lease = ARGV[2], ARGV[3], tonumber(ARGV[4])
  local leased = call('ZRANGE', LEASE, 0, -1)
  local n = 0

  for l = 1, #leased do
    if owned(machine, session, leased[l]) then
      call('ZADD', LEASE, integer(now + lease), leased[l])
      n = n + 1
    end
  end

  return { 'ok', integer(n) }
end


local function back()
  local machine, session = ARGV[2], ARGV[3]
  local leased = ARGV[4] ~= '' and { ARGV[4] } or call('ZRANGE', LEASE, 0, -1)
  local n = 0

  for l = 1, #leased do
    local e = owned(machine, session, leased[l])

    if e then
      give_back(e, 1)
      n = n + 1
    end
  end

  return { 'ok', integer(n) }
end


local function settle()
  local e = owned(ARGV[2], ARGV[3], ARGV[4])
  local status, delay = tonumber(ARGV[6]), tonumber(ARGV[7])

  if not e or e.status ~= PENDING then
    return { 'none' }
  end

  call('ZREM', LEASE, e.ticket)
  e.work, e.leases, e.machine, e.session = ARGV[5], 0, '', ''
  e.due = now + delay

  if status == PENDING then
    store(e)
    wait(e)
    return { 'ok' }
  end

  set_status(e, status)
  call('HSET', RESULT, e.ticket, ARGV[9])

  -- those that a human may have tried again keep what is to be sent

  if status <= REJECTED then
    call('HDEL', RECORD, e.ticket)
  end

  if status ~= PARKED then
    e.ended = now
  end

  if ARGV[8] == '1' then
    set_callback(e, CALLBACK_DUE)
    e.due = now
    store(e)
    wait(e)
    return { 'ok' }
  end

  if e.ended > 0 then
    call('ZADD', ENDED, integer(now), e.ticket)
  end

  store(e)

  return { 'ok' }
end


local function deliver()
  local e = owned(ARGV[2], ARGV[3], ARGV[4])
  local callback, delay = tonumber(ARGV[5]), tonumber(ARGV[6])

  if not e or e.callback ~= CALLBACK_DUE then
    return { 'none' }
  end

  call('ZREM', LEASE, e.ticket)
  e.leases, e.machine, e.session = 0, '', ''

  if callback == CALLBACK_DUE then
    e.deliveries = e.deliveries + 1
    e.due = now + delay
    store(e)
    wait(e)
    return { 'ok' }
  end

  set_callback(e, callback)
  store(e)

  if e.ended > 0 then
    call('ZADD', ENDED, integer(e.ended), e.ticket)
  end

  return { 'ok' }
end


local function counts()
  local n = call('HMGET', COUNT, 'pending', 'verified', 'rejected', 'parked',
                 'dead', 'callbacks')
  local reply = { 'ok' }

  for i = 1, 6 do
    reply[i + 1] = n[i] or '0'
  end

  local first = call('ZRANGE', KEYS[STATUS], 0, 0)
  local e = first[1] and load(first[1])

  reply[8], reply[9] = integer(e and e.created or 0), integer(now)

  return reply
end


local function list()
  local after, most = '(' .. ARGV[3], tonumber(ARGV[4])
  local found = {}

  for status = 0, 4 do
    if ARGV[2] == '' or tonumber(ARGV[2]) == status then
      local some = call('ZRANGEBYSCORE', KEYS[STATUS + status], after, '+inf',
                        'LIMIT', 0, most)

      for s = 1, #some do
        found[#found + 1] = load(some[s])
      end
    end
  end

  table.sort(found, function(a, b) return a.number < b.number end)

  local reply = { 'ok' }

  for f = 1, min(#found, most) do
    tell(reply, found[f])
  end

  return reply
end


local function retry_one(e)
  unwait(e)
  call('ZREM', ENDED, e.ticket)
  set_callback(e, CALLBACK_NONE)
  set_status(e, PENDING)
  call('HDEL', RESULT, e.ticket)

  e.work, e.ended, e.due, e.leases, e.deliveries = '', 0, now, 0, 0
  e.machine, e.session = '', ''
  store(e)
  wait(e)
end


local function retry()
  local n, most = 0, tonumber(ARGV[3])

  if ARGV[2] ~= '' then
    local e = load(ARGV[2])

    if e and (e.status == PARKED or e.status == DEAD) then
      retry_one(e)
      n = 1
    end

    return { 'ok', integer(n) }
  end

  for status = PARKED, DEAD do
    local some = call('ZRANGE', KEYS[STATUS + status], 0, most - n - 1)

    for s = 1, n < most and #some or 0 do
      local e = load(some[s])

      if e then
        retry_one(e)
        n = n + 1
      end
    end
  end

  return { 'ok', integer(n) }
end


local function sweep()
  local old = call('ZRANGEBYSCORE', ENDED, '-inf',
                   integer(now - ARGV[2]), 'LIMIT', 0, ARGV[3])

  for o = 1, #old do
    local e = load(old[o])

    call('ZREM', ENDED, old[o])

    if e then
      call('ZREM', KEYS[STATUS + e.status], e.ticket)
      count(NAMES[e.status], -1)
      call('HDEL', KEY, e.key)
      call('HDEL', RECORD, e.ticket)
      call('HDEL', RESULT, e.ticket)
      call('HDEL', ENTRY, e.ticket)

      for n = 1, #(e.names or {}) do
        call('HDEL', ENTRY, e.names[n])
      end
    end
  end

  return { 'ok', integer(#old) }
end


local operations = {
  put = put, alias = alias, find = find, take = take, renew = renew,
  back = back, settle = settle, deliver = deliver, count = counts,
  list = list, retry = retry, sweep = sweep
}

return operations[ARGV[1]]()
