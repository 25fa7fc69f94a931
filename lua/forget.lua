--
-- Deletes keys, whatever they count: what an operator has pardoned.  As a
-- script, because a proxy may know no other command than EVAL, and it finds
-- its way to the right node as the other scripts do.
--
-- KEYS   keys of one slot
-- reply  how many there were; or the first token of the first error, and
--        then a part of them may have been deleted
--
-- Needs the right to call DEL.
--

local deleted = 0

for k = 1, #KEYS do
  local done = redis.pcall('DEL', KEYS[k])

  if type(done) == 'table' then
    return string.match(done.err, '%u%u[%u%d_]*') or 'ERR'
  end

  deleted = deleted + done
end

return deleted
