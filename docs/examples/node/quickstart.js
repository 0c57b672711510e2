// Writes a business row and its event, from Node with pg.

const { Client } = require("pg");

const INSERT = "insert into orders (state) values ('placed') returning id";
const EMIT = `select posthaste.emit('orders', $1::jsonb, key => $2, type => 'order.placed',
                                    headers => $3)`;

async function placeOrder(client, lines) {
  await client.query("begin");
  const { rows } = await client.query(INSERT);
  // pg makes an SQL array of a JavaScript array: JSON.stringify and the cast keep it JSON.
  await client.query(EMIT, [JSON.stringify(lines), rows[0].id, ["source", "shop"]]);
  await client.query("commit");
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    await placeOrder(client, [{ item: "book", count: 2 }]);
  } catch (error) {
    await client.query("rollback");
    throw error;
  } finally {
    await client.end();
  }
}

main();
