-- 10,000 objects, asked for by Zipf's law with exponent 0.9.
local OBJECTS, EXPONENT, REQUESTS = 10000, 0.9, 65536
local requests, at = {}, 0

function init()
  math.randomseed(7)
  local sums, sum = {}, 0
  for object = 1, OBJECTS do
    sum = sum + 1 / object ^ EXPONENT
    sums[object] = sum
  end
  -- Drawn before the measurement, as whole requests: the load must not be the limit.
  for n = 1, REQUESTS do
    local wanted, low, high = math.random() * sum, 1, OBJECTS
    while low < high do
      local middle = math.floor((low + high) / 2)
      if sums[middle] < wanted then low = middle + 1 else high = middle end
    end
    requests[n] = wrk.format("GET", wrk.path .. low)
  end
end

function request()
  at = at % REQUESTS + 1
  return requests[at]
end
