"""A web shop: a request stores an order and pushes a message in one transaction; a worker ships it.

    uvicorn examples.shop:app
    tablequeue work examples.shop:ship --queue orders --url sqlite:///shop.db

    curl -X POST http://127.0.0.1:8000/orders/7
    curl http://127.0.0.1:8000/orders/7

SHOP_URL names another database, as postgresql+psycopg://user@host/shop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

import sqlalchemy as sa
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import tablequeue
from tablequeue import Claim
from tablequeue.contrib.fastapi import InSession, Queues
from tablequeue.worker import Finished

engine = sa.create_engine(os.environ.get("SHOP_URL", "sqlite:///shop.db"))
queues = Queues(engine)


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """An order, and whether it has left the house."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    shipped: Mapped[bool] = mapped_column(default=False)


def session() -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Make the tables; a larger shop does so in a migration."""
    Base.metadata.create_all(engine)
    with tablequeue.connect(engine) as database:
        database.create_queue("orders")
    async with queues.lifespan(app):
        yield


app = FastAPI(lifespan=lifespan)
InRequest = Annotated[Session, Depends(session)]
Orders = Annotated[InSession, Depends(queues.queue("orders", session))]


@app.post("/orders/{number}", status_code=201)
def order(number: int, session: InRequest, orders: Orders) -> dict[str, int]:
    """Store the order and push its message: both, or neither."""
    message = orders.push({"number": number})
    session.add(Order(number=number))
    try:
        # Here, and not in the dependency: that one ends after the client has the answer.
        session.commit()
    except IntegrityError:
        raise HTTPException(409, f"Order {number} is there already.") from None
    return {"message": message}


@app.get("/orders/{number}")
def show(number: int, session: InRequest) -> dict[str, bool]:
    found = session.get(Order, number)
    if found is None:
        raise HTTPException(404, f"There is no order {number}.")
    return {"shipped": found.shipped}


def ship(message: Claim) -> Finished:
    """Mark the order as shipped, and complete its message in the same transaction."""
    with Session(engine) as session:
        session.execute(sa.update(Order).where(Order.number == message.payload["number"]).values(shipped=True))
        message.complete(connection=session)
        session.commit()
    return Finished()
