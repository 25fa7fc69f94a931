-- What the guard is compared with: the usual limiter of the Lua module and
-- lua-resty-redis, at its best.  Connections are kept, a script goes by its
-- hash, several layers travel in one pipeline, and a refusal says no more
-- than 429.
--
--   limiter = require("limiter").new({      -- while nginx starts
--     port = 6379, script = "bucket.lua", prefix = "limit:",
--     user = { capacity = "5", rate = "0.05" }, device = ..., address = ...,
--     all = { limit = 6000, window = 60 } })
--
--   limiter:one()                           -- in the access phase: the user
--   limiter:layers()                        -- or all of them

-- Debian's package has it under another name

local found, redis = pcall(require, "resty.redis")
if not found then
  redis = require "nginx.redis"
end

local var, time, exit = ngx.var, ngx.time, ngx.exit
local floor = math.floor

local TIMEOUT = 1000            -- ms
local KEPT_FOR = 60000          -- ms
local KEPT = 64                 -- as many as there are clients

local limiter = {}
local methods = { __index = limiter }


function limiter.new(options)
  local file = assert(io.open(options.script))
  local script = file:read("*a")
  file:close()

  options.text = script
  options.sha1 = ngx.sha1_bin(script):gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end)

  return setmetatable(options, methods)
end


-- An outage lets a limiter pass all or nothing; the bench is to see it.

local function broken(err)
  ngx.log(ngx.CRIT, "redis: ", err)
  return exit(500)
end


local function connect(port)
  local red, err = redis:new()
  if not red then
    return nil, err
  end

  red:set_timeout(TIMEOUT)

  local ok
  ok, err = red:connect("127.0.0.1", port)

  return ok and red, err
end


-- The script itself is sent once, after Redis did not know its hash.

function limiter:again(red, err, key, rule)
  if err:sub(1, 8) ~= "NOSCRIPT" then
    return nil, err
  end

  return red:eval(self.text, "1", key, rule.capacity, rule.rate)
end


function limiter:one()
  local red, err = connect(self.port)
  if not red then
    return broken(err)
  end

  local rule = self.user
  local key = self.prefix .. "user:" .. (var.http_x_user_id or "")
  local allowed

  allowed, err = red:evalsha(self.sha1, "1", key, rule.capacity, rule.rate)

  if allowed == false then
    allowed, err = self:again(red, err, key, rule)
  end

  if not allowed then
    return broken(err)
  end

  red:set_keepalive(KEPT_FOR, KEPT)

  if allowed == 0 then
    return exit(429)
  end
end


-- A reply of a pipeline: its error is in a table

function limiter:reply(red, reply, key, rule)
  if type(reply) ~= "table" then
    return reply
  end

  return self:again(red, reply[2], key, rule)
end


function limiter:layers()
  local red, err = connect(self.port)
  if not red then
    return broken(err)
  end

  local sha1, prefix, all = self.sha1, self.prefix, self.all
  local user, device, address = self.user, self.device, self.address
  local user_key = prefix .. "user:" .. (var.http_x_user_id or "")
  local device_key = prefix .. "device:" .. (var.http_x_device_id or "")
  local address_key = prefix .. "address:" .. var.remote_addr
  local all_key = prefix .. "all:" .. floor(time() / all.window)

  red:init_pipeline(4)
  red:evalsha(sha1, "1", user_key, user.capacity, user.rate)
  red:evalsha(sha1, "1", device_key, device.capacity, device.rate)
  red:evalsha(sha1, "1", address_key, address.capacity, address.rate)
  red:incr(all_key)

  local replies, of_user, of_device, of_address

  replies, err = red:commit_pipeline()
  if not replies then
    return broken(err)
  end

  of_user, err = self:reply(red, replies[1], user_key, user)
  if not of_user then
    return broken(err)
  end

  of_device, err = self:reply(red, replies[2], device_key, device)
  if not of_device then
    return broken(err)
  end

  of_address, err = self:reply(red, replies[3], address_key, address)
  if not of_address then
    return broken(err)
  end

  local count = replies[4]
  if type(count) == "table" then
    return broken(count[2])
  end

  if count == 1 then
    red:expire(all_key, all.window)
  end

  red:set_keepalive(KEPT_FOR, KEPT)

  if of_user == 0 or of_device == 0 or of_address == 0 or count > all.limit
  then
    return exit(429)
  end
end


return limiter
