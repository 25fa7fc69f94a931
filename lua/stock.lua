--
-- The stock of promo codes: src/event/ngx_iap_stock.h's operations, each carried
-- out whole or not at all, and src/core/iap_stock.h's transitions.
--
-- KEYS   of a code, "PREFIX:code:{CODE}:" and
--        1   code      hash    initial, sold, reserved, forgotten (of the sold:
--                              those that no unit is known of any more),
--                              closed (0 or 1), expires (0: never)
--        2   unit      hash    token -> the unit: state, made, until, lease,
--                              "s" or "r" (what becomes of it when its lease is
--                              over: sold or released) or "t" (it was taken over
--                              from one that may be sold: sold, and also if it
--                              is released), status, ticket or "-", user; a
--                              blank between them
--        3   user      hash    user -> the tokens of units that are reserved,
--                              kept or sold, a blank between them
--        4   made      zset    token -> when it was made; of all units
--        5   lease     zset    token -> end of its lease; of RESERVED
--        6   sold      zset    token -> when it is forgotten
--        7   gone      zset    likewise, released
--        "edit": of each code one after the other; and with "all" the names
--        "name", "unname", "names": "PREFIX:{codes}:" and
--        1   name      zset    code -> 0
--        2   stamp     hash    code -> how often it was named
-- ARGV   the operation, then
--        reserve user, token, lease, "s" or "r", dry ("1" or "0"), look ("1":
--                    whether this server may keep stock)
--        unit    token, event ("sell", "release", "keep" or "renew"), status
--                    (of "keep": "1" if what was released is wanted again),
--                    lease, ticket
--        edit    "all", "check" or "do"; look; most; for each: what ("set",
--                    "add", "close", "open", "expire" or "delete"), code, units,
--                    expires
--        code    most
--        audit   most, count; and where to begin: a moment, and how many of it
--                    to leave out
--        name    code...
--        unname  for each: code, stamp
--        names   after, count
--        hello
--        probe
-- reply  a word, then
--        reserve "reserved", "gone", "none_free", "closed", "unknown",
--                    "in_progress"; "redeemed" and the status; "late":
--                    something has become of a unit by this token
--        unit    "ok" or "none"; the unit's state before and after
--        edit    "ok", how many of the codes were there before, and of the
--                    last code, unless it was deleted, as "code"; "none", the
--                    number of the first that can't be (from 0), and why:
--                    "unknown", "too_few", "too_many" or "in_use"
--        code    "ok", initial, sold, reserved, forgotten, closed, expires, and
--                    counted anew: units sold, and reserved; or "none"; or
--                    "more": it is to be asked again, for more has run out
--                    than one call looks at
--        audit   the same; "1" if there are more units (else "0"), and where
--                    they begin; units, the oldest first, each as 7 words:
--                    token, user, state, made, until, status, ticket or ""
--        name    "ok", the stamps
--        unname  "ok"
--        names   "ok", codes in the order of their bytes, behind "after"
--        hello, probe  "ok"
--        reserve, edit, hello  or "unsafe" and why: this server may lose stock.
--                    Nothing was done.
--        any     or "broken" and why: a key of another type, or a value that is
--                    never written here.  Nothing was changed.
--        An error is an error reply.
--
-- `most` is how many leases may run out, and how many units be forgotten, in
-- this call: nothing else is served by the server meanwhile.  Of an edit it is
-- that of all codes together.
--
-- Moments are UNIX milliseconds of the server's clock; states are numbers, as
-- in C.  What ends later than it could was said by a clock that was ahead: its
-- time begins anew.
--
-- No key expires, and that is on purpose: a code that goes by itself would be
-- an unknown one, or a fresh one when it is made again.  Units are forgotten
-- when their code is looked at; the code itself goes when it is deleted.
--
-- What is asked again, because its answer did not come, is not done twice: all
-- goes by the token.
--
-- The numbers of a code and its units are kept apart, so that an audit can
-- compare them; the numbers are what decides.  Redis does not undo what a script
-- has done before an error, as where a right is taken away.  So a number that
-- rises is written first, and one that falls last: what is cut off may leave a
-- unit that nobody gets, and never one too many.
--
-- Needs the right to call TIME, INFO, HGET, HMGET, HSET, HDEL, HINCRBY, ZADD,
-- ZREM, ZCARD, ZRANGE, ZRANGEBYSCORE, ZRANGEBYLEX and UNLINK; "probe" calls all
-- of them, and leaves nothing behind.
--

local KEYS, ARGV = KEYS, ARGV
local call = redis.call
local floor, min = math.floor, math.min
local format, gmatch, match = string.format, string.gmatch, string.match

-- places in KEYS, behind those of the codes before

local at = 0
local CODE, UNIT, USER, MADE, LEASE, SELLS, GONE = 1, 2, 3, 4, 5, 6, 7
local NKEYS = 7
local NAME, STAMP = 1, 2

local NONE, RESERVED, KEPT, SOLD, RELEASED, SOLD_UNKNOWN, RELEASED_UNKNOWN =
  0, 1, 2, 3, 4, 5, 6

local SET = { [RESERVED] = LEASE, [SOLD] = SELLS, [SOLD_UNKNOWN] = SELLS,
              [RELEASED] = GONE, [RELEASED_UNKNOWN] = GONE }
local IS_SOLD = { [SOLD] = 1, [SOLD_UNKNOWN] = 1 }
local IS_RESERVED = { [RESERVED] = 1, [KEPT] = 1 }

-- as in C

local STOCK_MAX = 1000000000
local REMEMBERED, TOMBSTONE = 86400000, 600000
local SWEEP = 64

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)


local function integer(n)
  return format('%.0f', n)
end


local function number(text)
  return match(text or '', '^%d+$') and tonumber(text)
         or error('a number that is not the guard\'s')
end


-- the code, or nil; and that no key of it is of another type

local function load()
  local c = call('HMGET', KEYS[at + CODE], 'initial', 'sold', 'reserved',
                 'forgotten', 'closed', 'expires')

  if not (c[1] or c[2] or c[3] or c[4] or c[5] or c[6]) then
    return
  end

  local cards = {}

  for set = MADE, GONE do
    cards[set] = call('ZCARD', KEYS[at + set])
  end

  call('HGET', KEYS[at + UNIT], '')
  call('HGET', KEYS[at + USER], '')

  return { initial = number(c[1]), sold = number(c[2]),
           reserved = number(c[3]), forgotten = number(c[4]),
           closed = number(c[5]), expires = number(c[6]), cards = cards }
end


local function save(c)
  call('HSET', KEYS[at + CODE], 'initial', integer(c.initial), 'sold',
       integer(c.sold), 'reserved', integer(c.reserved), 'forgotten',
       integer(c.forgotten), 'closed', integer(c.closed), 'expires',
       integer(c.expires))
end


-- a unit, or nil

local function unit_of(token)
  local text = call('HGET', KEYS[at + UNIT], token)

  if not text then
    return
  end

  local state, made, ends, lease, unknown, status, ticket, user =
    match(text, '^([1-6]) (%d+) (%d+) (%d+) ([srt]) (%d+) (%S+) (.*)$')

  if not state then
    error('a unit that is not the guard\'s')
  end

  return { state = tonumber(state), made = made, ends = ends, lease = lease,
           unknown = unknown, status = status, ticket = ticket, user = user }
end


local function store(token, u)
  call('HSET', KEYS[at + UNIT], token, integer(u.state) .. ' ' .. u.made .. ' '
       .. u.ends .. ' ' .. u.lease .. ' ' .. u.unknown .. ' ' .. u.status .. ' '
       .. u.ticket .. ' ' .. u.user)

  if SET[u.state] then
    call('ZADD', KEYS[at + SET[u.state]], u.ends, token)
  end
end


-- of a user, but for this token: others

local function tokens(user, but)
  local list = {}

  for token in gmatch(call('HGET', KEYS[at + USER], user) or '', '%S+') do
    if token ~= but then
      list[#list + 1] = token
    end
  end

  return list
end


local function held(state)
  return IS_RESERVED[state] or IS_SOLD[state]
end


local function hold(user, token, holds)
  if user == '' then
    return
  end

  local list = tokens(user, token)

  if holds then
    list[#list + 1] = token
  end

  if #list == 0 then
    call('HDEL', KEYS[at + USER], user)
  else
    call('HSET', KEYS[at + USER], user, table.concat(list, ' '))
  end
end


-- A unit that is in this state from now on, until then.  Where the numbers say
-- more than before they are saved first, else by the caller, who has nothing
-- else to do then.

local function become(c, token, u, state, ends)
  local from = u.state

  c.sold = c.sold + (IS_SOLD[state] or 0) - (IS_SOLD[from] or 0)
  c.reserved = c.reserved + (IS_RESERVED[state] or 0) - (IS_RESERVED[from] or 0)

  if held(state) and not held(from) then
    save(c)
    hold(u.user, token, true)
  end

  if state ~= KEPT then
    u.ticket = '-'
  end

  u.state, u.ends = state, integer(ends)
  store(token, u)

  if SET[from] and SET[from] ~= SET[state] then
    call('ZREM', KEYS[at + SET[from]], token)
  end

  if held(from) and not held(state) then
    hold(u.user, token, false)
  end
end


local function make(c, token, u, state, ends)
  u.state, u.made = NONE, integer(now)
  call('ZADD', KEYS[at + MADE], u.made, token)
  become(c, token, u, state, ends)
end


-- nobody's unit was never reserved

local function remembered(u)
  return now + (u.user ~= '' and REMEMBERED or TOMBSTONE)
end


local function forget(c, token, u)
  for set = MADE, GONE do
    call('ZREM', KEYS[at + set], token)
  end

  if u then
    if IS_SOLD[u.state] then
      c.forgotten = c.forgotten + 1
    end

    hold(u.user, token, false)
    call('HDEL', KEYS[at + UNIT], token)
  end
end


local function run_out(c, token, u)
  if u and u.state == RESERVED then
    become(c, token, u, u.unknown ~= 'r' and SOLD_UNKNOWN or RELEASED_UNKNOWN,
           remembered(u))
  else
    -- one that was lost: the audit will tell
    call('ZREM', KEYS[at + LEASE], token)
  end
end


-- the last one of a set ends later than it could: its time begins anew

local function ahead(set)
  local last = call('ZRANGE', KEYS[at + set], 0, 0, 'REV', 'WITHSCORES')
  local token, ends = last[1], tonumber(last[2])

  if not token then
    return
  end

  local u = (set == LEASE or ends > now + REMEMBERED) and unit_of(token)

  if ends <= now + (set == LEASE and u and u.lease or REMEMBERED) then
    return
  end

  local anew = integer(not u and now + REMEMBERED
                       or set == LEASE and now + u.lease or remembered(u))

  call('ZADD', KEYS[at + set], anew, token)

  if u then
    u.ends = anew
    store(token, u)
  end

  return true
end


-- Leases that are over run out, and what was remembered for long enough is
-- forgotten: of each at most so many.  Returns whether there may be more, and
-- how many there were.

local function sweep(c, most)
  local due, units, n, full = {}, {}, 0, false

  if most <= 0 then
    return true, 0
  end

  -- one that can't be read is met before anything is changed

  for set = LEASE, GONE do
    due[set] = c.cards[set] > 0
               and call('ZRANGEBYSCORE', KEYS[at + set], '-inf', integer(now),
                        'LIMIT', 0, most) or {}

    for d = 1, #due[set] do
      units[due[set][d]] = unit_of(due[set][d])
    end

    n, full = n + #due[set], full or #due[set] == most
  end

  for set = LEASE, GONE do
    local finish = set == LEASE and run_out or forget

    for d = 1, #due[set] do
      finish(c, due[set][d], units[due[set][d]])
    end
  end

  if n > 0 then
    save(c)
  end

  for set = LEASE, GONE do
    for _ = 1, min(c.cards[set], most) do
      if not ahead(set) then
        break
      end
    end
  end

  return full, n
end


local function free(c)
  return c.initial - c.sold - c.reserved
end


local function open(c)
  return c.closed == 0 and (c.expires == 0 or c.expires > now)
end


-- A server that throws keys away, or forgets them when it ends, must not have
-- stock.

local function unsafe()
  local persistence = redis.pcall('INFO', 'persistence')
  local memory = redis.pcall('INFO', 'memory')

  if type(persistence) ~= 'string' or type(memory) ~= 'string' then
    return { 'unsafe', 'it does not tell: INFO is not allowed' }
  end

  local policy = match(memory, 'maxmemory_policy:([%w-]+)')

  if match(persistence, 'aof_enabled:(%d)') ~= '1' then
    return { 'unsafe', '"appendonly" is not "yes"' }
  end

  if not policy or match(policy, '^allkeys') then
    return { 'unsafe', '"maxmemory-policy" is "' .. (policy or '') .. '"' }
  end
end


-- what a user has already: the token and the unit that count, or nil

local function has(user)
  local token, unit

  for _, t in ipairs(tokens(user)) do
    local u = unit_of(t)

    if u and held(u.state)
       and (not unit or IS_RESERVED[u.state]
            or (unit.state == SOLD_UNKNOWN and u.state == SOLD))
    then
      token, unit = t, u
    end
  end

  return token, unit
end


local function refused(c)
  if not open(c) then
    return 'closed'
  end

  if free(c) > 0 then
    return
  end

  return c.sold >= c.initial and 'gone' or 'none_free'
end


local function reserve()
  local user, token, lease, unknown = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local why = ARGV[7] == '1' and unsafe()

  if why then
    return why
  end

  local c = load()

  if not c then
    return { 'unknown' }
  end

  sweep(c, SWEEP)

  local same = unit_of(token)

  if same then
    return { same.state == RESERVED and 'reserved' or 'late' }
  end

  local other, u = has(user)

  if u and IS_RESERVED[u.state] then
    return { 'in_progress' }
  end

  if u and u.state == SOLD then
    return { 'redeemed', u.status }
  end

  -- a unit that may be sold is taken over: this user needs one, not two

  local word = not u and refused(c)

  if word then
    return { word }
  end

  if ARGV[6] ~= '1' then
    if u then
      unknown = 't'
      become(c, other, u, RELEASED, remembered(u))
    end

    make(c, token, { lease = lease, unknown = unknown, status = '0',
                     ticket = '-', user = user }, RESERVED, now + lease)
  end

  return { 'reserved' }
end


-- what an event makes of a state: that, or nil if it can't be

local function step(state, event, is_free)
  if event == 'sell' then
    return state ~= NONE and SOLD or nil
  end

  if event == 'release' then
    return state == SOLD and SOLD or RELEASED
  end

  if event == 'return' then
    return IS_RESERVED[state] and SOLD_UNKNOWN or state
  end

  if event == 'renew' then
    return state == RESERVED and RESERVED or nil
  end

  if state == SOLD or state == KEPT then
    return state
  end

  if state == RESERVED or state == SOLD_UNKNOWN
     or (state ~= NONE and is_free)
  then
    return KEPT
  end
end


local function settle()
  local token, event, status, lease, ticket =
    ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
  local c = load()

  if not c then
    return { 'none', '0', '0' }
  end

  local u = unit_of(token)
  local before = u and u.state or NONE
  local is_free = free(c) > 0
                  and (before ~= RELEASED or status == '1')
                  and (not u or u.user == '' or #tokens(u.user, token) == 0)
  -- what was taken over may be sold, whatever became of the second request

  local happens = event == 'release' and u and u.unknown == 't' and 'return'
                  or event
  local after = step(before, happens, is_free)

  if not after then
    return { 'none', integer(before), integer(before) }
  end

  if not u then
    -- a tombstone
    make(c, token, { lease = '0', unknown = 's', status = '0', ticket = '-',
                     user = '' }, RELEASED, now + TOMBSTONE)
    return { 'ok', integer(NONE), integer(RELEASED) }
  end

  if event == 'renew' then
    u.lease = lease
    become(c, token, u, RESERVED, now + lease)

  elseif after ~= before then
    u.status = event == 'sell' and status or u.status
    u.ticket = event == 'keep' and ticket ~= '' and ticket or '-'
    become(c, token, u, after, after == KEPT and 0 or remembered(u))

    if held(before) then
      save(c)
    end
  end

  return { 'ok', integer(before), integer(after) }
end


-- What is wrong with the keys of one code says nothing of the server, nor of
-- other codes.

local function run(operation)
  local well, reply = pcall(operation)

  if well then
    return reply
  end

  local why = type(reply) == 'table' and reply.err or tostring(reply)

  if match(why, 'WRONGTYPE') or match(why, 'not the guard\'s') then
    return { 'broken', why }
  end

  return redis.error_reply(why)
end


-- all that follows is made for nothing where it is not asked for

if ARGV[1] == 'reserve' then
  return run(reserve)
elseif ARGV[1] == 'unit' then
  return run(settle)
end


local function info(reply, c)
  local sells, gone = call('ZCARD', KEYS[at + SELLS]),
                      call('ZCARD', KEYS[at + GONE])
  local units = call('ZCARD', KEYS[at + MADE]) - sells - gone

  for _, n in ipairs({ c.initial, c.sold, c.reserved, c.forgotten, c.closed,
                       c.expires, sells, units })
  do
    reply[#reply + 1] = integer(n)
  end

  return reply
end


-- why an edit can't be

local function cannot(c, what, units)
  if what == 'set' then
    units = tonumber(units)
  elseif not c then
    return 'unknown'
  end

  if what == 'delete' then
    return c.reserved > 0 and 'in_use' or nil
  end

  if what == 'add' then
    units = c.initial + units
  end

  if what == 'set' or what == 'add' then
    if units < 0 or (c and units < c.sold + c.reserved) then
      return 'too_few'
    end

    return units > STOCK_MAX and 'too_many' or nil
  end
end


-- `index`: where the names are in KEYS, or nil

local function edit_one(c, what, code, units, expires, index)
  if what == 'delete' then
    call('UNLINK', KEYS[at + CODE], KEYS[at + UNIT], KEYS[at + USER],
         KEYS[at + MADE], KEYS[at + LEASE], KEYS[at + SELLS], KEYS[at + GONE])

    if index then
      call('ZREM', KEYS[index], code)
    end

    return
  end

  c = c or { initial = 0, sold = 0, reserved = 0, forgotten = 0, closed = 0,
             expires = 0 }

  if what == 'set' then
    c.initial, c.expires = number(units), number(expires)
  elseif what == 'add' then
    c.initial = c.initial + units
  elseif what == 'expire' then
    c.expires = number(expires)
  else
    c.closed = what == 'close' and 1 or 0
  end

  if what == 'set' and index then
    call('ZADD', KEYS[index], 0, code)
  end

  save(c)

  return c
end


local function edit()
  local how, most = ARGV[2], tonumber(ARGV[4])
  local n, there = (#ARGV - 4) / 4, 0
  local why = ARGV[3] == '1' and unsafe()
  local index = how == 'all' and n * NKEYS + 1 or nil
  local codes, last = {}

  if why then
    return why
  end

  if index then
    call('ZCARD', KEYS[index])
  end

  for e = 1, n do
    at = (e - 1) * NKEYS

    local c = load()
    local a = e * 4 + 1

    if c then
      local _, swept = sweep(c, most)

      most, there = most - swept, there + 1
    end

    codes[e] = c
    why = cannot(c, ARGV[a], ARGV[a + 2])

    if why then
      return { 'none', integer(e - 1), why }
    end
  end

  if how == 'check' then
    return { 'ok', integer(there) }
  end

  for e = 1, n do
    local a = e * 4 + 1

    at = (e - 1) * NKEYS
    last = edit_one(codes[e], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], index)
  end

  local reply = { 'ok', integer(there) }

  return last and info(reply, last) or reply
end


local function code()
  local c = load()

  if not c then
    return { 'none' }
  end

  return sweep(c, tonumber(ARGV[2])) and { 'more' } or info({ 'ok' }, c)
end


local function audit()
  local reply = code()
  local count, from, but = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

  if reply[1] ~= 'ok' then
    return reply
  end

  local list = call('ZRANGEBYSCORE', KEYS[at + MADE], from, '+inf',
                    'WITHSCORES', 'LIMIT', but, integer(count + 1))
  local n = min(#list / 2, count)
  local next = #reply + 1

  -- these are known in the end

  reply[next], reply[next + 1], reply[next + 2] = '', '', ''

  for l = 1, n do
    local token, made = list[l * 2 - 1], list[l * 2]
    local u = unit_of(token)

    from, but = made, made == from and but + 1 or 1

    if u then
      local r = #reply

      reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] =
        token, u.user, integer(u.state), u.made
      reply[r + 5], reply[r + 6], reply[r + 7] =
        u.ends, u.status, u.ticket ~= '-' and u.ticket or ''
    end
  end

  reply[next], reply[next + 1], reply[next + 2] =
    #list / 2 > count and '1' or '0', from, integer(but)

  return reply
end


local function name()
  local reply = { 'ok' }

  for a = 2, #ARGV do
    reply[a] = integer(call('HINCRBY', KEYS[STAMP], ARGV[a], 1))
    call('ZADD', KEYS[NAME], 0, ARGV[a])
  end

  return reply
end


-- unless it has been named since

local function unname()
  for a = 2, #ARGV, 2 do
    if call('HGET', KEYS[STAMP], ARGV[a]) == ARGV[a + 1] then
      call('ZREM', KEYS[NAME], ARGV[a])
      call('HDEL', KEYS[STAMP], ARGV[a])
    end
  end

  return { 'ok' }
end


local function names()
  local reply = { 'ok' }
  local found = call('ZRANGEBYLEX', KEYS[NAME],
                     ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0,
                     ARGV[3])

  for f = 1, #found do
    reply[f + 1] = found[f]
  end

  return reply
end


local function hello()
  return unsafe() or { 'ok' }
end


local function probe()
  call('HSET', KEYS[CODE], 'initial', '0')
  call('HINCRBY', KEYS[CODE], 'initial', 1)
  call('HGET', KEYS[CODE], 'initial')
  call('HMGET', KEYS[CODE], 'initial', 'sold')
  call('HDEL', KEYS[CODE], 'initial')
  call('ZADD', KEYS[MADE], 0, 'probe')
  call('ZCARD', KEYS[MADE])
  call('ZRANGE', KEYS[MADE], 0, 0)
  call('ZRANGEBYSCORE', KEYS[MADE], 0, 0)
  call('ZRANGEBYLEX', KEYS[MADE], '-', '+', 'LIMIT', 0, 1)
  call('ZREM', KEYS[MADE], 'probe')
  call('UNLINK', KEYS[MADE])

  return { 'ok' }
end


local operations = {
  edit = edit, code = code, audit = audit, name = name, unname = unname,
  names = names, hello = hello, probe = probe
}

return run(operations[ARGV[1]])
