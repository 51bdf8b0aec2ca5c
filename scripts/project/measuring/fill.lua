-- Asks once for each of a million objects, and ends.
local OBJECTS, n = 1000000, 0

function request()
  n = n + 1
  if n > OBJECTS + 64 then wrk.thread:stop() end
  return wrk.format("GET", wrk.path .. math.min(n, OBJECTS))
end
