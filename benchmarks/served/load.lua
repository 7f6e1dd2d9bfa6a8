-- Posts one body again and again; with INTERVAL, each connection waits so many milliseconds on average before each
-- request. Writes what came of it as one line of JSON.
local function whole(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

wrk.method = "POST"
wrk.body = whole(os.getenv("BODY"))
wrk.headers["Content-Type"] = os.getenv("KIND")
if os.getenv("TOKEN") then wrk.headers["Authorization"] = "Bearer " .. os.getenv("TOKEN") end

local interval = tonumber(os.getenv("INTERVAL") or "0")
if interval > 0 then
  math.randomseed(os.time())
  function delay() -- exponential: as requests of many independent clients come
    return math.floor(-math.log(1 - math.random()) * interval + 0.5)
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.stderr:write(string.format(
    '{"requests": %d, "microseconds": %d, "failed": %d, "p50": %d, "p99": %d, "p999": %d, "max": %d}\n',
    summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
