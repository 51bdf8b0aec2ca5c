-- A million objects, each asked for as often as the others.
local OBJECTS, REQUESTS = 1000000, 262144
local requests, at = {}, 0

function init()
  math.randomseed(os.time())
  -- Drawn before the measurement, as whole requests: the load must not be the limit.
  for n = 1, REQUESTS do
    requests[n] = wrk.format("GET", wrk.path .. math.random(OBJECTS))
  end
end

function request()
  at = at % REQUESTS + 1
  return requests[at]
end
