#!/usr/bin/env python3
"""Answers questions about a hub's store through Spark, for a fleet that outgrows one machine's engine.

    spark_sql.py STORE <questions.json

It reads a list of what commensal-sql reads, {"sql": ..., "args": [...]}, and writes a list of what
commensal-sql writes, {"columns": ..., "types": ..., "rows": ..., "truncated": ...}; types are in
Spark's words. STORE is the hub's folder `store`, or a copy of it wherever Spark can read. A
spark-submit that starts this program says which cluster; without one, all cores of this machine.

It confines nobody, as commensal-sql does: ask it what you would run yourself.

Exit codes: 0 answered; 1 Spark refused or failed; 2 bad input.
"""

import json
import math
import os
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lpad

# Without a cluster: this machine's cores, its loopback, few and small tasks.
LOCAL = {
    "spark.master": "local[*]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}
TABLES = ("samples", "decisions", "incidents", "specs", "audit")
MAX_ROWS = 10_000  # of an answer; commensal-sql's


def session() -> SparkSession:
    """Starts Spark, or joins the one that started this program."""
    conf = SparkConf()
    if not conf.contains("spark.master"):
        conf.setAll(list(LOCAL.items()))
    conf.set("spark.sql.session.timeZone", "UTC")
    return SparkSession.builder.config(conf=conf).appName("commensal").getOrCreate()


def plain(value: Any) -> Any:
    """Makes of a value what JSON can hold, as commensal-sql does."""
    if isinstance(value, datetime):  # Spark gives local time, which main() made UTC
        return value.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00Z"
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def answer(spark: SparkSession, question: dict[str, Any]) -> dict[str, Any]:
    """Asks one question."""
    frame = spark.sql(question["sql"], args=question.get("args") or [])
    rows = frame.take(MAX_ROWS + 1)
    return {
        "columns": frame.columns,
        "types": [kind for _, kind in frame.dtypes],
        "rows": [[plain(value) for value in row] for row in rows[:MAX_ROWS]],
        "truncated": len(rows) > MAX_ROWS,
    }


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: spark_sql.py STORE <questions.json", file=sys.stderr)
        return 2
    try:
        questions = json.load(sys.stdin)
    except ValueError as error:
        print(f"the questions cannot be read: {error}", file=sys.stderr)
        return 2
    os.environ["TZ"] = "UTC"
    time.tzset()
    spark = session()
    try:
        for table in TABLES:
            frame = spark.read.option("mergeSchema", "true").parquet(f"{sys.argv[1]}/{table}")
            # Folders hour=00 to hour=23: text, as DuckDB has it, which is not Spark's guess.
            frame = frame.withColumn("hour", lpad(frame["hour"].cast("string"), 2, "0"))
            frame.createOrReplaceTempView(table)
        json.dump([answer(spark, question) for question in questions], sys.stdout)
    except PySparkException as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
