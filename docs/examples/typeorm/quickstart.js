// Writes a business row and its event, from Node with TypeORM.

const { DataSource, EntitySchema } = require("typeorm");

const id = { type: "uuid", primary: true, generated: "uuid" };
const columns = { id, state: { type: "text" } };
const Order = new EntitySchema({ name: "Order", tableName: "orders", columns });
const EMIT = `select posthaste.emit('orders', $1::jsonb, key => $2, type => 'order.placed',
                                    headers => $3)`;

async function placeOrder(dataSource, lines) {
  // Everything by this manager: what goes past it is not in the transaction.
  await dataSource.transaction(async (manager) => {
    const order = await manager.save(Order, { state: "placed" });
    await manager.query(EMIT, [JSON.stringify(lines), order.id, ["source", "shop"]]);
  });
}

async function main() {
  const url = process.env.DATABASE_URL;
  const dataSource = new DataSource({ type: "postgres", url, entities: [Order] });
  await dataSource.initialize();
  try {
    await placeOrder(dataSource, [{ item: "book", count: 2 }]);
  } finally {
    await dataSource.destroy();
  }
}

main();
