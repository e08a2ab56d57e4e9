from __future__ import annotations

from pathlib import Path

import pytest

from cdc.config import Config, SparkConfig
from cdc.config.value_types import is_sensitive
from cdc.errors import ConfigError, LakeError
from cdc.runtime.object_stores import store_defaults
from cdc.runtime.spark import hadoop_settings, session_settings
from tests.unit.cdc.configuration import changed, full, read, refusal
from tests.unit.cdc.configuration import environment as environment

DRIVER = "spark.driver.extraJavaOptions"


def settings(**conf: str) -> dict[str, str]:
    config = Config.model_validate(full())
    spark = SparkConfig(jars="provided", conf=conf)
    return session_settings(config.model_copy(update={"spark": spark}))


def test_batches_get_the_collector_for_throughput() -> None:
    assert "-XX:+UseParallelGC" in settings()[DRIVER]


@pytest.mark.parametrize("options", [DRIVER, "spark.executor.extraJavaOptions"])
def test_no_jvm_is_started_to_attach_to_another(options: str) -> None:
    """JOL would start two before the first commit, in vain."""
    names = {option.partition("=")[0] for option in settings()[options].split()}
    assert {"-Djol.skipDynamicAttach", "-Djol.skipHotspotSAAttach"} <= names


def test_only_a_process_that_ends_soon_gets_its_second_compiler_late() -> None:
    """The user's own thresholds come last, so that they apply."""
    own = "-XX:Tier4InvocationThreshold=7"
    config = Config.model_validate(full())
    spark = SparkConfig(jars="provided", conf={DRIVER: own})
    config = config.model_copy(update={"spark": spark})
    soon = session_settings(config, ends_soon=True)[DRIVER].split()
    assert "-XX:Tier4InvocationThreshold=50000" in soon
    assert soon[-1] == own
    assert [one for one in session_settings(config)[DRIVER].split() if "Tier4" in one] == [own]


@pytest.mark.parametrize("collector", ["-XX:+UseZGC", "-XX:+UseG1GC", "-XX:+UseParallelGC"])
def test_a_collector_of_the_users_own_is_the_only_one(collector: str) -> None:
    options = settings(**{DRIVER: f"-Xss4m {collector}"})[DRIVER]
    assert options.count("-XX:+Use") == 1
    assert options.endswith(f"-Xss4m {collector}")


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"},
        {"JAVA_TOOL_OPTIONS": "-Xss4m -XX:+UseG1GC"},
        {"_JAVA_OPTIONS": "-XX:+UseZGC"},
        {"SPARK_SUBMIT_OPTS": "-XX:+UseShenandoahGC"},
        {"SPARK_CONF_DIR": "spark.driver.defaultJavaOptions -XX:+UseSerialGC"},
    ],
)
def test_a_collector_that_is_chosen_elsewhere_is_the_only_one(
    elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A JVM with two collectors does not start."""
    conf = {key: value for key, value in elsewhere.items() if key.startswith("spark.")}
    for name, value in elsewhere.items() - conf.items():
        (tmp_path / "spark-defaults.conf").write_text(value)
        monkeypatch.setenv(name, str(tmp_path) if name == "SPARK_CONF_DIR" else value)
    assert "-XX:+Use" not in settings(**conf)[DRIVER]


@pytest.mark.parametrize(
    "key", ["spark.executor.defaultJavaOptions", "spark.executorEnv.JAVA_TOOL_OPTIONS"]
)
def test_a_collector_of_executors_that_is_chosen_elsewhere_is_the_only_one(key: str) -> None:
    found = settings(**{key: "-XX:+UseG1GC"})
    assert "-XX:+Use" not in found["spark.executor.extraJavaOptions"]
    assert "-XX:+UseParallelGC" in found[DRIVER]


def test_an_option_with_gc_in_its_name_chooses_no_collector() -> None:
    options = settings(**{DRIVER: "-XX:+UseGCOverheadLimit -XX:+UseMaximumCompactionOnSystemGC"})
    assert "-XX:+UseParallelGC" in options[DRIVER]


def test_the_driver_runs_where_the_command_does() -> None:
    mode = "spark.submit.deployMode"
    assert SparkConfig(master="yarn", conf={mode: "client"}).conflicts() == []
    ((path, reason),) = SparkConfig(master="yarn", conf={mode: "cluster"}).conflicts()
    assert path == ("conf", mode)
    assert "run the command on the machine that is to have the driver" in reason
    with pytest.raises(ConfigError, match=r'conf."spark.submit.deployMode": can only be client'):
        read(changed(("spark", "conf"), {mode: "cluster"}))


def test_a_second_attempt_of_a_task_is_never_asked_for() -> None:
    assert settings()["spark.speculation"] == "false", "also against spark-defaults.conf"
    with pytest.raises(LakeError, match=r"spark\.conf may not change spark\.speculation"):
        settings(**{"spark.speculation": "true"})


def test_settings_that_results_need_are_not_hadoops_to_change() -> None:
    required = "parquet.avro.write-old-list-structure"
    config = read(changed(("lake", "hadoop"), {required: True, "fs.s3a.endpoint": "x"}))
    assert hadoop_settings(config) == {"fs.s3a.endpoint": "x"}
    assert session_settings(config)[f"spark.hadoop.{required}"] == "false"


def test_a_lake_on_s3_gets_bounds_unless_it_is_given_others() -> None:
    key = "fs.s3a.retry.limit"
    on_s3 = read(full())
    bounds = store_defaults(on_s3)
    assert bounds[key] == "4"
    given = changed(("lake", "hadoop"), {key: 9})
    assert key not in store_defaults(read(given))
    assert key not in store_defaults(read(changed(("spark", "conf"), {f"spark.hadoop.{key}": 9})))
    assert store_defaults(read(changed(("lake", "url"), "/lake"))) == {}
    assert not [name for name in bounds if is_sensitive(name)]


def test_a_lake_on_gcs_gets_the_class_of_its_file_system() -> None:
    key = "fs.gs.impl"
    document = changed(("lake", "url"), "gs://lake/cdc")
    assert store_defaults(read(document))[key].endswith("GoogleHadoopFileSystem")
    document["lake"]["hadoop"] = {key: "their.Own"}
    assert key not in store_defaults(read(document))


def test_what_the_lake_is_given_goes_before_what_spark_is() -> None:
    key = "fs.s3a.secret.key"
    document = changed(("spark", "conf"), {f"spark.hadoop.{key}": "${ADMIN_PW}", "spark.a": "b"})
    config = read(document)
    assert hadoop_settings(config) == {key: "canary-s3_secret"}
    assert session_settings(config)["spark.a"] == "b"
    assert not [name for name in session_settings(config) if "s3a" in name]


def test_a_secret_that_only_a_command_line_could_carry_is_refused() -> None:
    path = ("spark", "conf")
    error = refusal(changed(path, {"spark.ssl.keyPassword": "${ADMIN_PW}"}))
    assert error.context["field"] == 'spark.conf."spark.ssl.keyPassword"'
    assert "spark-defaults.conf" in error.message
    assert "lake.hadoop" in error.message
    assert "canary" not in error.message
    plain = refusal(changed(path, {"spark.ssl.keyPassword": "hidden"}))
    assert "plain text" in plain.message, "once, and the graver reason"
    assert "problems" not in plain.message
    with pytest.raises(ConfigError, match=r"spark\.conf\.spark\.ssl\.keyPassword"):
        settings(**{"spark.ssl.keyPassword": "secret"})


@pytest.mark.parametrize(
    ("tables", "entries"), [(0, "2000"), (200, "2000"), (1000, "10000"), (9000, "20000")]
)
def test_generated_code_is_kept_for_all_tables(tables: int, entries: str) -> None:
    key = "spark.sql.codegen.cache.maxEntries"
    config = read(full())
    assert session_settings(config, tables)[key] == entries
    own = config.spark.model_copy(update={"conf": {key: "7"}})
    assert session_settings(config.model_copy(update={"spark": own}), tables)[key] == "7"
