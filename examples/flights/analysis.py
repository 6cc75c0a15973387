"""Reports on the history of the flights, computed by Spark, and the page that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.flights.data import airlines
from examples.flights.processes import QUEUE
from tablequeue.spark.reports import page, plots
from tablequeue.spark.reports.cluster import Spark, ended
from tablequeue.spark.reports.throughput import throughput
from tablequeue.spark.reports.times import percentiles, times
from tablequeue.spark.reports.workers import WORKERS

FLIGHT = "n int, carrier string, dep_delay int, arr_delay int"


def analyse(spark: SparkSession, url_env: str, folder: Path) -> dict[str, Any]:
    """Return every report as rows, and the `counts`; write each report as Parquet under `folder`. Stops the session.

    url_env   the environment variable with the URL of the database.
    """
    try:
        history = spark.read.format("tablequeue").option("urlEnv", url_env).option("queue", QUEUE).load().cache()
        names = spark.createDataFrame(list(airlines().items()), "carrier string, name string")
        engine = Spark(spark)
        ended(history).withColumn("queue", f.lit(QUEUE)).createOrReplaceTempView("messages")
        engine.define("times", times(1))
        tables = {
            "carriers": carriers(history, names),
            "times": engine.frame(percentiles("queue")).drop("queue"),
            "throughput": engine.frame(throughput()),
            "workers": engine.frame(WORKERS).drop("queue"),
        }
        found: dict[str, Any] = {"counts": counts(history).first().asDict()}
        for name, table in tables.items():
            table.coalesce(1).write.parquet(str(folder / "parquet" / name))
            found[name] = [row.asDict() for row in table.collect()]
        return found
    finally:
        spark.stop()


def counts(history: DataFrame) -> DataFrame:
    """Return one row: messages delivered, distinct flights among them, and messages delivered again."""
    flight = f.from_json("payload", FLIGHT)
    return history.agg(
        f.count("finished_at").alias("delivered"),
        f.countDistinct(flight["n"]).alias("distinct"),
        f.count_if(f.col("attempts") > 1).alias("redelivered"),
    )


def carriers(history: DataFrame, names: DataFrame) -> DataFrame:
    """Return a row for each carrier: its name, flights, and mean delays in minutes (of flights that have them)."""
    return (
        history.select(f.from_json("payload", FLIGHT).alias("flight"))
        .groupBy("flight.carrier")
        .agg(
            f.count("*").alias("flights"),
            f.mean("flight.dep_delay").alias("mean_dep_delay"),
            f.mean("flight.arr_delay").alias("mean_arr_delay"),
        )
        .join(names, "carrier")
        .select("carrier", "name", "flights", "mean_dep_delay", "mean_arr_delay")
        .orderBy("carrier")
    )


def write_page(path: Path, found: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    by_delay = sorted(found["carriers"], key=lambda row: row["mean_dep_delay"], reverse=True)
    by_second = {row["at"]: row for row in found["throughput"]}
    first = min(by_second)
    x = range(round((max(by_second) - first).total_seconds()) + 1)
    # A second in which nothing happened has no row.
    rates = {
        name: [by_second.get(first + timedelta(seconds=i), {}).get(name, 0) for i in x]
        for name in ("pushed", "finished")
    }
    sections = [
        page.Section(
            "Throughput",
            "The events of each second. The backlog grows while more messages are pushed than finished.",
            plots=[page.Plot("", "", plots.lines(x, 1, rates, "messages a second", x_label="second"))],
        ),
        page.Section(
            "Wait and run times",
            "Seconds from the push to the first pop, and from the last pop to the finish.",
            tables=[page.Table("", "", found["times"])],
        ),
        page.Section(
            "Producers and consumers",
            "The work of each process. consumer-1 was killed, and the others finished its messages (retried).",
            plots=[
                page.Plot(
                    "",
                    "",
                    plots.bars(
                        [row["name"] for row in found["workers"]],
                        [row["messages"] for row in found["workers"]],
                        "messages pushed by each producer, finished by each consumer",
                        plots.GREEN,
                    ),
                )
            ],
            tables=[page.Table("", "", found["workers"])],
        ),
        page.Section(
            "Carriers",
            "Mean departure delay in minutes, of the flights that departed.",
            plots=[
                page.Plot(
                    "",
                    "",
                    plots.bars(
                        [row["name"] for row in by_delay],
                        [row["mean_dep_delay"] for row in by_delay],
                        "mean departure delay, minutes",
                        plots.ORANGE,
                    ),
                )
            ],
            tables=[page.Table("", "", found["carriers"])],
        ),
    ]
    words = "Flights that left New York in 2013, through a queue in one SQLite table, read by Spark from its history."
    path.write_text(page.render(f"{facts['pushed']:,} flights through a table queue", words, facts, sections), "utf-8")
