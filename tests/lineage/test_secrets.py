"""No secret leaves with an event: not in names, SQL, errors, options, properties or paths (G12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lineage.naming.jdbc import jdbc_id
from headwater.lineage.naming.names import path_id
from headwater.lineage.naming.secret_mask import MASK, mask_secrets, mask_text
from headwater.testing.lineage import Events
from tests.lineage.made import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

MARK = "Zq7xK"  # no secret of these tests is without it, on both sides of every odd character

NAMES = [
    "password", "PASSWORD", "Pwd", "client_secret", "token", "apiKey", "fs.s3a.secret.key", "api-key",
    "fs.azure.account.key.acme.dfs.core.windows.net", "sasl.jaas.config", "trustStorePassword",
    "privateKey", "keystore.passphrase", "refresh_token", "fs.azure.sas.box.acme.signature",
    "secretAccessKey",
    "aws_secret_access_key", "pem_private_key", "credentials", "sfPassword",
    "javax.jdo.option.ConnectionPassword",
]  # fmt: skip
# Texts with a secret «S» of the setting «N», and the characters that it may hold there besides letters.
FORMS = [
    ("create table t using x options (url 'jdbc:x://h/d', «N» '«S»')", "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
    ("CREATE TABLE t OPTIONS ('«N»'='«S»', dbtable 'x')", "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
    ('create table t options («N» = "«S»")', "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
    ("set «N»=«S»", "!#$%*+-./:<=>?@[^_|~"),
    ('spark.read.option("«N»", "«S»").load()', "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
    ("Cannot connect: Map(url -> x, «N» -> «S», user -> me)", "!#$%*+-./:<=>?@[^_|~"),
    ('{"user": "me", "«N»": "«S»"}', "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
    ("failed with «N»: «S»", "!#$%*+-./:<=>?@[^_|~"),
    ("jdbc:x://host/db?«N»=«S»&more=1", "!#$%*+-./:<=>@[^_|~,"),
    ("jdbc:sqlserver://host;«N»=«S»;more=1", "!#$%*+-./:<=>?@[^_|~,"),
    ("jdbc:sqlserver://host;«N»={«S»};more=1", "!#$%&()*+-./:;<=>?@[]^_|~ ,"),
    ("jdbc:teradata://host/«N»=«S»,DATABASE=x", "!#$%*+-./:<=>?@[^_|~,"),
]  # fmt: skip
URLS = [
    ("jdbc:postgresql://me:«S»@host:5432/db", "!#$%*+,-.:;=@[]^_{|}~"),
    ("see jdbc:mysql://me:«S»@one:3306,two:3306/db for it", "!#$%*+,-.:;=@[]^_{|}~"),
    ("https://«S»@host/path", "!$%*+-.=@^_|~"),
    ("s3a://AKIA1:«S»@bucket/key", "!#$%*+,-./:;=@[]^_{|}~"),
    ("jdbc:oracle:thin:scott/«S»@host:1521:sid", "!#$%*+,-.:;=@[]^_{|}~/"),
    ("mongodb+srv://me:«S»@cluster.example/db", "!#$%*+,-.:;=@[]^_{|}~"),
    ("failed: wasbs://box@acme.blob.core.windows.net/a?sv=1&sig=«S»", "!#$%*+-./:=@^_|~"),
    ("Authorization: Bearer «S»", "-._~+/="),
    ("create user me identified by '«S»'", "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
    ("select aes_decrypt(a, '«S»', 'GCM') from t", "!#$%&()*+,-./:;<=>?@[]^_{|}~ "),
]


def _secret(characters: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from([*characters, "a", "B", "9"]), max_size=5).map(
        lambda odd: MARK + MARK.join(odd) + MARK
    )


def _texts() -> st.SearchStrategy[str]:
    named = [
        st.tuples(st.sampled_from(NAMES), _secret(characters)).map(
            lambda pair, form=form: form.replace("«N»", pair[0]).replace("«S»", pair[1])  # type: ignore[misc]
        )
        for form, characters in FORMS
    ]
    others = [_secret(odd).map(lambda secret, form=form: form.replace("«S»", secret)) for form, odd in URLS]  # type: ignore[misc]
    return st.one_of(*named, *others)


@settings(max_examples=1500, deadline=None)
@given(text=_texts())
def test_no_secret_is_left_when_it_stands_in_any_text_of_an_event(text: str) -> None:
    made = event(inputs=[text], outputs=["x"])
    made["run"]["facets"] = {
        "errorMessage": {"message": text, "stackTrace": f"java.lang.X: {text}\n\tat a.b.C(D.java:1)"},
        "extractionError": {"errors": [{"errorMessage": text}]},
        "spark_properties": {"properties": {"some.url": text}},
    }
    made["job"]["facets"] = {"sql": {"query": text}, "documentation": {"description": text}}
    made["outputs"][0]["facets"] = {"columnLineage": {"fields": {"a": {"transformationDescription": text}}}}
    mask_secrets(made)
    assert MARK.encode() not in orjson.dumps(made)


@pytest.mark.parametrize("name", NAMES)
def test_a_value_is_masked_when_its_key_or_its_name_is_that_of_a_secret(name: str) -> None:
    made = event()
    made["run"]["facets"] = {
        "spark_properties": {"properties": {name: MARK}},
        "environmentVariables": {"environmentVariables": [{"name": name, "value": MARK}]},
        "tags": {"tags": [{"key": name, "value": MARK}]},
    }
    mask_secrets(made)
    assert orjson.dumps(made).count(MASK.encode()) == 3
    assert MARK.encode() not in orjson.dumps(made)


@settings(max_examples=300, deadline=None)
@given(secret=_secret("!$%*+,-.:;=@^_|~"), store=_secret("/!$%*+,-.:;=@^_|~"))
def test_no_user_is_in_a_name_when_the_url_has_one(secret: str, store: str) -> None:
    for url in (
        f"jdbc:postgresql://me:{secret}@db/shop", f"jdbc:mysql://me:{secret}@db/shop",
        f"jdbc:unknown://me:{secret}@db:1/shop", f"jdbc:oracle:thin:me/{secret}@db:1521:sid",
        f"jdbc:oracle:thin:me/{secret}@//db:1521/sid", f"jdbc:sqlserver://db;user=me;password={{{secret}}}",
        f"jdbc:clickhouse:http://me:{secret}@db/shop", f"jdbc:trino://me:{secret}@db/hive",
    ):  # fmt: skip
        assert MARK not in " ".join(jdbc_id(url, "t")), url
    for path in (
        f"s3a://key:{store}@bucket/a", f"s3n://key:{store}@bucket/a", f"https://me:{secret}@host/a",
        f"hdfs://me:{secret}@host:8020/a", f"abfss://box:{secret}@account/a", f"ftp://me:{secret}@host/a",
    ):  # fmt: skip
        assert MARK not in " ".join(path_id(path)), path


@pytest.mark.parametrize(
    "text",
    [
        "select token, 'literal' from t where id = 1",
        "https://host:8080/path?mail=a@b.example",
        "abfss://box@account.dfs.core.windows.net/a/b",
        "jdbc:oracle:thin:@//host:1521/service",
        "select key, count(*) from t group by key -- a@b",
        "PRIMARY KEY (id)",
        "s3a://bucket/a@b/c",
    ],
)
def test_a_text_stays_as_it_is_when_it_holds_no_secret(text: str) -> None:
    assert mask_text(text) == text


def _source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Leaky(DataSource):
        @classmethod
        def name(cls) -> str:
            return "leaky"

        def schema(self) -> str:
            return "id int"

        def reader(self, schema: object) -> DataSourceReader:
            options = dict(self.options)

            class Reader(DataSourceReader):
                def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
                    if options.get("fails"):
                        raise ValueError(f"cannot connect with {options}")
                    yield (1,)

            return Reader()

    return Leaky


@pytest.mark.long
def test_no_secret_is_sent_when_connectors_are_used_with_them(
    spark: SparkSession, events: Events, tmp_path: Path
) -> None:
    secret = f"{MARK}/p@ss"
    spark.dataSource.register(_source())
    spark.conf.set("spark.hadoop.fs.s3a.secret.key", secret)
    out = str(tmp_path / "out")

    def write(frame: DataFrame) -> None:
        with suppress(Exception):
            frame.write.mode("overwrite").parquet(out)

    derby = f"jdbc:derby:memory:{tmp_path.name};create=true;user=me;password={MARK}"
    one = spark.range(1)
    with suppress(Exception):
        one.write.format("jdbc").options(url=derby, dbtable="t1", driver=DERBY, password=secret).save()
    for options in (
        {"url": derby, "dbtable": "t1", "password": secret},
        {"url": derby, "query": f"select id from t1 where 'password={MARK}' <> 'x'"},
        {"url": derby, "dbtable": "no_such_table", "password": secret},
        {"url": f"jdbc:nosuch://me:{secret}@host/db?password={MARK}", "dbtable": "t1"},
    ):
        with suppress(Exception):
            write(spark.read.format("jdbc").options(**options).load())
    for more in ({}, {"fails": "yes"}):
        write(
            spark.read.format("leaky")
            .options(url=f"https://me:{secret}@host/a?token={MARK}", api_key=secret, **more)
            .load()
        )
    for text in (
        f"create table leak using jdbc options "
        f"(url '{derby}', dbtable 't1', driver '{DERBY}', password '{secret}')",
        f"create table leak2 using parquet options ('api.token' '{secret}') "
        f"tblproperties ('client_secret' '{secret}') comment 'password: {MARK}' as select 1 a",
        "select * from leak",
        f"create view leak3 tblproperties (password = '{secret}') as select * from leak2",
        f"alter table leak2 set tblproperties ('password' = '{secret}')",
        f"create table leak4 using csv location 's3a://key:{secret}@bucket/a' as select 1 a",
        f"insert overwrite directory '{out}' using parquet "
        f"select base64(aes_encrypt('a', '{MARK}abcdefghijk'))",
        f"select raise_error('password={secret}') from leak2",
        f"select * from json.`s3a://key:{secret}@bucket/a`",
        f"insert into leak2 values (no_such_function(password => '{secret}'))",
    ):
        with suppress(Exception):
            spark.sql(text).collect()
    spark.sparkContext.setJobDescription(f"load with password={secret}")
    write(one)
    spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]
    with suppress(Exception):
        spark.sparkContext.textFile(f"s3a://key:{secret}@bucket/a").count()
    sent = events.all
    for name in ("leak", "leak2", "leak4"):
        spark.sql(f"drop table if exists {name}")
    spark.sql("drop view if exists leak3")
    leaks = [text for each in sent if MARK in (text := orjson.dumps(each).decode())]
    assert [text[max(0, text.index(MARK) - 200) :][:300] for text in leaks] == []
    assert len({each["run"]["runId"] for each in sent}) >= 15  # most of it did have events


DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
