// Writes events from Node (mysql2), in the transactions of its own business rows.
//
//     npm install
//     DATABASE_URL=mysql://app@localhost/shop node emit.js

const mysql = require("mysql2/promise");

const EMIT = `insert into posthaste_outbox (topic, \`key\`, \`type\`, content_type, payload, headers)
              values ('orders', ?, ?, ?, ?, ?)`;
const LOCK = `select slot from posthaste_key_locks
              where slot = conv(left(sha2(?, 256), 4), 16, 10) & 16383 for update`;
const HEADERS = JSON.stringify(["source", "shop", "source", "again", "no-value", null]);

async function main() {
  const connection = await mysql.createConnection(process.env.DATABASE_URL);
  const transaction = async (work) => {
    await connection.beginTransaction();
    try {
      await work();
      await connection.commit();
    } catch (error) {
      await connection.rollback();
      throw error;
    }
  };

  // A business row and its event: both, or neither.
  await transaction(async () => {
    await connection.execute("insert into orders (id, state) values ('order-1', 'placed')");
    await connection.execute(EMIT, ["order-1", "order.placed", null, "text: Größe", HEADERS]);
  });

  // JSON, bytes, and no payload at all: a tombstone.
  await transaction(async () => {
    const json = JSON.stringify({ a: 1 });
    const bytes = Buffer.from([0x00, 0xff, 0xfe]);
    await connection.execute(EMIT, ["order-1", null, "application/json", json, "[]"]);
    await connection.execute(EMIT, ["order-1", null, null, bytes, "[]"]);
    await connection.execute(EMIT, ["order-1", null, null, null, "[]"]);
  });

  // No business row to lock first: the slot of the event's key is locked until the commit.
  await transaction(async () => {
    await connection.execute(LOCK, ["order-1"]);
    await connection.execute(EMIT, ["order-1", null, null, "locked", "[]"]);
  });

  // Rolled back: neither the row nor the event exists.
  await connection.beginTransaction();
  await connection.execute("insert into orders (id, state) values ('order-2', 'placed')");
  await connection.execute(EMIT, ["order-2", null, null, "never", "[]"]);
  await connection.rollback();

  // A savepoint that is rolled back takes its event with it; the transaction goes on.
  await transaction(async () => {
    await connection.query("savepoint attempt");
    await connection.execute(EMIT, ["order-1", null, null, "never", "[]"]);
    await connection.query("rollback to savepoint attempt");
    await connection.execute(EMIT, ["order-1", null, null, "after the savepoint", "[]"]);
  });
  await connection.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
