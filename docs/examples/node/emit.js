// Writes events from Node (pg), in the transactions of its own business rows.
//
//     npm install
//     DATABASE_URL=postgres://app@localhost/shop node emit.js

const { Client } = require("pg");

const HEADERS = ["source", "shop", "source", "again", "no-value", null];

async function transaction(client, work) {
  await client.query("begin");
  try {
    await work();
    await client.query("commit");
  } catch (error) {
    await client.query("rollback");
    throw error;
  }
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  // Runs one emit and prints the id that it answers.
  const emit = async (sql, parameters) => {
    const { rows } = await client.query(sql, parameters);
    console.log(Object.values(rows[0])[0]);
  };

  // A business row and its event: both, or neither.
  await transaction(client, async () => {
    await client.query("insert into orders (id, state) values ('order-1', 'placed')");
    await emit("select posthaste.emit('orders', $1, key => $2, type => 'order.placed', headers => $3)", [
      "text: Größe",
      "order-1",
      HEADERS,
    ]);
  });

  // JSON that the server builds is json or jsonb; a parameter has no type, so it is taken as text.
  await transaction(client, async () => {
    await emit("select posthaste.emit('orders', json_build_object('b', 1, 'a', 2), key => $1)", ["order-1"]);
    await emit("select posthaste.emit('orders', jsonb_build_object('b', 1, 'a', 2), key => $1)", ["order-1"]);
  });

  // Bytes need emit_bytes, for the same reason. No payload at all: a tombstone.
  await transaction(client, async () => {
    await emit("select posthaste.emit_bytes('orders', $1, key => 'order-1')", [Buffer.from([0x00, 0xff, 0xfe])]);
    await emit("select posthaste.emit('orders', key => $1)", ["order-1"]);
  });

  // No business row to lock first: the event's key is locked until the commit.
  await transaction(client, async () => {
    await emit("select posthaste.emit('orders', $1, key => $2, lock_key => true)", ["locked", "order-1"]);
  });

  // Rolled back: neither the row nor the event exists.
  await client.query("begin");
  await client.query("insert into orders (id, state) values ('order-2', 'placed')");
  await client.query("select posthaste.emit('orders', 'never', key => 'order-2')");
  await client.query("rollback");

  // A savepoint that is rolled back takes its event with it; the transaction goes on.
  await transaction(client, async () => {
    await client.query("savepoint before");
    await client.query("select posthaste.emit('orders', 'never', key => 'order-1')");
    await client.query("rollback to savepoint before");
    await emit("select posthaste.emit('orders', $1, key => 'order-1')", ["after the savepoint"]);
  });

  // A plain INSERT; the payload is bytes, the other columns have defaults.
  await client.query("insert into posthaste.outbox (topic, key, payload, headers) values ($1, $2, $3, $4)", [
    "orders",
    "order-1",
    Buffer.from("inserted"),
    HEADERS,
  ]);
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
