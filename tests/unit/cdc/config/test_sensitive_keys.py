"""Which settings of other programs hold secrets; none of their values may be shown."""

from __future__ import annotations

import pytest

from cdc.config.value_types import is_sensitive
from cdc.debezium.audit import audit
from cdc.debezium.connector import capture_settings
from schemas.redaction import redact
from tests.unit.cdc.configuration import changed, read, refusal
from tests.unit.cdc.configuration import environment as environment
from tests.unit.cdc.debezium.connectors import plain

SECRETS = [
    "database.password",
    "fs.s3a.secret.key",
    "fs.s3a.bucket.lake.session.token",
    "fs.s3a.encryption.key",
    "fs.s3a.bucket.lake.server-side-encryption.key",
    "fs.azure.account.key.lake.dfs.core.windows.net",
    "fs.azure.sas.container.lake.blob.core.windows.net",
    "fs.azure.sas.fixed.token.lake.dfs.core.windows.net",
    "fs.azure.account.oauth2.refresh.token.lake.dfs.core.windows.net",
    "fs.gs.auth.service.account.private.key",
    "fs.azure.account.oauth2.refresh.token.files.dfs.core.windows.net",
    "fs.azure.account.oauth2.client.secret.lake.dfs.core.windows.net",
    "spark.authenticate.secret",
    "credentials",
    "spark.kubernetes.authenticate.submission.oauthToken",
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.key.pem",
    "basic.auth.user.info",
    "value.converter.basic.auth.user.info",
    "value.converter.bearer.auth.token",
]
HARMLESS = [
    "key.converter",
    "key_columns",
    "message.key.columns",
    "hoodie.datasource.write.recordkey.field",
    "value.converter.basic.auth.credentials.source",
    "fs.s3a.access.key",
    "fs.s3a.aws.credentials.provider",
    "fs.s3a.delegation.token.binding",
    "fs.azure.account.keyprovider.lake.dfs.core.windows.net",
    "fs.azure.account.oauth2.client.id",
    "fs.azure.sas.token.provider.type.lake.dfs.core.windows.net",
    "hadoop.security.credential.provider.path",
    "sasl.oauthbearer.token.endpoint.url",
    "spark.kafka.clusters.a.sasl.token.mechanism",
    "spark.kubernetes.authenticate.submission.oauthTokenFile",
    "spark.kubernetes.driver.secrets.spark-secret",
    "spark.kubernetes.executor.secretKeyRef.PASSWORD",
    "spark.security.credentials.hive.enabled",
    "spark.sql.tokenizer",
    "spark.kubernetes.kerberos.tokenSecret.name",
    "spark.kubernetes.kerberos.tokenSecret.itemKey",
    "spark.authenticate.secret.file",
    "spark.authenticate.secret.driver.file",
    "spark.authenticate.secretBitLength",
    "spark.security.credentials.renewalRatio",
    "spark.security.credentials.retryWait",
    "spark.yarn.am.tokenConfRegex",
    "fs.azure.enable.delegation.token",
    "fs.azure.sas.token.renew.period.for.streams",
    "fs.azure.oauth.token.fetch.retry.max.retries",
    "fs.s3a.delegation.token.role.arn",
    "mapreduce.job.hdfs-servers.token-renewal.exclude",
    "mapreduce.job.complete.cancel.delegation.tokens",
    "mapreduce.job.credentials.binary",
    "hadoop.token.files",
    "ssl.keystore.location",
    "ssl.certificate.pem",
]


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_by_its_name_has_to_be_a_reference_and_is_kept_out_of_text(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = refusal(changed(("lake", "hadoop"), {key: "hunter2"}))
    assert "plain text" in error.message
    assert "hunter2" not in error.message
    secret = f"resolved-{key}"
    monkeypatch.setenv("OF_THIS_KEY", secret)
    config = read(changed(("lake", "hadoop"), {key: "${OF_THIS_KEY}"}))
    assert config.lake.hadoop == {key: secret}
    assert redact(f"it failed with {secret}") == "it failed with ***"


@pytest.mark.parametrize("key", HARMLESS)
def test_a_harmless_setting_may_be_written_as_it_is(key: str) -> None:
    assert read(changed(("lake", "hadoop"), {key: "x"})).lake.hadoop == {key: "x"}


@pytest.mark.parametrize("key", SECRETS)
def test_a_connector_must_not_hold_it_in_plain_text(key: str) -> None:
    config, capture = plain()
    (finding,) = audit({**config, key: "hunter2"}, capture)
    assert finding.property == key
    assert "hunter2" not in str(finding)


@pytest.mark.parametrize("key", ["snapshot.extra.token", "transforms.encrypt.key.pem"])
def test_what_a_connector_must_not_have_at_all_is_not_shown_either(key: str) -> None:
    config, capture = plain()
    findings = audit({**config, key: "hunter2"}, capture)
    assert [finding.property for finding in findings] == [key, key]
    assert not any("hunter2" in str(finding) for finding in findings)


def test_no_setting_that_a_capture_needs_is_taken_for_a_secret() -> None:
    _, capture = plain()
    assert not [name for name in capture_settings(capture) if is_sensitive(name)]
