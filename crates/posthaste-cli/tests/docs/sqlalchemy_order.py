"""Two hundred events of one key in one transaction, one by one and in one flush; business rows that
were not flushed stand before them."""

import os
from uuid import UUID, uuid4

from outbox import Base, Event, emit
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Mapped, Session, mapped_column


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    state: Mapped[str]


def fields(number):
    """Rows with different columns set are different statements to a mapper."""
    return {"headers": ["n", str(number)]} if number % 3 else {"type": "order.changed"}


engine = create_engine(os.environ["DATABASE_URL"])
statements = []


@event.listens_for(engine, "before_cursor_execute")
def note(_connection, _cursor, statement, *_):
    statements.append(" ".join(statement.split()[:3]))


with Session(engine) as session, session.begin():
    order = Order(id=uuid4(), state="placed")
    session.add(order)
    for number in range(100):
        order.state = f"changed {number}"
        emit(session, "orders", number, key=str(order.id), **fields(number))
    session.flush()
    for number in range(100, 200):
        payload = str(number).encode()
        session.add(Event(topic="orders", key=str(order.id), payload=payload, **fields(number)))

changes, events = 0, 0
for statement in statements:
    changes += statement.endswith("orders") or statement.startswith("UPDATE orders")
    events += statement.endswith("outbox")
    assert changes >= min(events, 100), f"event {events} stands before its change: {statements}"
assert changes == 100, statements
