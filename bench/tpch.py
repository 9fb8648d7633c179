"""TPC-H: its tables, generated, and its 22 questions, each asked in SQL of our own.

The tables come from `tpchgen-cli`, a package of the Python index, into the cache of the tests. The questions
are those of the specification with its validation parameters, written for Spark: explicit joins, and a common
table expression where the specification has a view.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.parts.cache import Missing, once

__all__ = ["QUESTIONS", "TABLES", "tables"]

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
INSTALL_SECONDS = 300


def tables(scale: float) -> Path:
    """A folder with one Parquet file for each table; raises Missing where they cannot be made."""

    def fill(folder: Path) -> None:
        tool = folder / "tool"
        _run(sys.executable, "-m", "venv", "--without-pip", str(tool))
        python = tool / "bin" / "python"
        _run(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "tpchgen-cli")
        _run(str(tool / "bin" / "tpchgen-cli"), "parquet", "-s", str(scale), f"--output-dir={folder}")

    return once(f"tpch-{scale}", fill)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise Missing(f"TPC-H's tables cannot be made: {str(said).strip()[-200:]}") from error


_REVENUE = "l_extendedprice * (1 - l_discount)"

QUESTIONS = {
    "q01": f"""
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price,
            sum({_REVENUE}) AS discounted, sum({_REVENUE} * (1 + l_tax)) AS charged,
            avg(l_quantity) AS mean_quantity, avg(l_extendedprice) AS mean_price,
            avg(l_discount) AS mean_discount, count(*) AS lines
        FROM lineitem WHERE l_shipdate <= DATE'1998-09-02'
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "q02": """
        WITH european AS (
            SELECT ps_partkey, ps_supplycost, s_acctbal, s_name, n_name, s_address, s_phone, s_comment
            FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON n_nationkey = s_nationkey JOIN region ON r_regionkey = n_regionkey
            WHERE r_name = 'EUROPE'),
        cheapest AS (SELECT ps_partkey AS key, min(ps_supplycost) AS cost FROM european GROUP BY ps_partkey)
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part JOIN european ON ps_partkey = p_partkey
        JOIN cheapest ON key = p_partkey AND cost = ps_supplycost
        WHERE p_size = 15 AND p_type LIKE '%BRASS'
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    "q03": f"""
        SELECT o_orderkey, sum({_REVENUE}) AS revenue, o_orderdate, o_shippriority
        FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE'1995-03-15' AND l_shipdate > DATE'1995-03-15'
        GROUP BY o_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "q04": """
        SELECT o_orderpriority, count(*) AS late FROM orders
        WHERE o_orderdate >= DATE'1993-07-01' AND o_orderdate < DATE'1993-10-01' AND EXISTS (
            SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    "q05": f"""
        SELECT n_name, sum({_REVENUE}) AS revenue
        FROM region JOIN nation ON n_regionkey = r_regionkey JOIN customer ON c_nationkey = n_nationkey
        JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE'1994-01-01' AND o_orderdate < DATE'1995-01-01'
        GROUP BY n_name ORDER BY revenue DESC""",
    "q06": """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE year(l_shipdate) = 1994 AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "q07": f"""
        SELECT sold.n_name AS seller, bought.n_name AS buyer, year(l_shipdate) AS shipped,
            sum({_REVENUE}) AS revenue
        FROM lineitem JOIN supplier ON s_suppkey = l_suppkey
        JOIN nation sold ON sold.n_nationkey = s_nationkey
        JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
        JOIN nation bought ON bought.n_nationkey = c_nationkey
        WHERE (sold.n_name, bought.n_name) IN (('FRANCE', 'GERMANY'), ('GERMANY', 'FRANCE'))
            AND year(l_shipdate) IN (1995, 1996)
        GROUP BY sold.n_name, bought.n_name, year(l_shipdate) ORDER BY seller, buyer, shipped""",
    "q08": f"""
        SELECT year(o_orderdate) AS ordered,
            sum(CASE WHEN home.n_name = 'BRAZIL' THEN {_REVENUE} ELSE 0 END) / sum({_REVENUE}) AS share
        FROM part JOIN lineitem ON l_partkey = p_partkey JOIN supplier ON s_suppkey = l_suppkey
        JOIN nation home ON home.n_nationkey = s_nationkey JOIN orders ON o_orderkey = l_orderkey
        JOIN customer ON c_custkey = o_custkey JOIN nation abroad ON abroad.n_nationkey = c_nationkey
        JOIN region ON r_regionkey = abroad.n_regionkey
        WHERE r_name = 'AMERICA' AND p_type = 'ECONOMY ANODIZED STEEL'
            AND o_orderdate BETWEEN DATE'1995-01-01' AND DATE'1996-12-31'
        GROUP BY year(o_orderdate) ORDER BY ordered""",
    "q09": f"""
        SELECT n_name, year(o_orderdate) AS ordered, sum({_REVENUE} - ps_supplycost * l_quantity) AS profit
        FROM lineitem JOIN part ON p_partkey = l_partkey JOIN supplier ON s_suppkey = l_suppkey
        JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
        JOIN orders ON o_orderkey = l_orderkey JOIN nation ON n_nationkey = s_nationkey
        WHERE p_name LIKE '%green%' GROUP BY n_name, year(o_orderdate) ORDER BY n_name, ordered DESC""",
    "q10": f"""
        SELECT c_custkey, c_name, sum({_REVENUE}) AS revenue, c_acctbal, n_name, c_address, c_phone, c_comment
        FROM customer JOIN nation ON n_nationkey = c_nationkey JOIN orders ON o_custkey = c_custkey
        JOIN lineitem ON l_orderkey = o_orderkey
        WHERE l_returnflag = 'R' AND o_orderdate >= DATE'1993-10-01' AND o_orderdate < DATE'1994-01-01'
        GROUP BY ALL ORDER BY revenue DESC LIMIT 20""",
    "q11": """
        WITH german AS (
            SELECT ps_partkey, ps_supplycost * ps_availqty AS worth
            FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey JOIN nation ON n_nationkey = s_nationkey
            WHERE n_name = 'GERMANY')
        SELECT ps_partkey, sum(worth) AS worth FROM german GROUP BY ps_partkey
        HAVING sum(german.worth) > (SELECT sum(worth) * 0.0001 FROM german) ORDER BY worth DESC""",
    "q12": """
        SELECT l_shipmode, count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')) AS urgent,
            count_if(o_orderpriority NOT IN ('1-URGENT', '2-HIGH')) AS others
        FROM orders JOIN lineitem ON l_orderkey = o_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_shipdate < l_commitdate AND l_commitdate < l_receiptdate
            AND year(l_receiptdate) = 1994
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    "q13": """
        WITH counted AS (
            SELECT c_custkey, count(o_orderkey) AS orders FROM customer
            LEFT JOIN orders ON o_custkey = c_custkey AND NOT o_comment LIKE '%special%requests%'
            GROUP BY c_custkey)
        SELECT orders, count(*) AS customers FROM counted GROUP BY orders
        ORDER BY customers DESC, orders DESC""",
    "q14": f"""
        SELECT 100 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN {_REVENUE} ELSE 0 END) / sum({_REVENUE})
            AS promoted
        FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE l_shipdate >= DATE'1995-09-01' AND l_shipdate < DATE'1995-10-01'""",
    "q15": f"""
        WITH earned AS (
            SELECT l_suppkey, sum({_REVENUE}) AS revenue FROM lineitem
            WHERE l_shipdate >= DATE'1996-01-01' AND l_shipdate < DATE'1996-04-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, revenue
        FROM supplier JOIN earned ON l_suppkey = s_suppkey
        WHERE revenue = (SELECT max(revenue) FROM earned) ORDER BY s_suppkey""",
    "q16": """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers
        FROM partsupp JOIN part ON p_partkey = ps_partkey
        LEFT ANTI JOIN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%') bad
            ON bad.s_suppkey = ps_suppkey
        WHERE p_brand <> 'Brand#45' AND NOT p_type LIKE 'MEDIUM POLISHED%'
            AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
        GROUP BY p_brand, p_type, p_size ORDER BY suppliers DESC, p_brand, p_type, p_size""",
    "q17": """
        SELECT sum(l_extendedprice) / 7 AS yearly FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND l_quantity < (
            SELECT 0.2 * avg(other.l_quantity) FROM lineitem other WHERE other.l_partkey = p_partkey)""",
    "q18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate LIMIT 100""",
    "q19": f"""
        SELECT sum({_REVENUE}) AS revenue FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND p_size >= 1 AND (
            (p_brand = 'Brand#12' AND p_container LIKE 'SM %' AND l_quantity BETWEEN 1 AND 11 AND p_size <= 5)
            OR (p_brand = 'Brand#23' AND p_container LIKE 'MED %' AND l_quantity BETWEEN 10 AND 20
                AND p_size <= 10)
            OR (p_brand = 'Brand#34' AND p_container LIKE 'LG %' AND l_quantity BETWEEN 20 AND 30
                AND p_size <= 15))""",
    "q20": """
        WITH shipped AS (
            SELECT l_partkey, l_suppkey, 0.5 * sum(l_quantity) AS half FROM lineitem
            WHERE year(l_shipdate) = 1994 GROUP BY l_partkey, l_suppkey)
        SELECT s_name, s_address FROM supplier JOIN nation ON n_nationkey = s_nationkey
        WHERE n_name = 'CANADA' AND s_suppkey IN (
            SELECT ps_suppkey FROM partsupp JOIN shipped ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
            WHERE ps_availqty > half
                AND ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%'))
        ORDER BY s_name""",
    "q21": """
        SELECT s_name, count(*) AS waited
        FROM supplier JOIN nation ON n_nationkey = s_nationkey
        JOIN lineitem late ON late.l_suppkey = s_suppkey
        JOIN orders ON o_orderkey = late.l_orderkey
        WHERE n_name = 'SAUDI ARABIA' AND o_orderstatus = 'F' AND late.l_receiptdate > late.l_commitdate
            AND EXISTS (SELECT 1 FROM lineitem other WHERE other.l_orderkey = late.l_orderkey
                AND other.l_suppkey <> late.l_suppkey)
            AND NOT EXISTS (SELECT 1 FROM lineitem other WHERE other.l_orderkey = late.l_orderkey
                AND other.l_suppkey <> late.l_suppkey AND other.l_receiptdate > other.l_commitdate)
        GROUP BY s_name ORDER BY waited DESC, s_name LIMIT 100""",
    "q22": """
        WITH rich AS (
            SELECT c_custkey, c_acctbal, left(c_phone, 2) AS country FROM customer
            WHERE left(c_phone, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        SELECT country, count(*) AS customers, sum(c_acctbal) AS balance FROM rich
        LEFT ANTI JOIN orders ON o_custkey = c_custkey
        WHERE c_acctbal > (SELECT avg(c_acctbal) FROM rich WHERE c_acctbal > 0)
        GROUP BY country ORDER BY country""",
}
