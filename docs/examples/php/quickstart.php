<?php
// Writes a business row and its event, from PHP with PDO.

const INSERT = "insert into orders (state) values ('placed') returning id";
const EMIT = "select posthaste.emit('orders', ?::jsonb, key => ?, type => 'order.placed',
                                    headers => array['source', 'shop'])";

function placeOrder(PDO $database, array $lines): void
{
    $database->beginTransaction();  // what is not committed at the script's end is rolled back
    $order = $database->query(INSERT)->fetchColumn();
    $database->prepare(EMIT)->execute([json_encode($lines), $order]);
    $database->commit();
}

$database = new PDO(getenv('DATABASE_URL'));  // pgsql:host=localhost;dbname=shop;user=shop
placeOrder($database, [['item' => 'book', 'count' => 2]]);
