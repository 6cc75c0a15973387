"""By Spark Connect: the data source is found and works for a client that has no Spark of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import tablequeue
from tests.servers import free_port
from tests.support import counts

CLIENT = """
import sys
from pyspark.sql import SparkSession

server, url, folder = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
place = {"url": url}
numbers = spark.range(30).selectExpr("to_json(struct(id)) as payload")
numbers.write.format("tablequeue").options(**place, queue="first").mode("append").save()
waiting = spark.read.format("tablequeue").options(**place, queue="first", table="queue").load()
assert waiting.where("state = 'ready'").count() == 30
stream = spark.readStream.format("tablequeue").options(**place, queue="first", stream="on").load()
sink = stream.select("payload").writeStream.format("tablequeue").options(**place, queue="second")
sink.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
try:
    spark.read.format("tablequeue").options(**place, queue="third").load().count()
except Exception as error:
    print(error)
spark.stop()
"""


def test_by_spark_connect(spark: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    # On the session that is there: one of its own would take as long to start as that.
    port = free_port()
    context = spark.sparkContext._jsc.sc()
    for name, value in {"address": "127.0.0.1", "port": str(port)}.items():
        context.conf().set(f"spark.connect.grpc.binding.{name}", value)
    spark.sparkContext._jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(context)
    with tablequeue.connect(url) as database:
        first, second = database.create_queue("first"), database.create_queue("second")
        client = [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{port}", url, str(tmp_path)]
        run = subprocess.run(client, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert "There is no queue 'third'" in run.stdout
        assert counts(first) == {"finished": 30}
        assert sorted(message.payload["id"] for message in second.peek(100)) == [*range(30)]
