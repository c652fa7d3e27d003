-- Sends the requests of a file in turn, again and again, or with "once" up to the end of the file.
-- Arguments: the file, and "once" or "again". A line has the method, the path, the body and the headers, separated by tabs.

local lines, position, once = {}, 0, false

function init(arguments)
   once = arguments[2] == "once"
   for line in io.lines(arguments[1]) do
      local method, path, body, fields = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)(.*)$")
      local headers = {}
      for name, value in fields:gmatch("\t([^:]+): ([^\t]*)") do headers[name] = value end
      lines[#lines + 1] = wrk.format(method, path, headers, body ~= "" and body or nil)
   end
end

function request()
   if once and position >= #lines then
      wrk.thread:stop()
      print("end") -- wrk would sleep until its time is over; the benchmark can now interrupt it
      io.flush()
      return lines[#lines] -- a request must be sent
   end
   position = position + 1
   return lines[(position - 1) % #lines + 1]
end

function done(summary, latency)
   local errors = summary.errors
   print(string.format(
      '{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
