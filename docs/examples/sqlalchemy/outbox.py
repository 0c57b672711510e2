"""The outbox for SQLAlchemy 2: one mapped class, and one function."""

import json
from uuid import UUID, uuid4

from sqlalchemy import ARRAY, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Event(Base):
    __tablename__ = "outbox"
    __table_args__ = {"schema": "posthaste"}
    # The writer's id: with the server's, SQLAlchemy would read the row, which no writer may.
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    topic: Mapped[str]
    key: Mapped[str | None]
    type: Mapped[str | None]
    content_type: Mapped[str | None]
    payload: Mapped[bytes | None]
    headers: Mapped[list[str | None]] = mapped_column(ARRAY(Text), default=list)


def emit(session, topic, payload, **fields):
    session.flush()  # first the business rows, whose locks give the key its order
    payload = json.dumps(payload).encode()
    session.add(Event(topic=topic, payload=payload, content_type="application/json", **fields))
