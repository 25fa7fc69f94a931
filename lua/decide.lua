--
-- Decides over all layers of one or more requests, all or nothing, as
-- src/core/iap_decide.c does over the zone; t/redis/parity.pl runs both on
-- the same random sequences.
--
-- A check is one layer of one request: a key, and the rule that it is held
-- to.  A rule is told once per call, however many checks it serves, and so
-- are a window, and the sets of decisions that stand together.
--
-- KEYS   in this order:
--            the window of each rule of kind "w", in the order of the rules
--            the sets of each run: one for each check of kind "d" or, where
--                these differ, for each of each decision
--            the buckets of each decision: one for each check of kind "b"
--        The keys of one decision differ from each other.
-- ARGV   the number of rules, and of the keys that are buckets; then three
--        for each rule:
--            kind: "b" bucket, "d" distinct users, "w" window; followed by
--                "D" if the layer is in dry run, then, of kind "d", by "P" if
--                the decision has layers elsewhere, which may still refuse
--            b: interval    d: part     w: limit
--            b: burst       d: users    w: length
--        then, for each run, which is decisions, one after the other, held
--        to the same rules in the same order:
--            a text of bytes: 32, + 1 if the decisions differ in their sets;
--                32 + the number of decisions; then, for each check, 32 + the
--                number of its rule, 1 to 223
--            the member's text for each decision, if there is a check of
--                kind "d"
--        Times are in ticks of 50 ns (src/core/iap_core.h), all numbers
--        integers below 2^53.
-- reply  the moment of the call, in ticks since 2025, which refund.lua wants
--        back; then one letter for each check of each decision, as one text:
--            -  not looked at: a check before it refused
--            A  admitted
--            N  admitted, and the member is new.  Where nothing may be given
--               back it is not looked up, and A may stand for it.
--            R  refused
--            E  broken: the layer's on_error decides
--        then four for each decision that has an R or an E, in order:
--            its number, from 1
--            the wait in ticks until the check that refused would admit; if
--                none did, of the first that would have but for its dry
--                run; else 0
--            the first token of the first error, or ""
--            if what refused was of kind "d": all members in the window,
--                256 at most, once for each set; else nil.  Nobody else is
--                admitted before one of them leaves, unless one is given
--                back, or another rule lets in more.
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
--        d  zset    member -> number of the part that it was last seen in,
--                   and a half if it is provisional
--
-- A new member is provisional where its decision may still be refused: by a
-- layer elsewhere, or by the on_error of one that is broken.  refund.lua takes
-- back no other, and whoever is met again (A) is one for good: for that
-- decision it counts, whatever becomes of the first one.
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
-- Needs Redis 6.2 (PXAT, ZMSCORE), and the right to call TIME, GET, SET,
-- DEL, INCRBY, PEXPIREAT, ZRANGE, ZMSCORE, ZCOUNT, ZADD, ZREM and
-- ZREMRANGEBYSCORE.
--
-- What it costs, besides the work of the commands themselves: first their
-- number, then the number of arguments, then the texts, tables and functions
-- that Lua has to make and to throw away again.  So a bucket is charged before
-- it is known to have a token, which reads it as well, and refunded if it has
-- none or if another layer refuses: both are rare, for who was refused is not
-- asked for again (the deny cache).  And tables are made in their size, and
-- few of them.
--

local KEYS, ARGV = KEYS, ARGV
local pcall, tonumber, type, unpack = redis.pcall, tonumber, type, unpack
local byte, find, format, match, rep =
  string.byte, string.find, string.format, string.match, string.rep
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
local TOLD_MAX, TOLD_ALL_MAX = 256, 1024
local MANY = 4
local BUCKET, WINDOW, DISTINCT, DRY_RUN, PROVISIONAL =
  byte('bwdDP', 1, 5)

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
  return format(INTEGER, EPOCH_MS + (moment + -moment % TICKS_PER_MS)
                                    / TICKS_PER_MS)
end


-- Each kind has a look and a charge.  A look returns the letter and, by
-- letter, what the charge is to be told (A, N), the wait (R) or the token
-- (E).  A charge returns the token if it fails.  But for buckets a look
-- changes nothing, unless the clock was set back.
--
-- What has room for all decisions of a run (roomy tells, and changes nothing
-- at all) need not be looked at for each: the first one that is admitted is
-- charged alone (charge_one, which returns as a look does), since what can
-- fail fails there, and then the rest of them together (charge_rest).
--
-- Functions are made when the first rule of their kind is met: to make all of
-- them in each call takes as long as to decide.

-- Of buckets, but for those that are neither full nor empty, which are dealt
-- with where they are met.

local function bucket_functions()
  -- What a look returns of a bucket that was full, because there was none
  -- (NONE) or its moment is past (OVER).

  local NONE, OVER = 0, -1


  local function bucket_back(k, tat, rule)
    if tat ~= NONE then
      return failed(pcall('INCRBY', KEYS[k], '-' .. rule.step))
    end

    local err = failed(pcall('DEL', KEYS[k]))

    -- without that right it would stay for ever

    return err and failed(pcall('PEXPIREAT', KEYS[k], '1'))
  end


  -- What a look has made of a bucket is not what most are: tat is neither
  -- that of one that was partly full, nor more than an empty one's.  What is
  -- missing counts from 0.

  local function bucket_look(k, rule, tat)
    if type(tat) ~= 'number' then
      local err = failed(tat)

      -- its value, or the right to change it: the reply has no token for that

      if err == 'ERR' then
        local stored = pcall('GET', KEYS[k])

        if type(stored) == 'string'
           and (#stored > 16 or not match(stored, '^%d+$'))
        then
          err = 'WRONGVALUE'
        end
      end

      return 'E', err
    end

    local before, err = tat - rule.first, nil

    if before < 0 then
      bucket_back(k, OVER, rule)
      return 'E', 'WRONGVALUE'
    end

    if before < now then
      return 'A', before == 0 and NONE or OVER
    end

    if before > rule.empty then

      -- The clock was set back, or the capacity lowered: it is an empty one
      -- from now on.  Clamped afresh at each look it would never refill.

      before = rule.empty
      err = failed(pcall('SET', KEYS[k], format(INTEGER, before),
                         'PXAT', expiry(before)))
      if err then
        bucket_back(k, tat, rule)
      end

    else
      err = bucket_back(k, tat, rule)
    end

    if err then
      return 'E', err
    end

    return 'R', before - rule.limit
  end


  local function bucket_charge(k, tat, rule)
    local done

    if tat > 0 then
      done = pcall('PEXPIREAT', KEYS[k],
                   format(INTEGER, EPOCH_MS + (tat + -tat % 20000) / 20000))

      if done == 1 then
        return
      end

    else
      if not rule.text then
        rule.text, rule.expiry = format(INTEGER, rule.fresh),
                                 expiry(rule.fresh)
      end

      done = pcall('SET', KEYS[k], rule.text, 'PXAT', rule.expiry)

      if not done.err then
        return
      end
    end

    -- no half of it stays, least of all a key that never expires

    bucket_back(k, tat, rule)

    return failed(done) or 'ERR'
  end

  return bucket_look, bucket_charge, bucket_back
end


local function window_functions()
  -- Often one window is that of all decisions of the call.  So it is read
  -- once and written twice: at the first charge, where what can fail fails,
  -- and in the end.  start is false until it is read, ends that of the span
  -- that it was written for; unwritten: it is to be written once more.

  local windows = {}


  local function window_at(k)
    local w = windows[KEYS[k]]

    if not w then
      w = { k = k, start = false, count = 0, ends = 0, unwritten = false }
      windows[KEYS[k]] = w
    end

    return w
  end


  local function window_write(w)
    local k = w.k
    local done = pcall('SET', KEYS[k], format(INTEGERS, w.start, w.count),
                       'PXAT', expiry(w.ends))

    if done.err then
      w.start, w.ends, w.unwritten = false, 0, false
      return failed(done)
    end
  end


  local function window_read(w)
    local k = w.k
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

    w.start, w.count = tonumber(start), tonumber(count)
  end


  local function window_look(w, rule)
    local length, err = rule.second, nil

    if not w.start then
      err = window_read(w)
      if err then
        return 'E', err
      end
    end

    local start, span = w.start, now - now % length

    if start > now + length then

      -- the clock was set back

      start, w.start, w.ends = span, span, span + length

      err = window_write(w)
      if err then
        return 'E', err
      end

    elseif start > now then
      span = start - start % length
    end

    if start >= span and w.count >= rule.first then
      return 'R', span + length - now
    end

    return 'A', span
  end


  -- the first one of a span, or of a run

  local function window_charge(w, span, rule)
    if w.start < span then
      w.start, w.count = span, 0
    end

    w.count, w.ends = w.count + 1, span + rule.second

    return window_write(w)
  end


  local function window_roomy(w, rule, n)
    local length = rule.second

    if n < MANY or not w.start and window_read(w) or w.start > now + length
    then
      return false
    end

    local span = now - now % length

    return (w.start >= span and w.count or 0) + n <= rule.first
  end


  local function window_charge_one(w, rule)
    local letter, span = window_look(w, rule)
    local err = letter == 'A' and window_charge(w, span, rule)

    if err then
      return 'E', err
    end

    return letter, span
  end


  local function window_charge_rest(w, n)
    w.count, w.unwritten = w.count + n, true
  end

  local function window_end()
    for _, w in pairs(windows) do
      if w.unwritten then
        window_write(w)
      end
    end
  end


  return window_at, window_look, window_charge, window_roomy,
         window_charge_one, window_charge_rest, window_end
end


local function set_functions()
  -- The window of a set is the latest part and the five before it.  The
  -- latest is the one that now falls into or, if the clock was set back a
  -- bit, the set's own: one for all decisions of the call; as a text it is
  -- what a member has that was seen in it.  last is the set's own, false if
  -- it has none in the window; users their number, false until it is known;
  -- old: there may be members from before; recent: a member's part, as text,
  -- of which that is known to be in the window; kept: a member was charged,
  -- and the expiry set; unseen: members were charged without a look since
  -- users were counted.  known are the parts of members, as texts: of all, if
  -- it is a small set, else of those that this call has looked at and
  -- charged.  For the others scores are asked, those of a run's members at
  -- once; asked: where these begin in ARGV, or true if there is nothing to be
  -- asked.

  local sets = {}


  local function set_at(k)
    local s = sets[KEYS[k]]

    if not s then
      s = { k = k, part = 0, latest = 0, text = '', expiry = '', last = false,
            users = false, old = true, kept = false, unseen = false,
            known = false, asked = false, scores = false, recent = '',
            charges = false, ncharges = 0, told = false }
      sets[KEYS[k]] = s
    end

    return s
  end


  -- The charges of a set after its first wait, to be one command: what can
  -- fail has not failed then.

  local function set_write(s)
    if s.ncharges ~= 0 then
      local k = s.k

      pcall('ZADD', KEYS[k], unpack(s.charges, 1, s.ncharges))
      s.ncharges = 0
    end
  end


  -- It stops where a look would have to change something.

  local function set_read(s, rule, looks)
    local k, part = s.k, rule.first

    set_write(s)

    local newest = pcall('ZRANGE', KEYS[k], '-3', '-1', 'WITHSCORES')

    if newest.err then
      return failed(newest)
    end

    local n = #newest
    local latest = floor(now / part)
    local last = n ~= 0 and floor(tonumber(newest[n]))
    local known, users, old = {}, 0, n ~= 0

    if last and last > latest + AHEAD_MAX then

      -- the clock was set back by more than a window

      if not looks then
        return 'ERR'
      end

      local err = failed(pcall('ZREMRANGEBYSCORE', KEYS[k], '-inf', '+inf'))
      if err then
        return err
      end

      last = nil
    end

    if last and last > latest - PARTS then
      latest = max(latest, last)

      if n < 6 then
        for i = 1, n, 2 do
          known[newest[i]] = newest[i + 1]

          if floor(tonumber(newest[i + 1])) > latest - PARTS then
            users = users + 1
          end
        end

        old = users < n / 2

      else
        users = false
      end

    else
      last = false
    end

    if latest ~= rule.latest then
      rule.latest, rule.text = latest, format(INTEGER, latest)
      rule.expiry = expiry((latest + PARTS) * part)
    end

    s.part, s.latest, s.text, s.expiry = part, latest, rule.text, rule.expiry
    s.last, s.users, s.old, s.kept, s.known = last, users, old, false, known
    s.asked, s.recent, s.unseen, s.told = users and true, '', false, false
  end


  local function set_count(s)
    local k = s.k

    if s.unseen then
      set_write(s)
      s.users, s.asked, s.unseen = false, false, false
    end

    if not s.users then
      local users = pcall('ZCOUNT', KEYS[k],
                          format(INTEGER, s.latest - PARTS + 1), '+inf')

      local err = failed(users)
      if err then
        return err
      end

      s.users = users
    end
  end


  -- whoever they are

  local function set_roomy(s, rule, n)
    if n < MANY or rule.provisional
       or s.part ~= rule.first and set_read(s, rule, false)
       or s.asked == true or set_count(s)
    then
      return false
    end

    return s.users + n <= rule.second
  end


  -- the member is the one with the number i of n that begin at members

  local function set_look(s, rule, members, n, i)
    local member, part = ARGV[members + i - 1], rule.first
    local k, err = s.k, nil

    if s.part ~= part then
      err = set_read(s, rule, true)

    elseif s.unseen then
      err = set_count(s)
    end

    if err then
      return 'E', err
    end

    local latest = s.latest

    if s.last then
      local score = s.known[member]

      if not score and s.asked ~= true then
        if s.asked ~= members then
          local scores = pcall('ZMSCORE', KEYS[k],
                               unpack(ARGV, members, members + n - 1))

          if scores.err then
            return 'E', failed(scores)
          end

          s.scores, s.asked = scores, members
        end

        score = s.scores[i]
      end

      if score == s.text then
        return 'A', false
      end

      -- seen in another part, or provisional

      if score then
        if score == s.recent then
          return 'A', 'A'
        end

        if floor(tonumber(score)) > latest - PARTS then
          s.recent = score
          return 'A', 'A'
        end
      end

      err = set_count(s)
      if err then
        return 'E', err
      end
    end

    if s.users < rule.second then
      return 'N', 'N'
    end

    set_write(s)

    local oldest = pcall('ZRANGE', KEYS[k],
                         format(INTEGER, latest - PARTS + 1), '+inf',
                         'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')

    if oldest.err then
      return 'E', failed(oldest)
    end

    return 'R', (floor(tonumber(oldest[2]) or latest) + PARTS) * part - now
  end


  -- All members in the window, of a set that has just refused, told once;
  -- false: there are too many.

  local may_tell = TOLD_ALL_MAX


  local function set_members(s)
    local k = s.k

    if s.told or s.users > TOLD_MAX or s.users > may_tell then
      return false
    end

    local members = pcall('ZRANGE', KEYS[k],
                          format(INTEGER, s.latest - PARTS + 1), '+inf',
                          'BYSCORE')
    if members.err then
      return false
    end

    s.told = true
    may_tell = may_tell - #members

    return members
  end


  -- What the first charge of a set is, besides the member: the expiry, and in
  -- a new part that what is before the window goes.

  local function set_keep(s)
    local k, latest, err = s.k, s.latest, nil

    if s.old and s.last ~= latest then
      err = failed(pcall('ZREMRANGEBYSCORE', KEYS[k], '-inf',
                         '(' .. format(INTEGER, latest - PARTS + 1)))
    end

    if not err then
      err = failed(pcall('PEXPIREAT', KEYS[k], s.expiry))
    end

    if err then
      return err
    end

    s.last, s.kept = latest, true
  end


  -- unseen: in the window the member is not yet

  local function set_charge(s, member, unseen, provisional)
    local k, text = s.k, provisional and s.text .. '.5' or s.text

    if s.kept then
      local n, charges = s.ncharges, s.charges or {}

      charges[n + 1], charges[n + 2] = text, member
      s.ncharges, s.charges = n + 2, charges

    else
      local err = failed(pcall('ZADD', KEYS[k], text, member))
      if err then
        return err
      end

      err = set_keep(s)

      if err then

        -- no half of it stays, least of all a key that never expires

        if unseen then
          pcall('ZREM', KEYS[k], member)
        end

        return err
      end
    end

    s.known[member] = text

    if unseen and s.users then
      s.users = s.users + 1
    end
  end


  -- Whoever is in already is charged, too, if it is the first: what of the
  -- rest can fail must fail here.  member is where it is in ARGV.

  local function set_charge_one(s, rule, member, provisional)
    local letter, value = set_look(s, rule, member, 1, 1)
    local err

    if letter ~= 'E' and (value or not s.kept) then
      err = set_charge(s, ARGV[member], value == 'N',
                       value == 'N' and provisional)
    end

    if err then
      return 'E', err
    end

    return letter, value
  end


  local function set_charge_rest(s, n, members)
    local k, text, charges = s.ncharges, s.text, s.charges or {}

    for i = 1, n do
      charges[k + 1], charges[k + 2] = text, members[i]
      k = k + 2
    end

    s.charges, s.ncharges, s.unseen = charges, k, true
  end


  local function set_end()
    for _, s in pairs(sets) do
      set_write(s)
    end
  end


  return set_at, set_look, set_charge, set_members, set_roomy, set_charge_one,
         set_charge_rest, set_end
end


local bucket_look, bucket_charge, bucket_back
local window_at, window_look, window_charge, window_roomy, window_charge_one,
      window_charge_rest, window_end
local set_at, set_look, set_charge, set_members, set_roomy, set_charge_one,
      set_charge_rest, set_end


-- The rules, by number.  Of a bucket: what it holds after its first token
-- (fresh), with its last one (limit), and with none (empty).

local rules, k = { nil, nil, nil, nil }, 0
local nrules, bucket = tonumber(ARGV[1]), #KEYS - tonumber(ARGV[2])
local a = 3

for r = 1, nrules do
  local kind, mark, another = byte(ARGV[a], 1, 3)
  local first, second = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
  local dry_run = mark == DRY_RUN

  if kind == BUCKET then
    if not bucket_look then
      bucket_look, bucket_charge, bucket_back = bucket_functions()
    end

    rules[r] = { kind = kind, dry_run = dry_run, first = first,
                 step = ARGV[a + 1], fresh = now + first,
                 limit = now + second - first, empty = now + second,
                 text = false, expiry = false }

  elseif kind == WINDOW then
    if not window_at then
      window_at, window_look, window_charge, window_roomy, window_charge_one,
        window_charge_rest, window_end = window_functions()
    end

    k = k + 1
    rules[r] = { kind = kind, dry_run = dry_run, first = first,
                 second = second, window = window_at(k), span = -1 }

  else
    if not set_at then
      set_at, set_look, set_charge, set_members, set_roomy, set_charge_one,
        set_charge_rest, set_end = set_functions()
    end

    rules[r] = { kind = kind, dry_run = dry_run, first = first,
                 second = second, latest = 0, text = '', expiry = '',
                 provisional = mark == PROVISIONAL or another == PROVISIONAL }
  end

  a = a + 3
end


-- The decisions, one after the other.  k is the number of keys before the
-- next set, bucket before the buckets of the decision.  Of each check: its
-- rule, and what that is applied to (on: the bucket's number among those of
-- the decision, the window, the set).  Those of a run are parted: whole are
-- those with room for all of it, and steps the others, which are looked at
-- for each decision; of these, what has been found.  A letter is only kept
-- where not all are A (plain); admitted: so many letters of such decisions
-- are still to be told.  begun: a decision of the run was charged to what is
-- whole; rest so many after it are still to be, who are the members in joined.

local told, more, admitted, number = {}, {}, 0, 0
local checks, on = { nil, nil, nil, nil }, { nil, nil, nil, nil }
local whole, nwhole = { nil, nil, nil, nil }, 0
local steps, found = { nil, nil, nil, nil }, { nil, nil, nil, nil }
local joined, rest, begun = {}, 0, false
local letters
local nargs = #ARGV


local function all_admitted(n)
  local all = {}

  for i = 1, n do
    all[i] = 'A'
  end

  return all
end


local function charge_rest()
  for c = 1, rest ~= 0 and nwhole or 0 do
    local i = whole[c]

    if checks[i].kind == WINDOW then
      window_charge_rest(on[i], rest)
    else
      set_charge_rest(on[i], rest, joined)
    end
  end

  rest = 0
end


-- Charges a decision alone to what is whole, windows or sets; returns whether
-- it is plain still, and the first error.  Windows come before all sets, and
-- what is broken makes new members provisional.

local function charge_whole(of_windows, member, n, plain, err)
  for c = 1, nwhole do
    local i = whole[c]

    if (checks[i].kind == WINDOW) == of_windows then
      local letter, failure

      if of_windows then
        letter, failure = window_charge_one(on[i], checks[i])
      else
        letter, failure = set_charge_one(on[i], checks[i], member, err ~= '')
      end

      if letter == 'E' or err ~= '' then
        letters = plain and all_admitted(n) or letters
        letters[i], plain = letter, false
      end

      if letter == 'E' then
        begun = false
        err = err ~= '' and err or failure
      end
    end
  end

  return plain, err
end


while a <= nargs do
  local run = ARGV[a]
  local mark, count = byte(run, 1, 2)
  local n, nsteps, nbuckets, members = #run - 2, 0, 0, a + 1
  local own, member = mark == 32 + 1, false

  count = count - 32
  a = a + 1
  nwhole, begun = 0, false

  for i = 1, n do
    local rule = rules[byte(run, i + 2) - 32]
    local roomy = false

    checks[i] = rule

    if rule.kind == BUCKET then
      nbuckets = nbuckets + 1
      on[i] = nbuckets

    elseif rule.kind == WINDOW then
      on[i] = rule.window
      roomy = window_roomy(on[i], rule, count)

    else
      if not own then
        k = k + 1
        on[i] = set_at(k)
        roomy = set_roomy(on[i], rule, count)
      end

      a = members + count
      member = true
    end

    if roomy then
      nwhole = nwhole + 1
      whole[nwhole] = i
    else
      nsteps = nsteps + 1
      steps[nsteps] = i
    end
  end

  for d = 1, count do
    local plain, refused, wait, err = true, false, 0, ''
    local set

    for s = 1, nsteps do
      local i = steps[s]
      local rule = checks[i]
      local kind, letter, value = rule.kind

      if kind == BUCKET then
        local b = bucket + on[i]

        value = pcall('INCRBY', KEYS[b], rule.step)

        if type(value) == 'number' and value >= rule.fresh
           and value <= rule.empty
        then
          letter = 'A'
        else
          letter, value = bucket_look(b, rule, value)
        end

      elseif kind == WINDOW then
        local w = on[i]

        if w.start == rule.span and w.count < rule.first then
          letter, value = 'A', w.start
        else
          letter, value = window_look(w, rule)
          rule.span = letter == 'A' and value or -1
        end

      elseif own then
        k = k + 1
        on[i] = set_at(k)
        letter, value = set_look(on[i], rule, members + d - 1, 1, 1)

      else
        letter, value = set_look(on[i], rule, members, count, d)
      end

      found[i] = value

      if letter ~= 'A' then
        letters = plain and all_admitted(n) or letters
        letters[i], plain = letter, false

        if letter == 'R' then
          refused = not rule.dry_run

          if refused or wait == 0 then
            wait = value
          end

          if refused then
            for c = 1, i - 1 do
              if checks[c].kind == BUCKET and letters[c] == 'A' then
                bucket_back(bucket + on[c], found[c], checks[c])
              end
            end

            for c = i + 1, n do
              letters[c] = '-'

              if own and checks[c].kind == DISTINCT then
                k = k + 1
              end
            end

            set = kind == DISTINCT and on[i]
            break
          end

        elseif letter == 'E' and err == '' then
          err = value
        end
      end
    end

    local joins = begun and err == ''

    if nwhole ~= 0 and not refused and not joins then
      charge_rest()
      begun = true
      plain, err = charge_whole(true, 0, n, plain, err)
    end

    for s = 1, refused and 0 or nsteps do
      local i = steps[s]

      if plain or letters[i] == 'A' or letters[i] == 'N' then
        local rule, value = checks[i], found[i]
        local kind, failure = rule.kind

        if kind == BUCKET then
          failure = bucket_charge(bucket + on[i], value, rule)

        elseif kind == WINDOW then
          local w = on[i]

          if w.start == value and w.ends == value + rule.second then
            w.count, w.unwritten = w.count + 1, true
          else
            failure = window_charge(w, value, rule)
          end

        elseif value then
          failure = set_charge(on[i], ARGV[members + d - 1], value == 'N',
                               value == 'N'
                               and (rule.provisional or err ~= ''))
        end

        if failure then
          letters = plain and all_admitted(n) or letters
          letters[i], plain = 'E', false
          err = err ~= '' and err or failure
        end
      end
    end

    if nwhole == 0 or refused then
      -- there is nothing else to be charged

    elseif joins and err == '' then
      rest = rest + 1
      joined[rest] = member and ARGV[members + d - 1]

    else
      if joins then
        charge_rest()
        plain, err = charge_whole(true, 0, n, plain, err)
      end

      plain, err = charge_whole(false, members + d - 1, n, plain, err)
    end

    bucket = bucket + nbuckets
    number = number + 1

    if plain then
      admitted = admitted + n

    else
      told[#told + 1] = rep('A', admitted)
      told[#told + 1] = concat(letters, '', 1, n)
      admitted = 0

      if wait ~= 0 or err ~= '' then
        local filled = #more

        more[filled + 1], more[filled + 2] = number, wait
        more[filled + 3] = err
        more[filled + 4] = set and set_members(set) or false
      end
    end
  end

  charge_rest()
end

if window_end then
  window_end()
end

if set_end then
  set_end()
end

told[#told + 1] = rep('A', admitted)

return { now, concat(told), unpack(more) }
