"""DuckDB's own reader of JSON loads a file of events, all lines sampled. Structures stay structures.

python duckdb_load.py FILE DATABASE
"""

from __future__ import annotations

import json
import sys


def main(file: str, database: str) -> None:
    import duckdb

    with duckdb.connect(database) as connection:
        connection.execute(
            "CREATE TABLE events AS SELECT * FROM "
            "read_json_auto(?, format = 'newline_delimited', sample_size = -1)",
            [file],
        )
        [(rows,)] = connection.execute("SELECT count(*) FROM events").fetchall()
        [(columns,)] = connection.execute(
            "SELECT count(*) FROM duckdb_columns() WHERE table_name = 'events'"
        ).fetchall()
    sys.stdout.write(json.dumps({"rows": rows, "columns": columns}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
