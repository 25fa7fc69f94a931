--
-- A queue of the shared ledger: whatever is asked of it, as one of
-- src/event/ngx_iap_ledger.h's operations, is carried out whole or not at all.
--
-- KEYS   all keys of one queue, "PREFIX:{q:NAME}:" and
--        1   entry     hash    ticket -> the entry, packed (cmsgpack); or "="
--                              and the ticket that it is another name of
--        2   record    hash    ticket -> the sealed record
--        3   result    hash    ticket -> the result
--        4   key       hash    idempotency key -> ticket
--        5   due       zset    ticket -> when it is due; waits for that
--        6   ready     zset    "lane user \0 due ticket" of those that are due,
--                              ordered by their bytes (all of score 0); the
--                              lane is "w" for work, "c" for callbacks
--        7   work      zset    user -> its latest turn; of those who have
--                              work in "ready"
--        8   callback  zset    likewise, callbacks
--        9   lease     zset    ticket -> until when somebody has it
--        10  ended     zset    ticket -> when it ended; no callback is due
--        11  count     hash    next (number), turn, callbacks (that are due)
--        12  pending   zset    ticket -> number
--        13  verified, 14 rejected, 15 parked, 16 dead: likewise
--        17  pace      string  when the next call at `rate` may be made
--        18  machine   hash    machine -> its latest session; machine and lane
--                              -> a session, and up to which of its takes
--                              nothing is to be given any more
-- ARGV   the operation, then
--        put     for each: ticket, key, user, max, record
--        import  for each: ticket, key, user, status, work, ms since it was
--                    put, ms since it ended or "", ms until it is due, leases,
--                    callback, deliveries, result, record
--        find    ticket
--        take    lane, machine, session, count, interval, retry_max (0: not
--                    known), lease (all in ms), bytes, the number of this
--                    take, the first and the last of those whose answers did
--                    not come, or 0 and 0
--        renew   machine, session, lease
--        back    machine, session, take, number or ""
--        settle  machine, session, take, ticket, work, status, delay, callback
--                    ("1" or "0"), result
--        deliver machine, session, take, ticket, callback, delay
--        count
--        list    status or "", after, count
--        retry   ticket or "", count
--        sweep   keep, count
--        hello
--        probe
--                where "take" is the number of the take that has leased it, or
--                    "": it is not known
-- reply  a word, then
--        put     not that, but for each: "ok", "duplicate" or "full"; ticket
--        import  not that, but for each: "ok"; "known"; or "alias": it is
--                    another name of one that is there, maybe from now on
--        find    "ok" and an entry, or "none"
--        take    "ok", ms until something may be due, "1" if the pace leaves
--                    no call now (else "0"), entries
--        renew, back  "ok", how many
--        settle, deliver  "ok", or "none": the session has it no more, or by
--                    another take
--        count   "ok", pending, verified, rejected, parked, dead, callbacks,
--                    when the oldest pending one was put, now
--        list    "ok", entries
--        retry, sweep  "ok", how many
--        hello, probe  "ok"
--        An entry is 14 words: number, ticket, key, user, status, work,
--        created, ended, due, leases, callback, deliveries, result, record.
--        What does not belong to the operation is empty.
--        An error is an error reply.
--
-- Moments are UNIX milliseconds of the server's clock.  If that is set back,
-- what is due later than retry_max from now is due, and so is what was due
-- when it came.  Status and callback are numbers, as in C.  A machine and a
-- session are words.
--
-- Whatever says that an entry is there writes, if only what stands there
-- already: WAIT and WAITAOF wait for what their own connection has written.
--
-- What is asked again, because its answer did not come, is not done twice.
--
-- Redis does not undo what a script has done before an error, as where a right
-- is taken away.  So what leads to an entry is written before it is taken from
-- where it was, its lease last of all; and whoever meets an entry again, by a
-- lease that ran out, a put or an import, puts right what is missing.
--
-- Needs the right to call TIME, GET, SET, HGET, HSET, HDEL, HINCRBY, ZADD,
-- ZREM, ZSCORE, ZCARD, ZRANGE, ZRANGEBYSCORE, ZRANGEBYLEX and PEXPIRE; "probe"
-- calls all of them, and leaves nothing behind.
--

local KEYS, ARGV = KEYS, ARGV
local call = redis.call
local pack, unpack = cmsgpack.pack, cmsgpack.unpack
local floor, max, min = math.floor, math.max, math.min
local format, match, sub = string.format, string.match, string.sub

-- places in KEYS; some proxies want to see that in each call

local ENTRY, RECORD, RESULT, KEY, DUE, READY = 1, 2, 3, 4, 5, 6
local TURN = { w = 7, c = 8 }
local LEASE, ENDED, COUNT, STATUS, PACE, MACHINE = 9, 10, 11, 12, 17, 18

local PENDING, VERIFIED, REJECTED, PARKED, DEAD = 0, 1, 2, 3, 4
local CALLBACK_NONE, CALLBACK_DUE = 0, 1

local PUT_ARGS, IMPORT_ARGS = 5, 13

-- entries that one call looks at, besides those that it returns
local STEPS = 256

-- a take may be late by so much without losing calls
local PACE_SLACK_MS = 100

local MACHINE_MS = 86400000

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)


local function integer(n)
  return format('%.0f', n)
end


-- the entry itself, whichever of its names this is

local function load(ticket)
  local packed = call('HGET', KEYS[ENTRY], ticket)

  if packed and sub(packed, 1, 1) == '=' then
    packed = call('HGET', KEYS[ENTRY], sub(packed, 2))
  end

  return packed and unpack(packed)
end


local function store(e)
  call('HSET', KEYS[ENTRY], e.ticket, pack(e))
end


-- nobody needs a record of those any more

local function judged(status)
  return status == VERIFIED or status == REJECTED
end


local function lane(e)
  return e.status == PENDING and 'w' or 'c'
end


local function ready_name(e)
  return lane(e) .. e.user .. '\0' .. format('%020.0f', e.due) .. e.ticket
end


-- to those who have their turn; a user who had nothing there comes last

local function make_ready(e)
  local turn = TURN[lane(e)]

  if not call('ZSCORE', KEYS[turn], e.user) then
    call('ZADD', KEYS[turn],
         integer(call('HINCRBY', KEYS[COUNT], 'turn', 1)), e.user)
  end

  call('ZADD', KEYS[READY], 0, ready_name(e))
end


-- Stores it, and puts it where it belongs: it waits until it is due, is ready,
-- or rests.  Returns which.

local function place(e)
  store(e)

  if e.status == PENDING or e.callback == CALLBACK_DUE then

    if e.due > now and e.due > max(e.created, e.ended) then
      call('ZADD', KEYS[DUE], integer(e.due), e.ticket)
      return DUE
    end

    make_ready(e)
    return READY
  end

  if e.ended > 0 then
    call('ZADD', KEYS[ENDED], integer(e.ended), e.ticket)
    return ENDED
  end
end


-- the same of one that may be anywhere; was, its name where it may be ready

local function replace(e, was)
  local where = place(e)

  if where ~= DUE then
    call('ZREM', KEYS[DUE], e.ticket)
  end

  if where ~= ENDED then
    call('ZREM', KEYS[ENDED], e.ticket)
  end

  if where ~= READY or was ~= ready_name(e) then
    call('ZREM', KEYS[READY], was)
  end
end


local function list_status(e)
  call('ZADD', KEYS[STATUS + e.status], integer(e.number), e.ticket)

  for status = PENDING, DEAD do
    if status ~= e.status then
      call('ZREM', KEYS[STATUS + status], e.ticket)
    end
  end
end


-- what a script has left undone that was cut off

local function mend(e)
  list_status(e)

  if judged(e.status) then
    call('HDEL', KEYS[RECORD], e.ticket)
  end

  if call('ZSCORE', KEYS[LEASE], e.ticket) then
    return
  end

  if e.status == PENDING or e.callback == CALLBACK_DUE then
    call('ZREM', KEYS[ENDED], e.ticket)

    if call('ZSCORE', KEYS[DUE], e.ticket)
       or call('ZSCORE', KEYS[READY], ready_name(e))
    then
      return
    end
  end

  place(e)
end


local function set_callback(e, callback)
  if (e.callback == CALLBACK_DUE) ~= (callback == CALLBACK_DUE) then
    call('HINCRBY', KEYS[COUNT], 'callbacks',
         callback == CALLBACK_DUE and 1 or -1)
  end

  e.callback = callback
end


-- an entry that the server has lost: the rest of it goes as well

local function forget(ticket)
  for status = PENDING, DEAD do
    call('ZREM', KEYS[STATUS + status], ticket)
  end

  call('ZREM', KEYS[DUE], ticket)
  call('ZREM', KEYS[LEASE], ticket)
  call('ZREM', KEYS[ENDED], ticket)
  call('HDEL', KEYS[RECORD], ticket)
  call('HDEL', KEYS[RESULT], ticket)
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


local function owns(machine, session, e)
  return e.machine == machine and e.session == session
         and call('ZSCORE', KEYS[LEASE], e.ticket)
end


-- Whether it is the lease of that take.  What a session says again may be of one
-- that ended, while the same session has the entry by the next.

local function of_take(e, take)
  return take == '' or e.take == tonumber(take)
end


-- `last` says what a session has said of an entry that it has no more: if the
-- answer did not reach it, it says so again.  With the number of its take at its
-- end that is known also when the entry is leased again.

local function saying(machine, session, take, word)
  local last = machine .. ' ' .. session .. ' ' .. word

  return take == '' and last or last .. ' ' .. take
end


-- the lease goes when it has its place

local function released(e, last)
  e.leases, e.machine, e.session, e.last = 0, '', '', last
end


local function give_back(e, uncounted)
  e.leases = max(e.leases - uncounted, 0)
  e.machine, e.session = '', ''
  place(e)
  call('ZREM', KEYS[LEASE], e.ticket)
end


local function new_entry(ticket, key, user)
  return { number = call('HINCRBY', KEYS[COUNT], 'next', 1), ticket = ticket,
           key = key, user = user, status = PENDING, work = '',
           created = now, ended = 0, due = now, leases = 0,
           callback = CALLBACK_NONE, deliveries = 0, machine = '',
           session = '', last = '', take = 0 }
end


-- a new one, under its key: it is there once it has been stored

local function enter(e, result, record)
  call('HSET', KEYS[KEY], e.key, e.ticket)

  if record ~= '' then
    call('HSET', KEYS[RECORD], e.ticket, record)
  end

  if result ~= '' then
    call('HSET', KEYS[RESULT], e.ticket, result)
  end

  place(e)
  call('ZADD', KEYS[STATUS + e.status], integer(e.number), e.ticket)
end


-- the ticket and the entry of a key, unless the server has lost that

local function known(key)
  local ticket = call('HGET', KEYS[KEY], key)
  local e = ticket and load(ticket)

  if e then
    call('HSET', KEYS[KEY], key, ticket)
    mend(e)
    return ticket, e
  end
end


local function put()
  local reply = {}

  for a = 2, #ARGV, PUT_ARGS do
    local ticket, key = ARGV[a], ARGV[a + 1]
    local word, other = 'ok', known(key)

    if other then
      word = other == ticket and 'ok' or 'duplicate'

    elseif call('ZCARD', KEYS[STATUS]) >= tonumber(ARGV[a + 3]) then
      word = 'full'

    else
      enter(new_entry(ticket, key, ARGV[a + 2]), '', ARGV[a + 4])
    end

    reply[#reply + 1], reply[#reply + 2] = word, other or ticket
  end

  return reply
end


-- what became of it elsewhere; a, its place in ARGV

local function take_over(e, a)
  e.work = ARGV[a + 4]
  e.ended = ARGV[a + 6] == '' and 0 or max(now - ARGV[a + 6], 1)
  e.due = now + ARGV[a + 7]
  e.leases, e.deliveries = tonumber(ARGV[a + 8]), tonumber(ARGV[a + 10])

  set_callback(e, tonumber(ARGV[a + 9]))
end


-- An entry that has come before is left as it is, unless it is judged here and
-- was not there: then nobody is asked again, nor told again.

local function meet(e, a, status)
  if judged(status) and not judged(e.status)
     and not call('ZSCORE', KEYS[LEASE], e.ticket)
  then
    local was = ready_name(e)

    if ARGV[a + 11] ~= '' then
      call('HSET', KEYS[RESULT], e.ticket, ARGV[a + 11])
    else
      call('HDEL', KEYS[RESULT], e.ticket)
    end

    e.status = status
    take_over(e, a)
    replace(e, was)
    list_status(e)
    call('HDEL', KEYS[RECORD], e.ticket)

  else
    store(e)
    mend(e)
  end
end


local function import_one(a)
  local ticket, key, status = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 3])
  local e, other = load(ticket)

  if e then
    meet(e, a, status)
    return e.ticket == ticket and 'known' or 'alias'
  end

  other, e = known(key)

  if e then
    e.names = e.names or {}
    e.names[#e.names + 1] = ticket
    call('HSET', KEYS[ENTRY], ticket, '=' .. e.ticket)
    meet(e, a, status)
    return 'alias'
  end

  e = new_entry(ticket, key, ARGV[a + 2])
  e.status, e.created = status, max(now - ARGV[a + 5], 1)

  take_over(e, a)
  enter(e, ARGV[a + 11], judged(status) and '' or ARGV[a + 12])

  return 'ok'
end


local function import()
  local reply = {}

  for a = 2, #ARGV, IMPORT_ARGS do
    reply[#reply + 1] = import_one(a)
  end

  return reply
end


local function find()
  local e = load(ARGV[2])

  if not e then
    return { 'none' }
  end

  local reply = { 'ok' }

  tell(reply, e, call('HGET', KEYS[RESULT], e.ticket))

  return reply
end


-- of those that are leased: what nobody works on any more waits again

local function take_lost(leased, machine, session)
  for l = 1, #leased do
    local e = load(leased[l])

    if not e then
      forget(leased[l])

    elseif not (e.machine == machine and e.session == session) then
      list_status(e)
      give_back(e, 0)
    end
  end
end


-- the same of former sessions of a machine, whatever their time; and of nobody's:
-- there an operation was cut off

local function take_former(machine, session)
  if call('HGET', KEYS[MACHINE], machine) == session then
    return
  end

  local leased = call('ZRANGE', KEYS[LEASE], 0, -1)
  local former = {}

  for l = 1, #leased do
    local e = load(leased[l])

    if e and (e.machine == machine or e.machine == '') then
      former[#former + 1] = leased[l]
    end
  end

  take_lost(former, machine, session)

  call('HSET', KEYS[MACHINE], machine, session)
  call('PEXPIRE', KEYS[MACHINE], MACHINE_MS)
end


-- What takes have leased whose answers did not come waits again.  One of them
-- may be carried out after this one.  Returns whether this is such a one.

local function take_void(what, machine, session, number, first, last)
  local field = machine .. ' ' .. what

  if last > 0 then
    local leased = call('ZRANGE', KEYS[LEASE], 0, -1)

    for l = 1, #leased do
      local e = load(leased[l])

      if e and lane(e) == what and owns(machine, session, e)
         and e.take >= first and e.take <= last
      then
        give_back(e, 1)
      end
    end

    call('HSET', KEYS[MACHINE], field, session .. ' ' .. integer(last))
    call('PEXPIRE', KEYS[MACHINE], MACHINE_MS)

    return false
  end

  local void = call('HGET', KEYS[MACHINE], field)
  local of, upto = match(void or '', '^(%d+) (%d+)$')

  return of == session and number <= tonumber(upto)
end


local function take_due(from, to)
  local due = call('ZRANGEBYSCORE', KEYS[DUE], from, to, 'LIMIT', 0, STEPS)

  for d = 1, #due do
    local e = load(due[d])

    if e then
      make_ready(e)
      call('ZREM', KEYS[DUE], due[d])
    else
      forget(due[d])
    end
  end
end


-- How many calls may be made now, of those that are wanted, by the rate that
-- all machines have together; and the moment that is to be stored for one.

local function paced(wanted, interval)
  if interval <= 0 then
    return wanted
  end

  local next_call = tonumber(call('GET', KEYS[PACE]) or now)

  if next_call > now + 1000 + interval then
    -- the clock was set back
    next_call = now
  end

  next_call = max(next_call, now - PACE_SLACK_MS)

  local may = floor((now - next_call) / interval) + 1

  return max(0, min(wanted, may)), next_call
end


-- a user has had its turn, for the entry of that name

local function take_turn(turn, user, name, more)
  call('ZREM', KEYS[READY], name)

  if more then
    call('ZADD', KEYS[turn],
         integer(call('HINCRBY', KEYS[COUNT], 'turn', 1)), user)
  else
    call('ZREM', KEYS[turn], user)
  end
end


-- leases the first of the user whose turn was longest ago; a name may be one
-- that an entry had before, where it was cut off

local function take_next(what, machine, session, number, lease)
  local turn = TURN[what]

  for step = 1, STEPS do
    local user = call('ZRANGE', KEYS[turn], 0, 0)[1]

    if not user then
      return
    end

    local of_user = what .. user
    local names = call('ZRANGEBYLEX', KEYS[READY], '[' .. of_user .. '\0',
                       '(' .. of_user .. '\1', 'LIMIT', 0, 2)

    if #names == 0 then
      call('ZREM', KEYS[turn], user)

    else
      -- behind the zero byte and 20 digits
      local ticket = sub(names[1], #of_user + 22)
      local e = load(ticket)
      local named = e and names[1] == ready_name(e)

      if named then
        call('ZADD', KEYS[LEASE], integer(now + lease), ticket)
        e.leases, e.machine, e.session, e.last =
          e.leases + 1, machine, session,
          match(e.last, ' %d+$') and e.last or ''
        e.take = number
        store(e)

      elseif not e then
        forget(ticket)
      end

      take_turn(turn, user, names[1], #names > 1)

      if named then
        return e
      end
    end
  end
end


local function until_due()
  local first = call('ZRANGE', KEYS[DUE], 0, 0, 'WITHSCORES')

  return first[2] and min(1000, max(first[2] - now, 1)) or 1000
end


local function take()
  local what, machine, session = ARGV[2], ARGV[3], ARGV[4]
  local wanted, interval = tonumber(ARGV[5]), tonumber(ARGV[6])
  local far, lease, bytes = tonumber(ARGV[7]), tonumber(ARGV[8]),
                            tonumber(ARGV[9])
  local number = tonumber(ARGV[10])

  if take_void(what, machine, session, number, tonumber(ARGV[11]),
               tonumber(ARGV[12]))
  then
    return { 'ok', '1000', '0' }
  end

  take_former(machine, session)
  take_lost(call('ZRANGEBYSCORE', KEYS[LEASE], '-inf', integer(now), 'LIMIT',
                 0, STEPS), machine, session)
  take_lost(call('ZRANGEBYSCORE', KEYS[LEASE], '(' .. integer(now + lease),
                 '+inf', 'LIMIT', 0, STEPS), machine, session)
  take_due('-inf', integer(now))

  if far > 0 then
    take_due('(' .. integer(now + far), '+inf')
  end

  local may, next_call = paced(wanted, what == 'w' and interval or 0)
  local reply, taken = { 'ok', '1', may == 0 and '1' or '0' }, 0

  while taken < may and bytes > 0 do
    local e = take_next(what, machine, session, number, lease)

    if not e then
      break
    end

    local result = what == 'c' and call('HGET', KEYS[RESULT], e.ticket) or ''
    local record = what == 'w' and call('HGET', KEYS[RECORD], e.ticket) or ''

    tell(reply, e, result, record)

    bytes = bytes - #result - #record
    taken = taken + 1
  end

  if next_call and taken > 0 then
    call('SET', KEYS[PACE], integer(next_call + taken * interval), 'PX',
         integer(2000 + taken * interval))
  end

  reply[2] = integer(may == 0 and max(next_call - now, 1) or until_due())

  return reply
end


local function renew()
  local machine, session, lease = ARGV[2], ARGV[3], tonumber(ARGV[4])
  local leased = call('ZRANGE', KEYS[LEASE], 0, -1)
  local n = 0

  for l = 1, #leased do
    local e = load(leased[l])

    if e and owns(machine, session, e) then
      call('ZADD', KEYS[LEASE], integer(now + lease), leased[l])
      n = n + 1
    end
  end

  return { 'ok', integer(n) }
end


-- the ticket of a number, in a list

local function numbered(number)
  for status = PENDING, DEAD do
    local found = call('ZRANGEBYSCORE', KEYS[STATUS + status], number, number,
                       'LIMIT', 0, 1)

    if found[1] then
      return found
    end
  end

  return {}
end


local function back()
  local machine, session, of = ARGV[2], ARGV[3], ARGV[4]
  local leased = ARGV[5] ~= '' and numbered(ARGV[5])
                 or call('ZRANGE', KEYS[LEASE], 0, -1)
  local n = 0

  for l = 1, #leased do
    local e = load(leased[l])

    if e and owns(machine, session, e) and of_take(e, of) then
      give_back(e, 1)
      n = n + 1
    end
  end

  return { 'ok', integer(n) }
end


-- says the same again, for the answer did not come; then that may have been cut
-- off, unless it has been leased since

local function said(e, last)
  if e.last ~= last then
    return { 'none' }
  end

  if e.session == '' then
    place(e)
    mend(e)
    call('ZREM', KEYS[LEASE], e.ticket)
  end

  return { 'ok' }
end


-- A verdict ends an entry that is pending by whichever take of its session:
-- nobody asks its target twice for nothing.

local function settle()
  local machine, session, of = ARGV[2], ARGV[3], ARGV[4]
  local e = load(ARGV[5])
  local status, delay = tonumber(ARGV[7]), tonumber(ARGV[8])
  local last = saying(machine, session, of, 's' .. ARGV[7])

  if not e then
    return { 'none' }
  end

  if e.status ~= PENDING or not owns(machine, session, e)
     or not (of_take(e, of) or judged(status))
  then
    return said(e, last)
  end

  released(e, last)
  e.work, e.status, e.due = ARGV[6], status, now + delay

  if status ~= PENDING then

    if ARGV[10] ~= '' then
      call('HSET', KEYS[RESULT], e.ticket, ARGV[10])
    end

    if status ~= PARKED then
      e.ended = now
    end

    if ARGV[9] == '1' then
      set_callback(e, CALLBACK_DUE)
      e.due, e.deliveries = now, 0
    end
  end

  place(e)

  if status ~= PENDING then
    call('ZADD', KEYS[STATUS + status], integer(e.number), e.ticket)
    call('ZREM', KEYS[STATUS + PENDING], e.ticket)
  end

  -- those that a human may have tried again keep what is to be sent

  if judged(status) then
    call('HDEL', KEYS[RECORD], e.ticket)
  end

  call('ZREM', KEYS[LEASE], e.ticket)

  return { 'ok' }
end


local function deliver()
  local machine, session, of = ARGV[2], ARGV[3], ARGV[4]
  local e = load(ARGV[5])
  local callback, delay = tonumber(ARGV[6]), tonumber(ARGV[7])
  local last = saying(machine, session, of, 'd' .. ARGV[6])

  if not e then
    return { 'none' }
  end

  if e.callback ~= CALLBACK_DUE or not owns(machine, session, e)
     or not of_take(e, of)
  then
    return said(e, last)
  end

  released(e, last)
  set_callback(e, callback)

  if callback == CALLBACK_DUE then
    e.deliveries = e.deliveries + 1
    e.due = now + delay
  end

  place(e)
  call('ZREM', KEYS[LEASE], e.ticket)

  return { 'ok' }
end


local function counts()
  local reply = { 'ok' }

  for status = PENDING, DEAD do
    reply[status + 2] = integer(call('ZCARD', KEYS[STATUS + status]))
  end

  local first = call('ZRANGE', KEYS[STATUS], 0, 0)
  local e = first[1] and load(first[1])

  reply[7] = call('HGET', KEYS[COUNT], 'callbacks') or '0'
  reply[8], reply[9] = integer(e and e.created or 0), integer(now)

  return reply
end


local function list()
  local after, most = '(' .. ARGV[3], tonumber(ARGV[4])
  local found = {}

  for status = PENDING, DEAD do
    if ARGV[2] == '' or tonumber(ARGV[2]) == status then
      local some = call('ZRANGEBYSCORE', KEYS[STATUS + status], after, '+inf',
                        'WITHSCORES', 'LIMIT', 0, most)

      for s = 1, #some, 2 do
        found[#found + 1] = { some[s], tonumber(some[s + 1]) }
      end
    end
  end

  table.sort(found, function(a, b) return a[2] < b[2] end)

  local reply = { 'ok' }

  for f = 1, min(#found, most) do
    local e = load(found[f][1])

    if e then
      tell(reply, e)
    end
  end

  return reply
end


local function retry_one(ticket)
  local e = load(ticket)

  if not e then
    forget(ticket)
    return 0
  end

  if e.status ~= PARKED and e.status ~= DEAD then
    mend(e)
    return 0
  end

  local was = ready_name(e)

  set_callback(e, CALLBACK_NONE)
  released(e, '')
  e.status, e.work, e.ended, e.due, e.deliveries = PENDING, '', 0, now, 0

  replace(e, was)
  list_status(e)
  call('HDEL', KEYS[RESULT], e.ticket)
  call('ZREM', KEYS[LEASE], e.ticket)

  return 1
end


local function retry()
  local n, most = 0, tonumber(ARGV[3])

  if ARGV[2] ~= '' then
    return { 'ok', integer(retry_one(ARGV[2])) }
  end

  for status = PARKED, DEAD do
    local some = n < most and call('ZRANGE', KEYS[STATUS + status], 0,
                                   most - n - 1) or {}

    for s = 1, #some do
      n = n + retry_one(some[s])
    end
  end

  return { 'ok', integer(n) }
end


local function sweep()
  local old = call('ZRANGEBYSCORE', KEYS[ENDED], '-inf',
                   '(' .. integer(now - ARGV[2]), 'LIMIT', 0, ARGV[3])

  for o = 1, #old do
    local e = load(old[o])

    if e then
      for n = 1, #(e.names or {}) do
        call('HDEL', KEYS[ENTRY], e.names[n])
      end

      call('HDEL', KEYS[KEY], e.key)
      call('HDEL', KEYS[ENTRY], e.ticket)
    end

    forget(old[o])
  end

  return { 'ok', integer(#old) }
end


local function hello()
  return { 'ok' }
end


local function probe()
  local field = '\0probe'

  call('HSET', KEYS[ENTRY], field, '')
  call('HGET', KEYS[ENTRY], field)
  call('HDEL', KEYS[ENTRY], field)
  call('HINCRBY', KEYS[COUNT], field, 1)
  call('HDEL', KEYS[COUNT], field)
  call('ZADD', KEYS[DUE], 0, field)
  call('ZSCORE', KEYS[DUE], field)
  call('ZRANGE', KEYS[DUE], 0, 0)
  call('ZRANGEBYSCORE', KEYS[DUE], 0, 0, 'LIMIT', 0, 1)
  call('ZREM', KEYS[DUE], field)
  call('ZRANGEBYLEX', KEYS[READY], '-', '+', 'LIMIT', 0, 1)
  call('ZCARD', KEYS[STATUS])
  call('SET', KEYS[PACE], call('GET', KEYS[PACE]) or '0', 'XX', 'KEEPTTL')
  call('PEXPIRE', KEYS[MACHINE], MACHINE_MS)

  return { 'ok' }
end


local operations = {
  put = put, import = import, find = find, take = take, renew = renew,
  back = back, settle = settle, deliver = deliver, count = counts,
  list = list, retry = retry, sweep = sweep, hello = hello, probe = probe
}

return operations[ARGV[1]]()
