-- What wrk sends for IapGuard::Wrk.  Each sender has a number.  Options, all
-- in the form name=value after wrk's "--":
--
--   header=NAME:VALUE   a header field; "%d" in it is the sender's number,
--                       "%a" an address made of it.  header2=, header3= too
--   first= last=        the senders' numbers (1 and 1000000000)
--   order=loop|random   one after the other, or any (loop)
--   prepare=1           make all requests before the run: for few senders
--   depth=              requests pipelined in one go (1)
--   body=BYTES          POST with a body of so many bytes
--   close=1             a connection for each request
--   delay=MIN-MAX       milliseconds that a connection waits between requests
--   threads=            as wrk's -t: threads share the senders between them

local threads = 0
local opt = {}
local number, step, ready
local parts, numbers, addresses

function setup(thread)
   thread:set("index", threads)
   threads = threads + 1
end

-- the request as a list of texts, and where the sender's number goes in it

local function compile()
   local body = string.rep("x", tonumber(opt.body or 0))
   local text = string.format("%s %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n%s",
      opt.body and "POST" or "GET", wrk.path, wrk.headers["Host"],
      table.concat(opt.headers), opt.close and "Connection: close\r\n" or "",
      opt.body and "Content-Length: " .. #body .. "\r\n" or "", body)

   parts, numbers, addresses = {}, {}, {}

   for before, what in (text .. "%"):gmatch("([^%%]*)%%(%a?)") do
      table.insert(parts, before)

      if what ~= "" then
         table.insert(parts, "")
         table.insert(what == "a" and addresses or numbers, #parts)
      end
   end
end

local function make(id)
   for i = 1, #numbers do
      parts[numbers[i]] = id
   end

   for i = 1, #addresses do
      parts[addresses[i]] = string.format("10.%d.%d.%d", id / 65536 % 256,
                                          id / 256 % 256, id % 256)
   end

   return table.concat(parts)
end

local function next_id()
   if opt.order == "random" then
      return opt.first + step * math.random(0, opt.count - 1)
   end

   local id = number
   number = number + step

   if number > opt.last then
      number = opt.first
   end

   return id
end

function init(args)
   opt = { headers = {} }

   for _, arg in ipairs(args) do
      local name, value = arg:match("^(%w+)=(.*)$")
      opt[name] = value
   end

   for _, name in ipairs({ "header", "header2", "header3" }) do
      if opt[name] then
         table.insert(opt.headers, (opt[name]:gsub(":", ": ", 1)) .. "\r\n")
      end
   end

   step = tonumber(opt.threads or 1)
   opt.first = tonumber(opt.first or 1) + index
   opt.last = tonumber(opt.last or 1000000000)
   opt.count = math.floor((opt.last - opt.first) / step) + 1
   opt.depth = tonumber(opt.depth or 1)
   number = opt.first
   compile()

   math.randomseed(os.time() + index)

   if opt.delay then
      local min, max = opt.delay:match("^(%d+)-(%d+)$")
      opt.min, opt.max = tonumber(min), tonumber(max)
      delay = function() return math.random(opt.min, opt.max) end
   end

   if opt.prepare then
      ready = {}
      for id = opt.first, opt.last, step do
         ready[id] = make(id)
      end
   end
end

function request()
   if ready then
      return ready[next_id()]
   end

   if opt.depth == 1 then
      return make(next_id())
   end

   local requests = {}
   for i = 1, opt.depth do
      requests[i] = make(next_id())
   end

   return table.concat(requests)
end

function done(summary, latency, requests)
   local e = summary.errors

   print(string.format(
      "result: requests=%d seconds=%.3f p50=%.3f p99=%.3f max=%.3f "
      .. "connect=%d read=%d write=%d status=%d timeout=%d",
      summary.requests, summary.duration / 1e6,
      latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      latency.max / 1e3,
      e.connect, e.read, e.write, e.status, e.timeout))
end
