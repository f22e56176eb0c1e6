-- wrk: each request is a new task; the context is one of a few hundred, so that making it costs wrk next to nothing.
local contexts = {}
local n = 0
local thread_id = 0
local batch = tonumber(os.getenv("BATCH") or "1")
local prefix = os.getenv("PREFIX") or "t"

function setup(thread)
   thread_id = thread_id + 1
   thread:set("number", thread_id)
end

function init(args)
   math.randomseed(number)
   for i = 1, 512 do
      local values = {}
      for j = 1, 20 do values[j] = string.format("%.4f", math.random() / 4.5) end
      contexts[i] = table.concat(values, ",")
   end
   wrk.method = "POST"
   wrk.headers["Content-Type"] = "application/json"
end

local function task()
   n = n + 1
   return '{"task":"' .. prefix .. number .. "-" .. n .. '","context":[' .. contexts[n % 512 + 1] .. "]}"
end

function request()
   if batch == 1 then return wrk.format(nil, nil, nil, task()) end
   local tasks = {}
   for i = 1, batch do tasks[i] = task() end
   return wrk.format(nil, nil, nil, '{"tasks":[' .. table.concat(tasks, ",") .. "]}")
end

function done(summary, latency, requests)
   io.write(string.format('RESULT {"requests":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"errors":%d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
      summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout))
end
