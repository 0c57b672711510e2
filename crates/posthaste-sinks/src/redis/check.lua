-- Tries every command of the other scripts, on keys that do not exist, so that nothing changes.
-- KEYS: keys under the names of the lanes and of the ids, and of a stream.
-- Answers the first refusal.
for _, command in ipairs({
  -- First: a script that has written may go on without memory.
  {'XADD', KEYS[3], 'NOMKSTREAM', '*', '-', '-'}, {'ZADD', KEYS[2], 'XX', 1, '-'},
  {'HEXISTS', KEYS[1], '-'}, {'HGETALL', KEYS[1]}, {'HDEL', KEYS[1], '-'},
  {'ZRANGE', KEYS[2], -1, -1, 'WITHSCORES'}, {'ZMSCORE', KEYS[2], '-'}, {'ZCARD', KEYS[2]},
  {'ZREMRANGEBYRANK', KEYS[2], 0, 0}, {'EXPIRE', KEYS[2], 1},
}) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    return {command[1], answer.err}
  end
end
return {'', ''}
