-- Opens a lane: ends all lanes that own a part of what it owns.
-- KEYS: the lanes of the destination, each with the ranges of cells that it owns: `0-7,16-23`.
-- ARGV: the lane's name, its ranges.
-- Answers why it did not, or nothing.
local mine = {}
for first, last in string.gmatch(ARGV[2], '(%d+)-(%d+)') do
  for cell = tonumber(first), tonumber(last) do
    mine[cell] = true
  end
end
local function is_shared(ranges)
  for first, last in string.gmatch(ranges, '(%d+)-(%d+)') do
    for cell = tonumber(first), tonumber(last) do
      if mine[cell] then
        return true
      end
    end
  end
  return false
end
local lanes = redis.pcall('HGETALL', KEYS[1])
if lanes.err then
  return lanes.err
end
for at = 1, #lanes, 2 do
  if is_shared(lanes[at + 1]) then
    redis.call('HDEL', KEYS[1], lanes[at])
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ''
