-- Adds events to a stream, each once, in their order, until one cannot be added.
-- KEYS: the lanes of the destination, the ids that the stream knows, the stream.
-- ARGV: the lane's name, how many ids to know, for how many seconds, how to trim (`~`, `=` or
-- nothing) and to what length; then for each event its id, the number of words of its entry, and
-- these words.
-- Answers for each event 1 (added) or 0 (known), and why it stopped and at which of the keys.
local function failed(answer)
  return type(answer) == 'table' and answer.err
end
local is_open = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if failed(is_open) then
  return {{}, is_open.err, 1}
end
if is_open == 0 then
  return {{}, 'FENCED', 1}
end
local function add(first, last)
  if ARGV[4] == '' then
    return redis.pcall('XADD', KEYS[3], '*', unpack(ARGV, first, last))
  end
  return redis.pcall('XADD', KEYS[3], 'MAXLEN', ARGV[4], ARGV[5], '*', unpack(ARGV, first, last))
end
-- Changes nothing, and fails where noting the ids would: an event that is added and not noted would
-- come again, and one that is noted and not added would be lost.
local noting = redis.pcall('ZADD', KEYS[2], 'XX', 1, '')
if failed(noting) then
  return {{}, noting.err, 2}
end
local ids, starts = {}, {}
local at = 6
while at < #ARGV do
  ids[#ids + 1], starts[#starts + 1] = ARGV[at], at + 1
  at = at + 2 + tonumber(ARGV[at + 1])
end
local known = {}
for number, score in ipairs(redis.call('ZMSCORE', KEYS[2], unpack(ids))) do
  if score then
    known[ids[number]] = true
  end
end
local score = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0)
local answers, noted = {}, {}
local stopped = ''
for number, id in ipairs(ids) do
  if known[id] then
    answers[number] = 0
  else
    local start = starts[number]
    local added = add(start + 1, start + tonumber(ARGV[start]))
    if failed(added) then
      stopped = added.err
      break
    end
    score = score + 1
    noted[#noted + 1], noted[#noted + 2] = score, id
    known[id], answers[number] = true, 1
  end
end
if #noted > 0 then
  redis.call('ZADD', KEYS[2], unpack(noted))
  local superfluous = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[2])
  if superfluous > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, superfluous - 1)
  end
end
redis.call('EXPIRE', KEYS[2], ARGV[3])
return {answers, stopped, 3}
