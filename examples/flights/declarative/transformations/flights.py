"""The queue `raw` as a table that grows, and those of its flights that left late as messages of another queue."""

# mypy: disable-error-code="untyped-decorator"

from examples.flights.data import folder
from pyarrow import csv
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

RAW = "n int, carrier string, flight int, origin string, dest string, time_hour timestamp, minute int, dep_delay int"
QUEUES = {"urlEnv": "TABLEQUEUE_URL"}

spark = SparkSession.active()


@dp.materialized_view
def airlines() -> DataFrame:
    return spark.createDataFrame(csv.read_csv(folder() / "airlines.csv").to_pylist())


@dp.table(partition_cols=["day"])
def enriched() -> DataFrame:
    raw = spark.readStream.format("tablequeue").options(**QUEUES, queue="raw", stream="declarative").load()
    flight = raw.select(f.from_json("payload", RAW).alias("flight")).select("flight.*")
    scheduled = f.col("time_hour") + f.make_interval(mins="minute")
    named = spark.read.table("airlines").withColumnRenamed("name", "airline")
    return (
        flight.where("time_hour is not null and minute is not null")
        .select("n", "carrier", "flight", "origin", "dest", "dep_delay", scheduled.alias("scheduled"))
        .withColumn("day", f.to_date("scheduled"))
        .join(named, "carrier", "left")
    )


dp.create_sink("delayed", "tablequeue", {**QUEUES, "queue": "delayed", "producer": "declarative"})


@dp.append_flow(target="delayed")
def late() -> DataFrame:
    rows = spark.readStream.table("enriched").where("dep_delay > 60")
    return rows.select(f.to_json(f.struct("n", "airline", "dep_delay", "day")).alias("payload"))
