-- Adds events to a stream, each once, in their order, until one cannot be added.
-- KEYS: the lanes of the destination, the ids that the stream knows, the stream.
-- ARGV: the lane's name, how many ids to know, for how many seconds, how to trim (`~`, `=` or
-- nothing) and to what length; then for each event its id, the number of words of its entry, and
-- these words.
-- Answers for each event 1 (added) or 0 (known), and why it stopped and at which of the keys.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return {{}, 'FENCED', 1}
end
local function add(first, last)
  if ARGV[4] == '' then
    return redis.pcall('XADD', KEYS[3], '*', unpack(ARGV, first, last))
  end
  return redis.pcall('XADD', KEYS[3], 'MAXLEN', ARGV[4], ARGV[5], '*', unpack(ARGV, first, last))
end
local function failed(answer)
  return type(answer) == 'table' and answer.err
end
local newest = redis.pcall('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
if failed(newest) then
  return {{}, newest.err, 2}
end
local number = tonumber(newest[2] or 0)
local answers = {}
local stopped, at_key = '', 0
local at = 6
while at < #ARGV do
  local id, words = ARGV[at], tonumber(ARGV[at + 1])
  number = number + 1
  local noted = redis.pcall('ZADD', KEYS[2], 'NX', number, id)
  if failed(noted) then
    stopped, at_key = noted.err, 2
    break
  end
  if noted == 1 then
    local added = add(at + 2, at + 1 + words)
    if failed(added) then
      redis.call('ZREM', KEYS[2], id)
      stopped, at_key = added.err, 3
      break
    end
  end
  answers[#answers + 1] = noted
  at = at + 2 + words
end
if #answers > 0 then
  local superfluous = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[2])
  if superfluous > 0 then
    redis.call('ZREMRANGEBYRANK', KEYS[2], 0, superfluous - 1)
  end
  redis.call('EXPIRE', KEYS[2], ARGV[3])
end
return {answers, stopped, at_key}
