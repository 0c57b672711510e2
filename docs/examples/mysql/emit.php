<?php
// Writes events from PHP with PDO, in the transactions of its own business rows.

const EMIT = "insert into posthaste_outbox (topic, `key`, `type`, content_type, payload, headers)
              values ('orders', ?, ?, ?, ?, ?)";
const LOCK = "select slot from posthaste_key_locks
              where slot = conv(left(sha2(?, 256), 4), 16, 10) & 16383 for update";

$headers = json_encode(['source', 'shop', 'source', 'again', 'no-value', null]);
// mysql:host=localhost;dbname=shop;charset=utf8mb4
$database = new PDO(getenv('DATABASE_DSN'), getenv('DATABASE_USER'), getenv('DATABASE_PASSWORD') ?: '');
$run = fn(string $sql, array $parameters) => $database->prepare($sql)->execute($parameters);

// A business row and its event: both, or neither.
$database->beginTransaction();  // what is not committed at the script's end is rolled back
$run("insert into orders (id, state) values ('order-1', 'placed')", []);
$run(EMIT, ['order-1', 'order.placed', null, 'text: Größe', $headers]);
$database->commit();

// JSON, bytes, and no payload at all: a tombstone.
$database->beginTransaction();
$run(EMIT, ['order-1', null, 'application/json', json_encode(['a' => 1]), '[]']);
$run(EMIT, ['order-1', null, null, "\x00\xff\xfe", '[]']);
$run(EMIT, ['order-1', null, null, null, '[]']);
$database->commit();

// No business row to lock first: the slot of the event's key is locked until the commit.
$database->beginTransaction();
$lock = $database->prepare(LOCK);
$lock->execute(['order-1']);
$lock->closeCursor();
$run(EMIT, ['order-1', null, null, 'locked', '[]']);
$database->commit();

// A savepoint that is rolled back takes its event with it; the transaction goes on.
$database->beginTransaction();
$database->exec('savepoint attempt');
$run(EMIT, ['order-1', null, null, 'never', '[]']);
$database->exec('rollback to savepoint attempt');
$run(EMIT, ['order-1', null, null, 'after the savepoint', '[]']);
$database->commit();
