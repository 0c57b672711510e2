"""Writes a business row and its event, from SQLAlchemy 2."""

import os
from uuid import UUID, uuid4

from sqlalchemy import create_engine
from sqlalchemy.orm import Mapped, Session, mapped_column

from outbox import Base, emit


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    state: Mapped[str]


engine = create_engine(os.environ["DATABASE_URL"])  # postgresql+psycopg://shop@localhost/shop
with Session(engine) as session, session.begin():  # commits, or rolls back
    order = Order(id=uuid4(), state="placed")
    session.add(order)
    fields = {"key": str(order.id), "type": "order.placed", "headers": ["source", "shop"]}
    emit(session, "orders", [{"item": "book", "count": 2}], **fields)
