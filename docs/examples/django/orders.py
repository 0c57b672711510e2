"""Writes a business row and its event, from Django."""

from uuid import uuid4

from django.db import connection, models, transaction
from psycopg.types.json import Jsonb

EMIT = "select posthaste.emit('orders', %s, key => %s, type => 'order.placed', headers => %s)"


class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid4)
    state = models.TextField()

    class Meta:
        app_label, db_table = "shop", "orders"


@transaction.atomic
def place_order(lines):
    order = Order.objects.create(state="placed")
    with connection.cursor() as cursor:
        cursor.execute(EMIT, [Jsonb(lines), order.id, ["source", "shop"]])
