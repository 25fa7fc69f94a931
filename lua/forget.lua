--
-- Deletes keys, whatever they count: what an operator has pardoned.  As a
-- script, because a proxy may know no other command than EVAL, and it finds
-- its way to the right node as the other scripts do.
--
-- KEYS   keys of one slot
-- reply  how many there were
--
-- Needs the right to call DEL.
--

local deleted = 0

for k = 1, #KEYS do
  deleted = deleted + redis.call('DEL', KEYS[k])
end

return deleted
